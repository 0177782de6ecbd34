"""Spark for tests: `spark` sees that it is to be had here, and skips the test (with MILLRACE_REQUIRE_ALL=1: fails) if not."""

from __future__ import annotations

import os

import pytest

from millrace.collector.stage import connector
from millrace.errors import ExitCode, MillraceError


@pytest.fixture(scope="session")
def spark() -> None:
    try:
        connector()
    except MillraceError as error:
        if error.code is not ExitCode.SETUP or os.environ.get("MILLRACE_REQUIRE_ALL") == "1":
            raise
        pytest.skip(f"NO SPARK HERE: {error}")
