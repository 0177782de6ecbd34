"""What Millrace asks of Kafka: five small protocols, the values they exchange, and the ways they fail.

One thread uses a client; no port is thread-safe. Every call that may wait takes `timeout` in seconds and raises
`TimedOut` (never returns half a result) when it is over. Offsets are Kafka's: the committed offset of a partition is
that of the *next* message to be processed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from millrace.errors import ExitCode, MillraceError

if TYPE_CHECKING:
    from millrace.connectivity.survey import Survey

Headers = Sequence[tuple[str, bytes | None]]
Row = tuple[str, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int, int]
"""The arguments of `produce`, in their order."""


class Record(Protocol):
    """One record as fetched. The shape is confluent_kafka.Message's, so that the hot path wraps nothing: fields are
    methods, and a field that nobody asks for is never converted to a Python object.
    """

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...
    def timestamp(self) -> tuple[int, int]:
        """(type, milliseconds since the Unix epoch); type 0 means there is none."""


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset with the free text committed beside it: at most 4095 bytes of UTF-8 on a
    default broker (offset.metadata.max.bytes is 4096, and librdkafka sends one more), without NUL; "" reads as None."""

    offset: int
    metadata: str | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """What the broker says of a topic. `id` changes when a topic is deleted and made again (KIP-516)."""

    name: str
    id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets a partition's log holds: from `beginning` up to, not including, `end`. They are the log's, not a
    count: transaction markers and compaction leave gaps.
    """

    beginning: int
    end: int


class Consumer(Protocol):
    """Reads one topic by assign(): no group membership, no coordinator, nothing is ever committed through it.

    Reads are read_committed unless it was made otherwise. A position outside the log raises `OffsetOutOfRange`; it is
    never reset by itself.
    """

    def assign(self, positions: Mapping[int, int]) -> None:
        """Begin to fetch these partitions, each at its offset, beside those already assigned."""

    def unassign(self, partitions: Iterable[int]) -> None:
        """Fetch these no longer. Records of theirs may still come in the very next `fetch`, none after it."""

    def fetch(self, max_records: int, timeout: float) -> Sequence[Record]:
        """Up to `max_records` records in offset order within a partition; an empty sequence after `timeout` s (waits
        for the first record only as long as needed; `timeout` 0 takes what is there). Does not raise TimedOut.

        Raises: OffsetOutOfRange, AuthenticationFailed, AuthorizationFailed, TopicMissing. A broker that can't be
        reached is no error here: fetching goes on when it is back.
        """

    def ends(self) -> Mapping[int, int]:
        """Partitions whose end was reached since the last call, each with the offset at which the reader waits: all
        records below it were handed out (so trailing transaction markers can be committed past).
        """

    def close(self) -> None:
        """Release everything; waits at most a second or so. Idempotent."""


class Producer(Protocol):
    """Produces, idempotently, outside any transaction. Order within a partition is that of the calls."""

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int = -1,
        timestamp_ms: int = 0,
    ) -> None:
        """Hand a record to the client's buffer. partition -1: by murmur2 of the key, as Java's default partitioner.

        Raises BufferFull (nothing was taken: call again after `poll`), RecordTooLarge (before sending, where the
        client knows), and whatever an earlier record failed with.
        """

    def produce_all(self, rows: Sequence[Row], first: int) -> int:
        """`produce` for each of the rows from that index on, in order, at less cost: until one is not taken. Returns the
        index of that one, or how many rows there are.

        Raises, as `produce`, what is wrong with the first of them; with a later one when it is the first.
        """

    def poll(self) -> None:
        """Serve delivery reports without waiting. Raises DeliveryFailed for the first record that failed for good."""

    def flush(self, timeout: float) -> None:
        """Wait until each record handed over is acknowledged by all in-sync replicas. Raises DeliveryFailed, TimedOut."""

    def buffered(self) -> int:
        """Records handed over and not yet acknowledged."""

    def close(self) -> None:
        """Release everything; what was not acknowledged is given up. Idempotent."""


class TransactionalProducer(Protocol):
    """The producer of one transactional id (KIP-98), the fence of protocol.md. Same produce/poll as `Producer`.

    Life: init -> (begin -> produce*, send_offsets* -> commit | abort)*. `Fenced` is final, as is `OutcomeUnknown`:
    after either close this one and make another. `TransactionAborted` says that the transaction has to be aborted
    and nothing of it counts; after `abort` a new one may begin.
    """

    transactional_id: str

    def init(self, timeout: float) -> None:
        """init_transactions: fence every former producer of this id and abort what it left open (a prepared
        transaction of its is waited for). Raises TimedOut (safe to call again), Fenced, AuthorizationFailed.
        """

    def begin(self) -> None: ...

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int = -1,
        timestamp_ms: int = 0,
    ) -> None: ...

    def produce_all(self, rows: Sequence[Row], first: int) -> int: ...

    def poll(self) -> None: ...

    def flush(self, timeout: float) -> None:
        """Wait until what was produced in the open transaction has arrived, so that its end, whichever, leaves a marker in
        each of those partitions. Raises Fenced, TransactionAborted, TimedOut.
        """

    def send_offsets(
        self, group: str, topic: str, offsets: Mapping[int, OffsetAndMetadata], timeout: float
    ) -> None:
        """Make these offsets of `group` part of the transaction; several groups may be in one. Generation -1, as a
        simple consumer group: accepted although a stray subscriber is in the group.

        Raises Fenced, TransactionAborted (also: no such topic, metadata too large), or OutcomeUnknown: no reply in
        time. That is final here too, for the offsets may arrive later, and the broker would take them into this
        producer's next transaction, over what that one sends (KIP-890; the contract suite does it). After an init it
        refuses them. A broker that does not answer is waited for up to 10 s longer than `timeout`.
        """

    def commit(self, timeout: float) -> None:
        """Flush what was produced and commit. Raises Fenced, TransactionAborted (nothing was committed), or
        OutcomeUnknown (the reply is lost or overdue: it may have been committed or may yet be).
        """

    def abort(self, timeout: float) -> None:
        """Abort the open transaction. Raises Fenced, OutcomeUnknown."""

    def close(self) -> None:
        """Release everything without committing or aborting (the broker does that in time). Idempotent."""


def one_by_one(produce: Callable[..., None], rows: Sequence[Row], first: int) -> int:
    """`produce_all` for a producer to which calls are cheap."""
    for at in range(first, len(rows)):
        try:
            produce(*rows[at])
        except KafkaError:
            if at == first:
                raise
            return at
    return len(rows)


class Admin(Protocol):
    """Questions to the cluster, and topics. Raises BrokerUnreachable, TimedOut, AuthenticationFailed,
    AuthorizationFailed where it fits.
    """

    def describe_topic(self, topic: str, timeout: float) -> TopicDescription | None:
        """None if there is no such topic."""

    def create_topic(
        self, topic: str, partitions: int, timeout: float, config: Mapping[str, str] | None = None
    ) -> None:
        """Create it with the cluster's default replication; returns when it can be described. Raises TopicExists."""

    def create_partitions(self, topic: str, total: int, timeout: float) -> None:
        """Grow the topic to `total` partitions."""

    def delete_topic(self, topic: str, timeout: float) -> None:
        """Raises TopicMissing."""

    def spans(
        self, topic: str, partitions: Iterable[int], timeout: float, *, read_committed: bool = True
    ) -> Mapping[int, Span]:
        """Beginning and end of each partition's log; read_committed: the end is the last stable offset."""

    def offsets_at(
        self, topic: str, partitions: Iterable[int], timestamp_ms: int, timeout: float
    ) -> Mapping[int, int]:
        """The first offset at or after the time; the end of the log where there is none."""

    def group_offsets(
        self, group: str, topic: str, partitions: Iterable[int], timeout: float, *, stable: bool
    ) -> Mapping[int, OffsetAndMetadata]:
        """Committed offsets of a group; a partition without one is absent. stable (KIP-447's require_stable): raises
        `Unstable` while a transaction on any of them is pending; ask again. Not stable: what is committed now.
        """

    def commit_offsets(
        self, group: str, topic: str, offsets: Mapping[int, OffsetAndMetadata], timeout: float
    ) -> None:
        """Commit offsets outside any transaction, as nobody in particular: for a group whose offsets only show
        progress. Nothing fences it. Raises KafkaError, also if somebody is subscribed in the group.
        """

    def group_members(self, group: str, timeout: float) -> Sequence[str]:
        """Client ids of the members subscribed in a group (strays, for a group that is only assigned)."""

    def delete_group(self, group: str, timeout: float) -> None:
        """Delete a group and its offsets; a group that is not there is no error."""

    def delete_records(self, topic: str, before: Mapping[int, int], timeout: float) -> None:
        """Delete the records of each partition below an offset."""

    def close(self) -> None: ...


class Cluster(Protocol):
    """One Kafka cluster as seen with one set of credentials: where clients come from."""

    def consumer(self, topic: str, *, group: str, read_committed: bool = True) -> Consumer:
        """`group` only names the client to the broker's quota and authorisation; nothing is committed to it.
        read_committed False: also records whose transaction is open, or was aborted, up to the high watermark.
        """

    def producer(self) -> Producer: ...
    def transactional_producer(self, transactional_id: str) -> TransactionalProducer: ...
    def admin(self) -> Admin: ...
    def survey(self) -> Survey: ...


class KafkaError(MillraceError):
    """Something that Kafka, or the way to it, refused."""

    code = ExitCode.BROKER_UNREACHABLE


class TimedOut(KafkaError):
    """No answer within the caller's timeout. What was asked may or may not have happened."""


class BrokerUnreachable(KafkaError):
    """No broker answers at the bootstrap addresses."""


class AuthenticationFailed(KafkaError):
    """SASL or TLS refused us: wrong user, password, mechanism or certificate."""

    code = ExitCode.CREDENTIALS


class AuthorizationFailed(KafkaError):
    """We are known but not allowed (ACL)."""

    code = ExitCode.CREDENTIALS


class TopicMissing(KafkaError):
    code = ExitCode.TOPIC


class TopicExists(KafkaError):
    code = ExitCode.TOPIC


class Unstable(KafkaError):
    """A stable read found a pending transaction; ask again."""


class BufferFull(KafkaError):
    """The producer's buffer takes no more now: back-pressure, not a failure."""


class RecordTooLarge(KafkaError):
    """A record is larger than the client or the topic allows."""

    code = ExitCode.TOPIC


class DeliveryFailed(KafkaError):
    """A record was not written, for good."""


class Fenced(KafkaError):
    """A newer producer of the same transactional id exists."""

    code = ExitCode.SUPERSEDED


class TransactionAborted(KafkaError):
    """The open transaction can't be committed; abort it. Nothing of it counts. Its cause (`__cause__`) is a DeliveryFailed
    where the same would fail again, whatever is tried: a record too large for its topic, a right that is missing.
    """


class OutcomeUnknown(KafkaError):
    """The reply to a commit, an abort or a sending of offsets was lost: it may or may not have been carried out, or
    may be yet. Never retried, never judged by reading
    (protocol.md R3e): drop the producer and all state, init anew, read.
    """


class OffsetOutOfRange(KafkaError):
    """A position lies outside the partition's log."""

    code = ExitCode.OFFSET_GONE

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(
            f"offset {offset} is not in the log of {topic} partition {partition}",
            where=f"topic {topic}, partition {partition}",
            remedy="retention has overtaken this position, or the topic was made anew. `millrace offsets reset MANIFEST "
            f"--partitions {partition} --to earliest` goes on at what is there",
        )
        self.topic, self.partition, self.offset = topic, partition, offset

    def __reduce__(self) -> tuple[object, ...]:
        return (OffsetOutOfRange, (self.topic, self.partition, self.offset))
