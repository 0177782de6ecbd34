"""Stages whose function runs elsewhere than in `submit`: on threads, in an event loop, or later on the engine's thread
because it has to be called again.

What flows, from the engine's thread and back to it: `Pooled`, the strategy, takes a batch as a `Job` and gives it to the
`Schedule`, the one place that threads share. A `Crew` takes units of work from there (a message, or a whole batch for a
vectorized function), calls the function, and puts the results back; the schedule decides about another attempt. In its
`poll` the strategy finds what is done, makes batches of it in the order that was asked for, and hands them on. So user code
never runs on two threads for one message, nothing of the chain runs on a thread of a crew, and nothing ever waits on the
engine's.
"""

from millrace.strategies.pool.crew import Crew
from millrace.strategies.pool.pooled import Pooled
from millrace.strategies.pool.schedule import Schedule, Sequence
from millrace.strategies.pool.spot import OnTheSpot
from millrace.strategies.pool.tasks import Tasks
from millrace.strategies.pool.threads import Threads

__all__ = ["Crew", "OnTheSpot", "Pooled", "Schedule", "Sequence", "Tasks", "Threads"]
