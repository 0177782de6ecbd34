"""Programs of the test cluster are fetched where their release can be had, else built, and kept either way."""

from __future__ import annotations

import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import binaries
from cluster.binaries import Program, ensure
from millrace.errors import ExitCode, MillraceError

pytestmark = pytest.mark.cluster

CONTENT = b"#!/bin/sh\necho released\n"


class Releases(http.server.ThreadingHTTPServer):
    """A site that publishes what is in `files`, by path, and remembers what was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Releases

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        found = self.server.files.get(self.path)
        self.send_response(404 if found is None else 200)
        self.end_headers()
        self.wfile.write(found or b"")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Releases]:
    """An empty cache, a site for releases, and no Go."""
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(binaries.shutil, "which", lambda _: None)
    with Releases() as releases:
        thread = threading.Thread(target=releases.serve_forever)
        thread.start()
        yield releases
        releases.shutdown()
        thread.join()


def program(monkeypatch: pytest.MonkeyPatch, described: Program, name: str = "tool") -> None:
    monkeypatch.setitem(binaries.PROGRAMS, name, described)  # type: ignore[arg-type]


def can_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    build = tmp_path / "build.sh"
    build.write_text(f'#!/bin/sh\nout=$1; shift; mkdir -p "$out"; {script}\n')
    build.chmod(0o755)
    monkeypatch.setattr(binaries, "_BUILD", build)
    monkeypatch.setattr(binaries.shutil, "which", lambda name: f"/somewhere/{name}")


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_release_is_fetched_once_and_can_be_run(site: Releases, monkeypatch: pytest.MonkeyPatch) -> None:
    version = binaries.versions()["ETCD"]
    program(monkeypatch, Program("ETCD", f"{site.url}/{{version}}/{{name}}", f"{site.url}/{{version}}/sum"))
    site.files = {f"/{version}/tool": CONTENT, f"/{version}/sum": f"{sha256(CONTENT)}\n".encode()}

    first, second = ensure(["tool"])["tool"], ensure(["tool"])["tool"]

    assert first == second
    assert (first.read_bytes(), first.stat().st_mode & 0o777) == (CONTENT, 0o755)
    assert site.asked == [f"/{version}/tool", f"/{version}/sum"]


def test_a_program_in_an_archive_is_taken_out_of_it(site: Releases, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry = tarfile.TarInfo("dist/tool")
        entry.size = len(CONTENT)
        archive.addfile(entry, io.BytesIO(CONTENT))
    sums = f"{'0' * 64}  other.tar.gz\n{sha256(packed.getvalue())}  tool.tar.gz\n"
    program(monkeypatch, Program("ETCD", f"{site.url}/tool.tar.gz", f"{site.url}/SUMS", "dist/{name}"))
    site.files = {"/tool.tar.gz": packed.getvalue(), "/SUMS": sums.encode()}

    assert ensure(["tool"])["tool"].read_bytes() == CONTENT


def test_another_file_than_the_one_published_is_not_kept(
    site: Releases, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program(monkeypatch, Program("ETCD", f"{site.url}/tool", f"{site.url}/sum"))
    # its sum is there, but it is another file's
    site.files = {"/tool": CONTENT, "/sum": f"{sha256(CONTENT)} *other\n{'0' * 64} *tool\n".encode()}

    with pytest.raises(MillraceError, match="not the one that is published") as refused:
        ensure(["tool"])

    assert refused.value.code is ExitCode.SETUP
    assert not list((tmp_path / "cache").rglob("tool"))


def test_what_can_not_be_fetched_is_built(
    site: Releases, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program(monkeypatch, Program("ETCD", f"{site.url}/tool"))
    can_build(tmp_path, monkeypatch, 'for p; do echo built > "$out/$p"; done')

    assert ensure(["tool"])["tool"].read_text() == "built\n"
    assert site.asked == ["/tool"]


def test_a_host_that_is_not_there_is_asked_for_one_program_only(
    site: Releases, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told: list[str] = []
    for name in ("one", "two"):
        program(monkeypatch, Program("ETCD", "https://no-such-host.invalid/{name}"), name)
    can_build(tmp_path, monkeypatch, 'for p; do echo built > "$out/$p"; done')

    ensure(["one", "two"], say=told.append)

    assert told[0] == "fetching https://no-such-host.invalid/one"
    assert told[1].startswith("building one, two from Go modules")
    assert len(told) == 2


def test_where_neither_can_be_done_it_says_what_is_in_the_way_of_both(
    site: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(monkeypatch, Program("ETCD", f"{site.url}/tool"))

    with pytest.raises(MillraceError) as refused:
        ensure(["tool"])
    assert "no Go to build them with" in str(refused.value)
    assert "Not Found" in str(refused.value)

    with pytest.raises(MillraceError, match="can't be fetched") as refused:
        ensure(["tool"], build=False)
    assert "make plane" in refused.value.remedy


def test_a_build_that_fails_tells_the_end_of_what_it_said_and_keeps_nothing(
    site: Releases, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program(monkeypatch, Program("ETCD"))
    can_build(tmp_path, monkeypatch, 'echo half > "$out/$1"; echo no module proxy; exit 1')

    with pytest.raises(MillraceError, match="no module proxy") as failed:
        ensure(["tool"])

    assert failed.value.code is ExitCode.SETUP
    assert not list((tmp_path / "cache").rglob("tool"))


def test_what_was_built_before_a_failure_is_kept_and_what_a_killed_build_left_is_removed(
    site: Releases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        program(monkeypatch, Program("ETCD"), name)
    can_build(tmp_path, monkeypatch, '[ "$1" = one ] || exit 1; echo built > "$out/$1"')
    (binaries.root() / ".new-killed").mkdir(parents=True)
    with pytest.raises(MillraceError, match="two can't be built"):
        ensure(["one", "two"])

    assert ensure(["one"], build=False)["one"].read_text() == "built\n"
    assert not list(binaries.root().glob(".new-*"))


def test_a_new_version_is_another_program(site: Releases, monkeypatch: pytest.MonkeyPatch) -> None:
    program(monkeypatch, Program("ETCD", f"{site.url}/{{version}}"))
    site.files = {"/v1": b"one", "/v2": b"two"}

    found = []
    for version in ("v1", "v2"):
        monkeypatch.setattr(binaries, "versions", lambda version=version: {"ETCD": version})
        found.append(ensure(["tool"])["tool"].read_bytes())

    assert found == [b"one", b"two"]
