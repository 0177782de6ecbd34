"""One watch for each identity, with clients of its own, for as long as somebody uses it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from millrace.clock import Deadline, SystemClock
from millrace.connectivity.memory import MemoryBroker
from millrace.connectivity.ports import Cluster, OffsetAndMetadata
from millrace.connectivity.survey import Survey
from millrace.errors import ExitCode, MillraceError
from millrace_operator.readings import Question, Watches

CLOCK = SystemClock()


class Clients:
    """Of one broker, which notes how many are open, and on which threads it was asked."""

    def __init__(self, committed: int, topics: int = 1) -> None:
        self.broker, self.made, self.closed = MemoryBroker(CLOCK), 0, 0
        self.threads: set[int] = set()
        self.broker.hook = lambda _: self.threads.add(threading.get_ident())
        for n in range(topics):
            self.broker.create_topic(f"t{n}", 1)
            claim = {(f"t{n}", 0): OffsetAndMetadata(committed + n)}
            self.broker.groups.commit_plain(f"t{n}.claims", claim)

    def connect(self) -> Cluster:
        self.made += 1
        return cast(Cluster, self)

    def survey(self) -> Survey:
        outer, inner = self, self.broker.cluster(client_id="op").survey()

        class Noted(type(inner)):  # type: ignore[misc]
            def close(self) -> None:
                outer.closed += 1

        return cast(Survey, Noted(self.broker, "op"))


def question(name: str) -> Question:
    return Question(name, name, f"{name}.claims")


def until(holds: Callable[[], bool]) -> None:
    deadline = Deadline.after(CLOCK, 200)
    while not holds():
        assert not deadline.expired()
        CLOCK.sleep(0.01)


def test_many_pipelines_of_one_identity_are_read_by_one_client_on_one_thread() -> None:
    watches, clients = Watches(CLOCK), Clients(100, topics=40)
    with ThreadPoolExecutor(16) as pool:
        readings = list(
            pool.map(lambda n: watches.ask(n, "one", clients.connect, question(f"t{n}")), range(40))
        )
    assert [reading.claims[0].offset for reading in readings] == list(range(100, 140))
    assert (clients.made, len(clients.threads), len(watches)) == (1, 1, 1)
    watches.close()
    until(lambda: clients.closed == 1)


def test_no_answer_goes_to_another_identity_and_a_failure_of_one_is_none_of_the_others() -> None:
    watches, mine, yours = Watches(CLOCK), Clients(1), Clients(2)

    def refused() -> Cluster:
        raise MillraceError("no Secret", code=ExitCode.CREDENTIALS)

    with pytest.raises(MillraceError, match="no Secret"):
        watches.ask("c", "theirs", refused, question("t0"))
    assert watches.ask("a", "mine", mine.connect, question("t0")).claims[0].offset == 1
    assert watches.ask("b", "yours", yours.connect, question("t0")).claims[0].offset == 2
    assert not mine.threads & yours.threads
    watches.close()


def test_clients_of_an_identity_that_nobody_uses_any_more_are_closed() -> None:
    watches, clients = Watches(CLOCK), Clients(1)
    for who in ("a", "b"):
        watches.ask(who, "one", clients.connect, question("t0"))
    watches.leave("a")
    assert (len(watches), clients.closed) == (1, 0)
    watches.leave("b")
    assert len(watches) == 0
    until(lambda: clients.closed == 1)
    watches.leave("b")  # again is no error


def test_clients_of_a_broker_that_did_not_answer_are_thrown_away() -> None:
    watches, clients = Watches(CLOCK), Clients(1)
    watches.ask("a", "one", clients.connect, question("t0"))
    clients.broker.hook = _away
    with pytest.raises(MillraceError, match="away"):
        watches.ask("a", "one", clients.connect, question("t0"))
    assert (clients.made, clients.closed) == (1, 1)
    watches.close()


def _away(_: object) -> None:
    raise MillraceError("away")
