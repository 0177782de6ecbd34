"""librdkafka's errors as the ports': a table."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError as Native

from millrace.connectivity import ports
from millrace.connectivity.confluent.errors import REFUSALS_TOLERATED, Connection
from millrace.errors import ExitCode

pytestmark = pytest.mark.unit


def connection() -> Connection:
    return Connection("broker:9092", "user alice with PLAIN over SASL_SSL")


@pytest.mark.parametrize(
    ("code", "kind", "exit_code"),
    [
        (Native._FENCED, ports.Fenced, ExitCode.SUPERSEDED),
        (Native.INVALID_PRODUCER_EPOCH, ports.Fenced, ExitCode.SUPERSEDED),
        (Native.PRODUCER_FENCED, ports.Fenced, ExitCode.SUPERSEDED),
        (Native._AUTHENTICATION, ports.AuthenticationFailed, ExitCode.CREDENTIALS),
        (Native._SSL, ports.AuthenticationFailed, ExitCode.CREDENTIALS),
        (Native.TOPIC_AUTHORIZATION_FAILED, ports.AuthorizationFailed, ExitCode.CREDENTIALS),
        (Native.GROUP_AUTHORIZATION_FAILED, ports.AuthorizationFailed, ExitCode.CREDENTIALS),
        (Native.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ports.AuthorizationFailed, ExitCode.CREDENTIALS),
        (Native.CLUSTER_AUTHORIZATION_FAILED, ports.AuthorizationFailed, ExitCode.CREDENTIALS),
        (Native.UNKNOWN_TOPIC_OR_PART, ports.TopicMissing, ExitCode.TOPIC),
        (Native._UNKNOWN_TOPIC, ports.TopicMissing, ExitCode.TOPIC),
        (Native._UNKNOWN_PARTITION, ports.TopicMissing, ExitCode.TOPIC),
        (Native.TOPIC_ALREADY_EXISTS, ports.TopicExists, ExitCode.TOPIC),
        (Native._ALL_BROKERS_DOWN, ports.BrokerUnreachable, ExitCode.BROKER_UNREACHABLE),
        (Native._TRANSPORT, ports.BrokerUnreachable, ExitCode.BROKER_UNREACHABLE),
        (Native._RESOLVE, ports.BrokerUnreachable, ExitCode.BROKER_UNREACHABLE),
        (Native._TIMED_OUT, ports.TimedOut, ExitCode.BROKER_UNREACHABLE),
        (Native.COORDINATOR_LOAD_IN_PROGRESS, ports.TimedOut, ExitCode.BROKER_UNREACHABLE),
        (Native.UNSTABLE_OFFSET_COMMIT, ports.Unstable, ExitCode.BROKER_UNREACHABLE),
        (Native.MSG_SIZE_TOO_LARGE, ports.RecordTooLarge, ExitCode.TOPIC),
        (Native._QUEUE_FULL, ports.BufferFull, ExitCode.BROKER_UNREACHABLE),
        (Native.UNKNOWN, ports.KafkaError, ExitCode.BROKER_UNREACHABLE),
    ],
)
def test_each_error_has_its_kind_and_exit_code(
    code: int, kind: type[ports.KafkaError], exit_code: ExitCode
) -> None:
    error = connection().error(Native(code, "the reason"), "doing it", "there")
    assert type(error) is kind
    assert error.code is exit_code
    assert "the reason" in error.what


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("SASL authentication error: Invalid username or password", "check username, password"),
        ("mechanism handshake failed: broker's supported mechanisms: PLAIN", "set sasl.mechanism"),
        ("SSL handshake failed: certificate verify failed", "ca.crt"),
        ("SSL handshake failed: wrong version number", "expects TLS"),
    ],
)
def test_a_refusal_says_what_was_tried_and_what_to_do(reason: str, remedy: str) -> None:
    refusal = connection().error(Native(Native._AUTHENTICATION, reason), "asking")
    assert reason in refusal.what
    assert "broker:9092" in refusal.what
    assert refusal.where == "tried as user alice with PLAIN over SASL_SSL"
    assert remedy in refusal.remedy


def test_time_that_ran_out_for_want_of_a_connection_is_a_broker_unreachable() -> None:
    lost = connection()
    lost.event(
        Native(Native._TRANSPORT, "broker:9092/bootstrap: Connection refused (after 0ms in state CONNECT)")
    )
    lost.event(Native(Native._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    error = lost.error(Native(Native._TIMED_OUT, "time is up"), "asking")
    assert isinstance(error, ports.BrokerUnreachable)
    assert error.what == "asking: no broker answers at broker:9092: Connection refused"


def test_time_that_ran_out_on_a_connection_that_works_is_a_time_out() -> None:
    back = connection()
    back.event(Native(Native._TRANSPORT, "Connection refused"))
    back.works()
    assert isinstance(back.error(Native(Native._TIMED_OUT, "time is up"), "asking"), ports.TimedOut)


def test_a_client_that_worked_before_bears_some_refusals_while_a_broker_restarts() -> None:
    running, refusal = connection(), Native(Native._AUTHENTICATION, "refused")
    running.works()
    for _ in range(REFUSALS_TOLERATED):
        running.event(refusal)
        assert not running.troubled
    running.event(refusal)
    assert running.troubled
    running.works()
    assert not running.troubled


def test_meanwhile_what_fails_for_that_is_a_broker_that_does_not_answer() -> None:
    """A commit that times out in these seconds must not end the worker as if its password were wrong."""
    running = connection()
    running.works()
    running.event(Native(Native._AUTHENTICATION, "not yet"))
    for code in (Native._TIMED_OUT, Native._TRANSPORT, Native._AUTHENTICATION):
        error = running.error(Native(code, "time is up"), "commit")
        assert isinstance(error, ports.BrokerUnreachable)
    for _ in range(REFUSALS_TOLERATED):
        running.event(Native(Native._AUTHENTICATION, "refused"))
    assert isinstance(
        running.error(Native(Native._TIMED_OUT, "time is up"), "commit"), ports.AuthenticationFailed
    )


def test_a_client_that_never_worked_bears_none() -> None:
    new = connection()
    new.event(Native(Native._AUTHENTICATION, "refused"))
    assert new.troubled
