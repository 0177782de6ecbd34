"""Reduce: fold the values of a partition, as they come, into one for each key; see `gather` for when it is handed on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from millrace.connectivity.ports import Record
from millrace.engine.batch import DeadLetter
from millrace.engine.several import members_of
from millrace.strategies.each import attempt
from millrace.strategies.functions import Function, message_of
from millrace.strategies.hold import Taken
from millrace.strategies.judge import Judge
from millrace.strategies.keys import KeyOf

_NONE: Final = object()


class Folded:
    """One hold of a reduce stage.

    A function that raises has refused the message: what was accumulated before stands, and is used. If it had accumulated
    another value of the same message (a flatMap made several of it) that can't be undone: then all messages of this hold
    become dead letters, or none of it is used.

    Args:
        initial: called without arguments for what a key begins with.
        accumulate: called with what there is and a value (and its Message); returns what there is then.
        key: of a value; None: all have the same.
    """

    def __init__(
        self, initial: Callable[..., object], accumulate: Function, key: KeyOf | None, judge: Judge
    ) -> None:
        self._initial, self._accumulate, self._key, self._judge = initial, accumulate, key, judge
        self.records: list[Record] = []
        self._begin()

    def take(self, records: Sequence[Record], values: Sequence[object]) -> Taken:
        made = attempt(map(self._step, records, values), records, self._judge.judge)
        self.records.extend(
            record for record in records[: len(made.results)] if record.offset() not in made.dead
        )
        dead = [one for letter in made.dead.values() for one in letter.apart()]
        if made.failure is not None:
            return Taken(dead, made.failure, self._spoilt)
        if self._spoilt:
            reason = next(iter(made.dead.values())).reason
            dead += [
                DeadLetter(record, self._judge.stage, f"accumulated with a message that failed: {reason}")
                for record in members_of(self.records)
            ]
            self.records.clear()
            self._begin()
        return Taken(dead)

    def made(self) -> Sequence[tuple[bytes | None, object]]:
        return list(self._folded.items())

    def _begin(self) -> None:
        self._folded: dict[bytes | None, object] = {}
        self._refused: set[int] = set()  # offsets of messages with a value that failed
        self._last = -1  # offset of the message accumulated last
        self._spoilt = False

    def _step(self, record: Record, value: object) -> None:
        offset, folded = record.offset(), self._folded
        if offset in self._refused:
            return
        try:
            key = None if self._key is None else self._key(value, record)
            so_far = folded.get(key, _NONE)
            if so_far is _NONE:
                so_far = self._initial()
            function = self._accumulate
            more = (message_of(record, value),) if function.wants_message else ()
            folded[key] = function.call(so_far, value, *more)
        except BaseException:
            self._refused.add(offset)
            self._spoilt = self._spoilt or offset == self._last
            raise
        self._last = offset
