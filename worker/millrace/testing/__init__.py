"""Testing a pipeline without a broker: what its author needs, and pytest need not be there for it.

`harness` runs the real engine of a pipeline on the in-memory broker (`connectivity.memory`, which passes the contract suite of
the real one), `time` is the clock that it runs on, `inputs` and `seen` are what goes in and what is seen of it.
`strategies` is the contract suite that a strategy of one's own is run against (it needs pytest). The fixture of pytest is in
`millrace.pytest_plugin`.
"""

from millrace.connectivity.memory import MemoryBroker
from millrace.testing.harness import PipelineHarness
from millrace.testing.inputs import Input
from millrace.testing.seen import DeadLetter, Output, Row
from millrace.testing.time import Unfinished

__all__ = ["DeadLetter", "Input", "MemoryBroker", "Output", "PipelineHarness", "Row", "Unfinished"]
