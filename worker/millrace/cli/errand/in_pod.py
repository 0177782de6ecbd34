"""A command carried out in a pod, and answered."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import TypeVar

import msgspec

from millrace.cli.errand.wire import Voice
from millrace.cli.failure import print_error
from millrace.errors import ExitCode, MillraceError

Say = Callable[[str], None]
"""Tells people something while the work goes on."""

T = TypeVar("T")


class Found(msgspec.Struct, frozen=True, tag="found"):
    """What the command has found or done, as JSON."""

    content: msgspec.Raw


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The parts of a MillraceError."""

    what: str
    where: str
    remedy: str
    code: int


def carry_out(work: Callable[[Say], object]) -> ExitCode:
    """Do it, answer on standard output, and return what the process is to end with.

    When the pod is deleted meanwhile (SIGTERM) the work is interrupted as by Ctrl-C: the first process of a container would
    not end by that signal.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    voice = Voice(sys.stdout)
    try:
        voice.answer(msgspec.json.encode(Found(msgspec.Raw(msgspec.json.encode(work(voice.say))))))
    except MillraceError as error:
        voice.answer(msgspec.json.encode(Failed(error.what, error.where, error.remedy, int(error.code))))
        print_error(str(error))  # for those who read the log themselves
        return error.code
    return ExitCode.OK


def understood(answer: bytes, kind: type[T]) -> T:
    """What the pod has found. Raises MillraceError: what it has met with; msgspec.DecodeError: it is another version."""
    reply = msgspec.json.decode(answer, type=Found | Failed)
    if isinstance(reply, Failed):
        code = ExitCode(reply.code) if reply.code in list(ExitCode) else ExitCode.FAILED
        raise MillraceError(reply.what, where=reply.where, remedy=reply.remedy, code=code)
    return msgspec.json.decode(reply.content, type=kind)
