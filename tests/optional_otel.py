"""OpenTelemetry is an extra: where it is not installed, tests that need it are skipped with the reason; with
MILLRACE_REQUIRE_ALL=1 (CI) they fail.
"""

from __future__ import annotations

import os

import pytest


def require_opentelemetry() -> None:
    """To be called at the top of a test module."""
    try:
        import opentelemetry.exporter.otlp.proto.http
        import opentelemetry.sdk  # noqa: F401
    except ModuleNotFoundError as missing:
        if os.environ.get("MILLRACE_REQUIRE_ALL") == "1":
            raise
        pytest.skip(f"needs millrace[otel]: {missing}", allow_module_level=True)
