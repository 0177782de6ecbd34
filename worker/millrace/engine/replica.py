"""A replica: one worker's part in the protocol (R1-R3 of docs/protocol.md), stepped from outside.

It waits for an epoch, initialises its producer, which fences every former process of its index (R1), sweeps up what brokers
have left open of it (R8), and only then opens a session, which reads claims and works. When the outcome of a commit is unknown, or the broker was away, the
session is dropped as a whole and the next one begins with init (R3e). When it is fenced or superseded, it stops for good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from millrace.clock import Clock, Deadline
from millrace.connectivity.ports import (
    Admin,
    BrokerUnreachable,
    Cluster,
    DeliveryFailed,
    Fenced,
    KafkaError,
    OutcomeUnknown,
    TimedOut,
    TopicMissing,
    TransactionAborted,
    TransactionalProducer,
)
from millrace.engine.bounds import Bounds
from millrace.engine.claims import Superseded
from millrace.engine.readiness import Snapshot, State
from millrace.engine.session import ChainFactory, Interruption, Session
from millrace.engine.settings import Backoff, ReplicaSettings
from millrace.errors import ExitCode
from millrace.ownership.claim import transactional_id
from millrace.ownership.control_rules import Identity
from millrace.ownership.epoch import Epoch
from millrace.ownership.errors import ClaimLost, ForeignClaim
from millrace.ownership.sweeper import Sweep

EPOCH_WAIT = 0.05  # s between two looks for the first epoch
SWEEP_WAIT = 0.05  # s between two looks at what has to end before the sweep goes on
HOPELESS = 5  # transactions in a row that the broker refuses although it answers: trying again won't help

PASSING = (TimedOut, BrokerUnreachable, OutcomeUnknown, TransactionAborted, Interruption)
"""Failures after which everything is dropped and begun again; all others end the worker."""


class Replica:
    """Worker `index` of a pipeline. One thread calls `step` until it is told to stop, then `close`.

    Args:
        epoch_source: the newest epoch as far as this worker can see (its file may lag); None before the first. Asked
            in every step, so it should be cheap.
        chain: makes the chain; called once per session.
        bounds: where a bounded run ends. What is held stays held there, and is committed as ever.
        outputs: all topics that the chain writes through its outbox.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        topic: str,
        group: str,
        claims_group: str,
        index: int,
        epoch_source: Callable[[], Epoch | None],
        chain: ChainFactory,
        clock: Clock,
        settings: ReplicaSettings | None = None,
        bounds: Bounds | None = None,
        outputs: Sequence[str] = (),
    ) -> None:
        self._cluster, self._index, self._clock = cluster, index, clock
        self._outputs = tuple(outputs)
        self._identity = Identity("", topic, "", group, claims_group)
        self._epoch_source, self._chain = epoch_source, chain
        self._settings, self._bounds = settings or ReplicaSettings(), bounds
        self._view: Epoch | None = None
        self._admin: Admin | None = None
        self._producer: TransactionalProducer | None = None  # made, not yet initialised
        self._sweep: Sweep | None = None  # has the producer, initialised, until there is a session
        self._session: Session | None = None
        self._backoff = Backoff(self._settings.backoff_first, self._settings.backoff_largest)
        self._not_before = clock.monotonic()
        self._interrupted_by, self._interruptions = "", 0
        self._refused = 0  # transactions in a row
        self._stopped = False

    def step(self, timeout: float) -> int:
        """Do a bounded piece of work, waiting at most about `timeout` seconds for messages. Returns how many were
        taken. Requests to the broker have time-outs of their own.

        Raises Fenced or Superseded: another process acts as this index, stop. StageFailed, DeadLetterLimit,
        OffsetOutOfRange, ClaimLost, ForeignClaim, TopicMissing, AuthenticationFailed, AuthorizationFailed,
        DeliveryFailed: what a human has to see to. After any of these only `close` may be called, which still commits
        what was complete unless the failure is about ownership. Failures that pass by themselves are ridden out.
        """
        if self._stopped:
            raise ValueError("this replica has stopped")
        self._look_at_epoch()
        if self._view is None:
            self._clock.sleep(min(timeout, EPOCH_WAIT))
            return 0
        wait = self._not_before - self._clock.monotonic()
        if wait > 0:
            self._clock.sleep(min(timeout, wait))
            return 0
        try:
            if self._session is None:
                self._session = self._begin(self._view)
                if self._session is None:
                    self._clock.sleep(min(timeout, SWEEP_WAIT))
                return 0
            taken = self._session.step(self._view, timeout)
        except PASSING as failure:
            self._interrupt(failure)
            return 0
        except (Fenced, Superseded, ClaimLost, ForeignClaim):
            self._stop()  # nothing is committed any more: it would be written over claims that are not ours (R6)
            raise
        if self._session.commits:
            self._backoff.succeeded()
            self._refused = 0
        return taken

    def close(self, deadline: Deadline) -> bool:
        """Bring what is in flight to its end, commit, pass on what the newest epoch gives to others, release
        everything. Returns whether nothing was left undone. Never raises for the broker's sake: what could not be
        committed is processed again by the successor. Idempotent.
        """
        complete = self._session is None and not self._stopped
        if self._session is not None and self._view is not None:
            try:
                self._look_at_epoch()
                complete = self._session.finish(self._view, deadline)
            except (KafkaError, Superseded) as failure:
                self._interrupted_by = _words(failure)
        self._stop()
        return complete

    def terminate(self) -> None:
        """Release everything at once and commit nothing more, as if the process were killed: what was not committed is
        done again by the successor. Idempotent.
        """
        self._stop()

    def snapshot(self) -> Snapshot:
        """What there is to say about it now. To be called on the thread that steps."""
        number = self._view.number if self._view else None
        bare = Snapshot(State.STARTING, number, interruptions=self._interruptions)
        if self._stopped:
            return replace(bare, state=State.STOPPED, reasons=("stopped",))
        if self._view is None:
            return replace(bare, reasons=("waiting for an epoch",))
        session = self._session
        if session is None and self._sweep is not None and self._sweep.waits:
            return replace(bare, reasons=(self._sweep.waits,))
        if session is None and self._interrupted_by:
            return replace(bare, state=State.INTERRUPTED, reasons=(self._interrupted_by,))
        if session is None:
            return replace(bare, reasons=("initialising the producer",))
        return replace(
            bare,
            state=State.RUNNING,
            ready=not session.unanswered,
            reasons=session.reasons(),
            positions=dict(session.engine.positions()),
            committed=dict(session.holdings.committed),
            notes=session.notes(),
            leaving=session.holdings.leaving,
        )

    def _look_at_epoch(self) -> None:
        """R3h: only a newer number counts."""
        found = self._epoch_source()
        if found is None or (self._view is not None and found.number <= self._view.number):
            return
        if self._view is not None and found.uid != self._view.uid:
            self._stop()
            raise Superseded(
                f"the epoch is now of another pipeline, {found.uid}, not of {self._view.uid}",
                remedy="the pipeline was deleted and made again; this worker belonged to the former one",
            )
        self._view = found

    def _begin(self, view: Epoch) -> Session | None:
        """R1, R3a, R8: init, then the sweep, before any claim is taken up. None: to be called again."""
        if self._sweep is None:
            self._sweep = self._initialised(view)
        if not self._sweep.advance(Deadline.after(self._clock, self._settings.commit_timeout)):
            return None
        producer, self._sweep = self._sweep.producer, None
        assert self._admin is not None  # made before there was a sweep
        return Session(
            self._identity,
            self._index,
            view,
            producer=producer,
            consumer=self._cluster.consumer(self._identity.topic, group=self._identity.group),
            admin=self._admin,
            chain=self._chain,
            clock=self._clock,
            settings=self._settings,
            bounds=self._bounds,
        )

    def _initialised(self, view: Epoch) -> Sweep:
        settings = self._settings
        if self._admin is None:
            self._admin = self._cluster.admin()
        topic = self._admin.describe_topic(self._identity.topic, settings.request_timeout)
        if topic is None:
            raise TopicMissing(
                f"topic {self._identity.topic} does not exist",
                where="spec.source.topic",
                remedy="create it, or add spec.source.create to have it created",
            )
        self._identity = replace(self._identity, uid=view.uid, topic_id=topic.id)
        if self._producer is None:
            self._producer = self._cluster.transactional_producer(transactional_id(view.uid, self._index))
        self._producer.init(settings.init_timeout)
        producer, self._producer = self._producer, None  # from here on it is the sweep's, then the session's
        return Sweep(
            self._cluster, self._admin, producer, self._identity, self._index, self._outputs, self._clock
        )

    def _interrupt(self, failure: Exception) -> None:
        """Drop everything; the next step after the back-off begins with init."""
        self._interrupted_by = _words(failure)
        self._interruptions += 1
        if self._session is not None:
            self._session.drop()
            self._session = None
        elif self._sweep is not None:
            self._sweep.producer.close()
            self._sweep = None
        elif self._producer is not None and not isinstance(failure, TimedOut):
            self._producer.close()
            self._producer = None
        self._refused = self._refused + 1 if isinstance(failure, TransactionAborted) else 0
        if isinstance(failure, TransactionAborted):
            self._give_up_if_hopeless(failure)
        self._not_before = self._clock.monotonic() + self._backoff.failed()

    def _give_up_if_hopeless(self, failure: TransactionAborted) -> None:
        """A record that will never be written (its topic is gone, it is too large there) aborts each transaction."""
        if isinstance(failure.__cause__, DeliveryFailed):
            raise failure.__cause__
        if self._refused >= HOPELESS:
            raise DeliveryFailed(
                f"outputs can't be committed, tried {self._refused} times: {failure.what}",
                where=failure.where,
                remedy=failure.remedy
                or "see that the output and dead-letter topics exist, and what they allow",
                code=ExitCode.TOPIC,
            ) from failure

    def _stop(self) -> None:
        self._stopped = True
        if self._session is not None:
            self._session.drop()
            self._session = None
        if self._sweep is not None:
            self._sweep.producer.close()
            self._sweep = None
        if self._producer is not None:
            self._producer.close()
            self._producer = None
        if self._admin is not None:
            self._admin.close()
            self._admin = None


def _words(failure: Exception) -> str:
    return getattr(failure, "what", None) or str(failure)
