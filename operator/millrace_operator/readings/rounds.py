"""When which questions are asked: pure, told the time.

Who asks waits for a round; whoever asks within `window` seconds is in the same one, and who asks while one is under way
is in the next. A round takes along what others have asked before and will ask again, if their readings are older than
`ahead` seconds: so thousands who look every half minute, each at a moment of its own, cost two rounds a half minute, and
nearly all of them find their answer there. Somebody who must know what is so now says so, and waits.

When no broker answers, all that wait hear why, and so does at once who asks within `pause` seconds. After that one of
those who ask waits for another try; the others do not wait with it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from millrace.connectivity.ports import KafkaError
from millrace.errors import MillraceError
from millrace_operator.readings.question import Answer, Question


@dataclass(slots=True)
class Ticket:
    """Of one who asked. `answer`: None while it has to wait."""

    answer: Answer | None = None


@dataclass(slots=True)
class _Asker:
    question: Question
    answer: Answer | None = None
    read_at: float = 0.0  # when the round began that gave it
    waiting: list[Ticket] = field(default_factory=list)


@dataclass(slots=True)
class _Round:
    began: float
    questions: dict[Hashable, Question]
    waiting: list[tuple[Hashable, Ticket]]


class Rounds:
    """Args: in seconds, window: for gathering; ahead, pause: see above. most: questions of one round, so that thousands
    are not one answer of megabytes that comes too late.
    """

    def __init__(
        self, *, window: float = 0.05, ahead: float = 15.0, pause: float = 5.0, most: int = 1000
    ) -> None:
        self._window, self._ahead, self._pause, self._most = window, ahead, pause, most
        self._askers: dict[Hashable, _Asker] = {}
        self._opened: float | None = None  # when the first of those who wait has asked
        self._round: _Round | None = None
        self._failed: tuple[float, MillraceError] | None = None

    @property
    def empty(self) -> bool:
        return not self._askers

    def ask(self, who: Hashable, question: Question, now: float, within: float = 0.0) -> Ticket:
        """within: seconds; a reading that old will do."""
        asker = self._askers.setdefault(who, _Asker(question))
        if asker.question != question:
            self._give_up(asker)
            asker.question, asker.answer = question, None
        if asker.answer is not None and asker.read_at >= now - within and within > 0:
            return Ticket(asker.answer)
        if self._failed is not None:
            since, failure = self._failed
            if now - since < self._pause or self._round is not None or self._opened is not None:
                return Ticket(failure)
        ticket = Ticket()
        asker.waiting.append(ticket)
        if self._opened is None:
            self._opened = now
        return ticket

    def starts(self) -> float | None:
        """When the next round should begin; None: nobody waits, or one is under way."""
        if self._opened is None or self._round is not None:
            return None
        return self._opened + self._window

    def begin(self, now: float) -> Mapping[Hashable, Question]:
        """What to ask in it."""
        questions, waiting = {}, []
        wanted = [(who, asker) for who, asker in self._askers.items() if asker.waiting]
        wanted += [
            (who, asker)
            for who, asker in self._askers.items()
            if not asker.waiting and (asker.answer is None or asker.read_at <= now - self._ahead)
        ]
        for who, asker in wanted[: self._most]:
            questions[who] = asker.question
            waiting += [(who, ticket) for ticket in asker.waiting]
            asker.waiting = []
        self._opened = now if any(asker.waiting for _, asker in wanted[self._most :]) else None
        self._round = _Round(now, questions, waiting)
        return questions

    def end(self, answers: Mapping[Hashable, Answer] | MillraceError, now: float) -> None:
        """The round that is under way has these answers, or failed for all."""
        assert self._round is not None
        done, self._round = self._round, None
        if isinstance(answers, MillraceError):
            self._failed = now, answers
            self._tell_all(done, answers)
            return
        self._failed = None
        for who, question in done.questions.items():
            asker = self._askers.get(who)
            if asker is not None and asker.question == question:
                asker.answer, asker.read_at = answers[who], done.began
        for who, ticket in done.waiting:
            ticket.answer = answers[who]

    def leave(self, who: Hashable) -> None:
        """It won't ask again; if it waits, in vain."""
        gone = self._askers.pop(who, None)
        if gone is not None:
            self._give_up(gone)

    def _give_up(self, gone: _Asker) -> None:
        for ticket in gone.waiting:
            ticket.answer = KafkaError("nobody asks for this reading any more")
        gone.waiting = []
        if not any(asker.waiting for asker in self._askers.values()):
            self._opened = None

    def _tell_all(self, done: _Round, failure: MillraceError) -> None:
        for _, ticket in done.waiting:
            ticket.answer = failure
        for asker in self._askers.values():
            for ticket in asker.waiting:
                ticket.answer = failure
            asker.waiting = []
        self._opened = None
