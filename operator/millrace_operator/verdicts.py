"""The conditions of a pipeline, from what was observed and from the course that it is on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from millrace.errors import ExitCode
from millrace_api import ConsumerPipeline
from millrace_operator.collector import Collecting
from millrace_operator.course import Course
from millrace_operator.observed import KafkaView, Observed, Stuck
from millrace_operator.pods import Crew
from millrace_operator.status import Verdict

_SOURCE: Final[Mapping[ExitCode, str]] = {
    ExitCode.BROKER_UNREACHABLE: "BrokerUnreachable",
    ExitCode.CREDENTIALS: "CredentialsRejected",
    ExitCode.TOPIC: "TopicMissing",
    ExitCode.CLAIM_LOST: "ClaimLost",
    ExitCode.CLAIM_FOREIGN: "ForeignClaim",
    ExitCode.MANIFEST: "ManifestRefused",
}
# Nothing that the operator may do mends these.
_STALLS: Final = frozenset({ExitCode.CLAIM_LOST, ExitCode.CLAIM_FOREIGN, ExitCode.MANIFEST})
# What workers do on the way to where they should be.
_PASSING: Final = frozenset({"Starting", "Stopping"})


def refused(observed: Observed) -> Sequence[Verdict]:
    """Of a pipeline whose spec can't be used, although the API server took it."""
    problems = observed.resource.problems
    told = "; ".join(f"{problem.path}: {problem.message}" for problem in problems[:5]) or "it can't be read"
    return [
        Verdict("Ready", "False", "InvalidSpec", told),
        Verdict("SourceReady", "Unknown", "InvalidSpec"),
        Verdict("WorkersReady", "Unknown", "InvalidSpec"),
        Verdict("CollectorReady", "Unknown", "InvalidSpec"),
        Verdict("Stalled", "True", "InvalidSpec", told),
    ]


def leaving(observed: Observed, job: Collecting) -> Sequence[Verdict]:
    """Of a pipeline that is being deleted."""
    view = observed.kafka
    if view is not None and view.failure is not None:
        waits = f"Kafka is needed to end in order; it is given up in time: {view.failure.what}"
    elif observed.pods:
        waits = "workers commit, pass on what they have and end"
    elif observed.collector_pods:
        waits = "the collector ends its batch"
    else:
        waits = "what belongs to it is removed"
    return [
        Verdict("Ready", "False", "Deleting", waits),
        _source(view),
        Verdict("WorkersReady", "False", "Stopping" if observed.pods else "Stopped"),
        job.verdict,
        Verdict("Reconciling", "True", "Deleting", waits),
    ]


def verdicts(
    observed: Observed,
    pipeline: ConsumerPipeline,
    crew: Crew,
    way: Course,
    job: Collecting,
    *,
    wanted: int,
    lacking: tuple[str, str] | None,
) -> Sequence[Verdict]:
    """`lacking`: what workers can't start without, as reason and message."""
    view = observed.kafka
    source = _source(view)
    if lacking is not None and lacking[0] == "SecretMissing":
        source = Verdict("SourceReady", "False", *lacking)
    if observed.refused:
        lacking = (_refusal(observed.refused, "ChildRefused"), observed.refused)
    absent = (_refusal(observed.absent, "PodsRefused"), observed.absent) if observed.absent else None
    # as of a Deployment: done only when what is no longer wanted has gone
    going = any(index >= wanted for index in crew.fleet.running)
    settled = way.settled and not going and lacking is None and absent is None
    workers = _workers(crew, wanted, lacking, absent, settled=settled, going=going)
    parts = [source, workers, job.verdict]
    bad = next((part for part in parts if part.status != "True"), None)
    stalled = _stalled(view, job)
    found = []
    if bad is None and settled:
        reason = "Suspended" if pipeline.spec.suspend else "Parked" if wanted == 0 else "Running"
        found.append(Verdict("Ready", "True", reason, _RUNNING[reason]))
    elif bad is None or (bad is workers and bad.reason in _PASSING):
        found.append(Verdict("Ready", "False", "Reconciling", _waits(way, going=going)))
    else:
        found.append(Verdict("Ready", "False", bad.reason, bad.message))
    found += parts
    found += _degraded(observed, crew, absent)
    if stalled is not None:
        found.append(stalled)
    elif not settled:
        found.append(Verdict("Reconciling", "True", "Reconciling", _waits(way, going=going)))
    return found


_RUNNING: Final = {
    "Running": "all workers are ready and the epoch is theirs",
    "Parked": "no worker is wanted; the pipeline's place is kept",
    "Suspended": "spec.suspend is true; the pipeline's place is kept",
}


def has_collector(pipeline: ConsumerPipeline) -> bool:
    return any(stage.collect is not None for stage in pipeline.spec.stages)


def _source(view: KafkaView | None) -> Verdict:
    if view is not None and view.to_make and view.failure is None:
        return Verdict("SourceReady", "False", "MakingTopics", f"{', '.join(view.to_make)} will be made")
    if view is None or (view.epoch is None and view.failure is None):
        return Verdict("SourceReady", "Unknown", "Waiting", "not looked at yet")
    if view.failure is not None:
        reason = _SOURCE.get(view.failure.code, "KafkaFailed")
        remedy = f"; {view.failure.remedy}" if view.failure.remedy else ""
        return Verdict("SourceReady", "False", reason, view.failure.what + remedy)
    return Verdict("SourceReady", "True", "Reachable", f"{view.partitions} partitions")


def _workers(
    crew: Crew,
    wanted: int,
    lacking: tuple[str, str] | None,
    absent: tuple[str, str] | None,
    *,
    settled: bool,
    going: bool,
) -> Verdict:
    if lacking is not None:
        return Verdict("WorkersReady", "False", *lacking)
    if crew.troubles:
        worst = crew.troubles[0]
        same = [str(trouble.index) for trouble in crew.troubles if trouble.reason == worst.reason]
        who = f"worker {same[0]}" if len(same) == 1 else f"workers {', '.join(same[:10])}"
        return Verdict("WorkersReady", "False", worst.reason, f"{who}: {worst.message}")
    if absent is not None:
        return Verdict("WorkersReady", "False", *absent)
    if not settled or crew.ready < wanted:
        return Verdict("WorkersReady", "False", "Stopping" if going or not wanted else "Starting")
    return Verdict("WorkersReady", "True", "AllReady" if wanted else "NoneWanted")


def _refusal(said: str, otherwise: str) -> str:
    return "QuotaExceeded" if "exceeded quota" in said else otherwise


def _degraded(observed: Observed, crew: Crew, absent: tuple[str, str] | None) -> Iterator[Verdict]:
    view = observed.kafka
    if crew.troubles and crew.ready:
        worst = crew.troubles[0]
        message = f"worker {worst.index}: {worst.message}; its partitions wait, the others go on"
        yield Verdict("Degraded", "True", worst.reason, message)
    elif absent is not None and crew.ready:
        yield Verdict("Degraded", "True", absent[0], f"some workers can't be made: {absent[1]}")
    elif observed.stuck:
        yield Verdict("Degraded", "True", "StageStuck", _stuck(observed.stuck))
    elif view is not None and view.strays:
        message = (
            f"{', '.join(view.strays[:3])[:200]} is subscribed in the pipeline's group; it disturbs nothing but what lag "
            "tools show; let it use a group of its own"
        )
        yield Verdict("Degraded", "True", "StraySubscriber", message)


def _stuck(found: Sequence[Stuck]) -> str:
    """Without figures that change while it lasts."""
    first = found[0]
    others = [str(one.index) for one in found[1:]]
    more = f"; so is worker {', '.join(others[:10])}" if others else ""
    return (
        f"worker {first.index}: stage {first.stage} is stuck in a call at partition {first.partition}, offset {first.offset}; "
        f"that partition waits. Its log has the stack{more}"
    )


def _stalled(view: KafkaView | None, job: Collecting) -> Verdict | None:
    if view is not None and view.failure is not None and view.failure.code in _STALLS:
        source = _source(view)
        return Verdict("Stalled", "True", source.reason, source.message)
    if job.stalled:
        return Verdict("Stalled", "True", job.verdict.reason, job.verdict.message)
    return None


def _waits(way: Course, *, going: bool) -> str:
    if way.settled:
        return "waits until leaving workers have ended" if going else "waits for what workers need"
    match type(way.step).__name__:
        case "Scale" | "AwaitReady":
            return "waits for workers to be ready"
        case "AwaitPassing":
            return "waits until leaving workers have passed their partitions on"
        case "Advance":
            return "a new epoch is about to be published"
        case "Settled":
            return "partitions are changing hands"
        case _:
            return "waits for Kafka to be looked at"
