"""The programs that a cluster is made of: each is fetched or built once, and kept in the cache.

`ensure` looks in the cache, then fetches the release that its project publishes, checked against the checksum that is
published with it, and where that can't be had it builds the program from Go modules (go/build.sh). A folder of the
cache is named by version and content of the recipe, and appears whole or not at all.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from millrace.errors import ExitCode, MillraceError
from millrace.host.jars import cache_directory

HERE = Path(__file__).parent
_BUILD = HERE / "go" / "build.sh"
_NEW = ".new-"
_CONNECT_SECONDS = 10.0  # a host that does not answer is done without
_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Program:
    """One program.

    Attributes:
        version: its name in versions.env; "" for one that is all ours.
        release: where its project publishes it; "" if it does not. {version}, {arch} and {name} are filled in.
        checksum: the same for its SHA-256, alone or in a list of files; "" where none is published, so that the TLS
            connection must do.
        member: its path in the archive that `release` is; "" if it is the program itself.
        source: our main.go, in go/; "" if it is all theirs.
    """

    version: str
    release: str = ""
    checksum: str = ""
    member: str = ""
    source: str = ""


_KUBERNETES = Program(
    "KUBERNETES",
    release="https://dl.k8s.io/{version}/bin/linux/{arch}/{name}",
    checksum="https://dl.k8s.io/{version}/bin/linux/{arch}/{name}.sha256",
)
_GITHUB = "https://github.com/{}/releases/download/{{version}}/"
_ETCD = _GITHUB.format("etcd-io/etcd")
_KIND = _GITHUB.format("kubernetes-sigs/kind") + "kind-linux-{arch}"

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
NODE = ("kubelet", "kubeadm", "kubectl", "crictl")
NETWORK = ("ptp", "loopback", "host-local", "portmap")

_KUBERNETES_PROGRAMS = (
    *("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"),
    *("kubelet", "kubeadm", "kubectl"),
)

PROGRAMS: Mapping[str, Program] = {
    **dict.fromkeys(_KUBERNETES_PROGRAMS, _KUBERNETES),
    "etcd": Program(
        "ETCD",
        release=_ETCD + "etcd-{version}-linux-{arch}.tar.gz",
        checksum=_ETCD + "SHA256SUMS",
        member="etcd-{version}-linux-{arch}/etcd",
        source="etcd",
    ),
    "kwok": Program("KWOK", release=_GITHUB.format("kubernetes-sigs/kwok") + "kwok-linux-{arch}"),
    "kind": Program("KIND", release=_KIND, checksum=_KIND + ".sha256sum"),
    "helm": Program(
        "HELM",
        release="https://get.helm.sh/helm-{version}-linux-{arch}.tar.gz",
        checksum="https://get.helm.sh/helm-{version}-linux-{arch}.tar.gz.sha256sum",
        member="linux-{arch}/helm",
    ),
    "coredns": Program("COREDNS", source="coredns"),
    "crictl": Program("KUBERNETES", source="crictl"),
    "pause": Program("", source="pause"),
    "local-path-provisioner": Program("LOCAL_PATH_PROVISIONER"),
    **dict.fromkeys(NETWORK, Program("CNI")),
}


@cache
def versions() -> Mapping[str, str]:
    """What versions.env says."""
    lines = (line.strip() for line in (HERE / "versions.env").read_text().splitlines())
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def ensure(names: Iterable[str], *, build: bool = True, say: Say = lambda _: None) -> Mapping[str, Path]:
    """The path of each program, fetched or built if need be.

    May be called by several processes at once: one does the work, the others wait for it.

    Args:
        build: False leaves out what takes minutes, and what can't be fetched is an error.
        say: is told of what takes long.

    Raises MillraceError: SETUP (neither of the ways is open here), DISK (the cache can't be written).
    """
    paths = {name: _kept_at(name) for name in names}
    if all(path.exists() for path in paths.values()):
        return paths
    home = root()
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(home / ".lock"), _work(home) as work:
            missing = [name for name, path in paths.items() if not path.exists()]
            failures = _fetch_each(missing, Path(work), say)
            if failures:
                _build(failures, Path(work), build=build, say=say)
    except OSError as error:
        raise MillraceError(
            f"the programs of the test cluster can't be kept: {error}",
            where=str(home),
            remedy="make room or make the folder writable, or choose another with MILLRACE_CACHE",
            code=ExitCode.DISK,
        ) from error
    return paths


def folder(names: Iterable[str], into: Path, say: Say = lambda _: None) -> Path:
    """A folder with a link to each of these programs, for a PATH."""
    into.mkdir(parents=True, exist_ok=True)
    for name, path in ensure(names, say=say).items():
        with contextlib.suppress(FileNotFoundError):
            (into / name).unlink()
        (into / name).symlink_to(path)
    return into


def root() -> Path:
    """Where all of tests/cluster is kept."""
    return cache_directory() / "cluster"


def _kept_at(name: str) -> Path:
    program = PROGRAMS[name]
    recipe = hashlib.sha256(_BUILD.read_bytes())
    recipe.update(f"{name} {versions().get(program.version)} {_ARCHITECTURE} {program}".encode())
    if program.source:
        recipe.update((HERE / "go" / program.source / "main.go").read_bytes())
    return root() / f"{name}-{recipe.hexdigest()[:16]}" / name


@contextlib.contextmanager
def _one_at_a_time(file: Path) -> Iterator[None]:
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)  # given up by the system when its holder dies
        yield


@contextlib.contextmanager
def _work(home: Path) -> Iterator[str]:
    """A folder to build in. What one that was killed has left is removed."""
    for left in home.glob(f"{_NEW}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_NEW, dir=home) as work:
        yield work


def _keep(name: str, made: Path) -> None:
    made.chmod(0o755)
    home = _kept_at(name).parent
    whole = made.with_name(f"{made.name}.whole")
    whole.mkdir()
    made.rename(whole / name)
    shutil.rmtree(home, ignore_errors=True)
    whole.rename(home)


def _fetch_each(names: Sequence[str], work: Path, say: Say) -> Mapping[str, str]:
    """Fetch what can be fetched. Returns why not, for the others."""
    failures: dict[str, str] = {}
    silent: dict[str, str] = {}  # hosts that can't be reached, and why: each is waited for once only
    for name in names:
        url = _filled(PROGRAMS[name].release, name)
        host = url.partition("://")[2].partition("/")[0]
        if not url or platform.system() != "Linux":
            failures[name] = "no release is published"
        elif host in silent:
            failures[name] = silent[host]
        else:
            try:
                say(f"fetching {url}")
                content = _release(name)
                (work / name).write_bytes(content)
                _keep(name, work / name)
            except urllib.error.URLError as error:
                failures[name] = f"{host}: {error.reason}"
                if not isinstance(error, urllib.error.HTTPError):
                    silent[host] = failures[name]
            except (OSError, tarfile.TarError, KeyError) as error:
                failures[name] = f"{url}: {error}"
    return failures


def _release(name: str) -> bytes:
    """The program as its project publishes it. Raises MillraceError (SETUP) if it is not what the checksum says."""
    program = PROGRAMS[name]
    url = _filled(program.release, name)
    content = _get(url)
    if program.checksum:
        found = hashlib.sha256(content).hexdigest()
        published = _get(_filled(program.checksum, name)).decode()
        if not _names_sum(published, found, url.rpartition("/")[2]):
            raise MillraceError(
                f"{url} has the SHA-256 {found}, which is not the one that is published",
                where=_filled(program.checksum, name),
                remedy="something on the way serves another file: find out what before you go on",
                code=ExitCode.SETUP,
            )
    if not program.member:
        return content
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        member = archive.extractfile(_filled(program.member, name))
        if member is None:
            raise KeyError(f"no file {program.member} in it")
        return member.read()


def _names_sum(published: str, found: str, file: str) -> bool:
    """Whether a list of checksums, or a lone one, has this one for the file."""
    entries = [line.split() for line in published.splitlines() if line.strip()]
    return any(entry[0] == found and (len(entry) == 1 or entry[1].lstrip("*") == file) for entry in entries)


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_CONNECT_SECONDS) as reply:
        return bytes(reply.read())


def _filled(template: str, name: str) -> str:
    version = versions().get(PROGRAMS[name].version, "")
    return template.format(version=version, arch=_ARCHITECTURE, name=name)


def _build(failures: Mapping[str, str], work: Path, *, build: bool, say: Say) -> None:
    why = "\n".join(sorted({f"{name}: {reason}" for name, reason in failures.items()}))
    if not build:
        raise MillraceError(
            f"these programs are not in the cache and can't be fetched:\n{why}",
            remedy="`make plane` builds them from Go modules, once; that takes some minutes",
            code=ExitCode.SETUP,
        )
    if shutil.which("go") is None:
        raise MillraceError(
            f"these programs can't be fetched, and there is no Go to build them with:\n{why}",
            remedy="install Go 1.21 or newer, or go where the hosts above can be reached",
            code=ExitCode.SETUP,
        )
    say(f"building {', '.join(failures)} from Go modules: once; Kubernetes takes some minutes")
    for names in _together(failures):  # each kept as soon as it is there: it may be long until the last is
        command = [str(_BUILD), str(work / "built"), *names]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode != 0:
            said = "\n".join(done.stdout.splitlines()[-15:])
            raise MillraceError(
                f"{', '.join(names)} can't be built from Go modules:\n{said}",
                where=os.fspath(_BUILD),
                remedy="see that Go's module proxy can be reached (`go env GOPROXY`), and try again",
                code=ExitCode.SETUP,
            )
        for name in names:
            _keep(name, work / "built" / name)


def _together(names: Iterable[str]) -> Sequence[Sequence[str]]:
    """What is built in one go: the programs of Kubernetes, which share most of it; each other by itself."""
    kubernetes = [name for name in names if PROGRAMS[name].version == "KUBERNETES"]
    others = [[name] for name in names if name not in kubernetes]
    return [*others, kubernetes] if kubernetes else others
