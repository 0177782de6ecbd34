"""What a pod has to say, on lines of its log among whatever else is written there.

A line is `millrace-errand NUMBER KIND CONTENT`. `say` is a message for people, as JSON, to be shown while the work goes on. An
answer is compressed and comes in numbered pieces, `part` in Base64, then `end` with how many they were: so bytes are exact, and
it is known when some are missing because a kubelet threw a part of a long log away (`containerLogMaxSize`, 10 MiB unless set
otherwise). No line is longer than what a pipe takes at once (PIPE_BUF, 4096 bytes), so none is torn by what another thread
writes; container runtimes split lines only above 16 KiB.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from typing import Final, TextIO

MARK: Final = "millrace-errand"
PIECE: Final = 2900  # bytes, 3868 characters in Base64
_MOST_SAID: Final = 300  # characters, of which JSON makes up to twelve each
_LINE: Final = re.compile(rf"{MARK} (\d+) (say|part|end) (\S.*)$")


class Voice:
    """The pod's end."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._next = out, 0

    def say(self, message: str) -> None:
        self._write("say", json.dumps(message[:_MOST_SAID]))

    def answer(self, content: bytes) -> None:
        """Once, at the end."""
        packed = zlib.compress(content)
        pieces = [packed[at : at + PIECE] for at in range(0, len(packed), PIECE)]
        for piece in pieces:
            self._write("part", base64.b64encode(piece).decode())
        self._write("end", str(len(pieces)))

    def _write(self, kind: str, content: str) -> None:
        self._out.write(f"{MARK} {self._next} {kind} {content}\n")
        self._out.flush()
        self._next += 1


class Ear:
    """The end of who reads the log. Lines may be given again, as when a log is read anew from its beginning. Pure."""

    def __init__(self) -> None:
        self._said = -1  # number of the last message
        self._parts: dict[int, str] = {}
        self._end: tuple[int, int] | None = None  # its number, and how many parts there are

    def hear(self, line: str) -> str | None:
        """Returns the message on this line, if it is one that was not heard before."""
        match = _LINE.search(line)
        if match is None:
            return None
        number, kind, content = int(match[1]), match[2], match[3]
        if kind == "part":
            self._parts[number] = content
        elif kind == "end" and content.isdecimal():
            self._end = number, int(content)
        elif kind == "say" and number > self._said:
            self._said = number
            return _message(content)
        return None

    @property
    def ended(self) -> bool:
        """The answer was given, whether or not all of it was heard."""
        return self._end is not None

    @property
    def missing(self) -> int:
        """Parts of an answer that was given, and were not heard."""
        return sum(number not in self._parts for number in self._numbers())

    def answer(self) -> bytes | None:
        """None: none was given, or it was not heard as a whole."""
        if self._end is None or self.missing:
            return None
        try:
            return zlib.decompress(b"".join(base64.b64decode(self._parts[n]) for n in self._numbers()))
        except (ValueError, zlib.error):
            return None

    def _numbers(self) -> range:
        number, count = self._end or (0, 0)
        return range(number - count, number)


def _message(content: str) -> str | None:
    try:
        found = json.loads(content)
    except ValueError:
        return None
    return found if isinstance(found, str) else None
