"""The command line. Commands are one module each and are imported when called, so that none pays for another.

`main` is the entry point of `millrace` and `python -m millrace.cli`; `app` declares the commands with their options
and help; `failure` is the one place where an exception becomes a message and an exit code (docs/exit-codes.md).
"""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """Run the command line of this process, and end it."""
    from millrace.cli import failure

    failure.exit_with(_app)


def _app() -> None:
    from millrace.cli.app import app

    app(prog_name="millrace")
