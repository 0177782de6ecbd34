"""Keeps the embedded broker alive, on a thread of its own: starting one takes seconds, and nobody shall wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from millrace.clock import Clock
from millrace.errors import ExitCode, MillraceError
from millrace.local.backoff import Backoff

_LOOK_EVERY = 0.2  # seconds


class Broker(Protocol):
    """What is asked of millrace.local.broker.embedded.EmbeddedBroker."""

    @property
    def bootstrap(self) -> str: ...
    def start(self, timeout: float = ...) -> None: ...
    def stop(self, timeout: float = ...) -> None: ...
    def kill(self) -> None: ...
    def alive(self) -> bool: ...
    def failure(self) -> MillraceError | None: ...


class BrokerKeeper:
    """Starts the broker, restarts it when it dies, stops it when told.

    Attributes:
        ready: whether the broker answers, as far as is known.
        error: why it is not kept any longer: a failure that a restart does not mend. The data are as they were.
    """

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        notice: Callable[[str, str], None],
        *,
        start_timeout: float = 240.0,
    ) -> None:
        self._broker, self._clock, self._notice = broker, clock, notice
        self._start_timeout = start_timeout
        self._backoff = Backoff(first=0.1, longest=10.0, patience=5)
        self._stop = threading.Event()
        self.ready = False
        self.error: MillraceError | None = None
        self._thread = threading.Thread(target=self._keep, name="broker", daemon=True)

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def start(self) -> None:
        """Begin; returns at once. See `ready` and `error`."""
        self._thread.start()

    def stop(self) -> None:
        """Ask to stop the broker in order; returns at once. See `ended`."""
        self._stop.set()

    def ended(self) -> bool:
        return not self._thread.is_alive()

    def join(self, timeout: float) -> bool:
        """Wait until the broker is stopped; returns whether it is."""
        self._thread.join(timeout)
        return self.ended()

    def kill(self) -> None:
        """End it now, whatever the thread is about."""
        self._stop.set()
        self._broker.kill()

    def _keep(self) -> None:
        try:
            self._start()
            while not self._stop.wait(_LOOK_EVERY):
                if not self._broker.alive():
                    self._restart()
        except MillraceError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001  handed to the run, which shows it
            self.error = MillraceError(f"the embedded broker can't be kept: {type(error).__name__}: {error}")
        finally:
            self.ready = False
            self._broker.stop()

    def _start(self) -> None:
        self._broker.start(self._start_timeout)
        self._born = self._clock.monotonic()
        self.ready = True

    def _restart(self) -> None:
        self.ready = False
        failure = self._broker.failure()
        if failure is not None and failure.code in (ExitCode.DISK, ExitCode.BUSY):
            raise failure  # it would fail again, and its reason is the user's to mend
        wait = self._backoff.failed(self._clock.monotonic() - self._born)
        if wait is None:
            raise failure or MillraceError(
                "the embedded broker died again and again",
                remedy="see broker/broker.log in the state directory",
                code=ExitCode.BROKER_UNREACHABLE,
            )
        what = (
            failure.what.splitlines()[0].partition(";")[0]
            if failure is not None
            else "the embedded broker is gone"
        )
        self._notice(f"{what}; it is started again", "warning")
        if not self._stop.wait(wait):
            self._start()
            self._notice("the embedded broker is back", "info")
