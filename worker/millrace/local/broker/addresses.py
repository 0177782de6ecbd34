"""The ports of an embedded broker: free ones, chosen once for a directory and kept there, so that a broker that is
started again has the same address.
"""

from __future__ import annotations

import json
import socket
import zlib
from pathlib import Path

import psutil

from millrace.errors import ExitCode, MillraceError
from millrace.local.broker.server import HOST, Ports

# Below the range from which systems take the ports of outgoing connections (Linux: from 32768), one of which might sit
# on the broker's port just when it starts again.
_FIRST, _LAST = 20_000, 32_000


def choose(directory: Path, port: int | None = None) -> Ports:
    """Three ports that are free now. `port` is the plain one, if given; it is not looked at whether that is free."""
    start = zlib.crc32(str(directory.resolve()).encode()) % (_LAST - _FIRST)
    found: list[int] = [] if port is None else [port]
    for step in range(_LAST - _FIRST):
        candidate = _FIRST + (start + step) % (_LAST - _FIRST)
        if candidate != port and is_free(candidate):
            found.append(candidate)
        if len(found) == 3:
            return Ports(*found)
    raise MillraceError(
        f"no three free ports between {_FIRST} and {_LAST}", remedy="end what uses them", code=ExitCode.BUSY
    )


def kept(file: Path, directory: Path, port: int | None = None) -> Ports:
    """The ports that `file` keeps; chosen and written there if it has none, or others than `port`. Raises OSError."""
    try:
        ports = Ports(**json.loads(file.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        ports = None
    if ports is None or port not in (None, ports.plain):
        ports = choose(directory, port)
        file.write_text(
            json.dumps({"plain": ports.plain, "controller": ports.controller, "secure": ports.secure}) + "\n"
        )
    return ports


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections in TIME_WAIT don't count
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def listener(port: int) -> str:
    """Who listens at a port, as far as this user may know: 'java (process 4711)'."""
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.laddr and connection.laddr.port == port and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (process {connection.pid})"
    except (psutil.Error, OSError):
        pass
    return "another process"
