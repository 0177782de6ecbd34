"""How pipelines on a cluster are printed: a list of them, or one with its conditions, workers and collector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from millrace.cli.kubectl.view import Collector, Condition, Pipeline, PodView
from millrace.local.view.figures import count, plural, short
from millrace.worker.status import WorkerStatus

# Conditions that tell of something bad while True; of the others it is the other way round.
_BAD_WHEN_TRUE = frozenset({"Degraded", "Stalled"})
_OPERATOR = -1


def listing(pipelines: Sequence[Pipeline], now: float, *, namespaces: bool) -> RenderableType:
    """A line for each. `namespaces`: they are of several."""
    if not pipelines:
        return Text("no pipelines here; --all-namespaces looks everywhere")
    table = _table(
        *(["namespace"] if namespaces else []),
        "name",
        "ready",
        "workers",
        "epoch",
        "partitions",
        "lag",
        "age",
    )
    for one in sorted(pipelines, key=lambda p: (p.metadata.namespace, p.metadata.name)):
        ready, status = one.condition("Ready"), one.status
        table.add_row(
            *([one.metadata.namespace] if namespaces else []),
            one.metadata.name,
            _reason(ready) if ready else Text("not seen by an operator", style="yellow"),
            f"{status.ready_replicas or 0}/{one.spec.replicas}",
            _figure(status.epoch),
            _figure(status.partitions),
            "" if status.lag is None else short(status.lag),
            age(one.metadata.creation_timestamp, now),
        )
    return table


def detail(
    one: Pipeline, pods: Sequence[PodView], told: Mapping[str, WorkerStatus], now: float
) -> RenderableType:
    """One pipeline. `told`: what workers say of themselves, by pod; those that were not asked are not in it."""
    parts: list[RenderableType] = [_header(one), Text(), _conditions(one, now)]
    if not one.status.conditions:
        parts.append(
            Text("no operator has looked at it yet: is one running, and for this namespace?", style="yellow")
        )
    elif not one.observed:
        parts.append(Text("the operator has not seen the newest change yet", style="yellow"))
    if pods or one.status.workers:
        parts += [Text(), _workers(one, pods, told)]
    if one.status.collector is not None:
        parts += [Text(), _collector(one.status.collector, now)]
    return Group(*parts)


def age(since: str, now: float) -> str:
    """5s, 7m, 3h, 12d, as kubectl has it; "" if it is not known."""
    try:
        seconds = max(0.0, now - datetime.fromisoformat(since).timestamp())
    except ValueError:
        return ""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size or (unit == "m" and seconds >= size):
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds:.0f}s"


def _header(one: Pipeline) -> Text:
    status = one.status
    facts = [
        one.spec.source.topic,
        f"{plural(one.spec.replicas, 'worker')} wanted" + (", suspended" if one.spec.suspend else ""),
        *([plural(status.partitions, "partition")] if status.partitions else []),
        *([f"epoch {status.epoch}"] if status.epoch is not None else []),
        *([f"lag {count(status.lag)}"] if status.lag is not None else []),
        *(["is being deleted"] if one.metadata.deletion_timestamp else []),
    ]
    name = f"{one.metadata.namespace}/{one.metadata.name}"
    return Text.assemble((name, "bold"), "  ", ("  ".join(facts), "dim"))


def _conditions(one: Pipeline, now: float) -> RenderableType:
    table = _table("condition", "", "reason", "since", "message")
    for condition in one.status.conditions:
        table.add_row(
            condition.type,
            condition.status,
            _reason(condition),
            age(condition.last_transition_time, now),
            Text(condition.message, overflow="fold"),
        )
    return table


def _workers(one: Pipeline, pods: Sequence[PodView], told: Mapping[str, WorkerStatus]) -> RenderableType:
    """By index: the pods there are, and what is owned by indices without one (or parked)."""
    asked = ("messages", "dead letters", "late") if told else ()
    table = _table("worker", "pod", "ready", "restarts", "node", "lag", *asked, "partitions")
    owned = {share.index: share for share in one.status.workers}
    by_index = {pod.index: pod for pod in pods}
    for index in sorted(owned.keys() | by_index.keys()):
        pod, share = by_index.get(index), owned.get(index)
        said = told.get(pod.name) if pod is not None else None
        table.add_row(
            "parked" if index == _OPERATOR else str(index),
            _pod(pod, index, said),
            "" if pod is None else "yes" if pod.ready else Text("no", style="yellow"),
            "" if pod is None or not pod.restarts else str(pod.restarts),
            pod.node if pod is not None else "",
            "" if share is None or share.lag is None else short(share.lag),
            *(_said(said) if asked else ()),
            Text(share.partitions if share is not None else "", overflow="fold"),
        )
    return table


def _pod(pod: PodView | None, index: int, said: WorkerStatus | None) -> Text:
    if pod is None:
        return Text("" if index == _OPERATOR else "none", style="yellow")
    if said is not None and said.stuck:
        return Text(f"{said.stuck[0].stage} is stuck", style="yellow")
    return Text(pod.state, style="green" if pod.state == "Running" else "yellow")


def _said(status: WorkerStatus | None) -> tuple[str, str, str]:
    if status is None:
        return "", "", ""
    dead = sum(stage.dead for stage in status.stages)
    return count(status.messages), count(dead), count(sum(status.late_rows.values()))


def _collector(collector: Collector, now: float) -> RenderableType:
    table = _table("collector", "attempt", "since", "ended", "outcome", "message")
    for attempt in collector.attempts[-3:]:
        table.add_row(
            "" if attempt.ended else Text("runs", style="green"),
            str(attempt.number),
            age(attempt.started, now),
            age(attempt.ended or "", now),
            attempt.outcome or "",
            Text(attempt.message or "", overflow="fold"),
        )
    facts = [
        *([f"lag {count(collector.lag)}"] if collector.lag is not None else []),
        *([f"{plural(collector.failures, 'failure')} in a row"] if collector.failures else []),
    ]
    return Group(table, Text("  ".join(facts), style="dim")) if facts else table


def _reason(condition: Condition) -> Text:
    good = condition.status == ("False" if condition.type in _BAD_WHEN_TRUE else "True")
    style = "green" if good else "red" if condition.status in ("True", "False") else "yellow"
    if condition.type == "Reconciling" or condition.reason == "Reconciling":
        style = "yellow"
    return Text(condition.reason or condition.status, style=style)


def _figure(number: int | None) -> str:
    return "" if number is None else count(number)


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    right = ("epoch", "lag", "restarts", "messages", "dead letters", "late", "age", "attempt")
    for head in heads:
        wraps = head in ("message", "partitions")
        table.add_column(
            head, justify="right" if head in right else "left", no_wrap=not wraps, overflow="fold"
        )
    return table
