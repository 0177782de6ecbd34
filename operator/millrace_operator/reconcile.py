"""What should be done about one pipeline, decided from what was observed. Pure: it reads no clock and writes nothing.

It may be asked at any time and in any state, also one that a crash left behind: it looks at what there is, not at what
it did before. Asked again of a world that is as it should be, it wants nothing written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from millrace_api import ConsumerPipeline
from millrace_api.tree import Tree
from millrace_operator import children, deletion, names
from millrace_operator.collector import Inputs, collecting, ending
from millrace_operator.course import Course, course
from millrace_operator.objects import Key, covers, entries, key_of, mapping, number, text
from millrace_operator.observed import Observed
from millrace_operator.outcome import Annotated, Deletion, Outcome
from millrace_operator.pods import Crew, crew
from millrace_operator.status import Report, status, transitions
from millrace_operator.verdicts import has_collector, leaving, refused, verdicts


def reconcile(observed: Observed, now: float) -> Outcome:
    """`now` in seconds since the Unix epoch."""
    resource = observed.resource
    if resource.deleted is not None:
        return _leaving(observed, now)
    if resource.pipeline is None:
        return _refused(observed, now)
    pipeline = resource.pipeline
    hands = crew_of(observed, pipeline, now)
    inputs, lacking = _inputs(observed, pipeline)
    shared = Inputs(inputs.code, inputs.credentials) if inputs is not None else None
    job = (
        collecting(observed, pipeline, shared, lacking, now)
        if has_collector(pipeline)
        else ending(observed, now)
    )
    untouched = observed.kafka is None or observed.kafka.epoch is None or observed.kafka.epoch.number == 0
    # no worker is started whose rows nobody would take
    held = job.impossible and untouched
    wanted = 0 if held or pipeline.spec.suspend else pipeline.spec.replicas
    look = not held
    way = course(observed.kafka if look else None, hands, wanted)
    objects, obsolete = _objects(observed, pipeline, way, inputs, job.objects)
    told = verdicts(observed, pipeline, hands, way, job, wanted=wanted, lacking=lacking)
    report = Report(told, len(hands.fleet.running), hands.ready, observed.kafka, job.told)
    return Outcome(
        finalizers=None
        if names.FINALIZER in resource.finalizers
        else (*resource.finalizers, names.FINALIZER),
        objects=objects,
        creations=(job.driver,) if job.driver is not None else (),
        deletions=(*obsolete, *job.deletions, *_hopeless(hands)),
        pods=_annotated(observed),
        kafka=way.work,
        look=look,
        look_within=observed.settings.settled_look / 2 if _calm(observed, way) else 0.0,
        status=_changed(observed, status(resource, report, now)),
        exact=job.changed,
        events=(*transitions(resource, told), *job.events),
        requeue_after=min(_pause(observed, hands, way), job.wake or float("inf")),
    )


def _leaving(observed: Observed, now: float) -> Outcome:
    outcome, resource = deletion.end(observed, now), observed.resource
    if names.FINALIZER not in resource.finalizers or outcome.finalizers is not None:
        return outcome  # it is gone with that
    hands = crew_of(observed, resource.pipeline, now)
    told = leaving(observed, ending(observed, now))
    report = Report(told, len(hands.fleet.running), hands.ready, observed.kafka)
    return replace(
        outcome,
        status=_changed(observed, status(resource, report, now)),
        events=(*transitions(resource, told), *outcome.events),
    )


def crew_of(observed: Observed, pipeline: ConsumerPipeline | None, now: float) -> Crew:
    settings = observed.settings
    lost_after = pipeline.spec.node_lost.after_seconds if pipeline is not None else 300.0
    stateful = observed.children.get(("StatefulSet", observed.resource.name))
    return crew(
        stateful,
        observed.pods,
        observed.nodes_lost,
        now=now,
        lost_after=lost_after,
        crash_after=settings.crash_deadline,
    )


def _refused(observed: Observed, now: float) -> Outcome:
    """Whatever runs goes on as it is."""
    hands = crew_of(observed, None, now)
    told = refused(observed)
    report = Report(told, len(hands.fleet.running), hands.ready, observed.kafka)
    return Outcome(
        look=False,
        status=_changed(observed, status(observed.resource, report, now)),
        events=transitions(observed.resource, told),
        requeue_after=observed.settings.settled_look * 10,
    )


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What the workers are made of beside the manifest."""

    image: str
    code: Mapping[str, str] | None
    credentials: str


def _inputs(observed: Observed, pipeline: ConsumerPipeline) -> tuple[_Inputs | None, tuple[str, str] | None]:
    """What there is, and what is lacking. Workers that run go on with what they have when it is taken away."""
    worker, kafka = pipeline.spec.worker, pipeline.spec.kafka
    live = observed.children.get(("StatefulSet", observed.resource.name))
    template = mapping(live, "spec", "template")
    image = (worker.image if worker else None) or observed.settings.image
    lacking: tuple[str, str] | None = None
    if not image:
        image = text(template, "spec", "containers", 0, "image")
        lacking = ("ImageMissing", "no image for the workers: set spec.worker.image")
    code = observed.code
    if worker is not None and worker.code is not None and code is None:
        name = worker.code.config_map_ref.name
        lacking = ("CodeMissing", f"there is no ConfigMap {name} (spec.worker.code.configMapRef)")
        code = _mounted_code(observed, template)
        if code is None:
            return None, lacking
    credentials = observed.secret.mark if observed.secret is not None else ""
    if kafka.credentials is not None and observed.secret is None:
        name = kafka.credentials.secret_ref.name
        lacking = ("SecretMissing", f"there is no Secret {name} (spec.kafka.credentials.secretRef)")
        credentials = text(template, "metadata", "annotations", names.CREDENTIALS)
        if not credentials:
            return None, lacking
    return (_Inputs(image, code, credentials) if image else None), lacking


def _mounted_code(observed: Observed, template: Tree) -> Mapping[str, str] | None:
    """Our copy of the code that the workers run with."""
    for volume in entries(template, "spec", "volumes"):
        if text(volume, "name") == "code":
            copy = observed.children.get(("ConfigMap", text(volume, "configMap", "name")))
            return (
                {key: str(value) for key, value in mapping(copy, "data").items()}
                if copy is not None
                else None
            )
    return None


def _objects(
    observed: Observed,
    pipeline: ConsumerPipeline,
    way: Course,
    inputs: _Inputs | None,
    collectors: Sequence[Tree],
) -> tuple[tuple[Tree, ...], tuple[Deletion, ...]]:
    """Children to be applied, and those that are no longer wanted."""
    resource = observed.resource
    wanted = list(children.base(resource, observed.settings))
    published = observed.kafka is not None and observed.kafka.epoch is not None
    there = ("StatefulSet", resource.name) in observed.children
    obsolete: tuple[Deletion, ...] = ()
    if inputs is not None and (there or published):
        workers = children.workers(
            resource,
            pipeline,
            image=inputs.image,
            replicas=way.scale,
            code=inputs.code,
            credentials=inputs.credentials,
        )
        wanted += workers
        obsolete = _obsolete(observed, [*collectors, *workers])
    known = {key_of(tree) for tree in wanted}
    wanted += [tree for tree in collectors if key_of(tree) not in known]
    return tuple(tree for tree in wanted if _differs(observed.children.get(key_of(tree)), tree)), obsolete


def _differs(live: Tree | None, wanted: Tree) -> bool:
    if live is None or text(live, "metadata", "deletionTimestamp"):
        return live is None  # one that is just going must be gone before it can be made again
    hashes = [text(tree, "metadata", "annotations", names.APPLIED) for tree in (live, wanted)]
    return hashes[0] != hashes[1] or not covers(live, wanted)


def _obsolete(observed: Observed, wanted: Sequence[Tree]) -> tuple[Deletion, ...]:
    """ConfigMaps of former versions, once no worker of theirs runs or may be started again. The StatefulSet is last."""
    stateful = observed.children.get(("StatefulSet", observed.resource.name))
    state = mapping(stateful, "status")
    rolled = (
        stateful is not None
        and not _differs(stateful, wanted[-1])
        and number(state, "observedGeneration") == number(stateful, "metadata", "generation")
        and text(state, "currentRevision") == text(state, "updateRevision")
    )
    if not rolled:
        return ()
    mounted = _mounted([*observed.pods, *observed.collector_pods])
    used = {key_of(tree) for tree in wanted} | {("ConfigMap", name) for name in mounted}
    prefixes = tuple(f"{observed.resource.name}-{what}-" for what in ("manifest", "code"))
    return tuple(
        deletion_of(tree)
        for key, tree in sorted(observed.children.items())
        if key[0] == "ConfigMap" and key[1].startswith(prefixes) and key not in used and not _ending(tree)
    )


def deletion_of(tree: Tree, grace: int | None = None, key: Key | None = None) -> Deletion:
    kind, name = key or key_of(tree)
    return Deletion(kind, name, text(tree, "metadata", "uid"), grace)


def _mounted(pods: Iterable[Tree]) -> Iterable[str]:
    for pod in pods:
        for volume in entries(pod, "spec", "volumes"):
            yield text(volume, "configMap", "name")


def _hopeless(hands: Crew) -> Sequence[Deletion]:
    lost = [deletion_of(pod, 0, ("Pod", text(pod, "metadata", "name"))) for pod in hands.lost]
    return lost + [deletion_of(pod, None, ("Pod", text(pod, "metadata", "name"))) for pod in hands.stuck]


def _annotated(observed: Observed) -> tuple[Annotated, ...]:
    """Pods that have not been told of the epoch yet."""
    epoch = observed.kafka.epoch if observed.kafka is not None else None
    if epoch is None or epoch.number == 0:
        return ()
    current = str(epoch.number)
    return tuple(
        Annotated(text(pod, "metadata", "name"), epoch.number)
        for pod in observed.pods
        if text(pod, "metadata", "annotations", names.EPOCH) != current and not _ending(pod)
    )


def _ending(tree: Tree) -> bool:
    return bool(text(tree, "metadata", "deletionTimestamp"))


def _changed(observed: Observed, wanted: Tree) -> Tree | None:
    """The status, if it must be written. On the way to somewhere figures alone are not worth a write."""
    old = observed.resource.status
    if old == wanted or (_on_the_way(old) and _said(old) == _said(wanted)):
        return None
    return wanted


def _on_the_way(told: Tree) -> bool:
    return any(text(condition, "type") == "Reconciling" for condition in entries(told, "conditions"))


def _said(told: Tree) -> object:
    conditions = entries(told, "conditions")
    collector = mapping(told, "collector")
    attempts = list(entries(collector, "attempts")), number(collector, "failures")
    said = [(text(c, "type"), text(c, "status"), text(c, "reason")) for c in conditions]
    return number(told, "observedGeneration"), told.get("topics"), said, attempts


def _pause(observed: Observed, hands: Crew, way: Course) -> float:
    settings = observed.settings
    pause = settings.settled_look if _calm(observed, way) else settings.unsettled_look
    return min(pause, hands.moves or float("inf"))


def _calm(observed: Observed, way: Course) -> bool:
    """Nothing is to be done, or nothing can be."""
    return (way.settled or way.step is None) and not (observed.kafka and observed.kafka.to_make)
