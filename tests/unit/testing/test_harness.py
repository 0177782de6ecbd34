"""The harness shows what a worker would have done, on the real engine and the in-memory broker."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

import millrace
from millrace.cli.validate import validate
from millrace.errors import DeadLetterLimit, FunctionError, ManifestError, MillraceError, StageFailed
from millrace.library import Pipeline
from millrace.testing import Input, PipelineHarness, Unfinished
from millrace_api import InvalidManifest

pytestmark = pytest.mark.unit

OUT = {"name": "out", "produce": {"topic": "out"}}
DEAD = {"topic": "dead"}


def pipeline(*stages: Mapping[str, object], **spec: object) -> Pipeline:
    return Pipeline(
        "test",
        {
            "kafka": {"bootstrapServers": "nowhere:1"},
            "source": {"topic": "in"},
            "stages": [*stages, OUT],
            **spec,
        },
    )


def stage(kind: str, function: object, **options: object) -> dict[str, object]:
    return {"name": "stage", kind: {"function": function, **options}}


def half(value: int) -> float:
    if value == 0:
        raise millrace.Invalid("zero")
    return value / 2


def write(folder: Path, code: str, *stages: Mapping[str, object], **spec: object) -> Path:
    """A manifest's file with a module beside it."""
    spec = {
        "kafka": {"bootstrapServers": "nowhere:1"},
        "source": {"topic": "in"},
        "stages": [*stages, OUT],
        **spec,
    }
    folder.mkdir(exist_ok=True)
    (folder / "functions.py").write_text(code)
    manifest = {"apiVersion": "millrace.dev/v1alpha1", "kind": "ConsumerPipeline", "metadata": {"name": "t"}}
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump({**manifest, "spec": spec}))
    return path


@pytest.mark.parametrize("delivery", ["AtLeastOnce", "ExactlyOnce"])
def test_outputs_commits_and_dead_letters_are_seen(delivery: str) -> None:
    with PipelineHarness.of(pipeline(stage("map", half), deadLetter=DEAD, delivery=delivery)) as h:
        h.feed([2, 0, b"{"])
        h.run_to_end()
        assert h.values("out") == [1.0]
        assert h.commits == {0: 3}
        assert [(d.stage, d.reason, d.value, d.offset) for d in h.dead_letters] == [
            ("stage", "zero", b"0", 1),
            ("decode", "not JSON: Input data was truncated", b"{", 2),
        ]


def test_what_is_fed_later_is_done_by_the_next_run() -> None:
    with PipelineHarness.of(pipeline(stage("map", half))) as h:
        for count in (1, 2, 3):
            h.feed([count])
            h.run_to_end()
            assert h.commits == {0: count}
        h.run_to_end()
        assert h.values("out") == [0.5, 1.0, 1.5]


def test_keys_headers_times_and_partitions_are_as_they_were_given() -> None:
    with PipelineHarness.of(pipeline(stage("map", half)), partitions=3) as h:
        h.feed([Input(2, "k", {"h": "v"}, 1_000), Input(4, b"k", partition=2)], partition=1)
        h.feed([Input(6, "k")])
        h.run_to_end()
        one, two, three = sorted(h.outputs("out"), key=lambda output: output.value)
        assert (one.key, one.headers, one.timestamp) == (b"k", {"h": b"v"}, 1_000)
        assert two.headers == {}
        assert abs(three.timestamp / 1000 - h.now) < 60
        assert h.commits == {1: 1, 2: 1} | {
            millrace.partition_of(b"k", 3): 1 + (millrace.partition_of(b"k", 3) != 0)
        }


@pytest.mark.parametrize("form", ["string", "bytes"])
def test_formats_other_than_json(form: str) -> None:
    value: object = "ä" if form == "string" else b"\xff"
    out = {"name": "out", "produce": {"topic": "out", "format": form}}
    spec = {
        "kafka": {"bootstrapServers": "nowhere:1"},
        "source": {"topic": "in", "format": form},
        "stages": [out],
    }
    with PipelineHarness.of(Pipeline("test", spec)) as h:
        h.feed([value, None])
        h.run_to_end()
        assert h.values("out") == [value, None]


def test_a_function_that_raises_ends_the_run_and_what_was_before_it_is_committed() -> None:
    def function(value: int) -> int:
        if value == 3:
            raise KeyError("three")
        return value

    with PipelineHarness.of(pipeline(stage("map", function), commit={"interval": "100ms"})) as h:
        h.feed([1, 2, 3, 4])
        with pytest.raises(StageFailed, match="three") as failed:
            h.run_to_end()
        assert isinstance(failed.value.__cause__, KeyError)
        assert (failed.value.stage, failed.value.offset) == ("stage", 2)
        assert (h.values("out"), h.commits) == ([1, 2], {0: 2})


def test_limits_on_dead_letters_hold() -> None:
    with PipelineHarness.of(
        pipeline(stage("map", half), deadLetter={**DEAD, "maxConsecutive": 2}, delivery="ExactlyOnce")
    ) as h:
        h.feed([2, 0, 0, 0])
        with pytest.raises(DeadLetterLimit):
            h.run_to_end()
        assert len(h.dead_letters) <= 2


def test_after_a_kill_what_was_not_committed_is_done_again() -> None:
    seen = []

    def function(value: int) -> int:
        seen.append(value)
        return value

    with PipelineHarness.of(pipeline(stage("map", function), delivery="ExactlyOnce")) as h:
        h.feed([1, 2])
        h.run_for(0.5)  # less than the commit interval
        assert (seen, h.commits, h.values("out")) == ([1, 2], {}, [])
        h.kill()
        h.run_for(2)
        assert (seen, h.commits, h.values("out")) == ([1, 2, 1, 2], {0: 2}, [1, 2])


def test_the_test_moves_the_clock() -> None:
    batch = {"name": "batch", "batch": {"count": 100, "interval": "1h"}}
    with PipelineHarness.of(pipeline(batch)) as h:
        h.feed([1, 2])
        began = h.now
        h.run_for(3500)
        assert h.values("out") == []
        h.feed([3])
        h.run_for(200)
        assert h.values("out") == [[1, 2, 3]]
        assert h.now - began == pytest.approx(3700, abs=5)
        h.feed([4])
        h.run_to_end()  # flushes
        assert h.values("out") == [[1, 2, 3], [4]]


def test_stopping_flushes_and_commits_as_sigterm_does() -> None:
    batch = {"name": "batch", "batch": {"count": 100, "interval": "1h"}}
    with PipelineHarness.of(pipeline(batch)) as h:
        h.feed([1])
        h.run_for(5)
        h.stop()
        assert (h.values("out"), h.commits) == ([[1]], {0: 1})


def test_retries_wait_on_the_harnesss_clock() -> None:
    calls = []

    def function(value: int) -> int:
        calls.append(value)
        if len(calls) < 5:
            raise TimeoutError
        return value

    with PipelineHarness.of(
        pipeline(stage("map", function, retry={"attempts": 5, "backoff": "30s", "maxBackoff": "1m"}))
    ) as h:
        h.feed([1])
        h.run_to_end()
        assert h.values("out") == [1]


async def in_a_loop(value: int) -> int:
    return value * 2


@pytest.mark.parametrize("pool", ["threads", "asyncio", "processes"])
def test_pools_run(pool: str, tmp_path: Path) -> None:
    asynchronous = "async " if pool == "asyncio" else ""
    code = f"import os\n{asynchronous}def double(value):\n    return [value * 2, os.getpid()]\n"
    path = write(
        tmp_path,
        code,
        stage("map", "functions:double", pool={pool: 1}, timeout="30s"),
        delivery="ExactlyOnce",
    )
    with PipelineHarness.of(path) as h:
        h.feed([1, 2])
        h.run_to_end()
        assert [value[0] for value in h.values("out")] == [2, 4]  # type: ignore[index]
        assert {value[1] == os.getpid() for value in h.values("out")} == {pool != "processes"}  # type: ignore[index]
        assert h.commits == {0: 2}


def test_a_run_that_does_not_end_says_where_it_is() -> None:
    gate = threading.Event()

    def wait(value: int) -> int:
        gate.wait(30)
        return value

    with PipelineHarness.of(pipeline(stage("map", wait, pool={"threads": 1}))) as h:
        h.feed([1])
        with pytest.raises(Unfinished, match=r"not at its end after 0\.2 s") as error:
            h.run_to_end(within=0.2)
        assert error.value.where == "done {0: 0} of {0: 1}"
        gate.set()
        h.run_to_end()
        assert h.values("out") == [1]


def test_rows_of_a_collect_stage_are_shown_with_those_that_were_late() -> None:
    collect = {
        "schema": "carrier string, at timestamp",
        "window": {"size": "1h", "time": "at", "lateness": "1h"},
        "groupBy": ["carrier"],
        "aggregate": {"flights": "count(*)"},
        "sink": {"parquet": {"path": "results"}},
    }
    spec = {
        "kafka": {"bootstrapServers": "nowhere:1"},
        "source": {"topic": "in"},
        "stages": [{"name": "by", "collect": collect}],
    }
    times = ["2026-01-31T10:00:00Z", "2026-01-31T14:00:00Z", "2026-01-31T09:00:00Z"]
    with PipelineHarness.of(Pipeline("test", spec)) as h:
        h.feed([{"carrier": "AA", "at": at} for at in times])
        h.run_to_end()
        first, second = h.rows()
        assert first.columns["carrier"] == "AA"
        assert first.time == datetime(2026, 1, 31, 10, tzinfo=UTC)
        assert (second.partition, second.offset, second.index) == (0, 1, 0)
        assert h.late == 1
        assert h.commits == {0: 3}
        with pytest.raises(MillraceError, match="writes to no collect stage other"):
            h.rows("other")


@pytest.mark.parametrize(
    "wrong",
    ["spec:", "stages: [{name: a, mapp: {}}]", "no module", "no function", "owned"],
)
def test_a_bad_manifest_is_refused_in_the_words_of_validate(
    wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    functions = {"no module": "elsewhere:f", "no function": "functions:g"}
    owned = {"bootstrapServers": "a:1", "properties": {"enable.idempotence": "false"}}
    path = write(
        tmp_path,
        "def f(value): return value",
        stage("map", functions.get(wrong, "functions:f")),
        **({"kafka": owned} if wrong == "owned" else {}),
    )
    if wrong not in (*functions, "owned"):
        path.write_text(f"apiVersion: millrace.dev/v1alpha1\nkind: ConsumerPipeline\nspec:\n  {wrong}\n")
    kinds = (InvalidManifest, ManifestError, FunctionError)
    modules, paths = dict(sys.modules), list(sys.path)
    with pytest.raises(kinds) as said:
        validate(path, None, False)
    sys.path[:] = paths
    for name in set(sys.modules) - set(modules):
        del sys.modules[name]
    with pytest.raises(kinds) as error:
        PipelineHarness.of(path)
    assert str(error.value) == str(said.value)
    assert type(error.value) is type(said.value)


def test_modules_and_environment_are_as_before_when_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOTH", "before")
    code = "import os\nTOLD = []\ndef setup(): TOLD.append(os.environ['BOTH'] + os.environ['ONE'])\ndef f(v): return [*TOLD, {!r}]"
    env = [{"name": "ONE", "value": "1"}, {"name": "BOTH", "value": "manifest"}]
    paths = [
        write(tmp_path / name, code.format(name), stage("map", "functions:f"), worker={"env": env})
        for name in ("a", "b")
    ]
    before = list(sys.path)
    for path in paths:
        with PipelineHarness.of(path, env={"BOTH": "given"}) as h:
            h.feed([1])
            h.run_to_end()
            assert h.values("out") == [["given1", path.parent.name]]
        assert (os.environ["BOTH"], "ONE" in os.environ) == ("before", False)
        assert "functions" not in sys.modules
        assert sys.path == before


def test_what_can_not_be_fed_is_refused_with_a_remedy() -> None:
    with PipelineHarness.of(pipeline(stage("map", half))) as h:
        with pytest.raises(
            MillraceError, match="a value of type object can't be fed to a source of format json"
        ):
            h.feed([object()])
        with pytest.raises(MillraceError, match="and none of number 7"):
            h.feed([1], partition=7)
        with pytest.raises(MillraceError, match="writes to no topic elsewhere"):
            h.values("elsewhere")
