"""Spark's Kafka connector fits one PySpark: what is pinned, what is locked and what is installed agree."""

from __future__ import annotations

import importlib.util
import re
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from millrace.collector import jars
from millrace.collector.jars import CONNECTOR
from millrace.errors import ExitCode, MillraceError
from millrace.host.jars import read_lock

pytestmark = pytest.mark.unit

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"
WHEEL = re.compile(r"# wheel: (\S+\.jar) for \S+:\S+:\S+")


def test_the_connector_is_that_of_the_pinned_pyspark() -> None:
    pinned = re.search(r'"pyspark==([\d.]+)"', PYPROJECT.read_text())
    assert pinned is not None
    locked = {jar.artifact: jar for jar in read_lock(CONNECTOR.lock)}
    assert set(locked) == {
        "commons-pool2",
        "kafka-clients",
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
    }
    assert locked["spark-sql-kafka-0-10_2.13"].version == pinned[1]
    provider = locked["spark-token-provider-kafka-0-10_2.13"]
    assert provider.version == pinned[1]
    for jar in locked.values():
        checksum = jar.sha256 or (jar.instead and jar.instead.sha256)
        assert checksum, f"{jar.coordinates} has no checksum"


def test_what_else_the_connector_needs_is_in_the_wheel_of_the_same_scala() -> None:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        pytest.skip("NO SPARK HERE: pip install 'millrace[spark]'")
    wheel = {file.name for file in Path(spec.origin).parent.glob("jars/*.jar")}
    served = WHEEL.findall(CONNECTOR.lock.read_text())
    assert len(served) == 8
    assert set(served) <= wheel
    assert any(re.fullmatch(r"scala-library-2\.13\.\d+\.jar", name) for name in served)
    # the wheel has none of what is added to it: two versions of a class would be one too many
    assert not {name for name in wheel if name.startswith(("kafka-clients-", "commons-pool2-"))}


def test_another_pyspark_is_refused_with_both_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "pyspark" / "__init__.py"
    package.parent.mkdir()
    package.with_name("version.py").write_text("# comment\n__version__: str = '4.1.0'\n")
    spec = ModuleSpec("pyspark", None, origin=str(package))
    monkeypatch.setattr(jars.importlib.util, "find_spec", lambda _: spec)
    with pytest.raises(MillraceError, match=r"PySpark 4\.1\.0 is installed") as caught:
        jars.check_pyspark()
    assert caught.value.code is ExitCode.SETUP
    assert "pip install 'pyspark==4." in caught.value.remedy


def test_no_pyspark_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MillraceError, match="PySpark is not installed") as caught:
        jars.check_pyspark()
    assert "millrace[spark]" in caught.value.remedy
