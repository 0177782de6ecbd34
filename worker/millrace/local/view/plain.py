"""The local run in plain lines, for logs and pipes: one event a line, and every few seconds how far it has come."""

from __future__ import annotations

from typing import TextIO

from millrace.local.view.figures import count, moment, percent, span
from millrace.local.view.snapshot import CollectorSnapshot, RunSnapshot

EVERY = 3.0  # seconds


class PlainLines:
    """Writes what is new in each snapshot shown to it."""

    def __init__(self, out: TextIO, every: float = EVERY) -> None:
        self._out, self._every = out, every
        self._told = -1.0
        self._next = 0.0
        self._state = ""

    def show(self, snapshot: RunSnapshot) -> None:
        for notice in snapshot.notices:
            if notice.at <= self._told:
                continue
            self._told = notice.at
            self._say(notice.at, f"{notice.level}: {notice.text}" if notice.level != "info" else notice.text)
        if snapshot.state != self._state or snapshot.elapsed >= self._next:
            self._state = snapshot.state
            self._next = snapshot.elapsed + self._every
            self._say(snapshot.elapsed, line(snapshot))

    def _say(self, at: float, text: str) -> None:
        self._out.write(f"{span(at)} {text}\n")
        self._out.flush()


def collected(collector: CollectorSnapshot) -> list[str]:
    """State, and what is known of pace, watermark and lag."""
    parts = [collector.state, f"{count(collector.rate)} rows/s"]
    if collector.watermark:
        parts.append(f"watermark {moment(collector.watermark)}")
    if collector.lag is not None:
        parts.append(f"lag {count(collector.lag)}")
    if collector.late:
        parts.append(f"late {count(collector.late)}")
    if collector.attempts > 1:
        parts.append(f"attempt {collector.attempts}")
    return parts


def line(run: RunSnapshot) -> str:
    """How far it has come, on one line."""
    well = sum(worker.state == "running" for worker in run.workers)
    parts = [f"{run.state}: {run.phase}" if run.phase else run.state]
    if run.fraction is not None:
        parts.append(percent(run.fraction))
    if run.partitions:
        parts += [f"{count(run.rate)} messages/s", f"lag {count(run.lag)}", f"dead letters {count(run.dead)}"]
    if run.workers:
        parts.append(f"workers {well}/{run.replicas}")
    held_back = run.held_back_by
    if held_back is not None:
        parts.append(f"held back by {held_back.name} {percent(held_back.held_back)}")
    if run.late:
        parts.append(f"late {count(run.late)}")
    if run.collector is not None:
        parts.append("collector " + " ".join(collected(run.collector)))
    if run.eta is not None and run.state == "running":
        parts.append(f"ETA {span(run.eta)}")
    return ", ".join(parts)
