"""The end of a bounded run, as a file that whoever starts the worker has written."""

from __future__ import annotations

import os
from pathlib import Path

from millrace.engine.bounds import Bounds, BoundsError


def read_bounds(path: Path) -> Bounds:
    """Raises BoundsError if the file can't be read, or holds something else."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = os.strerror(error.errno or 0) if isinstance(error, OSError) else error.reason
        raise BoundsError(
            f"can't read the end of the run: {why}",
            where=str(path),
            remedy="give the file that `millrace run --until-end` has made, or leave --until out",
        ) from error
    return Bounds.decode(text, where=str(path))
