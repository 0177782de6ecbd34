"""Whatever is wrong, the user gets one screen that says what to do, the documented exit code, and no traceback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_fixture import SecureKafka
from millrace.errors import ExitCode
from millrace.local.broker.embedded import EmbeddedBroker
from numbers_pipeline import Numbers, Run, await_that, done, environment, millrace, status

pytestmark = pytest.mark.e2e


def assert_told(code: int, err: str, expected: ExitCode, *said: str) -> None:
    """One screen, an exit code, what to do; no traceback."""
    assert code == expected, err
    assert err.startswith("error: ")
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 24
    for words in said:
        assert words in err


@dataclass(frozen=True)
class BadManifest:
    """A change of a good manifest, with what must be said about it."""

    change: Callable[[str], str]
    code: ExitCode
    said: tuple[str, ...]


BAD_MANIFESTS = {
    "not YAML": BadManifest(lambda _text: "metadata: {name: [", ExitCode.MANIFEST, ("line",)),
    "another kind": BadManifest(
        lambda text: text.replace('"ConsumerPipeline"', '"Deployment"'),
        ExitCode.MANIFEST,
        ("ConsumerPipeline",),
    ),
    "a wrong type": BadManifest(
        lambda text: text.replace('"partitions": 4', '"partitions": "four"'),
        ExitCode.MANIFEST,
        ("spec.source.create.partitions", "four"),
    ),
    "an unknown key": BadManifest(
        lambda text: text.replace('"delivery"', '"deliver"'), ExitCode.MANIFEST, ("spec.deliver", "delivery")
    ),
    "a field that is not there yet": BadManifest(
        lambda text: text.replace('"delivery"', '"scaling": {}, "delivery"'),
        ExitCode.MANIFEST,
        ("spec.scaling",),
    ),
    "a property that the engine owns": BadManifest(
        lambda text: text.replace(
            '"bootstrapServers"', '"properties": {"enable.auto.commit": "true"}, "bootstrapServers"'
        ),
        ExitCode.MANIFEST,
        ("spec.kafka.properties", "enable.auto.commit"),
    ),
    "no such function": BadManifest(
        lambda text: text.replace(":doubled", ":tripled"), ExitCode.FUNCTION, ("spec.stages[1]", "tripled")
    ),
    "no such module": BadManifest(
        lambda text: text.replace("functions_", "nothing_"), ExitCode.FUNCTION, ("spec.stages[0]", "nothing_")
    ),
    "not callable": BadManifest(
        lambda text: text.replace(":doubled", ":PAUSE"), ExitCode.FUNCTION, ("spec.stages[1]", "PAUSE")
    ),
}


@pytest.mark.parametrize("case", BAD_MANIFESTS.values(), ids=BAD_MANIFESTS.keys())
@pytest.mark.parametrize("command", ["validate", "run", "worker"])
def test_a_bad_manifest(
    command: str, case: BadManifest, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    numbers = Numbers(tmp_path, "t-bad", bootstrap="localhost:1").write()
    numbers.manifest.write_text(case.change(numbers.manifest.read_text()))
    words: list[object] = [numbers.manifest]
    if command == "worker":
        words = ["--manifest", numbers.manifest, "--epoch-file", tmp_path / "epoch.json", "--index", 0]
    elif command == "run":
        words += ["--state", numbers.state]
        if case.code == ExitCode.FUNCTION:  # found by the workers, which need a broker to be started
            kafka: EmbeddedBroker = request.getfixturevalue("kafka")
            words += ["--kafka", kafka.bootstrap]
    ended = millrace(command, *words, timeout=60)
    if command == "worker":
        assert ended.returncode == case.code
        event = json.loads(ended.stderr.splitlines()[-1])
        text = json.dumps(event)
        assert event["event"] == "failed"
        assert case.code == ExitCode.FUNCTION or "Traceback" not in ended.stderr  # one's own code's is of use
    else:
        assert_told(ended.returncode, ended.stderr, case.code)
        text = ended.stderr
    for words_said in case.said:
        assert words_said in text


def test_a_manifest_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path):
        ended = millrace("run", path)
        assert_told(ended.returncode, ended.stderr, ExitCode.MANIFEST, str(path), "to do:")


def test_a_manifest_that_is_not_text(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    ended = millrace("validate", file)
    assert_told(ended.returncode, ended.stderr, ExitCode.MANIFEST, "UTF-8")


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    ended = millrace("run", tmp_path / "none.yaml", "--debug")
    assert ended.returncode == ExitCode.MANIFEST
    assert "Traceback" in ended.stderr


@pytest.mark.parametrize("kafka_option", ["nonsense", "embedded:", "host:", "host:99999999"])
def test_a_kafka_option_that_names_none(tmp_path: Path, kafka_option: str) -> None:
    numbers = Numbers(tmp_path, "t-bad").write()
    ended = millrace("run", numbers.manifest, "--kafka", kafka_option, "--state", numbers.state)
    assert_told(ended.returncode, ended.stderr, ExitCode.USAGE, "--kafka", "embedded")


def test_a_topic_that_is_missing_and_may_not_be_created(
    tmp_path: Path, topic: str, kafka: EmbeddedBroker
) -> None:
    numbers = Numbers(tmp_path, topic, create_source=False).write()
    ended = millrace("run", numbers.manifest, "--kafka", kafka.bootstrap, "--state", numbers.state)
    assert_told(
        ended.returncode,
        ended.stderr,
        ExitCode.TOPIC,
        f"topic {topic} does not exist",
        "create",
        "spec.source",
    )


def test_a_broker_that_cannot_be_reached(tmp_path: Path, topic: str) -> None:
    numbers = Numbers(tmp_path, topic).write()
    ended = millrace(
        "run", numbers.manifest, "--kafka", f"127.0.0.1:{_free_port()}", "--state", numbers.state
    )
    assert_told(ended.returncode, ended.stderr, ExitCode.BROKER_UNREACHABLE, "127.0.0.1", "to do:")


def test_a_broker_that_goes_away_midway_and_comes_back(
    tmp_path: Path, topic: str, kafka: EmbeddedBroker
) -> None:
    del kafka
    numbers = Numbers(tmp_path / "pipeline", topic, pause=0.001).write()
    with EmbeddedBroker(tmp_path / "broker") as broker:
        numbers.make_topic(broker.bootstrap)
        numbers.send(broker.bootstrap, 8_000)
        with Run(
            numbers.manifest,
            "--kafka",
            broker.bootstrap,
            "--state",
            numbers.state,
            "--until-end",
            "--replicas",
            2,
        ) as run:
            await_that(lambda: done(numbers.state) > 300, "some messages are processed", run)
            broker.kill()
            await_that(lambda: "away" in str(status(numbers.state).get("phase")), "it is noticed", run)
            broker.start()
            code, out, err = run.wait()
        assert (code, err) == (ExitCode.OK, ""), out
        assert "the broker answers again" in out
        numbers.assert_exact(broker.bootstrap)


@dataclass(frozen=True)
class BadSecret:
    change: dict[str, str]
    said: tuple[str, ...]


BAD_SECRETS = {
    "a wrong password": BadSecret({"password": "guess"}, ("alice",)),
    "an unknown user": BadSecret({"username": "mallory"}, ("mallory",)),
    "another authority": BadSecret({"ca.crt": "other"}, ("certificate",)),
    "a user without rights": BadSecret({"username": "bob", "password": "bob-secret"}, ()),
    "a mechanism that is none": BadSecret({"sasl.mechanism": "MAGIC"}, ("MAGIC",)),
    "no password": BadSecret({"password": ""}, ("password",)),
}


@pytest.mark.parametrize("case", BAD_SECRETS.values(), ids=BAD_SECRETS.keys())
def test_wrong_credentials(case: BadSecret, tmp_path: Path, topic: str, kafka_tls: SecureKafka) -> None:
    numbers = Numbers(tmp_path, topic).write()
    secrets = _secrets(tmp_path / "secrets", kafka_tls, case.change)
    ended = millrace(
        "run",
        numbers.manifest,
        "--kafka",
        kafka_tls.bootstrap,
        "--secrets",
        secrets,
        "--state",
        numbers.state,
    )
    assert_told(ended.returncode, ended.stderr, ExitCode.CREDENTIALS, *case.said)
    assert "alice-secret" not in ended.stderr + ended.stdout


def test_right_credentials_over_tls(tmp_path: Path, topic: str, kafka_tls: SecureKafka) -> None:
    numbers = Numbers(tmp_path, topic).write()
    numbers.make_topic(kafka_tls.broker.bootstrap)
    numbers.send(kafka_tls.broker.bootstrap, 500)
    secrets = _secrets(tmp_path / "secrets", kafka_tls, {})
    ended = millrace(
        "run", numbers.manifest, "--kafka", kafka_tls.bootstrap, "--secrets", secrets, "--state", numbers.state,
        "--until-end",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    numbers.assert_exact(kafka_tls.broker.bootstrap)
    logs = "".join(path.read_text() for path in (numbers.state / "workers").glob("*.log"))
    assert "alice-secret" not in logs


def test_credentials_that_the_manifest_names_and_nobody_gives(tmp_path: Path) -> None:
    numbers = Numbers(tmp_path, "t-bad").write()
    text = numbers.manifest.read_text()
    named = '"credentials": {"secretRef": {"name": "kafka-user"}}, "bootstrapServers"'
    numbers.manifest.write_text(text.replace('"bootstrapServers"', named))
    ended = millrace("run", numbers.manifest, "--state", numbers.state)
    assert_told(ended.returncode, ended.stderr, ExitCode.CREDENTIALS, "kafka-user", "--secrets DIR")


def test_a_stage_that_raises(tmp_path: Path, topic: str, kafka: EmbeddedBroker) -> None:
    numbers = Numbers(tmp_path, topic, bad=742).write()
    numbers.make_topic(kafka.bootstrap)
    numbers.send(kafka.bootstrap, 1_000)
    words = (numbers.manifest, "--kafka", kafka.bootstrap, "--state", numbers.state, "--until-end")
    ended = millrace("run", *words)
    assert_told(
        ended.returncode, ended.stderr, ExitCode.STAGE_FAILED, "ValueError", "no such number", "stage doubled",
        "partition 2", "offset 185",
    )  # fmt: skip
    # mended, it goes on where it stopped: what was before is there once, what came after too
    numbers.bad = None
    numbers.write()
    again = millrace("run", *words)
    assert again.returncode == 0, again.stdout + again.stderr
    numbers.assert_exact(kafka.bootstrap)


def test_an_invalid_message_without_dead_letters(tmp_path: Path, topic: str, kafka: EmbeddedBroker) -> None:
    numbers = Numbers(tmp_path, topic, dead_letter=False).write()
    numbers.make_topic(kafka.bootstrap)
    numbers.send(kafka.bootstrap, 300)
    ended = millrace(
        "run", numbers.manifest, "--kafka", kafka.bootstrap, "--state", numbers.state, "--until-end"
    )
    assert_told(
        ended.returncode,
        ended.stderr,
        ExitCode.STAGE_FAILED,
        "a multiple of a hundred",
        "stage kept",
        "deadLetter",
    )


def test_setup_that_fails(tmp_path: Path, topic: str, kafka: EmbeddedBroker) -> None:
    numbers = Numbers(tmp_path, topic).write()
    module = next(tmp_path.glob("functions_*.py"))
    module.write_text(module.read_text() + "\ndef setup():\n    raise OSError('no table')\n")
    ended = millrace("run", numbers.manifest, "--kafka", kafka.bootstrap, "--state", numbers.state)
    assert_told(ended.returncode, ended.stderr, ExitCode.FUNCTION, "setup()", "no table")


def test_a_port_in_use(tmp_path: Path) -> None:
    numbers = Numbers(tmp_path, "t-port").write()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = millrace(
            "worker", "--manifest", numbers.manifest, "--epoch-file", tmp_path / "e", "--index", 0,
            "--http", f"127.0.0.1:{port}",
        )  # fmt: skip
        assert ended.returncode == ExitCode.BUSY
        assert f"port {port} is in use" in json.loads(ended.stderr.splitlines()[-1])["what"]


def test_a_port_of_the_embedded_broker_in_use(tmp_path: Path, kafka: EmbeddedBroker) -> None:
    port = int(kafka.bootstrap.rpartition(":")[2])
    numbers = Numbers(tmp_path, "t-port").write()
    ended = millrace("run", numbers.manifest, "--kafka", f"embedded:{port}", "--state", numbers.state)
    assert_told(ended.returncode, ended.stderr, ExitCode.BUSY, str(port))


def test_a_state_directory_that_cannot_be_made(tmp_path: Path) -> None:
    numbers = Numbers(tmp_path, "t-disk").write()
    (tmp_path / "file").write_text("")
    ended = millrace("run", numbers.manifest, "--state", tmp_path / "file" / "state")
    assert_told(ended.returncode, ended.stderr, ExitCode.DISK, "can't write", "to do:")


def test_a_state_directory_that_cannot_be_written(tmp_path: Path) -> None:
    numbers = Numbers(tmp_path / "pipeline", "t-disk").write()
    place = tmp_path / "place"
    place.mkdir(mode=0o555)
    root = os.geteuid() == 0  # may write anywhere but on a read-only file system
    if root and subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", place], check=False).returncode:
        pytest.skip("may not mount a file system here")
    try:
        ended = millrace("run", numbers.manifest, "--state", place / "state")
    finally:
        if root:
            subprocess.run(["umount", "-l", place], check=False)
    assert_told(ended.returncode, ended.stderr, ExitCode.DISK, "can't write", "writable")


def test_a_disk_that_is_full_from_the_start(tmp_path: Path, topic: str, kafka: EmbeddedBroker) -> None:
    """A limit on the size of files is a full disk to whoever writes."""
    numbers = Numbers(tmp_path, topic).write()
    command = [
        sys.executable,
        "-m",
        "millrace.cli",
        "run",
        numbers.manifest,
        "--kafka",
        kafka.bootstrap,
        "--state",
        numbers.state,
    ]
    ended = subprocess.run(
        ["bash", "-c", 'ulimit -f 0; exec "$@"', "-", *map(str, command)],
        env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert_told(ended.returncode, ended.stderr, ExitCode.DISK, "can't write", "to do:")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small disk")
def test_a_disk_that_fills_up_in_mid_run(tmp_path: Path, topic: str, kafka: EmbeddedBroker) -> None:
    """A real file system of 100 MB, filled from outside; then room is made, and nothing is lost."""
    del kafka
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", disk], check=False).returncode:
        pytest.skip("may not mount a file system here")
    try:
        numbers = Numbers(tmp_path / "pipeline", topic, pause=0.001).write()
        state, ballast = disk / "state", disk / "ballast"
        with EmbeddedBroker(state / "broker", properties={"log.segment.bytes": str(1 << 20)}) as broker:
            numbers.make_topic(broker.bootstrap)
            numbers.send(broker.bootstrap, 8_000)
        words = (numbers.manifest, "--kafka", "embedded", "--state", state, "--until-end", "--replicas", 2)
        with Run(*words) as run:
            await_that(lambda: done(state) > 300, "some messages are processed", run)
            with suppress(OSError), ballast.open("wb") as file:
                while True:
                    file.write(b"0" * (1 << 16))
            code, _, err = run.wait()
        assert_told(code, err, ExitCode.DISK, "to do:")
        ballast.unlink()
        again = millrace("run", *words)
        assert (again.returncode, again.stderr) == (0, ""), again.stdout
        with EmbeddedBroker(state / "broker") as broker:
            numbers.assert_exact(broker.bootstrap)
    finally:
        subprocess.run(["umount", "-l", disk], check=False)


def _secrets(directory: Path, kafka: SecureKafka, change: dict[str, str]) -> Path:
    directory.mkdir()
    ca = kafka.other_ca if change.get("ca.crt") else kafka.ca
    files = {"username": "alice", "password": "alice-secret", "sasl.mechanism": "SCRAM-SHA-512"}
    files |= {name: value for name, value in change.items() if name != "ca.crt"}
    for name, value in files.items():
        (directory / name).write_text(value)
    (directory / "ca.crt").write_bytes(ca.read_bytes())
    return directory


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
