"""A JVM that ends before Spark can be reached: somebody killed it, which passes; or it can't start, which does not. And
a class-data archive that is of no use to it. (test_collector_lifecycle has one that is.)
"""

from __future__ import annotations

import signal
import subprocess
import traceback
from pathlib import Path

import pytest

from millrace.collector import class_data, session
from millrace.host import java

pytestmark = pytest.mark.integration


def launch(home: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> BaseException:
    """PySpark's own launch of this script in place of Spark's. Returns what it raised."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    submit = home / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True)
    submit.write_text(f"#!/bin/sh\n{script}\n")
    submit.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(home))
    with pytest.raises(PySparkRuntimeError, match="JAVA_GATEWAY_EXITED") as raised:
        launch_gateway()
    for frame, _ in traceback.walk_tb(raised.tb):
        if frame.f_code.co_name == "launch_gateway":
            frame.f_locals["proc"].stdin.close()  # PySpark leaves it open
    return raised.value


def test_one_that_was_killed_is_told_by_its_signal(
    spark: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = launch(tmp_path, monkeypatch, "kill -KILL $$")
    assert session.killed_while_starting(error) == -signal.SIGKILL


def test_one_that_can_not_start_was_not_killed(
    spark: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert session.killed_while_starting(launch(tmp_path, monkeypatch, "exit 1")) is None


def test_any_other_error_says_nothing_of_a_start() -> None:
    with pytest.raises(ConnectionRefusedError) as raised:
        raise ConnectionRefusedError
    assert session.killed_while_starting(raised.value) is None


@pytest.mark.parametrize("damaged", [True, False], ids=["damaged", "gone"])
def test_an_archive_that_can_not_be_used_is_passed_over_in_silence(tmp_path: Path, damaged: bool) -> None:
    archive = tmp_path / "classes.jsa"
    if damaged:
        archive.write_bytes(b"no archive" * 1000)
    said = subprocess.run(
        [java.find().path, *_plain(class_data.options(archive)), "-version"], capture_output=True, text=True
    )
    assert (said.returncode, said.stdout) == (0, "")
    assert "cds" not in said.stderr.lower()


def _plain(options: list[str]) -> list[str]:
    """Without the quotes that Spark's launcher takes off."""
    return [option.strip('"') for option in options]
