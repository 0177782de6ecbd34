"""The broker: committed records, transactions with their fence, late requests."""

from __future__ import annotations

from collections.abc import Iterator

from model.state import Config, LateEnd, LateWrite, Record, State, put, spend

Step = tuple[str, str, State, tuple[str, ...]]
"""(what happens, "normal" | "fault" | "change", the state after it, what it violates)"""


def write(
    c: Config, s: State, partition: int, record: Record, first: int | None
) -> tuple[State, tuple[str, ...]]:
    """The committed record becomes this one; first: outputs from this message on become visible with it."""
    bad = []
    before = s.records[partition]
    s = mark_seeded(s, partition, record.offset)
    if before and before.epoch is not None and record.offset < before.offset:
        bad.append("BACK")
    done = list(s.done[partition])
    if c.exactly_once and first is not None:
        for message in range(first, record.offset):
            done[message] = min(2, done[message] + 1)
            if done[message] == 2:
                bad.append("DOUBLE")
    if not all(done[: record.offset]):
        bad.append("LOSS")
    after = s._replace(records=put(s.records, partition, record), done=put(s.done, partition, tuple(done)))
    return after, tuple(bad)


def mark_seeded(s: State, partition: int, offset: int) -> State:
    """The first seed ever decides what lies before the start; those messages count as done."""
    if s.seeded[partition]:
        return s
    done = tuple(1 if m < offset else times for m, times in enumerate(s.done[partition]))
    return s._replace(seeded=put(s.seeded, partition, True), done=put(s.done, partition, done))


def seed_offset(c: Config, s: State, partition: int, *, new_pipeline: bool) -> int:
    """startFrom is for a new pipeline; partitions added later are read from their beginning."""
    return s.ends[partition] if c.start == "Latest" and new_pipeline else 0


def unstable(s: State, partition: int) -> bool:
    """Whether a transaction on the partition's offset is pending."""
    return any(t is not None and t.partition == partition for t in s.transactions)


def lost(record: Record | None) -> bool:
    """R6: there is no claim, or something else is in its place."""
    return record is None or record.epoch is None


def init(s: State, identity: int, process: int) -> State | None:
    """init_transactions: None while a prepared transaction is not complete; an open one is aborted."""
    pending = s.transactions[identity]
    if pending and pending.prepared:
        return None
    return s._replace(
        transactions=put(s.transactions, identity, None),
        current=put(s.current, identity, process),
        late=without_ends(s, identity),
    )


def without_ends(s: State, identity: int) -> tuple[LateWrite | LateEnd, ...]:
    """An EndTxn of a fenced producer is refused whenever it comes."""
    return tuple(request for request in s.late if request != LateEnd(identity))


def delayed(s: State, request: LateWrite | LateEnd) -> State:
    return s._replace(late=tuple(sorted((*s.late, request), key=repr)))


def prepare(s: State, identity: int) -> State:
    """EndTxn(commit) is accepted: from now on it will be committed, whatever happens."""
    pending = s.transactions[identity]
    assert pending
    return s._replace(transactions=put(s.transactions, identity, pending._replace(prepared=True)))


def steps(c: Config, s: State) -> Iterator[Step]:
    """What the broker does by itself."""
    for identity, pending in enumerate(s.transactions):
        if pending is None:
            continue
        if pending.prepared:
            after, bad = write(c, s, pending.partition, pending.record, pending.first)
            after = after._replace(transactions=put(after.transactions, identity, None))
            yield f"the transaction of id {identity} is complete: {_at(pending)}", "normal", after, bad
        elif not _is_alive(c, s, identity):
            after = s._replace(
                transactions=put(s.transactions, identity, None),
                current=put(s.current, identity, -1),
                late=without_ends(s, identity),
            )
            yield f"the transaction of id {identity} times out", "normal", after, ()
    for request in sorted(set(s.late), key=repr):
        rest = list(s.late)
        rest.remove(request)
        arrived = s._replace(late=tuple(rest))
        if isinstance(request, LateWrite):
            after, bad = write(c, arrived, request.partition, request.record, None)
            yield f"a late plain commit lands: {_at(request)}", "normal", after, bad
        else:
            pending = s.transactions[request.identity]
            if pending and not pending.prepared:
                yield (
                    f"a late EndTxn of id {request.identity} lands",
                    "normal",
                    prepare(arrived, request.identity),
                    (),
                )
            else:
                yield "a late EndTxn is refused", "normal", arrived, ()
    for partition in range(c.partitions):
        if s.ends[partition] < c.messages:
            ends = put(s.ends, partition, s.ends[partition] + 1)
            yield f"p{partition}: a message is produced", "normal", s._replace(ends=ends), ()
        if s.records[partition] is not None and partition < c.published[s.published][0]:
            if spent := spend(s, "expire"):
                after = spent._replace(records=put(spent.records, partition, None))
                yield f"FAULT p{partition}: its claim expires", "fault", after, ()
            if spent := spend(s, "stray"):
                stray = Record(s.ends[partition], None, None)
                after = spent._replace(records=put(spent.records, partition, stray))
                yield f"FAULT p{partition}: a stray commits {stray.offset}, no metadata", "fault", after, ()


def _is_alive(c: Config, s: State, identity: int) -> bool:
    """Whether whoever has the transaction open is still at it."""
    pending = s.transactions[identity]
    assert pending
    process, k = pending.process, c.workers
    if s.current[identity] != process:
        return False
    if process < k:
        return s.processes[process] is not None
    if process < 2 * k:
        return s.zombies[process - k] is not None
    acting = s.planes[process - 2 * k]
    return acting is not None and acting.stage == "written"


def _at(what: object) -> str:
    return f"p{what.partition}={tuple(what.record)}"  # type: ignore[attr-defined]
