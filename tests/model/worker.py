"""A worker: R1-R3, and what becomes of them when a rule is broken."""

from __future__ import annotations

from collections.abc import Iterator

from model.broker import (
    Step,
    delayed,
    init,
    lost,
    mark_seeded,
    prepare,
    seed_offset,
    unstable,
    write,
)
from model.state import (
    Config,
    Held,
    LateEnd,
    LateWrite,
    Process,
    Read,
    Record,
    Request,
    State,
    Transaction,
    put,
    spend,
)


class Worker:
    """One process of index i, in one state."""

    def __init__(self, c: Config, s: State, index: int, *, zombie: bool) -> None:
        self.c, self.s, self.i, self.zombie = c, s, index, zombie
        self.pid = c.workers + index if zombie else index
        process = (s.zombies if zombie else s.processes)[index]
        assert process
        self.me: Process = process
        self.name = f"zombie {index}" if zombie else f"worker {index}"
        self.current = not c.fenced or s.current[index] == self.pid

    def becoming(self, s: State, **changes: object) -> State:
        """The state with this process changed."""
        return self._set(s, self.me._replace(**changes))

    def _set(self, s: State, process: Process | None) -> State:
        if self.zombie:
            return s._replace(zombies=put(s.zombies, self.i, process))
        return s._replace(processes=put(s.processes, self.i, process))

    def having(self, partition: int, what: Held | Read | None) -> tuple[Held | Read | None, ...]:
        return put(self.me.partitions, partition, what)

    def steps(self) -> Iterator[Step]:
        c, s, me = self.c, self.s, self.me
        if c.number(s.published) > c.number(me.view):  # R3h: an equal or lower number is not looked at
            yield f"{self.name} sees e{s.published}", "normal", self.becoming(s, view=s.published), ()
        if c.fenced and not me.initialised:
            if (after := self._init()) is not None:
                yield (
                    f"{self.name} initialises its producer",
                    "normal",
                    self.becoming(after, initialised=True),
                    (),
                )
            if c.init_first:
                return
        if c.fenced and me.initialised and not self.current:
            yield f"{self.name} learns that it is fenced, and ends", "normal", self._set(s, None), ()
        if me.request:
            yield from self._under_way(me.request)
        for partition in range(c.published[me.view][0]):
            have = me.partitions[partition]
            if have is None:
                yield from self._without(partition)
            elif isinstance(have, Read):
                if me.initialised:
                    yield from self._act_on(partition, have.record)
            elif not have.passing:
                yield from self._holding(partition, have)

    def _init(self) -> State | None:
        s, pending = self.s, self.s.transactions[self.i]
        if not self.c.stable_reads and pending and pending.prepared:
            return s._replace(current=put(s.current, self.i, self.pid))
        return init(s, self.i, self.pid)

    def _under_way(self, request: Request) -> Iterator[Step]:
        """R3e: a commit, and what may become of its reply."""
        c, s, me = self.c, self.s, self.me
        partition, record, ended = request
        have = me.partitions[partition]
        assert isinstance(have, Held)
        kept = None if have.passing else Held(record.offset, have.position)
        confirmed: dict[str, object] = {"partitions": self.having(partition, kept), "request": None}
        what = f"{'pass' if have.passing else 'commit'} of p{partition}={tuple(record)}"
        if not c.fenced:
            first = have.base if c.exactly_once else None
            after, bad = write(c, s, partition, record, first)
            yield f"{self.name}: {what}", "normal", self.becoming(after, **confirmed), bad
            if spent := spend(s, "late"):
                after, bad = write(c, spent, partition, record, None)
                yield f"FAULT {self.name}: {what} is done, the reply lost, it will retry", "fault", after, bad
                yield (
                    f"FAULT {self.name}: {what} is delayed, it will retry",
                    "fault",
                    delayed(spent, LateWrite(partition, record)),
                    (),
                )
        elif ended:
            yield f"{self.name} learns: {what} is done", "normal", self.becoming(s, **confirmed), ()
        else:
            pending = s.transactions[self.i]
            if not (self.current and pending and pending.process == self.pid):
                return
            sent = self.becoming(prepare(s, self.i), request=request._replace(ended=True))
            yield f"{self.name}: EndTxn of {what}", "normal", sent, ()
            if spent := spend(s, "late"):
                after = delayed(spent, LateEnd(self.i))
                yield (
                    f"FAULT {self.name}: EndTxn of {what} is delayed",
                    "fault",
                    self._in_the_dark(after, partition, have),
                    (),
                )
                after = prepare(spent, self.i)
                yield (
                    f"FAULT {self.name}: EndTxn of {what} is done, the reply lost",
                    "fault",
                    self._in_the_dark(after, partition, have),
                    (),
                )

    def _in_the_dark(self, s: State, partition: int, have: Held) -> State:
        if self.c.unknown == "retry":
            kept = self.having(partition, have._replace(passing=False))
            return self.becoming(s, partitions=kept, request=None)
        return self.becoming(s, initialised=False, partitions=(None,) * self.c.partitions, request=None)

    def _without(self, partition: int) -> Iterator[Step]:
        """R2, R3b: a stable read of a claim that names me."""
        c, s, me = self.c, self.s, self.me
        record = s.records[partition]
        named = record is not None and record.holder == self.i
        known = not c.wait_for_epoch or (named and record.epoch <= c.number(me.view))
        bare = c.workers_seed and lost(record) and c.owner(me.view, partition) == self.i
        if self._readable(partition) and ((named and known) or bare):
            after = self.becoming(s, partitions=self.having(partition, Read(record)))
            yield f"{self.name} reads p{partition}={record and tuple(record)}", "normal", after, ()
        if me.stash and me.stash[0] == partition:
            after = self.becoming(s, partitions=self.having(partition, Read(me.stash[1])), stash=None)
            yield f"{self.name} acts on an older read of p{partition}", "normal", after, ()

    def _readable(self, partition: int) -> bool:
        return not (self.c.fenced and self.c.stable_reads and unstable(self.s, partition))

    def _act_on(self, partition: int, record: Record | None) -> Iterator[Step]:
        c, s, me = self.c, self.s, self.me
        if record is not None and record.holder == self.i:
            held = Held(record.offset, record.offset)
            after = self.becoming(s, partitions=self.having(partition, held))
            yield f"{self.name} takes p{partition} up at {record.offset}", "normal", after, ()
            return
        offset = record.offset if record else seed_offset(c, s, partition, new_pipeline=True)
        held = Held(offset, offset)
        if not c.seed_first:
            after = self.becoming(mark_seeded(s, partition, offset), partitions=self.having(partition, held))
            yield f"{self.name} seeds p{partition} at {offset}, in memory", "normal", after, ()
        elif me.request is None:
            seed = Record(offset, c.number(me.view), self.i)
            yield from self._begin(mark_seeded(s, partition, offset), partition, seed, held, "seed")

    def _holding(self, partition: int, have: Held) -> Iterator[Step]:
        c, s, me = self.c, self.s, self.me
        planned = c.owner(me.view, partition)
        record = s.records[partition]
        if planned == self.i and have.position < s.ends[partition]:
            after = s
            if not c.exactly_once:  # its effect is durable at once; with ExactlyOnce when it is committed
                after = s._replace(done=put(s.done, partition, put(s.done[partition], have.position, 1)))
            after = self.becoming(
                after, partitions=self.having(partition, have._replace(position=have.position + 1))
            )
            yield f"{self.name} processes p{partition}@{have.position}", "normal", after, ()
        if (
            c.prefetch
            and me.stash is None
            and record
            and record.holder == self.i
            and (spent := spend(s, "stale read"))
        ):
            after = self.becoming(spent, stash=(partition, record))
            yield (
                f"FAULT {self.name} gets an answer, p{partition}, and does not look at it yet",
                "fault",
                after,
                (),
            )
        if me.request is not None:
            return
        if self._readable(partition) and (lost(record) or record.holder != self.i):  # R3f, R6
            after = self.becoming(s, partitions=self.having(partition, None))
            yield f"{self.name} reads p{partition} back: not its claim, stops", "normal", after, ()
        number = c.number(me.view)
        if planned == self.i and have.position > have.base:  # R3c
            yield from self._begin(s, partition, Record(have.position, number, self.i), have, "commit")
        if planned != self.i:  # R3d
            passed = Record(have.position, number, planned)
            yield from self._begin(s, partition, passed, have._replace(passing=True), "pass")

    def _begin(self, s: State, partition: int, record: Record, have: Held, what: str) -> Iterator[Step]:
        """Send a plain commit, or open a transaction with it."""
        request = Request(partition, record, ended=False)
        after = self.becoming(s, partitions=self.having(partition, have), request=request)
        label = f"{self.name} begins to {what} p{partition}={tuple(record)}"
        if not self.c.fenced:
            yield label, "normal", after, ()
        elif self.s.current[self.i] == self.pid and self.s.transactions[self.i] is None:
            transaction = Transaction(self.pid, partition, record, have.base, prepared=False)
            after = after._replace(transactions=put(after.transactions, self.i, transaction))
            yield label, "normal", after, ()


def steps(c: Config, s: State) -> Iterator[Step]:
    for i in range(c.workers):
        if s.processes[i] is not None:
            yield from Worker(c, s, i, zombie=False).steps()
        if s.zombies[i] is not None:
            yield from Worker(c, s, i, zombie=True).steps()
