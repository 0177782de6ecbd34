"""What the workers' pods tell: which indices run and are ready, which may be acted for, and what is wrong.

A worker says why it ended by its exit code (`millrace.errors.ExitCode`) and by the last line of its log, which the
kubelet keeps. Of that line nothing is told that may hold a user's data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from millrace.errors import ExitCode
from millrace.ownership.control_rules import Fleet
from millrace_api.tree import Tree, get
from millrace_operator.children.stateful_set import CONTAINER
from millrace_operator.objects import entries, number, text
from millrace_operator.times import unix

PULL: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
)
CONFIG: Final = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_BY_CODE: Final[Mapping[int, tuple[str, str]]] = {
    ExitCode.MANIFEST: ("ManifestRefused", "the worker refuses the manifest"),
    ExitCode.FUNCTION: ("FunctionFailed", "a function can't be imported or its setup() failed"),
    ExitCode.BROKER_UNREACHABLE: ("BrokerUnreachable", "the worker can't reach the broker"),
    ExitCode.CREDENTIALS: ("CredentialsRejected", "the broker refuses the worker"),
    ExitCode.TOPIC: ("TopicMissing", "a topic is missing or not as it must be"),
    ExitCode.STAGE_FAILED: ("StageFailed", "a stage's function raised, and its onError is Stop"),
    ExitCode.DEAD_LETTER_LIMIT: ("DeadLetterLimit", "more dead letters than the manifest allows"),
    ExitCode.CLAIM_LOST: ("ClaimLost", "claims are lost"),
    ExitCode.CLAIM_FOREIGN: ("ForeignClaim", "partitions are claimed by another pipeline"),
    ExitCode.OFFSET_GONE: ("OffsetGone", "the committed offset is no longer in the log"),
}
# Where what the worker says of itself is made of names in the manifest, and never of a message.
_TOLD: Final = frozenset(
    {
        ExitCode.MANIFEST,
        ExitCode.FUNCTION,
        ExitCode.BROKER_UNREACHABLE,
        ExitCode.TOPIC,
        ExitCode.DEAD_LETTER_LIMIT,
    }
)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a worker does not work, as one word and a sentence; `since` in Unix seconds, None: not known."""

    index: int
    reason: str
    message: str
    since: float | None = None


@dataclass(frozen=True, slots=True)
class Crew:
    """The workers' pods, looked through.

    Attributes:
        lost: pods on a node that has been lost for too long, to be deleted without asking their kubelet.
        stuck: pods of a former revision that don't work: they would hold up the roll-out that mends them.
        moves: when `lost` or `overdue` may change next, in seconds from now; None: not by time alone.
    """

    fleet: Fleet
    ready: int
    troubles: tuple[Trouble, ...]
    lost: tuple[Tree, ...]
    stuck: tuple[Tree, ...]
    moves: float | None


def crew(
    stateful: Tree | None,
    pods: Sequence[Tree],
    nodes_lost: Mapping[str, float],
    *,
    now: float,
    lost_after: float,
    crash_after: float,
) -> Crew:
    """stateful: the live StatefulSet; None: there is none."""
    scale = number(stateful, "spec", "replicas")
    revision = text(stateful, "status", "updateRevision")
    running, ready, overdue = set(), set(), set()
    troubles: list[Trouble] = []
    lost, stuck, waits = [], [], []
    for pod in pods:
        index = index_of(pod)
        if index is None:
            continue
        running.add(index)
        ending = bool(text(pod, "metadata", "deletionTimestamp"))
        gone_since = nodes_lost.get(text(pod, "spec", "nodeName"))
        trouble = _trouble(index, pod, gone_since, ending=ending)
        if trouble is None:
            if is_ready(pod) and not ending:
                ready.add(index)
            continue
        troubles.append(trouble)
        if gone_since is not None:
            deadline = gone_since + lost_after
            if now >= deadline:
                lost.append(pod)
        else:
            deadline = (trouble.since if trouble.since is not None else now) + crash_after
            if (
                not ending
                and revision
                and revision != text(pod, "metadata", "labels", "controller-revision-hash")
            ):
                stuck.append(pod)
        if now >= deadline:
            overdue.add(index)
        else:
            waits.append(deadline - now)
    fleet = Fleet(scale, frozenset(running), frozenset(ready), frozenset(overdue))
    order = tuple(sorted(troubles, key=lambda trouble: trouble.index))
    return Crew(fleet, len(ready), order, tuple(lost), tuple(stuck), min(waits, default=None))


def index_of(pod: Tree) -> int | None:
    """The worker's index; None for a pod that is no worker of a StatefulSet."""
    ordinal = text(pod, "metadata", "labels", "apps.kubernetes.io/pod-index")
    ordinal = ordinal or text(pod, "metadata", "name").rpartition("-")[2]
    return int(ordinal) if ordinal.isdigit() else None


def is_ready(pod: Tree) -> bool:
    return _condition(pod, "Ready") == "True"


def node_lost_since(node: Tree) -> float | None:
    """When a node was last heard of, if it is lost; else None."""
    for condition in entries(node, "status", "conditions"):
        if text(condition, "type") == "Ready" and text(condition, "status") != "True":
            return unix(text(condition, "lastTransitionTime"))
    return None


def _condition(pod: Tree, kind: str) -> str:
    found = (c for c in entries(pod, "status", "conditions") if text(c, "type") == kind)
    return text(next(found, None), "status")


def _trouble(index: int, pod: Tree, gone_since: float | None, *, ending: bool) -> Trouble | None:
    if gone_since is not None:
        node = text(pod, "spec", "nodeName")
        return Trouble(index, "NodeLost", f"node {node} has not been heard of", gone_since)
    if ending:
        return None  # it ends because it was told to
    if _condition(pod, "PodScheduled") == "False":
        return _unschedulable(index, pod)
    for status in entries(pod, "status", "containerStatuses"):
        if text(status, "name") == CONTAINER:
            return next(_of_container(index, status), None)
    if text(pod, "status", "phase") == "Failed":
        return Trouble(index, text(pod, "status", "reason") or "PodFailed", "the pod failed")
    return None


def _unschedulable(index: int, pod: Tree) -> Trouble:
    condition = next(c for c in entries(pod, "status", "conditions") if text(c, "type") == "PodScheduled")
    said = text(condition, "message") or "no node has room for it"
    return Trouble(index, "Unschedulable", said, unix(text(condition, "lastTransitionTime")))


def _of_container(index: int, status: object) -> Iterator[Trouble]:
    waiting = text(status, "state", "waiting", "reason")
    if waiting in PULL:
        image = text(status, "image")
        yield Trouble(index, "ImagePullFailed", f"image {image} can't be pulled ({waiting})")
    elif waiting in CONFIG:
        yield Trouble(index, "PodRefused", text(status, "state", "waiting", "message") or waiting)
    ended, before = get(get(status, "state"), "terminated"), get(get(status, "lastState"), "terminated")
    if ended is None and waiting == "CrashLoopBackOff":
        ended = before
    if ended is not None:
        yield _ended(index, status, ended)
    elif _starts_again(status, before):
        # the trouble is not over because it is being tried again; but nobody acts for a worker that may get through
        yield replace(_ended(index, status, before), since=None)


def _starts_again(status: object, before: object) -> bool:
    """Whether the container was started anew after a failure and is not ready yet. A first one that says nothing of its
    cause, such as a SIGKILL, is over with that.
    """
    code = number(before, "exitCode") if before is not None else 0
    failed = code in _BY_CODE or (code != 0 and number(status, "restartCount") > 1)
    return failed and get(status, "ready") is not True


def _ended(index: int, status: object, ended: object) -> Trouble:
    since = unix(text(ended, "startedAt"))
    if text(ended, "reason") == "OOMKilled":
        return Trouble(index, "OutOfMemory", "the worker was killed for its use of memory", since)
    code, restarts = number(ended, "exitCode"), number(status, "restartCount")
    if code in _BY_CODE:
        reason, message = _BY_CODE[code]
        told = _told(text(ended, "message")) if code in _TOLD else ""
        return Trouble(index, reason, told or message, since)
    return Trouble(index, "CrashLooping", f"the worker ends with code {code}, {restarts} times so far", since)


def _told(log: str) -> str:
    """What a worker said last of why it failed."""
    for line in reversed(log.splitlines()):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if get(event, "event") == "failed":
            where = text(event, "where")
            return text(event, "what")[:300] + (f" ({where[:200]})" if where else "")
    return ""
