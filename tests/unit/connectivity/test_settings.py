"""Settings: what is ours is ours, what is the user's is the user's, and secrets are in no message."""

from __future__ import annotations

import pytest

from millrace.connectivity import settings
from millrace.connectivity.confluent import ConfluentCluster
from millrace.connectivity.credentials import Credentials

pytestmark = pytest.mark.unit

COMMON = settings.common("broker:9092", "me", None)


def every_client(properties: dict[str, str]) -> list[settings.Settings]:
    return [
        settings.consumer(COMMON, properties, "group"),
        settings.producer(COMMON, properties),
        settings.transactional(COMMON, properties, "id"),
        settings.admin(COMMON, properties),
    ]


def test_the_users_properties_win_over_our_defaults() -> None:
    for client in every_client({"linger.ms": "50", "client.rack": "a", "reconnect.backoff.max.ms": "7"}):
        assert client["client.rack"] == "a"
        assert client["reconnect.backoff.max.ms"] == "7"
    assert settings.producer(COMMON, {"linger.ms": "50"})["linger.ms"] == "50"


def test_what_the_engine_owns_wins_over_everything() -> None:
    properties = dict.fromkeys(settings.OWNED_KEYS, "wrong")
    for client in every_client(properties):
        owned = {key: client[key] for key in client if client[key] != "wrong"}
        assert owned["bootstrap.servers"] == "broker:9092"
        assert owned["client.id"] == "me"
    assert settings.consumer(COMMON, properties, "group")["isolation.level"] == "read_committed"
    assert settings.consumer(COMMON, properties, "group")["auto.offset.reset"] == "error"
    assert settings.consumer(COMMON, properties, "group")["group.id"] == "group"
    assert settings.producer(COMMON, properties)["acks"] == "all"
    assert settings.transactional(COMMON, properties, "id")["transactional.id"] == "id"
    assert settings.transactional(COMMON, properties, "id")["transaction.timeout.ms"] == 10_000


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("isolation.level", "set by Millrace"),
        ("acks", "set by Millrace"),
        ("delivery.timeout.ms", "set by Millrace"),
        ("group.id", "spec.source.groupId"),
        ("bootstrap.servers", "spec.kafka.bootstrapServers"),
        ("sasl.password", "secretRef"),
        ("ssl.key.pem", "secretRef"),
        ("transactional.id", "fences"),
        ("session.timeout.ms", "no group membership"),
        ("plugin.library.paths", "manifest"),
        ("test.mock.num.brokers", "manifest"),
    ],
)
def test_an_owned_key_is_refused_with_the_reason(key: str, reason: str) -> None:
    assert reason in settings.refused({key: "x", "client.rack": "a"})[key]


def test_other_keys_are_not_refused() -> None:
    assert settings.refused({"client.rack": "a", "linger.ms": "5", "compression.type": "zstd"}) == {}


def test_all_that_we_set_ourselves_is_refused_except_the_defaults() -> None:
    defaults = {"reconnect.backoff.ms", "linger.ms", "fetch.max.bytes", "queued.max.messages.kbytes"}
    assert not defaults & settings.OWNED_KEYS.keys()
    assert {
        "isolation.level",
        "enable.partition.eof",
        "partitioner",
        "message.timeout.ms",
    } <= settings.OWNED_KEYS.keys()


def test_credentials_become_librdkafkas_settings() -> None:
    credentials = Credentials(
        "SASL_SSL", "SCRAM-SHA-512", "alice", "secret", ca="CA", certificate="CERT", key="KEY"
    )
    common = settings.common("b:1", "me", credentials)
    assert common == {
        "bootstrap.servers": "b:1",
        "client.id": "me",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "secret",
        "ssl.ca.pem": "CA",
        "ssl.certificate.pem": "CERT",
        "ssl.key.pem": "KEY",
    }


def test_librdkafka_takes_all_of_our_settings() -> None:
    cluster = ConfluentCluster("127.0.0.1:1", properties={"client.rack": "a"}, client_id="me")
    for client in (
        cluster.consumer("t", group="g"), cluster.producer(), cluster.transactional_producer("id"), cluster.admin()
    ):  # fmt: skip
        client.close()
