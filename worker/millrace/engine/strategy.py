"""The interface of a strategy: Arroyo's, for batches, with partitions that can be drained one by one.

A chain is strategies, each holding the next one; the engine talks to the first only. All methods but `calls` are called
from the engine's thread. User code is called once per message, whatever back-pressure does: a strategy that has computed a
result and can't hand it on keeps the result and rejects what comes after.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Set

from millrace.clock import Deadline
from millrace.engine.batch import Batch
from millrace.engine.calls import Call


class MessageRejected(Exception):
    """A strategy takes no more at present. The batch was not taken, not even in part: submit the same one later."""


class Strategy(ABC):
    """One stage at work."""

    @abstractmethod
    def submit(self, batch: Batch) -> None:
        """Take a batch. That it returns does not mean that the batch was processed, only that it will be.

        Raises MessageRejected without any effect. May raise StageFailed or DeadLetterLimit: everything before that
        message has been handed on, nothing from it on. Where the next stage did not take it at once, the failure is
        raised by the `poll` (or `join`) that hands it on. It is raised once; after that `submit` raises it again,
        while `poll` and `join` go on with what was handed on.
        """

    @abstractmethod
    def poll(self) -> None:
        """Let the next go on, then go on with what waits here (results kept back, timers, acknowledgements). Does not
        block.
        """

    @abstractmethod
    def drain(self, partitions: Set[int]) -> None:
        """Hand on, as soon as the next stage takes it, whatever is buffered for these partitions. Nothing of theirs
        will be submitted until they are adopted anew; the others go on. Does not block.
        """

    @abstractmethod
    def abandon(self, partitions: Set[int]) -> None:
        """Forget what is buffered and known for these partitions: it will not be committed. Effects that were handed
        to a transaction are undone by its abort, which is the caller's affair. The engine also calls it when a
        drained partition is released, for the sake of what is known.
        """

    @abstractmethod
    def close(self) -> None:
        """No more submits. Hand on what is buffered. Does not block."""

    @abstractmethod
    def join(self, deadline: Deadline) -> bool:
        """After close: block until all work has been handed on to the end, or the deadline is over.
        Returns whether everything was.
        """

    @abstractmethod
    def terminate(self) -> None:
        """Release everything at once, abandoning work in progress. Nothing is committed any more. Idempotent."""

    def in_flight(self) -> Iterable[tuple[str, int]]:
        """Source messages that are here, and in each of the stages after this one, by the stage's name. A name may come
        several times.
        """
        return ()

    def calls(self) -> Iterable[Call]:
        """Calls of user code that are under way, here and in the stages after this one. Safe on any thread, at any
        time: it waits for nobody, and may miss a call that begins or ends at this very moment.
        """
        return ()
