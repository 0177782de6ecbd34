"""The peers' environments: a virtual environment each, with what its requirements file pins, installed by pip.

Their folders are in Millrace's cache ($MILLRACE_CACHE, else the user's), named by the content of the requirements file and
the version of Python, made once.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from millrace.host.jars import cache_directory

PEERS = Path(__file__).parent / "peers"
_SECONDS = 600  # for pip
_STAMP = "made"


class NoEnvironment(Exception):
    """A peer's environment can't be made; the text is the reason."""


def python_of(peer: str) -> Path:
    """The Python of this peer's environment, which is made if need be. Raises NoEnvironment."""
    requirements = PEERS / f"requirements-{peer}.txt"
    content = f"{requirements.read_text()}{sys.version}"
    mark = hashlib.sha256(content.encode()).hexdigest()[:16]
    folder = cache_directory() / f"bench-{peer}-{mark}"
    python = folder / "bin" / "python"
    if (folder / _STAMP).exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(folder)])
    _run([str(python), "-m", "pip", "install", "-q", "-r", str(requirements)])
    (folder / _STAMP).touch()
    return python


def pinned(peer: str) -> dict[str, str]:
    """What the requirements file of a peer names first, with its version, and the client that it brings."""
    lines = (PEERS / f"requirements-{peer}.txt").read_text().splitlines()
    packages = dict(line.split("==", 1) for line in lines if "==" in line)
    wanted = [name for name in packages if name.partition("[")[0].endswith(peer)]
    found = {name.partition("[")[0]: packages[name] for name in wanted}
    if client := packages.get("confluent-kafka"):
        found[f"confluent-kafka of {peer}"] = client
    return found


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoEnvironment(f"{' '.join(command[:4])}: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise NoEnvironment(
            said[-1] if said else f"{' '.join(command[:4])} ended with code {done.returncode}"
        )
