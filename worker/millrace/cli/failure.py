"""Where an exception becomes what the user sees: what is wrong, where, what to do; and the exit code.

Tracebacks are for bugs, and for `--debug` (or MILLRACE_DEBUG=1).
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from millrace.errors import ExitCode, MillraceError

_LINES = 20  # a message fits on one screen, whatever it quotes


def debugging(on: bool | None = None) -> bool:
    """Whether tracebacks are wanted; with an argument: they are (not) from now on."""
    if on is not None:
        os.environ["MILLRACE_DEBUG"] = "1" if on else ""
    return os.environ.get("MILLRACE_DEBUG", "") not in ("", "0")


def exit_with(command: Callable[[], None]) -> NoReturn:
    """Run the command and end the process with its exit code."""
    try:
        command()
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # whoever read our output has gone (`| head`): no error; and nothing more may be flushed to it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.OK)
    except Exception as error:  # noqa: BLE001  the one place that takes all
        message, code = explain(error)
        print_error(message)
        if debugging():
            import traceback

            traceback.print_exc()
        sys.exit(code)
    sys.exit(ExitCode.OK)


def explain(error: Exception) -> tuple[str, ExitCode]:
    """The message for a terminal, and the exit code."""
    if isinstance(error, MillraceError):
        return _fit(str(error)), error.code
    if _is_invalid_manifest(error):
        return _fit(str(error)), ExitCode.MANIFEST
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG):
        place = f" {error.filename}" if error.filename else ""
        return (
            f"can't write{place}: {error.strerror}\n  to do: free some space, or write elsewhere",
            ExitCode.DISK,
        )
    return (
        f"unexpected {type(error).__name__}: {error}\n"
        "  to do: this is a bug in Millrace; please report it with what `--debug` shows",
        ExitCode.FAILED,
    )


def print_error(message: str) -> None:
    """On the standard error stream, in colour where that is a terminal."""
    head = "\x1b[1;31merror:\x1b[0m" if sys.stderr.isatty() and "NO_COLOR" not in os.environ else "error:"
    sys.stderr.write(f"{head} {message}\n")


def _is_invalid_manifest(error: Exception) -> bool:
    # only when the models are loaded already: pydantic is slow to import, and most commands never need it
    models = sys.modules.get("millrace_api")
    return models is not None and isinstance(error, models.InvalidManifest)


def _fit(text: str) -> str:
    lines = text.splitlines()
    if len(lines) <= _LINES:
        return text
    # what to do stands last, so the middle gives way
    hidden = len(lines) - _LINES
    return "\n".join([*lines[: _LINES - 4], f"  ... {hidden + 1} more lines", *lines[-3:]])
