"""The end of a pipeline: an epoch with N = 0, so that the workers drain and park their claims with OP; the children; with
deletionPolicy Delete what the pipeline has made in Kafka; and only then the finalizer goes.

It never hangs for ever: when the broker does not answer, or the namespace is going and takes the workers away itself,
a deadline ends the wait. Nothing is lost then either: what was processed is committed, and the rest is in the topic.
"""

from __future__ import annotations

from collections.abc import Sequence

from millrace.ownership.claim import OP
from millrace.ownership.epoch import Epoch, EpochError
from millrace.ownership.sweep import restoring_group
from millrace_operator import names
from millrace_operator.collector import ending
from millrace_operator.course import course
from millrace_operator.objects import mapping, number, text
from millrace_operator.observed import Observed
from millrace_operator.outcome import Annotated, Cleanup, Deletion, Event, Outcome
from millrace_operator.pods import crew

_NAMESPACE_PATIENCE = 20.0  # seconds; nothing can be made any more in a namespace that is being deleted
_CLEANUP_PATIENCE = 30.0  # seconds beyond that of the drain
_LOOK = 1.0


def end(observed: Observed, now: float) -> Outcome:
    resource = observed.resource
    if names.FINALIZER not in resource.finalizers:
        return Outcome(look=False)
    assert resource.deleted is not None
    patience = _NAMESPACE_PATIENCE if observed.namespace_ends else observed.settings.drain_deadline
    overdue = now - resource.deleted >= patience
    late = now - resource.deleted >= patience + _CLEANUP_PATIENCE
    stateful = observed.children.get(("StatefulSet", resource.name))
    lost_after = resource.pipeline.spec.node_lost.after_seconds if resource.pipeline is not None else 300.0
    hands = crew(
        stateful,
        observed.pods,
        observed.nodes_lost,
        now=now,
        lost_after=min(lost_after, patience),
        crash_after=observed.settings.crash_deadline,
    )
    way = course(observed.kafka, hands, 0)
    job = ending(observed, now)
    collects = bool(observed.collector_pods) and not overdue
    idle = stateful is None and not observed.pods and not collects
    all_goes = resource.pipeline is not None and resource.pipeline.spec.deletion_policy == "Delete"
    if idle and not _begun(observed):
        return _last(observed, (), overdue=overdue, late=late)
    # claims that will be deleted need not be parked
    drained = (way.settled and not observed.pods and not collects) or (idle and all_goes)
    if drained or (overdue and (idle or way.step is None)):
        events = () if drained else (_abandoned(observed),)
        return _last(observed, events, overdue=overdue, late=late)
    scale = 0 if overdue else way.scale
    objects = ()
    deletions: list[Deletion] = [_of("Pod", pod, 0) for pod in hands.lost]
    deletions += job.deletions
    epoch = observed.kafka.epoch if observed.kafka is not None else None
    if stateful is not None and scale == 0 and not text(stateful, "metadata", "deletionTimestamp"):
        deletions.append(_of("StatefulSet", stateful))  # its pods go with it, each with its grace
    told = tuple(
        Annotated(text(pod, "metadata", "name"), epoch.number)
        for pod in observed.pods
        if epoch is not None
        and epoch.number > 0
        and text(pod, "metadata", "annotations", names.EPOCH) != str(epoch.number)
        and not text(pod, "metadata", "deletionTimestamp")
    )
    return Outcome(
        objects=objects, deletions=tuple(deletions), pods=told, kafka=way.work, requeue_after=_LOOK
    )


def _begun(observed: Observed) -> bool:
    """Whether anything may be claimed: an epoch other than the first was published, now or at any time."""
    if number(observed.resource.status, "epoch") > 0:
        return True
    try:
        published = _published(observed)
    except EpochError:
        return True
    return published is not None and published.number > 0


def _published(observed: Observed) -> Epoch | None:
    """The epoch that the workers were told. Raises EpochError for one that can't be read."""
    told = observed.children.get(("ConfigMap", names.epoch_map(observed.resource.name)))
    return None if told is None else Epoch.decode(text(told, "data", "epoch.json"))


def _last(observed: Observed, events: tuple[Event, ...], *, overdue: bool, late: bool) -> Outcome:
    """Children first. The epoch is left to the garbage collector: without it a look at Kafka would publish another. So is,
    in the end, a driver that does not go, on a node that is lost say.
    """
    resource = observed.resource
    epoch = ("ConfigMap", names.epoch_map(resource.name))
    left = [(key, tree) for key, tree in sorted(observed.children.items()) if key != epoch]
    going: Sequence[Deletion] = [
        _of(key[0], tree) for key, tree in left if not text(tree, "metadata", "deletionTimestamp")
    ]
    if left or observed.pods or (observed.collector_pods and not overdue):
        return Outcome(
            deletions=tuple(going), look=False, events=events if going else (), requeue_after=_LOOK
        )
    rest = tuple(one for one in resource.finalizers if one != names.FINALIZER)
    cleanup = _cleanup(observed)
    if cleanup is None or (observed.kafka is not None and observed.kafka.cleaned):
        return Outcome(finalizers=rest, look=False)
    if late:
        return Outcome(finalizers=rest, look=False, events=(_left_behind(observed, cleanup),))
    return Outcome(look=False, cleanup=cleanup, requeue_after=_LOOK)


def _cleanup(observed: Observed) -> Cleanup | None:
    """What goes with the pipeline; None: nothing does."""
    resource, pipeline = observed.resource, observed.resource.pipeline
    if pipeline is None or pipeline.spec.deletion_policy != "Delete":
        return None
    collectors = [pipeline.collector_group(stage.name) for stage in pipeline.spec.stages if stage.collect]
    own = (*collectors, pipeline.group_id, pipeline.claims_group, *_notes(observed, pipeline.claims_group))
    groups = own if _begun(observed) else ()
    if not groups and not resource.own_topics:
        return None
    channels = {pipeline.channel(stage.name): "" for stage in pipeline.spec.stages if stage.collect}
    return Cleanup({**(channels if groups else {}), **resource.own_topics}, groups)


def _notes(observed: Observed, claims_group: str) -> tuple[str, ...]:
    """Groups in which those who ever wrote may have noted what a broker had forgotten (R8); most were never made."""
    try:
        published = _published(observed)
    except EpochError:
        published = None
    ever = published.replicas_ever if published is not None else 0
    return tuple(restoring_group(claims_group, index) for index in (OP, *range(ever)))


def _abandoned(observed: Observed) -> Event:
    view = observed.kafka
    why = (
        view.failure.what
        if view is not None and view.failure is not None
        else "the workers did not end in time"
    )
    return Event("Warning", "DrainAbandoned", f"deleted without parking all claims: {why}"[:1000])


def _left_behind(observed: Observed, cleanup: Cleanup) -> Event:
    view = observed.kafka
    why = view.failure.what if view is not None and view.failure is not None else "there was no time left"
    left = ", ".join([*cleanup.topics, *cleanup.groups])
    return Event("Warning", "CleanupAbandoned", f"left in Kafka, topics and groups: {left}: {why}"[:1000])


def _of(kind: str, tree: object, grace: int | None = None) -> Deletion:
    metadata = mapping(tree, "metadata")
    return Deletion(kind, text(metadata, "name"), text(metadata, "uid"), grace)
