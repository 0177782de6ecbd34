"""The plugin of pytest: one fixture. It is there wherever Millrace is installed, so it imports nothing before it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from millrace.testing import PipelineHarness

pytest.register_assert_rewrite("millrace.testing.strategies")


@pytest.fixture
def millrace_harness() -> Iterator[Callable[..., PipelineHarness]]:
    """Makes harnesses: called as `PipelineHarness.of`, and all that were made are closed at the end of the test."""
    from millrace.testing import PipelineHarness

    with ExitStack() as stack:
        yield lambda *given, **options: stack.enter_context(PipelineHarness.of(*given, **options))
