"""What is wrong with a manifest, told to the one who wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

_SHOWN: Final = 20

PathParts = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        path: where, as in `spec.stages[1].map.function`; "" for the file as a whole.
        message: what is wrong, with the value at fault.
        remedy: what is allowed, or what to do.
        stage: name of the stage it is in, "" if in none.
        line: line in the file, from 1; 0 if not known.
        column: column in the line, from 1; 0 if not known (only for text that is not YAML).
    """

    path: str
    message: str
    remedy: str
    stage: str = ""
    line: int = 0
    column: int = 0

    @property
    def where(self) -> str:
        """Path, stage and line in one phrase; "" if none is known."""
        notes = []
        if self.stage:
            notes.append(f"stage {self.stage}")
        if self.line:
            notes.append(f"line {self.line}" + (f", column {self.column}" if self.column else ""))
        inside = ", ".join(notes)
        if not self.path:
            return inside
        return f"{self.path} ({inside})" if inside else self.path

    def at_line(self, line: int) -> Problem:
        return replace(self, line=line)

    def __str__(self) -> str:
        first = f"{self.where}: {self.message}" if self.where else self.message
        return f"{first}\n    {self.remedy}" if self.remedy else first


class InvalidManifest(ValueError):
    """A manifest that can't be used, with all that is wrong with it."""

    def __init__(self, problems: Sequence[Problem], *, source: str = "<string>") -> None:
        super().__init__(problems, source)
        self.problems: tuple[Problem, ...] = tuple(problems)
        self.source = source

    def __str__(self) -> str:
        count = len(self.problems)
        lines = [f"{self.source} has {'a problem' if count == 1 else f'{count} problems'}:"]
        lines += [f"  {problem}" for problem in self.problems[:_SHOWN]]
        if count > _SHOWN:
            lines.append(f"  and {count - _SHOWN} more")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (self.problems, self.source))


def _rebuild(problems: Sequence[Problem], source: str) -> InvalidManifest:
    return InvalidManifest(problems, source=source)


def path_text(parts: PathParts) -> str:
    """`("spec", "stages", 1, "map")` as `spec.stages[1].map`; a key with dots or blanks is put in quotes."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.isidentifier():
            text += f".{short(part, 60)}" if text else short(part, 60)
        else:
            text += f'["{short(part, 60)}"]'
    return text


def short(text: str, limit: int) -> str:
    """The text in one line of printable characters, cut at `limit`."""
    cut = text if len(text) <= limit else text[: limit - 3] + "..."
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in cut)
