"""The epoch: the plan's published, numbered version. Workers read it; the control plane alone writes it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from millrace.errors import ExitCode, MillraceError
from millrace.ownership.claim import OP
from millrace.ownership.plan import plan


class EpochError(MillraceError):
    """What should be an epoch is none: the file was damaged, or edited by hand."""

    code = ExitCode.FAILED


@dataclass(frozen=True, slots=True)
class Epoch:
    """A numbered version of the plan.

    Attributes:
        uid: the pipeline's.
        number: larger than that of any epoch before it, and than that in any claim. Numbers never start again.
        partitions: how many partitions of the source are seeded, so that workers may expect claims for them.
        replicas: how many workers share them. 0: all claims are parked with the control plane.
        replicas_ever: the largest number of replicas that there ever was, so that indices which may still hold
            claims are known.
    """

    uid: str
    number: int
    partitions: int
    replicas: int
    replicas_ever: int

    @classmethod
    def first(cls, uid: str) -> Epoch:
        """Epoch 0, published before the first worker starts: nothing is seeded, nobody owns anything."""
        return cls(uid, 0, 0, 0, 0)

    def owner(self, partition: int) -> int:
        """Index of the worker that owns the partition, or OP if there are no replicas.

        Raises IndexError for a partition that is not in this epoch.
        """
        if not 0 <= partition < self.partitions:
            raise IndexError(
                f"partition {partition} is not among the {self.partitions} of epoch {self.number}"
            )
        return OP if self.replicas == 0 else plan(self.partitions, self.replicas)[partition]

    def owned_by(self, index: int) -> frozenset[int]:
        """The partitions of a worker (or of OP)."""
        if self.replicas == 0:
            return frozenset(range(self.partitions)) if index == OP else frozenset()
        owners = plan(self.partitions, self.replicas)
        return frozenset(p for p, owner in enumerate(owners) if owner == index)

    def encode(self) -> str:
        """JSON on one line."""
        return json.dumps(
            {
                "uid": self.uid,
                "number": self.number,
                "partitions": self.partitions,
                "replicas": self.replicas,
                "replicasEver": self.replicas_ever,
            }
        )

    @staticmethod
    def decode(text: str, *, where: str = "") -> Epoch:
        """Raises EpochError (and nothing else) on anything that `encode` can't have written. Unknown keys are
        ignored. `where` is the file or object, for the error.
        """
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _bad(f"the epoch is not JSON: {error}", where) from None
        if not isinstance(fields, dict):
            raise _bad(f"the epoch is a JSON {type(fields).__name__}, not an object", where)
        uid = fields.get("uid")
        if not isinstance(uid, str) or not uid:
            raise _bad(f"the epoch's uid is {uid!r}, not a text", where)
        numbers = []
        for key in ("number", "partitions", "replicas", "replicasEver"):
            value = fields.get(key)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise _bad(f"the epoch's {key} is {value!r}, not a whole number from 0 on", where)
            numbers.append(value)
        if numbers[3] < numbers[2]:
            raise _bad(
                f"the epoch's replicasEver, {numbers[3]}, is less than its replicas, {numbers[2]}", where
            )
        return Epoch(uid, *numbers)


def _bad(what: str, where: str) -> EpochError:
    remedy = (
        "put back the last good copy of the epoch; numbers must not start again, so never write one by hand "
        "that is lower than those in the claims"
    )
    return EpochError(what, where=where, remedy=remedy)
