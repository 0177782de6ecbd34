"""Sending dead letters again.

The letters of a step and the account of them (`replayed`) are one transaction, whose id lets only one process do this at a
time: whenever it is killed, each letter counts as sent exactly if readers with read_committed see it. So the same command again
goes on where it stopped, and sends none twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field

from millrace.cli.dlq.chosen import Chosen
from millrace.cli.dlq.letters import PATIENCE, REPLAYED, Letter, letter_of, original_headers, scan, spans
from millrace.cli.dlq.replayed import Replayed, TooScattered
from millrace.clock import Clock, Deadline
from millrace.connectivity.ports import (
    Admin,
    BufferFull,
    Cluster,
    OffsetAndMetadata,
    Record,
    Span,
    TopicMissing,
    TransactionalProducer,
    Unstable,
)
from millrace.errors import ExitCode, MillraceError

STEP = 500  # letters in one transaction
WAIT = 0.05  # s between two looks at what is pending, or full


@dataclass(frozen=True, slots=True)
class Replay:
    """What is to be done.

    Attributes:
        topic: of the dead letters.
        group: keeps the account; its name is the transactional id too.
        to: where they are sent; None: the topic and partition that each came from.
        again: those too that were sent before.
        limit: at most so many; None: all.
    """

    topic: str
    group: str
    chosen: Chosen
    to: str | None = None
    again: bool = False
    limit: int | None = None


@dataclass(slots=True)
class Result:
    """Letters that were (or, in a dry run, would be) sent, were left out by the choice, and had been sent before."""

    sent: int = 0
    left_out: int = 0
    sent_before: int = 0
    by_topic: dict[str, int] = field(default_factory=dict)


Told = Callable[[Letter, int], None]
"""Told of each letter that is sent, and how many offsets are visited by then."""


def replay(
    cluster: Cluster, what: Replay, clock: Clock, *, dry_run: bool = False, told: Told = lambda _l, _v: None
) -> Result:
    """Send them, up to the letters that are there now. Raises MillraceError; what was sent before that stays sent."""
    there = spans(cluster, what.topic, clock)
    if dry_run:
        with closing(cluster.admin()) as admin:
            account = _read(admin, what, there, clock)
        return _Pass(cluster, what, account, None, clock, told).run(there)
    with closing(cluster.transactional_producer(what.group)) as producer, closing(cluster.admin()) as admin:
        producer.init(PATIENCE)
        account = _read(admin, what, there, clock)
        return _Pass(cluster, what, account, producer, clock, told).run(there)


def left(cluster: Cluster, topic: str, group: str, clock: Clock) -> Mapping[int, int]:
    """For each partition the first letter that was not sent again; all before it were."""
    there = spans(cluster, topic, clock)
    with closing(cluster.admin()) as admin:
        account = _read(admin, Replay(topic, group, Chosen()), there, clock)
    return {partition: replayed.first for partition, replayed in account.items()}


def _read(admin: Admin, what: Replay, there: Mapping[int, Span], clock: Clock) -> dict[int, Replayed]:
    deadline = Deadline.after(clock, PATIENCE)
    while True:
        try:
            found = admin.group_offsets(what.group, what.topic, there, deadline.remaining(), stable=True)
            return {p: Replayed(found.get(p), span.beginning) for p, span in there.items()}
        except Unstable:
            if deadline.expired():
                raise
            clock.sleep(WAIT)


class _Pass:
    """One visit of all letters. Without a producer it only counts."""

    def __init__(
        self,
        cluster: Cluster,
        what: Replay,
        account: Mapping[int, Replayed],
        producer: TransactionalProducer | None,
        clock: Clock,
        told: Told,
    ) -> None:
        self._cluster, self._what, self._account = cluster, what, account
        self._producer, self._clock, self._told = producer, clock, told
        self._partitions: dict[str, int] = {}  # of the topics sent to
        self._begun: set[int] = set()  # partitions with letters in the open transaction
        self._in_step = self._visited = 0
        self.result = Result()

    def run(self, there: Mapping[int, Span]) -> Result:
        what = self._what
        within = {
            p: span if what.again else Span(self._account[p].first, span.end) for p, span in there.items()
        }
        for record in scan(self._cluster, what.topic, within, self._clock):
            if what.limit is not None and self.result.sent >= what.limit:
                break
            self._visit(record)
            if self._in_step >= STEP:
                self._commit()
        self._commit()
        return self.result

    def _visit(self, record: Record) -> None:
        account, offset, letter = self._account[record.partition()], record.offset(), letter_of(record)
        before = offset in account
        self._visited += 1
        chosen = letter in self._what.chosen
        if chosen and (self._what.again or not before):
            self._send(record, letter)
            account.visit(offset, done=True)
            self.result.sent += 1
            self._told(letter, self._visited)
            return
        account.visit(offset, done=before)
        if before:
            self.result.sent_before += 1
        else:
            self.result.left_out += 1

    def _send(self, record: Record, letter: Letter) -> None:
        topic = self._what.to or letter.source_topic
        if topic not in self._partitions:
            self._partitions[topic] = self._look(topic, record)
        self.result.by_topic[topic] = self.result.by_topic.get(topic, 0) + 1
        producer = self._producer
        if producer is None:
            return
        partition = -1
        if self._what.to is None and letter.source_partition is not None:
            partition = letter.source_partition if letter.source_partition < self._partitions[topic] else -1
        origin = f"{record.topic()}/{record.partition()}:{record.offset()}".encode()
        headers = [header for header in original_headers(record) if header[0] != REPLAYED]
        headers.append((REPLAYED, origin))
        if not self._begun:
            producer.begin()
        self._begun.add(record.partition())
        self._in_step += 1
        deadline = Deadline.after(self._clock, PATIENCE)
        while True:
            try:
                producer.produce(
                    topic, record.value(), record.key(), headers, partition, letter.source_timestamp or 0
                )
                return
            except BufferFull:
                if deadline.expired():
                    raise
                producer.poll()
                self._clock.sleep(WAIT)

    def _look(self, topic: str, record: Record) -> int:
        where = f"{record.topic()} partition {record.partition()}, offset {record.offset()}"
        if not topic:
            raise MillraceError(
                "a record of the dead-letter topic does not say where it came from: it is no dead letter",
                where=where,
                remedy="choose others (--stage, --reason), or send them to a topic by --to",
                code=ExitCode.TOPIC,
            )
        with closing(self._cluster.admin()) as admin:
            described = admin.describe_topic(topic, PATIENCE)
        if described is None:
            raise TopicMissing(
                f"topic {topic} does not exist", where=where, remedy="create it, or choose another by --to"
            )
        return described.partitions

    def _commit(self) -> None:
        producer = self._producer
        if producer is None or not self._begun:
            return
        offsets: dict[int, OffsetAndMetadata] = {}
        for partition in self._begun:
            try:
                offsets[partition] = self._account[partition].committed()
            except TooScattered:
                producer.abort(PATIENCE)
                raise MillraceError(
                    f"what was sent of partition {partition} is too scattered to be remembered",
                    where=self._what.topic,
                    remedy="send all that is left (no --stage, --reason, --partition), or purge what was sent "
                    "(`dlq purge --replayed`)",
                    code=ExitCode.USAGE,
                ) from None
        producer.send_offsets(self._what.group, self._what.topic, offsets, PATIENCE)
        producer.commit(PATIENCE)
        self._begun.clear()
        self._in_step = 0
