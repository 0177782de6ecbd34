"""Which version of its checkpoint a job goes on in."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs

from collector_specs import QUERY, job_spec, query
from millrace.channel.wire import END
from millrace.collector import JobSpec, spec
from millrace.collector.sinks import Parquet
from millrace.collector.versions import choose, newest, outlived, remove_outlived, settle
from millrace.errors import ExitCode, MillraceError

pytestmark = pytest.mark.unit

FROZEN = {"spark.sql.shuffle.partitions": "4", "spark.sql.streaming.stateStore.rocksdb.formatVersion": "5"}


OTHER = query(aggregate={"numbers": "count(*)", "most": "max(size)"})


def ran(
    home: Path, wanted: JobSpec, batches: Mapping[int, int], *, committed: int | None, version: int = 1
) -> None:
    """A job has begun batches with these watermarks in milliseconds, and committed up to one of them."""
    folder = home / f"v{version}"
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    spec.write(msgspec.structs.replace(wanted, checkpoint=str(folder)), folder / "job.json")
    for batch, watermark in batches.items():
        metadata = {"batchWatermarkMs": watermark, "batchTimestampMs": 1, "conf": FROZEN}
        (folder / "offsets" / str(batch)).write_text(f"v1\n{json.dumps(metadata)}\n{{}}\n")
        if committed is not None and batch <= committed:
            (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_the_first_job_begins_version_1(tmp_path: Path) -> None:
    choice = choose(tmp_path, job_spec())
    assert (choice.spec.version, choice.spec.after) == (1, None)
    assert choice.spec.checkpoint == str(tmp_path / "v1")
    assert choice.news("by-kind") == ""


def test_an_unchanged_query_goes_on_in_the_newest(tmp_path: Path) -> None:
    ran(tmp_path, job_spec(), {0: 0}, committed=0)
    ran(tmp_path, job_spec(query=OTHER, version=2, after=5_000), {0: 0, 1: 9}, committed=1, version=2)
    choice = choose(tmp_path, job_spec(query=OTHER))
    assert (choice.spec.version, choice.spec.after, choice.former) == (2, 5_000, None)
    assert choice.spec.checkpoint == str(tmp_path / "v2")


@pytest.mark.parametrize(
    "unchanged",
    [
        {"query": query(interval=60.0)},
        {"query": query(conf={"spark.driver.memory": "2g"})},
        {"sink": Parquet(path="elsewhere")},
        {"until_end": True},
        {"bootstrap": "localhost:10", "properties": {"client.rack": "a"}},
    ],
    ids=["trigger", "a setting that is not kept", "sink", "bounded", "broker"],
)
def test_what_does_not_change_the_state_needs_no_new_version(
    tmp_path: Path, unchanged: dict[str, object]
) -> None:
    ran(tmp_path, job_spec(), {0: 0, 1: 7_000}, committed=1)
    assert choose(tmp_path, job_spec(**unchanged)).former is None


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"query": OTHER}, "its query has changed"),
        ({"query": query(group_by=())}, "its query has changed"),
        ({"layout": 9}, "this version of Millrace keeps state in another form"),
        (
            {"query": query(conf={"spark.sql.shuffle.partitions": "8"})},
            "spark.sql.shuffle.partitions has changed, which a checkpoint keeps",
        ),
    ],
    ids=["aggregate", "groups", "layout", "a setting that is kept"],
)
def test_what_changes_the_state_begins_a_version_after_what_the_former_has_closed(
    tmp_path: Path, changed: dict[str, object], why: str
) -> None:
    ran(tmp_path, job_spec(), {0: 0, 1: 7_000, 2: 9_000}, committed=1)
    choice = choose(tmp_path, job_spec(**changed))
    assert (choice.spec.version, choice.spec.after) == (2, 7_000_000), "batch 2 was begun, not committed"
    assert choice.spec.checkpoint == str(tmp_path / "v2")
    assert choice.why == why
    assert choice.former is not None
    assert choice.former.batch == 1
    assert choice.news("by-kind") == (
        f"collector by-kind: {why}: version 2 of its checkpoint begins. It reads the channel from the oldest record that "
        "is kept. Windows that end by 1970-01-01 00:00:07 UTC are written and stay as they are; those still open are "
        "counted anew, by the new query"
    )


def test_going_back_to_a_former_query_begins_a_version_too(tmp_path: Path) -> None:
    """What its state held open was counted on by the newer one."""
    ran(tmp_path, job_spec(), {0: 0, 1: 7_000}, committed=1)
    ran(tmp_path, job_spec(query=OTHER, after=7_000_000), {0: 0, 1: 8_000}, committed=1, version=2)
    choice = choose(tmp_path, job_spec())
    assert (choice.spec.version, choice.spec.after) == (3, 8_000_000)


def test_a_version_that_closed_nothing_hands_on_what_those_before_it_had_closed(tmp_path: Path) -> None:
    ran(tmp_path, job_spec(query=OTHER, after=7_000_000), {0: 0}, committed=None, version=2)
    choice = choose(tmp_path, job_spec())
    assert (choice.spec.version, choice.spec.after) == (3, 7_000_000)


def test_a_version_in_which_nothing_was_begun_does_not_count(tmp_path: Path) -> None:
    ran(tmp_path, job_spec(), {}, committed=None)
    choice = choose(tmp_path, job_spec(query=OTHER))
    assert (choice.spec.version, choice.spec.after, choice.former) == (1, None, None)


def test_where_nothing_was_closed_nothing_is_left_out(tmp_path: Path) -> None:
    ran(tmp_path, job_spec(), {0: 0}, committed=0)
    choice = choose(tmp_path, job_spec(query=OTHER))
    assert choice.spec.after is None
    assert choice.news("x").endswith("kept; the former version has written no window")


def test_where_all_was_closed_it_is_said_that_nothing_comes_of_it(tmp_path: Path) -> None:
    ran(tmp_path, job_spec(), {0: 0, 1: END // 1000 - 600_000}, committed=1)
    choice = choose(tmp_path, job_spec(query=OTHER))
    assert "has closed all windows" in choice.news("x")
    assert "begin anew with another state" in choice.news("x")


@pytest.mark.parametrize("damage", ["job.json", "offsets/1", "commits/2", "after.json"])
def test_a_damaged_checkpoint_is_told_as_such(tmp_path: Path, damage: str) -> None:
    ran(tmp_path, job_spec(), {0: 0, 1: 7_000}, committed=1)
    (tmp_path / "v1" / damage).write_text("")
    with pytest.raises(MillraceError, match="can't be understood") as caught:
        choose(tmp_path, job_spec(query=OTHER))
    assert caught.value.code is ExitCode.CHECKPOINT
    assert caught.value.where == str(tmp_path / "v1")


def test_the_newest_is_by_number_not_by_name(tmp_path: Path) -> None:
    for version in (2, 9, 10):
        ran(tmp_path, job_spec(), {0: 0}, committed=0, version=version)
    found = newest(tmp_path)
    assert found is not None
    assert found.spec.version == 10


def test_what_a_former_version_wrote_and_spark_did_not_commit_is_left_out_too(tmp_path: Path) -> None:
    ran(tmp_path, job_spec(), {0: 0, 1: 7_000, 2: 9_000}, committed=1)
    second = tmp_path / "v2"
    second.mkdir()
    assert settle(second, 7_000_000, (1, 2)) == 9_000_000
    assert settle(second, 7_000_000, None) == 9_000_000  # for good: what this version writes hides it


def test_what_was_settled_by_an_attempt_that_began_nothing_rises_with_what_the_former_version_wrote_since(
    tmp_path: Path,
) -> None:
    """The new query was taken back before its first batch, and tried again later."""
    ran(tmp_path, job_spec(), {0: 0, 1: 7_000}, committed=1)
    second = choose(tmp_path, job_spec(query=OTHER)).spec
    Path(second.checkpoint).mkdir()
    assert settle(Path(second.checkpoint), second.after, (1, 1)) == 7_000_000
    shutil.rmtree(tmp_path / "v1")
    ran(tmp_path, job_spec(), {0: 0, 1: 7_000, 2: 9_000, 3: 11_000}, committed=2)
    again = choose(tmp_path, job_spec(query=OTHER)).spec
    assert (again.version, again.after) == (2, 9_000_000)
    assert settle(Path(again.checkpoint), again.after, (1, 2)) == 9_000_000
    assert settle(Path(again.checkpoint), again.after, (1, 3)) == 11_000_000


def test_a_version_hands_on_what_was_settled_for_it_also_when_those_before_it_are_gone(
    tmp_path: Path,
) -> None:
    ran(tmp_path, job_spec(query=OTHER, after=7_000_000), {0: 0}, committed=None, version=2)
    assert settle(tmp_path / "v2", 9_000_000, None) == 9_000_000
    assert choose(tmp_path, job_spec()).spec.after == 9_000_000


def test_the_version_at_work_and_the_one_before_it_are_kept(tmp_path: Path) -> None:
    for version in (1, 2, 4, 5):
        ran(tmp_path, job_spec(), {0: 0}, committed=0, version=version)
    ran(tmp_path, job_spec(), {}, committed=None, version=3)
    assert outlived(tmp_path, 5) == [tmp_path / name for name in ("v1", "v2", "v3")]
    assert outlived(tmp_path, 4) == [tmp_path / name for name in ("v1", "v3")]
    assert outlived(tmp_path, 1) == []
    with capture_logs() as said:
        remove_outlived(tmp_path / "v5", 5, structlog.get_logger())
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["v4", "v5"]
    assert [line["folder"] for line in said] == [str(tmp_path / name) for name in ("v1", "v2", "v3")]


def test_an_old_version_that_can_not_be_removed_is_told_and_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "v1").write_text("not a folder")
    for version in (2, 3):
        ran(tmp_path, job_spec(), {0: 0}, committed=0, version=version)
    with capture_logs() as said:
        remove_outlived(tmp_path / "v3", 3, structlog.get_logger())
    assert [(line["log_level"], line["folder"]) for line in said] == [("warning", str(tmp_path / "v1"))]


def test_nothing_is_left_out_for_what_no_former_version_has_written(tmp_path: Path) -> None:
    first, second = tmp_path / "v1", tmp_path / "v2"
    for folder in (first, second):
        folder.mkdir()
    assert settle(first, None, None) is None
    assert settle(second, 5, (1, 3)) == 5  # the former version's folder was removed


def test_a_functions_query_leaves_nothing_out(tmp_path: Path) -> None:
    by_function = query(function="m:f", window=None, aggregate={}, group_by=())
    ran(tmp_path, job_spec(), {0: 0, 1: 7_000}, committed=1)
    chosen = choose(tmp_path, job_spec(query=by_function))
    assert (chosen.spec.version, chosen.spec.after) == (2, None)
    assert "may be written again" in chosen.news("by-kind")


def test_longer_windows_are_told_to_lack_what_is_deleted(tmp_path: Path) -> None:
    ran(tmp_path, job_spec(), {0: 0, 1: 7_000}, committed=1)
    longer = msgspec.structs.replace(QUERY, window=msgspec.structs.replace(QUERY.window, size=86_400.0))
    news = choose(tmp_path, job_spec(query=longer)).news("by-kind")
    assert news.endswith(
        "Where its windows are longer, the first of them lack rows of windows that are written"
    )
