"""`kubectl millrace`: a pipeline on a cluster looked at and handled, with the user's own `kubectl` underneath.

kubectl runs the program `kubectl-millrace` for it. `client` is the only one that starts kubectl, so contexts, logins and
proxies are as they are there; `view` is what is read of a resource, `shown` how it is printed, `logs` merges the workers'
logs, `changes` is what writes to the cluster, `app` declares the commands.
"""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """Run the command line of this process, and end it."""
    from millrace.cli import failure

    failure.exit_with(_app)


def _app() -> None:
    from millrace.cli.kubectl.app import app

    app(prog_name="kubectl millrace")
