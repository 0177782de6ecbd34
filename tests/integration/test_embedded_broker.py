"""The embedded broker keeps what it was given, comes back after any end, and says what stands in its way."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_fixture import SecureKafka, start_or_skip
from millrace.clock import Deadline, SystemClock
from millrace.errors import ExitCode, MillraceError
from millrace.local.broker.embedded import EmbeddedBroker

pytestmark = pytest.mark.integration

WORKER = str(Path(__file__).parents[2] / "worker")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 90 MB; only root can mount one."""
    command = ["mount", "-t", "tmpfs", "-o", "size=90m", "tmpfs", str(tmp_path)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small file system can't be mounted by this user")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_a_restarted_broker_has_its_address_and_its_data(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path)
    start_or_skip(broker)
    try:
        address = broker.bootstrap
        _write(address, "t", b"before the stop")
        broker.stop()
        assert not broker.alive()
        broker.start()
        assert broker.bootstrap == address
        assert _read(address, "t", 1) == [b"before the stop"]
        assert EmbeddedBroker(tmp_path).bootstrap == address
    finally:
        broker.stop()


def test_a_killed_broker_comes_back_with_what_it_had_acknowledged(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path)
    start_or_skip(broker)
    try:
        _write(broker.bootstrap, "t", b"before the crash")
        broker.kill()
        assert not broker.alive()
        assert broker.failure() is None
        broker.start()
        assert _read(broker.bootstrap, "t", 1) == [b"before the crash"]
    finally:
        broker.stop()


def test_a_broker_that_dies_by_itself_is_reported_with_its_log(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path)
    start_or_skip(broker)
    try:
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGKILL)
        _await(lambda: not broker.alive())
        failure = broker.failure()
        assert failure is not None
        assert failure.code is ExitCode.BROKER_UNREACHABLE
        assert "ended by itself with code -9" in failure.what
        assert failure.where == str(broker.log)
    finally:
        broker.stop()


def test_a_taken_port_is_named_with_who_has_it(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path)
    port = int(broker.bootstrap.partition(":")[2])
    with socket.create_server(("127.0.0.1", port)), pytest.raises(MillraceError) as caught:
        start_or_skip(broker)
    assert caught.value.code is ExitCode.BUSY
    assert f"port {port}" in caught.value.what
    assert f"process {os.getpid()}" in caught.value.what
    assert "delete this file" in caught.value.remedy


def test_a_directory_serves_one_broker_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millrace.local.broker.embedded._LOCK_SECONDS", 0.2)
    first = EmbeddedBroker(tmp_path)
    start_or_skip(first)
    try:
        with pytest.raises(MillraceError, match="another broker runs in this directory") as caught:
            EmbeddedBroker(tmp_path).start()
        assert caught.value.code is ExitCode.BUSY
    finally:
        first.stop()


def test_a_start_that_fails_shows_what_the_log_says(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path, properties={"log.cleaner.threads": "none of your business"})
    with pytest.raises(MillraceError, match="none of your business") as caught:
        start_or_skip_unless_refused(broker)
    assert "\tat " not in caught.value.what
    assert not broker.alive()


def test_a_full_disk_is_said_and_nothing_acknowledged_is_lost(small_disk: Path) -> None:
    broker = EmbeddedBroker(small_disk / "broker")
    start_or_skip(broker)
    try:
        _write(broker.bootstrap, "t", b"before the disk was full")
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "log_level": 0, "message.timeout.ms": 2000}
        )

        def is_over() -> bool:
            with contextlib.suppress(BufferError):
                producer.produce("t", os.urandom(100_000))
            producer.poll(0)
            return not broker.alive()

        _await(is_over, pause=0.0)
        producer.purge()
        failure = broker.failure()
        assert failure is not None
        assert failure.code is ExitCode.DISK
        with pytest.raises(MillraceError, match="MB of disk are left") as caught:
            broker.start()
        assert caught.value.code is ExitCode.DISK
        subprocess.run(["mount", "-o", "remount,size=400m", str(small_disk)], check=True)
        broker.start()
        assert _read(broker.bootstrap, "t", 1) == [b"before the disk was full"]
    finally:
        broker.stop()


def test_a_broker_does_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    with_java = EmbeddedBroker(tmp_path / "probe")
    start_or_skip(with_java)
    with_java.stop()
    code = (
        "import sys, pathlib; from millrace.local.broker.embedded import EmbeddedBroker as B; b = B(pathlib.Path(sys.argv[1]));"
        "b.start(); print(b.pid, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "tethered")],
        env={**os.environ, "PYTHONPATH": WORKER},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    with parent.stdin, parent.stdout:
        java = psutil.Process(int(parent.stdout.readline()))
        assert java.is_running()
        parent.kill()
        parent.wait(120)
        _await(lambda: not java.is_running() or java.status() == psutil.STATUS_ZOMBIE)
    successor = EmbeddedBroker(tmp_path / "tethered")
    successor.start()
    successor.stop()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_with_the_right_password_gets_in_over_tls(kafka_tls: SecureKafka, mechanism: str) -> None:
    admin = AdminClient(_secure(kafka_tls, mechanism, "alice", kafka_tls.users["alice"]))
    assert admin.list_topics(timeout=60).brokers


def test_a_wrong_password_is_refused(kafka_tls: SecureKafka) -> None:
    errors: list[KafkaError] = []
    settings = _secure(kafka_tls, "SCRAM-SHA-512", "alice", "wrong")
    admin = AdminClient({**settings, "error_cb": errors.append, "log_level": 0})
    with contextlib.suppress(KafkaException):
        admin.list_topics(timeout=3)
    admin.poll(1)
    assert KafkaError._AUTHENTICATION in [error.code() for error in errors]


def test_an_unknown_authority_is_refused(kafka_tls: SecureKafka) -> None:
    errors: list[KafkaError] = []
    settings = _secure(kafka_tls, "PLAIN", "alice", kafka_tls.users["alice"])
    admin = AdminClient(
        {**settings, "ssl.ca.location": str(kafka_tls.other_ca), "error_cb": errors.append, "log_level": 0}
    )
    with contextlib.suppress(KafkaException):
        admin.list_topics(timeout=3)
    admin.poll(1)
    assert KafkaError._SSL in [error.code() for error in errors]


def start_or_skip_unless_refused(broker: EmbeddedBroker) -> None:
    """As start_or_skip, where the very thing to be seen is a SETUP error of the start itself."""
    try:
        broker.start()
    except MillraceError as error:
        if "needs Java" in error.what or "jars" in error.what:
            start_or_skip(broker)
        raise


def _secure(
    kafka: SecureKafka, mechanism: str, user: str, password: str
) -> dict[str, str | int | float | bool]:
    return {
        "bootstrap.servers": kafka.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(kafka.ca),
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def _write(bootstrap: str, topic: str, value: bytes) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(120)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value)
    assert producer.flush(20) == 0


def _read(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = [message.value() for message in consumer.consume(count, 20)]
    consumer.close()
    return values


def _await(condition: Callable[[], bool], *, pause: float = 0.02) -> None:
    clock = SystemClock()
    deadline = Deadline.after(clock, 200)
    while not condition():
        assert not deadline.expired(), "not so in time"
        clock.sleep(pause)
