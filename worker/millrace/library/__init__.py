"""The engine as a library: a Python program that is a pipeline's only worker, without a manifest's file or the command line.

`Pipeline` is the manifest's `spec` as plain data, with functions in place of their names, and strategies of one's own as
stages (`spec` turns it into a manifest); `sole` is the one worker that plays the control plane for itself. What else is
exported is what a strategy of one's own is written with: docs/testing-a-pipeline.md has one.
"""

from millrace.chain import MakeStrategy
from millrace.clock import Clock, Deadline
from millrace.engine.batch import Batch, DeadLetter
from millrace.engine.strategy import MessageRejected, Strategy
from millrace.library.pipeline import Pipeline
from millrace.strategies.each import Outcome
from millrace.strategies.link import Inline, Link

__all__ = [
    "Batch",
    "Clock",
    "DeadLetter",
    "Deadline",
    "Inline",
    "Link",
    "MakeStrategy",
    "MessageRejected",
    "Outcome",
    "Pipeline",
    "Strategy",
]
