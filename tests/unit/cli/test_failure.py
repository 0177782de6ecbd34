"""Every failure becomes one screen that says what to do, and its documented exit code."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

import millrace_api
from millrace.cli.failure import explain
from millrace.connectivity.ports import AuthenticationFailed, BrokerUnreachable, OffsetOutOfRange
from millrace.errors import ExitCode, ManifestError, MillraceError

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ManifestError("bad"), ExitCode.MANIFEST),
        (BrokerUnreachable("no broker"), ExitCode.BROKER_UNREACHABLE),
        (AuthenticationFailed("refused"), ExitCode.CREDENTIALS),
        (OffsetOutOfRange("flights", 3, 12), ExitCode.OFFSET_GONE),
        (MillraceError("full", code=ExitCode.DISK), ExitCode.DISK),
        (OSError(errno.ENOSPC, "No space left on device", "/state/run.json"), ExitCode.DISK),
        (OSError(errno.EROFS, "Read-only file system"), ExitCode.DISK),
        (KeyError("x"), ExitCode.FAILED),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_has_its_exit_code(error: Exception, code: ExitCode) -> None:
    assert explain(error)[1] == code


def test_an_invalid_manifest_is_explained_by_itself() -> None:
    with pytest.raises(millrace_api.InvalidManifest) as caught:
        millrace_api.load("kind: ConsumerPipeline", source="pipeline.yaml")
    message, code = explain(caught.value)
    assert code == ExitCode.MANIFEST
    assert "pipeline.yaml" in message


def test_a_bug_asks_to_be_reported() -> None:
    message, _ = explain(RuntimeError("boom"))
    assert "RuntimeError: boom" in message
    assert "--debug" in message


def test_a_long_message_fits_on_a_screen_and_keeps_what_to_do() -> None:
    error = MillraceError("\n".join(f"line {n}" for n in range(200)), remedy="see the log")
    lines = explain(error)[0].splitlines()
    assert len(lines) <= 24
    assert lines[0] == "line 0"
    assert lines[-1] == "  to do: see the log"


def test_every_exit_code_is_documented() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \|", (ROOT / "docs/exit-codes.md").read_text(), re.MULTILINE)
    assert {(int(code), name) for code, name in rows} == {(int(code), code.name) for code in ExitCode}
