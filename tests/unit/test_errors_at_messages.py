"""Failures at a message keep what they know, also across processes."""

from __future__ import annotations

import pickle

import pytest

from millrace.errors import DeadLetterLimit, ExitCode, MessageFailure, StageFailed

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("kind", [StageFailed, DeadLetterLimit])
def test_a_failure_survives_pickling(kind: type[MessageFailure]) -> None:
    failure = kind("what", stage="score", partition=3, offset=17, remedy="do")
    copy = pickle.loads(pickle.dumps(failure))
    assert type(copy) is kind
    assert (copy.stage, copy.partition, copy.offset, copy.remedy) == ("score", 3, 17, "do")
    assert str(copy) == str(failure)
    assert "stage score, partition 3, offset 17" in str(copy)


def test_each_has_its_exit_code() -> None:
    assert StageFailed("x", stage="s", partition=0, offset=0).code is ExitCode.STAGE_FAILED
    assert DeadLetterLimit("x", stage="s", partition=0, offset=0).code is ExitCode.DEAD_LETTER_LIMIT
