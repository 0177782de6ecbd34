"""`millrace run` as a user starts it, on real brokers: to the end, stopped and resumed, killed, with brokers that die."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from millrace.errors import ExitCode
from millrace.local.broker.embedded import EmbeddedBroker
from numbers_pipeline import Numbers, Run, await_that, done, millrace, status, worker_pids

pytestmark = pytest.mark.e2e


@pytest.fixture
def numbers(tmp_path: Path, topic: str, kafka: EmbeddedBroker) -> Numbers:
    """On the tests' broker, its source made."""
    numbers = Numbers(tmp_path, topic, bootstrap=kafka.bootstrap)
    numbers.make_topic(kafka.bootstrap)
    return numbers.write()


def test_a_pipeline_on_an_embedded_broker_from_nothing_to_the_end(
    tmp_path: Path, topic: str, kafka: EmbeddedBroker
) -> None:
    del kafka  # skips where there is none to be had
    numbers = Numbers(tmp_path, topic).write()
    with EmbeddedBroker(numbers.state / "broker") as broker:
        numbers.make_topic(broker.bootstrap)
        numbers.send(broker.bootstrap, 5_000)
    ended = millrace(
        "run",
        numbers.manifest,
        "--kafka",
        "embedded",
        "--until-end",
        "--replicas",
        2,
        "--state",
        numbers.state,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "finished after" in ended.stdout
    assert ended.stderr == ""
    with EmbeddedBroker(numbers.state / "broker") as broker:
        numbers.assert_exact(broker.bootstrap)

    shown = json.loads(millrace("status", "--state", numbers.state, "-o", "json").stdout)
    assert shown["running"] is False
    assert {partition["position"] for partition in shown["run"]["partitions"]} == {1_250}
    assert shown["run"]["state"] == "finished"

    listed = millrace(
        "dlq", "list", numbers.manifest, "--kafka", "embedded", "--state", numbers.state, "-o", "json"
    )
    letters = json.loads(listed.stdout)
    assert len(letters) == 50
    assert letters[0]["reason"] == "a multiple of a hundred"
    assert (letters[0]["stage"], letters[0]["sourceTopic"]) == ("kept", topic)
    assert {letter["sourcePartition"] for letter in letters} == {
        0
    }  # a hundred is a multiple of four partitions
    assert len({letter["sourceOffset"] for letter in letters}) == 50
    assert sorted(json.loads(letter["value"])["n"] for letter in letters) == list(range(0, 5_000, 100))


def test_a_run_that_was_stopped_goes_on_with_another_number_of_workers(
    numbers: Numbers, kafka: EmbeddedBroker
) -> None:
    """Down, then up; partitions are added between the runs, too."""
    numbers.pause = 0.001
    numbers.write().send(kafka.bootstrap, 20_000)
    words = (numbers.manifest, "--kafka", kafka.bootstrap, "--state", numbers.state)
    with Run(*words, "--replicas", 3) as run:
        await_that(lambda: done(numbers.state) > 500, "some messages are processed", run)
        run.interrupt()
        code, out, err = run.wait()
    assert (code, err) == (ExitCode.OK, ""), out
    stopped_at = sum(partition["position"] for partition in _partitions(numbers))
    assert 500 < stopped_at < 20_000

    numbers.add_partitions(kafka.bootstrap, 7)
    numbers.write().send(kafka.bootstrap, 3_000)  # however little the first run has left
    with Run(*words, "--replicas", 2) as run:
        await_that(lambda: status(numbers.state).get("epoch") == 2, "the second epoch", run)
        await_that(lambda: done(numbers.state) > 500, "more messages are processed", run)
        run.interrupt()
        assert run.wait()[0] == ExitCode.OK

    numbers.pause = 0
    numbers.write().send(kafka.bootstrap, 3_000)
    with Run(*words, "--replicas", 4) as run:
        await_that(lambda: _holders(numbers) == {0, 1, 2, 3}, "each of the four holds something", run)
        run.interrupt()
        assert run.wait()[0] == ExitCode.OK
    ended = millrace("run", *words, "--replicas", 1, "--until-end")
    assert (ended.returncode, ended.stderr) == (ExitCode.OK, ""), ended.stdout
    numbers.assert_exact(kafka.bootstrap)


def test_killed_workers_come_back_and_each_message_counts_once(
    numbers: Numbers, kafka: EmbeddedBroker
) -> None:
    numbers.pause = 0.001
    numbers.write().send(kafka.bootstrap, 8_000)
    words = (
        numbers.manifest,
        "--kafka",
        kafka.bootstrap,
        "--state",
        numbers.state,
        "--until-end",
        "--replicas",
        3,
    )
    with Run(*words) as run:
        await_that(lambda: done(numbers.state) > 300, "some messages are processed", run)
        for pid in worker_pids(numbers.state)[:2]:
            os.kill(pid, signal.SIGKILL)
        code, out, err = run.wait()
    assert (code, err) == (ExitCode.OK, ""), out
    assert "was killed by SIGKILL" in out
    numbers.assert_exact(kafka.bootstrap)


def test_a_killed_parent_leaves_no_process_behind_and_the_next_run_goes_on(
    tmp_path: Path, topic: str, kafka: EmbeddedBroker
) -> None:
    del kafka
    numbers = Numbers(tmp_path, topic, pause=0.001).write()
    with EmbeddedBroker(numbers.state / "broker") as broker:
        numbers.make_topic(broker.bootstrap)
        numbers.send(broker.bootstrap, 6_000)
    words = (numbers.manifest, "--kafka", "embedded", "--state", numbers.state)
    with Run(*words, "--replicas", 2) as run:
        await_that(lambda: done(numbers.state) > 300, "some messages are processed", run)
        children = psutil.Process(run.process.pid).children(recursive=True)
        assert len(children) == 3  # two workers and a broker
        run.process.kill()
        assert not psutil.wait_procs(children, timeout=10)[1]
    with Run(*words, "--until-end", "--replicas", 2) as run:
        code, out, err = run.wait()
    assert (code, err) == (ExitCode.OK, ""), out
    with EmbeddedBroker(numbers.state / "broker") as broker:
        numbers.assert_exact(broker.bootstrap)


def test_an_embedded_broker_that_dies_is_started_again(
    tmp_path: Path, topic: str, kafka: EmbeddedBroker
) -> None:
    del kafka
    numbers = Numbers(tmp_path, topic, pause=0.001).write()
    with EmbeddedBroker(numbers.state / "broker") as broker:
        numbers.make_topic(broker.bootstrap)
        numbers.send(broker.bootstrap, 8_000)
    with Run(
        numbers.manifest, "--kafka", "embedded", "--state", numbers.state, "--until-end", "--replicas", 2
    ) as run:
        await_that(lambda: done(numbers.state) > 300, "some messages are processed", run)
        java = [p for p in psutil.Process(run.process.pid).children() if "java" in p.name()]
        assert len(java) == 1
        java[0].kill()
        code, out, err = run.wait()
    assert (code, err) == (ExitCode.OK, ""), out
    assert "it is started again" in out
    with EmbeddedBroker(numbers.state / "broker") as broker:
        numbers.assert_exact(broker.bootstrap)


def test_a_second_run_with_the_same_state_is_refused(numbers: Numbers, kafka: EmbeddedBroker) -> None:
    words = (numbers.manifest, "--kafka", kafka.bootstrap, "--state", numbers.state)
    with Run(*words) as run:
        await_that(lambda: status(numbers.state).get("state") == "running", "it runs", run)
        second = millrace("run", *words)
        assert second.returncode == ExitCode.BUSY
        assert "in use by another run" in second.stderr
        assert str(run.process.pid) in second.stderr
        assert "Traceback" not in second.stderr
        run.interrupt()
        assert run.wait()[0] == ExitCode.OK


def test_a_second_ctrl_c_ends_at_once(numbers: Numbers, kafka: EmbeddedBroker) -> None:
    numbers.pause = 20  # not even one message is done by the time of the second Ctrl-C
    numbers.write().send(kafka.bootstrap, 4_000)
    with Run(numbers.manifest, "--kafka", kafka.bootstrap, "--state", numbers.state, "--replicas", 2) as run:
        await_that((numbers.directory / "begun").exists, "a worker is at its first message", run)
        children = psutil.Process(run.process.pid).children(recursive=True)
        run.interrupt()
        await_that(lambda: status(numbers.state).get("state") == "draining", "it drains", run)
        run.interrupt()
        code, _, err = run.wait(10)
        assert code == ExitCode.INTERRUPTED
        assert "Traceback" not in err
        assert not psutil.wait_procs(children, timeout=5)[1]


def _holders(numbers: Numbers) -> set[int]:
    return {partition["holder"] for partition in _partitions(numbers)} if status(numbers.state) else set()


def _partitions(numbers: Numbers) -> list[dict[str, int]]:
    found = status(numbers.state)["partitions"]
    assert isinstance(found, list)
    return found
