"""What the console sink has shown, taken from the collector's log to the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from millrace.collector.sinks.console import MORE, ROW

_MOST = 1 << 20  # bytes of the log in one look


class _Line(msgspec.Struct):
    event: str = ""
    batch: str = ""
    row: msgspec.Raw = msgspec.Raw(b"{}")
    rows: int = 0


class Shown:
    """Reads what is added to a log from now on; it may be put aside for a new one meanwhile."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._at = log.stat().st_size if log.exists() else 0

    def new(self) -> Iterator[str]:
        """Lines for people, of what has been added since the last call."""
        try:
            with self._log.open("rb") as file:
                if self._log.stat().st_size < self._at:
                    self._at = 0
                file.seek(self._at)
                added = file.read(_MOST)
        except FileNotFoundError:
            return
        whole = added[: added.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.splitlines():
            if b'"event": "' + ROW.encode() not in line and MORE.encode() not in line:
                continue
            try:
                found = msgspec.json.decode(line, type=_Line)
            except msgspec.DecodeError:
                continue
            if found.event == ROW:
                yield f"{found.batch} {bytes(found.row).decode()}"
            elif found.event == MORE:
                yield f"{found.batch} and {found.rows:,} more"
