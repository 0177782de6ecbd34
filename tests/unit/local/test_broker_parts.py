"""What the embedded broker is made of: its properties, ports, and what it tells of a log."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from millrace.local.broker import addresses, server
from millrace.local.broker.embedded import EmbeddedBroker
from millrace.local.broker.process import last_meaningful_lines

pytestmark = pytest.mark.unit

PORTS = server.Ports(20001, 20002, 20003)


def properties(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def test_the_plain_broker_listens_on_this_machine_only() -> None:
    found = properties(server.properties(Path("/d"), PORTS))
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:20001,CONTROLLER://127.0.0.1:20002"
    assert found["auto.create.topics.enable"] == "false"


def test_what_it_holds_does_not_expire() -> None:
    found = properties(server.properties(Path("/d"), PORTS))
    assert found["log.retention.ms"] == "-1"
    assert int(found["offsets.retention.minutes"]) > 1_000_000


def test_users_are_known_to_plain_and_scram_over_tls() -> None:
    found = properties(
        server.properties(Path("/d"), PORTS, tls=server.Tls(Path("/k.pem")), users={"a": "s=1"})
    )
    assert found["listeners"].endswith("SECURE://127.0.0.1:20003")
    assert found["listener.security.protocol.map"].endswith("SECURE:SASL_SSL")
    assert 'user_a="s=1"' in found["listener.name.secure.plain.sasl.jaas.config"]
    assert "ScramLoginModule" in found["listener.name.secure.scram-sha-512.sasl.jaas.config"]


def test_clients_must_show_a_certificate_when_a_truststore_is_given() -> None:
    found = properties(server.properties(Path("/d"), PORTS, tls=server.Tls(Path("/k.pem"), Path("/ca.pem"))))
    assert found["listener.security.protocol.map"].endswith("SECURE:SSL")
    assert found["listener.name.secure.ssl.client.auth"] == "required"


def test_own_properties_win() -> None:
    found = properties(server.properties(Path("/d"), PORTS, more={"log.retention.ms": "5"}))
    assert found["log.retention.ms"] == "5"


def test_passwords_do_not_travel_in_the_clear(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="need tls"):
        EmbeddedBroker(tmp_path, users={"a": "b"})


def test_a_directory_keeps_its_ports(tmp_path: Path) -> None:
    first = EmbeddedBroker(tmp_path).bootstrap
    assert EmbeddedBroker(tmp_path).bootstrap == first
    assert EmbeddedBroker(tmp_path, port=23456).bootstrap == "127.0.0.1:23456"
    assert EmbeddedBroker(tmp_path).bootstrap == "127.0.0.1:23456"


def test_a_taken_port_is_not_chosen(tmp_path: Path) -> None:
    before = addresses.choose(tmp_path)
    with socket.create_server(("127.0.0.1", before.plain)):
        after = addresses.choose(tmp_path)
    assert before.plain not in (after.plain, after.controller, after.secure)


def test_ports_are_below_those_of_outgoing_connections(tmp_path: Path) -> None:
    ports = addresses.choose(tmp_path)
    assert max(ports.plain, ports.controller, ports.secure) < 32768


def test_a_damaged_file_of_ports_is_written_anew(tmp_path: Path) -> None:
    (tmp_path / "ports.json").write_text('{"plain": ')
    assert EmbeddedBroker(tmp_path).bootstrap == EmbeddedBroker(tmp_path).bootstrap


def test_a_log_is_told_by_its_errors_without_their_traces() -> None:
    said = """\
2026-01-01 INFO Server starting
2026-01-01 ERROR Server Exiting Kafka due to fatal exception
java.lang.IllegalArgumentException: no such thing
\tat kafka.Kafka.main(Kafka.java:1)
Caused by: java.io.IOException: the reason
\tat kafka.Kafka.main(Kafka.java:2)
\t... 12 more
2026-01-01 INFO Server bye
"""
    assert last_meaningful_lines(said).splitlines() == [
        "2026-01-01 ERROR Server Exiting Kafka due to fatal exception",
        "java.lang.IllegalArgumentException: no such thing",
        "Caused by: java.io.IOException: the reason",
    ]


def test_a_log_without_errors_is_told_by_its_end() -> None:
    assert last_meaningful_lines("one\ntwo\n\nthree\n", 2) == "two\nthree"


def test_cluster_ids_do_not_look_like_options() -> None:
    assert all(not server.new_cluster_id().startswith("-") for _ in range(500))
