"""`millrace offsets` on a real broker: claims lost and repaired, offsets set from outside and made so."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from millrace.errors import ExitCode
from millrace.local.broker.embedded import EmbeddedBroker
from numbers_pipeline import Numbers, Run, await_that, done, millrace

pytestmark = pytest.mark.e2e


@pytest.fixture
def numbers(tmp_path: Path, topic: str, kafka: EmbeddedBroker) -> Numbers:
    numbers = Numbers(tmp_path, topic, bootstrap=kafka.bootstrap)
    numbers.make_topic(kafka.bootstrap)
    return numbers.write()


def run(numbers: Numbers, *words: object) -> str:
    ended = millrace(
        "run", numbers.manifest, "--state", numbers.state, "--until-end", "--replicas", 2, *words
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def offsets(numbers: Numbers, *words: object) -> dict[str, Any]:
    told = millrace("offsets", words[0], numbers.manifest, "--state", numbers.state, "-o", "json", *words[1:])
    assert told.returncode == 0, told.stderr
    return dict(json.loads(told.stdout))


def refused(numbers: Numbers, *words: object) -> tuple[int, str]:
    told = millrace("offsets", words[0], numbers.manifest, "--state", numbers.state, *words[1:])
    return told.returncode, told.stderr


def set_from_outside(numbers: Numbers, wanted: Mapping[int, int]) -> None:
    """As `kafka-consumer-groups --reset-offsets` does."""
    admin = AdminClient({"bootstrap.servers": numbers.bootstrap})
    group = f"default.{numbers.topic}"
    asked = ConsumerGroupTopicPartitions(
        group, [TopicPartition(numbers.topic, p, at) for p, at in wanted.items()]
    )
    told = admin.alter_consumer_group_offsets([asked])[group].result(20)
    assert all(partition.error is None for partition in told.topic_partitions)


def test_lost_claims_are_repaired_and_the_run_goes_on_exactly(
    numbers: Numbers, kafka: EmbeddedBroker
) -> None:
    numbers.send(kafka.bootstrap, 2_000)
    run(numbers)
    claims = f"default.{numbers.topic}.claims"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})  # is not done before it has answered
    admin.delete_consumer_groups([claims])[claims].result(20)
    numbers.send(kafka.bootstrap, 1_000)

    stopped = millrace("run", numbers.manifest, "--state", numbers.state, "--until-end", "--replicas", 2)
    assert stopped.returncode == ExitCode.CLAIM_LOST, stopped.stdout + stopped.stderr
    assert "millrace offsets repair" in stopped.stderr
    assert {row["standing"] for row in offsets(numbers, "show")["partitions"]} == {"lost"}
    code, told = refused(numbers, "reset", "--to", "earliest")
    assert (code, "millrace offsets repair" in told) == (ExitCode.CLAIM_LOST, True)

    planned = offsets(numbers, "repair", "--from-group", "--dry-run")
    assert [(c["partition"], c["after"], c["why"]) for c in planned["changes"]] == [
        (p, 500, "lost") for p in range(4)
    ]
    assert {row["standing"] for row in offsets(numbers, "show")["partitions"]} == {"lost"}
    assert offsets(numbers, "repair", "--from-group")["changes"] == planned["changes"]
    run(numbers)
    numbers.assert_exact(kafka.bootstrap)
    code, told = refused(numbers, "repair", "--to", "earliest")
    assert (code, "no claim is lost" in told) == (ExitCode.USAGE, True)


def test_offsets_set_from_outside_are_shown_change_nothing_and_are_made_so(
    numbers: Numbers, kafka: EmbeddedBroker
) -> None:
    """R7."""
    numbers.send(kafka.bootstrap, 2_000)
    run(numbers)
    set_from_outside(numbers, {1: 100, 3: 490})
    shown = {row["partition"]: row for row in offsets(numbers, "show")["partitions"]}
    assert {p: row["difference"] for p, row in shown.items()} == {0: 0, 1: -400, 2: 0, 3: -10}
    assert {row["offset"] for row in shown.values()} == {row["end"] for row in shown.values()} == {500}
    assert {row["lag"] for row in shown.values()} == {0}
    run(numbers)
    numbers.assert_exact(kafka.bootstrap)

    set_from_outside(numbers, {1: 100, 3: 490})
    told = offsets(numbers, "reset", "--from-group")
    assert [(c["partition"], c["before"], c["after"]) for c in told["changes"]] == [
        (1, 500, 100),
        (3, 500, 490),
    ]
    run(numbers)
    # odd numbers are filtered out, and these two partitions have no others
    numbers.assert_exact(kafka.bootstrap)

    offsets(numbers, "reset", "--to", 495, "--partitions", "2")
    run(numbers)
    twice = Counter(n for n in range(4 * 495, 2_000) if n % 4 == 2)
    assert numbers.produced(kafka.bootstrap) == numbers.expected() + twice


def test_while_a_run_is_on_offsets_are_shown_and_not_set(numbers: Numbers, kafka: EmbeddedBroker) -> None:
    numbers.send(kafka.bootstrap, 400)
    with Run(numbers.manifest, "--state", numbers.state) as run_:
        await_that(lambda: done(numbers.state) == 400, "all is done", run_)
        code, told = refused(numbers, "reset", "--to", "earliest")
        assert (code, "in use by another run" in told) == (ExitCode.BUSY, True)
        shown = offsets(numbers, "show")
        assert (shown["running"], sum(row["offset"] for row in shown["partitions"])) == (True, 400)
        run_.interrupt()
        assert run_.wait()[0] == ExitCode.OK


def test_with_an_embedded_broker_that_is_started_for_the_moment(
    tmp_path: Path, topic: str, kafka: EmbeddedBroker
) -> None:
    del kafka  # skips where there is none to be had
    numbers = Numbers(tmp_path, topic).write()
    with EmbeddedBroker(numbers.state / "broker") as broker:
        numbers.make_topic(broker.bootstrap)
        numbers.send(broker.bootstrap, 400)
    assert "400 messages" in run(numbers, "--kafka", "embedded")
    told = millrace(
        "offsets", "reset", numbers.manifest, "--state", numbers.state, "--to", 90, "--partitions", "0,2-3"
    )
    assert (told.returncode, told.stderr) == (0, ""), told.stdout
    assert "3 partitions set" in told.stdout
    assert "30 messages" in told.stdout
    assert "30 messages" in run(numbers, "--kafka", "embedded")
