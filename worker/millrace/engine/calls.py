"""What a chain is busy with at one moment, for somebody who looks on from another thread.

Nobody keeps a clock for it: a call is told by its mark, and who looks twice and finds the same mark knows that nothing has
come of it in between. So calls cost the chain next to nothing, and the one who looks decides what is long.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from types import FrameType

FRAMES = 100  # of a stack, the innermost


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a stage's function that is under way; or work on a batch, where no single call can be told.

    Attributes:
        partition, first, last: source messages that it is about, by their offsets.
        mark: equal in two looks only if it is the same call, and nothing has come of it in between.
        stack: where it is, as Python writes tracebacks; may take a second, and is not to be asked for without need.
        allowed: seconds after which the stage itself ends it; 0: it never does.
        holding: it has a thread or a process to itself, and does not wait for others of them.
    """

    stage: str
    partition: int
    first: int
    last: int
    mark: Hashable
    stack: Callable[[], str]
    allowed: float = 0.0
    holding: bool = True


def thread_stack(thread: int) -> str:
    """Where a thread of this process is; "" if it is no more."""
    frame = sys._current_frames().get(thread)
    return "" if frame is None else "".join(traceback.format_stack(frame, FRAMES))


def frames_stack(frames: Iterable[FrameType]) -> str:
    """The same of frames that are known, outermost first: a coroutine that waits is on no thread."""
    found = list(frames)[-FRAMES:]
    return "".join(traceback.StackSummary.extract((frame, frame.f_lineno) for frame in found).format())
