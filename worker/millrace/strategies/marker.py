"""Marks: what a chain that collects writes into its channel as a transaction is committed, and what it keeps in the claims
of its partitions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Set

from millrace.channel.progress import Note, Progress, Standing
from millrace.channel.wire import END, MarkKind, mark_headers
from millrace.clock import Clock
from millrace.connectivity.ports import BufferFull
from millrace.engine.batch import Batch
from millrace.engine.marks import End, Ends
from millrace.engine.outbox import Outbox

IDLE_AFTER = (
    10.0  # s without a row until a partition at its end is idle: longer than its writers pause now and then
)
SETTLED = IDLE_AFTER  # s that partitions have to have come to a time before one at rest promises it
_TIMES_EVERY = 5.0  # s between two looks at what they have come to
MARK_EVERY = 10.0  # s between two idle marks of a partition, while the others go on


class Marker:
    """Writes marks into a channel; an engine.marks.Marks.

    Each commit with rows of a partition that have carried its event time further has a `progress` mark that says so,
    written after them.

    A bounded run's partition gets its `end` mark in the first commit at or beyond its bound. Whoever takes up a
    partition that is there already, after a crash perhaps, writes it again: so it can't be missing, and a second one
    says nothing new. An idle partition gets an `idle` mark whenever `Progress.horizon`, as of SETTLED seconds ago, has come
    further than its own rows and marks, at most one in MARK_EVERY seconds.
    """

    def __init__(self, outbox: Outbox, topic: str, progress: Progress, clock: Clock) -> None:
        self._outbox, self._topic, self._progress, self._clock = outbox, topic, progress, clock
        self._held_since: dict[int, float] = {}
        self._idled: dict[int, float] = {}  # when the last idle mark was written
        self._ended: set[int] = set()  # have their end mark
        self._times: deque[tuple[float, Mapping[int, int | None]]] = deque()  # when, and what all had come to
        self._noted: dict[int, Standing] = {}
        self._complete: dict[
            int, int
        ] = {}  # the offset up to which a partition became complete since the last commit

    def adopt(self, partition: int, note: str | None) -> None:
        found = Note.decode(note)
        self._progress.adopt(partition, found)
        self._noted[partition] = "reading" if found is None else found.standing

    def dismiss(self, partitions: Set[int]) -> None:
        for partition in partitions:
            self._progress.dismiss(partition, self._noted.pop(partition, "reading"))

    def complete(self, batch: Batch) -> None:
        self._complete[batch.partition] = batch.end
        self._progress.complete(batch.partition, batch.start, batch.end)

    def due(self, ends: Ends) -> bool:
        standing = self._look(ends)
        return bool(self._unmarked(ends) or self._to_promise(standing) or self._progress.untold()) or any(
            self._noted.get(p) != state for p, state in standing.items() if state != "reading"
        )

    def write(self, ends: Ends) -> Set[int]:
        standing = self._look(ends)
        told = set()
        try:
            for partition in self._unmarked(ends):
                self._mark(partition, MarkKind.END, END)
                self._ended.add(partition)
                standing[partition] = "end"
                told.add(partition)
            for partition, time in self._to_promise(standing).items():
                self._mark(partition, MarkKind.IDLE, time)
                self._idled[partition] = self._clock.monotonic()
                told.add(partition)
            for partition, time in self._progress.untold().items():
                self._mark(partition, MarkKind.PROGRESS, time)
                told.add(partition)
        except BufferFull:
            pass  # it stays due, and is written with the next commit
        self._complete.clear()
        changed = {p for p, state in standing.items() if self._noted.get(p, "reading") != state}
        self._noted = {p: standing.get(p, "reading") for p in self._noted.keys() | standing.keys()}
        return changed | told

    def note(self, partition: int) -> str | None:
        return self._progress.note(partition, self._noted.get(partition, "reading")).encode()

    def hear(self, notes: Mapping[int, str | None]) -> None:
        self._progress.hear({partition: Note.decode(text) for partition, text in notes.items()})

    def _look(self, ends: Ends) -> dict[int, Standing]:
        """How it stands with each partition held."""
        now, since = self._clock.monotonic(), self._held_since
        for partition in since.keys() - ends.keys():
            del since[partition]
            self._ended.discard(partition)
            self._idled.pop(partition, None)
        standing: dict[int, Standing] = {}
        for partition, end in ends.items():
            quiet = now - max(since.setdefault(partition, now), self._progress.written(partition) or 0.0)
            standing[partition] = "reading"
            if end is End.BOUND and partition in self._ended:
                standing[partition] = "end"
            elif end is End.LOG and quiet >= IDLE_AFTER:
                standing[partition] = "idle"
        return standing

    def _unmarked(self, ends: Ends) -> list[int]:
        return [p for p, end in ends.items() if end is End.BOUND and p not in self._ended]

    def _to_promise(self, standing: Mapping[int, Standing]) -> dict[int, int]:
        """Idle partitions for which there is something new to promise."""
        idle = [p for p, state in standing.items() if state == "idle"]
        now = self._clock.monotonic()
        then = self._before(now)
        horizon = (
            self._progress.horizon(standing, then) if idle else None
        )  # looks at all partitions that there are
        if horizon is None:
            return {}
        found = {}
        for partition in idle:
            latest = self._progress.latest(partition)
            since = now - self._idled.get(partition, now - MARK_EVERY)
            if (latest is None or latest < horizon) and since >= MARK_EVERY:
                found[partition] = horizon
        return found

    def _before(self, now: float) -> Mapping[int, int | None]:
        """What all had come to SETTLED seconds ago; that of those that are read may be promised. After a rest of the whole
        source its partitions get new rows within moments of each other, but not at once: what the first of them has come
        to must not be promised for those that are about to be read.
        """
        times = self._times
        if not times or now - times[-1][0] >= _TIMES_EVERY:
            times.append((now, self._progress.times()))
        while len(times) > 1 and now - times[1][0] >= SETTLED:
            times.popleft()
        since, then = times[0]
        return then if now - since >= SETTLED else {}

    def _mark(self, partition: int, kind: MarkKind, time: int) -> None:
        # the mark counts with the rows beside it, or not with them (ownership.sweep)
        end = self._complete.get(partition)
        headers = mark_headers(kind, time, self._outbox.writer, partition, None if end is None else end - 1)
        self._outbox.produce(self._topic, None, None, headers, partition)
        self._progress.told(partition, time)
