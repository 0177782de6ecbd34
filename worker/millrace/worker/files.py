"""Files that another process reads while this one writes them: whole, or not there; never half.

A write goes to a temporary file beside the target, which then takes the target's place (rename(2) is atomic within a
file system). `durable` also waits for the disk, for what must survive a power cut.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from millrace.errors import ExitCode, MillraceError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def write_whole(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Replace the file's content in one step.

    Raises: MillraceError (DISK) if it can't be written; the former content is still there then.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        raise disk_error(error, path) from error


def disk_error(error: OSError, path: Path) -> MillraceError:
    """What an operating system's refusal to write `path` means to the one who must mend it."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in _FULL:
        remedy = f"free some space on the file system of {path.parent}, or choose another directory"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        remedy = f"make {path.parent} writable for this user, or choose another directory"
    else:
        remedy = "choose a directory on a local disk that can be written"
    return MillraceError(f"can't write {path}: {reason}", where=str(path), remedy=remedy, code=ExitCode.DISK)
