"""Importing stage functions: what is found, how it is called, and what is refused with which words."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chain_pipelines import pipeline_of
from millrace.chain import load
from millrace.errors import ExitCode, FunctionError

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def _forget_what_was_imported() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.fixture
def code(tmp_path: Path) -> Path:
    return tmp_path


def refusal(
    code: Path, source: str, kind: str = "map", function: str = "stages_under_test:f"
) -> FunctionError:
    (code / "stages_under_test.py").write_text(source)
    pipeline = pipeline_of(
        {"name": "first", "filter": {"function": "operator:truth"}},
        {"name": "s", kind: {"function": function}},
    )
    with pytest.raises(FunctionError) as raised:
        load(pipeline, code)
    assert raised.value.code is ExitCode.FUNCTION
    assert raised.value.where == f"spec.stages[1].{kind}.function"
    assert raised.value.remedy
    return raised.value


def test_a_function_is_found_beside_the_manifest_and_setup_is_called_once(code: Path) -> None:
    (code / "stages_under_test.py").write_text(
        "calls = []\ndef setup(): calls.append(1)\ndef f(v): return v + 1\ndef g(v): return v * 2\n"
    )
    functions = load(
        pipeline_of(
            {"name": "a", "map": {"function": "stages_under_test:f"}},
            {"name": "b", "map": {"function": "stages_under_test:g"}},
        ),
        code,
    )
    assert functions["a"].call(1) == 2
    assert functions["b"].call(2) == 4
    assert sys.modules["stages_under_test"].calls == [1]


def test_setup_can_be_left_out(code: Path) -> None:
    (code / "stages_under_test.py").write_text(
        "def setup(): raise OSError('no database')\ndef f(v): return v\n"
    )
    pipeline = pipeline_of({"name": "a", "map": {"function": "stages_under_test:f"}})
    load(pipeline, code, setup=False)
    with pytest.raises(FunctionError, match=r"setup\(\) failed: OSError: no database"):
        load(pipeline, code)


@pytest.mark.parametrize(
    ("source", "wants"),
    [
        ("def f(value): ...", False),
        ("def f(value, message): ...", True),
        ("def f(value, anything): ...", True),
        ("def f(value, scale=2): ...", False),
        ("def f(value, message=None): ...", True),
        ("from millrace import Message\ndef f(value, m: Message | None = None): ...", False),
        ("from millrace import Message\ndef f(value, m: Message = None): ...", True),
        ("def f(*values): ...", False),
        ("def f(value, *, scale=2): ...", False),
        ("class f:\n def __init__(self, value): ...", False),
        ("class F:\n def __call__(self, value, message): ...\nf = F()", True),
        ("import functools\ndef g(a, b, c): ...\nf = functools.partial(g, 1)", True),
        ("f = len", False),
        ("f = dict", False),
    ],
)
def test_a_second_parameter_asks_for_the_message(code: Path, source: str, wants: bool) -> None:
    (code / "stages_under_test.py").write_text(source)
    functions = load(pipeline_of({"name": "s", "map": {"function": "stages_under_test:f"}}), code)
    assert functions["s"].wants_message is wants


def test_a_flat_map_may_yield(code: Path) -> None:
    (code / "stages_under_test.py").write_text("def f(value): yield value")
    load(pipeline_of({"name": "s", "flatMap": {"function": "stages_under_test:f"}}), code)


@pytest.mark.parametrize("kind", ["map", "filter"])
def test_a_generator_is_refused_where_it_would_be_taken_for_a_value(code: Path, kind: str) -> None:
    assert "yields" in refusal(code, "def f(value): yield value", kind).what


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def g(value): ...", "has no function f"),
        ("f = 5", "is a int, not a function"),
        ("async def f(value): ...", "is async"),
        ("class F:\n async def __call__(self, value): ...\nf = F()", "is async"),
        ("async def f(value): yield 1", "is async"),
        ("def f(): ...", "takes ()"),
        ("def f(a, b, c): ...", "takes (a, b, c)"),
        ("def f(a, *, b): ...", "takes (a, *, b)"),
        ("def f(:", "SyntaxError"),
        ("import no_such_package_at_all", "imports no_such_package_at_all, which is not installed"),
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def f(v): ...\ndef setup(): raise SystemExit", "setup() failed: SystemExit"),
    ],
)
def test_a_function_that_could_not_work_is_refused(code: Path, source: str, words: str) -> None:
    assert words in refusal(code, source).what


def test_a_missing_function_is_told_what_there_is(code: Path) -> None:
    source = "def score(v): ...\ndef _hidden(v): ...\ndef setup(): ...\ndef keep(v): ..."
    assert refusal(code, source).remedy == "it has: keep, score"


def test_a_missing_module_is_told_where_it_was_looked_for(code: Path) -> None:
    error = refusal(code, "", function="no_such_module:f")
    assert error.what == "there is no module no_such_module"
    assert str(code) in error.remedy


def test_a_module_hidden_by_pythons_own_is_refused(code: Path) -> None:
    (code / "types.py").write_text("def f(value): ...")
    assert "hidden by another module" in refusal(code, "", function="types:f").what


def test_what_a_module_raises_is_said_with_its_line(code: Path) -> None:
    broken = refusal(code, "import os\nraise RuntimeError('boom')\ndef f(v): return v\n")
    assert "RuntimeError: boom (stages_under_test.py:2, in <module>)" in broken.what


def test_what_setup_raises_is_said_with_its_line(code: Path) -> None:
    broken = refusal(code, "def setup():\n    raise ValueError('no table')\ndef f(v): return v\n")
    assert "ValueError: no table (stages_under_test.py:2, in setup)" in broken.what


REDUCE = {"initial": "builtins:dict", "accumulate": "stages_under_test:add", "key": "stages_under_test:who"}


def test_the_functions_of_a_reduce_are_found_with_what_each_is_called_with(code: Path) -> None:
    (code / "stages_under_test.py").write_text(
        "def add(so_far, order, message): return so_far\ndef who(order, message=None): return 1\n"
        "def total(so_far): return 2\n"
    )
    reduce = {**REDUCE, "flush": "stages_under_test:total"}
    functions = load(pipeline_of({"name": "sum", "reduce": reduce}), code)
    assert functions["sum.initial"].call() == {}
    assert {name: functions[f"sum.{name}"].wants_message for name in ("accumulate", "key", "flush")} == {
        "accumulate": True,
        "key": True,
        "flush": False,
    }


@pytest.mark.parametrize(
    ("source", "field", "words", "remedy"),
    [
        (
            "def add(value): pass\ndef who(v): pass",
            "accumulate",
            "stages_under_test:add takes (value)",
            "it is called with accumulated and value, and where it wants it the message: "
            "def f(accumulated, value) or def f(accumulated, value, message)",
        ),
        (
            "def add(a, b): yield a\ndef who(v): pass",
            "accumulate",
            "stages_under_test:add is async, or yields",
            "accumulate has to return something: use def and return",
        ),
        (
            "def add(a, b): pass\ndef who(a, b, c): pass",
            "key",
            "stages_under_test:who takes (a, b, c)",
            "a stage function takes the value, and with a second parameter the message: def f(value) or "
            "def f(value, message)",
        ),
        (
            "def add(a, b): pass\ndef who(a): pass\ndef begin(x): pass",
            "initial",
            "stages_under_test:begin takes (x)",
            "it is called without arguments: def f()",
        ),
    ],
)
def test_a_function_that_does_not_fit_its_part_is_refused(
    code: Path, source: str, field: str, words: str, remedy: str
) -> None:
    (code / "stages_under_test.py").write_text(source)
    begin = "stages_under_test:begin" if "begin" in source else "builtins:dict"
    pipeline = pipeline_of(
        {"name": "sum", "reduce": {**REDUCE, "initial": begin}},
        {"name": "use", "map": {"function": "operator:truth"}},
    )
    with pytest.raises(FunctionError) as raised:
        load(pipeline, code)
    assert (raised.value.what, raised.value.remedy) == (words, remedy)
    assert raised.value.where == f"spec.stages[0].reduce.{field}"


def refused(code: Path, source: str, declared: dict[str, object]) -> FunctionError:
    (code / "stages_under_test.py").write_text(source)
    with pytest.raises(FunctionError) as raised:
        load(pipeline_of({"name": "s", "map": {"function": "stages_under_test:f", **declared}}), code)
    return raised.value


def test_a_pool_of_asyncio_takes_async_functions_only(code: Path) -> None:
    error = refused(code, "def f(value): ...", {"pool": {"asyncio": 5}})
    assert "would hold the event loop" in error.what
    assert "threads" in error.remedy
    (code / "stages_under_test.py").write_text("async def f(value, message): ...")
    sys.modules.pop("stages_under_test")
    stage = {"name": "s", "map": {"function": "stages_under_test:f", "pool": {"asyncio": 5}}}
    function = load(pipeline_of(stage), code)["s"]
    assert (function.asynchronous, function.wants_message) == (True, True)


def test_a_vectorized_function_can_not_yield(code: Path) -> None:
    error = refused(code, "def f(values): yield 1", {"vectorized": True})
    assert "a vectorized stage takes what a function returns" in error.what


@pytest.mark.parametrize(
    ("source", "arrow"),
    [
        ("def f(values): ...", False),
        ("def f(values: list): ...", False),
        ("import pyarrow\ndef f(rows: pyarrow.RecordBatch): ...", True),
        ("from __future__ import annotations\nimport pyarrow as pa\ndef f(rows: pa.RecordBatch): ...", True),
        ("class RecordBatch: ...\ndef f(rows: RecordBatch): ...", False),
    ],
)
def test_a_record_batch_is_asked_for_by_annotation(code: Path, source: str, arrow: bool) -> None:
    (code / "stages_under_test.py").write_text(source)
    stage = {"name": "s", "map": {"function": "stages_under_test:f", "vectorized": True}}
    assert load(pipeline_of(stage), code)["s"].arrow is arrow


def test_exceptions_of_a_retry_are_looked_up(code: Path) -> None:
    (code / "stages_under_test.py").write_text("class Busy(Exception): ...\ndef f(value): ...")
    names = ["TimeoutError", "Busy", "http.client:HTTPException"]
    retry = {"attempts": 2, "exceptions": names}
    stage = {"name": "s", "map": {"function": "stages_under_test:f", "retry": retry}}
    found = load(pipeline_of(stage), code)["s"].retry_on
    assert [kind.__name__ for kind in found] == ["TimeoutError", "Busy", "HTTPException"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Busy", "Busy is no exception of Python or of stages_under_test"),
        ("f", "f is no exception of Python or of stages_under_test"),
        ("KeyboardInterrupt", "KeyboardInterrupt is no exception"),
        ("http.client:HTTPSException", "http.client:HTTPSException is no exception of http.client"),
        ("millrace:Invalid", "is never called again"),
        ("nowhere:Error", "there is no module nowhere"),
    ],
)
def test_an_exception_that_is_none_is_refused_at_its_place(code: Path, name: str, words: str) -> None:
    error = refused(code, "def f(value): ...", {"retry": {"attempts": 2, "exceptions": ["OSError", name]}})
    assert words in error.what
    assert error.where == "spec.stages[0].map.retry.exceptions[1]"
    assert error.code is ExitCode.FUNCTION
