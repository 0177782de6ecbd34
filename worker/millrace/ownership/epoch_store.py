"""Where the epoch is published: by compare-and-set, so that two control planes can't overwrite each other's."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from millrace.errors import ExitCode, MillraceError
from millrace.ownership.epoch import Epoch


class EpochConflict(MillraceError):
    """Somebody else has published since this was read. Read again and decide anew."""

    code = ExitCode.BUSY


@dataclass(frozen=True, slots=True)
class Published:
    """An epoch with the version of what holds it (a ConfigMap's resourceVersion, a file's content)."""

    epoch: Epoch
    version: str


class EpochStore(Protocol):
    """Holds one epoch."""

    def read(self) -> Published | None:
        """What is published; None if nothing is yet. Raises EpochError if it can't be understood."""

    def publish(self, epoch: Epoch, expected: str | None) -> Published:
        """Publish if what is there still has the version `expected` (None: nothing is there). It is durable and seen
        whole, or not at all. Raises EpochConflict.
        """


def published(store: EpochStore, uid: str) -> Published:
    """What the store has; epoch 0 of this pipeline is published if that is nothing yet. Raises what the store raises."""
    found = store.read()
    while found is None:
        try:
            found = store.publish(Epoch.first(uid), None)
        except EpochConflict:
            found = store.read()
    return found


class MemoryEpochs:
    """The store of a program that is its own control plane, alone: nobody else can see what is published. When the
    program starts again numbers go on from the claims (`control_rules.next_number`).

    Attributes:
        history: all that was published, in order.
    """

    def __init__(self) -> None:
        self.history: list[Epoch] = []

    def read(self) -> Published | None:
        return Published(self.history[-1], str(len(self.history))) if self.history else None

    def publish(self, epoch: Epoch, expected: str | None) -> Published:
        version = str(len(self.history)) if self.history else None
        if version != expected:
            raise EpochConflict("another epoch was published meanwhile")
        self.history.append(epoch)
        return Published(epoch, str(len(self.history)))

    def newest(self) -> Epoch | None:
        """For workers, which have no use for the version."""
        return self.history[-1] if self.history else None


class EpochFile:
    """The store of a local run: a file, replaced whole by an atomic rename."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Published | None:
        text = self._text()
        return None if text is None else Published(Epoch.decode(text, where=str(self.path)), text)

    def epoch(self) -> Epoch | None:
        """For workers, which have no use for the version."""
        published = self.read()
        return published.epoch if published else None

    def publish(self, epoch: Epoch, expected: str | None) -> Published:
        text = epoch.encode() + "\n"
        with self._alone():
            if self._text() != expected:
                raise EpochConflict(
                    "the epoch was published by another process meanwhile",
                    where=str(self.path),
                    remedy="only one `millrace run` may use a state directory",
                )
            self._replace(text)
        return Published(epoch, text)

    def _text(self) -> str | None:
        try:
            return self.path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None

    def _replace(self, text: str) -> None:
        fresh = self.path.with_name(self.path.name + ".new")
        with fresh.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(
                folder
            )  # else the rename itself may be lost in a power cut, and a number would be used twice
        finally:
            os.close(folder)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self.path.with_name(self.path.name + ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
