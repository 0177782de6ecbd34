"""The protocol holds in every state that its model can reach, and each mistake is found.

MILLRACE_LONG=1 adds the long runs (some minutes each). A failure prints the shortest way to it.
"""

from __future__ import annotations

import os

import pytest

from model.runs import BUGS, HOLDS, LONG, Run
from model.search import explore
from model.state import Config

RUNS = {**HOLDS, **(LONG if os.environ.get("MILLRACE_LONG") == "1" else {})}

pytestmark = [pytest.mark.unit, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS.keys())
def test_the_protocol_holds(run: Run) -> None:
    config, want = run
    result = explore(config, want)
    assert result.complete
    if result.found:
        told = "\n".join(f"{name}:\n  " + "\n  ".join(trace) for name, trace in result.found.items())
        pytest.fail(f"{result.states} states\n{told}", pytrace=False)


@pytest.mark.parametrize("config", BUGS.values(), ids=BUGS.keys())
def test_a_mistake_is_found(config: Config) -> None:
    assert explore(config, stop_at_first=True).found
