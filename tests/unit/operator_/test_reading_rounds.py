"""Gathering: whoever asks gets the answer to its own question, or its own error, and not an older one than it takes."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.connectivity.ports import AuthorizationFailed, BrokerUnreachable, TopicDescription
from millrace.errors import MillraceError
from millrace_operator.readings import Answer, Question, Reading, Rounds, Ticket

WINDOW, AHEAD, PAUSE, SLOW = 0.05, 15.0, 5.0, 3.0


def question(name: str) -> Question:
    return Question(name, f"{name}.group", f"{name}.claims")


def answer(asked: Question, now: float) -> Answer:
    """It tells which question it answers, and when it was asked; those of "denied" are an error."""
    if asked.source.startswith("denied"):
        return AuthorizationFailed(f"{asked.source} {now}")
    return Reading({asked.source: TopicDescription(asked.source, str(now), 1)})


def told(found: Answer) -> tuple[str, float]:
    """Which question it answers, and when that was asked."""
    if isinstance(found, MillraceError):
        name, _, at = found.what.partition(" ")
        return name, float(at)
    ((name, described),) = found.topics.items()
    assert described is not None
    return name, float(described.id)


def rounds() -> Rounds:
    return Rounds(window=WINDOW, ahead=AHEAD, pause=PAUSE)


def test_who_asks_within_the_window_is_asked_about_in_one_round() -> None:
    these = rounds()
    tickets = {n: these.ask(n, question(f"t{n}"), 0.001 * n) for n in range(40)}
    assert these.starts() == WINDOW
    asked = these.begin(WINDOW)
    assert len(asked) == 40
    these.end({who: answer(one, WINDOW) for who, one in asked.items()}, 0.2)
    found = {n: told(t.answer) for n, t in tickets.items() if t.answer is not None}
    assert found == {n: (f"t{n}", WINDOW) for n in range(40)}
    assert these.starts() is None


def test_who_asks_during_a_round_is_in_the_next_one() -> None:
    these = rounds()
    these.ask("a", question("a"), 0.0)
    these.begin(0.1)
    late = these.ask("b", question("b"), 0.2)
    again = these.ask("a", question("a"), 0.2)
    assert these.starts() is None
    these.end({"a": answer(question("a"), 0.1)}, 0.3)
    assert (late.answer, again.answer) == (None, None)
    assert these.starts() is not None
    assert set(these.begin(0.3)) == {"a", "b"}


def test_many_who_look_at_moments_of_their_own_cost_two_rounds_in_half_a_minute() -> None:
    """A thousand, each every 30 s, content with what is 15 s old."""
    these, begun, waited = rounds(), [], 0
    for step in range(4 * 1000):
        now = step * 30.0 / 1000
        ticket = these.ask(step % 1000, question(f"t{step % 1000}"), now, within=AHEAD)
        if ticket.answer is None:
            waited += 1
            begun.append(now)
            asked = these.begin(now)
            these.end({who: answer(one, now) for who, one in asked.items()}, now)
            assert ticket.answer is not None
        assert now - told(ticket.answer)[1] <= AHEAD
    at_rest = [now for now in begun if now >= 60.0]
    assert len(at_rest) <= 4


def test_one_who_must_know_what_is_so_now_makes_a_round_of_its_own_and_no_other_is_read_in_it() -> None:
    these = rounds()
    for who in ("a", "b"):
        these.ask(who, question(who), 0.0)
    these.end({who: answer(one, 0.1) for who, one in these.begin(0.1).items()}, 0.1)
    assert these.ask("a", question("a"), 5.0, within=15.0).answer is not None
    assert these.ask("a", question("a"), 5.0).answer is None
    assert set(these.begin(5.1)) == {"a"}


def test_another_question_is_not_answered_by_the_reading_of_the_former_one() -> None:
    these = rounds()
    these.ask("a", question("a"), 0.0)
    these.begin(0.1)
    changed = these.ask("a", question("other"), 0.2, within=15.0)
    these.end({"a": answer(question("a"), 0.1)}, 0.3)
    assert changed.answer is None
    these.end({"a": answer(these.begin(0.4)["a"], 0.4)}, 0.5)
    assert changed.answer is not None
    assert told(changed.answer)[0] == "other"


def test_while_no_broker_answers_all_hear_why_and_one_at_a_time_waits_for_another_try() -> None:
    these, away = rounds(), BrokerUnreachable("away")
    first = [these.ask(n, question(f"t{n}"), 0.0) for n in range(16)]
    these.begin(0.1)
    gathered = these.ask("late", question("late"), 1.0)
    these.end(away, 10.0)
    assert {ticket.answer for ticket in [*first, gathered]} == {away}
    assert these.starts() is None

    assert these.ask(3, question("t3"), 12.0).answer is away  # it was tried just now
    probe = these.ask(4, question("t4"), 15.0)
    assert probe.answer is None
    assert these.ask(5, question("t5"), 15.0).answer is away  # one is enough
    asked = these.begin(15.1)
    assert these.ask(6, question("t6"), 16.0).answer is away
    these.end({who: answer(one, 15.1) for who, one in asked.items()}, 17.0)
    assert isinstance(probe.answer, Reading)
    assert isinstance(these.ask(5, question("t5"), 20.0, within=15.0).answer, Reading)


def test_more_than_fit_in_one_round_are_asked_about_in_the_next_and_those_who_wait_come_first() -> None:
    these = Rounds(window=WINDOW, most=2)
    for who in ("a", "b", "c"):
        these.ask(who, question(who), 0.0)
    assert set(these.begin(0.1)) == {"a", "b"}
    these.end({who: answer(question(who), 0.1) for who in ("a", "b")}, 0.2)
    assert these.starts() is not None
    assert set(these.begin(0.3)) == {"c"}
    these.end({"c": answer(question("c"), 0.3)}, 0.4)
    these.ask("c", question("c"), 60.0)
    assert list(these.begin(60.1)) == ["c", "a"]


def test_who_asks_for_another_thing_at_the_first_try_after_a_failure_waits_for_it() -> None:
    these = rounds()
    these.ask("a", question("a"), 0.0)
    these.begin(0.1)
    these.end(BrokerUnreachable("away"), 1.0)
    these.ask("a", question("a"), 10.0)
    assert these.ask("a", question("other"), 10.0).answer is None
    assert set(these.begin(10.1)) == {"a"}


def test_who_has_left_is_not_asked_about() -> None:
    these = rounds()
    these.ask("a", question("a"), 0.0)
    ticket = these.ask("b", question("b"), 0.0)
    these.leave("b")
    assert isinstance(ticket.answer, MillraceError)
    assert set(these.begin(0.1)) == {"a"}
    these.leave("a")
    these.end({"a": answer(question("a"), 0.1)}, 0.2)
    assert these.empty
    assert these.starts() is None


@dataclass
class Asked:
    who: int
    question: Question
    at: float
    within: float
    ticket: Ticket
    until: float = field(default=float("inf"))  # when it was answered


_steps = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "ask", "leave", "pass"]),
        st.integers(0, 5),
        st.sampled_from(["t", "denied"]),
        st.sampled_from([0.0, 0.0, 15.0]),
        st.sampled_from([0.0, 0.01, 0.04, 1.0, 16.0]),  # s that pass
        st.booleans(),  # whether a round that begins now fails for all
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(_steps)
def test_each_has_its_own_answer_fresh_enough_and_none_waits_longer_than_two_rounds(steps: list) -> None:
    """Rounds take 3 s here. So whoever asks is answered within the rest of one and the whole of the next."""
    these, now, ends = rounds(), 0.0, float("inf")
    asked: list[Asked] = []
    outcome: object = None

    def turn(to: float, *, fails: bool = False) -> None:
        nonlocal now, ends, outcome
        while True:
            starts = these.starts()
            comes = min(ends, max(now, starts) if starts is not None else float("inf"))
            if comes > to:
                break
            now = comes
            if comes == ends:
                these.end(outcome, now)  # type: ignore[arg-type]
                ends = float("inf")
            else:
                questions = these.begin(now)
                failed = BrokerUnreachable(f"all {now}")
                outcome = failed if fails else {w: answer(q, now) for w, q in questions.items()}
                ends = now + SLOW
            for one in asked:
                if one.ticket.answer is not None:
                    one.until = min(one.until, now)
        now = to

    for what, who, kind, within, seconds, fails in steps:
        if what == "ask":
            wanted = question(f"{kind}{who}")
            ticket = these.ask(who, wanted, now, within)
            asked.append(Asked(who, wanted, now, within, ticket))
            for one in asked:  # this one at once, or its former one, that nobody asks for any more
                if one.ticket.answer is not None:
                    one.until = min(one.until, now)
        elif what == "leave":
            these.leave(who)
            for one in asked:
                if one.who == who and one.until == float("inf"):
                    one.until = now
        turn(now + seconds, fails=fails)
    turn(now + 3 * SLOW)
    for one in asked:
        found = one.ticket.answer
        assert found is not None
        assert one.until <= one.at + WINDOW + 2 * SLOW + 1e-6
        if isinstance(found, MillraceError) and not isinstance(found, AuthorizationFailed):
            continue  # all failed, or it has left
        name, at = told(found)
        assert name == one.question.source
        assert at >= one.at - one.within
