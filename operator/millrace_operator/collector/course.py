"""A collector's next steps as `reconcile` wants them: objects, the driver to be made, what is told of it all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millrace.channel.backlog import OnLag, due
from millrace_api import ConsumerPipeline
from millrace_api.tree import Tree
from millrace_operator import children, names
from millrace_operator.children import content
from millrace_operator.collector import access, driver_pod
from millrace_operator.collector.attempts import Record, as_status, recorded
from millrace_operator.collector.drivers import SUCCEEDED, drivers, executors
from millrace_operator.collector.life import NOT_STARTED, REPLACED, STOPPED, Decision, Phase, Wanted, decide
from millrace_operator.objects import Key, entries, key_of, mapping, number, text
from millrace_operator.observed import Observed
from millrace_operator.outcome import Deletion, Event
from millrace_operator.status import Verdict, rounded

_OWN_KINDS: Final = frozenset(
    {"ServiceAccount", "Role", "RoleBinding", "Service", "NetworkPolicy", "ServiceMonitor"}
)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the collector shares with the workers: the code, and the hash of the credentials."""

    code: Mapping[str, str] | None
    credentials: str


@dataclass(frozen=True, slots=True)
class Collecting:
    """Attributes:
    objects: all that there should be, but for the driver. driver: to be made now, after these; None: nothing.
    told: `status.collector`. changed: whether attempts in it are others than in the resource.
    impossible: it can't ever run as things are, whatever comes up; so workers are not started for it.
    """

    objects: tuple[Tree, ...]
    driver: Tree | None
    deletions: tuple[Deletion, ...]
    told: Mapping[str, object]
    changed: bool
    verdict: Verdict
    stalled: bool
    impossible: bool
    events: tuple[Event, ...]
    wake: float | None


def collecting(
    observed: Observed,
    pipeline: ConsumerPipeline,
    inputs: Inputs | None,
    lacking: tuple[str, str] | None,
    now: float,
) -> Collecting:
    """Of a pipeline with a collect stage. inputs: None: not known. lacking: what workers can't start without."""
    resource = observed.resource
    made = _plan(observed, pipeline, inputs)
    blocked = _blocked(observed, pipeline, lacking)
    digest = made.digest if made is not None else ""
    wanted = None if pipeline.spec.suspend else _wanted(observed, pipeline, digest)
    decision = _decided(observed, wanted, may_begin=blocked is None and made is not None, now=now)
    before = recorded(resource.status)
    driver = None
    if decision.create is not None and made is not None:
        owner = children.owner_of(resource)
        driver = driver_pod.pod(resource, made, decision.create, before.failures, owner)
    objects = _objects(observed, pipeline, made, inputs)
    verdict = _verdict(decision, wanted, blocked)
    return Collecting(
        objects,
        driver,
        (*decision.deletions, *_obsolete(observed, objects)),
        _told(observed, decision.record),
        decision.record != before,
        verdict,
        decision.phase is Phase.GIVEN_UP or (blocked is not None and made is None and wanted is not None),
        made is None and inputs is not None,
        tuple(_events(before, decision.record)),
        decision.wake,
    )


def ending(observed: Observed, now: float) -> Collecting:
    """Of a pipeline that is not to have a collector, any more or at all."""
    decision = _decided(observed, None, may_begin=False, now=now)
    record = decision.record if decision.phase is Phase.STOPPING else Record()
    gone = decision.phase is Phase.NONE and not observed.collector_pods
    finished = [] if decision.phase is Phase.STOPPING else _all(observed)
    verdict = (
        Verdict("CollectorReady", "True", "NoCollector", "the pipeline has no collect stage")
        if decision.phase is Phase.NONE
        else Verdict("CollectorReady", "False", "Stopping", "ends when the batch under way is done")
    )
    return Collecting(
        (),
        None,
        (*decision.deletions, *finished, *(_obsolete(observed, ()) if gone else ())),
        as_status(record) if record.attempts else {},
        record != recorded(observed.resource.status),
        verdict,
        False,
        False,
        (),
        decision.wake,
    )


def _decided(observed: Observed, wanted: Wanted | None, *, may_begin: bool, now: float) -> Decision:
    pods = observed.collector_pods
    return decide(
        recorded(observed.resource.status),
        drivers(pods, observed.resource.uid, observed.nodes_lost),
        executors(pods),
        wanted,
        may_begin=may_begin and names.FINALIZER in observed.resource.finalizers,
        now=now,
    )


def _all(observed: Observed) -> list[Deletion]:
    """Pods that are over."""
    return [
        Deletion("Pod", text(pod, "metadata", "name"), text(pod, "metadata", "uid"))
        for pod in observed.collector_pods
        if text(pod, "status", "phase") in ("Succeeded", "Failed")
        and not text(pod, "metadata", "deletionTimestamp")
    ]


def _plan(observed: Observed, pipeline: ConsumerPipeline, inputs: Inputs | None) -> driver_pod.Plan | None:
    storage, image = pipeline.spec.storage, _image(observed, pipeline)
    if inputs is None or storage is None or observed.claim is None or not image:
        return None
    code = content.code(pipeline, inputs.code) if inputs.code is not None else None
    return driver_pod.plan(
        observed.resource,
        pipeline,
        image=image,
        code=text(code, "metadata", "name") if code is not None else None,
        credentials=inputs.credentials,
        claim=storage.persistent_volume_claim.claim_name,
        shared=observed.claim.shared,
    )


def _image(observed: Observed, pipeline: ConsumerPipeline) -> str:
    _, collect = driver_pod.collect_stage(pipeline)
    own = collect.spark.image if collect.spark is not None else None
    return own or observed.settings.spark_image


def _blocked(
    observed: Observed, pipeline: ConsumerPipeline, lacking: tuple[str, str] | None
) -> tuple[str, str] | None:
    """Why no attempt may begin, as reason and message."""
    storage, view = pipeline.spec.storage, observed.kafka
    if storage is None:
        return (
            "StorageMissing",
            "on a cluster a collect stage needs a volume for its checkpoint: name a claim in spec.storage",
        )
    if not _image(observed, pipeline):
        return "ImageMissing", "no image for the collector: set spark.image in the collect stage"
    if observed.claim is None:
        name = storage.persistent_volume_claim.claim_name
        return "StorageMissing", f"there is no PersistentVolumeClaim {name} (spec.storage)"
    if lacking is not None:
        return lacking
    if view is None or view.failure is not None or view.backlog is None:
        return "Starting", "waits for Kafka, and for the channel there"
    return None


def _wanted(observed: Observed, pipeline: ConsumerPipeline, digest: str) -> Wanted:
    generation, view = observed.resource.generation, observed.kafka
    _, collect = driver_pod.collect_stage(pipeline)
    lag = collect.trigger.on_lag
    if lag is None:
        return Wanted(digest, generation)
    backlog = view.backlog if view is not None else None
    why = due(OnLag(lag.messages, lag.age_seconds), backlog) if backlog is not None else ""
    return Wanted(digest, generation, on_lag=True, due=why)


def _objects(
    observed: Observed, pipeline: ConsumerPipeline, made: driver_pod.Plan | None, inputs: Inputs | None
) -> tuple[Tree, ...]:
    _, collect = driver_pod.collect_stage(pipeline)
    resource = observed.resource
    found = list(
        access.objects(
            resource.name,
            resource.namespace,
            with_executors=collect.spark is not None and collect.spark.executors is not None,
            monitored=observed.settings.service_monitors,
        )
    )
    if made is not None:
        found.append(made.settings)
        if inputs is not None and inputs.code is not None:
            found.append(content.code(pipeline, inputs.code))
    return tuple(children.finished(resource, tree) for tree in found)


def _obsolete(observed: Observed, wanted: Sequence[Tree]) -> Iterator[Deletion]:
    """What was made for the collector as it was."""
    live = [
        pod for pod in observed.collector_pods if text(pod, "status", "phase") not in ("Succeeded", "Failed")
    ]
    kept = {key_of(tree) for tree in wanted}
    if live:
        kept |= {key for key in observed.children if key[0] in _OWN_KINDS}
    kept |= {("ConfigMap", text(one, "configMap", "name")) for one in _volumes(observed.collector_pods)}
    for key, tree in sorted(observed.children.items()):
        if (
            key not in kept
            and _is_own(observed, key, tree)
            and not text(tree, "metadata", "deletionTimestamp")
        ):
            yield Deletion(*key, text(tree, "metadata", "uid"))


def _is_own(observed: Observed, key: Key, tree: Tree) -> bool:
    if key[0] == "ConfigMap":
        return key[1].startswith(names.part(observed.resource.name, "collector-"))
    return key[0] in _OWN_KINDS and text(tree, "metadata", "labels", names.COMPONENT) == names.DRIVER


def _volumes(pods: Sequence[Tree]) -> Iterator[object]:
    for pod in pods:
        yield from entries(pod, "spec", "volumes")


def _told(observed: Observed, record: Record) -> Mapping[str, object]:
    told, old = as_status(record), mapping(observed.resource.status, "collector")
    backlog = observed.kafka.backlog if observed.kafka is not None else None
    if backlog is not None:
        told["lag"] = rounded(backlog.waiting(), number(old, "lag") if "lag" in old else None)
    elif "lag" in old:
        told["lag"] = old["lag"]
    return told


def _verdict(decision: Decision, wanted: Wanted | None, blocked: tuple[str, str] | None) -> Verdict:
    last, driver = decision.record.last, decision.driver
    match decision.phase:
        case Phase.NONE:
            return _ready("Suspended", "spec.suspend is true; its place is kept")
        case Phase.STOPPING:
            return _not_ready("Stopping", "ends when the batch under way is done")
        case Phase.BLOCKED:
            return _not_ready(*(blocked or ("Starting", "")))
        case Phase.WAITING if wanted is not None and wanted.on_lag:
            return _ready("Waiting", "there is little to do")
        case Phase.PAUSING | Phase.GIVEN_UP if last is not None:
            then = "the next one follows" if decision.phase is Phase.PAUSING else "another would end alike"
            return _not_ready(last.outcome or "Failed", f"attempt {last.number}: {last.message}; {then}")
        case Phase.RUNNING:
            return _ready("Running", f"attempt {last.number}" if last is not None else "")
    if driver is not None and driver.held_up is not None:
        return _not_ready(*driver.held_up)
    if wanted is not None and wanted.on_lag and not decision.record.failures:
        return _ready("Starting", "a job is about to take what waits")
    return _not_ready("Starting", "")


def _ready(reason: str, message: str) -> Verdict:
    return Verdict("CollectorReady", "True", reason, message)


def _not_ready(reason: str, message: str) -> Verdict:
    return Verdict("CollectorReady", "False", reason, message)


def _events(before: Record, after: Record) -> Iterator[Event]:
    known = {one.number: one for one in before.attempts}
    for one in after.attempts:
        was = known.get(one.number)
        if was is None and not one.uid:
            yield Event("Normal", "CollectorBegins", f"attempt {one.number} of the collector")
        if one.ended and (was is None or not was.ended):
            good = one.outcome in (SUCCEEDED, STOPPED, REPLACED, NOT_STARTED)
            message = f"attempt {one.number} of the collector: {one.message or one.outcome}"
            yield Event("Normal" if good else "Warning", f"Collector{one.outcome}"[:128], message)
