"""Which records of the channel are no longer needed: pure.

A partition's history is a list of steps, which rise in offset and in time. Below a step's offset no record is later than
its time. So when the last window that such a record can be in is closed, and written, all records below may be deleted:
this query is done with them, and one that begins anew leaves their windows out (`versions`). The highest such step makes
the partition's floor. Its mark is kept: it tells the one who begins anew how far the partition has come.

Steps that lie close together in time are one, the last: closer than a slide of the windows, or than a fraction of the
time that windows are open. A history is bounded: what is forgotten of it only lets records live longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millrace.channel import wire
from millrace.collector.progress import Step
from millrace.collector.query import Window

LONGEST = 32
"""Steps in a history: of one that is full, every second is forgotten."""

History = tuple[Step, ...]


def extended(history: History, step: Step, window: Window) -> History:
    """The history when the partition has come to this step too; no further than the last one in any respect: as it was."""
    if history and (step.offset <= history[-1].offset or step.time < history[-1].time):
        return history
    width = max(window.step, (window.open_for + window.late_after) * 2 // LONGEST)
    if history and history[-1].time // width == step.time // width:
        history = history[:-1]
    longer = (*history, step)
    # the last is kept, it is what the next one is compared with; and the first, it is the next to pass
    return longer if len(longer) <= LONGEST else (*longer[:-1:2], step)


def floor(history: Iterable[Step], closed: int, window: Window) -> int | None:
    """An offset, of a mark, below which all records belong to windows that end by `closed` (those are closed, and
    written); None: none is known.
    """
    if window.size is None:
        return None  # only its function knows
    all_ended = closed >= wire.END - window.late_after
    passed = [
        step.offset - 1
        for step in history
        if (all_ended and step.time == wire.END) or window.last_end(step.time) <= closed
    ]
    return max(passed, default=None)


def above(history: History, offset: int) -> History:
    """The history without what is of use only for records below this offset."""
    return tuple(step for step in history if step.offset > offset)


def rising(floors: Mapping[int, int], before: Mapping[int, int]) -> dict[int, int]:
    """Those floors that are higher than the first offsets that are there."""
    return {p: offset for p, offset in floors.items() if offset > before.get(p, 0)}
