"""What comes out of a pod by its log: exactly, told while it goes on, and known when something is missing."""

from __future__ import annotations

import io
import random
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.cli.errand.in_pod import Say, carry_out, understood
from millrace.cli.errand.wire import MARK, PIECE, Ear, Voice
from millrace.errors import ExitCode, MillraceError

pytestmark = pytest.mark.unit


def log_of(content: bytes, *messages: str) -> list[str]:
    out = io.StringIO()
    voice = Voice(out)
    for message in messages:
        voice.say(message)
    voice.answer(content)
    return out.getvalue().splitlines()


@given(st.binary(max_size=200), st.integers(0, 5), st.lists(st.text(max_size=400), max_size=4), st.randoms())
def test_an_answer_is_heard_exactly_among_other_lines_and_if_they_come_twice(
    seed: bytes, pieces: int, messages: list[str], chance: random.Random
) -> None:
    content = seed + chance.randbytes(pieces * PIECE)
    lines = log_of(content, *messages)
    assert all(len(line) < 4096 for line in lines)  # none can be torn
    ear, told = Ear(), []
    cut = chance.randrange(len(lines) + 1)
    for line in (*lines[:cut], "%3|1|FAIL|rdkafka#1", *lines):  # a connection that breaks, the log read anew
        noise = chance.choice(["", "half a line of another thread "])
        message = ear.hear(noise + line)
        if message is not None:
            told.append(message)
    assert ear.answer() == content
    assert told == [message[:300] for message in messages]


def test_what_is_missing_is_known() -> None:
    content = random.Random(7).randbytes(3 * PIECE)
    lines = log_of(content)
    ear = Ear()
    for line in lines[2:]:
        ear.hear(line)
    assert (ear.ended, ear.missing, ear.answer()) == (True, 2, None)
    ear = Ear()
    for line in lines[:-1]:
        ear.hear(line)
    assert (ear.ended, ear.answer()) == (False, None)
    ear.hear(lines[-1])
    assert ear.answer() == content


def test_lines_that_are_none_of_it_say_nothing() -> None:
    ear = Ear()
    for line in ("", MARK, f"{MARK} 1 say {{", f"{MARK} 1 end x", f"{MARK} x part y", f"{MARK} 2 say 7"):
        assert ear.hear(line) is None
    assert not ear.ended


@pytest.fixture
def sigterm() -> Iterator[None]:
    """As it was before."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("sigterm")
def test_what_the_work_has_found_or_met_with_is_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    def answer() -> bytes:
        ear = Ear()
        for line in capsys.readouterr().out.splitlines():
            ear.hear(line)
        found = ear.answer()
        assert found is not None
        return found

    def work(say: Say) -> object:
        say("on the way")
        return {"n": 7}

    def failing(_: Say) -> object:
        raise MillraceError("w", where="here", remedy="r", code=ExitCode.TOPIC)

    assert carry_out(work) is ExitCode.OK
    assert understood(answer(), dict[str, int]) == {"n": 7}
    assert carry_out(failing) is ExitCode.TOPIC
    with pytest.raises(MillraceError) as raised:
        understood(answer(), dict[str, int])
    assert (raised.value.what, raised.value.where, raised.value.remedy) == ("w", "here", "r")
    assert raised.value.code is ExitCode.TOPIC


def test_work_in_a_pod_that_is_deleted_is_interrupted() -> None:
    code = (
        "import threading; from millrace.cli.errand.in_pod import carry_out; from millrace.cli.failure import exit_with\n"
        "def work(say):\n"
        "    say('begun')\n"
        "    threading.Event().wait(300)\n"
        "exit_with(lambda: carry_out(work))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "begun" in process.stdout.readline()
        process.terminate()
        assert process.wait(60) == ExitCode.INTERRUPTED
