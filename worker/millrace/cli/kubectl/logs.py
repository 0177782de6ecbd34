"""`kubectl millrace logs`: the logs of all workers as one, in the order of their times."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from millrace.cli.kubectl.client import Kubectl
from millrace.cli.kubectl.status import pipeline
from millrace.errors import ExitCode, MillraceError

_MOST_PODS: Final = 10_000  # kubectl's own limit is 5
_PREFIX: Final = re.compile(r"\[pod/(?P<pod>[^/\]]+)/[^\]]*\] ?(?P<line>.*)", re.DOTALL)
_SAID_FIRST: Final = ("timestamp", "level", "event", "worker")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a worker's log. `fields`: None if it is no event, but what a library or a crash has written."""

    pod: str
    text: str
    fields: Mapping[str, object] | None = field(default=None, compare=False)

    @property
    def time(self) -> str:
        return str((self.fields or {}).get("timestamp", ""))


@dataclass(frozen=True, slots=True)
class Wanted:
    """stage: only events about it. tail: lines of each worker, -1: all. since: a duration such as 5m."""

    stage: str | None = None
    follow: bool = False
    tail: int = 500
    since: str | None = None
    previous: bool = False


def logs(kubectl: Kubectl, name: str, wanted: Wanted, as_json: bool) -> None:
    """Raises KubectlFailed."""
    selector = pipeline(kubectl, name).status.selector
    if not selector:
        raise MillraceError(
            f"pipeline {name} has no workers: no operator has looked at it yet",
            remedy=f"`kubectl millrace status {name}`",
            code=ExitCode.USAGE,
        )
    words = ["logs", "--selector", selector, "--prefix", "--container=worker", f"--tail={wanted.tail}"]
    words += [f"--max-log-requests={_MOST_PODS}", *(["--previous"] if wanted.previous else [])]
    words += [f"--since={wanted.since}"] if wanted.since else []
    lines: Iterable[Line]
    if wanted.follow:
        lines = _followed(kubectl, [*words, "--follow"])
    else:
        lines = merged(kubectl.run(*words).splitlines())
    for line in of_stage(lines, wanted.stage):
        sys.stdout.write((as_object(line) if as_json else as_text(line)) + "\n")
        if wanted.follow:
            sys.stdout.flush()


def parsed(text: str) -> Line:
    """A line as `kubectl logs --prefix` has it."""
    match = _PREFIX.match(text)
    pod, line = (match["pod"], match["line"]) if match else ("", text)
    try:
        fields = json.loads(line)
    except ValueError:
        fields = None
    return Line(pod, line, fields if isinstance(fields, dict) else None)


def merged(texts: Iterable[str]) -> list[Line]:
    """In the order of time; a line without one stays behind the one before it of the same worker."""
    last: dict[str, str] = {}
    keyed = []
    for text in texts:
        line = parsed(text)
        last[line.pod] = line.time or last.get(line.pod, "")
        keyed.append((last[line.pod], line))
    return [line for _, line in sorted(keyed, key=lambda pair: pair[0])]


def of_stage(lines: Iterable[Line], stage: str | None) -> Iterator[Line]:
    """Events that are about the stage, by their field `stage` or by the place that they name; with what was written on
    further lines of the same worker, such as a traceback.
    """
    within: dict[str, bool] = {}
    for line in lines:
        if stage is None:
            yield line
            continue
        if line.fields is not None:
            within[line.pod] = _is_about(line.fields, stage)
        if within.get(line.pod, False):
            yield line


def as_text(line: Line) -> str:
    """For people: time, level, worker, event, then the other fields; what has several lines comes below."""
    if line.fields is None:
        return f"{line.pod}  {line.text}"
    fields = line.fields
    head = f"{line.time[:23]:<23} {fields.get('level', '')!s:<7} {line.pod}  {fields.get('event', '')}"
    rest = {key: value for key, value in fields.items() if key not in _SAID_FIRST}
    short = "".join(f"  {key}={value}" for key, value in rest.items() if "\n" not in str(value))
    long = "".join(f"\n{value}" for value in rest.values() if "\n" in str(value))
    return head + short + long


def as_object(line: Line) -> str:
    """One JSON object a line, as the worker has written it, with `pod`."""
    return json.dumps({"pod": line.pod, **(line.fields if line.fields is not None else {"event": line.text})})


def _is_about(fields: Mapping[str, object], stage: str) -> bool:
    if "stage" in fields:
        return fields["stage"] == stage
    named = rf"\bstage {re.escape(stage)}(?![\w-])"
    return any(re.search(named, str(fields.get(key, ""))) for key in ("where", "what", "event"))


def _followed(kubectl: Kubectl, words: list[str]) -> Iterator[Line]:
    with closing(kubectl.stream(*words)) as lines:
        yield from map(parsed, lines)
