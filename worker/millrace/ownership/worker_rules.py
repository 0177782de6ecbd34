"""What a claim means to a worker (R3), decided from one record. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from millrace.connectivity.ports import OffsetAndMetadata
from millrace.ownership.claim import OP, Claim
from millrace.ownership.control_rules import Identity, Standing, standing
from millrace.ownership.epoch import Epoch


class Meaning(Enum):
    """MINE: take the partition up (R3b). EARLY: it names me under an epoch that I don't know yet, so I wait for that.
    OTHERS: somebody else holds it. ABSENT, FOREIGN: nobody may act on it; a worker never seeds.
    """

    MINE = "mine"
    EARLY = "early"
    OTHERS = "others"
    ABSENT = "absent"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a record means, and why in words fit for a readiness report ("partition 3 waits: ...")."""

    meaning: Meaning
    why: str


def judge(identity: Identity, view: Epoch, index: int, record: OffsetAndMetadata | None) -> Judgement:
    """What the record of a partition means to worker `index`, whose newest epoch is `view`."""
    claim = Claim.decode(record.metadata) if record else None
    if record is None:
        return Judgement(Meaning.ABSENT, "it has no claim")
    if claim is None or standing(identity, record) is not Standing.OURS:
        return Judgement(Meaning.FOREIGN, "its claim is not this pipeline's")
    if claim.holder == OP:
        return Judgement(Meaning.OTHERS, "it is parked with the control plane")
    if claim.holder != index:
        return Judgement(Meaning.OTHERS, f"worker {claim.holder} holds it")
    if claim.epoch > view.number:
        return Judgement(
            Meaning.EARLY, f"its claim is of epoch {claim.epoch}, the newest I have is {view.number}"
        )
    return Judgement(Meaning.MINE, f"it is mine from offset {record.offset}")
