"""Where the snapshots of a run are shown: the live view on a terminal, plain lines elsewhere; and as a picture."""

from __future__ import annotations

import os
import re
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from millrace.local.view.plain import PlainLines
from millrace.local.view.snapshot import RunSnapshot

_PICTURE_SIZE = (100, 28)  # columns, lines


class Display(Protocol):
    def show(self, snapshot: RunSnapshot) -> None: ...


def display(*, plain: bool) -> AbstractContextManager[Display]:
    """What fits the standard output stream; `plain` asks for lines even on a terminal."""
    if plain or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return _Plain()
    return _Live()


def save_picture(snapshot: RunSnapshot, path: Path, title: str) -> None:
    """The live view of this moment as an SVG."""
    from rich.console import Console

    from millrace.local.view.live import view

    columns, lines = _PICTURE_SIZE
    with open(os.devnull, "w") as nowhere:
        console = Console(
            record=True,
            width=columns,
            height=lines,
            file=nowhere,
            force_terminal=True,
            color_system="truecolor",
        )
        console.print(view(snapshot))
        # Fonts from elsewhere are not loaded where a page shows the file as a picture, and nobody asked for them.
        drawn = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title=title), flags=re.DOTALL)
        path.write_text(drawn, encoding="utf-8")


class _Plain:
    def __init__(self) -> None:
        self._lines = PlainLines(sys.stdout)

    def __enter__(self) -> Self:
        return self

    def show(self, snapshot: RunSnapshot) -> None:
        self._lines.show(snapshot)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class _Live:
    """Rich's Live, drawn when a snapshot comes and at no other time, so nothing flickers."""

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.live import Live

        self._console = Console()
        self._size = self._console.size
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")
        self._live.start()
        return self

    def show(self, snapshot: RunSnapshot) -> None:
        from millrace.local.view.live import view

        if (
            self._console.size != self._size
        ):  # the terminal has wrapped the old lines: they can't be drawn over
            self._size = self._console.size
            self._console.clear()
        self._live.update(view(snapshot), refresh=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()
