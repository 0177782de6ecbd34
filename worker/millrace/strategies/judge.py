"""What becomes of a message that a stage could not process: a dead letter, or the end of the run.

One rule for all stages. Whatever user code raises passes through here, so an exception of user code can't be taken
for one of the framework's own, whatever its type.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path

from millrace.connectivity.ports import Record
from millrace.engine.batch import DeadLetter
from millrace.errors import StageFailed
from millrace.message import Invalid

REASON_LENGTH = 500  # characters: a reason travels in a header, beside the message


class Stuck(Exception):
    """Calls of a stage's function go on and on and can't be ended: the worker has to be."""


@dataclass(frozen=True, slots=True)
class Judge:
    """The policy of one stage.

    Attributes:
        stage: its name in the manifest.
        dead_letters: whether the pipeline has a `deadLetter` topic. Without it every failure stops the worker.
        on_error_dead_letter: the stage's onError is DeadLetter. `Invalid` is a dead letter in any case.
    """

    stage: str
    dead_letters: bool = False
    on_error_dead_letter: bool = False

    def judge(self, error: Exception, record: Record) -> DeadLetter | StageFailed:
        """Decide about `record`, at which the stage raised `error`. A StageFailed has it as its cause."""
        invalid = isinstance(error, Invalid)
        if (
            self.dead_letters
            and (invalid or self.on_error_dead_letter)
            and not isinstance(error, (MemoryError, Stuck))
        ):
            return DeadLetter(record, self.stage, reason(error))
        what = reason(error) if invalid else f"{reason(error)}{_origin(error)}"
        if invalid:
            remedy = (
                "give the pipeline a deadLetter topic to go on past such messages, or mend what makes them"
            )
        elif isinstance(error, Stuck):
            remedy = "give what the function waits for a time limit of its own"
        else:
            remedy = "mend the function; `onError: DeadLetter` sends such messages to the dead-letter topic instead"
            remedy += "" if self.dead_letters else ", which the pipeline needs for that (spec.deadLetter)"
        failure = StageFailed(
            what, stage=self.stage, partition=record.partition(), offset=record.offset(), remedy=remedy
        )
        failure.__cause__ = error
        return failure


def reason(error: Exception) -> str:
    """The error in one line: the text of an Invalid as it is, of any other with its type before it."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - an exception of user code may fail even at this
        text = "(its text can't be had)"
    if not isinstance(error, Invalid):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text[:REASON_LENGTH] or "invalid"


def _origin(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    inside = frames[-1] if frames else None
    if inside is None or Path(inside.filename).parent == Path(__file__).parent:
        return ""  # raised by C code called from here: nothing that the reader could open
    return f" ({Path(inside.filename).name}:{inside.lineno}, in {inside.name})"
