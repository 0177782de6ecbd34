"""Who asks Kafka: for each way to a cluster, that is brokers, credentials and properties, one thread with one set of
clients, for as long as any pipeline uses it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Final

import structlog

from millrace.clock import Clock, Deadline
from millrace.connectivity.ports import Cluster, KafkaError, TimedOut
from millrace.connectivity.survey import Survey
from millrace.errors import MillraceError
from millrace_operator.readings.question import Answer, Question, Reading, read
from millrace_operator.readings.rounds import Rounds

TIMEOUT: Final = 10.0
"""Seconds that a round may take."""
_PATIENCE: Final = 2.0  # s more that one waits who has asked at its begin


class Watch:
    """One way to a cluster. `connect` may raise MillraceError: then that is everyone's answer."""

    def __init__(self, connect: Callable[[], Cluster], clock: Clock, rounds: Rounds | None = None) -> None:
        self._connect, self._clock = connect, clock
        self._rounds = rounds or Rounds()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._survey: Survey | None = None

    def ask(self, who: Hashable, question: Question, within: float = 0.0) -> Reading:
        """Blocks until it is known, or can't be. within: seconds; a reading that old will do. Raises MillraceError."""
        with self._changed:
            ticket = self._rounds.ask(who, question, self._clock.monotonic(), within)
            if ticket.answer is None:
                self._start()
                self._changed.notify_all()
                self._changed.wait_for(lambda: ticket.answer is not None or self._closed, TIMEOUT + _PATIENCE)
            answer = ticket.answer
        if answer is None:
            raise TimedOut("Kafka was not read in time")
        if isinstance(answer, MillraceError):
            raise answer
        return answer

    def leave(self, who: Hashable) -> bool:
        """Whether nobody is left."""
        with self._changed:
            self._rounds.leave(who)
            self._changed.notify_all()
            return self._rounds.empty

    def close(self) -> None:
        """Not waited for: a client may take its time to close."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _start(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name="kafka readings", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (questions := self._next()) is not None:
            answers = self._read(questions)
            with self._changed:
                self._rounds.end(answers, self._clock.monotonic())
                self._changed.notify_all()
        self._drop()

    def _next(self) -> Mapping[Hashable, Question] | None:
        """The questions of a round when it is time for it; None: it is over."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._rounds.starts() is not None)
                starts, now = self._rounds.starts(), self._clock.monotonic()
                if self._closed:
                    return None
                if starts is not None and starts <= now:
                    return self._rounds.begin(now)
            if starts is not None:
                self._clock.sleep(starts - now)

    def _read(self, questions: Mapping[Hashable, Question]) -> Mapping[Hashable, Answer] | MillraceError:
        try:
            if self._survey is None:
                self._survey = self._connect().survey()
            return read(self._survey, questions, self._clock, Deadline.after(self._clock, TIMEOUT))
        except MillraceError as error:
            self._drop()  # librdkafka's clients may keep asking with what they knew
            return error
        except Exception as error:  # noqa: BLE001  who waits must not wait for ever
            structlog.get_logger("millrace.operator").exception("reading Kafka failed")
            self._drop()
            return KafkaError(f"Kafka could not be read: {type(error).__name__}: {error}")

    def _drop(self) -> None:
        survey, self._survey = self._survey, None
        if survey is not None:
            survey.close()


class Watches:
    """All of them, by their identities (`connecting.identity`)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._watches: dict[str, Watch] = {}
        self._of: dict[Hashable, str] = {}

    def ask(
        self,
        who: Hashable,
        identity: str,
        connect: Callable[[], Cluster],
        question: Question,
        within: float = 0.0,
    ) -> Reading:
        """As `Watch.ask`, of the one for this identity, which is made if need be. Of one `who` it is always the same."""
        with self._lock:
            self._of[who] = identity
            watch = self._watches.get(identity)
            if watch is None:
                watch = self._watches[identity] = Watch(connect, self._clock)
        return watch.ask(who, question, within)

    def leave(self, who: Hashable) -> None:
        with self._lock:
            identity = self._of.pop(who, None)
            watch = self._watches.get(identity) if identity is not None else None
            if (
                identity is not None
                and watch is not None
                and watch.leave(who)
                and identity not in self._of.values()
            ):
                del self._watches[identity]
                watch.close()

    def close(self) -> None:
        with self._lock:
            for watch in self._watches.values():
                watch.close()
            self._watches.clear()
            self._of.clear()

    def __len__(self) -> int:
        return len(self._watches)
