"""What Spark is told, as far as it is text."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from millrace.collector import plan, session, spec
from millrace.collector.query import Query, Window
from millrace.collector.sinks import Parquet
from millrace.collector.spec import JobSpec
from millrace.errors import MillraceError

pytestmark = pytest.mark.unit

QUERY = Query(
    schema="carrier string, scheduled timestamp, delay double",
    group_by=("carrier",),
    window=Window(size=3600, time="scheduled", lateness=86_400),
    aggregate={"flights": "count(*)", "delay": "avg(delay)"},
    conf={"spark.sql.shuffle.partitions": "7", "spark.sql.session.timeZone": "Europe/Berlin"},
)
SPEC = JobSpec(
    name="flights/by-carrier",
    query=QUERY,
    bootstrap="kafka:9092",
    channel="c",
    partitions=4,
    group="g",
    checkpoint="/cp",
    sink=Parquet(path="/out"),
    where="spec.stages[1].collect",
    status_file="/s",
    log="/l",
    jars="/jars",
    records_per_batch=1000,
    properties={"client.rack": "a", "isolation.level": "read_uncommitted"},
)


def test_all_partitions_are_read_as_one_from_the_oldest_record_and_only_what_is_committed() -> None:
    options = plan.kafka_options(SPEC)
    assert options["subscribe"] == "c"
    assert options["startingOffsets"] == "earliest"
    assert options["failOnDataLoss"] == "true"
    assert options["maxOffsetsPerTrigger"] == "1000"
    assert options["kafka.client.rack"] == "a"
    assert options["kafka.isolation.level"] == "read_committed"


def test_the_user_chooses_settings_but_not_those_that_results_depend_on(tmp_path: Path) -> None:
    settings = session.settings(SPEC, tmp_path / "log4j2.properties")
    assert settings["spark.sql.shuffle.partitions"] == "7"
    assert settings["spark.sql.session.timeZone"] == "UTC"


def test_the_place_it_runs_in_has_the_last_word_but_for_the_size_of_its_heap(tmp_path: Path) -> None:
    place = {"spark.master": "k8s://https://api", "spark.driver.memory": "614m", "spark.driver.port": "7078"}
    there = msgspec.structs.replace(SPEC, place=place)
    settings = session.settings(there, tmp_path / "log4j2.properties")
    assert settings["spark.master"] == "k8s://https://api"
    assert settings["spark.driver.port"] == "7078"
    assert settings["spark.driver.memory"] == there.heap == "614m"
    assert there.distributed

    conf = {**QUERY.conf, "spark.driver.memory": "3g", "spark.master": "yarn"}
    chosen = msgspec.structs.replace(there, query=msgspec.structs.replace(QUERY, conf=conf))
    assert chosen.heap == "3g"
    assert session.settings(chosen, tmp_path / "log4j2.properties")["spark.master"] == "k8s://https://api"
    assert not SPEC.distributed


def test_the_job_reads_what_was_written_for_it(tmp_path: Path) -> None:
    spec.write(SPEC, tmp_path / "job.json")
    assert spec.read(tmp_path / "job.json") == SPEC


def test_a_damaged_job_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text("{")
    with pytest.raises(MillraceError) as caught:
        spec.read(tmp_path / "job.json")
    assert caught.value.where == str(tmp_path / "job.json")


def test_only_what_changes_state_makes_another_query() -> None:
    print_of = QUERY.fingerprint()
    assert msgspec.structs.replace(QUERY, interval=99, conf={}).fingerprint() == print_of
    assert msgspec.structs.replace(QUERY, aggregate={"flights": "count(*)"}).fingerprint() != print_of
    wider = msgspec.structs.replace(QUERY.window, lateness=1)
    assert msgspec.structs.replace(QUERY, window=wider).fingerprint() != print_of
