"""`millrace status`."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from millrace.errors import ExitCode, MillraceError
from millrace.local.state import StateDirectory
from millrace.local.view.snapshot import RunSnapshot, decode

STATE_ROOT = Path(".millrace")


def status(state: Path | None, as_json: bool) -> None:
    directory = StateDirectory(state if state is not None else _only_one())
    snapshot = _read(directory)
    user = directory.in_use()
    if as_json:
        answer = {"running": user is not None, "pid": user, "run": snapshot}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(answer)).decode() + "\n")
        return
    from rich.console import Console
    from rich.text import Text

    from millrace.local.view.live import view

    console = Console()
    if user is None and snapshot.state not in ("finished", "stopped", "failed"):
        snapshot = msgspec.structs.replace(snapshot, state="stopped", phase="it was killed")
    console.print(view(snapshot))
    if snapshot.collector is not None and (snapshot.collector.http or snapshot.collector.ui):
        served = snapshot.collector
        ui = f", Spark's UI at {served.ui}" if served.ui else ""
        console.print(Text(f"collector: metrics at http://{served.http}/metrics{ui}", style="dim"))
    if snapshot.error is not None:
        console.print(Text(str(snapshot.error.error()), style="red"))


def _read(directory: StateDirectory) -> RunSnapshot:
    try:
        return decode(directory.status_file.read_bytes())
    except FileNotFoundError:
        raise MillraceError(
            f"no run has left a status in {directory.path}",
            where=str(directory.status_file),
            remedy="give the --state of a run; its default is .millrace/<name of the pipeline>",
            code=ExitCode.USAGE,
        ) from None
    except (OSError, msgspec.DecodeError) as error:
        raise MillraceError(
            f"the status can't be read: {error}",
            where=str(directory.status_file),
            remedy="see that this user may read it, and that this version of Millrace has written it",
            code=ExitCode.DISK,
        ) from error


def _only_one() -> Path:
    found = sorted(path.parent for path in STATE_ROOT.glob("*/status.json"))
    if len(found) == 1:
        return found[0]
    what = (
        "there are several runs: " + ", ".join(path.name for path in found)
        if found
        else "there is no run here"
    )
    raise MillraceError(
        what,
        where=str(STATE_ROOT.absolute()),
        remedy="say which with --state .millrace/NAME"
        if found
        else "go to where it was started, or give its --state DIR",
        code=ExitCode.USAGE,
    )
