"""quixstreams: an Application with a StreamingDataFrame, `filter` and `apply`, `to_topic` where there is an output.

Without what costs and is not needed here: bytes as they are, no changelog topics, no check that brokers are there after
each message. Needs quixstreams only, which brings a confluent-kafka of its own; the contract: child.py.
"""

from __future__ import annotations

import tempfile
from typing import Any

import functions
from child import Meter, Work, watched, work
from quixstreams import Application

_ITS_OWN = (
    "bootstrap.servers",
    "client.id",
    "group.id",
    "auto.offset.reset",
    "enable.auto.commit",
    "partitioner",
)


class Progress:
    """How many messages are processed, read from its checkpoints, of which there is a new one after each commit."""

    def __init__(self, application: Application) -> None:
        self._context: Any = application._processing_context
        self._checkpoint: Any = None
        self._positions: dict[object, int] = {}

    def __call__(self) -> int:
        now = getattr(self._context, "_checkpoint", None)
        for checkpoint in (self._checkpoint, now):
            if checkpoint is not None:
                self._positions.update(dict(checkpoint._tp_offsets))
        self._checkpoint = now
        return sum(offset + 1 for offset in self._positions.values())


def application(todo: Work, state: str) -> Application:
    # the end of a partition is an error to it
    consumer = {**todo.consumer, "enable.partition.eof": False}
    return Application(
        broker_address=todo.bootstrap,
        consumer_group=todo.group,
        auto_offset_reset="earliest",
        commit_interval=todo.interval,
        consumer_extra_config={key: value for key, value in consumer.items() if key not in _ITS_OWN},
        producer_extra_config={key: value for key, value in todo.producer.items() if key not in _ITS_OWN},
        consumer_poll_timeout=0.05,
        state_dir=state,
        auto_create_topics=False,
        use_changelog_topics=False,
        broker_availability_timeout=0,
        loglevel="ERROR",
    )


def main() -> None:
    todo = work()
    meter = Meter(watch_memory=todo.watch_memory)
    with tempfile.TemporaryDirectory() as state:
        app = application(todo, state)
        frame = app.dataframe(app.topic(todo.topic, key_deserializer="bytes", value_deserializer="bytes"))
        if todo.output:
            output = app.topic(todo.output, key_serializer="bytes", value_serializer="bytes")
            frame = frame.apply(functions.turn)
            frame.to_topic(output)
        else:
            frame = frame.filter(functions.keep).apply(functions.change)
        progress = Progress(app)
        watched(meter, todo.messages, progress, progress, app.stop)
        app.run()
        meter.end(todo.messages)  # what was produced is confirmed by the last commit
    meter.tell()


if __name__ == "__main__":
    main()
