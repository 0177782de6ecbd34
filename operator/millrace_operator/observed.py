"""The world of one pipeline as `reconcile` sees it. Plain values; made by `controller` from caches and clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millrace.channel.backlog import Backlog
from millrace.errors import ExitCode
from millrace.ownership.control_rules import Identity, Records
from millrace.ownership.epoch import Epoch
from millrace_api import ConsumerPipeline, Problem
from millrace_api.tree import Tree
from millrace_operator.names import EPOCH
from millrace_operator.objects import Key, entries, number, text


@dataclass(frozen=True, slots=True)
class Resource:
    """The ConsumerPipeline.

    Attributes:
        pipeline: None if what the API server has can't be used; `problems` say why.
        deleted: when its deletion was asked for, in seconds since the Unix epoch; None: it was not.
        status: as it was written last, plain data.
    """

    name: str
    namespace: str
    uid: str
    generation: int
    version: str
    pipeline: ConsumerPipeline | None
    problems: tuple[Problem, ...] = ()
    deleted: float | None = None
    finalizers: tuple[str, ...] = ()
    status: Tree = field(default_factory=dict)
    spec: Tree = field(default_factory=dict)

    @property
    def own_topics(self) -> Mapping[str, str]:
        """Topics that were made for the pipeline, as its status says: by name, with the id, "" while it is not known."""
        told = entries(self.status, "topics")
        return {text(topic, "name"): text(topic, "id") for topic in told if text(topic, "name")}


@dataclass(frozen=True, slots=True)
class Secret:
    """What may be known of the Secret with the credentials: never a value. `mark`: see `seal`."""

    name: str
    mark: str


@dataclass(frozen=True, slots=True)
class Claim:
    """The PersistentVolumeClaim of the storage. `shared`: pods on several nodes may write to it at once."""

    name: str
    shared: bool


@dataclass(frozen=True, slots=True)
class Stuck:
    """A stage of a worker that has been in one call for too long, as the worker tells: it began with this message."""

    index: int
    stage: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Why Kafka could not be looked at, or what the look brought to light, in the parts of a MillraceError."""

    code: ExitCode
    what: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class KafkaView:
    """What the last look at Kafka gave. Not stable (R2): good for deciding what to try, and for status.

    Attributes:
        partitions: of the source.
        failure: of the newest look or attempt; what stands beside it may then be older.
        interrupted: why the last attempt to do something was given up; it is tried again by itself.
        lag: by partition, messages of the source that wait.
        strays: client ids that are subscribed in the pipeline's group.
        backlog: what waits in the channel of the collect stage; None: there is no such stage, or not known.
        to_make: topics that are missing and may be made: as soon as the status says that they are the pipeline's own.
        made: ids of topics that the status says so of, as they are now.
        cleaned: what was to be deleted for good is deleted.
    """

    identity: Identity | None = None
    epoch: Epoch | None = None
    partitions: int = 0
    claims: Records = field(default_factory=dict)
    mirror: Records = field(default_factory=dict)
    lag: Mapping[int, int] = field(default_factory=dict)
    failure: Failure | None = None
    interrupted: str = ""
    strays: tuple[str, ...] = ()
    backlog: Backlog | None = None
    to_make: tuple[str, ...] = ()
    made: Mapping[str, str] = field(default_factory=dict)
    cleaned: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """How the operator was installed.

    Attributes:
        image: of workers whose manifest names none; "": it must name one. spark_image: of collectors.
        service_monitors: whether the API server knows that kind.
        not_created_after: seconds after which it is asked why pods don't come into being.
        crash_deadline: seconds of a worker's crash loop after which what it holds may be passed on (R5).
        drain_deadline: seconds that a deletion waits for workers and broker before it goes on without.
        settled_look: seconds between two looks at Kafka while nothing is to be done; unsettled_look: while there is.
    """

    image: str = ""
    spark_image: str = ""
    service_monitors: bool = False
    not_created_after: float = 5.0
    crash_deadline: float = 120.0
    drain_deadline: float = 180.0
    settled_look: float = 30.0
    unsettled_look: float = 1.0


@dataclass(frozen=True, slots=True)
class Observed:
    """Attributes:
    children: live objects that bear the pipeline's label and are owned by it, by kind and name.
    pods: live pods of the workers; collector_pods: of driver and executors. nodes_lost: since when each node that is lost has been so (Unix seconds).
    code: `data` of the ConfigMap with the functions; None: it is not there, or the manifest names none.
    kafka: None: not looked at yet.
    claim: the one that the storage names; None: it is not there, or none is named.
    refused: why the API server took a child not as it should be, at the last attempt; "": it took all.
    stuck: workers that say so of a stage, by index; only those that stand still are asked.
    absent: why pods of the StatefulSet don't come into being; "": they do, or nobody knows.
    namespace_ends: the namespace is being deleted.
    """

    resource: Resource
    settings: Settings
    children: Mapping[Key, Tree] = field(default_factory=dict)
    pods: tuple[Tree, ...] = ()
    nodes_lost: Mapping[str, float] = field(default_factory=dict)
    code: Mapping[str, str] | None = None
    secret: Secret | None = None
    kafka: KafkaView | None = None
    refused: str = ""
    absent: str = ""
    stuck: tuple[Stuck, ...] = ()
    namespace_ends: bool = False
    collector_pods: tuple[Tree, ...] = ()
    claim: Claim | None = None

    @property
    def epoch_ever(self) -> int:
        """The largest number of an epoch that workers may have seen, as far as the API server knows: numbers must not
        start again when the epoch's ConfigMap is deleted, and claims alone may lag behind by a minute.
        """
        told = [text(pod, "metadata", "annotations", EPOCH) for pod in self.pods]
        return max([number(self.resource.status, "epoch"), *(int(one) for one in told if one.isdigit())])
