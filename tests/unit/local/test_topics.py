"""The topics a run needs: all that are missing are told at once, and nothing is made before."""

from __future__ import annotations

import pytest
import yaml

from api_manifests import COLLECT, changed
from millrace.clock import Deadline, SystemClock
from millrace.connectivity.memory import MemoryBroker
from millrace.connectivity.ports import TopicMissing
from millrace.ownership.topics import ensure
from millrace_api import load
from millrace_api.needed import NeededTopic, needed, transactional

pytestmark = pytest.mark.unit


def test_missing_topics_are_told_at_once_and_none_is_made() -> None:
    clock = SystemClock()
    admin = MemoryBroker(clock).cluster(client_id="a").admin()
    topics = [
        NeededTopic("flights", "spec.source", None),
        NeededTopic("scored", "spec.stages[0].produce", 3),
        NeededTopic("dead", "spec.deadLetter", None),
    ]
    with pytest.raises(TopicMissing, match="topics flights, dead do not exist") as raised:
        ensure(admin, topics, Deadline.after(clock, 5.0), lambda *_: None)
    assert raised.value.where == "spec.source.topic, spec.deadLetter.topic"
    assert admin.describe_topic("scored", 5.0) is None


def test_topics_that_may_be_made_are_made() -> None:
    clock = SystemClock()
    admin = MemoryBroker(clock).cluster(client_id="a").admin()
    said: list[str] = []
    ensure(
        admin,
        [NeededTopic("dead", "spec.deadLetter", 1)],
        Deadline.after(clock, 5.0),
        lambda text, _: said.append(text),
    )
    assert said == ["topic dead created with 1 partition"]


def test_the_topic_of_results_is_among_those_that_a_run_needs() -> None:
    sink = {"kafka": {"topic": "counted", "create": {"partitions": 4}}}
    stage = {"name": "by-carrier", "collect": {**COLLECT, "sink": sink}}
    pipeline = load(yaml.safe_dump(changed({"spec/stages/4": stage}))).pipeline
    assert NeededTopic("counted", "spec.stages[4].collect.sink.kafka", 4) in needed(pipeline)


@pytest.mark.parametrize(
    ("delivery", "written"),
    [("AtLeastOnce", ["flight-delays.dead"]), ("ExactlyOnce", ["flights.scored", "flight-delays.dead"])],
)
def test_what_workers_write_in_transactions_depends_on_the_delivery(
    delivery: str, written: list[str]
) -> None:
    pipeline = load(yaml.safe_dump(changed({"spec/delivery": delivery}))).pipeline
    assert transactional(pipeline) == written


def test_channels_are_written_in_transactions_too() -> None:
    stage = {"name": "by-carrier", "collect": {**COLLECT, "sink": {"console": {}}}}
    pipeline = load(yaml.safe_dump(changed({"spec/stages/4": stage}))).pipeline
    assert pipeline.channel("by-carrier") in transactional(pipeline)
