"""What comes from a pod: what it says meanwhile, its answer, or why there is none."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Final, TypeVar

import msgspec

from millrace.cli.errand.in_pod import understood
from millrace.cli.errand.wire import MARK, Ear
from millrace.cli.kubectl.client import Kubectl, KubectlFailed
from millrace.cli.kubectl.errand.pod import CONTAINER
from millrace.clock import Deadline
from millrace.errors import ExitCode, MillraceError
from millrace_api.tree import Tree, at, get, items

T = TypeVar("T")

_ITS: Final = f"--container={CONTAINER}"
_AGAIN: Final = 0.5  # seconds between two looks
# These don't pass by themselves, or not soon.
_HOPELESS: Final = frozenset(
    {"ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError"}
)
_USUAL: Final = ("ContainerCreating", "PodInitializing")
_OVER: Final = ("Succeeded", "Failed")
_TAIL: Final = 10  # lines
_AS_IMAGE: Final = (
    "the workers' image must have this version of millrace: compare `millrace --version` in both"
)
# The reason of a pod's end, or of its container's, and what to do then; what the command had done by then stays done.
_CUT_SHORT: Final[Mapping[str, str]] = {
    "DeadlineExceeded": "give it more time by --timeout, and start it again",
    "OOMKilled": "give the workers more memory (spec.worker.resources), or choose less",
    "Evicted": "start it again",
}


def heard(kubectl: Kubectl, name: str, deadline: Deadline, kind: type[T]) -> T:
    """Waits for the pod's end, or its answer. Raises as `sending.send`."""
    ear, waits = Ear(), ""
    while True:
        pod = _look(kubectl, name, deadline)
        if is_over(pod):
            return _at_last(kubectl, name, pod, ear, kind)
        if _phase(pod) == "Running":
            _listen(kubectl, name, ear, deadline)
            answer = ear.answer()
            if answer is not None:
                return _understood(answer, kind)
        waits, before = _waits(pod), waits
        if deadline.expired() or waits.partition(":")[0] in _HOPELESS:
            raise _never(name, pod, waits)
        if waits not in ("", before):
            say(f"pod {name} waits: {waits}")
        deadline.clock.sleep(_AGAIN)


def _look(kubectl: Kubectl, name: str, deadline: Deadline) -> Mapping[str, object]:
    """Nothing as long as no API server answers, which may pass."""
    try:
        return kubectl.json("get", "pod", name)
    except KubectlFailed as failure:
        if failure.code is ExitCode.BROKER_UNREACHABLE and not deadline.expired():
            return {}
        if failure.reason == "NotFound":
            raise MillraceError(
                f"pod {name} was deleted by somebody else before it had answered",
                remedy="what it has done stays done: look, or start it again",
                code=ExitCode.FAILED,
            ) from None
        raise


def _listen(kubectl: Kubectl, name: str, ear: Ear, deadline: Deadline) -> None:
    """Until the log ends, or the connection does."""
    try:
        with closing(kubectl.stream("logs", name, _ITS, "--follow", seconds=deadline.remaining())) as lines:
            for line in lines:
                _hear(ear, line)
    except KubectlFailed as failure:
        if failure.code is ExitCode.CREDENTIALS:
            raise  # others pass: its container is about to start, the API server restarts


def _hear(ear: Ear, line: str) -> None:
    told = ear.hear(line)
    if told is not None:
        say(told)


def _at_last(kubectl: Kubectl, name: str, pod: Tree, ear: Ear, kind: type[T]) -> T:
    """The answer of a pod that has ended, from what is there of its log."""
    try:
        log = kubectl.run("logs", name, _ITS).splitlines()
    except KubectlFailed as failure:
        if failure.code is ExitCode.CREDENTIALS:
            raise
        log = []  # gone with its node
    for line in log:
        _hear(ear, line)
    answer = ear.answer()
    if answer is not None:
        return _understood(answer, kind)
    if ear.ended:
        raise MillraceError(
            f"the answer was cut: {ear.missing} pieces of it are no longer in the log of pod {name}",
            where="nodes keep so much of a container's log: containerLogMaxSize, 10Mi unless set otherwise",
            remedy="choose less at a time (--limit, --since, --until ...)",
            code=ExitCode.FAILED,
        )
    raise _speechless(pod, log)


def _understood(answer: bytes, kind: type[T]) -> T:
    try:
        return understood(answer, kind)
    except msgspec.DecodeError as error:
        raise MillraceError(
            f"the pod's answer is not as expected: {error}", remedy=_AS_IMAGE, code=ExitCode.FAILED
        ) from None


def is_over(pod: Tree) -> bool:
    """The work is: a container that was added to the pod (of a service mesh, say) may go on."""
    return _phase(pod) in _OVER or _terminated(pod) is not None


def _terminated(pod: Tree) -> object:
    own = (c for c in items(at(pod, ("status", "containerStatuses"))) if get(c, "name") == CONTAINER)
    return at(next(own, None), ("state", "terminated"))


def _phase(pod: Tree) -> str:
    phase = get(get(pod, "status"), "phase")
    return phase if isinstance(phase, str) else ""


def _waits(pod: Tree) -> str:
    """What it waits for that is not usual, if that is known: the reason first."""
    status = get(pod, "status")
    for container in items(get(status, "containerStatuses")):
        waiting = at(container, ("state", "waiting"))
        if waiting is not None and get(waiting, "reason") not in _USUAL:
            return ": ".join(str(part) for part in (get(waiting, "reason"), get(waiting, "message")) if part)
    for condition in items(get(status, "conditions")):
        if get(condition, "status") == "False" and get(condition, "type") == "PodScheduled":
            return f"{get(condition, 'reason')}: {get(condition, 'message')}"
    return ""


def _never(name: str, pod: Tree, waits: str) -> MillraceError:
    if _phase(pod) == "Running":
        return MillraceError(
            f"pod {name} has not ended in time",
            remedy="--timeout waits longer; what it has done stays done: start it again",
            code=ExitCode.FAILED,
        )
    return MillraceError(
        f"pod {name} has not done its work{f': {waits}' if waits else ''}",
        remedy="it is made as the workers are: see that they could start, with this image, on a node with room",
        code=ExitCode.FAILED,
    )


def _speechless(pod: Tree, log: Sequence[str]) -> MillraceError:
    ended = _terminated(pod)
    reasons = [reason for reason in (get(get(pod, "status"), "reason"), get(ended, "reason")) if reason]
    code = get(ended, "exitCode")
    told = "\n".join(["", *[line for line in log if line and MARK not in line][-_TAIL:]])
    return MillraceError(
        f"the pod ended without an answer ({reasons[0] if reasons else 'no reason'}, code {code})"
        + (f":{told}" if told else ""),
        remedy=next((_CUT_SHORT[str(why)] for why in reasons if why in _CUT_SHORT), _AS_IMAGE),
        code=_code(code),
    )


def _code(code: object) -> ExitCode:
    try:
        return ExitCode(code) if isinstance(code, int) and code else ExitCode.FAILED
    except ValueError:
        return ExitCode.FAILED


def say(line: str) -> None:
    """Beside the answer, which may be read by a program."""
    sys.stderr.write(line + "\n")
