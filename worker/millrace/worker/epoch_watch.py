"""The epoch as the control plane publishes it to a worker: a file that is replaced as a whole.

In a local run the parent writes it; on a cluster it is a mounted ConfigMap, which the kubelet also replaces in one
step. A look costs one stat(2); the file is read only when it is another one than last time.
"""

from __future__ import annotations

from pathlib import Path

from millrace.clock import Clock
from millrace.ownership.epoch import Epoch

LOOK_EVERY = 0.2  # seconds; a new epoch is seen within this


class EpochWatch:
    """The newest epoch in the file, as a callable: what the replica asks for its view."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._look_at = clock.monotonic()
        self._seen: tuple[int, int, int] | None = None
        self._epoch: Epoch | None = None

    def __call__(self) -> Epoch | None:
        """None while there is no file. Raises EpochError if the file holds something else."""
        now = self._clock.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY
            self._look()
        return self._epoch

    def _look(self) -> None:
        try:
            found = self._path.stat()
            identity = (found.st_ino, found.st_mtime_ns, found.st_size)
            if identity == self._seen:
                return
            text = self._path.read_text(errors="replace")
        except OSError:
            return  # not there yet, or just being replaced: the view stays as it is
        self._epoch = Epoch.decode(text, where=str(self._path))
        self._seen = identity
