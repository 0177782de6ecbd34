"""The transactional producer. What it believes (initialised, in a transaction) is its own; what is so, the
coordinator's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from millrace.clock import Deadline
from millrace.connectivity.memory.faults import Call, Fate, Phase, no_reply
from millrace.connectivity.memory.groups import too_large
from millrace.connectivity.memory.log import Draft
from millrace.connectivity.memory.transactions import Concurrent, LateEnd, LateOffsets
from millrace.connectivity.memory.writer import Buffer
from millrace.connectivity.ports import (
    DeliveryFailed,
    Fenced,
    Headers,
    KafkaError,
    OffsetAndMetadata,
    OutcomeUnknown,
    Row,
    TimedOut,
    TransactionAborted,
    one_by_one,
)

if TYPE_CHECKING:
    from millrace.connectivity.memory.broker import MemoryBroker

_T = TypeVar("_T")


class MemoryTransactionalProducer:
    """Implements `ports.TransactionalProducer`."""

    def __init__(self, broker: MemoryBroker, client_id: str, transactional_id: str) -> None:
        self._broker, self._client_id, self.transactional_id = broker, client_id, transactional_id
        self._buffer = Buffer(broker)
        self._epoch = -1
        self._begun = False
        self._sent = False  # whether the broker knows anything of this transaction
        self._final: KafkaError | None = None
        self._must_abort = False

    def init(self, timeout: float) -> None:
        self._alive()
        if self._epoch >= 0:
            raise ValueError("init: it is initialised already")
        deadline = Deadline.after(self._broker.clock, timeout)
        self._epoch = self._carry_out("init", lambda: self._init(deadline), deadline)
        self._begun = self._sent = self._must_abort = False

    def begin(self) -> None:
        self._alive()
        if self._epoch < 0 or self._begun:
            raise ValueError(
                "begin: a transaction is open already" if self._begun else "begin: call init first"
            )
        self._begun, self._sent = True, False

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int = -1,
        timestamp_ms: int = 0,
    ) -> None:
        self._in_transaction("produce")
        self._buffer.put(Draft(topic, value, key, headers, partition, timestamp_ms))

    def produce_all(self, rows: Sequence[Row], first: int) -> int:
        return one_by_one(self.produce, rows, first)

    def poll(self) -> None:
        self._alive()
        if self._buffer and not self._must_abort:
            self._deliver()

    def flush(self, timeout: float) -> None:
        self._in_transaction("flush")
        if not self._delivered(Deadline.after(self._broker.clock, timeout)):
            raise TimedOut("flush: records could not be delivered in time")

    def send_offsets(
        self, group: str, topic: str, offsets: Mapping[int, OffsetAndMetadata], timeout: float
    ) -> None:
        self._in_transaction("send_offsets")
        broker = self._broker
        deadline = Deadline.after(broker.clock, timeout)
        if any("\0" in (offset.metadata or "") for offset in offsets.values()):
            raise ValueError("metadata with an embedded null character")
        slots = {(topic, p): OffsetAndMetadata(o.offset, o.metadata or None) for p, o in offsets.items()}

        def effect() -> None:
            there = broker.find_topic(topic)
            if any(there is None or p >= len(there.logs) for p in offsets):
                raise TransactionAborted(f"send_offsets: topic {topic} or a partition of it is not there")
            if too_large(offsets.values()):
                raise TransactionAborted("send_offsets: metadata is longer than the broker allows")
            send = broker.transactions.send_offsets
            self._until_free(
                deadline, lambda: send(self.transactional_id, self._epoch, group, slots), OutcomeUnknown
            )
            self._sent = True

        def late() -> None:
            self._sent = True  # AddOffsetsToTxn has arrived, the offsets have not
            add = broker.transactions.add_offsets
            self._until_free(deadline, lambda: add(self.transactional_id, self._epoch, group), OutcomeUnknown)
            broker.late.append(LateOffsets(self.transactional_id, self._epoch, group, slots))

        self._carry_out(
            "send_offsets",
            effect,
            deadline,
            lost=OutcomeUnknown,
            late=late,
            group=group,
            topic=topic,
            offsets=dict(offsets),
        )

    def commit(self, timeout: float) -> None:
        self._in_transaction("commit")
        broker = self._broker
        deadline = Deadline.after(broker.clock, timeout)
        if not self._delivered(deadline):
            self._must_abort = True
            raise TransactionAborted("commit: records could not be delivered in time")
        if self._sent:
            self._carry_out(
                "commit",
                lambda: broker.transactions.end(self.transactional_id, self._epoch, commit=True),
                deadline,
                lost=OutcomeUnknown,
                late=lambda: broker.late.append(LateEnd(self.transactional_id, self._epoch)),
            )
        self._begun = self._sent = False

    def abort(self, timeout: float) -> None:
        self._alive()
        broker = self._broker
        deadline = Deadline.after(broker.clock, timeout)
        self._buffer.clear()
        if self._sent:
            self._carry_out(
                "abort",
                lambda: broker.transactions.end(self.transactional_id, self._epoch, commit=False),
                deadline,
                lost=OutcomeUnknown,
            )
        self._begun = self._sent = self._must_abort = False

    def close(self) -> None:
        self._buffer.clear()
        self._final = self._final or Fenced("this producer is closed")

    def _init(self, deadline: Deadline) -> int:
        return self._until_free(deadline, lambda: self._broker.transactions.init(self.transactional_id))

    def _delivered(self, deadline: Deadline) -> bool:
        """Send all that is buffered; returns whether it was, within the deadline."""
        while self._buffer:
            self._deliver()
            if self._buffer:
                if deadline.expired():
                    return False
                self._broker.faults.pause(deadline)
        return True

    def _deliver(self) -> None:
        """Send what is buffered, if the broker is there."""
        broker, buffer = self._broker, self._buffer
        call = Call(self._client_id, "transactional", "deliver", {"transactional_id": self.transactional_id})
        broker.hook(call)
        broker.settle()
        if not broker.faults.up or call.fate is Fate.LOST:
            return
        while buffer:
            draft = buffer.first()
            try:
                topic, partition = buffer.place(draft)
                broker.transactions.append(
                    self.transactional_id,
                    self._epoch,
                    broker.log(topic, partition),
                    draft,
                    int(broker.clock.time() * 1000),
                )
            except Concurrent:
                return  # the former transaction is not complete: the client goes on trying
            except DeliveryFailed as failure:
                buffer.clear()
                self._must_abort = True
                raise TransactionAborted(
                    failure.what, where=failure.where, remedy=failure.remedy
                ) from failure
            except Fenced as fenced:
                self._final = fenced
                raise
            buffer.drop()
            self._sent = True
        call.phase = Phase.AFTER
        broker.hook(call)

    def _carry_out(
        self,
        name: str,
        effect: Callable[[], _T],
        deadline: Deadline,
        *,
        lost: type[KafkaError] = TimedOut,
        late: Callable[[], None] | None = None,
        **about: object,
    ) -> _T:
        """One request to the coordinator. What it is refused with for good is remembered."""
        call = Call(
            self._client_id, "transactional", name, {"transactional_id": self.transactional_id, **about}
        )

        def refusable() -> _T:
            self._broker.settle()
            if call.fate is Fate.REFUSED:
                raise TransactionAborted(f"{name}: the transaction can't be committed")
            return effect()

        try:
            return self._broker.faults.carry_out(call, refusable, deadline, lost=lost, late=late)
        except (Fenced, OutcomeUnknown) as final:
            self._final = final
            raise
        except TransactionAborted:
            self._must_abort = True
            raise

    def _until_free(
        self, deadline: Deadline, request: Callable[[], _T], lost: type[KafkaError] = TimedOut
    ) -> _T:
        """Ask again while the id's former transaction is not complete. Raises `lost` in the end."""
        broker = self._broker
        call = Call(self._client_id, "transactional", "wait", {"transactional_id": self.transactional_id})
        while True:
            broker.faults.wait_until_up(call, deadline, lost)
            broker.settle()
            try:
                return request()
            except Concurrent:
                if deadline.expired():
                    raise no_reply(lost, call) from None
                broker.faults.pause(deadline)

    def _alive(self) -> None:
        if self._final is not None:
            raise self._final

    def _in_transaction(self, what: str) -> None:
        self._alive()
        if not self._begun:
            raise ValueError(f"{what}: no transaction was begun")
        if self._must_abort:
            raise TransactionAborted(f"{what}: the transaction can't be committed, abort it")
