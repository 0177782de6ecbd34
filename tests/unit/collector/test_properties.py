"""What the user set for librdkafka, in the words of Java's client."""

from __future__ import annotations

import pytest

from millrace.collector import properties
from millrace.connectivity import settings

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (
            {"client.rack": "a", "reconnect.backoff.ms": "10"},
            {"client.rack": "a", "reconnect.backoff.ms": "10"},
        ),
        ({"security.protocol": "ssl"}, {"security.protocol": "SSL"}),
        (
            {"ssl.ca.location": "/etc/ca.pem"},
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/etc/ca.pem"},
        ),
        ({"ssl.ca.location": "probe"}, {}),
        (
            {"ssl.endpoint.identification.algorithm": "none"},
            {"ssl.endpoint.identification.algorithm": ""},
        ),
        (
            {"ssl.endpoint.identification.algorithm": "https"},
            {"ssl.endpoint.identification.algorithm": "https"},
        ),
        ({"fetch.wait.max.ms": "300"}, {"fetch.max.wait.ms": "300"}),
        ({"fetch.message.max.bytes": "1000"}, {"max.partition.fetch.bytes": "1000"}),
        ({"socket.receive.buffer.bytes": "0"}, {"receive.buffer.bytes": "-1"}),
        ({"connections.max.idle.ms": "0"}, {"connections.max.idle.ms": "-1"}),
        ({"check.crcs": "True"}, {"check.crcs": "true"}),
        ({"topic.metadata.refresh.interval.ms": "-1"}, {"metadata.max.age.ms": "300000"}),
    ],
)
def test_what_means_the_same_is_handed_on(given: dict[str, str], options: dict[str, str]) -> None:
    found = properties.translated(given)
    assert (found.options, found.unheeded) == (options, ())
    assert properties.notice(given) is None


def test_what_concerns_writers_or_librdkafka_itself_is_passed_over() -> None:
    given = {
        "linger.ms": "5",
        "compression.type": "zstd",
        "queue.buffering.max.messages": "10",
        "queued.min.messages": "10",
        "debug": "all",
        "statistics.interval.ms": "1000",
    }
    assert properties.translated(given) == properties.Translated({}, ())


def test_what_the_collector_can_not_heed_is_left_out_and_named() -> None:
    given = {
        "ssl.cipher.suites": "DEFAULT@SECLEVEL=0",
        "broker.address.family": "v6",
        "ssl.ca.location": "/etc/ssl/certs/",
    }
    assert properties.translated(given).options == {}
    notice = properties.notice(given)
    assert notice is not None
    assert "broker.address.family, ssl.ca.location, ssl.cipher.suites" in notice
    assert "/etc/ssl" not in notice


def test_no_property_leads_to_an_option_that_the_collector_sets_itself() -> None:
    """Isolation, group and what is read are the plan's, credentials the Secret's."""
    owned = {"isolation.level", "group.id", "bootstrap.servers", "sasl.jaas.config", "auto.offset.reset"}
    given = dict.fromkeys(properties._COUNTERPARTS, "1")
    assert owned.isdisjoint(properties.translated(given).options)
    assert not set(given) & set(settings.OWNED_KEYS)
