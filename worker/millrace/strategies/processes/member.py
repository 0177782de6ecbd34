"""One process of a pool, as its parent sees it. Nothing here blocks for longer than a moment."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections import deque
from typing import Generic, TypeVar

import msgspec

from millrace.clock import Clock, Deadline
from millrace.errors import ExitCode, FunctionError, MillraceError
from millrace.host.tether import tethered
from millrace.strategies.processes import last_words, progress
from millrace.strategies.processes.block import Block, anonymous
from millrace.strategies.processes.launch import Launch
from millrace.strategies.processes.wire import FAILED, HEAD, READY, WORK, Reply, decode_reply

SLOTS = 2  # requests at a process: one that it works on, and the next, so that it never waits for us
END_SECONDS = 1.0  # for it to end by itself when we hang up
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from millrace.strategies.processes.child import main; main(sys.argv[2:])"
)

T = TypeVar("T")


class Member(Generic[T]):
    """Starts the process at once. Requests come back in the order in which they were sent; `T` is what the sender wants to
    know a request by.
    """

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._pulses = Block()
        self._slots = [(Block(), Block()) for _ in range(SLOTS)]
        self._free = deque(range(SLOTS))
        self.under_way: deque[tuple[T, int]] = deque()  # with the slot
        self.ready = self.killed = False
        self._sent = 0  # requests
        self._heard, self._since = b"", 0.0  # the last pulse, and since when, s
        self._words = anonymous()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        fds = [self._pulses.fd, self._words]
        fds += [block.fd for slot in self._slots for block in slot]
        words = [json.dumps([path or os.getcwd() for path in sys.path]), *map(str, (theirs.fileno(), *fds))]
        command = tethered([sys.executable, "-c", _BOOT, *words])
        # close_fds: nothing else of ours, no connection to a broker, lives on in it
        self._process = subprocess.Popen(command, pass_fds=(theirs.fileno(), *fds), stdin=subprocess.DEVNULL)
        theirs.close()
        self._channel, self._received = ours, b""
        self.pid = self._process.pid
        content = msgspec.msgpack.encode(launch)
        self._send(WORK, 0, self._slots[0][0].write(content))

    @property
    def room(self) -> int:
        """Requests that it can take now."""
        return len(self._free) if self.ready else 0

    def send(self, name: T, content: bytes, now: float) -> None:
        """Give it a request. Only where there is room."""
        if not self.under_way:
            self._since = now
        slot = self._free.popleft()
        self.under_way.append((name, slot))
        self._sent += 1
        self._send(WORK, slot, self._slots[slot][0].write(content))

    def receive(self) -> list[tuple[T, Reply]]:
        """The replies that are there. `dead` says afterwards whether more can come.

        Raises MillraceError: it could not prepare itself.
        """
        size, made = struct.calcsize(HEAD), []
        self._read()
        while len(self._received) >= size:
            kind, slot, length = struct.unpack(HEAD, self._received[:size])
            self._received = self._received[size:]
            outbox = self._slots[slot][1]
            if kind == READY:
                self.ready = True
                continue
            with outbox.view(length) as view:
                if kind == FAILED:
                    what, where, remedy, code = msgspec.msgpack.decode(view)
                    raise FunctionError(what, where=where, remedy=remedy, code=ExitCode(code))
                reply = decode_reply(view)
            name, at = self.under_way.popleft()
            if at != slot:
                raise MillraceError(f"process {self.pid} answered slot {slot}, {at} was due")
            self._free.append(slot)
            made.append((name, reply))
        return made

    def dead(self) -> str:
        """How it ended, in words; "" while it lives."""
        code = self._process.poll()
        if code is None:
            return ""
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"ended by itself, with exit code {code}"

    def silent(self, now: float) -> float:
        """Seconds since it began to call a function, or waited to call it again; 0 if it has nothing to do."""
        with self._pulses.view(8) as view:
            heard = bytes(view)
        if heard != self._heard or not self.under_way:
            self._heard, self._since = heard, now
        return now - self._since

    def at_work(self) -> tuple[T, progress.Progress, bytes] | None:
        """What it works on, how far it is, and its pulse; None: nothing. On any thread."""
        try:
            content = self._pulses.peek(progress.SIZE)
            found = progress.read(content)
            sent, under_way = self._sent, list(self.under_way)
            place = found.request - 1 - sent + len(under_way)
            if not found.request or not 0 <= place < len(under_way):
                return None  # or it was given or has given back something at this very moment
        except (ValueError, RuntimeError):  # closed; another request at this very moment
            return None
        return under_way[place][0], found, content[: progress.PULSE]

    def stack(self, clock: Clock) -> str:
        """Where it is. On any thread, but one at a time; takes a moment, and WITHIN seconds if it does not answer."""
        try:
            deadline = Deadline.after(clock, last_words.WITHIN)
            found = last_words.ask(self._words, self._process.send_signal, deadline)
        except (OSError, ValueError):  # it is gone
            return ""
        return f"process {self.pid}:\n{found}" if found else f"process {self.pid} does not answer"

    def kill(self) -> None:
        """It takes too long."""
        self.killed = True
        self._process.kill()

    def hang_up(self) -> None:
        """Have it end: by itself if it has nothing to do, else at once."""
        idle = self.ready and not self.under_way
        self._channel.close()
        if not idle:
            self._process.kill()

    def close(self) -> None:
        """Have it end, and wait for that. Idempotent."""
        self.hang_up()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        slots, self._slots = self._slots, []
        if slots:
            self._pulses.close()
            os.close(self._words)
        for inbox, outbox in slots:
            inbox.close()
            outbox.close()

    def _send(self, kind: bytes, slot: int, length: int) -> None:
        # a few bytes, of which never more than SLOTS times as many wait: the socket takes them
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is dead: `dead` will say so
            self._channel.sendall(struct.pack(HEAD, kind, slot, length))

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            while piece := self._channel.recv(4096):
                self._received += piece
