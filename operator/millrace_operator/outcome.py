"""What `reconcile` wants done. Carried out in the order of the fields; each part may fail and be decided anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from millrace.ownership.control_rules import Fleet
from millrace_api.tree import Tree


@dataclass(frozen=True, slots=True)
class Deletion:
    """An object to be deleted, if it still is the one that was seen.

    Attributes:
        grace: seconds; None: the object's own; 0: at once, for a pod on a lost node.
    """

    kind: str
    name: str
    uid: str
    grace: int | None = None


@dataclass(frozen=True, slots=True)
class Annotated:
    """A pod to be told of an epoch: its kubelet looks at the mounted ConfigMap when an annotation changes."""

    pod: str
    epoch: int


@dataclass(frozen=True, slots=True)
class KafkaWork:
    """The control plane is to work for so many workers, with this fleet.

    Attributes:
        why: it has claims to pass or an epoch to publish (R4, R5); or it is to see whether parked claims need renewal,
            which is daily (R6); or claims look lost or foreign, which only its stable read can tell.
    """

    replicas: int
    fleet: Fleet
    why: Literal["act", "renew", "examine"] = "act"


@dataclass(frozen=True, slots=True)
class Cleanup:
    """What a pipeline leaves in Kafka is to be deleted, once no worker is left.

    Attributes:
        topics: by name, with Kafka's id; "" if it never became known, which can only be if nobody else made them.
        groups: in this order; the one with the claims last, for without it nobody could go on.
    """

    topics: Mapping[str, str]
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that changed, for `kubectl describe`."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Attributes:
    finalizers: to be the resource's; None: they are as they should be. Adding comes before all else, and taking ours
        away is the last thing that happens to a pipeline.
    objects: to be applied.
    creations: to be made after those, each unless it is there.
    look: Kafka should be looked at, and is not an affair of a pipeline that can't start.
    look_within: seconds; what was read that long ago will do.
    cleanup: for a pipeline that goes with all that it has made.
    status: to be written; None: it is as it should be. exact: only if the resource still is as it was seen.
    requeue_after: seconds until the next reconcile, if nothing happens before.
    """

    finalizers: tuple[str, ...] | None = None
    objects: tuple[Tree, ...] = ()
    creations: tuple[Tree, ...] = ()
    deletions: tuple[Deletion, ...] = ()
    pods: tuple[Annotated, ...] = ()
    kafka: KafkaWork | None = None
    look: bool = True
    look_within: float = field(default=0.0, compare=False)
    cleanup: Cleanup | None = None
    status: Tree | None = None
    exact: bool = False
    events: tuple[Event, ...] = ()
    requeue_after: float = field(default=30.0, compare=False)

    @property
    def writes(self) -> bool:
        """Whether anything would be written to the API server or to Kafka."""
        return bool(
            self.finalizers is not None
            or self.objects
            or self.creations
            or self.deletions
            or self.pods
            or self.cleanup is not None
            or self.status is not None
            or (self.kafka is not None and self.kafka.why == "act")
        )
