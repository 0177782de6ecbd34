"""Container images by content: what an image is made of gives its tag, so nothing is built twice.

A Dockerfile begins with `ARG BASE_IMAGE=<a public image>` and `FROM $BASE_IMAGE`. Where that image can be pulled, it is
used; else a base of our own takes its place: Debian with Python and pip, by debootstrap from this machine's own Debian
mirror, with this machine's certificates and pip settings. Builds use the host's network, which reaches what it reaches.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cluster.binaries import HERE, Say, root, versions
from cluster.docker import apt_install, docker, has_image, pulled
from millrace.errors import ExitCode, MillraceError

PREFIX = "millrace-test"
_DEFAULT = re.compile(r"^ARG BASE_IMAGE=(\S+)$", re.MULTILINE)
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
_KEPT = 3  # images of one name: other checkouts, and the way back, need not build again


@dataclass(frozen=True, slots=True)
class Image:
    """An image to be built.

    Attributes:
        name: of it, without PREFIX: "kafka".
        dockerfile: its Dockerfile, which may COPY what `context` has, and nothing else.
        context: files and folders by their path in the build's context.
        arguments: build arguments (ARG) other than BASE_IMAGE.
    """

    name: str
    dockerfile: Path
    context: Mapping[str, Path] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)


def build(image: Image, say: Say) -> str:
    """The image's name with its tag, built if this very content was not built before.

    Raises MillraceError (SETUP): it can't be built; the end of what Docker said is told.
    """
    recipe = image.dockerfile.read_text()
    arguments = dict(image.arguments)
    if default := _DEFAULT.search(recipe):
        arguments["BASE_IMAGE"] = default[1] if pulled(default[1], say) else python_base(say)
    tag = _tag(image.name, _mark(recipe, sorted(arguments.items()), image.context))
    if has_image(tag):
        return tag
    say(f"building {tag}")
    with _staged(image.context) as folder:
        docker(
            *("build", "-q", "--network=host", "-t", tag, "-f", str(image.dockerfile)),
            *(f"--build-arg={name}={value}" for name, value in arguments.items()),
            *(f"--build-arg={name}" for name in _PROXIES if name in os.environ),
            str(folder),
        )
    prune(image.name)
    return tag


def from_program(name: str, program: Path, entry: str, say: Say) -> str:
    """An image of nothing but one static program, at the path `entry`, which is also what it runs."""
    tag = _tag(name, _mark(entry, [], {name: program}))
    if has_image(tag):
        return tag
    say(f"making {tag}")
    with tempfile.TemporaryFile() as packed:
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(program.resolve(), entry.lstrip("/"), filter=_as_root)
        packed.seek(0)
        settings = (f'ENTRYPOINT ["{entry}"]', f"ENV PATH={Path(entry).parent}")
        docker("import", *(f"-c={setting}" for setting in settings), "-", tag, stdin=packed)
    prune(name)
    return tag


def python_base(say: Say) -> str:
    """Debian with python3 and pip, in place of a public slim Python image that can't be pulled."""
    return build(Image("python", HERE / "node" / "python.Dockerfile", {}, {"DEBIAN": debian_base(say)}), say)


def debian_base(say: Say) -> str:
    """The least Debian: the root of all images here that are made without pulling any."""
    script = HERE / "node" / "debian.sh"
    tag = _tag("debian", _mark(script.read_text(), [("DEBIAN", versions()["DEBIAN"])], {}))
    if has_image(tag):
        return tag
    if os.geteuid() != 0:
        raise MillraceError(
            "no base image can be pulled, and only root can make one here",
            remedy="run this as root once, or where images can be pulled",
            code=ExitCode.SETUP,
        )
    if shutil.which("debootstrap") is None:
        apt_install(["debootstrap", "debian-archive-keyring"], say)
    say(f"making {tag} by debootstrap")
    done = subprocess.run(
        [str(script), versions()["DEBIAN"], tag], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise MillraceError(f"no base image can be made:\n{said}", where=str(script), code=ExitCode.SETUP)
    return tag


def prune(name: str) -> None:
    """Remove all but the newest images of this name; those in use stay."""
    with contextlib.suppress(MillraceError):
        found = docker("images", f"{PREFIX}/{name}", "--format", "{{.Repository}}:{{.Tag}}").splitlines()
        for old in found[_KEPT:]:  # Docker lists the newest first
            with contextlib.suppress(MillraceError):
                docker("rmi", old)


def _tag(name: str, mark: str) -> str:
    return f"{PREFIX}/{name}:{mark}"


def _mark(recipe: str, arguments: Iterable[tuple[str, str]], context: Mapping[str, Path]) -> str:
    """What an image is made of, in 16 characters."""
    whole = hashlib.sha256(f"{recipe}\0{list(arguments)}\0{platform.machine()}".encode())
    for place, path in sorted(_files(context)):
        whole.update(f"\0{place}\0{path.stat().st_mode & 0o111}\0".encode())
        with path.open("rb") as stream:
            whole.update(hashlib.file_digest(stream, "sha256").digest())
    return whole.hexdigest()[:16]


def _files(context: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    """Each file of the context with its place in it. What Python leaves behind is none of it."""
    for place, path in context.items():
        if not path.is_dir():
            yield place, path
            continue
        for inside in path.rglob("*"):
            if inside.is_file() and "__pycache__" not in inside.parts:
                yield f"{place}/{inside.relative_to(path)}", inside


@contextlib.contextmanager
def _staged(context: Mapping[str, Path]) -> Iterator[Path]:
    """A folder with the context in it and nothing else, by hard links where the file system allows."""
    with tempfile.TemporaryDirectory(prefix=".context-", dir=root()) as folder:
        for place, path in _files(context):
            target = Path(folder, place)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                target.hardlink_to(path.resolve())
            except OSError:
                shutil.copy2(path, target)
        yield Path(folder)


def _as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755
    return entry
