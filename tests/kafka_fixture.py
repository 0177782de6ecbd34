"""Real brokers for tests: `kafka` and `kafka_tls`, one of each in a test process, started by the first test that asks.

Where Java or the broker's jars are missing, these tests are skipped with the reason; with MILLRACE_REQUIRE_ALL=1 (CI)
they fail.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from certificates import Authority
from millrace.errors import ExitCode, MillraceError
from millrace.local.broker import addresses
from millrace.local.broker.embedded import EmbeddedBroker, Tls

USERS = {"alice": "alice-secret", "bob": "bob-secret"}


@dataclass(frozen=True)
class SecureKafka:
    """A broker with TLS and SASL on its second listener, and one more that demands a client's certificate and no SASL.
    Only alice and the owner of that certificate may do as they like: to bob everything is forbidden that an ACL would
    have to allow (for tests of authorisation).
    """

    broker: EmbeddedBroker
    bootstrap: str  # localhost:PORT of the secure listener
    ca: Path  # PEM of the authority that signed the broker's certificate
    other_ca: Path  # PEM of an authority that did not
    users: dict[str, str]
    mutual: str  # localhost:PORT of the listener with mutual TLS
    certificate: str  # PEM of a client's certificate that it takes
    key: str  # PEM of its key


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    broker = EmbeddedBroker(tmp_path_factory.mktemp("kafka"))
    start_or_skip(broker)
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def kafka_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    directory = tmp_path_factory.mktemp("kafka-tls")
    authority, other = Authority("millrace test authority"), Authority("another authority")
    keystore, ca, other_ca = directory / "broker.pem", directory / "ca.crt", directory / "other-ca.crt"
    keystore.write_bytes(authority.issue("localhost"))
    ca.write_bytes(authority.certificate_pem)
    other_ca.write_bytes(other.certificate_pem)
    key, certificate = authority.issue_apart("machine")
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # ANONYMOUS: the broker itself, on the plain listener
        "super.users": "User:ANONYMOUS;User:alice;User:CN=machine",
    }
    broker = EmbeddedBroker(directory / "broker", tls=Tls(keystore), users=USERS, properties=properties)
    mutual = addresses.choose(directory / "mutual").plain
    properties |= _one_more_listener(broker, mutual, ca)
    start_or_skip(broker)
    yield SecureKafka(
        broker, broker.secure_bootstrap, ca, other_ca, dict(USERS), f"localhost:{mutual}", certificate, key
    )
    broker.stop()


def _one_more_listener(broker: EmbeddedBroker, port: int, ca: Path) -> dict[str, str]:
    """Properties that add a listener with mutual TLS."""
    plain, secure = broker.bootstrap, broker.secure_bootstrap
    controller = json.loads((broker.directory / "ports.json").read_text())["controller"]
    return {
        "listeners": f"PLAINTEXT://{plain},CONTROLLER://127.0.0.1:{controller},SECURE://{secure},MUTUAL://localhost:{port}",
        "advertised.listeners": f"PLAINTEXT://{plain},SECURE://{secure},MUTUAL://localhost:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL,MUTUAL:SSL",
        "listener.name.mutual.ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca),
    }


@pytest.fixture
def topic() -> str:
    """A topic's name that no other test has; no such topic exists yet."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def make_topic(kafka: EmbeddedBroker) -> Callable[[int], str]:
    """make_topic(partitions): a new topic on the `kafka` broker."""

    def make(partitions: int = 1) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(20)
        return name

    return make


def start_or_skip(broker: EmbeddedBroker) -> None:
    """Start it; where this machine lacks something for it, skip the test, or fail it with MILLRACE_REQUIRE_ALL=1."""
    try:
        broker.start()
    except MillraceError as error:
        if error.code is not ExitCode.SETUP or os.environ.get("MILLRACE_REQUIRE_ALL") == "1":
            raise
        pytest.skip(f"NO REAL BROKER HERE: {error}")
