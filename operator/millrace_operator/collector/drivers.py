"""What the pods of a collector tell: drivers and executors, how a driver ended, and what keeps one from starting.

How it ended is told by the pod first (evicted, out of memory: its process had no say in that), then by the exit code of
`millrace collector` (docs/exit-codes.md), and explained by the last lines of its log, where these can't hold a user's data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millrace.errors import ExitCode
from millrace_api.tree import Tree, get
from millrace_operator import names
from millrace_operator.objects import entries, mapping, number, text
from millrace_operator.pods import CONFIG, PULL, is_ready

CONTAINER: Final = "collector"
_KILLED: Final = 137
_OUTCOMES: Final[Mapping[int, tuple[str, str]]] = {
    ExitCode.FAILED: ("Failed", "the collector failed"),
    ExitCode.MANIFEST: ("ManifestRefused", "the collector, or Spark, refuses the manifest"),
    ExitCode.FUNCTION: ("FunctionFailed", "the stage's function can't be imported or its setup() failed"),
    ExitCode.BROKER_UNREACHABLE: ("BrokerUnreachable", "the collector can't reach the broker"),
    ExitCode.CREDENTIALS: ("CredentialsRejected", "the broker refuses the collector"),
    ExitCode.TOPIC: ("TopicMissing", "the channel, or the topic of results, is missing"),
    ExitCode.STAGE_FAILED: ("StageFailed", "the stage's function raised"),
    ExitCode.BUSY: ("Busy", "another attempt is at work on the checkpoint"),
    ExitCode.DISK: ("StorageFailed", "the storage is full or can't be written"),
    ExitCode.SETUP: ("SetupFailed", "something is missing in the image"),
    ExitCode.OFFSET_GONE: ("OffsetGone", "records of the channel are gone that were not read yet"),
    ExitCode.OUT_OF_MEMORY: ("OutOfMemory", "Spark has no memory left: give the driver more"),
    ExitCode.CHECKPOINT: ("CheckpointRefused", "the checkpoint is damaged, or does not fit the query"),
    ExitCode.DATA: ("DataRefused", "what the stage computes can't be computed of a row"),
    ExitCode.INTERRUPTED: ("Interrupted", "a batch did not end in time and was given up"),
    _KILLED: ("Killed", "the driver was killed"),
}
# Where what is said is made of names in the manifest, and never of a row.
_TOLD: Final = frozenset(
    {
        ExitCode.MANIFEST,
        ExitCode.FUNCTION,
        ExitCode.BROKER_UNREACHABLE,
        ExitCode.TOPIC,
        ExitCode.BUSY,
        ExitCode.DISK,
        ExitCode.SETUP,
        ExitCode.OFFSET_GONE,
        ExitCode.OUT_OF_MEMORY,
        ExitCode.CHECKPOINT,
    }
)
NEVER_AGAIN: Final = frozenset(
    _OUTCOMES[code][0]
    for code in (
        ExitCode.MANIFEST,
        ExitCode.FUNCTION,
        ExitCode.STAGE_FAILED,
        ExitCode.SETUP,
        ExitCode.OFFSET_GONE,
        ExitCode.CHECKPOINT,
        ExitCode.DATA,
    )
)
"""Outcomes that another attempt would only repeat, until the manifest, the code or the image is another one."""
SUCCEEDED: Final = "Succeeded"
LOST: Final = "Lost"


@dataclass(frozen=True, slots=True)
class Driver:
    """A driver's pod.

    Attributes:
        ours: this very pipeline owns it, and not one of the same name that was deleted.
        over: its process has ended and will not be started again.
        ending: its deletion has been asked for.
        outcome, message: how it ended, if it is over.
        held_up: why it does not start, as reason and message; None: nothing is known to be in its way.
    """

    name: str
    number: int
    uid: str
    digest: str
    created: str
    ours: bool = True
    over: bool = False
    ending: bool = False
    ready: bool = False
    outcome: str = ""
    message: str = ""
    held_up: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Executor:
    """An executor's pod, and the driver's that owns it."""

    name: str
    uid: str
    driver: str
    over: bool = False
    ending: bool = False


def drivers(pods: Sequence[Tree], owner: str, nodes_lost: Mapping[str, float]) -> tuple[Driver, ...]:
    """owner: uid of the pipeline."""
    return tuple(
        _driver(pod, owner, nodes_lost)
        for pod in pods
        if text(pod, "metadata", "labels", names.COMPONENT) == names.DRIVER
        and text(pod, "metadata", "labels", names.ATTEMPT).isdigit()
    )


def executors(pods: Sequence[Tree]) -> tuple[Executor, ...]:
    return tuple(
        Executor(
            text(pod, "metadata", "name"),
            text(pod, "metadata", "uid"),
            next((text(one, "uid") for one in entries(pod, "metadata", "ownerReferences")), ""),
            over=_over(pod),
            ending=_ending(pod),
        )
        for pod in pods
        if text(pod, "metadata", "labels", names.COMPONENT) == names.EXECUTOR
    )


def _driver(pod: Tree, owner: str, nodes_lost: Mapping[str, float]) -> Driver:
    over = _over(pod)
    outcome, message = _how(pod) if over else ("", "")
    metadata = mapping(pod, "metadata")
    return Driver(
        text(metadata, "name"),
        int(text(metadata, "labels", names.ATTEMPT)),
        text(metadata, "uid"),
        text(metadata, "annotations", names.APPLIED),
        text(metadata, "creationTimestamp"),
        ours=owner in [text(one, "uid") for one in entries(metadata, "ownerReferences")],
        over=over,
        ending=_ending(pod),
        ready=not over and is_ready(pod),
        outcome=outcome,
        message=message,
        held_up=None if over else _held_up(pod, nodes_lost),
    )


def _over(pod: Tree) -> bool:
    return text(pod, "status", "phase") in ("Succeeded", "Failed")


def _ending(pod: Tree) -> bool:
    return bool(text(pod, "metadata", "deletionTimestamp"))


def _how(pod: Tree) -> tuple[str, str]:
    if (reason := text(pod, "status", "reason")).isalpha():
        said = text(pod, "status", "message") or "the pod failed"
        return reason[:28], said
    ended: object = None
    for status in entries(pod, "status", "containerStatuses"):
        if text(status, "name") == CONTAINER:
            ended = get(get(status, "state"), "terminated")
    if text(ended, "reason") == "OOMKilled":
        return "OutOfMemory", "the driver was killed for its use of memory: give spark.driver more"
    code = number(ended, "exitCode")
    if code == 0 and text(pod, "status", "phase") == "Succeeded":
        return SUCCEEDED, ""
    outcome, meaning = _OUTCOMES.get(code, ("Failed", f"the driver ended with code {code}"))
    told = _last_word(text(ended, "message")) if code in _TOLD else ""
    return outcome, told or meaning


def _last_word(log: str) -> str:
    """What the command said of why it ended: "error: ...", and where."""
    lines = log.splitlines()
    at = max((index for index, line in enumerate(lines) if line.startswith("error: ")), default=None)
    if at is None:
        return ""
    where = next((line.strip() for line in lines[at + 1 :] if line.startswith("  where: ")), "")
    return f"{lines[at].removeprefix('error: ')[:300]}{f' ({where[:150]})' if where else ''}"


def _held_up(pod: Tree, nodes_lost: Mapping[str, float]) -> tuple[str, str] | None:
    node = text(pod, "spec", "nodeName")
    if node in nodes_lost:
        return (
            "NodeLost",
            f"node {node} has not been heard of, and the driver there may be at work: its storage is safe from a second "
            "one only once the node is back, deleted, or tainted node.kubernetes.io/out-of-service",
        )
    for condition in entries(pod, "status", "conditions"):
        if text(condition, "type") == "PodScheduled" and text(condition, "status") == "False":
            return "Unschedulable", text(condition, "message") or "no node has room for it"
    for status in entries(pod, "status", "containerStatuses"):
        waiting = text(status, "state", "waiting", "reason")
        if waiting in PULL:
            return "ImagePullFailed", f"image {text(status, 'image')} can't be pulled ({waiting})"
        if waiting in CONFIG:
            return "PodRefused", text(status, "state", "waiting", "message") or waiting
    return None
