"""How each client is configured, and why: the only place where librdkafka's settings are written down.

A client's settings are laid in three layers, later ones winning: defaults of ours, which suit most; the user's
`spec.kafka.properties`; and what the engine owns, because it would be wrong otherwise. A key of the last layer in
`kafka.properties` is refused, with the reason (`refused`). The keys are described in librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from millrace.connectivity.credentials import Credentials

__all__ = [
    "OWNED_KEYS",
    "Credentials",
    "Settings",
    "admin",
    "common",
    "consumer",
    "producer",
    "refused",
    "transactional",
]

Settings = dict[str, str | int | bool]

TRANSACTION_TIMEOUT_SECONDS = 10.0

# Defaults for every client.
_COMMON: Settings = {
    # A broker that comes back is noticed within a second; the default grows to 10 s of silence.
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    # A connection is up within this, handshakes included, or the next address is tried (default 30 s).
    "socket.connection.setup.timeout.ms": 10_000,
    # Idle connections through NAT and load balancers are kept.
    "socket.keepalive.enable": True,
    # Brokers and partitions that were added are seen within 30 s, not 5 minutes.
    "topic.metadata.refresh.interval.ms": 30_000,
    # A topic that no broker knows may still be on its way to them: after 10 s it is missing (default 30 s).
    "topic.metadata.propagation.max.ms": 10_000,
}

_CONSUMER: Settings = {
    # The memory bound: records fetched and not yet taken. librdkafka stops asking above 16 MiB (for the one queue of
    # a consumer, whatever the number of partitions); a response under way may add fetch.max.bytes for each broker.
    "queued.max.messages.kbytes": 16 * 1024,
    "fetch.max.bytes": 8 * 1024 * 1024,
    # Per partition in one response; larger single records are still fetched.
    "fetch.message.max.bytes": 1024 * 1024,
    # A full queue (back-pressure) is looked at again after 10 ms. By default fetching idles for a whole second: a
    # poll loop went from 175,000 to 534,000 messages/s with this.
    "fetch.queue.backoff.ms": 10,
    # An idle fetch waits 200 ms at the broker (default 500). A partition just assigned joins the next fetch, so this
    # bounds what adoption waits for; lower, thousands of idle workers would cost the broker.
    "fetch.wait.max.ms": 200,
    # After a failed fetch (a leader moves): soon again.
    "fetch.error.backoff.ms": 100,
}

_PRODUCER: Settings = {
    # Few and full requests: a record waits at most 10 ms for company. A commit does not wait for it (flush sends at
    # once).
    "linger.ms": 10,
    # Cheap on CPU, and JSON shrinks to a third.
    "compression.type": "lz4",
    # The memory bound; beyond it `produce` raises BufferFull.
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 64 * 1024,
}

_OWNED_COMMON: Settings = {
    # Its absence from the cluster is the control plane's affair: nobody makes a topic by naming it.
    "allow.auto.create.topics": False,
    # Nothing of the user's cluster is asked to collect metrics of us: they are Prometheus's.
    "enable.metrics.push": False,
    # A reply that does not come is given up after this, not 60 s; librdkafka wants it within the transaction's time.
    "socket.timeout.ms": int(TRANSACTION_TIMEOUT_SECONDS * 1000),
}

_OWNED_CONSUMER: Settings = {
    # Records of transactions that were aborted or are open are never seen: exactly-once rests on it. (Looking for what a
    # broker has left open, ownership/leftovers.py, is the one exception.)
    "isolation.level": "read_committed",
    # How `Consumer.ends` learns that a partition was read to its end, past transaction markers.
    "enable.partition.eof": True,
    # A position outside the log is an error for a person to judge, never a silent jump.
    "auto.offset.reset": "error",
    # Offsets are committed only through the fenced producer, with their claim (docs/protocol.md).
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
}

_OWNED_PRODUCER: Settings = {
    # No record is lost, doubled or put out of order by a retry: acks from all in-sync replicas, sequence numbers.
    "enable.idempotence": True,
    "acks": "all",
    # The partition of a key is the one that Java's producer would choose; no key: any partition.
    "partitioner": "murmur2_random",
    # Reports are wanted for failures only; a report for each record would cost a Python call each.
    "delivery.report.only.error": True,
}

_OWNED_TRANSACTIONAL: Settings = {
    # A dead worker's open transaction holds up its successor's stable reads: at most this long.
    "transaction.timeout.ms": int(TRANSACTION_TIMEOUT_SECONDS * 1000),
    # A record that can't be delivered fails its transaction; later than the transaction's own end it can't.
    "message.timeout.ms": int(TRANSACTION_TIMEOUT_SECONDS * 1000),
}

_ENGINE = "it is set by Millrace, which would be wrong with another value"
_STATIC = "there is no group membership: partitions are assigned statically"
_SECRET = "name a Secret in spec.kafka.credentials.secretRef (or --secrets): it has no place in a manifest"
_PROGRAM = "it can't be set from a manifest"

OWNED_KEYS: Mapping[str, str] = {
    **dict.fromkeys([*_OWNED_COMMON, *_OWNED_CONSUMER, *_OWNED_PRODUCER, *_OWNED_TRANSACTIONAL], _ENGINE),
    **dict.fromkeys(  # aliases of these, and what idempotence sets
        [
            "request.required.acks",
            "delivery.timeout.ms",
            "auto.commit.enable",
            "auto.commit.interval.ms",
            "max.in.flight",
            "max.in.flight.requests.per.connection",
            "retries",
            "message.send.max.retries",
            "enable.gapless.guarantee",
        ],
        _ENGINE,
    ),
    "bootstrap.servers": "set spec.kafka.bootstrapServers",
    "metadata.broker.list": "set spec.kafka.bootstrapServers",
    "client.id": "it names the pipeline and the worker",
    "group.id": "set spec.source.groupId",
    "transactional.id": "it is what fences one worker from another",
    **dict.fromkeys(
        [
            "group.instance.id",
            "group.protocol",
            "group.remote.assignor",
            "partition.assignment.strategy",
            "session.timeout.ms",
            "heartbeat.interval.ms",
            "max.poll.interval.ms",
        ],
        _STATIC,
    ),
    **dict.fromkeys(
        [
            "sasl.username",
            "sasl.password",
            "sasl.mechanism",
            "sasl.mechanisms",
            "ssl.key.pem",
            "ssl.key.location",
            "ssl.key.password",
            "ssl.certificate.pem",
            "ssl.certificate.location",
            "ssl.ca.pem",
            "ssl.keystore.location",
            "ssl.keystore.password",
            "sasl.oauthbearer.config",
            "sasl.oauthbearer.client.secret",
        ],
        _SECRET,
    ),
    **dict.fromkeys(  # callbacks, what only means something inside a program, and what would run one
        [
            "error_cb",
            "log_cb",
            "stats_cb",
            "throttle_cb",
            "oauth_cb",
            "on_delivery",
            "dr_cb",
            "dr_msg_cb",
            "logger",
            "log.queue",
            "enabled_events",
            "opaque",
            "plugin.library.paths",
            "default.topic.config",
            "sasl.kerberos.kinit.cmd",
            "ssl.engine.location",
            "ssl.providers",
            "internal.termination.signal",
        ],
        _PROGRAM,
    ),
}
"""Keys that `spec.kafka.properties` may not have, each with the reason, or what to do instead."""


def refused(properties: Mapping[str, str]) -> dict[str, str]:
    """The keys of `spec.kafka.properties` that are not the user's to set, each with the reason."""
    reasons = {}
    for key in properties:
        if key in OWNED_KEYS:
            reasons[key] = OWNED_KEYS[key]
        elif key.startswith("test.mock."):
            reasons[key] = _PROGRAM
    return reasons


def consumer(
    common: Settings, properties: Mapping[str, str], group: str, *, read_committed: bool = True
) -> Settings:
    chosen = {
        **_COMMON, **_CONSUMER, **properties, **_OWNED_COMMON, **_OWNED_CONSUMER, **common, "group.id": group
    }  # fmt: skip
    return chosen if read_committed else {**chosen, "isolation.level": "read_uncommitted"}


def producer(common: Settings, properties: Mapping[str, str]) -> Settings:
    return {**_COMMON, **_PRODUCER, **properties, **_OWNED_COMMON, **_OWNED_PRODUCER, **common}


def transactional(
    common: Settings,
    properties: Mapping[str, str],
    transactional_id: str,
    timeout: float = TRANSACTION_TIMEOUT_SECONDS,
) -> Settings:
    """timeout: of a transaction, in seconds."""
    settings = {**producer(common, properties), **_OWNED_TRANSACTIONAL, "transactional.id": transactional_id}
    return {
        **settings,
        **dict.fromkeys(["transaction.timeout.ms", "message.timeout.ms"], int(timeout * 1000)),
    }


def admin(common: Settings, properties: Mapping[str, str]) -> Settings:
    return {**_COMMON, **properties, **_OWNED_COMMON, **common}


def common(bootstrap: str, client_id: str, credentials: Credentials | None) -> Settings:
    """What all clients of a cluster share: where it is and who we are."""
    settings: Settings = {"bootstrap.servers": bootstrap, "client.id": client_id}
    if credentials is None:
        return settings
    settings["security.protocol"] = credentials.protocol
    if credentials.username:
        settings["sasl.mechanism"] = credentials.mechanism
        settings["sasl.username"] = credentials.username
        settings["sasl.password"] = credentials.password
    for key, pem in (
        ("ssl.ca.pem", credentials.ca),
        ("ssl.certificate.pem", credentials.certificate),
        ("ssl.key.pem", credentials.key),
    ):
        if pem:
            settings[key] = pem
    return settings
