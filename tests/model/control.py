"""The control plane: R4-R6. Several instances may be at work at once."""

from __future__ import annotations

from collections.abc import Iterator

from model.broker import Step, delayed, init, lost, prepare, seed_offset, unstable, write
from model.state import Acting, Config, LateEnd, LateWrite, Record, State, Transaction, put, spend


class Plane:
    """One instance, in one state."""

    def __init__(self, c: Config, s: State, instance: int) -> None:
        self.c, self.s, self.k = c, s, instance
        self.pid = 2 * c.workers + instance
        self.name = f"control plane {instance}" if c.planes > 1 else "control plane"
        self.partitions, self.replicas = c.published[s.published]

    def doing(self, s: State, what: Acting | None) -> State:
        return s._replace(planes=put(s.planes, self.k, what))

    def steps(self) -> Iterator[Step]:
        acting = self.s.planes[self.k]
        if acting is not None:
            yield from self._crash(acting)
        if acting is None:
            yield from self._reconcile()
        elif acting.stage == "read too early":
            after = init(self.s, acting.holder, self.pid)
            if after is not None:
                after = self.doing(after, acting._replace(stage="read"))
                yield f"{self.name} fences {acting.holder}", "normal", after, ()
        elif acting.stage == "reading":
            yield from self._read(acting)
        elif acting.stage == "read":
            yield from self._write(acting)
        else:
            yield from self._end(acting)

    # R4, R6

    def _reconcile(self) -> Iterator[Step]:
        c, s = self.c, self.s
        if not c.compare_and_set and c.fork and s.published == c.fork[0] and (spent := spend(s, "fork")):
            after = spent._replace(published=c.fork[1])
            yield f"FAULT another one overwrites e{s.published} by one of the same number", "fault", after, ()
        if any(lost(s.records[p]) for p in range(self.partitions)) and not c.workers_seed:
            return  # ClaimLost: nothing is done until somebody decides
        yield from self._next_epoch()
        waiting = any(r and r.holder is not None and self.replicas <= r.holder < c.workers for r in s.records)
        if s.scale > self.replicas and (c.deadline or not waiting):
            yield f"{self.name}: {self.replicas} replicas", "normal", s._replace(scale=self.replicas), ()
        for holder in range(c.workers + 1):
            yield from self._pass_for(holder)

    def _next_epoch(self) -> Iterator[Step]:
        c, s = self.c, self.s
        coming = s.published + 1
        if coming >= len(c.published) or (c.fork and coming == c.fork[1]):
            return
        partitions, replicas = c.published[coming]
        if s.scale < replicas:
            yield f"{self.name}: {replicas} replicas", "normal", s._replace(scale=replicas), ()
            return
        if any(s.processes[i] is None for i in range(self.replicas, replicas)):
            return  # the new ones are not ready
        if not c.workers_seed and any(s.records[p] is None for p in range(self.partitions, partitions)):
            if not c.fenced:
                for p in range(self.partitions, partitions):
                    if s.records[p] is None:
                        after = self.doing(s, Acting("read", c.op, "seed", p, None))
                        yield f"{self.name} finds p{p} without a claim", "normal", after, ()
            elif (after := init(s, c.op, self.pid)) is not None:
                after = self.doing(after, Acting("reading", c.op, "seed"))
                yield f"{self.name} initialises OP's producer to seed", "normal", after, ()
            return
        yield (
            f"{self.name} publishes e{coming}=(P{partitions}, N{replicas})",
            "change",
            s._replace(published=coming),
            (),
        )

    # R5

    def _pass_for(self, holder: int) -> Iterator[Step]:
        c, s = self.c, self.s
        theirs = [
            p
            for p in range(self.partitions)
            if (r := s.records[p]) and r.holder == holder and c.owner(s.published, p) != holder
        ]
        if not theirs:
            return
        op = holder == c.op
        gone = op or (not s.pods[holder] and holder >= s.scale)
        gone = gone or (c.deadline and c.fenced and s.crash_looping[holder])
        wrongly = "" if gone else "FAULT (wrongly) "
        before: State | None = s if gone else spend(s, "wrongly gone")
        if before is None or (gone and not c.keep_passing and not op and s.published == len(c.epochs)):
            return
        kind = "normal" if gone else "fault"
        if not c.fenced or c.plane_order == "read, fence, write":
            for p in theirs:
                stage = "read too early" if c.fenced else "read"
                after = self.doing(before, Acting(stage, holder, "pass", p, s.records[p]))
                yield f"{wrongly}{self.name} reads p{p} for {holder}", kind, after, ()
        elif (fenced := self._fence(before, holder)) is not None:
            after = self.doing(fenced, Acting("reading", holder, "pass"))
            yield f"{wrongly}{self.name} fences {holder}", kind, after, ()

    def _fence(self, s: State, holder: int) -> State | None:
        after = init(s, holder, self.pid)
        if after is None and not self.c.stable_reads:
            return s._replace(current=put(s.current, holder, self.pid))
        return after

    # R1: read, write, end

    def _read(self, acting: Acting) -> Iterator[Step]:
        c, s = self.c, self.s
        coming = min(s.published + 1, len(c.epochs))
        upto = c.published[coming][0] if acting.why == "seed" else self.partitions
        found = False
        for p in range(upto):
            if c.stable_reads and unstable(s, p):
                found = True
                continue
            record = s.records[p]
            if acting.why == "seed":
                wanted = record is None and p >= self.partitions
            else:
                wanted = record is not None and record.holder == acting.holder
                wanted = wanted and c.owner(s.published, p) != acting.holder
            if wanted:
                found = True
                after = self.doing(s, acting._replace(stage="read", partition=p, record=record))
                yield f"{self.name} reads p{p}={record and tuple(record)}", "normal", after, ()
        if not found:
            yield f"{self.name} has nothing more to do as {acting.holder}", "normal", self.doing(s, None), ()

    def _record(self, acting: Acting) -> Record:
        """What is written: a seed under the epoch to come, or the claim passed to the newest epoch's owner."""
        c, s = self.c, self.s
        if acting.why == "seed":
            coming = min(s.published + 1, len(c.epochs))
            offset = seed_offset(c, s, acting.partition, new_pipeline=s.published == 0)
            return Record(offset, c.number(coming), c.owner(coming, acting.partition))
        assert acting.record
        return Record(acting.record.offset, c.number(s.published), c.owner(s.published, acting.partition))

    def _write(self, acting: Acting) -> Iterator[Step]:
        c, s = self.c, self.s
        record, p, holder = self._record(acting), acting.partition, acting.holder
        if not c.fenced or c.plane_writes == "plain":
            after, bad = write(c, s, p, record, None)
            yield f"{self.name} writes p{p}={tuple(record)} plainly", "normal", self.doing(after, None), bad
        elif s.current[holder] != self.pid:
            yield f"{self.name} is fenced as {holder}, begins again", "normal", self.doing(s, None), ()
        elif s.transactions[holder] is None:
            transaction = Transaction(self.pid, p, record, None, prepared=False)
            after = s._replace(transactions=put(s.transactions, holder, transaction))
            after = self.doing(after, acting._replace(stage="written", record=None))
            yield f"{self.name} begins to write p{p}={tuple(record)} as {holder}", "normal", after, ()

    def _end(self, acting: Acting) -> Iterator[Step]:
        s, holder = self.s, acting.holder
        pending = s.transactions[holder]
        if s.current[holder] != self.pid or not pending or pending.process != self.pid:
            yield f"{self.name} is fenced as {holder}, begins again", "normal", self.doing(s, None), ()
        elif not pending.prepared:
            yield f"{self.name}: EndTxn as {holder}", "normal", self.doing(prepare(s, holder), None), ()

    def _crash(self, acting: Acting) -> Iterator[Step]:
        c, s = self.c, self.s
        spent = spend(s, "plane crash")
        if not spent:
            return
        crashed = self.doing(spent, None)
        yield f"FAULT {self.name} crashes", "fault", crashed, ()
        pending = s.transactions[acting.holder]
        ours = pending and pending.process == self.pid and not pending.prepared
        if acting.stage == "written" and ours and s.current[acting.holder] == self.pid:
            after = delayed(crashed, LateEnd(acting.holder))
            yield f"FAULT {self.name} crashes, its EndTxn as {acting.holder} is under way", "fault", after, ()
        if acting.stage == "read" and (not c.fenced or c.plane_writes == "plain"):
            after = delayed(crashed, LateWrite(acting.partition, self._record(acting)))
            yield (
                f"FAULT {self.name} crashes, its write of p{acting.partition} is under way",
                "fault",
                after,
                (),
            )


def steps(c: Config, s: State) -> Iterator[Step]:
    for instance in range(c.planes):
        yield from Plane(c, s, instance).steps()
