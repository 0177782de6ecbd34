"""The live view of a local run: a pure function of its snapshot and of the room there is.

From top to bottom: what runs and how far it has come; who owns which partition, each with its lag; the stages with
their rates; what happened lately. It fits 80 x 24 and grows with the window; what does not fit is summed up, the
partitions with the largest lag last to go. Nothing moves but the figures: every part has its place and height.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from millrace.local.view.figures import count, percent, plural, short, span
from millrace.local.view.plain import collected
from millrace.local.view.snapshot import (
    CollectorSnapshot,
    Notice,
    PartitionSnapshot,
    RunSnapshot,
    StageSnapshot,
    WorkerSnapshot,
)

_STATE_STYLE = {
    "starting": "yellow",
    "waiting": "yellow",
    "running": "green",
    "draining": "cyan",
    "finished": "bold green",
    "stopped": "cyan",
    "restarting": "yellow",
    "stuck": "bold yellow",
    "failed": "bold red",
}
_LEVEL_STYLE = {"info": "dim", "warning": "yellow", "error": "red"}
_HEAT = ("green", "cyan", "cyan", "blue", "magenta", "yellow", "yellow", "bright_yellow")
_BLOCKS = "▁▂▃▄▅▆▇█"
_CELL = 10  # columns of one partition: number, heat, lag
_NAME = 24  # columns of a worker's name and state
_LAG = 11  # columns of a lag written out
_WIDE = 78  # columns from which on the stages' figures are written out
_OPERATOR = -1
_HEADER, _TOTALS = 4, 2  # lines
_NOTICES = 4  # lines for what happened lately that nothing else may take


def view(snapshot: RunSnapshot) -> RenderableType:
    """What the terminal shows of this moment. Asks the console for its size, and for nothing else."""
    return _View(snapshot)


class _View:
    def __init__(self, snapshot: RunSnapshot) -> None:
        self._snapshot = snapshot

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        run = self._snapshot
        height = options.height or console.size.height
        width = options.max_width
        stages = _stages(run, width)
        height -= 1  # the line of the cursor
        fixed = _HEADER + (len(run.stages) + 2 if stages is not None else 0) + _TOTALS
        fixed += run.collector is not None
        keep = min(len(run.notices), _NOTICES)
        owners, lines = _owners(run, width, max(3, height - fixed - keep))
        left = height - fixed - lines
        parts: list[RenderableType] = [_header(run), owners]
        if stages is not None:
            parts.append(stages)
        parts.append(_totals(run))
        if run.collector is not None:
            parts.append(_collector(run.collector))
        if run.notices and left > 0:
            parts.append(_notices(run.notices[-left:]))
        yield Group(*parts)


def _header(run: RunSnapshot) -> RenderableType:
    where = f"{'embedded ' if run.embedded else ''}{run.kafka}" if run.kafka else ""
    facts = [
        *([where] if where else []),
        *([run.delivery] if run.delivery else []),
        plural(run.replicas, "worker"),
        *([plural(len(run.partitions), "partition")] if run.partitions else []),
        *([f"epoch {run.epoch}"] if run.epoch is not None else []),
    ]
    grid = Table.grid(expand=True, padding=(0, 1))
    grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(*_progress(run))
    style = _STATE_STYLE.get(run.state, "")
    said = f"{run.state}: {run.phase}" if run.phase else run.state
    return Panel(
        Group(Text("  ".join(facts), style="dim", no_wrap=True, overflow="ellipsis"), grid),
        title=Text.assemble((run.pipeline, "bold"), "  ", (f"● {said}", style), f"  {span(run.elapsed)}"),
        title_align="left",
        border_style="dim",
        padding=(0, 1),
    )


def _progress(run: RunSnapshot) -> tuple[RenderableType, RenderableType]:
    fraction = run.fraction
    if fraction is None:
        idle = run.lag == 0 and run.partitions
        return Text(
            "up to date" if idle else f"{count(run.lag)} behind", style="green" if idle else ""
        ), Text(f"{count(run.rate)} messages/s")
    bar = ProgressBar(total=1.0, completed=fraction, complete_style="green", finished_style="green")
    eta = "done" if fraction >= 1 else (f"ETA {span(run.eta)}" if run.eta is not None else "ETA -:--:--")
    return bar, Text.assemble((f"{percent(fraction):>6}", "bold"), f"  {eta}")


@dataclass(frozen=True, slots=True)
class _Row:
    """An owner: what is shown of it, and how much it wants to be seen."""

    name: Text
    cells: Text
    held: Sequence[PartitionSnapshot]
    calm: bool

    @property
    def lag(self) -> int:
        return sum(partition.lag for partition in self.held)

    @property
    def lines(self) -> int:
        return self.cells.plain.count("\n") + 1


def _owners(run: RunSnapshot, width: int, room: int) -> tuple[RenderableType, int]:
    """The table of owners, and how many lines it takes (its head included; at most `room`)."""
    rows = _rows(run, max(_CELL, width - _NAME - _LAG - 4))
    shown = _choose(rows, room - 1)
    table = Table(box=None, expand=True, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("owner", width=_NAME, no_wrap=True, overflow="ellipsis")
    table.add_column("partition and lag", ratio=1)
    table.add_column("lag", justify="right", width=_LAG, no_wrap=True)
    for row in shown:
        table.add_row(row.name, row.cells, Text(count(row.lag), style="" if row.lag else "green"))
    lines = 1 + sum(row.lines for row in shown)
    hidden = [row for row in rows if row not in shown]
    if hidden:
        lag = count(sum(row.lag for row in hidden))
        table.add_row(Text(f"  + {len(hidden):,} more", style="dim"), Text(), Text(lag, style="dim"))
        lines += 1
    return table, lines


def _rows(run: RunSnapshot, columns: int) -> list[_Row]:
    """Workers by index; after them whoever else holds a claim: the operator, a worker that is to leave, nobody."""
    held: dict[int | None, list[PartitionSnapshot]] = {}
    for partition in run.partitions:
        held.setdefault(partition.holder, []).append(partition)
    peak = max((partition.lag for partition in run.partitions), default=0)
    rows = []
    for worker in run.workers:
        mine = held.pop(worker.index, [])
        calm = worker.state in ("running", "stopped")
        rows.append(_Row(_worker(worker), _cells(mine, columns, peak), mine, calm))
    for holder, mine in held.items():
        name = "operator" if holder == _OPERATOR else "unclaimed" if holder is None else f"worker {holder}"
        rows.append(_Row(Text(f"○ {name}", style="yellow"), _cells(mine, columns, peak), mine, calm=False))
    return rows


def _choose(rows: Sequence[_Row], room: int) -> Sequence[_Row]:
    """As many as there is room for, in their order: those in trouble are kept first, then those furthest behind."""
    if sum(row.lines for row in rows) <= room:
        return rows
    keep, left = set[int](), room - 1  # one line says how many there are more
    for at in sorted(range(len(rows)), key=lambda at: (rows[at].calm, -rows[at].lag, at)):
        if rows[at].lines <= left:
            keep.add(at)
            left -= rows[at].lines
    return [row for at, row in enumerate(rows) if at in keep]


def _worker(worker: WorkerSnapshot) -> Text:
    style = _STATE_STYLE.get(worker.state, "")
    text = Text.assemble(("● " if worker.state == "running" else "○ ", style), f"worker {worker.index} ")
    if worker.detail or worker.state != "running":
        text.append(worker.detail or worker.state, style=style)
    return text


def _cells(partitions: Sequence[PartitionSnapshot], columns: int, peak: int) -> Text:
    """Each partition with number, heat and lag on up to two lines; a strip of heat when there are more."""
    per_line = max(1, columns // _CELL)
    text = Text()
    if len(partitions) <= per_line * 2:
        for at, partition in enumerate(partitions):
            if at and at % per_line == 0:
                text.append("\n")
            block, style = _heat(partition, peak)
            text.append(f"{partition.partition:>3} ", style="dim")
            text.append(block, style=style)
            text.append(f" {short(partition.lag):<{_CELL - 6}}", style=style)
        return text
    fitting = columns * 2 - 8
    for at, partition in enumerate(partitions[:fitting]):
        if at and at % columns == 0:
            text.append("\n")
        text.append(*_heat(partition, peak))
    if len(partitions) > fitting:
        text.append(f" +{len(partitions) - fitting}", style="dim")
    return text


def _heat(partition: PartitionSnapshot, peak: int) -> tuple[str, str]:
    if partition.position is None:
        return "?", "yellow"
    if not partition.lag or not peak:
        return _BLOCKS[0], _HEAT[0]
    level = min(len(_BLOCKS) - 1, max(1, partition.lag * len(_BLOCKS) // (peak + 1)))
    return _BLOCKS[level], _HEAT[level]


def _stages(run: RunSnapshot, width: int) -> RenderableType | None:
    if not run.stages:
        return None
    table = Table(box=None, expand=True, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("\nstage", width=_NAME, no_wrap=True, overflow="ellipsis")
    wide = ("msgs/s", "received", "emitted", "dead", "µs each")
    for head in wide if width >= _WIDE else ("msg/s", "in", "out", "dead", "µs"):
        table.add_column(f"\n{head}", justify="right", no_wrap=True, ratio=1)
    figure = count if width >= _WIDE else short
    for stage in run.stages:
        table.add_row(*_stage(stage, figure))
    return table


def _stage(stage: StageSnapshot, figure: Callable[[float], str]) -> tuple[Text, ...]:
    name = Text.assemble(f"  {stage.name}", (f" {stage.kind}" if stage.kind != stage.name else "", "dim"))
    each = stage.seconds / stage.received * 1e6 if stage.received else 0.0
    return (
        name,
        Text(figure(stage.rate), style="bold" if stage.rate else "dim"),
        Text(figure(stage.received)),
        Text(figure(stage.emitted)),
        Text(figure(stage.dead), style="yellow" if stage.dead else "dim"),
        Text(f"{each:,.1f}" if each else "-", style="dim"),
    )


def _totals(run: RunSnapshot) -> Text:
    restarts, held = sum(worker.restarts for worker in run.workers), run.held_back_by
    text = Text.assemble(
        "\n",
        ("lag ", "dim"), (count(run.lag), "bold"),
        ("   rate ", "dim"), (f"{count(run.rate)}/s", "bold"),
        ("   dead letters ", "dim"), (count(run.dead), "bold yellow" if run.dead else "bold"),
        *([(" (repeats counted)", "dim")] if run.dead and restarts else []),
        *([("   late ", "dim"), (count(run.late), "bold yellow")] if run.late else []),
        *([("   held back by ", "dim"), (f"{held.name} {percent(held.held_back)}", "bold yellow")] if held else []),
        *([("   restarts ", "dim"), (str(restarts), "bold yellow")] if restarts else []),
    )  # fmt: skip
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _collector(collector: CollectorSnapshot) -> Text:
    state, *figures = collected(collector)
    text = Text.assemble(
        ("collector ", "dim"),
        (f"{collector.name} {state}", _STATE_STYLE.get(state, "")),
        no_wrap=True,
        overflow="ellipsis",
    )
    for figure in figures:
        text.append(f"   {figure}")
    if collector.restarts:
        text.append(f"   restarts {collector.restarts}", style="bold yellow")
    return text


def _notices(notices: Sequence[Notice]) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, min_width=len(span(0)))
    grid.add_column(no_wrap=True, overflow="ellipsis")
    for notice in notices:
        grid.add_row(Text(span(notice.at), style="dim"), Text(notice.text, style=_LEVEL_STYLE[notice.level]))
    return grid
