"""The API of Millrace: what a ConsumerPipeline may say, as pydantic models, and what is generated from them.

`pipeline`, `spec`, `pods`, `stages`, `collect`, `spark`, `sinks`, `topic` and `status` are the models, `forms` the texts they are made of (names,
durations), `ddl` a collect stage's columns, `expressions` what can be told of its aggregates, `rules` what must hold across fields, each rule once for Python and once in
CEL for the API server. `load` reads a manifest from YAML and reports all that is wrong with it at once. `crd` and
`editor` generate the files beside this package. Nothing here knows of the worker or the operator; both import it, and it reads no clock, file or network.
"""

from millrace_api.changes import refused_changes
from millrace_api.cluster_only import cluster_only
from millrace_api.collect import CollectStage, OnLag, Trigger, Window
from millrace_api.load import LoadedManifest, load, parse
from millrace_api.pipeline import API_VERSION, KIND, ConsumerPipeline, ObjectMeta
from millrace_api.placing import Affinity, NodeRule
from millrace_api.pods import Amounts, NodeLost, Resources, Toleration
from millrace_api.problems import InvalidManifest, Problem
from millrace_api.produce import ProduceStage
from millrace_api.sinks import ConsoleSink, KafkaSink, ParquetSink, Sink
from millrace_api.spark import Driver, Executors, Spark
from millrace_api.spec import (
    Commit,
    DeadLetter,
    Kafka,
    Source,
    Spec,
    Storage,
    Worker,
)
from millrace_api.stages import FunctionStage, Stage
from millrace_api.status import Condition, Status
from millrace_api.topic import NewTopic

__all__ = [
    "API_VERSION",
    "KIND",
    "Affinity",
    "Amounts",
    "CollectStage",
    "Commit",
    "Condition",
    "ConsoleSink",
    "ConsumerPipeline",
    "DeadLetter",
    "Driver",
    "Executors",
    "FunctionStage",
    "InvalidManifest",
    "Kafka",
    "KafkaSink",
    "LoadedManifest",
    "NewTopic",
    "NodeLost",
    "NodeRule",
    "ObjectMeta",
    "OnLag",
    "ParquetSink",
    "Problem",
    "ProduceStage",
    "Resources",
    "Sink",
    "Source",
    "Spark",
    "Spec",
    "Stage",
    "Status",
    "Storage",
    "Toleration",
    "Trigger",
    "Window",
    "Worker",
    "cluster_only",
    "load",
    "parse",
    "refused_changes",
]
