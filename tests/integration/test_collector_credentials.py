"""The collector's Kafka clients are Java's: each kind of credentials opens the door to them, and what is wrong with
credentials is told as it is told to workers.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from channel import Channel
from java_client import JavaClient
from kafka_fixture import SecureKafka
from millrace.collector import Attempt, JobSpec, Query, Window, failures, kafka
from millrace.collector.sinks import Parquet
from millrace.errors import ExitCode

pytestmark = pytest.mark.integration

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.fixture(scope="module")
def door(kafka_tls: SecureKafka) -> str:
    """A topic of three partitions that only those see who may."""
    name = f"t-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": kafka_tls.broker.bootstrap})
    admin.create_topics([NewTopic(name, 3, 1)])[name].result(120)
    return name


def secrets(tmp_path: Path, kafka_tls: SecureKafka, **files: str) -> Path:
    (tmp_path / "ca.crt").write_bytes(kafka_tls.ca.read_bytes())
    for name, text in files.items():
        (tmp_path / name.replace("_", ".")).write_text(text)
    return tmp_path


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("end", ["", "\n", "\r\n"], ids=["bare", "line end", "another line end"])
def test_user_and_password_open_the_door(
    tmp_path: Path, kafka_tls: SecureKafka, java_client: JavaClient, door: str, mechanism: str, end: str
) -> None:
    given = secrets(
        tmp_path, kafka_tls, username=f"alice{end}", password=f"alice-secret{end}", sasl_mechanism=mechanism
    )
    options = kafka.options(kafka_tls.bootstrap, given, {})
    assert java_client.partitions(options, door) == 3


@pytest.mark.parametrize(
    "files",
    [
        {"sasl_jaas_config": f'{SCRAM} username="alice" password="alice-secret";\n'},
        {
            "sasl_jaas_config": f'{SCRAM} username="alice" password="alice-secret";',
            "password": "alice-secret",
        },
    ],
    ids=["all in the line", "as Strimzi writes it"],
)
def test_a_login_line_opens_the_door(
    tmp_path: Path, kafka_tls: SecureKafka, java_client: JavaClient, door: str, files: dict[str, str]
) -> None:
    options = kafka.options(kafka_tls.bootstrap, secrets(tmp_path, kafka_tls, **files), {})
    assert java_client.partitions(options, door) == 3


def test_a_certificate_opens_the_door(
    tmp_path: Path, kafka_tls: SecureKafka, java_client: JavaClient, door: str
) -> None:
    given = secrets(tmp_path, kafka_tls, user_crt=kafka_tls.certificate, user_key=kafka_tls.key)
    assert java_client.partitions(kafka.options(kafka_tls.mutual, given, {}), door) == 3


def test_an_authority_that_the_user_named_in_the_properties_is_trusted(
    tmp_path: Path, kafka_tls: SecureKafka, java_client: JavaClient, door: str
) -> None:
    given = secrets(tmp_path, kafka_tls, username="alice", password="alice-secret")
    (given / "ca.crt").unlink()
    properties = {
        "ssl.ca.location": str(kafka_tls.ca),
        "security.protocol": "sasl_ssl",
        "fetch.wait.max.ms": "100",
        "socket.connection.setup.timeout.ms": "5000",
        "connections.max.idle.ms": "0",
    }
    assert java_client.partitions(kafka.options(kafka_tls.bootstrap, given, properties), door) == 3


@pytest.mark.parametrize(
    "files",
    [
        {"username": "alice", "password": "guess-s3cret"},
        {"username": "mallory", "password": "guess-s3cret"},
        {"username": "alice", "password": "alice-secret", "ca_crt": "another"},
    ],
    ids=["a wrong password", "an unknown user", "another authority"],
)
def test_what_javas_client_says_of_wrong_credentials_is_understood(
    tmp_path: Path, kafka_tls: SecureKafka, java_client: JavaClient, door: str, files: dict[str, str]
) -> None:
    """The clients of librdkafka, which connect first, say it sooner; passwords may change under a running collector."""
    given = secrets(tmp_path, kafka_tls, **files)
    if "ca_crt" in files:
        (given / "ca.crt").write_bytes(kafka_tls.other_ca.read_bytes())
    with pytest.raises(Exception, match="Exception") as raised:
        java_client.partitions(kafka.options(kafka_tls.bootstrap, given, {}), door)
    failure = failures.classify(raised.value, spec(kafka_tls.bootstrap, tmp_path, door))
    assert failure.code is ExitCode.CREDENTIALS
    assert "s3cret" not in str(raised.value) + str(failure)


def test_a_wrong_password_ends_the_job_before_spark_starts(tmp_path: Path, kafka_tls: SecureKafka) -> None:
    given = tmp_path / "secrets"
    given.mkdir()
    secrets(given, kafka_tls, username="alice", password="guess-s3cret")
    channel = Channel(kafka_tls.broker.bootstrap, 1)
    wanted = spec(kafka_tls.bootstrap, tmp_path, channel.topic)
    attempt = Attempt(msgspec.structs.replace(wanted, secrets=str(given)), tmp_path / "job.log")
    attempt.start()
    deadline = time.monotonic() + 240
    try:
        while attempt.exit_code is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        attempt.kill()
    failure = attempt.failure()
    assert failure is not None
    assert (attempt.exit_code, failure.code) == (ExitCode.CREDENTIALS, ExitCode.CREDENTIALS)
    assert "user alice with SCRAM-SHA-512 over SASL_SSL" in str(failure)
    assert "the session is up" not in (tmp_path / "job.log").read_text()
    assert not any(
        "s3cret" in path.read_text() for path in tmp_path.rglob("*.*") if given not in path.parents
    )


def spec(bootstrap: str, directory: Path, channel: str) -> JobSpec:
    return JobSpec(
        name="t/collect",
        query=Query(
            schema="at timestamp",
            group_by=(),
            window=Window(size=60, time="at", lateness=60),
            aggregate={"rows": "count(*)"},
        ),
        bootstrap=bootstrap,
        channel=channel,
        partitions=1,
        group="g",
        checkpoint=str(directory / "checkpoint"),
        sink=Parquet(path=str(directory / "results")),
        where="spec.stages[0].collect",
        status_file=str(directory / "collector.json"),
        log=str(directory / "spark.log"),
        jars=str(directory),
    )
