"""What runs in a process of a pool: one request after the other, until the parent hangs up.

It ends with its parent, however that ends: the socket is closed then, and on Linux the kernel kills it should it be in a
function for long (PR_SET_PDEATHSIG, by host.tether).
"""

from __future__ import annotations

import faulthandler
import importlib
import pickle
import signal
import socket
import struct
import time
import traceback
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import msgspec

from millrace.engine.batch import Batch
from millrace.engine.garbage import tune_garbage_collection
from millrace.errors import MessageFailure, MillraceError
from millrace.strategies.judge import Judge
from millrace.strategies.processes import last_words, progress
from millrace.strategies.processes.block import Block
from millrace.strategies.processes.launch import Launch
from millrace.strategies.processes.portable import portable
from millrace.strategies.processes.wire import (
    DONE,
    FAILED,
    HEAD,
    READY,
    WORK,
    Fault,
    Figures,
    Letter,
    Reply,
    Request,
    Values,
    Works,
    decode_request,
    encode_reply,
)


class Sent:
    """A record as far as it was sent. Its offset stands for its place in the request, unless offsets were sent too."""

    __slots__ = ("_headers", "_key", "_offset", "_partition", "_time", "_value", "index")

    def __init__(
        self,
        index: int,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, bytes | None]] | None,
        timestamp: tuple[int, int],
        offset: int,
        partition: int,
    ) -> None:
        self.index, self._value, self._key = index, value, key
        self._headers, self._time, self._offset, self._partition = headers, timestamp, offset, partition

    def topic(self) -> str:
        return ""

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return self._time


def main(words: Sequence[str]) -> None:
    """Args: descriptors of the socket, of the block for pulses and progress, and of the file for stacks; then of each slot
    those of the blocks to read and to write.
    """
    channel, pulses = socket.socket(fileno=int(words[0])), Block(int(words[1]))
    last_words.answer_into(int(words[2]))
    reporter = progress.Reporter(pulses.view(progress.SIZE))
    fds = [int(word) for word in words[3:]]
    slots = [(Block(fds[n]), Block(fds[n + 1])) for n in range(0, len(fds), 2)]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which drains
    faulthandler.enable()
    size = struct.calcsize(HEAD)
    works: Works | None = None
    while (head := _receive(channel, size)) is not None:
        kind, slot, length = struct.unpack(HEAD, head)
        inbox, outbox = slots[slot]
        if works is None:
            with inbox.view(length) as view:
                launch = msgspec.msgpack.decode(view, type=Launch)
            answer, reply = _prepare(launch, _pulse(pulses))
            if isinstance(reply, Works):
                works, content = reply, b""
                tune_garbage_collection()
            else:
                content = reply
        elif kind == WORK:
            with inbox.view(length) as view:
                request = decode_request(view)
            reporter.began()
            answer, content = DONE, encode_reply(handle(request, works, reporter))
            reporter.done()
        channel.sendall(struct.pack(HEAD, answer, slot, outbox.write(content)))
    if works is not None:
        works.close()


def handle(request: Request, works: Works, reporter: progress.Reporter) -> Reply:
    """Do all works on a batch, one after the other."""
    began = time.monotonic()
    records = _records(request)
    values: Sequence[object] = records
    if works.into is Values.OBJECTS:
        values = pickle.loads(request.values) if isinstance(request.values, bytes) else ()
    first = records[0].offset() if records else 0
    end = records[-1].offset() + 1 if records else 0
    batch = Batch(records[0].partition() if records else 0, first, end, records, records, values)
    failure: MessageFailure | None = None
    figures = []
    for place, (_, work) in enumerate(works.stages):
        reporter.stage(place)
        start = time.monotonic()
        outcome = work(batch)
        after = outcome.batch
        seconds = time.monotonic() - start
        figures.append(Figures(len(batch.values), len(after.values), outcome.dead, seconds))
        batch, failure = after, outcome.failure or failure  # a later one is of an earlier message
    content: Any = None
    rows: Any = None
    if works.out is Values.OBJECTS:
        batch, content, late = _pickled(batch, works.judge)
        failure = late or failure
    elif works.out is Values.BYTES:
        content = batch.values
    elif works.out is Values.ROWS:
        rows = batch.values
    kept = [record.index for record in batch.records]  # type: ignore[attr-defined]
    index_of = {record.offset(): record.index for record in records} if batch.dead or failure else {}
    return Reply(
        None if kept == list(range(request.count)) else kept,
        content,
        rows,
        len(batch.values),
        [Letter(index_of[letter.record.offset()], letter.stage, letter.reason) for letter in batch.dead],
        None if failure is None else _fault(failure, index_of),
        figures,
        time.monotonic() - began,
    )


def _pulse(block: Block) -> Callable[[], None]:
    numbers = count(1)

    def pulse() -> None:
        block.write(next(numbers).to_bytes(8, "little"))

    return pulse


def _prepare(launch: Launch, pulse: Callable[[], None]) -> tuple[bytes, Works | bytes]:
    try:
        module, _, name = launch.entry.partition(":")
        made = getattr(importlib.import_module(module), name)(launch.payload, pulse)
    except MillraceError as error:
        return FAILED, msgspec.msgpack.encode((error.what, error.where, error.remedy, int(error.code)))
    return READY, made


def _records(request: Request) -> list[Sent]:
    size = request.count
    values = request.values if isinstance(request.values, list) else [None] * size
    keys = request.keys or [None] * size
    offsets = request.offsets or range(size)
    if request.rest is None:
        none = (0, -1)
        return [Sent(n, values[n], keys[n], None, none, offsets[n], 0) for n in range(size)]
    headers, times, partition = request.rest
    return [
        Sent(n, values[n], keys[n], headers[n], (times[n][0], times[n][1]), offsets[n], partition)
        for n in range(size)
    ]


def _pickled(batch: Batch, judge: Judge) -> tuple[Batch, bytes, MessageFailure | None]:
    """The values in one piece. One that can't be pickled fails at the last stage, as if its function had raised."""
    try:
        return batch, pickle.dumps(list(batch.values), protocol=5), None
    except Exception:  # noqa: BLE001 - which of them?
        outcome = portable(batch, judge)
        batch = outcome.batch
        return batch, pickle.dumps(list(batch.values), protocol=5), outcome.failure


def _fault(failure: MessageFailure, place: dict[int, int]) -> Fault:
    cause = failure.__cause__
    story = "" if cause is None else "".join(traceback.format_exception(cause))
    return Fault(place[failure.offset], failure.stage, failure.what, failure.remedy, story)


def _receive(channel: socket.socket, size: int) -> bytes | None:
    """None: the parent has hung up."""
    got = b""
    while len(got) < size:
        try:
            piece = channel.recv(size - len(got))
        except ConnectionResetError:
            return None
        if not piece:
            return None
        got += piece
    return got
