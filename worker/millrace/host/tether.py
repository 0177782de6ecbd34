"""Starting a process that does not outlive this one, however this one ends.

`tethered(command)` is that command behind a launcher of a few lines, which is this very file run as a script: it asks
Linux to kill it when its parent is gone (PR_SET_PDEATHSIG, kept across execve) and then becomes the command. A
preexec_fn would do the same, but forks all of a process that has threads. Where there is no such call (macOS), a
process that is killed leaves its broker behind. Linux counts the *thread* that started the process as its parent: start
it in a thread that stays.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def tethered(command: Sequence[str]) -> Sequence[str]:
    """The command line that runs `command` (its first word is a path) and ties it to the calling process."""
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), str(os.getpid()), *command]


def _become(parent: int, command: Sequence[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before it could be watched
            sys.exit(1)
    os.execv(command[0], list(command))


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
