"""A manifest from plain data in which functions stand where a file has their names.

A function that can be imported is known by its module and name, as in a file, so that the processes of a pool find it too.
Any other (a lambda, a method, what the main program defines) gets a name of the module `program`, which there is not.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from millrace.chain import MakeStrategy
from millrace.errors import FunctionError, ManifestError
from millrace_api import API_VERSION, KIND, ConsumerPipeline, parse
from millrace_api.problems import short

HERE = "program"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")


@dataclass(frozen=True, slots=True)
class Written:
    """A pipeline with what its manifest can't say.

    Attributes:
        functions: by the reference that the manifest has for each.
        strategies: by the name of the stage that each stands for.
    """

    pipeline: ConsumerPipeline
    functions: Mapping[str, Callable[..., object]]
    strategies: Mapping[str, MakeStrategy]


def written(name: str, spec: Mapping[str, object]) -> Written:
    """Raises InvalidManifest, ManifestError, and FunctionError for a function in processes that can't be imported there."""
    writing = _Writing()
    stages = spec.get("stages")
    if isinstance(stages, (list, tuple)):
        spec = {**spec, "stages": [writing.stage(stage, index) for index, stage in enumerate(stages)]}
    manifest = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": writing.plain(spec),
    }
    pipeline = parse(manifest, source=f"the pipeline {short(str(name), 60)}")
    for index, stage in enumerate(pipeline.spec.stages):
        declared = stage.function_stage
        pool = None if declared is None else declared.pool
        if declared is None or pool is None or pool.kind != "processes":
            continue
        if declared.function.startswith(f"{HERE}:"):
            raise FunctionError(
                f"{declared.function.partition(':')[2]} can't be imported by another process",
                where=f"spec.stages[{index}].{stage.kind}.function",
                remedy="define it with def, at the top of a module other than the main program",
            )
    return Written(pipeline, writing.functions, writing.strategies)


def stands_in(value: object) -> object:
    """What the manifest has for a stage that is a strategy of the program's own. It is never called."""
    raise NotImplementedError(value)


@dataclass
class _Writing:
    functions: dict[str, Callable[..., object]] = field(default_factory=dict)
    strategies: dict[str, MakeStrategy] = field(default_factory=dict)

    def stage(self, stage: object, index: int) -> object:
        if not isinstance(stage, Mapping) or "strategy" not in stage:
            return stage
        make, rest = stage["strategy"], {key: value for key, value in stage.items() if key != "strategy"}
        if not callable(make):
            raise ManifestError(
                f"{make!r} makes no strategy",
                where=f"spec.stages[{index}].strategy",
                remedy="give a function, or a class, that takes the next strategy and the clock",
            )
        if beside := sorted(str(key) for key in rest.keys() - {"name"}):
            raise ManifestError(
                f"a stage is one thing, and this one is a strategy and {', '.join(beside)}",
                where=f"spec.stages[{index}]",
                remedy="make two stages of it",
            )
        self.strategies[str(rest.get("name"))] = make
        return {**rest, "map": {"function": f"{__name__}:{stands_in.__name__}"}}

    def plain(self, value: object) -> object:
        if isinstance(value, Mapping):
            return {key: self.plain(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.plain(one) for one in value]
        return self._reference(value) if callable(value) else value

    def _reference(self, call: Callable[..., object]) -> str:
        module, name = getattr(call, "__module__", None) or "", getattr(call, "__qualname__", "")
        reference = f"{module}:{name}"
        if module == "__main__" or not _NAME.match(module) or not _is(module, name, call):
            plain = re.sub(r"\W+", "_", name.rpartition(".")[2] or type(call).__name__).strip("_")
            reference = f"{HERE}:{plain}"
            while self.functions.get(reference, call) is not call:
                reference += "_"
        self.functions[reference] = call
        return reference


def _is(module: str, name: str, call: Callable[..., object]) -> bool:
    """Whether importing this name from this module gives this function."""
    if not name.isidentifier():
        return False
    if module not in sys.modules:
        try:
            importlib.import_module(module)
        except ImportError:
            return False
    return getattr(sys.modules.get(module), name, None) is call
