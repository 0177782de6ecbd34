"""Calls of librdkafka that may never return, although they take a time-out.

send_offsets_to_transaction is one, when the broker dies under it: it then waits for ever, deaf to signals. So such a
call is made on a thread of its own and awaited with a deadline (invariant 6). Where the deadline passes the call is
left behind with its client, which is never used again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

GRACE = 1.0  # s beyond the call's own time-out, which comes first when all is well


class NeverReturned(Exception):
    """The call is still under way, and will be for ever. Its outcome is unknown."""


def bounded(call: Callable[[], None], timeout: float) -> None:
    """Make the call, and raise what it raises. Raises NeverReturned `GRACE` s after `timeout` s."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001  raised anew where it was asked for
            raised.append(error)

    thread = threading.Thread(target=run, name="librdkafka call", daemon=True)
    thread.start()
    thread.join(timeout + GRACE)
    if thread.is_alive():
        raise NeverReturned
    if raised:
        raise raised[0]
