"""A pod made, waited for, heard and taken away again."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from millrace.cli.kubectl.client import Kubectl, KubectlFailed
from millrace.cli.kubectl.offsets.pod import encoded, name_of, pod_of
from millrace.cli.kubectl.view import Pipeline
from millrace.cli.offsets.in_pod import Answer, Errand, read_answer
from millrace.clock import Deadline
from millrace.errors import ExitCode, MillraceError
from millrace_api.tree import Tree, at, get, items

_AGAIN: Final = 0.5  # seconds between two looks
# These don't pass by themselves, or not soon.
_HOPELESS: Final = frozenset(
    {"ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError"}
)
_OVER: Final = ("Succeeded", "Failed")
_TAIL = 10  # lines


def send(kubectl: Kubectl, pipeline: Pipeline, errand: Errand, deadline: Deadline) -> Answer:
    """Returns what was found or done. Raises MillraceError: what the pod has met with; BUSY if there is another one; FAILED
    if it can't start or does not end in time; KubectlFailed.
    """
    name = name_of(pipeline)
    _make(kubectl, name, encoded(pod_of(_stateful(kubectl, pipeline), pipeline, errand)))
    try:
        ended = _await_end(kubectl, name, deadline)
        log = kubectl.run("logs", name)
    finally:
        with suppress(KubectlFailed):  # it ends by itself, and goes with its pipeline or with the next errand
            kubectl.run("delete", "pod", name, "--ignore-not-found", "--wait=false")
    answer = read_answer(log)
    if answer is None:
        raise _speechless(ended, log)
    if answer.failed is not None:
        failed = answer.failed
        raise MillraceError(failed.what, where=failed.where, remedy=failed.remedy, code=_code(failed.code))
    return answer


def rehearse(kubectl: Kubectl, pipeline: Pipeline, errand: Errand) -> None:
    """See that the pod might be made (rights, admission, no other one), before anything is stopped for it. Raises as `send`."""
    pod = encoded(pod_of(_stateful(kubectl, pipeline), pipeline, errand))
    try:
        kubectl.run("create", "--dry-run=server", "--filename", "-", stdin=pod)
    except KubectlFailed as failure:
        if failure.reason != "AlreadyExists":
            raise
        _refuse_busy(kubectl, name_of(pipeline))


def _stateful(kubectl: Kubectl, pipeline: Pipeline) -> Tree:
    """Raises MillraceError if there is none, or another one of that name."""
    name = pipeline.metadata.name
    try:
        found = kubectl.json("get", "statefulset", name)
    except KubectlFailed as failure:
        if failure.reason != "NotFound":
            raise
        found = {}
    owners = items(at(found, ("metadata", "ownerReferences")))
    if not any(get(owner, "uid") == pipeline.metadata.uid for owner in owners):
        raise MillraceError(
            f"the operator has not made the workers of pipeline {name} yet",
            remedy=f"`kubectl millrace status {name}` says what it waits for",
            code=ExitCode.USAGE,
        )
    return found


def _make(kubectl: Kubectl, name: str, pod: str) -> None:
    try:
        kubectl.run("create", "--filename", "-", stdin=pod)
        return
    except KubectlFailed as failure:
        if failure.reason != "AlreadyExists":
            raise
    _refuse_busy(kubectl, name)
    kubectl.run("delete", "pod", name, "--ignore-not-found")  # of one that was killed
    kubectl.run("create", "--filename", "-", stdin=pod)


def _refuse_busy(kubectl: Kubectl, name: str) -> None:
    if _phase(_look(kubectl, name)) not in _OVER:
        raise MillraceError(
            "another `kubectl millrace offsets` is at work on this pipeline",
            where=f"pod {name}",
            remedy=f"wait for it; if nobody waits for it any more: kubectl delete pod {name}",
            code=ExitCode.BUSY,
        )


def _await_end(kubectl: Kubectl, name: str, deadline: Deadline) -> Tree:
    while True:
        pod = _look(kubectl, name)
        if _phase(pod) in _OVER:
            return pod
        waits = _waits(pod)
        if deadline.expired() or waits.partition(":")[0] in _HOPELESS:
            raise MillraceError(
                f"pod {name} has not done its work{f': {waits}' if waits else ''}",
                remedy="it is made as the workers are: see that they could start, with this image, on a node with room",
                code=ExitCode.FAILED,
            )
        deadline.clock.sleep(_AGAIN)


def _look(kubectl: Kubectl, name: str) -> Mapping[str, object]:
    return kubectl.json("get", "pod", name)


def _phase(pod: Tree) -> str:
    phase = get(get(pod, "status"), "phase")
    return phase if isinstance(phase, str) else ""


def _waits(pod: Tree) -> str:
    """What it waits for, if that is known: the reason first."""
    status = get(pod, "status")
    for container in items(get(status, "containerStatuses")):
        waiting = at(container, ("state", "waiting"))
        if waiting is not None:
            return ": ".join(str(part) for part in (get(waiting, "reason"), get(waiting, "message")) if part)
    for condition in items(get(status, "conditions")):
        if get(condition, "status") == "False" and get(condition, "type") == "PodScheduled":
            return f"{get(condition, 'reason')}: {get(condition, 'message')}"
    return ""


def _speechless(pod: Tree, log: str) -> MillraceError:
    ended = at(pod, ("status", "containerStatuses", 0, "state", "terminated"))
    why = get(get(pod, "status"), "reason") or get(ended, "reason") or "no reason"
    code = get(ended, "exitCode")
    told = "\n".join(log.strip().splitlines()[-_TAIL:])
    return MillraceError(
        f"the pod ended without an answer ({why}, code {code}){':' if told else ''}\n{told}".rstrip(),
        remedy="the workers' image must have this version of millrace: compare `millrace --version` in both",
        code=_code(code),
    )


def _code(code: object) -> ExitCode:
    try:
        return ExitCode(code) if isinstance(code, int) and code else ExitCode.FAILED
    except ValueError:
        return ExitCode.FAILED
