"""What is wrong with a pipeline's claims, when they are not as the protocol leaves them (R6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millrace.errors import ExitCode, MillraceError


class ClaimLost(MillraceError):
    """Claims of partitions that were seeded are gone: the reserved group was deleted or has expired.

    Never repaired by itself: nobody knows where processing had come to.

    Attributes:
        partitions: those without a claim.
        last_known: of those that the pipeline's own consumer group (the mirror) still has an offset for.
    """

    code = ExitCode.CLAIM_LOST

    def __init__(
        self,
        topic: str,
        group: str,
        claims_group: str,
        partitions: Iterable[int],
        last_known: Mapping[int, int],
    ) -> None:
        self.topic, self.group, self.claims_group = topic, group, claims_group
        self.partitions, self.last_known = tuple(sorted(partitions)), dict(last_known)
        offsets = ", ".join(f"{p}: {last_known[p]}" for p in self.partitions if p in last_known)
        super().__init__(
            f"claims are lost: group {claims_group} has no offset for partitions {shorten(self.partitions)} of {topic}",
            where=f"group {claims_group}, topic {topic}; last offsets known, from group {group}: {offsets or 'none'}",
            remedy="the group was deleted, or expired while everything was down. With all workers stopped, `millrace offsets "
            f"repair MANIFEST --from-group` writes them anew at the offsets of group {group}, which mirrors the claims; "
            "--to earliest, latest, an offset or a time: elsewhere. On a cluster `kubectl millrace offsets repair NAME` does it",
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (ClaimLost, (self.topic, self.group, self.claims_group, self.partitions, self.last_known))


class ForeignClaim(MillraceError):
    """Partitions are claimed by another pipeline, or the topic was deleted and made again.

    Attributes:
        partitions: those with a claim that is not ours, each with whose it is.
        last_known: the offsets beside those claims.
    """

    code = ExitCode.CLAIM_FOREIGN

    def __init__(
        self,
        topic: str,
        group: str,
        claims_group: str,
        partitions: Mapping[int, str],
        last_known: Mapping[int, int],
    ) -> None:
        self.topic, self.group, self.claims_group = topic, group, claims_group
        self.partitions, self.last_known = dict(sorted(partitions.items())), dict(last_known)
        owners = "; ".join(sorted(set(self.partitions.values())))
        offsets = ", ".join(f"{p}: {last_known[p]}" for p in self.partitions if p in last_known)
        super().__init__(
            f"partitions {shorten(self.partitions)} of {topic} are claimed by another pipeline or run: {owners}",
            where=f"group {claims_group}, topic {topic}; offsets beside these claims: {offsets or 'none'}",
            remedy="to go on with that one, give --state the directory that it has used; to run beside it, choose "
            "another spec.source.groupId. If it is gone for good (its state directory or its topic was deleted), `millrace "
            "offsets repair MANIFEST --from-group` (or --to earliest, latest, an offset, a time) takes the partitions over; on a "
            "cluster `kubectl millrace offsets repair NAME` does",
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (ForeignClaim, (self.topic, self.group, self.claims_group, self.partitions, self.last_known))


def shorten(partitions: Iterable[int]) -> str:
    """Partitions as people write them: 0-2, 5, 7-9."""
    runs: list[list[int]] = []
    for partition in sorted(partitions):
        if runs and runs[-1][-1] == partition - 1:
            runs[-1][1:] = [partition]
        else:
            runs.append([partition])
    return ", ".join("-".join(str(p) for p in run) for run in runs)
