"""The claim: the right to a partition, kept as metadata beside its committed offset.

A claim is JSON in the metadata of an offset that is committed in the reserved group `<groupId>.claims`. Whatever else
may be found there (nothing, a stray's text, a claim of a version not known here) is not a claim, and nobody acts on it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, TypeGuard

OP: Final = -1
"""The holder of a parked claim: the control plane (operator, or the parent of a local run)."""

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Claim:
    """Who may process a partition from the offset beside which this is committed.

    Attributes:
        uid: the pipeline's.
        topic_id: Kafka's id of the source topic (KIP-516); another one means that the topic was made anew and that
            the offset has no meaning.
        epoch: number of the epoch under which it was written.
        holder: index of the worker, or OP.
        note: what the holder has to remember of the partition as it is at this offset; nobody else looks into it, and
            whoever passes the partition on passes the note on with it. None: nothing.
    """

    uid: str
    topic_id: str
    epoch: int
    holder: int
    note: str | None = None

    def encode(self) -> str:
        """Metadata to be committed: about 100 bytes of ASCII and the note, of the 4096 that a broker takes by default."""
        fields: dict[str, object] = {
            "v": VERSION,
            "uid": self.uid,
            "topic": self.topic_id,
            "epoch": self.epoch,
            "holder": self.holder,
        }
        if self.note is not None:
            fields["note"] = self.note
        return json.dumps(fields, separators=(",", ":"))

    @staticmethod
    def decode(metadata: str | None) -> Claim | None:
        """The claim in a metadata text; None if there is none that this version understands. Never raises.

        Keys not known are ignored: a later version may add some as long as it keeps `v`.
        """
        if not metadata:
            return None
        try:
            fields = json.loads(metadata)
        except (ValueError, RecursionError):
            return None
        if not isinstance(fields, dict) or not _is_int(fields.get("v")) or fields["v"] != VERSION:
            return None
        uid, topic_id = fields.get("uid"), fields.get("topic")
        epoch, holder, note = fields.get("epoch"), fields.get("holder"), fields.get("note")
        if not isinstance(uid, str) or not uid or not isinstance(topic_id, str):
            return None
        if not _is_int(epoch) or epoch < 0 or not _is_int(holder) or holder < OP:
            return None
        return Claim(uid, topic_id, epoch, holder, note if isinstance(note, str) else None)


def transactional_id(uid: str, holder: int) -> str:
    """The id whose current producer alone may write claims of this holder (the fence, R1)."""
    return f"{uid}-op" if holder == OP else f"{uid}-{holder}"


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
