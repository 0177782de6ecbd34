"""Jars that Python packages do not bring: fetched once, checked against a lock file, kept in a cache.

A folder of the cache is named by the content of the lock file and appears whole or not at all, so a process that sees
it may use it. The lock file names every jar, so nothing is resolved at the user's: Maven, or the Ivy that comes with
PySpark, only fetches exactly these files from the repository that it is configured for (Maven: its settings.xml; Ivy:
DEFAULT_ARTIFACT_REPOSITORY, as Spark itself reads it; else Maven Central).

A line of a lock file is `group:artifact:version sha256`. Where not all repositories have the version that is wanted, it
is `group:artifact:version - else version sha256`: the second is taken where there is no first. What was taken, with the
checksum of each file at its first fetch, is then in `jars.lock` beside the folder, and holds from then on.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from millrace.errors import ExitCode, MillraceError
from millrace.host import java

_FETCH_SECONDS = 600.0
_NO_SUCH_FILE = re.compile("not find|not found|failure to find", re.IGNORECASE)  # Maven's words, and Ivy's
_TAKEN = "jars.lock"
_LINE = re.compile(r"([^:\s]+):([^:\s]+):([^:\s]+) (?:([0-9a-f]{64})|- else (\S+) ([0-9a-f]{64}))\s*")


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars for one purpose.

    Attributes:
        name: begins the name of their folder in the cache.
        purpose: whose they are, for people: "the embedded broker".
        otherwise: what to do without them; "" if there is no way.
    """

    name: str
    lock: Path
    purpose: str
    otherwise: str = ""

    def folder(self, cache: Path | None = None) -> Path:
        """Where they are, or will be."""
        mark = hashlib.sha256(self.lock.read_bytes()).hexdigest()[:16]
        return (cache or cache_directory()) / f"{self.name}-{mark}" / "jars"


@dataclass(frozen=True, slots=True)
class Jar:
    group: str
    artifact: str
    version: str
    sha256: str  # "": not known before it is fetched
    instead: Jar | None = None  # where the repository has none of this version

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def coordinates(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


def ensure(wanted: JarSet, *, cache: Path | None = None) -> Path:
    """The folder that holds exactly the jars of the lock file, each with its checksum verified; fetched if need be.

    May be called by several processes at once: one fetches, the others wait for it. A damaged folder is fetched anew.
    Raises MillraceError: SETUP (neither Maven nor PySpark, no network, a wrong checksum), DISK (the cache can't be
    written).
    """
    jars = read_lock(wanted.lock)
    folder = wanted.folder(cache)
    if _is_whole(folder, jars):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(folder.parent / ".lock"):
            if not _is_whole(folder, jars):
                _fetch_into(folder, jars, wanted)
    except OSError as error:
        raise MillraceError(
            f"the jars of {wanted.purpose} can't be kept: {error}",
            where=str(folder),
            remedy="make room or make the folder writable, or choose another with MILLRACE_CACHE",
            code=ExitCode.DISK,
        ) from error
    return folder


def cache_directory() -> Path:
    """$MILLRACE_CACHE, else `millrace` in the user's cache folder."""
    if own := os.environ.get("MILLRACE_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "millrace"


def substitutes(wanted: JarSet, *, cache: Path | None = None) -> Sequence[str]:
    """A sentence for each jar in the cache that is not of the version wanted; none if nothing is there yet."""
    folder = wanted.folder(cache)
    return [
        f"{jar.coordinates} is not in this repository: version {jar.instead.version} is used in its place"
        for jar in read_lock(wanted.lock)
        if jar.instead and (folder / jar.instead.file_name).exists()
    ]


def read_lock(lock: Path) -> Sequence[Jar]:
    """The jars a lock file names. Raises MillraceError (SETUP) if a line has another form than above."""
    lines = enumerate(lock.read_text().splitlines(), 1)
    return [
        _read_line(line, f"{lock}, line {number}")
        for number, line in lines
        if line.strip() and not line.startswith("#")
    ]


def _read_line(line: str, where: str) -> Jar:
    match = _LINE.fullmatch(line)
    if match is None:
        raise MillraceError(
            f"not `group:artifact:version sha256`: {line!r}",
            where=where,
            remedy="install Millrace again: its lock file is damaged",
            code=ExitCode.SETUP,
        )
    group, artifact, version, sha256, other, other_sha256 = match.groups()
    return Jar(
        group, artifact, version, sha256 or "", Jar(group, artifact, other, other_sha256) if other else None
    )


def _is_whole(folder: Path, jars: Sequence[Jar]) -> bool:
    """Whether the folder has these jars as they must be, and nothing else: all that is there gets on a class path."""
    if any(jar.instead for jar in jars):
        taken = folder.with_name(_TAKEN)
        chosen = _chosen(jars, read_lock(taken)) if taken.exists() else None
        if chosen is None:
            return False
        jars = chosen
    if not folder.is_dir() or {file.name for file in folder.iterdir()} != {jar.file_name for jar in jars}:
        return False
    # all sums each time: 44 MB are hashed in some 50 ms, and a damaged jar shows itself in the strangest ways
    return all(_sha256(folder / jar.file_name) == jar.sha256 for jar in jars)


def _chosen(jars: Sequence[Jar], taken: Sequence[Jar]) -> Sequence[Jar] | None:
    """What was taken, if each is one of what the lock file allows, with its checksum where that is known."""
    known = {jar.coordinates: jar for jar in taken}
    chosen = [
        next((known[one.coordinates] for one in (jar, jar.instead) if one and one.coordinates in known), None)
        for jar in jars
    ]
    wanted = {one.coordinates: one.sha256 for jar in jars for one in (jar, jar.instead) if one and one.sha256}
    fitting = [jar for jar in chosen if jar and wanted.get(jar.coordinates, jar.sha256) == jar.sha256]
    return fitting if len(fitting) == len(jars) else None


def _sha256(file: Path) -> str | None:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def _one_at_a_time(file: Path) -> Iterator[None]:
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)  # given up by the system when its holder dies
        yield


def _fetch_into(folder: Path, jars: Sequence[Jar], wanted: JarSet) -> None:
    taken = folder.with_name(_TAKEN)
    former = {jar.coordinates: jar.sha256 for jar in (read_lock(taken) if taken.exists() else ())}
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder.parent) as work:
        fetched = Path(work) / "jars"
        chosen = _fetch_some(fetched, Path(work), jars, wanted)
        sums = [
            (jar, _check(fetched / jar.file_name, jar, jar.sha256 or former.get(jar.coordinates)))
            for jar in chosen
        ]
        if folder.exists():
            shutil.rmtree(folder)
        fetched.rename(folder)
        if any(jar.instead for jar in jars):
            record = Path(work) / _TAKEN
            record.write_text("".join(f"{jar.coordinates} {found}\n" for jar, found in sums))
            record.rename(taken)


def _fetch_some(into: Path, work: Path, jars: Sequence[Jar], wanted: JarSet) -> Sequence[Jar]:
    """Fetch the jars, or their substitutes where the repository lacks one. Returns what was fetched."""
    try:
        _fetch(into, work, jars, wanted)
    except MillraceError as error:
        if not any(jar.instead for jar in jars) or not _NO_SUCH_FILE.search(error.what):
            raise
        jars = [jar.instead or jar for jar in jars]
        _fetch(into, work, jars, wanted)
    return jars


def _check(file: Path, jar: Jar, expected: str | None) -> str:
    """The file's checksum. expected: None if none is known."""
    found = _sha256(file)
    if found is None or found != (expected or found):
        what = f"has the SHA-256 {found}, not {expected}" if found else "was not delivered"
        raise MillraceError(
            f"{jar.file_name} {what}",
            where=jar.coordinates,
            remedy="the repository, or something on the way to it, serves another file than the one that Millrace was "
            "tested with: find out why before you use it (a damaged local Maven repository, ~/.m2, can be removed)",
            code=ExitCode.SETUP,
        )
    return found


def _fetch(into: Path, work: Path, jars: Sequence[Jar], wanted: JarSet) -> None:
    """Try Maven, then PySpark's Ivy; the first that works wins."""
    failures = []
    for name, command in (("Maven", _maven(into, work, jars)), ("PySpark's Ivy", _ivy(into, work, jars))):
        if command is None:
            continue
        failure = _run(command)
        if failure is None:
            return
        failures.append(f"{name}: {failure}")
        shutil.rmtree(into, ignore_errors=True)
    if not failures:
        raise MillraceError(
            f"the jars of {wanted.purpose} are not here yet, and there is neither Maven nor PySpark to fetch them with",
            remedy="; ".join(
                filter(None, ["`apt install maven`, or `pip install 'millrace[spark]'`", wanted.otherwise])
            ),
            code=ExitCode.SETUP,
        )
    raise MillraceError(
        f"the jars of {wanted.purpose} can't be fetched:\n" + "\n".join(failures),
        remedy="see that Maven Central, or the mirror that you have configured, can be reached; then try again",
        code=ExitCode.SETUP,
    )


def _maven(into: Path, work: Path, jars: Sequence[Jar]) -> Sequence[str] | None:
    maven = shutil.which("mvn")
    if maven is None:
        return None
    everything = (
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    )
    dependencies = "".join(
        f"<dependency><groupId>{jar.group}</groupId><artifactId>{jar.artifact}</artifactId>"
        f"<version>{jar.version}</version>{everything}</dependency>\n"
        for jar in jars
    )
    pom = work / "pom.xml"
    pom.write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>millrace</groupId><artifactId>jars</artifactId>"
        f"<version>1</version><packaging>pom</packaging><dependencies>\n{dependencies}</dependencies></project>\n"
    )
    plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
    return [maven, "-B", "-q", "-f", str(pom), plugin, "-DincludeScope=runtime", f"-DoutputDirectory={into}"]


def _ivy(into: Path, work: Path, jars: Sequence[Jar]) -> Sequence[str] | None:
    spec = importlib.util.find_spec("pyspark")
    ivy = next(Path(spec.origin).parent.glob("jars/ivy-*.jar"), None) if spec and spec.origin else None
    if ivy is None:
        return None
    dependencies = "".join(
        f'<dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}" conf="default->master" '
        'transitive="false"/>\n'
        for jar in jars
    )
    module = work / "ivy.xml"
    module.write_text(
        '<ivy-module version="2.0"><info organisation="millrace" module="jars"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>\n{dependencies}</dependencies>'
        "</ivy-module>\n"
    )
    # settings of our own: Ivy's and Spark's also look into ~/.m2, and stumble over a pom there without its jar
    root = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")
    mirror = f' root="{root}"' if root else ""
    settings = work / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="central"/><resolvers>'
        f'<ibiblio name="central" m2compatible="true"{mirror}/></resolvers></ivysettings>\n'
    )
    command = [
        str(java.find().path),
        "-jar",
        str(ivy),
        "-settings",
        str(settings),
        "-cache",
        str(work / "ivy"),
    ]
    return [*command, "-ivy", str(module), "-retrieve", f"{into}/[artifact]-[revision].[ext]"]


def _run(command: Sequence[str]) -> str | None:
    """None if the command worked, else the last lines of what it said."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"not done after {_FETCH_SECONDS:.0f} s"
    if done.returncode == 0:
        return None
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return "\n".join(lines[-8:]) or f"exit code {done.returncode}"
