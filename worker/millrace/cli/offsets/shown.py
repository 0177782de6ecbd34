"""How offsets, and changes of them, are printed."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from millrace.cli.offsets.answers import OURS, Changes, Offsets
from millrace.local.view.figures import count, plural
from millrace.ownership.claim import OP

_WIDE = 200  # columns, where nobody cuts lines


@dataclass(frozen=True, slots=True)
class Words:
    """How things are called where the pipeline runs: the command, who works, and what follows a change."""

    command: str
    workers: str
    then: str


LOCAL: Final = Words("millrace offsets", "the run writes", "the next run begins there")
CLUSTER: Final = Words("kubectl millrace offsets", "its workers write", "the pipeline goes on there")


def offsets(answer: Offsets, words: Words, as_json: bool) -> None:
    if as_json:
        _json(answer)
        return
    console = _console()
    table = _table(
        "partition", "holder", "epoch", "offset", "group", "difference", "beginning", "end", "lag", ""
    )
    for row in answer.partitions:
        note = "" if row.standing == OURS else f"{row.standing}{f' ({row.uid})' if row.uid else ''}"
        table.add_row(
            str(row.partition),
            _holder(row.holder),
            _figure(row.epoch),
            _figure(row.offset),
            _figure(row.group_offset),
            _difference(row.difference) if row.difference else "",
            _figure(row.beginning),
            _figure(row.end),
            _figure(row.lag),
            Text(note, style="red"),
        )
    console.print(table)
    lag = sum(row.lag or 0 for row in answer.partitions)
    console.print(
        Text(
            f"{answer.topic}, group {answer.group}, epoch {answer.epoch}, lag {count(lag)}",
            style="dim",
        )
    )
    if any(row.difference for row in answer.partitions):
        console.print(
            f"The offsets of group {answer.group} were changed from outside, which changes nothing by itself; "
            + (
                f"{words.workers} over them."
                if answer.running
                else f"`{words.command} reset --from-group` makes it so."
            )
        )
    if answer.damaged:
        console.print(f"Claims that are lost, or not ours, are written anew by `{words.command} repair`.")


def changes(answer: Changes, words: Words, as_json: bool) -> None:
    if as_json:
        _json(answer)
        return
    console = _console()
    if not answer.changes:
        console.print("nothing to change: the claims say these offsets already")
        return
    table = _table("partition", "from", "to", "difference", "left", "")
    for change in answer.changes:
        table.add_row(
            str(change.partition),
            _figure(change.before),
            _figure(change.after),
            _difference(change.difference) if change.difference is not None else "",
            _figure(change.left),
            Text(f"was {change.why}" if change.why else "", style="red"),
        )
    console.print(table)
    for line in answer.consequences:
        console.print(Text(line, style="dim"))
    done = f"{plural(len(answer.changes), 'partition')} {'would be set' if answer.dry_run else 'set'}"
    console.print(f"{done}; nothing was changed (--dry-run)" if answer.dry_run else f"{done}; {words.then}")


def _holder(holder: int | None) -> str:
    return "" if holder is None else "parked" if holder == OP else f"worker {holder}"


def _figure(number: int | None) -> str:
    return "" if number is None else count(number)


def _difference(number: int) -> str:
    return f"{number:+,}"


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in heads:
        table.add_column(head, justify="left" if head in ("holder", "") else "right", no_wrap=True)
    return table


def _console() -> Console:
    terminal = sys.stdout.isatty()
    return Console(width=None if terminal else _WIDE, soft_wrap=not terminal, highlight=False)


def _json(answer: object) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(answer)).decode() + "\n")
