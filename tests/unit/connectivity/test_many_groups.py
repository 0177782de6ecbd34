"""Which settings of librdkafka's are taken over for the client that reads many groups, and which it has no word for."""

from __future__ import annotations

import logging

import pytest

from certificates import Authority
from millrace.connectivity import settings
from millrace.connectivity.confluent.many_groups import in_its_words
from millrace.connectivity.credentials import Credentials


def words(credentials: Credentials | None, **properties: str) -> dict[str, object] | None:
    named = {key.replace("_", "."): value for key, value in properties.items()}
    return in_its_words(settings.admin(settings.common("a:1, b:2", "me", credentials), named))


def test_brokers_in_plain_text() -> None:
    found = words(None)
    assert found is not None
    assert found["bootstrap_servers"] == ["a:1", "b:2"]
    assert (found["client_id"], found["security_protocol"]) == ("me", "PLAINTEXT")
    assert not any("sasl" in key or "ssl" in key for key in found)


def test_a_password_over_tls() -> None:
    ca = Authority("ours").certificate_pem.decode()
    found = words(Credentials("SASL_SSL", "SCRAM-SHA-512", "alice", "secret", ca=ca))
    assert found is not None
    assert found["sasl_mechanism"] == "SCRAM-SHA-512"
    assert (found["sasl_plain_username"], found["sasl_plain_password"]) == ("alice", "secret")
    context = found["ssl_context"]
    assert context.check_hostname  # type: ignore[attr-defined]
    assert len(context.get_ca_certs()) == 1  # type: ignore[attr-defined]


def test_names_of_hosts_are_not_checked_only_if_the_user_says_so() -> None:
    found = words(Credentials("SSL"), ssl_endpoint_identification_algorithm="none")
    assert found is not None
    assert not found["ssl_context"].check_hostname  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "key", ["ssl_cipher_suites", "ssl_ca_location", "sasl_kerberos_principal", "broker_address_family"]
)
def test_what_says_how_or_as_whom_to_connect_is_never_left_out(key: str) -> None:
    assert words(None, **{key: "x"}) is None


def test_what_only_tunes_librdkafka_is_left_out() -> None:
    assert words(None, client_rack="a", socket_send_buffer_bytes="1", fetch_min_bytes="5") == words(None)


def test_the_other_client_does_not_tell_its_settings() -> None:
    """At DEBUG it would, with the password."""
    assert not logging.getLogger("kafka").isEnabledFor(logging.INFO)
