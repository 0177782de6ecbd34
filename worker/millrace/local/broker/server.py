"""How the embedded broker is configured and started, as text: its properties and its commands. No I/O here.

It is a real Apache Kafka broker, one node that is broker and controller at once (KRaft), bound to this machine only.
What differs from Kafka's defaults is said here, and why.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from millrace.host.java import Java

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Ports:
    """The broker's addresses on this machine; `secure` serves TLS and SASL, where they are asked for."""

    plain: int
    controller: int
    secure: int


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files. keystore: private key (PKCS#8), certificate and its chain in one file. truststore: the authorities
    whose client certificates are demanded (mTLS); None demands none.
    """

    keystore: Path
    truststore: Path | None = None


def properties(
    data: Path,
    ports: Ports,
    *,
    tls: Tls | None = None,
    users: Mapping[str, str] | None = None,
    more: Mapping[str, str] | None = None,
) -> str:
    """The text of server.properties. `more` overrides what is here."""
    settings: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{ports.controller}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listeners": f"PLAINTEXT://{HOST}:{ports.plain},CONTROLLER://{HOST}:{ports.controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{ports.plain}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:"
        + ("SASL_SSL" if users else "SSL"),
        "log.dirs": data,
        # a typing error in a topic's name must not make a topic
        "auto.create.topics.enable": "false",
        # one node can't replicate: with the default of 3 the internal topics could never be made; few partitions of
        # them, as 50 each make the first transaction and the first use of a consumer group slow
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        # what lies in a state directory stays until its owner deletes it: a laptop that was closed for a fortnight
        # must find its messages and its committed offsets (the claims) again
        "log.retention.ms": -1,
        "offsets.retention.minutes": 2**31 - 1,
        "transactional.id.expiration.ms": 2**31 - 1,
        # Not sooner than Kafka's 10 s, for the first check comes so long after the start: one that finds a transaction to
        # abort before the broker knows its own partitions (seen on 4.3.1 at 1 s) calls it aborted without a marker in
        # them, and the producer's next commit brings the aborted records back to life (docs/adr/0007).
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 10_000,
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1000,
        # after a crash the controller holds a broker for alive for 9 s by default
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "background.threads": 2,
        "log.cleaner.dedupe.buffer.size": 4 << 20,
        "log.segment.bytes": 128 << 20,
    }
    if tls:
        settings["listeners"] = f"{settings['listeners']},SECURE://{HOST}:{ports.secure}"
        # a name, as the certificate has it: clients compare it with the address that they connect to
        settings["advertised.listeners"] = (
            f"{settings['advertised.listeners']},SECURE://localhost:{ports.secure}"
        )
        settings["ssl.keystore.type"] = "PEM"
        settings["ssl.keystore.location"] = tls.keystore
        if tls.truststore:
            settings["ssl.truststore.type"] = "PEM"
            settings["ssl.truststore.location"] = tls.truststore
            settings["listener.name.secure.ssl.client.auth"] = "required"
    if users:
        settings["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
        known = " ".join(f'user_{name}="{password}"' for name, password in users.items())
        module = "org.apache.kafka.common.security"
        settings["listener.name.secure.plain.sasl.jaas.config"] = (
            f"{module}.plain.PlainLoginModule required {known};"
        )
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            settings[f"listener.name.secure.{mechanism}.sasl.jaas.config"] = (
                f"{module}.scram.ScramLoginModule required;"
            )
    return "".join(f"{key}={value}\n" for key, value in {**settings, **(more or {})}.items())


LOGGING = """\
# To the standard output, which is the file broker.log of the broker's directory.
Configuration:
  status: error
  Appenders: {Console: {name: OUT, target: SYSTEM_OUT, PatternLayout: {pattern: "%d{ISO8601} %p %c{1} %m%n"}}}
  Loggers:
    Root: {level: WARN, AppenderRef: {ref: OUT}}
    Logger:
      - {name: kafka.server.KafkaRaftServer, level: INFO}
"""


def new_cluster_id() -> str:
    """A random id in Kafka's form: 16 bytes, URL-safe base64 without padding, not beginning with a dash."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def format_command(
    java: Java,
    jars: Path,
    archive: Path | None,
    config: Path,
    cluster_id: str,
    users: Mapping[str, str] | None = None,
) -> Sequence[str]:
    """Makes the data directory of a new cluster, once; users are known to SCRAM from the first login on."""
    command = [*_jvm(java, jars, archive, "128m", config), "kafka.tools.StorageTool", "format"]
    command += ["-t", cluster_id, "-c", str(config), "--ignore-formatted"]
    for name, password in (users or {}).items():
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            command += ["--add-scram", f"{mechanism}=[name={name},password={password}]"]
    return command


def run_command(java: Java, jars: Path, archive: Path | None, config: Path, heap: str) -> Sequence[str]:
    """Runs the broker."""
    return [*_jvm(java, jars, archive, heap, config), "kafka.Kafka", str(config)]


def dump_command(java: Java, jars: Path, archive: Path, config: Path) -> Sequence[str]:
    """Runs the broker so that it leaves a class-data archive behind when it is stopped."""
    command = list(_jvm(java, jars, None, "512m", config))
    return [command[0], f"-XX:ArchiveClassesAtExit={archive}", *command[1:], "kafka.Kafka", str(config)]


def _jvm(java: Java, jars: Path, archive: Path | None, heap: str, config: Path) -> Sequence[str]:
    # Only the quick compiler (C1): the other's threads fight with the start for the few cores of a laptop, and halve
    # its speed. The class-data archive (JEP 350) halves the rest. It demands the very class path that it was made
    # with, hence the sorted list.
    sharing = ["-Xshare:auto", f"-XX:SharedArchiveFile={archive}"] if archive else []
    class_path = ":".join(str(jar) for jar in sorted(jars.glob("*.jar")))
    return [
        str(java.path),
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseG1GC",
        f"-Xmx{heap}",
        *sharing,
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={config.with_name('log4j2.yaml')}",
        "-cp",
        class_path,
    ]
