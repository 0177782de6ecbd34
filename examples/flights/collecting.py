"""Where the collector is in its batch, as its folders show it from outside."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

NUMBER = re.compile(r"(\d+)$")  # of a batch: how the name of its folder ends


class Collecting:
    """
    Args:
        results: the folder of the sink.
        checkpoint: Spark's.
        status: the file in which an attempt tells of itself.
    """

    def __init__(self, results: Path, checkpoint: Path, status: Path) -> None:
        self._results, self._checkpoint, self._status = results, checkpoint, status

    def in_place(self, after: int, since: float) -> Mapping[int, Path]:
        """The batches after that one which are among the results, if they were written after that time."""
        return dict(_batches(self._results, "batch=", after, since))

    def pending(self, after: int, since: float) -> Mapping[int, Path]:
        """The batches after that one which are being written, or are written and not in place yet; none that an attempt
        before that time has left.
        """
        beside = _batches(self._results, ".pending-", after, since)
        return dict([*beside, *_batches(self._checkpoint / "pending", "batch=", after, since)])

    def committed(self) -> int:
        """The newest batch that Spark has committed; -1 before the first."""
        try:
            names = [file.name for file in (self._checkpoint / "commits").iterdir()]
        except FileNotFoundError:
            return -1
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def batches(self, pid: int) -> int:
        """How many batches the attempt with this process says it has done: what the run judges it by."""
        try:
            said = json.loads(self._status.read_text())
        except (FileNotFoundError, ValueError):
            return 0
        return int(said["batches"]) if said["pid"] == pid else 0


def whole(pending: Path) -> bool:
    """Whether all files of the folder are written: Spark's tasks have none of theirs aside any more."""
    try:
        return not any(pending.rglob("_temporary")) and any(pending.rglob("*.parquet"))
    except FileNotFoundError:  # it changes as one looks
        return False


def _batches(folder: Path, prefix: str, after: int, since: float) -> Iterator[tuple[int, Path]]:
    try:
        found = list(folder.iterdir())
    except FileNotFoundError:
        return
    for entry in found:
        number = NUMBER.search(entry.name)
        if not entry.name.startswith(prefix) or number is None or int(number[1]) <= after:
            continue
        with contextlib.suppress(FileNotFoundError):  # renamed just now
            if entry.stat().st_mtime > since:
                yield int(number[1]), entry
