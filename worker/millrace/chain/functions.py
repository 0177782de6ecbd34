"""Importing the functions that a manifest names, and refusing those that could not work before any message is read."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

from millrace.chain.roles import role_name, roles
from millrace.clock import Clock
from millrace.engine.strategy import Strategy
from millrace.errors import FunctionError
from millrace.message import Invalid, Message
from millrace.strategies import Function
from millrace_api import ConsumerPipeline
from millrace_api.stages import FunctionStage

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


MakeStrategy = Callable[[Strategy, Clock], Strategy]
"""Makes a strategy that hands on to the one it is given, and reads time from this clock; called once per session."""


@dataclass(frozen=True, slots=True)
class Functions:
    """The functions of a pipeline by the name of their stage; of a stage with several by `roles.role_name`. `code_dir` is
    the directory their modules were looked for in. A stage named in `strategies` is not what the manifest says of it, but
    what is made there: how a program puts a strategy of its own into a chain (`millrace.library`).
    """

    by_stage: Mapping[str, Function]
    code_dir: Path | None = None
    strategies: Mapping[str, MakeStrategy] = field(default_factory=dict)

    def __getitem__(self, stage: str) -> Function:
        return self.by_stage[stage]


def load(
    pipeline: ConsumerPipeline,
    code_dir: Path | None,
    *,
    setup: bool = True,
    only: Set[str] | None = None,
    given: Mapping[str, Callable[..., object]] | None = None,
) -> Functions:
    """Import every function of the pipeline, from `code_dir` first (it stays on sys.path), and call each module's
    `setup()` once, unless told not to (to look at a manifest without running its code's preparations). It is not called
    for functions that run in processes, which call it themselves.

    Args:
        only: load the functions of these stages: we are one of those processes.
        given: functions by their reference, which need not be looked for.

    Raises FunctionError, which names the place in the manifest.
    """
    functions: dict[str, Function] = {}
    modules: dict[str, tuple[ModuleType, str]] = {}
    for index, stage in enumerate(pipeline.spec.stages):
        if only is not None and stage.name not in only:
            continue
        for role in roles(stage):
            where = f"spec.stages[{index}].{stage.kind}.{role.field}"
            module, call = _find(role.reference, code_dir, where, given)
            modules.setdefault(module.__name__, (module, where))
            _refuse_unusual(call, role.reference, where, f"{role.field} has to return something")
            wants = _wants_message(call, role.reference, where, role.takes)
            functions[role_name(stage.name, role.field)] = Function(call, wants)
        declared = stage.function_stage
        if declared is None:
            continue
        where = f"spec.stages[{index}].{stage.kind}.function"
        module, call = _find(declared.function, code_dir, where, given)
        if only is not None or declared.pool is None or declared.pool.kind != "processes":
            modules.setdefault(module.__name__, (module, where))
        functions[stage.name] = replace(
            _function(call, declared, stage.kind, where),
            retry_on=_exceptions(declared, module, code_dir, where.removesuffix("function")),
        )
    if setup:
        for module, where in modules.values():
            set_up(module, where)
    return Functions(functions, code_dir)


def _find(
    reference: str, code_dir: Path | None, where: str, given: Mapping[str, Callable[..., object]] | None
) -> tuple[ModuleType, Callable[..., object]]:
    call = (given or {}).get(reference)
    if call is None:
        return find(reference, code_dir, where)
    name = getattr(call, "__module__", None) or reference.partition(":")[0]
    return sys.modules.get(name) or ModuleType(name), call


def find(reference: str, code_dir: Path | None, where: str) -> tuple[ModuleType, Callable[..., object]]:
    """Import what `module:name` means, from `code_dir` first (it stays on sys.path).

    Raises FunctionError: there is no such module or name, it can't be imported, or is not to be called.
    """
    if code_dir is not None and str(code_dir) not in sys.path:
        sys.path.insert(0, str(code_dir))
        importlib.invalidate_caches()
    module_name, _, name = reference.partition(":")
    module = _import(module_name, code_dir, where)
    try:
        call = getattr(module, name)
    except AttributeError as error:
        raise FunctionError(
            f"module {module.__name__} has no function {name}",
            where=where,
            remedy=f"it has: {', '.join(_offered(module)) or 'none'}",
        ) from error
    if not callable(call):
        raise FunctionError(
            f"{reference} is a {type(call).__name__}, not a function",
            where=where,
            remedy="name a function",
        )
    return module, call


def set_up(module: ModuleType, where: str) -> None:
    """Call the module's `setup()`, if it has one. Raises FunctionError."""
    setup = getattr(module, "setup", None)
    if setup is None:
        return
    try:
        setup()
    except (Exception, SystemExit) as error:
        raise FunctionError(
            f"{module.__name__}.setup() failed: {_told(error)}{_line(error)}",
            where=where,
            remedy="mend setup()",
        ) from error


def _import(name: str, code_dir: Path | None, where: str) -> ModuleType:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            place = f"{code_dir} and the Python path" if code_dir else "the Python path"
            raise FunctionError(
                f"there is no module {name}",
                where=where,
                remedy=f"put {name.replace('.', '/')}.py beside the manifest, or name it in worker.code (looked in {place})",
            ) from error
        raise FunctionError(
            f"module {name} imports {error.name}, which is not installed",
            where=where,
            remedy=f"install {error.name} for the Python that runs Millrace ({sys.executable})",
        ) from error
    except (Exception, SystemExit) as error:
        raise FunctionError(
            f"module {name} can't be imported: {_told(error)}{_line(error)}",
            where=where,
            remedy="mend the module",
        ) from error
    _refuse_shadowed(module, name, code_dir, where)
    return module


def _refuse_shadowed(module: ModuleType, name: str, code_dir: Path | None, where: str) -> None:
    """A user's code.py or types.py is never seen: Python has its own, imported long before."""
    if code_dir is None:
        return
    top = name.split(".")[0]
    own = [path for path in (code_dir / f"{top}.py", code_dir / top / "__init__.py") if path.exists()]
    found = getattr(module, "__file__", None)
    if own and (found is None or not Path(found).resolve().is_relative_to(code_dir.resolve())):
        raise FunctionError(
            f"{own[0]} is hidden by another module of the same name ({found or 'built into Python'})",
            where=where,
            remedy="give your module another name",
        )


def _function(call: Callable[..., object], declared: FunctionStage, kind: str, where: str) -> Function:
    asynchronous = _is_async(call)
    reference, awaited = declared.function, declared.pool is not None and declared.pool.kind == "asyncio"
    if asynchronous and not awaited:
        raise FunctionError(
            f"{reference} is async",
            where=where,
            remedy="it is called, not awaited: use def, or give the stage pool: {asyncio: 100}",
        )
    if awaited and not asynchronous:
        raise FunctionError(
            f"{reference} is not async, and would hold the event loop of its pool",
            where=where,
            remedy="use async def, or pool: {threads: 8} for a function that waits without await",
        )
    generator = inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call)
    if generator and (kind != "flatMap" or declared.vectorized):
        raise FunctionError(
            f"{reference} yields, and {'a vectorized stage' if declared.vectorized else kind} takes what a "
            "function returns",
            where=where,
            remedy="use return" if declared.vectorized else "use return, or make the stage a flatMap",
        )
    arrow = declared.vectorized and _wants_arrow(call)
    return Function(call, _wants_message(call, reference, where), asynchronous, arrow)


def _is_async(call: Callable[..., object]) -> bool:
    inner = getattr(call, "func", call)  # functools.partial
    method = inner if inspect.isroutine(inner) or inspect.isclass(inner) else type(inner).__call__
    return any(
        inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) for one in (call, inner, method)
    )


def _wants_arrow(call: Callable[..., object]) -> bool:
    """By the annotation of the first parameter; pyarrow itself is not imported for that."""
    try:
        parameters = list(inspect.signature(call).parameters.values())
    except ValueError:
        return False
    annotation = parameters[0].annotation if parameters else None
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2] == "RecordBatch"
    module = str(getattr(annotation, "__module__", ""))
    return module.startswith("pyarrow") and getattr(annotation, "__name__", "") == "RecordBatch"


def _exceptions(
    declared: FunctionStage, module: ModuleType, code_dir: Path | None, where: str
) -> tuple[type[Exception], ...]:
    """The exceptions that `retry.exceptions` names. Raises FunctionError for what is none."""
    names = declared.retry.exceptions if declared.retry is not None else ()
    found = []
    for index, name in enumerate(names):
        place = f"{where}retry.exceptions[{index}]"
        owner, _, bare = name.rpartition(":")
        if owner:
            known = getattr(_import(owner, code_dir, place), bare, None)
        else:
            known = getattr(builtins, bare, None) or getattr(module, bare, None)
        if not isinstance(known, type) or not issubclass(known, Exception):
            raise FunctionError(
                f"{name} is no exception of {owner or f'Python or of {module.__name__}'}",
                where=place,
                remedy="name one of Python's own (TimeoutError, ConnectionError), of the function's module, or "
                "module:name",
            )
        if issubclass(known, Invalid):
            raise FunctionError(
                f"after {name} a function is never called again: the message can't be processed, and it never will",
                where=place,
                remedy="leave it out",
            )
        found.append(known)
    return tuple(found) or (Exception,)


def _refuse_unusual(call: Callable[..., object], reference: str, where: str, why: str) -> None:
    kinds = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)
    if any(is_one(call) for is_one in kinds):
        raise FunctionError(
            f"{reference} is async, or yields", where=where, remedy=f"{why}: use def and return"
        )


def _wants_message(
    call: Callable[..., object], name: str, where: str, takes: tuple[str, ...] = ("value",)
) -> bool:
    """By the number of parameters without default: with one more than it `takes`, it gets the message too. A further one
    with a default gets it only if it is called `message` or annotated as Message.
    """
    try:
        signature = inspect.signature(call)
    except ValueError:
        return False  # written in C, and says nothing of itself
    parameters = list(signature.parameters.values())
    positional = [p for p in parameters if p.kind in POSITIONAL]
    required = [p for p in positional if p.default is inspect.Parameter.empty]
    keyword_only = [
        p.name
        for p in parameters
        if p.kind is inspect.Parameter.KEYWORD_ONLY and p.default is inspect.Parameter.empty
    ]
    takes_any = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
    most = len(takes) + 1 if takes else 0
    if len(required) > most or keyword_only or (len(positional) < len(takes) and not takes_any):
        raise FunctionError(f"{name} takes {signature}", where=where, remedy=_signatures(takes))
    if len(required) == len(takes) + 1:
        return True
    further = positional[len(takes)] if takes and len(positional) > len(takes) else None
    return further is not None and (
        further.name == "message" or further.annotation in (Message, "millrace.Message")
    )


def _signatures(takes: tuple[str, ...]) -> str:
    if takes == ("value",):
        return (
            "a stage function takes the value, and with a second parameter the message: def f(value) or "
            "def f(value, message)"
        )
    if not takes:
        return "it is called without arguments: def f()"
    given = ", ".join(takes)
    return f"it is called with {' and '.join(takes)}, and where it wants it the message: def f({given}) or def f({given}, message)"


def _offered(module: ModuleType) -> list[str]:
    return sorted(
        n
        for n, v in vars(module).items()
        if inspect.isfunction(v)
        and v.__module__ == module.__name__
        and not n.startswith("_")
        and n != "setup"
    )


def _told(error: BaseException) -> str:
    """The error in one line; a SyntaxError's text has file and line in it."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _line(error: BaseException) -> str:
    """Where it was raised, if that was in Python; a SyntaxError says so itself."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or isinstance(error, SyntaxError) or Path(frames[-1].filename) == Path(__file__):
        return ""
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno}, in {frames[-1].name})"
