"""`millrace dlq list` and `show`."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice

import msgspec

from millrace.cli.dlq.access import Place, dead_letters
from millrace.cli.dlq.chosen import Chosen
from millrace.cli.dlq.letters import Letter, letter_of, scan, spans
from millrace.connectivity.ports import Record, Span
from millrace.errors import ExitCode, MillraceError


def list_letters(place: Place, chosen: Chosen, limit: int, as_json: bool) -> None:
    """The oldest letters, at most `limit`, by partition and offset."""
    with dead_letters(place) as there:
        within = spans(there.cluster, there.topic, there.clock)
        found = map(letter_of, scan(there.cluster, there.topic, within, there.clock))
        letters = list(islice((letter for letter in found if letter in chosen), limit))
        topic = there.topic
    letters.sort(key=lambda letter: (letter.partition, letter.offset))
    if as_json:
        print_json(letters)
    else:
        _print(letters, topic, limit, all_of_them=chosen == Chosen())


def show_letter(place: Place, partition: int, offset: int, as_json: bool) -> None:
    """One letter, whole. Raises MillraceError (USAGE): there is none at that place."""
    with dead_letters(place) as there:
        span = spans(there.cluster, there.topic, there.clock).get(partition)
        record = None
        if span is not None and span.beginning <= offset < span.end:
            within = {partition: Span(offset, offset + 1)}
            record = next(iter(scan(there.cluster, there.topic, within, there.clock)), None)
        if record is None or record.offset() != offset:
            raise MillraceError(
                f"there is no dead letter at {partition}:{offset}",
                where=f"topic {there.topic}",
                remedy="`millrace dlq list` shows where there are some, in the column `at`",
                code=ExitCode.USAGE,
            )
    if as_json:
        print_json(_whole(record))
    else:
        _print_whole(record)


def print_json(result: object) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(result)).decode() + "\n")


def _whole(record: Record) -> dict[str, object]:
    """The summary, with key, value and headers in full: text where they are UTF-8, base64 in `...Base64` where not."""
    whole: dict[str, object] = msgspec.to_builtins(letter_of(record))
    for name, content in (("key", record.key()), ("value", record.value())):
        del whole[name]
        whole |= _content(name, content)
    whole["headers"] = [{"name": name, **_content("value", value)} for name, value in record.headers() or ()]
    return whole


def _content(name: str, content: bytes | None) -> dict[str, object]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(content).decode()}


def _print(letters: list[Letter], topic: str, limit: int, *, all_of_them: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(soft_wrap=not sys.stdout.isatty())
    if not letters:
        console.print(f"no dead letters in {topic}" if all_of_them else f"no such dead letters in {topic}")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("at", "from", "stage", "reason"):
        table.add_column(head, overflow="fold", no_wrap=head != "reason")
    for letter in letters:
        table.add_row(
            f"{letter.partition}:{letter.offset}",
            Text(_origin(letter)),
            Text(letter.stage),
            Text(letter.reason),
        )
    console.print(table)
    if len(letters) == limit:
        console.print(Text(f"the first {limit}; see more with --limit", style="dim"))


def _print_whole(record: Record) -> None:
    from rich.console import Console
    from rich.text import Text

    console, letter = Console(soft_wrap=True), letter_of(record)
    for name, text in _lines(letter, record):
        console.print(Text(f"{name:10} ", style="dim") + Text(text))
    console.print()
    value = record.value()
    console.print(
        Text("no value (a tombstone)" if value is None else value.decode("utf-8", "backslashreplace"))
    )


def _lines(letter: Letter, record: Record) -> Iterator[tuple[str, str]]:
    yield "at", f"{letter.partition}:{letter.offset}, written {_time(letter.timestamp)}"
    yield "from", f"{_origin(letter)}, of {_time(letter.source_timestamp)}"
    yield "stage", letter.stage
    yield "reason", letter.reason
    key = record.key()
    yield "key", "none" if key is None else key.decode("utf-8", "backslashreplace")
    for name, value in record.headers() or ():
        yield "header", f"{name}: {'none' if value is None else value.decode('utf-8', 'backslashreplace')}"


def _origin(letter: Letter) -> str:
    return f"{letter.source_topic}/{letter.source_partition}:{letter.source_offset}"


def _time(milliseconds: int | None) -> str:
    return "no time" if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()
