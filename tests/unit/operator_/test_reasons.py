"""Why a pipeline does not run: each cause has a reason of its own, and keeps it while it is tried again."""

from __future__ import annotations

from typing import Any

import pytest

from millrace_operator import names
from millrace_operator.observed import Secret
from millrace_operator.times import written
from operator_world import World

pytestmark = pytest.mark.unit


def running(**spec: object) -> World:
    world = World(**spec)
    world.settle()
    return world


def container(world: World, code: int, **status: Any) -> dict[str, Any]:
    started = written(world.clock.time())
    ended = {"terminated": {"exitCode": code, "startedAt": started, "message": ""}}
    return {"containerStatuses": [{"name": "worker", "restartCount": 3, "lastState": ended, **status}]}


def told(world: World) -> tuple[str, str]:
    world.kubelet()
    world.reconcile()
    return world.condition("WorkersReady")


def test_pods_over_quota() -> None:
    world = running()
    world.absent = 'pods "flights-1" is forbidden: exceeded quota: tight, requested: pods=1'
    world.broken = {1: {}}

    assert told(world) == ("False", "QuotaExceeded")
    assert world.condition("Degraded") == ("True", "QuotaExceeded")
    assert world.condition("Ready") == ("False", "QuotaExceeded")


def test_pods_that_a_policy_refuses() -> None:
    world = World()
    world.absent = 'pods "flights-0" is forbidden: violates PodSecurity "restricted:latest"'
    world.broken = {0: {}, 1: {}}
    for _ in range(3):
        world.reconcile()
        world.kubelet()

    assert world.condition("WorkersReady") == ("False", "PodsRefused")


def test_a_child_that_the_api_server_refuses() -> None:
    world = running()
    world.refused = 'statefulsets.apps "flights" is forbidden: not allowed'

    assert told(world) == ("False", "ChildRefused")


@pytest.mark.parametrize(
    ("code", "reason"),
    [(4, "FunctionFailed"), (6, "CredentialsRejected"), (8, "StageFailed"), (77, "CrashLooping")],
)
def test_a_crash_loop_has_one_reason_while_it_is_tried_again(code: int, reason: str) -> None:
    world = running()
    waiting = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    world.broken = {1: container(world, code, **waiting)}
    assert told(world) == ("False", reason)
    events = len(world.events)

    world.broken = {1: container(world, code, state={"running": {}}, ready=False)}
    assert told(world) == ("False", reason)
    world.broken = {1: container(world, code, **waiting)}
    assert told(world) == ("False", reason)
    assert len(world.events) == events


@pytest.mark.parametrize(
    ("code", "first"), [(4, ("False", "FunctionFailed")), (5, ("False", "BrokerUnreachable"))]
)
def test_a_worker_that_said_why_it_ended_is_believed_from_the_first_time_until_it_is_ready(
    code: int, first: tuple[str, str]
) -> None:
    world = running()
    world.broken = {1: container(world, code, state={"running": {}}, ready=False, restartCount=1)}
    assert told(world) == first

    world.broken = {}
    assert told(world) == ("True", "AllReady")


def test_the_first_end_of_a_worker_that_was_killed_is_over_when_it_is_started_again() -> None:
    world = running()
    world.broken = {1: container(world, 137, state={"running": {}}, ready=False, restartCount=1)}
    assert told(world) == ("False", "Starting")


def test_a_worker_that_is_started_again_is_not_acted_for_however_long_it_needs() -> None:
    world = running(replicas=3)
    world.broken = {2: container(world, 1, state={"running": {}}, ready=False)}
    world.kubelet()
    world.clock.advance(10_000)
    world.change(replicas=2)
    for _ in range(5):
        world.reconcile()
        world.clock.advance(200)

    assert 2 in world.claims().values()


def test_a_pod_that_ends_because_it_was_told_to_is_no_trouble() -> None:
    world = running()
    world.broken = {1: container(world, 0, state={"terminated": {"exitCode": 0}})}
    world.kubelet()
    world.pods[1]["metadata"]["deletionTimestamp"] = written(world.clock.time())
    world.reconcile()

    assert world.condition("WorkersReady") == ("False", "Starting")
    assert world.condition("Degraded") == ("", "")


def test_it_is_settled_only_when_workers_that_are_not_wanted_any_more_have_gone() -> None:
    world = running(replicas=3)
    former = world.pods[2]
    world.change(replicas=2)
    world.settle()
    ending = former["metadata"] | {"deletionTimestamp": written(world.clock.time())}
    world.pods[2] = former | {"metadata": ending}  # the kubelet is slow
    world.reconcile()
    assert world.condition("Ready") == ("False", "Reconciling")
    assert world.condition("WorkersReady") == ("False", "Stopping")

    del world.pods[2]
    world.reconcile()
    assert world.condition("Ready") == ("True", "Running")
    writes = len(world.writes)
    world.restart_operator()
    world.reconcile()
    assert world.writes[writes:] == []


def test_a_secret_that_is_not_there_and_comes_and_changes_and_goes() -> None:
    credentials = {"secretRef": {"name": "kafka-user"}}
    world = World(kafka={"bootstrapServers": "kafka:9093", "credentials": credentials})
    world.settle()
    assert world.condition("Ready") == ("False", "SecretMissing")
    assert world.condition("WorkersReady") == ("False", "SecretMissing")
    assert not world.pods

    world.secret = Secret("kafka-user", "mark-1")
    world.settle()
    assert world.condition("Ready") == ("True", "Running")
    assert _mark(world) == "mark-1"

    world.secret = Secret("kafka-user", "mark-2")
    world.settle()
    assert _mark(world) == "mark-2"

    world.secret = None
    world.settle()
    assert world.condition("Ready") == ("False", "SecretMissing")
    assert _mark(world) == "mark-2"  # what runs goes on
    assert len(world.pods) == 2


def _mark(world: World) -> str:
    template = world.objects["StatefulSet", "flights"]["spec"]["template"]
    return str(template["metadata"]["annotations"][names.CREDENTIALS])
