"""How a pipeline gets to the number of workers that is wanted: R4 and R5, as far as the StatefulSet is concerned.

What Kafka needs is decided by the same rules as in a local run (`control_rules`); here it is decided when the StatefulSet
may follow. Its replicas are the operator's alone: whoever else changes them is corrected, in the order of R4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millrace.errors import ExitCode
from millrace.ownership.control_rules import (
    Advance,
    Scale,
    Settled,
    Step,
    examine,
    holders,
    next_step,
    passes,
)
from millrace.ownership.errors import ClaimLost, ForeignClaim
from millrace_operator.observed import KafkaView
from millrace_operator.outcome import KafkaWork
from millrace_operator.pods import Crew

# A look can tell by itself when these are over.
_OF_CLAIMS: Final = frozenset({ExitCode.CLAIM_LOST, ExitCode.CLAIM_FOREIGN})


@dataclass(frozen=True, slots=True)
class Course:
    """Attributes:
    scale: replicas that the StatefulSet should have now.
    step: what is next; None: not known, since Kafka could not be looked at or its claims are in doubt.
    work: what the control plane should do now.
    moving: partitions whose claims do not name their planned owner yet; workers pass them on by themselves.
    """

    scale: int
    step: Step | None
    work: KafkaWork | None
    moving: int = 0

    @property
    def settled(self) -> bool:
        still = self.work is None or self.work.why == "renew"
        return isinstance(self.step, Settled) and still and not self.moving


def course(view: KafkaView | None, crew: Crew, wanted: int) -> Course:
    """As long as nothing is known of Kafka the workers stay as they are."""
    fleet = crew.fleet
    if view is None or view.identity is None or view.epoch is None:
        return Course(fleet.scale, None, None)
    if view.failure is not None and view.failure.code not in _OF_CLAIMS:
        return Course(fleet.scale, None, None)
    identity, epoch, claims = view.identity, view.epoch, view.claims
    try:
        examine(identity, epoch, claims, view.mirror)
    except (ClaimLost, ForeignClaim):
        # where none is wanted they may end all the same: what still names them is passed on for them (R5), if ever
        scale = fleet.scale if wanted else 0
        return Course(scale, None, KafkaWork(wanted, fleet, "examine"))
    # before the topic can be described again it has as many partitions as it had
    partitions = max(view.partitions, epoch.partitions)
    step = next_step(identity, epoch, claims, replicas=wanted, partitions=partitions, fleet=fleet)
    work = None
    if isinstance(step, Advance) or passes(identity, epoch, claims, fleet):
        work = KafkaWork(wanted, fleet)
    elif epoch.replicas == 0 and epoch.number > 0:
        work = KafkaWork(wanted, fleet, "renew")
    held = holders(identity, claims, range(epoch.partitions))
    moving = sum(holder != epoch.owner(partition) for partition, holder in held.items())
    return Course(step.replicas if isinstance(step, Scale) else fleet.scale, step, work, moving)
