"""A pod made, and taken away again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from millrace.cli.kubectl.client import Kubectl, KubectlFailed
from millrace.cli.kubectl.errand.hearing import heard, is_over
from millrace.cli.kubectl.errand.pod import TOKEN, Errand, encoded, name_of, pod_of
from millrace.cli.kubectl.status import pipeline
from millrace.cli.kubectl.view import Pipeline
from millrace.clock import Clock, Deadline, SystemClock
from millrace.errors import ExitCode, MillraceError
from millrace_api.tree import Tree, at, get, items

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """Which pipeline. `patience`: seconds to wait for the pod, from its making to its end."""

    kubectl: Kubectl
    name: str
    patience: float
    clock: Clock

    @classmethod
    def of(cls, kubectl: Kubectl, name: str, patience: float) -> Place:
        return cls(kubectl, name, patience, SystemClock())

    def pipeline(self) -> Pipeline:
        """As it is now. Raises MillraceError (BUSY) if it is about to go, and what belongs to it; KubectlFailed."""
        one = pipeline(self.kubectl, self.name)
        if one.metadata.deletion_timestamp is not None:
            raise MillraceError(
                f"pipeline {self.name} is being deleted",
                remedy="its pods go with it: docs/operator.md",
                code=ExitCode.BUSY,
            )
        return one


def send(where: Place, one: Pipeline, errand: Errand, kind: type[T]) -> T:
    """Returns what was found or done. What the pod says meanwhile goes to the standard error stream.

    Raises MillraceError: what the pod has met with; BUSY if another one is at work; FAILED if it can't start, does not end in
    time, or its answer was cut; KubectlFailed.
    """
    kubectl, name = where.kubectl, name_of(one, errand)
    deadline = Deadline.after(where.clock, where.patience)
    pod = encoded(pod_of(_stateful(kubectl, one), one, errand))
    with _made(kubectl, name, errand, pod):
        return heard(kubectl, name, deadline, kind)


def rehearse(where: Place, one: Pipeline, errand: Errand) -> None:
    """See that the pod might be made (rights, admission, no other one), before anything is stopped for it. Raises as `send`."""
    kubectl = where.kubectl
    pod = encoded(pod_of(_stateful(kubectl, one), one, errand))
    try:
        kubectl.run("create", "--dry-run=server", "--filename", "-", stdin=pod)
    except KubectlFailed as failure:
        if failure.reason != "AlreadyExists":
            raise
        _ended(kubectl, name_of(one, errand), errand.command)


def _stateful(kubectl: Kubectl, one: Pipeline) -> Tree:
    """Raises MillraceError if there is none, or another one of that name."""
    name = one.metadata.name
    try:
        found = kubectl.json("get", "statefulset", name)
    except KubectlFailed as failure:
        if failure.reason != "NotFound":
            raise
        found = {}
    owners = items(at(found, ("metadata", "ownerReferences")))
    if not any(get(owner, "uid") == one.metadata.uid for owner in owners):
        raise MillraceError(
            f"the operator has not made the workers of pipeline {name} yet",
            remedy=f"`kubectl millrace status {name}` says what it waits for",
            code=ExitCode.USAGE,
        )
    return found


@contextmanager
def _made(kubectl: Kubectl, name: str, errand: Errand, pod: str) -> Iterator[None]:
    """Taken away in any case, and known by its token: one that was not made, or is another's, is not touched. By Ctrl-C the
    making may be interrupted after it was done.
    """
    refused = False
    try:
        try:
            _make(kubectl, name, errand.command, pod)
        except MillraceError as failure:
            refused = not isinstance(failure, KubectlFailed) or bool(failure.reason)
            raise
        yield
    finally:
        if not refused:
            with suppress(KubectlFailed):  # it ends by itself, and goes with its pipeline or the next errand
                kubectl.run("delete", "pods", "--selector", f"{TOKEN}={errand.token}", "--wait=false")


def _make(kubectl: Kubectl, name: str, command: str, pod: str) -> None:
    try:
        kubectl.run("create", "--filename", "-", stdin=pod)
        return
    except KubectlFailed as failure:
        if failure.reason != "AlreadyExists":
            raise
    old = _ended(kubectl, name, command)  # of one that was killed, or is about to go
    if old:
        kubectl.run("delete", "pods", "--selector", f"{TOKEN}={old}", "--timeout=60s")
    kubectl.run("create", "--filename", "-", stdin=pod)


def _ended(kubectl: Kubectl, name: str, command: str) -> str:
    """The token of the pod that has this name, so that no newer one is meant; "" if there is none any more. Raises MillraceError
    (BUSY) if it is at work.
    """
    try:
        pod = kubectl.json("get", "pod", name)
    except KubectlFailed as failure:
        if failure.reason == "NotFound":
            return ""
        raise
    token = at(pod, ("metadata", "labels", TOKEN))
    going = at(pod, ("metadata", "deletionTimestamp")) is not None
    if not isinstance(token, str) or not (is_over(pod) or going):
        raise MillraceError(
            f"another `kubectl millrace {command}` is at work on this pipeline",
            where=f"pod {name}",
            remedy=f"wait for it; if nobody waits for it any more: kubectl delete pod {name}",
            code=ExitCode.BUSY,
        )
    return token
