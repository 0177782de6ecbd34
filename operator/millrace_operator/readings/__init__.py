"""Readings of Kafka for all pipelines: gathered, and asked together, by who asks whom.

Pipelines that reach the same brokers as the same user with the same properties share one `Watch`: one thread, one set of
clients. `question` has what a pipeline wants to know and how the questions of many become few requests, `rounds` decides
when which of them are asked, and `watch` carries that out. Nothing is written to Kafka from here, and nothing that is
read here decides who owns a partition: it tells what to try.
"""

from millrace_operator.readings.question import Answer, Channel, Question, Reading, read
from millrace_operator.readings.rounds import Rounds, Ticket
from millrace_operator.readings.watch import Watch, Watches

__all__ = ["Answer", "Channel", "Question", "Reading", "Rounds", "Ticket", "Watch", "Watches", "read"]
