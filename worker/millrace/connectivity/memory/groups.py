"""Consumer groups: committed offsets with metadata, what pending transactions hold over them, and live members.

A group without members is what Kafka calls a simple one: plain commits without a member id are accepted only while
nobody is subscribed, commits that belong to a transaction always (KIP-447, generation -1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from millrace.connectivity.ports import KafkaError, OffsetAndMetadata, Unstable

Slot = tuple[str, int]  # topic, partition

METADATA_LIMIT = (
    4095  # bytes; offset.metadata.max.bytes of a default broker, less the NUL that librdkafka sends too
)


class UnknownMember(KafkaError):
    """UNKNOWN_MEMBER_ID: a plain commit from outside a group that has members."""


@dataclass(slots=True)
class Group:
    committed: dict[Slot, OffsetAndMetadata] = field(default_factory=dict)
    places: dict[Slot, int] = field(default_factory=dict)  # of what is committed, in the log of offsets
    pending: dict[str, dict[Slot, tuple[OffsetAndMetadata, int]]] = field(
        default_factory=lambda: defaultdict(dict)
    )  # by transactional id: what its next marker will decide, with its place
    members: list[str] = field(default_factory=list)  # client ids


class Groups:
    """All consumer groups of a broker."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = defaultdict(Group)
        self._log_end = 0

    def read(
        self, group: str, topic: str, partitions: Iterable[int], *, stable: bool
    ) -> dict[int, OffsetAndMetadata]:
        """Committed offsets; raises Unstable if `stable` and a transaction is pending on any of them."""
        found = self._groups[group]
        wanted = list(partitions)
        unstable = [p for p in wanted if any((topic, p) in held for held in found.pending.values())]
        if stable and unstable:
            raise Unstable(
                f"a transaction on the offsets of group {group} is pending",
                where=f"topic {topic}, partitions {unstable}",
                remedy="ask again: it ends within transaction.timeout.ms",
            )
        return {p: found.committed[topic, p] for p in wanted if (topic, p) in found.committed}

    def hold(self, group: str, offsets: Mapping[Slot, OffsetAndMetadata], transactional_id: str) -> None:
        """Make these offsets unstable until a marker of the id decides about them (`mark`)."""
        self._log_end += 1
        held = self._groups[group].pending[transactional_id]
        held.update({slot: (offset, self._log_end) for slot, offset in offsets.items()})

    def mark(self, group: str, transactional_id: str, *, commit: bool) -> None:
        """A marker of this id comes: all that is pending of it in the group is committed, or dropped."""
        held = self._groups[group].pending.pop(transactional_id, {})
        if commit:
            self.land(group, held)

    def land(self, group: str, offsets: Mapping[Slot, tuple[OffsetAndMetadata, int]]) -> None:
        """Offsets, each with its place, are committed, save where something later in the log of offsets is already:
        what counts is the order in which offsets came to the coordinator, not that in which their transactions ended.
        """
        places = self._groups[group].places
        newest = {slot: offset for slot, (offset, place) in offsets.items() if places.get(slot, -1) <= place}
        places.update({slot: offsets[slot][1] for slot in newest})
        self.write(group, newest)

    def write(self, group: str, offsets: Mapping[Slot, OffsetAndMetadata]) -> None:
        """Make these the committed offsets: each change of them comes here."""
        self._groups[group].committed.update(offsets)

    def commit_plain(
        self, group: str, offsets: Mapping[Slot, OffsetAndMetadata], member: str | None = None
    ) -> None:
        """A commit outside any transaction, from `member` or, as an assigned consumer's, from nobody in particular.
        Raises UnknownMember.
        """
        members = self._groups[group].members
        if members and member not in members:
            raise UnknownMember(
                f"group {group} has members ({', '.join(members)}); {member or 'nobody'} is none"
            )
        self._log_end += 1
        self.land(group, {slot: (offset, self._log_end) for slot, offset in offsets.items()})

    def join(self, group: str, client_id: str) -> None:
        """A live member subscribes."""
        self._groups[group].members.append(client_id)

    def leave(self, group: str, client_id: str) -> None:
        self._groups[group].members.remove(client_id)

    def members(self, group: str) -> tuple[str, ...]:
        return tuple(self._groups[group].members)

    def expire(self, group: str, topic: str, partitions: Iterable[int]) -> None:
        """Forget committed offsets, as the broker does after offsets.retention.minutes without a commit."""
        for p in partitions:
            self._groups[group].committed.pop((topic, p), None)

    def delete(self, group: str) -> None:
        self._groups.pop(group, None)

    def forget_topic(self, topic: str) -> None:
        """A deleted topic takes its committed offsets along."""
        for group in self._groups.values():
            for slot in [s for s in group.committed if s[0] == topic]:
                del group.committed[slot]


def too_large(offsets: Iterable[OffsetAndMetadata]) -> bool:
    """Whether a broker would answer OFFSET_METADATA_TOO_LARGE."""
    return any(len((offset.metadata or "").encode()) > METADATA_LIMIT for offset in offsets)
