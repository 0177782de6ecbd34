"""Where the archive of the JVM's classes is: another one for all that makes it another."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from millrace.collector import class_data
from millrace.host.java import Java

pytestmark = pytest.mark.unit

JAVA = Java(Path("/usr/bin/java"), 17, "b1")


@pytest.fixture
def connector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a connector's jar, and a PySpark with one of its own to be imported."""
    spark, jars = tmp_path / "site" / "pyspark", tmp_path / "connector" / "jars"
    (spark / "jars").mkdir(parents=True)
    jars.mkdir(parents=True)
    (spark / "__init__.py").touch()
    (spark / "jars" / "spark-core.jar").write_text("core")
    (jars / "connector.jar").write_text("connector")
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return jars


def test_it_lies_beside_the_jars_of_the_connector_and_is_found_when_it_is_made(connector: Path) -> None:
    archive = class_data.place(JAVA, connector)
    assert archive is not None
    assert archive.parent == connector.parent
    assert class_data.find(JAVA, connector) is None
    archive.touch()
    assert class_data.find(JAVA, connector) == archive


def test_it_is_another_one_for_another_java_or_jar(connector: Path, tmp_path: Path) -> None:
    first = class_data.place(JAVA, connector)
    assert class_data.place(JAVA, connector) == first
    found = {first, class_data.place(Java(JAVA.path, 17, "b2"), connector)}
    (connector / "connector.jar").write_text("another connector")
    found.add(class_data.place(JAVA, connector))
    core = tmp_path / "site" / "pyspark" / "jars" / "spark-core.jar"
    os.utime(core, ns=(1, 1))  # what the JVM looks at
    found.add(class_data.place(JAVA, connector))
    assert len(found) == 4


def test_paths_survive_the_way_in_which_spark_takes_options_apart() -> None:
    option, _ = class_data.options(Path('/a b/c"d\\e'))
    assert option == '"-XX:SharedArchiveFile=/a b/c\\"d\\\\e"'
