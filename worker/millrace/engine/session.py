"""A session: all that a replica does between one init of its producer and the next.

It holds what R3e calls state, and is dropped as a whole when the outcome of a commit is unknown: producer, consumer,
chain, positions. Nothing survives but what the broker has.

Claims that name this worker are taken up (b), committed together with the mirror and the outputs in one transaction
(c), and passed on when the plan changes (d), by the same transaction as everything else. All of it happens between two
steps of the engine, on one thread, so there is never a commit under way while something is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from millrace.clock import Clock, Deadline
from millrace.connectivity.ports import (
    Admin,
    BrokerUnreachable,
    Consumer,
    OffsetAndMetadata,
    TimedOut,
    TransactionalProducer,
)
from millrace.engine.bounds import Bounds
from millrace.engine.claims import ClaimReader, changed
from millrace.engine.engine import Engine
from millrace.engine.holdings import Holdings
from millrace.engine.outbox import Outbox
from millrace.engine.settings import Backoff, ReplicaSettings
from millrace.engine.strategy import Strategy
from millrace.engine.tracker import OffsetTracker
from millrace.errors import MessageFailure
from millrace.ownership.claim import Claim
from millrace.ownership.control_rules import Identity, Records, own_claim
from millrace.ownership.epoch import Epoch
from millrace.ownership.errors import shorten
from millrace.ownership.worker_rules import Meaning, judge

OnComplete = Callable[[int, int, int], None]
"""Told of each range of offsets that is done: partition, first offset, offset after the last."""

ChainFactory = Callable[[Outbox, OnComplete], Strategy]
"""Makes a chain that writes through this outbox and reports to this; called once per session."""

ROOM_WAIT = 0.005  # s between two looks at a batch that is only partly written
HURRY = 0.02  # s that a step waits for messages while partitions change hands


class Interruption(Exception):
    """The open transaction can't be brought to a commit: drop everything and begin again."""


class Session:
    """Claims, engine and transactions of worker `index`, from an initialised producer on.

    Whatever a method raises, the session is over; `finish` is still worth a try after failures that are not about
    ownership or the broker (a stage that failed), else only `drop` is.
    """

    def __init__(
        self,
        identity: Identity,
        index: int,
        view: Epoch,
        *,
        producer: TransactionalProducer,
        consumer: Consumer,
        admin: Admin,
        chain: ChainFactory,
        clock: Clock,
        settings: ReplicaSettings,
        bounds: Bounds | None = None,
    ) -> None:
        self._identity, self._index, self._view = identity, index, view
        self._producer, self._consumer, self._admin = producer, consumer, admin
        self._clock, self._settings = clock, settings
        self._reader = ClaimReader(admin, identity.topic, identity.claims_group)
        tracker = OffsetTracker()
        self.outbox = Outbox()
        self.outbox.attach(producer)
        self.engine = Engine(
            consumer,
            chain(self.outbox, tracker.complete),
            tracker,
            clock,
            batch_size=settings.batch_size,
            first_batch=settings.first_batch,
            max_in_flight=settings.max_in_flight,
            bounds=bounds,
        )
        now = clock.monotonic()
        self.holdings = Holdings(self.engine, clock, settings)
        self._last_commit, self._taken, self._drained_since = now, 0, -1.0
        self._dirty_since = -1.0
        self._step_took = 0.0  # s; the next step may take as long as the last
        self._next_check = self._next_look = now
        self._backoff = Backoff(settings.backoff_first, settings.backoff_largest)
        self._planned = view.owned_by(index)
        self.commits = 0  # confirmed ones
        self.waits: dict[int, str] = {}  # partitions of mine by plan that I don't hold, and why
        self.unanswered = ""  # what the last question to the broker failed with

    # what it is

    def reasons(self) -> tuple[str, ...]:
        """What it waits for, in words; partitions that wait for the same together."""
        by_reason: dict[str, list[int]] = {}
        for partition, why in self.waits.items():
            by_reason.setdefault(why, []).append(partition)
        told = [f"partition {shorten(partitions)} waits: {why}" for why, partitions in by_reason.items()]
        if self.holdings.leaving:
            told.append(f"partition {shorten(self.holdings.leaving)} is being passed on")
        if self.unanswered:
            told.append(f"the broker does not answer: {self.unanswered}")
        return tuple(told)

    def notes(self) -> Mapping[int, str]:
        """What is kept of each partition held, beside its position."""
        marks = self.outbox.marks
        if marks is None:
            return {}
        noted = {partition: marks.note(partition) for partition in self.engine.held()}
        return {partition: note for partition, note in noted.items() if note is not None}

    # what it does

    def step(self, view: Epoch, timeout: float) -> int:
        """One bounded piece of work. Returns how many messages the chain took."""
        if view is not self._view:
            self._follow(view)
        self._look_at_claims()
        self._settle_leaving()
        taken = 0
        if not self._commit_if_due():
            self._make_room(timeout)
        else:
            began = self._clock.monotonic()
            taken = self.engine.step(min(timeout, HURRY) if self.holdings.leaving or self.waits else timeout)
            self._step_took = self._clock.monotonic() - began
            self._taken += taken
        if self.outbox.dirty and self._dirty_since < 0:
            self._dirty_since = self._clock.monotonic()
        self._settle_leaving()
        self._commit_if_due()
        return taken

    def finish(self, view: Epoch, deadline: Deadline) -> bool:
        """Bring everything to its end within the deadline, and commit it: with claims passed on where the plan says
        so. What is not complete by then is left uncommitted. Returns whether everything was.
        """
        if view is not self._view:
            self._follow(view)
        self.engine.close()
        reserve = min(self._settings.request_timeout, deadline.remaining() / 3)  # to commit in
        complete = self._join(Deadline.after(self._clock, deadline.remaining() - reserve))
        if self.outbox.open:
            return False  # the transaction holds half a batch: it can't be committed, and is aborted by our successor
        self._commit(deadline, closing=True)
        return complete

    def _join(self, deadline: Deadline) -> bool:
        """Past stages that fail: what was before the message that failed is complete then, and counts."""
        failed = False
        while not deadline.expired():
            try:
                return self.engine.join(deadline) and not failed
            except MessageFailure:
                failed = True
        return False

    def drop(self) -> None:
        """Release everything, committing nothing. The admin client is the caller's."""
        self.engine.terminate()
        self.outbox.detach()
        self._consumer.close()
        self._producer.close()

    # R3b, R3f: claims

    def _look_at_claims(self) -> None:
        now = self._clock.monotonic()
        check = now >= self._next_check
        if not check and (now < self._next_look or not self._awaited()):
            return
        deadline = Deadline.after(self._clock, self._settings.request_timeout)
        try:
            if check:
                self._hear(self._look(list(range(self._view.partitions)), deadline))
                self._reader.check_topic(self._identity, self.holdings.committed, deadline)
                self._next_check = now + self._settings.claim_check
            else:
                self._look(sorted(self._awaited()), deadline)
        except (TimedOut, BrokerUnreachable) as error:
            self.unanswered = error.what
            self._next_look = self._clock.monotonic() + self._backoff.failed()
            self._next_check = max(self._next_check, self._next_look)
        else:
            self.unanswered = ""
            self._backoff.succeeded()
            self._next_look = self._clock.monotonic() + self._settings.claim_wait

    def _hear(self, claims: Records) -> None:
        """What all workers have noted in their claims. Decides no ownership."""
        if self.outbox.marks is None:
            return
        found = {p: own_claim(self._identity, claims.get(p)) for p in range(self._view.partitions)}
        self.outbox.marks.hear({p: None if claim is None else claim.note for p, claim in found.items()})

    def _awaited(self) -> set[int]:
        return set(self._planned - self.holdings.committed.keys())

    def _look(self, partitions: list[int], deadline: Deadline) -> Records:
        """Glance at these; where there is something to decide, read stably (R2), and decide. Returns the glance."""
        glance = self._reader.glance(partitions, deadline)
        mine = self.holdings.committed.keys()
        meaning = {p: judge(self._identity, self._view, self._index, glance.get(p)) for p in partitions}
        decide = [p for p in partitions if (meaning[p].meaning is Meaning.MINE) != (p in mine)]
        records, pending = self._reader.stable(decide, deadline)
        for p in decide:
            if p in pending:
                continue
            meaning[p] = judge(self._identity, self._view, self._index, records.get(p))
            if p in mine and meaning[p].meaning not in (Meaning.MINE, Meaning.EARLY):
                committed = self.holdings.committed[p]
                raise changed(self._identity, self._index, p, committed, meaning[p].meaning, records.get(p))
            if p not in mine and meaning[p].meaning is Meaning.MINE:
                self._take_up(p, records[p])
        awaited = self._awaited()
        for p in partitions:
            self.waits.pop(p, None)
            if p in awaited:
                self.waits[p] = "a transaction on its claim is pending" if p in pending else meaning[p].why
        return glance

    def _take_up(self, partition: int, record: OffsetAndMetadata) -> None:
        claim = own_claim(self._identity, record)
        if self.outbox.marks is not None:
            self.outbox.marks.adopt(partition, None if claim is None else claim.note)
        self.holdings.take_up(partition, record.offset, planned=partition in self._planned)

    # R3d: a newer epoch

    def _follow(self, view: Epoch) -> None:
        self._view = view
        self._planned = view.owned_by(self._index)
        self._next_check = self._clock.monotonic()
        self.waits.clear()
        self.holdings.plan(self._planned)

    def _settle_leaving(self) -> None:
        """Give up drains that are over their deadline; keep what a yet newer epoch gives back to me."""
        overdue = self.holdings.overdue()
        if self.outbox.open & overdue:
            # its outputs are in the transaction, in part: undone with everything else since the last commit
            raise Interruption(f"the drain of partition {shorten(overdue)} is over its deadline")
        if overdue:
            self.holdings.abandon(overdue)
        self.holdings.keep(self._planned)

    # R3c, R3g: commits

    def _commit_if_due(self) -> bool:
        """Returns False if a commit is due and can't be made, for a batch is only partly written."""
        if not self._commit_is_due():
            return True
        if self.outbox.open:
            return False
        self._commit(Deadline.after(self._clock, self._settings.commit_timeout))
        return True

    def _commit_is_due(self) -> bool:
        now, settings = self._clock.monotonic(), self._settings
        if self.holdings.passable():
            if self._drained_since < 0:
                self._drained_since = now
            if not self.holdings.draining() or now - self._drained_since >= settings.pass_wait:
                return True
        else:
            self._drained_since = -1.0
        if self._dirty_since >= 0 and now - self._dirty_since + self._step_took >= settings.transaction_age:
            return True
        if self._taken >= settings.commit_messages:
            return True
        return now - self._last_commit >= settings.commit_interval and (
            self.outbox.dirty or bool(self.holdings.progress()) or self._marks_are_due()
        )

    def _marks_are_due(self) -> bool:
        marks = self.outbox.marks
        return marks is not None and marks.due(self.engine.ends())

    def _make_room(self, timeout: float) -> None:
        """A batch is partly written: let the chain finish it, and submit nothing that would begin another one."""
        age = self._clock.monotonic() - self._dirty_since
        if age >= self._settings.transaction_age + self._settings.request_timeout:
            raise Interruption("outputs can't be handed over to the broker in time")
        self.engine.poll()
        if self.outbox.open:
            self._clock.sleep(min(timeout, ROOM_WAIT))

    def _commit(self, deadline: Deadline, *, closing: bool = False) -> None:
        """One transaction: outputs, claims, mirror. Whatever it raises, its outcome is not to be relied on."""
        holdings, marks = self.holdings, self.outbox.marks
        noted = marks.write(self.engine.ends()) if marks is not None else frozenset()
        staying = holdings.positions() if self.outbox.dirty else holdings.progress(noted)
        passing = holdings.passing(closing=closing)
        if staying or passing:
            claims = {p: self._claim(p, offset, self._index) for p, offset in staying.items()}
            claims |= {p: self._claim(p, offset, self._view.owner(p)) for p, offset in passing.items()}
            mirror = {p: OffsetAndMetadata(record.offset) for p, record in claims.items()}
            groups: Mapping[str, Mapping[int, OffsetAndMetadata]] = {
                self._identity.claims_group: claims,
                self._identity.group: mirror,
            }
            self.outbox.commit(groups, self._identity.topic, deadline)
            holdings.confirm(staying, passing)
            if marks is not None:
                marks.dismiss(passing.keys())
            self.commits += 1
        self._last_commit, self._taken = self._clock.monotonic(), 0
        self._dirty_since = self._drained_since = -1.0

    def _claim(self, partition: int, offset: int, holder: int) -> OffsetAndMetadata:
        identity, marks = self._identity, self.outbox.marks
        note = None if marks is None else marks.note(partition)
        claim = Claim(identity.uid, identity.topic_id, self._view.number, holder, note)
        return OffsetAndMetadata(offset, claim.encode())
