"""The spec of a ConsumerPipeline: what its author writes, less the stages.

Every field has a description with its unit and default: they are what `kubectl explain` and editors show. Nothing is
here before it works; what is planned is named in `planned`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from millrace_api.forms import (
    BootstrapServers,
    DnsSubdomain,
    Duration,
    EnvName,
    GroupId,
    PropertyName,
    StartFrom,
    TopicName,
)
from millrace_api.model import Model
from millrace_api.pods import NodeLost, PodFields
from millrace_api.produce import Format
from millrace_api.stages import Stage
from millrace_api.times import duration_seconds, timestamp_ms
from millrace_api.topic import NewTopic

Delivery = Literal["AtLeastOnce", "ExactlyOnce"]
DeletionPolicy = Literal["Retain", "Delete"]


class ObjectRef(Model):
    """A Kubernetes object in the pipeline's namespace."""

    name: DnsSubdomain = Field(description="Name of the object, in the pipeline's own namespace.")


class Credentials(Model):
    """Where the credentials for Kafka are."""

    secret_ref: ObjectRef = Field(
        description="The Secret with the credentials, for SASL, TLS or both; Strimzi's key names are understood too. "
        "`millrace run` reads the same keys as files in the directory given by --secrets.",
    )


class Kafka(Model):
    """The cluster that source, outputs and dead letters are in."""

    bootstrap_servers: BootstrapServers = Field(
        description="Addresses of one or more brokers, HOST:PORT with commas between them. `millrace run --kafka` "
        "wins over it.",
    )
    credentials: Credentials | None = Field(
        default=None,
        description="Credentials for the brokers; without them they are spoken to in plain text.",
    )
    properties: Mapping[PropertyName, Annotated[str, Field(max_length=1024)]] = Field(
        default_factory=dict,
        max_length=64,
        description="Further properties of librdkafka for all clients of the pipeline, for example client.rack. "
        "Values are strings. Those that the engine owns are refused.",
    )


class Source(Model):
    """The topic that is consumed."""

    topic: TopicName = Field(description="The topic to consume. It can't be changed later.")
    group_id: GroupId | None = Field(
        default=None,
        description="Consumer group under which the pipeline's progress is seen. Default: <namespace>.<name> of the "
        "pipeline. It can't be added, changed or removed later. <groupId>.claims is reserved for Millrace; nothing "
        "else may use it.",
    )
    start_from: StartFrom = Field(
        default="Earliest",
        description="Where a pipeline begins that has no committed offsets: Earliest (default), Latest, or a time "
        "with its zone (RFC 3339, for example 2026-01-31T00:00:00Z). Offsets that the consumer group already has win.",
    )
    create: NewTopic | None = Field(
        default=None,
        description="Make the topic if it is not there. Without this a topic that is missing is an error.",
    )
    format: Format = Field(
        default="json",
        description="How a message is decoded before the first stage gets it: json (default), string (UTF-8) or bytes "
        "(as it is). One that can't be decoded goes to the dead letters.",
    )

    @property
    def start_timestamp_ms(self) -> int | None:
        """`start_from` in milliseconds since the Unix epoch; None if it is Earliest or Latest."""
        return None if self.start_from in ("Earliest", "Latest") else timestamp_ms(self.start_from)


class DeadLetter(Model):
    """Where messages go that could not be processed, and how many are too many."""

    topic: TopicName = Field(
        description="Topic for messages that are Invalid or can't be decoded, or whose stage failed with onError: "
        "DeadLetter. The original key, value and headers are kept, the reason is in further headers. It can't be "
        "the source's topic, nor one that a stage produces to.",
    )
    create: NewTopic | None = Field(
        default=None,
        description="Make the topic if it is not there. Without this a topic that is missing is an error.",
    )
    max_ratio: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="A worker stops at a dead letter when more than this share (0 to 1) of its partition's last 10,000 "
        "messages are dead letters; judged from 1,000 messages on. Default: no limit.",
    )
    max_consecutive: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000_000,
        description="A worker stops when more than this many messages of a partition in a row are dead letters; one "
        "that was processed or filtered out ends the row. "
        "Default: no limit.",
    )


class Commit(Model):
    """When progress is committed."""

    interval: Duration = Field(
        default="1s",
        description="Time between two commits, as a duration with its unit (100ms to 5s; default 1s). It is how much "
        "work a crash repeats at most, and with ExactlyOnce how late outputs become visible.",
    )

    @property
    def interval_seconds(self) -> float:
        return duration_seconds(self.interval)


class Code(Model):
    """Where the functions' modules are."""

    config_map_ref: ObjectRef = Field(
        description="The ConfigMap whose keys are Python modules, for example flights.py. `millrace run` takes the "
        "one in the manifest's own file; if it is not there, the modules beside the manifest.",
    )


class EnvVar(Model):
    """An environment variable of the workers."""

    name: EnvName = Field(description="Name of the environment variable.")
    value: str = Field(default="", max_length=32_768, description='Its value, a string. Default: "".')


class Worker(PodFields):
    """What the workers are made of."""

    code: Code | None = Field(
        default=None,
        description="Where the functions' modules are. Default: on the workers' Python path; for `millrace run` also "
        "beside the manifest.",
    )
    env: Annotated[
        tuple[EnvVar, ...],
        Field(
            strict=False,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = Field(
        default=(),
        max_length=128,
        description="Environment variables of the workers. Names are unique; MILLRACE_INDEX is the workers' own.",
    )


class ClaimRef(Model):
    """A PersistentVolumeClaim in the pipeline's namespace."""

    claim_name: DnsSubdomain = Field(
        description="Name of the PersistentVolumeClaim. It is yours: it is never made, changed or deleted by Millrace."
    )


class Storage(Model):
    """Where a collector keeps what must outlive its pods."""

    persistent_volume_claim: ClaimRef = Field(
        description="A volume that driver and executors share. With the access mode ReadWriteMany they may be on any nodes; "
        "with another one they are kept together on one."
    )


class Spec(Model):
    """What the author of a pipeline wants."""

    replicas: int = Field(
        default=1,
        ge=0,
        le=10_000,
        description="Number of workers (0 to 10000, default 1). 0 parks the pipeline. Workers beyond the number of "
        "partitions stay idle.",
    )
    suspend: bool = Field(
        default=False,
        description="Stop all workers and keep their place (default false): what they have taken is finished and "
        "committed, then they end. false again: they go on from there. `millrace run` does not read it.",
    )
    deletion_policy: DeletionPolicy = Field(
        default="Retain",
        description="What becomes of the pipeline's traces in Kafka when it is deleted. Retain (default): all stays, and "
        "a pipeline of the same name goes on where this one stopped. Delete: the topics that Millrace made for it are "
        "deleted with all they hold, and its consumer groups with their offsets; topics that were there before stay. "
        "`millrace run` does not read it.",
    )
    node_lost: NodeLost = Field(
        default=NodeLost(), description="What happens to workers on a node that answers no more."
    )
    kafka: Kafka = Field(description="The Kafka cluster.")
    source: Source = Field(description="The topic that is consumed.")
    stages: Annotated[
        tuple[Stage, ...],
        Field(
            strict=False,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = Field(
        min_length=1,
        max_length=32,
        description="The chain: each message passes through the stages in order. Each stage has a name and exactly "
        "one kind (map, flatMap, filter, batch, reduce, produce, collect). produce and collect only at the end, collect "
        "after produce, which passes its value on; a chain may also end without either, with a function whose effect is "
        "all that is wanted: what it returns is dropped.",
    )
    dead_letter: DeadLetter | None = Field(
        default=None,
        description="Where messages go that could not be processed. Without it such a message stops its worker.",
    )
    delivery: Delivery = Field(
        default="AtLeastOnce",
        description="AtLeastOnce (default): after a crash, outputs of up to one commit interval may be written twice. "
        "ExactlyOnce: outputs are written in the transaction that commits their offsets; read them with "
        "isolation.level=read_committed.",
    )
    commit: Commit = Field(default=Commit(), description="When progress is committed.")
    worker: Worker | None = Field(default=None, description="What the workers are made of.")
    storage: Storage | None = Field(
        default=None,
        description="Where checkpoints and relative sink paths of a collect stage are kept on a cluster, which needs one for "
        "it. `millrace run` keeps them in its state directory.",
    )
