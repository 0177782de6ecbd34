"""What writers that are gone for good have left open in the outputs, where no claim names them any more.

Whoever begins a session sweeps for its own index, and whoever passes claims on for the index that they name (R8). One whose
last transaction has passed all its claims, and whose markers were forgotten, is met by neither. Its records hold up all
readers of the partition, and that is how it is found.
"""

from __future__ import annotations

from collections.abc import Callable

from millrace.clock import Deadline
from millrace.connectivity.ports import Admin
from millrace.ownership.acting import Desk
from millrace.ownership.claim import transactional_id
from millrace.ownership.control_rules import Identity
from millrace.ownership.leftovers import writer_at
from millrace.ownership.sweep import Place, Stretch, restoring_group

WATCH = 15.0
"""Seconds between two looks: no transaction that is under way is open at both (transaction.timeout.ms is 10 s)."""

RECALL = 60.0
"""Seconds between two looks for what sweeps were not able to finish."""


class Abandoned:
    """Looks for them now and then."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._heads: dict[Place, int] = {}  # first open offsets at the last look
        self._looked = self._recalled = -RECALL

    def due(self) -> bool:
        return bool(self._desk.outputs) and self._desk.clock.monotonic() - self._looked >= WATCH

    def look(
        self, identity: Identity, indices: range, gone: Callable[[int], bool], deadline: Deadline
    ) -> set[int]:
        """Those of these indices that are gone and have something to be swept up."""
        now = self._desk.clock.monotonic()
        self._looked = now
        before, self._heads = self._heads, self._first_open(deadline)
        stuck = {place: at for place, at in self._heads.items() if before.get(place) == at}
        writers = {
            writer_at(self._desk.cluster, self._desk.clock, identity.group, place, at)
            for place, at in stuck.items()
        }
        away = {index for index in indices if gone(index)}
        found = {index for index in away if transactional_id(identity.uid, index) in writers}
        if now - self._recalled >= RECALL:
            found |= self._have_to_restore(identity, away, deadline)
            self._recalled = now
        return found

    def _first_open(self, deadline: Deadline) -> dict[Place, int]:
        admin, found = self._desk.admin, {}
        for topic in self._desk.outputs:
            described = admin.describe_topic(topic, deadline.remaining())
            partitions = range(described.partitions if described is not None else 0)
            stable = admin.spans(topic, partitions, deadline.remaining())
            ends = admin.spans(topic, partitions, deadline.remaining(), read_committed=False)
            found.update({Place(topic, p): stable[p].end for p in partitions if stable[p].end < ends[p].end})
        return found

    def _have_to_restore(self, identity: Identity, indices: set[int], deadline: Deadline) -> set[int]:
        if not indices:
            return set()
        admin = (
            self._desk.cluster.admin()
        )  # one of its own: it keeps a client for each group that it is asked about
        try:
            return {index for index in indices if self._has_to_restore(admin, identity, index, deadline)}
        finally:
            admin.close()

    def _has_to_restore(self, admin: Admin, identity: Identity, index: int, deadline: Deadline) -> bool:
        for topic in self._desk.outputs:
            described = admin.describe_topic(topic, deadline.remaining())
            if described is None:
                continue
            noted = admin.group_offsets(
                restoring_group(identity.claims_group, index),
                topic,
                range(described.partitions),
                deadline.remaining(),
                stable=False,
            )
            if any(Stretch.noted(record) for record in noted.values()):
                return True
        return False
