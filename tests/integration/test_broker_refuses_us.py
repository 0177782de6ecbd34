"""Wrong credentials, wrong protocols and missing rights, on a real broker with TLS and SASL: each client says soon what
was wrong and what to do, and no message holds a secret.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from kafka_fixture import SecureKafka
from millrace.connectivity.confluent import ConfluentCluster
from millrace.connectivity.credentials import Credentials
from millrace.connectivity.ports import (
    AuthenticationFailed,
    AuthorizationFailed,
    BrokerUnreachable,
    Cluster,
    KafkaError,
    OffsetAndMetadata,
)
from millrace.errors import ExitCode

pytestmark = pytest.mark.integration

PATIENCE = 60.0


@pytest.fixture
def alice(kafka_tls: SecureKafka) -> Credentials:
    return Credentials(
        "SASL_SSL", "SCRAM-SHA-512", "alice", kafka_tls.users["alice"], ca=kafka_tls.ca.read_text()
    )


def cluster(address: str, credentials: Credentials | None) -> Cluster:
    return ConfluentCluster(address, credentials=credentials, client_id="test")


def ask(cluster: Cluster) -> None:
    cluster.admin().describe_topic("any", 4.0)


def init(cluster: Cluster) -> None:
    producer = cluster.transactional_producer("some-id")
    try:
        producer.init(4.0)
    finally:
        producer.close()


def send(cluster: Cluster) -> None:
    producer = cluster.producer()
    try:
        producer.produce("any", b"v")
        producer.flush(4.0)
    finally:
        producer.close()


def read(cluster: Cluster) -> None:
    consumer = cluster.consumer("any", group="any")
    consumer.assign({0: 0})
    try:
        deadline = time.monotonic() + 4.0
        while time.monotonic() < deadline:
            consumer.fetch(1, 0.05)
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_the_right_password_opens_the_door(
    kafka_tls: SecureKafka, alice: Credentials, mechanism: str
) -> None:
    secure = cluster(kafka_tls.bootstrap, replace(alice, mechanism=mechanism))
    admin = secure.admin()
    topic = f"secure-{mechanism}-{time.time_ns()}"
    admin.create_topic(topic, 1, PATIENCE)
    producer = secure.transactional_producer(f"id-{topic}")
    producer.init(PATIENCE)
    producer.begin()
    producer.produce(topic, b"v", partition=0)
    producer.send_offsets(f"g-{topic}", topic, {0: OffsetAndMetadata(1)}, PATIENCE)
    producer.commit(PATIENCE)
    producer.close()


@pytest.mark.parametrize("act", [ask, init, send, read])
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_a_wrong_password_is_named_by_every_client_soon(
    kafka_tls: SecureKafka, alice: Credentials, mechanism: str, act: Callable[[Cluster], None]
) -> None:
    began = time.monotonic()
    with pytest.raises(AuthenticationFailed) as refusal:
        act(cluster(kafka_tls.bootstrap, replace(alice, mechanism=mechanism, password="not-the-password")))
    assert time.monotonic() - began < 3.5
    message = str(refusal.value)
    assert refusal.value.code is ExitCode.CREDENTIALS
    assert kafka_tls.bootstrap in message
    assert f"user alice with {mechanism} over SASL_SSL" in message
    assert "check username, password" in message
    assert "not-the-password" not in message


def test_an_unknown_user_is_refused(kafka_tls: SecureKafka, alice: Credentials) -> None:
    with pytest.raises(AuthenticationFailed, match="refused us"):
        ask(cluster(kafka_tls.bootstrap, replace(alice, username="mallory")))


@pytest.mark.parametrize("act", [ask, init])
def test_a_certificate_of_another_authority_is_not_trusted(
    kafka_tls: SecureKafka, alice: Credentials, act: Callable[[Cluster], None]
) -> None:
    with pytest.raises(AuthenticationFailed, match="certificate") as refusal:
        act(cluster(kafka_tls.bootstrap, replace(alice, ca=kafka_tls.other_ca.read_text())))
    assert "ca.crt" in refusal.value.remedy


def test_without_the_authority_the_certificate_is_not_trusted(
    kafka_tls: SecureKafka, alice: Credentials
) -> None:
    with pytest.raises(AuthenticationFailed, match="certificate") as refusal:
        ask(cluster(kafka_tls.bootstrap, replace(alice, ca="")))
    assert "ca.crt" in refusal.value.remedy


@pytest.mark.parametrize(
    ("plain_listener", "credentials"),
    [
        (False, None),
        (True, Credentials("SSL")),
        (False, Credentials("SASL_PLAINTEXT", "PLAIN", "alice", "x")),
    ],
    ids=["plain to TLS", "TLS to plain", "SASL without TLS to TLS"],
)
def test_the_wrong_protocol_for_a_listener_says_what_was_tried(
    kafka_tls: SecureKafka, plain_listener: bool, credentials: Credentials | None
) -> None:
    address = kafka_tls.broker.bootstrap if plain_listener else kafka_tls.bootstrap
    with pytest.raises(BrokerUnreachable) as refusal:
        ask(cluster(address, credentials))
    assert address in refusal.value.what
    assert "tried" in refusal.value.where
    assert "plain, TLS, SASL" in refusal.value.remedy


def test_a_user_without_rights_is_told_so(kafka_tls: SecureKafka, alice: Credentials) -> None:
    topic = f"forbidden-{time.time_ns()}"
    cluster(kafka_tls.bootstrap, alice).admin().create_topic(topic, 1, PATIENCE)
    bob = cluster(kafka_tls.bootstrap, replace(alice, username="bob", password=kafka_tls.users["bob"]))
    for act in (
        lambda: bob.admin().create_topic(topic + "-2", 1, PATIENCE),
        lambda: bob.admin().group_offsets("g", topic, [0], PATIENCE, stable=True),
        lambda: init(bob),
    ):
        with pytest.raises(AuthorizationFailed) as refusal:
            act()
        assert refusal.value.code is ExitCode.CREDENTIALS
        assert "user bob" in refusal.value.remedy
    producer = bob.producer()
    producer.produce(topic, b"v", partition=0)
    with pytest.raises(KafkaError) as refused:
        producer.flush(PATIENCE)
    assert refused.value.code is ExitCode.CREDENTIALS


@pytest.mark.parametrize("act", [ask, init, send])
@pytest.mark.parametrize("address", ["127.0.0.1:1", "no-such-host.invalid:9092"])
def test_a_broker_that_is_not_there_is_named_with_its_address(
    address: str, act: Callable[[Cluster], None]
) -> None:
    began = time.monotonic()
    with pytest.raises(BrokerUnreachable, match=address) as refusal:
        act(cluster(address, None))
    assert time.monotonic() - began < 6.0
    assert refusal.value.code is ExitCode.BROKER_UNREACHABLE


def test_a_property_that_librdkafka_does_not_know_is_the_manifests_fault() -> None:
    bad = ConfluentCluster("127.0.0.1:1", properties={"no.such.property": "1"}, client_id="test")
    for make in (
        bad.producer,
        bad.admin,
        lambda: bad.consumer("t", group="g"),
        lambda: bad.transactional_producer("i"),
    ):
        with pytest.raises(KafkaError, match=r"no\.such\.property") as refusal:
            make()
        assert refusal.value.code is ExitCode.MANIFEST
        assert refusal.value.where == "spec.kafka.properties"


def test_librdkafkas_own_lines_never_reach_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BrokerUnreachable):
        init(cluster("127.0.0.1:1", None))
    assert capfd.readouterr() == ("", "")


def test_no_repr_holds_a_secret(kafka_tls: SecureKafka, alice: Credentials) -> None:
    secret = replace(alice, key="-----BEGIN PRIVATE KEY-----")
    shown = repr(secret) + repr(cluster(kafka_tls.bootstrap, secret)) + secret.described()
    assert "alice" in shown
    assert "alice-secret" not in shown
    assert "BEGIN" not in shown
