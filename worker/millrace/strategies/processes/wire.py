"""What goes through shared memory: a request, which is a batch, and the reply to it, each encoded at once, in C."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple, overload

import msgspec

from millrace.engine.batch import Batch
from millrace.strategies.judge import Judge
from millrace.strategies.link import Work

HEAD = "<cQQ"
"""A message on the socket: what it is, of which slot, and how many bytes are in the slot's block."""

READY, FAILED, WORK, DONE = b"R", b"F", b"W", b"D"


class Values(Enum):
    """How the values of a batch travel.

    BYTES: they are bytes, or None; on the way in, those of the records. ROWS: bytes with a number. OBJECTS: anything, pickled together. NOTHING: not at all,
    for nobody asks for them.
    """

    BYTES = "bytes"
    ROWS = "rows"
    OBJECTS = "objects"
    NOTHING = "nothing"


class Works(NamedTuple):
    """What a process does with each batch.

    Attributes:
        stages: the works in their order, each with the name of the stage whose figures it counts for.
        judge: of the last function: for results that can't be sent.
        into, out: how values come and go.
    close: called in the end, if the process ends by itself.
    """

    stages: Sequence[tuple[str, Work]]
    judge: Judge
    into: Values
    out: Values
    close: Callable[[], None] = lambda: None


class Request(msgspec.Struct, array_like=True, gc=False):
    """A batch. Of its records only what the works need: keys, and the rest of what a Message has; None: not needed."""

    values: list[bytes | None] | bytes
    count: int
    offsets: list[int] | None
    keys: list[bytes | None] | None
    rest: tuple[list[list[tuple[str, bytes | None]] | None], list[tuple[int, int]], int] | None
    """Headers, timestamps, partition."""


class Letter(msgspec.Struct, array_like=True, gc=False):
    index: int
    stage: str
    reason: str


class Fault(msgspec.Struct, array_like=True, gc=False):
    """A failure that stops the worker, at the message `index`. `story` is the traceback, as text."""

    index: int
    stage: str
    what: str
    remedy: str
    story: str


class Figures(msgspec.Struct, array_like=True, gc=False):
    received: int
    emitted: int
    dead: int
    seconds: float


class Reply(msgspec.Struct, array_like=True, gc=False):
    """What has become of a batch.

    Attributes:
        kept: for each value the index of its record in the request; None: one for each record.
        seconds: that it took.
    """

    kept: list[int] | None
    values: list[bytes | None] | bytes | None
    rows: list[tuple[bytes, int]] | None
    count: int
    letters: list[Letter]
    fault: Fault | None
    figures: list[Figures]
    seconds: float


class Pickled(Sequence[object]):
    """Values that are unpickled when somebody asks for one."""

    def __init__(self, content: bytes, count: int) -> None:
        self._content, self._count = content, count
        self._values: list[object] | None = None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[object]:
        return iter(self._all())

    @overload
    def __getitem__(self, at: int) -> object: ...
    @overload
    def __getitem__(self, at: slice) -> list[object]: ...
    def __getitem__(self, at: int | slice) -> object:
        return self._all()[at]

    def _all(self) -> list[object]:
        if self._values is None:
            self._values = pickle.loads(self._content)
            self._content = b""
        return self._values


_encoder = msgspec.msgpack.Encoder()
_request = msgspec.msgpack.Decoder(Request)
_reply = msgspec.msgpack.Decoder(Reply)


def encode_request(batch: Batch, into: Values, *, keys: bool, rest: bool) -> bytes:
    """Raises what pickle raises, if values have to be pickled and one can't be."""
    records = batch.records
    values: list[bytes | None] | bytes
    if into is Values.OBJECTS:
        values = pickle.dumps(list(batch.values), protocol=5)
    else:  # the values are the records, as the engine submits them
        values = list(map(type(records[0]).value, records)) if records else []
    if not records:
        return _encoder.encode(Request(values, 0, None, None, None))
    kind = type(records[0])
    # values of one message are told by its offset: an earlier flatMap may have made several
    offsets = list(map(kind.offset, records)) if rest or into is Values.OBJECTS else None
    found = list(map(kind.key, records)) if keys or rest else None
    more = (
        (list(map(kind.headers, records)), list(map(kind.timestamp, records)), batch.partition)
        if rest
        else None
    )
    return _encoder.encode(Request(values, len(records), offsets, found, more))


def decode_request(view: memoryview) -> Request:
    return _request.decode(view)


def encode_reply(reply: Reply) -> bytes:
    return _encoder.encode(reply)


def decode_reply(view: memoryview) -> Reply:
    return _reply.decode(view)
