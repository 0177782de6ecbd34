"""Where librdkafka's own log lines go: to the logger `millrace.librdkafka`, never straight to the user's terminal.

Nobody needs to configure it: without a handler of its own or above it, the lines are dropped. While a broker is away
librdkafka says so at each attempt to reconnect, several times a second; once a minute of each client is let through.
"""

from __future__ import annotations

import logging

from millrace.clock import Clock, SystemClock

PAUSE = 60.0  # seconds
_OF_CONNECTIONS = frozenset({"FAIL", "ERROR", "REQTMOUT", "BROKERUA", "CONNECT", "DISCONNECT", "SESSTERM"})


class OncePerPause(logging.Filter):
    """Lets a client's lines about its connections through once in `PAUSE` seconds, and says how many it held back.

    librdkafka's records have the arguments (facility, name of the client, text).
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._said: dict[str, tuple[float, int]] = {}  # of a client: when, and how many were held back since

    def filter(self, record: logging.LogRecord) -> bool:
        arguments = record.args
        if not isinstance(arguments, tuple) or len(arguments) != 3 or arguments[0] not in _OF_CONNECTIONS:
            return True
        client, now = str(arguments[1]), self._clock.monotonic()
        last, held = self._said.get(client, (now - PAUSE, 0))
        if now - last < PAUSE:
            self._said[client] = last, held + 1
            return False
        self._said[client] = now, 0
        if held:
            record.args = (*arguments[:2], f"{arguments[2]} (and {held} such lines in {now - last:.0f} s)")
        return True


logger = logging.getLogger("millrace.librdkafka")
logger.addHandler(logging.NullHandler())
logger.addFilter(OncePerPause(SystemClock()))
