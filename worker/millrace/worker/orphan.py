"""A child that must not outlive its parent, not even when the parent is killed and can't say so.

On Linux the kernel does it (prctl(2), PR_SET_PDEATHSIG: SIGKILL as the parent's thread ends); elsewhere, and against
the moment before that call, the loop looks at its parent's id. SIGKILL loses nothing: what was not committed is
aborted at the successor's init_transactions (protocol.md, R1).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """From now on this process ends with process `parent`, which must be its parent."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    end_if_orphaned(parent)


def end_if_orphaned(parent: int) -> None:
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
