"""What processes of pools are to do in tests. Imported by them, so nothing of the tests may be imported here."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

import millrace
from millrace.errors import FunctionError
from millrace.strategies import Decode, Filter, FlatMap, Function, Judge, Map, Retry, Vectorized
from millrace.strategies.processes import Values, Works
from millrace.strategies.processes.again import Again


class Order(msgspec.Struct):
    """kind: map, filter, flatMap, or the name of a function below. marks: a folder to leave word in."""

    kind: str
    marks: str = ""
    on_error: bool = False
    attempts: int = 1
    timeout: float | None = None
    out: str = "objects"
    into: str = "bytes"


def works_of(payload: bytes, pulse: Callable[[], None]) -> Works:
    order = msgspec.json.decode(payload, type=Order)
    judge = Judge("stage", dead_letters=True, on_error_dead_letter=order.on_error)
    stages: list[tuple[str, object]] = []
    if order.into == "bytes":
        stages = [("stage", _decoding_map(order, judge, pulse))]
    else:
        stages = [("stage", Map(Function(_again(order, pulse)), judge))]
    return Works(stages, judge, Values(order.into), Values(order.out))  # type: ignore[arg-type]


def _decoding_map(order: Order, judge: Judge, pulse: Callable[[], None]) -> Callable[[object], object]:
    decode = Decode("bytes", judge)
    works = {
        "map": Map(Function(lambda value: value), judge),
        "filter": Filter(Function(lambda value: value != b"1"), judge),
        "flatMap": FlatMap(Function(lambda value: [value, value]), judge),
        "vectorized": Vectorized(Map(Function(lambda values: [len(values)] * len(values)), judge)),
        "message": Map(Function(_message, wants_message=True), judge),
    }
    if order.kind == "not ready":
        raise FunctionError(
            "setup() failed: no table", where="spec.stages[0].map.function", remedy="mend setup()"
        )
    if order.kind == "dies at the start":
        os.kill(os.getpid(), signal.SIGKILL)
    work = works.get(order.kind) or Map(Function(_again(order, pulse)), judge)
    return lambda batch: work(decode(batch).batch)  # type: ignore[arg-type]


def _message(value: bytes, message: millrace.Message) -> object:
    return message.key, message.headers, message.timestamp, message.partition, message.offset


def _again(order: Order, pulse: Callable[[], None]) -> Callable[..., object]:
    def function(value: bytes) -> object:
        return globals()[order.kind](value, Path(order.marks))

    return Again(function, lambda result: result, Retry(order.attempts, 0.001, 0.001), order.timeout, pulse)


def _mark(marks: Path, value: object) -> int:
    """Leave word of a call. Returns how many there were for this value."""
    name = value.decode() if isinstance(value, bytes) else str(value)
    with (marks / name).open("a") as file:
        file.write(f"{os.getpid()}\n")
    return len((marks / name).read_text().splitlines())


def zero_waits(value: bytes, marks: Path) -> bytes:
    """For a file `go`; other values do not."""
    deadline = time.monotonic() + 240
    while value == b"0" and not (marks / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.002)
    return value


def pid(value: bytes, marks: Path) -> int:
    return os.getpid()


def marked(value: bytes, marks: Path) -> bytes:
    _mark(marks, value)
    return value


def kills(value: bytes, marks: Path) -> bytes:
    _mark(marks, value)
    if value == b"7":
        os.kill(os.getpid(), signal.SIGSEGV)
    return value


def kills_once(value: bytes, marks: Path) -> bytes:
    if _mark(marks, value) == 1 and value == b"7":
        os.kill(os.getpid(), signal.SIGKILL)
    return value


def exits(value: bytes, marks: Path) -> bytes:
    if value == b"7":
        os._exit(3)
    return value


class Odd(Exception):
    """Can't be pickled: it wants two arguments."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


def raises(value: bytes, marks: Path) -> bytes:
    if value == b"2":
        raise Odd("this", "that")
    if value == b"4":
        raise millrace.Invalid("four")
    return value


def unpicklable(value: bytes, marks: Path) -> object:
    return (lambda: value) if value == b"2" else value


def sleeps(value: bytes, marks: Path) -> bytes:
    if value == b"2" and _mark(marks, value) == 1:
        time.sleep(600)
    return value


def never_listens(value: bytes, marks: Path) -> bytes:
    _mark(marks, value)
    while value == b"2":
        try:
            time.sleep(600)
        except Exception:  # noqa: BLE001 - that is the point
            continue
    return value


def waits(value: bytes, marks: Path) -> bytes:
    _mark(marks, value)
    while not (marks / "go").exists():
        time.sleep(0.01)
    return value


def large(value: bytes, marks: Path) -> bytes:
    return value * 1_000_000


def numbers(value: int, marks: Path) -> Iterator[int] | int:
    return value + 1


def sticks_at_12(value: bytes, marks: Path) -> bytes:
    return value if value != b"12" else waits(value, marks)
