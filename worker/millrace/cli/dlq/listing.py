"""`millrace dlq list` and `show`."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice

import msgspec

from millrace.cli.dlq.access import DeadLetters, Place, dead_letters
from millrace.cli.dlq.chosen import Chosen
from millrace.cli.dlq.letters import Letter, letter_of, scan, spans
from millrace.connectivity.ports import Span
from millrace.errors import ExitCode, MillraceError


class Listing(msgspec.Struct, frozen=True):
    """By partition and offset."""

    topic: str
    letters: tuple[Letter, ...]


class Whole(msgspec.Struct, frozen=True):
    """A letter with all of its key, value and headers; those that it begins with say where it came from."""

    letter: Letter
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def list_letters(place: Place, chosen: Chosen, limit: int, as_json: bool) -> None:
    with dead_letters(place) as there:
        listing = listed(there, chosen, limit)
    print_listing(listing, chosen, limit, as_json)


def show_letter(place: Place, partition: int, offset: int, as_json: bool) -> None:
    with dead_letters(place) as there:
        whole = found(there, partition, offset)
    print_whole(whole, as_json)


def listed(there: DeadLetters, chosen: Chosen, limit: int) -> Listing:
    """The oldest letters, at most `limit`."""
    within = spans(there.cluster, there.topic, there.clock)
    letters = map(letter_of, scan(there.cluster, there.topic, within, there.clock))
    first = islice((letter for letter in letters if letter in chosen), limit)
    return Listing(there.topic, tuple(sorted(first, key=lambda letter: (letter.partition, letter.offset))))


def found(there: DeadLetters, partition: int, offset: int) -> Whole:
    """One letter. Raises MillraceError (USAGE): there is none at that place."""
    span = spans(there.cluster, there.topic, there.clock).get(partition)
    record = None
    if span is not None and span.beginning <= offset < span.end:
        within = {partition: Span(offset, offset + 1)}
        record = next(iter(scan(there.cluster, there.topic, within, there.clock)), None)
    if record is None or record.offset() != offset:
        raise MillraceError(
            f"there is no dead letter at {partition}:{offset}",
            where=f"topic {there.topic}",
            remedy="`dlq list` shows where there are some, in the column `at`",
            code=ExitCode.USAGE,
        )
    return Whole(letter_of(record), record.key(), record.value(), tuple(record.headers() or ()))


def print_listing(listing: Listing, chosen: Chosen, limit: int, as_json: bool) -> None:
    if as_json:
        print_json(listing.letters)
    else:
        _print(listing.letters, listing.topic, limit, all_of_them=chosen == Chosen())


def print_whole(whole: Whole, as_json: bool) -> None:
    if as_json:
        print_json(_plain(whole))
    else:
        _print_whole(whole)


def print_json(result: object) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(result)).decode() + "\n")


def _plain(whole: Whole) -> dict[str, object]:
    """The summary, with key, value and headers in full: text where they are UTF-8, base64 in `...Base64` where not."""
    plain: dict[str, object] = msgspec.to_builtins(whole.letter)
    for name, content in (("key", whole.key), ("value", whole.value)):
        del plain[name]
        plain |= _content(name, content)
    plain["headers"] = [{"name": name, **_content("value", value)} for name, value in whole.headers]
    return plain


def _content(name: str, content: bytes | None) -> dict[str, object]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(content).decode()}


def _print(letters: Sequence[Letter], topic: str, limit: int, *, all_of_them: bool) -> None:
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


def _print_whole(whole: Whole) -> None:
    from rich.console import Console
    from rich.text import Text

    console, value = Console(soft_wrap=True), whole.value
    for name, text in _lines(whole):
        console.print(Text(f"{name:10} ", style="dim") + Text(text))
    console.print()
    console.print(
        Text("no value (a tombstone)" if value is None else value.decode("utf-8", "backslashreplace"))
    )


def _lines(whole: Whole) -> Iterator[tuple[str, str]]:
    letter = whole.letter
    yield "at", f"{letter.partition}:{letter.offset}, written {_time(letter.timestamp)}"
    yield "from", f"{_origin(letter)}, of {_time(letter.source_timestamp)}"
    yield "stage", letter.stage
    yield "reason", letter.reason
    yield "key", "none" if whole.key is None else whole.key.decode("utf-8", "backslashreplace")
    for name, value in whole.headers:
        yield "header", f"{name}: {'none' if value is None else value.decode('utf-8', 'backslashreplace')}"


def _origin(letter: Letter) -> str:
    return f"{letter.source_topic}/{letter.source_partition}:{letter.source_offset}"


def _time(milliseconds: int | None) -> str:
    return "no time" if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()
