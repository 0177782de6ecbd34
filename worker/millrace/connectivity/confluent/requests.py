"""An admin request from sending to answer: the futures of confluent-kafka, awaited with a deadline, so that a broker
that refuses us is noticed at once and one that is not there within the caller's time.

librdkafka's own request timeout is never let come: when a request to a group's coordinator has timed out there and the
coordinator answers after all, an assertion of librdkafka's ends the process (librdkafka issue 4605; seen with 2.16.1 by
restarting the broker). So each request may take as long as librdkafka allows, and when our time is over, the client is
dropped with all that it has under way, and another one made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import Any, TypeVar

from confluent_kafka import KafkaError as Native
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from millrace.clock import Clock, Deadline
from millrace.connectivity.confluent.errors import Connection, native
from millrace.connectivity.ports import AuthenticationFailed, KafkaError

_K = TypeVar("_K")
_T = TypeVar("_T")

_SLICE = 0.1  # s; how often a wait looks whether it is hopeless
_RETRY = 0.05  # s between questions whether something has come about
UNLIMITED = 3600.0  # s; the longest request timeout that librdkafka takes


class Requests:
    """Sends what an admin client asks, and turns what comes back into values or errors of the ports."""

    def __init__(self, make: Callable[[], AdminClient], connection: Connection, clock: Clock) -> None:
        self._make, self._connection, self._clock = make, connection, clock
        self._admin: AdminClient | None = make()

    def close(self) -> None:
        self._admin = None

    def one(
        self,
        doing: str,
        send: Callable[[AdminClient], Mapping[_K, Future[Any]]],
        deadline: Deadline,
        where: str,
        *,
        absent: int | None = None,
        judge: Callable[[_K, Native], KafkaError | None] = lambda _key, _error: None,
    ) -> Any:
        """The answer to a request about one thing; None where the error code is `absent`."""
        (answer,) = self.each(doing, send, deadline, lambda _: where, absent=absent, judge=judge).values()
        return answer

    def each(
        self,
        doing: str,
        send: Callable[[AdminClient], Mapping[_K, Future[Any]]],
        deadline: Deadline,
        where: Callable[[_K], str],
        *,
        absent: int | None = None,
        judge: Callable[[_K, Native], KafkaError | None] = lambda _key, _error: None,
    ) -> dict[_K, Any]:
        """The answers to a request about several things. `judge` may know an error better than the general table."""
        answers = {}
        for key, answer in self._answers(doing, send, deadline, where, absent, judge):
            if isinstance(answer, KafkaError):
                raise answer
            answers[key] = answer
        self._connection.works()
        return answers

    def every(
        self,
        doing: str,
        send: Callable[[AdminClient], Mapping[_K, Future[Any]]],
        deadline: Deadline,
        where: Callable[[_K], str],
        *,
        absent: int | None = None,
        judge: Callable[[_K, Native], KafkaError | None] = lambda _key, _error: None,
    ) -> dict[_K, Any]:
        """As `each`, but an error is the answer of the thing that it concerns. Raises what concerns all: no answer in
        time, AuthenticationFailed.
        """
        answers = dict(self._answers(doing, send, deadline, where, absent, judge))
        for answer in answers.values():
            if isinstance(answer, AuthenticationFailed):
                raise answer
        if not any(isinstance(answer, KafkaError) for answer in answers.values()):
            self._connection.works()
        return answers

    def _answers(
        self,
        doing: str,
        send: Callable[[AdminClient], Mapping[_K, Future[Any]]],
        deadline: Deadline,
        where: Callable[[_K], str],
        absent: int | None,
        judge: Callable[[_K, Native], KafkaError | None],
    ) -> Iterator[tuple[_K, Any]]:
        admin = self._admin = self._admin or self._make()
        for key, future in send(admin).items():
            try:
                yield key, self._wait(admin, future, doing, deadline)
            except KafkaException as exception:
                error = native(exception)
                admin.poll(0)  # serve the error callback: it knows why
                absence = error.code() == absent
                yield (
                    key,
                    None
                    if absence
                    else judge(key, error) or self._connection.error(error, doing, where(key)),
                )

    def until(self, doing: str, done: Callable[[], bool], deadline: Deadline) -> None:
        """Ask again until it is so. Raises TimedOut."""
        while not done():
            if deadline.expired():
                raise self._overdue(doing)
            self._clock.sleep(min(_RETRY, deadline.remaining()))

    def until_not(self, passing: type[KafkaError], ask: Callable[[], _T], deadline: Deadline) -> _T:
        """Ask again while the answer is an error that passes by itself. Raises it when time is over."""
        while True:
            try:
                return ask()
            except passing:
                if deadline.expired():
                    raise
            self._clock.sleep(min(_RETRY, deadline.remaining()))

    def _wait(self, admin: AdminClient, future: Future[Any], doing: str, deadline: Deadline) -> Any:
        while True:
            try:
                return future.result(min(_SLICE, deadline.remaining()))
            except NotYet:
                admin.poll(0)
                if deadline.expired() or self._connection.troubled:
                    self._admin = None  # see above
                    raise self._overdue(doing) from None

    def _overdue(self, doing: str) -> KafkaError:
        return self._connection.error(Native(Native._TIMED_OUT, "no answer in time"), doing)
