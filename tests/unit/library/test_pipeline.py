"""A pipeline written in Python: the manifest that comes of it, and what is refused, with the place."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from millrace.clock import Clock
from millrace.errors import FunctionError, ManifestError
from millrace.library import Inline, Outcome, Pipeline, Strategy
from millrace.testing import PipelineHarness
from millrace_api import InvalidManifest

pytestmark = pytest.mark.unit

OUT = {"name": "out", "produce": {"topic": "out"}}


def pipeline(*stages: Mapping[str, object], **spec: object) -> Pipeline:
    base = {"kafka": {"bootstrapServers": "nowhere:1"}, "source": {"topic": "in"}, "stages": stages}
    return Pipeline("test", {**base, **spec})


def ran(made: Pipeline, *messages: object) -> list[object]:
    with PipelineHarness.of(made) as h:
        h.feed(messages)
        h.run_to_end()
        return h.values("out")


def double(value: int) -> int:
    return value * 2


class Adder:
    def __init__(self, by: int) -> None:
        self.by = by

    def __call__(self, value: int) -> int:
        return value + self.by

    def add(self, value: int) -> int:
        return value + self.by


def test_functions_of_any_kind_stand_where_a_file_has_their_names() -> None:
    calls = [double, lambda value: value + 1, Adder(10), Adder(100).add, functools.partial(pow, 2)]
    stages = [{"name": f"s{n}", "map": {"function": call}} for n, call in enumerate(calls)]
    assert ran(pipeline(*stages, OUT), 1) == [2**113]


def test_what_can_be_imported_is_known_by_its_name_and_two_lambdas_are_not_mixed_up() -> None:
    made = pipeline(
        {"name": "a", "map": {"function": double}},
        {"name": "b", "map": {"function": lambda value: value}},
        {"name": "c", "map": {"function": lambda value: -value}},
    )
    names = [stage.map.function for stage in made.manifest.spec.stages if stage.map is not None]
    assert names[0] == f"{__name__}:double"
    assert len(set(names)) == 3
    assert [name.partition(":")[0] for name in names[1:]] == ["program", "program"]


def test_functions_of_produce_and_reduce_too() -> None:
    reduce = {
        "key": lambda value: str(value % 2),
        "initial": list,
        "accumulate": lambda so_far, value: [*so_far, value],
        "flush": sorted,
        "count": 100,
        "interval": "1h",
    }
    out = {
        "name": "out",
        "produce": {
            "topic": "out",
            "key": lambda value: b"k%d" % value[0],
            "headers": [{"name": "h", "from": lambda value: str(len(value))}],
        },
    }
    with PipelineHarness.of(pipeline({"name": "r", "reduce": reduce}, out)) as h:
        h.feed([5, 4, 3, 2])
        h.run_to_end()
        found = {output.key: (output.value, output.headers) for output in h.outputs("out")}
    assert found == {b"k3": ([3, 5], {"h": b"2"}), b"k2": ([2, 4], {"h": b"2"})}


def test_a_strategy_of_ones_own_is_a_stage() -> None:
    def limited(next_: Strategy, clock: Clock) -> Strategy:
        def work(batch: object) -> Outcome:
            seen.append(clock.monotonic())
            return Outcome(batch)  # type: ignore[arg-type]

        return Inline(next_, work, None, clock)

    seen: list[float] = []
    assert ran(pipeline({"name": "mine", "strategy": limited}, OUT), 1, 2) == [1, 2]
    assert seen


@pytest.mark.parametrize(
    ("stages", "error", "where"),
    [
        ([{"name": "a", "mapp": {"function": double}}], InvalidManifest, "spec.stages[0]"),
        ([{"name": "a", "map": {"function": 3}}], InvalidManifest, "spec.stages[0].map.function"),
        ([{"name": "a", "strategy": "changes"}], ManifestError, "spec.stages[0].strategy"),
        ([{"name": "a", "strategy": Adder, "map": {"function": double}}], ManifestError, "spec.stages[0]"),
        (
            [{"name": "a", "map": {"function": lambda value: value, "pool": {"processes": 1}}}],
            FunctionError,
            "spec.stages[0].map.function",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    stages: list[Mapping[str, object]], error: type[Exception], where: str
) -> None:
    with pytest.raises(error) as told:
        pipeline(*stages)
    assert where in str(told.value)


def test_a_function_with_the_wrong_parameters_is_told_as_ever() -> None:
    with pytest.raises(FunctionError, match="takes"):
        pipeline({"name": "a", "map": {"function": lambda a, b, c: a}}).functions()


def test_a_function_of_the_main_program_can_not_run_in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    exec("def f(value): return value", main.__dict__)
    monkeypatch.setitem(sys.modules, "__main__", main)
    with pytest.raises(FunctionError, match="f can't be imported by another process"):
        pipeline({"name": "a", "map": {"function": main.f, "pool": {"processes": 1}}})


def test_functions_may_be_named_as_text_beside_others(tmp_path: Path) -> None:
    (tmp_path / "named_as_text.py").write_text(
        "STARTED = []\ndef setup(): STARTED.append(1)\ndef f(v): return [v, *STARTED]"
    )
    spec = {
        "kafka": {"bootstrapServers": "nowhere:1"},
        "source": {"topic": "in"},
        "stages": [{"name": "f", "map": {"function": "named_as_text:f"}}, OUT],
    }
    assert ran(Pipeline("test", spec, code=tmp_path), 7) == [[7, 1]]


def test_a_collector_is_not_run_by_a_program() -> None:
    collect = {"schema": "n int", "groupBy": ["n"], "aggregate": {"c": "count(*)"}, "sink": {"console": {}}}
    with pytest.raises((ManifestError, InvalidManifest)) as told:
        pipeline({"name": "by", "collect": collect}).run()
    assert "spec.stages[0].collect" in str(told.value)
