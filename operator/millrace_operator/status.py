"""What a pipeline's author is told: the status with its conditions, after kstatus.

Ready, SourceReady, WorkersReady and CollectorReady are always there; Degraded, Reconciling and Stalled only while True.
A condition's time is that of its last change. Figures that keep changing are rounded and renewed rarely: metrics have
them exactly, and a status that changes with every message would cost the API server more than the pipeline's work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from millrace.ownership.control_rules import holders
from millrace.ownership.errors import shorten
from millrace_api.tree import Tree, get
from millrace_operator import names
from millrace_operator.objects import entries, number, text
from millrace_operator.observed import KafkaView, Resource
from millrace_operator.outcome import Event
from millrace_operator.times import written

Truth = Literal["True", "False", "Unknown"]

ALWAYS = ("Ready", "SourceReady", "WorkersReady", "CollectorReady")
_WORKERS_TOLD = 32


@dataclass(frozen=True, slots=True)
class Verdict:
    """One condition to be, without its time."""

    type: str
    status: Truth
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """Verdicts and figures; None: not known, so that what was known stays."""

    verdicts: Sequence[Verdict]
    replicas: int = 0
    ready: int = 0
    kafka: KafkaView | None = None
    collector: Mapping[str, object] | None = None


def status(resource: Resource, report: Report, now: float) -> Tree:
    """The whole status as it should be."""
    old = resource.status
    told: dict[str, object] = {
        "observedGeneration": resource.generation,
        "replicas": report.replicas,
        "readyReplicas": report.ready,
        "selector": names.selector_text(resource.name),
    }
    told |= {key: old[key] for key in ("epoch", "partitions", "lag", "workers") if key in old}
    if report.collector is None and "collector" in old:
        told["collector"] = old["collector"]
    elif report.collector:
        told["collector"] = report.collector
    if report.kafka is not None and report.kafka.epoch is not None:
        told |= _figures(report.kafka, old)
    topics = _topics(resource, report.kafka)
    if topics:
        told["topics"] = [{"name": name, **({"id": id} if id else {})} for name, id in topics.items()]
    told["conditions"] = [_condition(resource, verdict, now) for verdict in report.verdicts]
    return told


def transitions(resource: Resource, verdicts: Iterable[Verdict]) -> tuple[Event, ...]:
    """An event for each condition that has become another, or has another reason."""
    before = {text(c, "type"): (text(c, "status"), text(c, "reason")) for c in _conditions(resource)}
    found = []
    for verdict in verdicts:
        if before.get(verdict.type) == (verdict.status, verdict.reason):
            continue
        if verdict.type == "Ready" or (verdict.type in ("Stalled", "Degraded") and verdict.status == "True"):
            bad = verdict.type != "Ready"
            message = verdict.message or f"{verdict.type} is {verdict.status}"
            found.append(Event("Warning" if bad else "Normal", verdict.reason, message[:1000]))
    return tuple(found)


def rounded(lag: int, before: int | None) -> int:
    """Two digits of the lag; what was told before as long as it is within a half of the truth."""
    if before and lag and before / 1.5 <= lag <= before * 1.5:
        return before
    unit = int("1".ljust(len(str(lag)) - 1, "0"))
    return lag // unit * unit


def _topics(resource: Resource, kafka: KafkaView | None) -> Mapping[str, str]:
    """Those that were made for the pipeline, and those that are about to be. An id that is known stays: a topic that was
    made anew under the same name is another's.
    """
    found = dict(resource.own_topics)
    if kafka is not None:
        found = {**dict.fromkeys(kafka.to_make, ""), **found}
        found |= {name: id for name, id in kafka.made.items() if not found.get(name)}
    return dict(sorted(found.items()))


def _figures(kafka: KafkaView, old: Tree) -> Mapping[str, object]:
    assert kafka.epoch is not None
    found: dict[str, object] = {"epoch": kafka.epoch.number, "partitions": kafka.epoch.partitions}
    if kafka.lag:
        before = number(old, "lag") if "lag" in old else None
        found["lag"] = rounded(sum(kafka.lag.values()), before)
    if kafka.identity is not None:
        owned: dict[int, list[int]] = {}
        for partition, holder in holders(kafka.identity, kafka.claims, range(kafka.epoch.partitions)).items():
            if holder is not None:
                owned.setdefault(holder, []).append(partition)
        renewed = "lag" in found and found["lag"] != old.get("lag")
        told = {number(worker, "index"): worker for worker in entries(old, "workers")}
        found["workers"] = [
            _worker(index, partitions, kafka.lag, None if renewed else told.get(index))
            for index, partitions in sorted(owned.items())[:_WORKERS_TOLD]
        ]
    return found


def _worker(index: int, partitions: Sequence[int], lag: Mapping[int, int], before: object) -> Tree:
    """`before`: what was told of this worker, if that is good enough as long as it owns the same."""
    worker: dict[str, object] = {"index": index, "partitions": shorten(partitions)[:1024]}
    same = before is not None and text(before, "partitions") == worker["partitions"]
    known = get(before, "lag") if same else None
    if known is not None:
        worker["lag"] = known
    elif lag:
        worker["lag"] = rounded(sum(lag.get(p, 0) for p in partitions), None)
    return worker


def _condition(resource: Resource, verdict: Verdict, now: float) -> Tree:
    before = next((c for c in _conditions(resource) if text(c, "type") == verdict.type), None)
    unchanged = text(before, "status") == verdict.status and text(before, "lastTransitionTime")
    return {
        "type": verdict.type,
        "status": verdict.status,
        "reason": verdict.reason,
        "message": verdict.message[:4096],
        "lastTransitionTime": unchanged or written(now),
        "observedGeneration": resource.generation,
    }


def _conditions(resource: Resource) -> Sequence[object]:
    return entries(resource.status, "conditions")
