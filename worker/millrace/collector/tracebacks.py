"""Failures of user code that reach the driver as text: a UDF's from an executor, foreachBatch's through Java."""

from __future__ import annotations

import re
from pathlib import Path

from millrace.errors import ExitCode, MillraceError

_BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>.+)$')
_ERROR = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: (?P<text>.*))?$")
_OURS = ("site-packages", "/pyspark/", "pyspark.zip", "/py4j/", "/millrace/")


def user_failure(said: str, name: str, where: str) -> MillraceError | None:
    """What a traceback in the text says of the user's function; None if there is none, or none with user code in it.

    Args:
        name: `module:name` of the stage's function.
        where: its path in the manifest.
    """
    for block in reversed(said.split(_BEGIN)[1:]):  # the last is the cause of those before
        frames, error, text = _read(block)
        own = [frame for frame in frames if not any(part in frame["file"] for part in _OURS)]
        if error == "ModuleNotFoundError" and not own:
            return MillraceError(
                f"Python on Spark's executors lacks a module for {name}: {text}",
                where=where,
                remedy="install it for the Python that runs Millrace: pip install 'millrace[spark]' has what Spark needs",
                code=ExitCode.FUNCTION,
            )
        if own and error:
            last = own[-1]
            at = f"{Path(last['file']).name}:{last['line']}, in {last['name']}"
            return MillraceError(
                f"{name} failed: {error}{f': {text}' if text else ''} ({at})",
                where=where,
                remedy="mend the function; the batch is done again at the next start",
                code=ExitCode.STAGE_FAILED,
            )
    return None


def _read(block: str) -> tuple[list[re.Match[str]], str, str]:
    """Frames, type and text of the error of one traceback."""
    frames: list[re.Match[str]] = []
    for line in block.splitlines():
        if frame := _FRAME.match(line):
            frames.append(frame)
        elif frames and line and not line.startswith(" "):
            error = _ERROR.match(line)
            return (
                (frames, error["type"].rpartition(".")[2], (error["text"] or "")[:300])
                if error
                else (frames, "", "")
            )
    return frames, "", ""
