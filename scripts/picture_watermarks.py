"""Draw docs/watermarks.svg: python scripts/picture_watermarks.py FILE

What is drawn is computed by watermark_story, and the same each time; a test sees that the file is current.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from watermark_story import LATENESS, PARTITIONS, SIZE, Bar, Batch, Kind, Record, run

WIDTH, HEIGHT = 1200, 880
LEFT, RIGHT = 78, 1050
TOP, BOTTOM = 118, 590  # of the upper part
BARS = 668  # where the lower part begins
BAR = 24
FIRST, LAST = -22, 166  # minutes that are drawn
INK, SOFT, PALE, PAPER = "#1f2933", "#5b6770", "#d5dbe0", "#ffffff"
CLOSED, LATE = "#e9edf0", "#c8321e"
COLOURS = ("#0072b2", "#d98200", "#00876c")  # told apart by the colour-blind, too (after Okabe and Ito)

STYLE = f"""
text {{ font-family: system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif; fill: {INK}; }}
.title {{ font-size: 22px; font-weight: 600; }}
.lead {{ font-size: 13.5px; fill: {SOFT}; }}
.axis {{ font-size: 12px; fill: {SOFT}; }}
.note {{ font-size: 12.5px; }}
.small {{ font-size: 11.5px; fill: {SOFT}; }}
.strong {{ font-weight: 600; fill: {INK}; }}
"""


def picture() -> str:
    batches, bars = run()
    drawing = Drawing(batches, bars)
    body = "\n".join(drawing.parts())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="How marks and watermarks move">\n<style>{STYLE}</style>\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="12" fill="{PAPER}"/>\n{body}\n</svg>\n'
    )


class Drawing:
    def __init__(self, batches: Sequence[Batch], bars: Sequence[Bar]) -> None:
        self._batches, self._bars = batches, bars
        self._places = batches[-1].end + 1

    def parts(self) -> Iterator[str]:
        yield from self._head()
        yield from self._grid()
        yield from self._watermark()
        yield from self._latest()
        for batch in self._batches:
            for record in batch.records:
                yield self._record(record)
        yield from self._notes()
        yield from self._windows()

    # -- where things are ----------------------------------------------------------------------------------------

    def x(self, place: float) -> float:
        return LEFT + (place + 0.5) * (RIGHT - LEFT) / self._places

    def y(self, minutes: float) -> float:
        return BOTTOM - (min(minutes, LAST) - FIRST) * (BOTTOM - TOP) / (LAST - FIRST)

    def boundary(self, batch: Batch) -> float:
        """Between a batch and the next."""
        return self.x(batch.end)

    # -- what is drawn, from back to front -----------------------------------------------------------------------

    def _head(self) -> Iterator[str]:
        yield text(36, 42, "How marks and watermarks move", "title")
        yield text(
            36, 65,
            "Dots are rows of the channel: up is their event time, right the order in which the collector reads them. "
            f"Lateness: {LATENESS} minutes.",
            "lead",
        )  # fmt: skip
        left = 36.0
        for partition, name in enumerate(("partition 0", "partition 1", "partition 2")):
            yield dot(left + 5, 89, COLOURS[partition])
            yield line(left + 14, 89, left + 34, 89, COLOURS[partition], 2)
            yield text(left + 40, 93, name, "note")
            left += 122
        yield text(left - 4, 93, "rows, and the latest so far", "small")
        left += 164
        yield diamond(left + 5, 89, SOFT)
        yield text(left + 16, 93, "progress mark", "note")
        left += 118
        yield ring(left + 5, 89, SOFT)
        yield text(left + 16, 93, "idle mark", "note")
        left += 88
        yield arrow(left + 5, 94, 82, SOFT)
        yield text(left + 16, 93, "end mark", "note")
        left += 88
        yield cross(left + 5, 89)
        yield text(left + 16, 93, "late row", "note")
        left += 82
        yield line(left, 89, left + 26, 89, INK, 3.5)
        yield text(left + 33, 93, "watermark of the query", "note")

    def _grid(self) -> Iterator[str]:
        for minutes in range(0, LAST, SIZE):
            y = self.y(minutes)
            yield line(LEFT, y, RIGHT, y, PALE, 1)
            yield text(LEFT - 10, y + 4, clock(minutes), "axis", "end")
            if minutes + SIZE < LAST:
                middle = self.y(minutes + SIZE / 2) + 4
                yield text(RIGHT + 14, middle, f"window {clock(minutes)}", "axis")
        yield text(14, TOP + 4, "event time", "axis")
        for number, batch in enumerate(self._batches, 1):
            if number < len(self._batches):
                yield line(self.boundary(batch), TOP, self.boundary(batch), BOTTOM, PALE, 1, "3 4")
            yield text(
                self.x((batch.begin + batch.end - 1) / 2), BOTTOM + 20, f"batch {number}", "axis", "middle"
            )
        yield text(RIGHT + 14, BOTTOM + 20, "order of reading", "axis")

    def _watermark(self) -> Iterator[str]:
        points: list[tuple[float, float]] = []
        level = float(FIRST)
        for batch in self._batches:
            if batch.watermark is None or batch.watermark <= level:
                continue
            x = self.boundary(batch)
            points += [(x, self.y(level)), (x, self.y(batch.watermark))]
            level = batch.watermark
        points.append((RIGHT, self.y(level)))
        below = [*points, (RIGHT, BOTTOM)]
        yield f'<polygon points="{joined(below)}" fill="{CLOSED}"/>'
        for minutes in range(0, LAST, SIZE):  # the grid shows through
            yield line(LEFT, self.y(minutes), RIGHT, self.y(minutes), PALE, 0.6)
        yield polyline(points, INK, 3.5)
        for bar in self._bars:
            x, y = self.x(bar.written), self.y(bar.start + SIZE)
            yield f'<circle cx="{n(x)}" cy="{n(y)}" r="5.5" fill="{PAPER}" stroke="{INK}" stroke-width="2.5"/>'

    def _latest(self) -> Iterator[str]:
        for partition in range(PARTITIONS):
            mine = self._mine(partition)
            points: list[tuple[float, float]] = []
            for record in mine:
                if record.kind in (Kind.FINISH, Kind.LATE):
                    continue
                if points:
                    points.append((self.x(record.at), points[-1][1]))
                points.append((self.x(record.at), self.y(record.latest)))
            ended = next(one for one in mine if one.kind is Kind.FINISH)
            points.append((self.x(ended.at), points[-1][1]))
            yield polyline(points, COLOURS[partition], 2, 0.55)

    def _record(self, record: Record) -> str:
        x, colour = self.x(record.at), COLOURS[record.partition]
        y = self.y(record.time)
        if record.kind is Kind.ROW:
            return dot(x, y, colour)
        if record.kind is Kind.PROGRESS:
            return diamond(x, y, colour)
        if record.kind is Kind.IDLE:
            return ring(x, y, colour)
        if record.kind is Kind.LATE:
            limit = self.y(record.latest - LATENESS)
            return (
                line(x, y - 6, x, limit, LATE, 1.2, "2 3")
                + line(x - 7, limit, x + 7, limit, LATE, 1.6)
                + cross(x, y)
            )
        before = max(one.latest for one in self._mine(record.partition) if one.at < record.at)
        return line(x, self.y(before), x, TOP + 12, colour, 2, "", 0.55) + arrow(x, TOP + 14, TOP + 1, colour)

    # -- what is said --------------------------------------------------------------------------------------------

    def _notes(self) -> Iterator[str]:
        late = self._first(Kind.LATE)
        x, y = self.x(late.at), BOTTOM - 72
        yield line(x, self.y(late.time) + 8, x, y - 16, LATE, 1)
        yield from said(
            x + 6, y,
            [("late:", LATE), (f" {late.latest - late.time} min behind the latest of its own partition.", INK)],
            ["The worker counts it, or makes it a dead letter;", "it is never in the channel."],
        )  # fmt: skip
        third, fifth, sixth = self._batches[2], self._batches[4], self._batches[5]
        slowest = self._latest_of(1, fifth)
        yield from said(self.x(third.begin + 6), self.y(slowest) + 19, [("stands still", COLOURS[1])], [])
        yield from said(
            self.boundary(third) + 8, self.y(fifth.watermark or 0) + 20, [("waits for", INK)], ["the slowest"]
        )
        yield from said(
            self.x(sixth.begin) + 6, self.y(slowest) + 22,
            [("back with a backlog:", COLOURS[1])],
            ["far behind the others,", "but not late"],
        )  # fmt: skip
        yield from said(
            self.x(self._first(Kind.IDLE).at) - 300, self.y(LAST) + 30,
            [("idle:", COLOURS[2]), (" partition 2 has run dry, and promises", INK)],
            ["what those that are being read have come to"],
        )  # fmt: skip
        yield text(RIGHT - 8, BOTTOM - 12, "below: closed, and written", "small", "end")

    def _latest_of(self, partition: int, batch: Batch) -> int:
        """When a batch is done."""
        return max(one.latest for one in self._mine(partition) if one.at < batch.end)

    def _mine(self, partition: int) -> list[Record]:
        return [one for batch in self._batches for one in batch.records if one.partition == partition]

    def _first(self, kind: Kind) -> Record:
        return next(one for batch in self._batches for one in batch.records if one.kind is kind)

    def _windows(self) -> Iterator[str]:
        yield text(36, BARS - 22, "What becomes of the windows", "note strong")
        yield text(
            270, BARS - 22,
            "open from their first row until the watermark has reached their end; then written, once",
            "small",
        )  # fmt: skip
        reached = set[float]()
        for row, bar in enumerate(self._bars):
            y = BARS + row * (BAR + 9)
            x, end = self.x(bar.first), self.x(bar.written)
            yield text(LEFT - 10, y + 16, clock(bar.start), "axis", "end")
            yield f'<rect x="{n(x)}" y="{n(y)}" width="{n(end - x)}" height="{BAR}" rx="5" fill="#cfe3ef"/>'
            yield line(end, y - 2, end, y + BAR + 2, INK, 3.5)
            yield text(x + 10, y + 16, "open", "small")
            yield text(end - 12, y + 16, f"{bar.rows} rows, written after batch {bar.batch}", "note", "end")
            if end not in reached:
                yield line(end, BOTTOM + 28, end, y - 2, SOFT, 1, "2 4")
                reached.add(end)


def clock(minutes: int) -> str:
    return f"{8 + minutes // 60:02}:{minutes % 60:02}"


def n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def joined(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{n(x)},{n(y)}" for x, y in points)


def text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    return f'<text x="{n(x)}" y="{n(y)}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def said(x: float, y: float, first: Sequence[tuple[str, str]], more: Sequence[str]) -> Iterator[str]:
    """A note of some lines; the first in pieces of different colours. With a rim, so that it can be read on anything."""
    rim = f'stroke="{PAPER}" stroke-width="4" stroke-linejoin="round" paint-order="stroke"'
    pieces = "".join(
        f'<tspan style="fill:{colour}" font-weight="{600 if colour != INK else 400}">{escape(words)}</tspan>'
        for words, colour in first
    )
    yield f'<text x="{n(x)}" y="{n(y)}" class="note" xml:space="preserve" {rim}>{pieces}</text>'
    for row, words in enumerate(more, 1):
        yield f'<text x="{n(x)}" y="{n(y + 16 * row)}" class="note" {rim}>{escape(words)}</text>'


def line(
    x: float,
    y: float,
    to_x: float,
    to_y: float,
    colour: str,
    width: float,
    dashes: str = "",
    opacity: float = 1,
) -> str:
    more = (f' stroke-dasharray="{dashes}"' if dashes else "") + (
        f' opacity="{opacity}"' if opacity < 1 else ""
    )
    return (
        f'<line x1="{n(x)}" y1="{n(y)}" x2="{n(to_x)}" y2="{n(to_y)}" stroke="{colour}" '
        f'stroke-width="{width}"{more}/>'
    )


def polyline(points: Sequence[tuple[float, float]], colour: str, width: float, opacity: float = 1) -> str:
    return (
        f'<polyline points="{joined(points)}" fill="none" stroke="{colour}" stroke-width="{width}" '
        f'stroke-linejoin="round" opacity="{opacity}"/>'
    )


def dot(x: float, y: float, colour: str) -> str:
    return f'<circle cx="{n(x)}" cy="{n(y)}" r="4.2" fill="{colour}" stroke="{PAPER}" stroke-width="1.2"/>'


def diamond(x: float, y: float, colour: str) -> str:
    points = [(x, y - 6.5), (x + 6.5, y), (x, y + 6.5), (x - 6.5, y)]
    return f'<polygon points="{joined(points)}" fill="{PAPER}" stroke="{colour}" stroke-width="2.2"/>'


def ring(x: float, y: float, colour: str) -> str:
    return (
        f'<circle cx="{n(x)}" cy="{n(y)}" r="6.5" fill="{PAPER}" stroke="{colour}" stroke-width="2.2"/>'
        f'<circle cx="{n(x)}" cy="{n(y)}" r="2" fill="{colour}"/>'
    )


def arrow(x: float, y: float, to_y: float, colour: str) -> str:
    points = [(x, to_y), (x + 6, to_y + 9), (x - 6, to_y + 9)]
    return line(x, y, x, to_y + 8, colour, 2.2) + f'<polygon points="{joined(points)}" fill="{colour}"/>'


def cross(x: float, y: float) -> str:
    return (
        f'<path d="M{n(x - 5)} {n(y - 5)}L{n(x + 5)} {n(y + 5)}M{n(x + 5)} {n(y - 5)}L{n(x - 5)} {n(y + 5)}" '
        f'stroke="{LATE}" stroke-width="2.6" stroke-linecap="round"/>'
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture())
