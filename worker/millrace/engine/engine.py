"""The loop: fetch records, cut them into one batch a partition, submit the batches to the chain, poll the chain.

Everything that is fetched waits in one queue, at most one fetch of it. What the chain rejects stays at its head, and
nothing is fetched until the queue is empty: that is all of back-pressure. A batch is begun in the tracker when it is
submitted, so what waits in the queue can be dropped at any time: it was never on its way.

A stage does its work within `submit`, as long as that takes, and meanwhile whoever owns the engine can't commit; but the
broker gives an open transaction only seconds. So batches are cut to what the chain does in about STEP_SECONDS, as each
partition's last batch has shown, and a step ends when it has lasted that long.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import groupby
from typing import ParamSpec

from millrace.clock import Clock, Deadline
from millrace.connectivity.ports import Consumer, Record
from millrace.engine.batch import Batch
from millrace.engine.bounds import Bounds
from millrace.engine.marks import End, Ends
from millrace.engine.strategy import MessageRejected, Strategy
from millrace.engine.tracker import OffsetError, OffsetTracker
from millrace.errors import MessageFailure

P = ParamSpec("P")

STEP_SECONDS = 0.5  # of work in a step, about: short beside the time that a transaction has at the broker
RESULTS_WAIT = (
    0.01  # s that a fetch may wait while the chain has work under way, whose results should go on soon
)
BACK_PRESSURE_WAIT = 0.005  # s between two attempts: short beside a producer's round trip, long beside a poll


class Engine:
    """One consumer, one chain, and the partitions held. Not thread-safe; nothing here runs on a thread of its own.

    Failures of the consumer and of the chain propagate from the call that met them. After a failure of the chain
    nothing is submitted any more, every `step` raises it again. What remains is `close`, `join` (which brings what was
    before the failed message to its end), to commit `positions()`, and `terminate`.

    Args:
        batch_size: records per fetch, and so at most per batch.
        first_batch: records in the first batch of a partition, whose pace nobody knows; None: as many as were fetched.
        max_in_flight: messages in the chain beyond which nothing is fetched.
        bounds: where a bounded run ends; nothing from there on is processed. None: it goes on for ever.
    """

    def __init__(
        self,
        consumer: Consumer,
        chain: Strategy,
        tracker: OffsetTracker,
        clock: Clock,
        *,
        batch_size: int = 500,
        first_batch: int | None = None,
        max_in_flight: int = 100_000,
        bounds: Bounds | None = None,
    ) -> None:
        self._consumer, self._chain, self._tracker, self._clock = consumer, chain, tracker, clock
        self._batch_size, self._max_in_flight = batch_size, max_in_flight
        self._first_batch = first_batch or batch_size
        self._limits: dict[int, int] = {}  # records per batch, of each partition
        self._bounds = bounds
        self._log_ends: dict[
            int, int
        ] = {}  # where the reader waits, of partitions of which nothing came since
        self._fetching: set[int] = set()  # assigned at the consumer, for us
        self._leftovers: set[int] = set()  # unassigned; the next fetch may still bring records of theirs
        self._to_assign: dict[int, int] = {}
        self._queue: deque[_Run] = deque()
        self._closed = False
        self._failure: Exception | None = None  # of the chain: no step must follow it
        self._told: list[Exception] = []  # all of them: two stages that work in pools may each have its own

    # -- partitions ----------------------------------------------------------------------------------------------

    def hold(self, positions: Mapping[int, int]) -> None:
        """Hold these partitions too, each from its position on."""
        for partition, position in positions.items():
            self._tracker.adopt(partition, position)
            if self._bounds is None or position < self._bounds.of(partition):
                self._to_assign[partition] = position

    def held(self) -> Set[int]:
        return self._tracker.held()

    def positions(self) -> Mapping[int, int]:
        """For each partition held the offset below which everything is done."""
        return self._tracker.positions()

    def ends(self) -> Ends:
        """For each partition held whether all of it is complete, up to its end or its bound. A partition that is being
        drained is at its end no longer.
        """
        return {partition: self._end(partition, at) for partition, at in self._tracker.positions().items()}

    def drain(self, partitions: Iterable[int]) -> None:
        """Fetch these no longer and bring what the chain has of them to its end. The others go on; does not block."""
        leaving = set(partitions)
        self._stop_fetching(leaving)
        self._chain.drain(leaving)

    def drained(self, partition: int) -> bool:
        return self._tracker.drained(partition)

    def release(self, partition: int) -> int:
        """Hold a drained partition no longer; returns its position. Raises OffsetError unless it is drained."""
        self._stop_fetching({partition})
        position = self._tracker.release(partition)
        self._chain.abandon(
            {partition}
        )  # nothing is buffered; what is still known of it must not meet its next term
        return position

    def abandon(self, partitions: Iterable[int]) -> Mapping[int, int]:
        """Hold these no longer, whatever of them is on its way; returns their positions. What the chain had written for
        them through the outbox is still in its transaction: if `Outbox.open` names one, that has to be aborted.
        """
        leaving = set(partitions)
        self._stop_fetching(leaving)
        self._chain.abandon(leaving)
        return {partition: self._tracker.abandon(partition) for partition in leaving}

    # -- work ----------------------------------------------------------------------------------------------------

    def step(self, timeout: float) -> int:
        """Do a bounded piece of work: poll the chain, fetch for at most `timeout` s, submit.

        Returns how many messages the chain took. While the chain rejects or is full nothing is fetched, and the step
        takes a few milliseconds of waiting on the clock instead (never more than `timeout`). After STEP_SECONDS nothing
        more is submitted: what is left of the fetch is for the next step.
        """
        if self._failure is not None:
            raise self._failure
        self._guarded(self._chain.poll)
        if not self._queue:
            if self._closed:
                return 0
            in_flight = self._tracker.in_flight_total()
            if in_flight >= self._max_in_flight:
                self._wait(timeout)
                return 0
            self._fetch(min(timeout, RESULTS_WAIT) if in_flight else timeout)
        taken, began = 0, self._clock.monotonic()
        while self._queue:
            try:
                taken += self._submit_some(self._queue[0])
            except MessageRejected:
                if not taken:
                    self._wait(timeout)
                break
            if self._clock.monotonic() - began >= STEP_SECONDS:
                break
        return taken

    def poll(self) -> None:
        """Let the chain go on with what it has, and submit nothing: how an owner of a transaction gets to a moment at
        which no batch is partly written (`Outbox.open`).
        """
        self._guarded(self._chain.poll)

    # -- the end -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Fetch and submit nothing more; let the chain hand on what it has. Does not block."""
        self._closed = True
        self._stop_fetching(set(self._tracker.held()))
        self._chain.close()

    def join(self, deadline: Deadline) -> bool:
        """After `close`: block until all that was submitted is complete, or the deadline is over. Returns which.

        After a failure it brings what was before the failed message to its end, and drops what stages further up still
        keep. Raises another failure if it meets one on the way (an earlier message of the same partition, perhaps);
        call it again after that.
        """
        while True:
            try:
                return self._chain.join(deadline)
            except MessageFailure as failure:
                # Each stage above a failed one that keeps a batch meets the same failure again, and then keeps none.
                if all(failure is not told for told in self._told):
                    self._told.append(failure)
                    self._failure = failure
                    raise

    def terminate(self) -> None:
        """Release what the chain holds, abandoning work in progress. The consumer is its maker's to close."""
        self._closed = True
        self._queue.clear()
        self._chain.terminate()

    # -- fetching ------------------------------------------------------------------------------------------------

    def _end(self, partition: int, position: int) -> End | None:
        if self._bounds is not None and position >= self._bounds.of(partition):
            return End.BOUND
        return End.LOG if self._log_ends.get(partition, position + 1) <= position else None

    def _stop_fetching(self, partitions: Set[int]) -> None:
        for partition in partitions:
            self._log_ends.pop(partition, None)
        fetching = self._fetching & partitions
        if fetching:
            self._consumer.unassign(fetching)
            self._fetching -= fetching
            self._leftovers |= fetching
        for partition in partitions:
            self._to_assign.pop(partition, None)
            self._limits.pop(partition, None)
        if self._queue:
            self._queue = deque(run for run in self._queue if run.partition not in partitions)

    def _fetch(self, timeout: float) -> None:
        self._assign()
        records = self._consumer.fetch(self._batch_size, timeout)
        self._leftovers.clear()
        fetching = self._fetching
        if records:
            for run in _runs(records):
                if run.partition in fetching:
                    self._log_ends.pop(run.partition, None)
                    self._enqueue(run)
        for partition, offset in self._consumer.ends().items():
            if partition in fetching:
                self._log_ends[partition] = offset
                self._enqueue(_Run(partition, offset, ()))

    def _enqueue(self, run: _Run) -> None:
        if self._bounds is not None and run.end >= self._bounds.of(run.partition):
            run = run.below(self._bounds.of(run.partition))
            self._consumer.unassign({run.partition})
            self._fetching.discard(run.partition)
            self._leftovers.add(run.partition)
        self._queue.append(run)

    def _assign(self) -> None:
        # A partition that was unassigned a moment ago may still be in the next fetch, from its former position.
        # Assigned anew only after that fetch, its old records can't be taken for new ones.
        ready = {p: position for p, position in self._to_assign.items() if p not in self._leftovers}
        if ready:
            self._consumer.assign(ready)
            self._fetching |= ready.keys()
            for partition in ready:
                del self._to_assign[partition]

    def _submit_some(self, run: _Run) -> int:
        """Submit the run at the head of the queue, or as much of it as makes a batch. Returns how many messages."""
        partition, records = run.partition, run.records
        limit = self._limits.get(partition, self._first_batch)
        began = self._clock.monotonic()
        if len(records) <= limit:
            self._submit(run)
            self._queue.popleft()
            taken = len(records)
            if self._bounds is not None and run.end >= self._bounds.of(partition):
                self._chain.drain({partition})  # nothing more of it comes that a stage could wait for
        else:
            self._submit(_Run(partition, records[limit - 1].offset() + 1, records[:limit]))
            self._queue[0] = _Run(partition, run.end, records[limit:])
            taken = limit
        seconds = self._clock.monotonic() - began
        if seconds > STEP_SECONDS:
            self._limits[partition] = max(1, int(taken * STEP_SECONDS / seconds))
        elif taken >= limit and seconds < STEP_SECONDS / 2:
            self._limits[partition] = min(self._batch_size, limit * 2)
        return taken

    def _submit(self, run: _Run) -> None:
        partition, records, tracker = run.partition, run.records, self._tracker
        if not records and run.end <= tracker.begun(partition):
            return  # the end of the log, and no gap (transaction markers, compaction) before it
        start = tracker.begin(partition, run.end, len(records))
        if records and records[0].offset() < start:
            raise OffsetError(
                f"partition {partition}: offset {records[0].offset()} came again, {start} was due"
            )
        batch = Batch(partition, start, run.end, records, records, records)
        try:
            self._guarded(self._chain.submit, batch)
        except MessageRejected:
            tracker.cancel(partition, start)
            raise

    def _guarded(self, call: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            call(*args, **kwargs)
        except MessageRejected:
            raise
        except Exception as failure:
            self._failure = failure
            self._told.append(failure)
            raise

    def _wait(self, timeout: float) -> None:
        self._clock.sleep(min(timeout, BACK_PRESSURE_WAIT))


class _Run:
    """What one fetch brought of one partition; without records: its end, as an offset to be answered for."""

    __slots__ = ("end", "partition", "records")

    def __init__(self, partition: int, end: int, records: Sequence[Record]) -> None:
        self.partition, self.end, self.records = partition, end, records

    def below(self, bound: int) -> _Run:
        """The part of it before an offset, which it answers up to: gaps of the log are before it as well."""
        kept = bisect_left(self.records, bound, key=lambda record: record.offset())
        return _Run(self.partition, bound, self.records[:kept])


def _runs(records: Sequence[Record]) -> Iterator[_Run]:
    """Cut a fetch into one run a partition, in passes that run in C: a fetch is mostly a few long stretches."""
    partitions = list(map(type(records[0]).partition, records))
    if partitions.count(partitions[0]) == len(records):
        yield _Run(partitions[0], records[-1].offset() + 1, records)
        return
    stretches: dict[int, list[Record]] = {}
    at = 0
    for partition, stretch in groupby(partitions):
        after = at + len(list(stretch))
        if partition in stretches:
            stretches[partition].extend(records[at:after])
        else:
            stretches[partition] = list(records[at:after])
        at = after
    for partition, run in stretches.items():
        yield _Run(partition, run[-1].offset() + 1, run)
