"""Folders that take their place in one step.

What is being written must not be seen: readers glob, and some (DuckDB) look into folders whose names begin with a dot
too. So it is written elsewhere, in a workshop on the same file system, and then renamed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from millrace.worker.files import disk_error

_PROBE = ".millrace-probe"


def workshop(path: Path, checkpoint: Path) -> Path:
    """An empty folder from which folders can be renamed into `path`, which is made. What a killed attempt left there is
    removed.

    It is in the checkpoint, if that is on the same file system, else beside `path`, else (where `path` is a mount)
    in it. Raises MillraceError (DISK): `path` can't be written.
    """
    candidates = (checkpoint / "pending", path.parent / f".{path.name}.pending", path / ".pending")
    failure: OSError | None = None
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, path) from error
    found: Path | None = None
    for candidate in candidates:
        shutil.rmtree(candidate, ignore_errors=True)
        if found is not None:
            continue
        try:
            candidate.mkdir(parents=True)
            (candidate / _PROBE).mkdir()
            (candidate / _PROBE).rename(path / _PROBE)
            (path / _PROBE).rmdir()
        except OSError as error:
            failure = error
            with contextlib.suppress(OSError):
                shutil.rmtree(candidate)
        else:
            found = candidate
    if found is None:
        assert failure is not None
        raise disk_error(failure, path / "batch=...") from failure
    return found


def put_in_place(pending: Path, target: Path) -> None:
    """Give a folder its name, in one step. What was there (nothing that counts: see the caller) is removed before.

    It is on the disk when this returns: what it was made of is deleted from the channel soon, and a power cut must not
    take both. Raises OSError.
    """
    for folder, _, files in os.walk(pending):
        for name in (*files, "."):
            _to_disk(Path(folder, name))
    if target.exists():
        shutil.rmtree(target)
    pending.rename(target)
    _to_disk(target.parent)


def _to_disk(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
