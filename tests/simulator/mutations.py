"""Rules broken on purpose. Each is a replica (or a patch) that follows the protocol but for one mistake, of the kind that
a hurried change could bring in; the simulation has to find every one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from millrace.clock import Deadline
from millrace.connectivity.ports import Fenced, OffsetAndMetadata, OutcomeUnknown
from millrace.engine.claims import ClaimReader
from millrace.engine.engine import Engine
from millrace.engine.outbox import Outbox
from millrace.engine.replica import Replica
from millrace.engine.session import Session
from millrace.engine.tracker import OffsetTracker
from millrace.ownership.acting import Acting, Desk, claim_of
from millrace.ownership.claim import Claim
from millrace.ownership.control_plane import ControlPlane, Event, Observation
from millrace.ownership.control_rules import Identity, Pass
from millrace.ownership.epoch import Epoch
from millrace.ownership.leftovers import Leftovers
from millrace.ownership.sweep import Place, Trace, to_restore
from millrace.ownership.sweeper import Sweep
from millrace.ownership.worker_rules import Judgement, Meaning, judge

Offsets = Mapping[str, Mapping[int, OffsetAndMetadata]]


@dataclass(frozen=True)
class Mutation:
    """A mistake, and how to make it."""

    name: str
    make: Callable[[], AbstractContextManager[object]]


def _positions_begun(engine: Engine) -> Mapping[int, int]:
    """Commits what was submitted, not what has come to the chain's end."""
    tracker: OffsetTracker = engine._tracker
    return {partition: tracker.begun(partition) for partition in tracker.held()}


def _begin_reading_first(replica: Replica, view: Epoch) -> Session | None:
    """R3a broken: claims are read, and taken up, before init."""
    producer = replica._cluster.transactional_producer(f"{view.uid}-{replica._index}")
    init, producer.init = producer.init, lambda _timeout: None  # type: ignore[method-assign]
    replica._producer = producer
    with patch.object(Sweep, "advance", lambda *_: True):
        session = _begin(replica, view)
    assert session is not None
    session._look_at_claims()
    replica._clock.sleep(1.0)  # init takes that long where a transaction has to be ended first
    init(5.0)
    return session


def _commit_again(outbox: Outbox, offsets: Offsets, topic: str, deadline: Deadline) -> None:
    """R3e broken: an unknown outcome is taken for a failure, and the same offsets are committed once more."""
    try:
        _commit(outbox, offsets, topic, deadline)
    except OutcomeUnknown:
        _with_another_producer(outbox, deadline)
        _commit(outbox, offsets, topic, deadline)


def _commit_although_fenced(outbox: Outbox, offsets: Offsets, topic: str, deadline: Deadline) -> None:
    """R3 broken: who is fenced fences back, and goes on with what it has in memory."""
    try:
        _commit(outbox, offsets, topic, deadline)
    except Fenced:
        _with_another_producer(outbox, deadline)
        _commit(outbox, offsets, topic, deadline)


def _with_another_producer(outbox: Outbox, deadline: Deadline) -> None:
    old = outbox._attached()
    again = type(old)(old._broker, old._client_id, old.transactional_id)  # type: ignore[attr-defined,call-arg]
    outbox.detach()
    outbox.attach(again)
    again.init(deadline.remaining())


def _commit_plainly(outbox: Outbox, offsets: Offsets, topic: str, deadline: Deadline) -> None:
    """R1 broken: claims are committed outside the fence."""
    producer = outbox._attached()
    groups = producer._broker.groups  # type: ignore[attr-defined]
    for group, positions in offsets.items():
        groups.commit_plain(group, {(topic, p): record for p, record in positions.items()})
    if outbox.dirty:
        producer.commit(deadline.remaining())
        outbox._forget()


def _follow_without_drain(session: Session, view: Epoch) -> None:
    """R3d broken: what leaves is passed on at once, with what was submitted of it taken for done."""
    begun = _positions_begun(session.engine)
    _follow(session, view)
    holdings = session.holdings
    for partition in list(holdings._leaving):
        holdings.abandon({partition})
        holdings._parting[partition] = begun[partition]


def _abandon_without_abort(session: Session) -> None:
    """R3d broken: a drain is given up although its outputs are in the transaction, in part."""
    overdue = session.holdings.overdue()
    if overdue:
        session.holdings.abandon(overdue)
        session.outbox._open.clear()
    _settle(session)


def _unstable(
    reader: ClaimReader, partitions: Sequence[int], deadline: Deadline
) -> tuple[dict[int, OffsetAndMetadata], set[int]]:
    """R2 broken: what is committed now is taken for what will be."""
    return dict(reader.glance(partitions, deadline)), set()


def _read_unstably(
    desk: Desk,
    group: str,
    topic: str,
    partitions: Iterable[int],
    deadline: Deadline,
    *,
    stable: bool = False,
) -> Mapping[int, OffsetAndMetadata]:
    """R2 broken by the control plane."""
    assert stable in (True, False)
    return _read(desk, group, topic, partitions, deadline)


def _write_unfenced(acting: object, records: Mapping[int, OffsetAndMetadata]) -> None:
    """R1 broken by the control plane: as an admin client would alter offsets, and not as the holder."""
    producer, identity = acting._producer, acting._identity  # type: ignore[attr-defined]
    groups = producer._broker.groups
    groups.commit_plain(identity.claims_group, {(identity.topic, p): r for p, r in records.items()})


def _read_before_acting(
    plane: ControlPlane, seen: Observation, todo: Pass, deadline: Deadline
) -> list[Event]:
    """R1 broken by the control plane: what it read before it fenced the holder is what it passes on."""
    records = {
        p: OffsetAndMetadata(seen.claims[p].offset, claim_of(seen.identity, seen.epoch, target))
        for p, target in todo.targets.items()
    }
    plane._clock.sleep(0.5)
    with Acting(plane._desk, seen.identity, todo.holder, deadline) as acting:
        acting.write(records)
    return []


def _judge_by_plan(
    identity: Identity, view: Epoch, index: int, record: OffsetAndMetadata | None
) -> Judgement:
    """R3b broken: what the plan says is taken up, whoever the claim names."""
    judged = judge(identity, view, index, record)
    claim = Claim.decode(record.metadata) if record else None
    planned = claim is not None and view.replicas > 0 and claim.epoch <= view.number
    return Judgement(Meaning.MINE, "planned") if planned and judged.meaning is Meaning.OTHERS else judged


def _look_by_plan(session: Session, partitions: list[int], deadline: Deadline) -> None:
    _look(session, [p for p in partitions if p in session._planned], deadline)


@contextmanager
def _taking_up_by_plan() -> Iterator[None]:
    with (
        patch.object(Session, "_look", _look_by_plan),
        patch("millrace.engine.session.judge", _judge_by_plan),
    ):
        yield


@contextmanager
def _aborting_always() -> Iterator[None]:
    """R8 broken: nothing that is left open is held to have been committed."""
    with (
        patch("millrace.ownership.sweeper.to_restore", lambda *_: None),
        patch("millrace.ownership.sweeper.promise", lambda *_: None),
    ):
        yield


def _note_in_mind(sweep: Sweep, certain: Mapping[Place, Sequence[Trace]], _deadline: Deadline) -> bool:
    """R8 broken: what has to be restored is known to this process only."""
    for place, traces in certain.items():
        stretch = to_restore(traces, sweep._pending.offsets)
        if stretch is not None:
            sweep._stretches[place] = stretch
    return True


_begin, _commit, _follow, _look = Replica._begin, Outbox.commit, Session._follow, Session._look
_settle, _read = Session._settle_leaving, Desk.read

MUTATIONS = [
    Mutation(
        "commit what has not come to the chain's end",
        lambda: patch.object(Engine, "positions", _positions_begun),
    ),
    Mutation("read claims before init", lambda: patch.object(Replica, "_begin", _begin_reading_first)),
    Mutation("commit again after an unknown outcome", lambda: patch.object(Outbox, "commit", _commit_again)),
    Mutation("go on although fenced", lambda: patch.object(Outbox, "commit", _commit_although_fenced)),
    Mutation("take up by plan", _taking_up_by_plan),
    Mutation(
        "control plane reads before it fences",
        lambda: patch.object(ControlPlane, "_pass", _read_before_acting),
    ),
    Mutation("commit without the fence", lambda: patch.object(Outbox, "commit", _commit_plainly)),
    Mutation("pass on without draining", lambda: patch.object(Session, "_follow", _follow_without_drain)),
    Mutation(
        "abandon without aborting", lambda: patch.object(Session, "_settle_leaving", _abandon_without_abort)
    ),
    Mutation("decide by unstable reads", lambda: patch.object(ClaimReader, "stable", _unstable)),
    Mutation("control plane decides by unstable reads", lambda: patch.object(Desk, "read", _read_unstably)),
    Mutation(
        "control plane writes without the fence",
        lambda: patch.object(Acting, "write", _write_unfenced),
    ),
    Mutation("no sweep", lambda: patch.object(Sweep, "advance", lambda *_: True)),
    Mutation("what is left open is always aborted", _aborting_always),
    Mutation(
        "claims that are left pending are always aborted",
        lambda: patch.object(Leftovers, "newest", lambda *_: []),
    ),
    Mutation("abort before it is noted what to restore", lambda: patch.object(Sweep, "_note", _note_in_mind)),
]
