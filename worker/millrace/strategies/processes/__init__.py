"""Stages that run in processes of their own, for functions that need the CPU.

A batch goes to a process and comes back as bytes in shared memory: the parent neither decodes nor encodes nor pickles a
message. What runs over there is a row of the very same `Work`s as here (decode, functions, encode), put together by whoever
knows the manifest (`Launch` names the function that does it).

`Processes` is the strategy; `Member` one process as its parent sees it; `child` what runs in it; `Block` a piece of shared
memory; `wire` what is in it.
"""

from millrace.strategies.processes.launch import Launch
from millrace.strategies.processes.stage import Processes, Shape
from millrace.strategies.processes.wire import Values, Works

__all__ = ["Launch", "Processes", "Shape", "Values", "Works"]
