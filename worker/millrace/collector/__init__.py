"""The collector: the last stage of a pipeline, a Spark Structured Streaming job over the chain's channel.

What flows: records of the channel (`channel.wire`), one stream per partition with a watermark of its own (`plan`), the windows
that closed (`compute`; `functions` calls the user's, if there is one), to the stage's sink (`sinks`). `query` says what
is to be computed, `spec` what one attempt needs to do it;
`session` makes the Spark session, `job` is the program that runs in the driver, `launch` starts, stops and kills it
from outside. `progress` reads what Spark says of each batch, `positions` keeps how far each partition's event time
has come, which Spark forgets at a restart, `status` is what others may read. `jars` has the Kafka connector, `kafka` its
options, credentials among them, and `properties` the user's settings in the words of Java's client.

PySpark is imported inside functions only: reading a manifest, or launching, must not cost it. Nothing here knows the
manifest's models or how a run is composed; the channel's writer is a strategy, below.
"""

from millrace.collector.launch import Attempt
from millrace.collector.query import Query, Window
from millrace.collector.spec import JobSpec
from millrace.collector.status import CollectorStatus

__all__ = ["Attempt", "CollectorStatus", "JobSpec", "Query", "Window"]
