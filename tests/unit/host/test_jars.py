"""Jars are exactly those of the lock file, or there is an error that says what to do."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import threading
from pathlib import Path

import pytest

from millrace.errors import ExitCode, MillraceError
from millrace.host import jars, java
from millrace.host.jars import JarSet
from millrace.local.broker.jars import BROKER

pytestmark = pytest.mark.unit

CONTENT = b"a jar"
SUM = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    file = tmp_path / "jars.lock"
    file.write_text(f"# one jar\norg.example:thing:1.0 {SUM}\n")
    return file


@pytest.fixture
def wanted(lock: Path) -> JarSet:
    return JarSet("things", lock, "the thing", "or do without")


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH that has only what a test puts there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(jars.importlib.util, "find_spec", lambda _: None)
    return folder


def test_the_lock_file_names_each_jar_once_with_a_checksum() -> None:
    locked = jars.read_lock(BROKER.lock)
    assert len(locked) == 46
    assert len({jar.file_name for jar in locked}) == 46
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in locked)
    assert {"kafka_2.13-4.3.1.jar", "log4j-slf4j-impl-2.25.4.jar"} <= {jar.file_name for jar in locked}


def test_a_damaged_lock_file_is_named_by_line(tmp_path: Path) -> None:
    file = tmp_path / "jars.lock"
    file.write_text("org.example:thing\n")
    with pytest.raises(MillraceError, match=r"org\.example:thing") as caught:
        jars.read_lock(file)
    assert caught.value.where == f"{file}, line 1"


def test_what_maven_delivers_is_kept_and_not_fetched_again(
    tmp_path: Path, wanted: JarSet, tools: Path
) -> None:
    _maven(tools, CONTENT, count := tmp_path / "count")
    first = jars.ensure(wanted, cache=tmp_path / "cache")
    assert [file.name for file in first.iterdir()] == ["thing-1.0.jar"]
    assert jars.ensure(wanted, cache=tmp_path / "cache") == first
    assert count.read_text() == "called\n"
    assert sorted(os.listdir(first.parent)) == [".lock", "jars"]


def test_a_wrong_checksum_is_an_error_and_nothing_is_kept(
    tmp_path: Path, wanted: JarSet, tools: Path
) -> None:
    _maven(tools, b"another jar", tmp_path / "count")
    with pytest.raises(MillraceError, match=r"thing-1\.0\.jar has the SHA-256") as caught:
        jars.ensure(wanted, cache=tmp_path / "cache")
    assert caught.value.code is ExitCode.SETUP
    assert caught.value.where == "org.example:thing:1.0"
    assert not wanted.folder(tmp_path / "cache").exists()


def test_a_jar_that_is_damaged_in_the_cache_is_fetched_again(
    tmp_path: Path, wanted: JarSet, tools: Path
) -> None:
    _maven(tools, CONTENT, tmp_path / "count")
    folder = jars.ensure(wanted, cache=tmp_path / "cache")
    (folder / "thing-1.0.jar").write_bytes(b"half a")
    assert (jars.ensure(wanted, cache=tmp_path / "cache") / "thing-1.0.jar").read_bytes() == CONTENT


def test_a_jar_too_many_in_the_cache_never_gets_on_a_class_path(
    tmp_path: Path, wanted: JarSet, tools: Path
) -> None:
    _maven(tools, CONTENT, tmp_path / "count")
    folder = jars.ensure(wanted, cache=tmp_path / "cache")
    (folder / "another.jar").write_bytes(b"anything")
    assert os.listdir(jars.ensure(wanted, cache=tmp_path / "cache")) == ["thing-1.0.jar"]


@pytest.mark.parametrize(
    "record", ["", f"org.example:thing:3.0 {'0' * 64}\n", f"org.example:thing:1.0 {'0' * 64}\n"]
)
def test_the_record_of_what_was_taken_is_not_believed_against_the_lock_file(
    tmp_path: Path, lock: Path, wanted: JarSet, tools: Path, record: str
) -> None:
    lock.write_text(f"org.example:thing:2.0 - else 1.0 {SUM}\n")
    _maven(tools, CONTENT, tmp_path / "count", only="1.0")
    folder = jars.ensure(wanted, cache=tmp_path)
    (folder / "thing-1.0.jar").write_bytes(b"something else")
    other = hashlib.sha256(b"something else").hexdigest()
    (folder.parent / "jars.lock").write_text(record.replace("0" * 64, other))
    assert (jars.ensure(wanted, cache=tmp_path) / "thing-1.0.jar").read_bytes() == CONTENT


def test_where_the_version_wanted_is_not_to_be_had_its_substitute_is_taken_and_said(
    tmp_path: Path, lock: Path, wanted: JarSet, tools: Path
) -> None:
    lock.write_text(f"org.example:thing:2.0 - else 1.0 {SUM}\n")
    _maven(tools, CONTENT, tmp_path / "count", only="1.0")
    folder = jars.ensure(wanted, cache=tmp_path)
    assert os.listdir(folder) == ["thing-1.0.jar"]
    assert jars.substitutes(wanted, cache=tmp_path) == [
        "org.example:thing:2.0 is not in this repository: version 1.0 is used in its place"
    ]
    assert (folder.parent / "jars.lock").read_text() == f"org.example:thing:1.0 {SUM}\n"
    assert jars.ensure(wanted, cache=tmp_path) == folder
    assert (tmp_path / "count").read_text() == "called\n" * 2


def test_the_version_wanted_is_taken_where_it_is_and_its_checksum_holds_from_then_on(
    tmp_path: Path, lock: Path, wanted: JarSet, tools: Path
) -> None:
    lock.write_text(f"org.example:thing:2.0 - else 1.0 {SUM}\n")
    _maven(tools, b"two", tmp_path / "count", version="2.0")
    folder = jars.ensure(wanted, cache=tmp_path)
    assert os.listdir(folder) == ["thing-2.0.jar"]
    assert jars.substitutes(wanted, cache=tmp_path) == []
    (folder / "thing-2.0.jar").write_bytes(b"half")
    _maven(tools, b"another two", tmp_path / "count", version="2.0")
    with pytest.raises(MillraceError, match=r"thing-2\.0\.jar has the SHA-256"):
        jars.ensure(wanted, cache=tmp_path)


def test_callers_at_the_same_time_fetch_once(tmp_path: Path, wanted: JarSet, tools: Path) -> None:
    _maven(tools, CONTENT, count := tmp_path / "count")
    threads = [
        threading.Thread(target=jars.ensure, args=(wanted,), kwargs={"cache": tmp_path}) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert count.read_text() == "called\n"


def test_another_lock_file_has_another_folder(tmp_path: Path, lock: Path, wanted: JarSet) -> None:
    before = wanted.folder(tmp_path)
    lock.write_text(lock.read_text() + "# changed\n")
    assert wanted.folder(tmp_path) != before


@pytest.mark.usefixtures("tools")
def test_without_maven_and_pyspark_the_error_names_both(tmp_path: Path, wanted: JarSet) -> None:
    with pytest.raises(MillraceError, match="neither Maven nor PySpark") as caught:
        jars.ensure(wanted, cache=tmp_path / "cache")
    assert caught.value.code is ExitCode.SETUP
    assert "or do without" in caught.value.remedy


def test_what_maven_complains_of_is_shown(tmp_path: Path, wanted: JarSet, tools: Path) -> None:
    _script(tools / "mvn", "echo 'the network is down'; exit 1")
    with pytest.raises(MillraceError, match="Maven: the network is down"):
        jars.ensure(wanted, cache=tmp_path / "cache")


@pytest.mark.usefixtures("tools")
def test_a_cache_that_cannot_be_written_is_a_disk_error(tmp_path: Path, wanted: JarSet) -> None:
    (tmp_path / "cache").write_text("a file, where a folder should be")
    with pytest.raises(MillraceError) as caught:
        jars.ensure(wanted, cache=tmp_path / "cache")
    assert caught.value.code is ExitCode.DISK
    assert "MILLRACE_CACHE" in caught.value.remedy


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.delenv("MILLRACE_CACHE", raising=False)
    assert jars.cache_directory() == Path("/x/millrace")
    monkeypatch.setenv("MILLRACE_CACHE", "/m")
    assert jars.cache_directory() == Path("/m")


@pytest.mark.usefixtures("tools")
def test_a_missing_java_says_what_to_install() -> None:
    with pytest.raises(MillraceError, match="needs Java, and there is none") as caught:
        java.find()
    assert caught.value.code is ExitCode.SETUP
    assert "openjdk-17-jre-headless" in caught.value.remedy


@pytest.mark.parametrize(
    "said", ['java version "1.8.0_402"', 'openjdk version "11.0.2" 2019-01-15', "nonsense"]
)
def test_a_java_that_is_too_old_is_refused(tools: Path, said: str) -> None:
    _script(tools / "java", f"echo '{said}' >&2")
    with pytest.raises(MillraceError, match="needs Java 17 or newer") as caught:
        java.find()
    assert caught.value.code is ExitCode.SETUP


def test_java_home_comes_before_the_path(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _script(tools / "java", "echo 'openjdk version \"17.0.1\"' >&2")
    own = tmp_path / "jdk" / "bin"
    own.mkdir(parents=True)
    _script(own / "java", "echo 'openjdk version \"21.0.2\" 2024-01-16' >&2")
    on_path = java.find()
    monkeypatch.setenv("JAVA_HOME", str(own.parent))
    at_home = java.find()
    assert (on_path.version, at_home.version) == (17, 21)
    assert on_path.build != at_home.build


def _maven(tools: Path, content: bytes, count: Path, *, version: str = "1.0", only: str = "") -> None:
    """A Maven that delivers one jar, and counts its calls. only: it knows no other version."""
    script = f"""
    echo called >> {count}
    for word in "$@"; do case $word in -DoutputDirectory=*) into=${{word#*=}};; -f) ;; */pom.xml) pom=$word;; esac; done
    if [ -n "{only}" ]; then
        while read -r line; do case $line in
            *artifactId\\>thing*version\\>{only}\\<*|*\\>thing\\<*\\>{only}\\<*) known=1;;
        esac; done < "$pom"
        [ -n "$known" ] || {{ echo "Could not find artifact org.example:thing"; exit 1; }}
    fi
    /bin/mkdir -p "$into"; printf '%s' '{content.decode()}' > "$into/thing-{version}.jar"
    """
    _script(tools / "mvn", script)


def _script(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
