"""SIGTERM and SIGINT, as a wish that the loop looks at: the first asks to drain, the second to end at once."""

from __future__ import annotations

import os
import signal
from types import FrameType

from millrace.errors import ExitCode

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Asked to stop or not. `install` must be called on the main thread."""

    def __init__(self) -> None:
        self.count = 0
        self.signal: signal.Signals | None = None

    def __bool__(self) -> bool:
        return self.count > 0

    def install(self) -> None:
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        self.signal = self.signal or signal.Signals(number)
        if self.count > 1:
            self.at_once()

    def at_once(self) -> None:
        """The second signal. A worker has nothing to save: what was not committed will be done again."""
        os._exit(ExitCode.INTERRUPTED)
