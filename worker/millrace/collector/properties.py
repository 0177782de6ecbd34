"""librdkafka's properties, as the user sets them in `spec.kafka.properties`, in the words of Java's client, which is
Spark's. Some names are the same and some have a counterpart; what concerns writers or librdkafka's own workings has no
meaning for it; the rest can't be had, and whoever set it should hear of it (`unheeded`). Pure.

librdkafka: CONFIGURATION.md of its repository. Java: the consumer's configuration in Kafka's documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Translated:
    """`options` by Java's names; `unheeded`: names of properties that have no counterpart there."""

    options: Mapping[str, str]
    unheeded: tuple[str, ...]


def translated(properties: Mapping[str, str]) -> Translated:
    found: dict[str, str] = {}
    unheeded = []
    for name, value in properties.items():
        translate = _COUNTERPARTS.get(name)
        options = translate(value.strip()) if translate is not None else None
        if options is not None:
            found.update(options)
        elif not name.startswith(_MEANS_NOTHING):
            unheeded.append(name)
    return Translated(found, tuple(sorted(unheeded)))


def notice(properties: Mapping[str, str]) -> str | None:
    """For people, if there is anything that the collector does without."""
    unheeded = translated(properties).unheeded
    if not unheeded:
        return None
    return (
        f"spec.kafka.properties: {', '.join(unheeded)}: heeded by workers and not by the collector, since Java's Kafka "
        "client has no such setting"
    )


_Translate = Callable[[str], Mapping[str, str] | None]


def _as(*names: str) -> _Translate:
    return lambda value: dict.fromkeys(names, value)


def _or_disabled(name: str, disabled: str, java: str = "-1") -> _Translate:
    """What librdkafka switches off with the value `disabled`, Java with another."""
    return lambda value: {name: java if value == disabled else value}


def _upper(name: str) -> _Translate:
    return lambda value: {name: value.upper()}


def _boolean(name: str) -> _Translate:
    return lambda value: {name: "true" if value.lower() in ("true", "t", "1") else "false"}


def _authorities(value: str) -> Mapping[str, str] | None:
    """A file of PEM. `probe` is what Java does anyway: the authorities of the system."""
    if value == "probe":
        return {}
    if value.endswith("/"):  # a folder of them
        return None
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": value}


_COUNTERPARTS: Mapping[str, _Translate] = {
    "client.rack": _as("client.rack"),
    "client.dns.lookup": _as("client.dns.lookup"),
    "security.protocol": _upper("security.protocol"),
    "ssl.ca.location": _authorities,
    "ssl.endpoint.identification.algorithm": _or_disabled(
        "ssl.endpoint.identification.algorithm", "none", ""
    ),
    "socket.send.buffer.bytes": _or_disabled("send.buffer.bytes", "0"),
    "socket.receive.buffer.bytes": _or_disabled("receive.buffer.bytes", "0"),
    "socket.connection.setup.timeout.ms": _as(
        "socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"
    ),
    "connections.max.idle.ms": _or_disabled("connections.max.idle.ms", "0"),
    "reconnect.backoff.ms": _as("reconnect.backoff.ms"),
    "reconnect.backoff.max.ms": _as("reconnect.backoff.max.ms"),
    "retry.backoff.ms": _as("retry.backoff.ms"),
    "retry.backoff.max.ms": _as("retry.backoff.max.ms"),
    "fetch.wait.max.ms": _as("fetch.max.wait.ms"),
    "fetch.min.bytes": _as("fetch.min.bytes"),
    "fetch.max.bytes": _as("fetch.max.bytes"),
    "fetch.message.max.bytes": _as("max.partition.fetch.bytes"),
    "max.partition.fetch.bytes": _as("max.partition.fetch.bytes"),
    "metadata.max.age.ms": _as("metadata.max.age.ms"),
    "topic.metadata.refresh.interval.ms": _or_disabled("metadata.max.age.ms", "-1", "300000"),
    "check.crcs": _boolean("check.crcs"),
}

# beginnings of names
_MEANS_NOTHING = (
    # a reader does not write
    "batch.", "compression.", "linger.ms", "message.", "queue.", "queuing.", "sticky.partitioning.",
    # librdkafka's own: its queues, logs, statistics, and what Java always does
    "api.version.", "broker.address.ttl", "broker.version.", "builtin.features", "debug", "enable.random.seed",
    "fetch.error.backoff.ms", "fetch.queue.backoff.ms", "log", "queued.", "socket.keepalive.enable",
    "socket.max.fails", "socket.nagle.disable", "statistics.", "topic.blacklist", "topic.metadata.",
)  # fmt: skip
