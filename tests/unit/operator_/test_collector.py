"""The collector's attempts in a cluster in memory: one at a time, whatever happens, and what is told of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.main import get_command

from millrace.cli.app import app
from millrace_api import load
from millrace_operator import names
from millrace_operator.collector.attempts import Record
from millrace_operator.observed import Claim, Settings
from operator_world import World

pytestmark = pytest.mark.unit

COLLECT: dict[str, Any] = {
    "schema": "a string, t timestamp",
    "groupBy": ["a"],
    "window": {"size": "1h", "time": "t", "lateness": "1h"},
    "aggregate": {"n": "count(*)"},
    "sink": {"parquet": {"path": "results"}},
}
SCORED = {"name": "scored", "map": {"function": "flights:score"}}
STORAGE = {"persistentVolumeClaim": {"claimName": "flights"}}


def stages(**collect: object) -> list[dict[str, Any]]:
    return [SCORED, {"name": "by-a", "collect": {**COLLECT, **collect}}]


def new(**collect: object) -> World:
    world = World(stages=stages(**collect), storage=STORAGE)
    world.claim = Claim("flights", shared=False)
    world.settings = Settings(spark_image="spark:1")
    return world


def running(**collect: object) -> World:
    world = new(**collect)
    world.settle()
    world.writes.clear()
    return world


def followed(world: World) -> None:
    """Time goes on until there is a driver again."""
    for _ in range(400):
        outcome = world.reconcile()
        world.kubelet()
        world.clock.advance(max(1.0, outcome.requeue_after))
        if world.alive() and attempts(world)[-1][1] == "":
            break
    world.settle()


def attempts(world: World) -> list[tuple[int, str]]:
    assert world.pipeline is not None
    told = world.pipeline["status"].get("collector", {}).get("attempts", [])
    return [(one["number"], one.get("outcome", "")) for one in told]


def collector(world: World) -> tuple[str, str]:
    return world.condition("CollectorReady")


def driver(world: World) -> dict[str, Any]:
    return world.spark[world.driver()]


def container(world: World) -> dict[str, Any]:
    return driver(world)["spec"]["containers"][0]


def test_a_driver_runs_beside_the_workers() -> None:
    world = new()
    world.settle()

    assert world.driver() == "flights.by-a.1"
    assert attempts(world) == [(1, "")]
    assert collector(world) == ("True", "Running")
    assert world.condition("Ready") == ("True", "Running")


def test_an_attempt_is_written_down_before_its_driver_is_made() -> None:
    world = new()
    world.settle()

    [made] = [at for at, write in enumerate(world.writes) if write.startswith("create")]
    objects = [
        at for at, write in enumerate(world.writes) if write.startswith("apply") and "collector" in write
    ]
    assert any(write.startswith("status") for write in world.writes[:made])
    assert max(objects) < made


def test_a_driver_without_executors_has_no_rights_and_no_token() -> None:
    world = running()
    spec = driver(world)["spec"]

    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] == "flights"
    assert ("Role", "flights.driver") not in world.objects
    assert "--conf=spark.master=local[2]" in container(world)["args"]


def test_a_driver_with_executors_may_make_pods_and_nothing_else() -> None:
    world = running(spark={"executors": {"min": 1, "max": 4, "memory": "1Gi"}, "driver": {"memory": "1Gi"}})
    spec, arguments = driver(world)["spec"], container(world)["args"]

    assert spec["serviceAccountName"] == "flights.driver"
    assert spec["automountServiceAccountToken"] is True
    [rule] = world.objects["Role", "flights.driver"]["rules"]
    assert rule["resources"] == ["pods"]
    for wanted in (
        "spark.master=k8s://https://kubernetes.default.svc",
        "spark.kubernetes.driver.pod.name=$(MILLRACE_POD)",
        "spark.kubernetes.authenticate.executor.serviceAccountName=flights",
        "spark.dynamicAllocation.minExecutors=1",
        "spark.dynamicAllocation.maxExecutors=4",
        "spark.executor.memory=614m",
        "spark.executor.memoryOverhead=410m",
        "spark.driver.memory=614m",
    ):
        assert f"--conf={wanted}" in arguments


@pytest.mark.parametrize("spark", [{}, {"executors": {"instances": 2}}])
def test_the_collectors_program_knows_all_that_it_is_told(spark: dict[str, Any]) -> None:
    world = running(spark=spark, trigger={"onLag": {"messages": 1}})
    world.waiting = 1
    world.settle()
    name, *arguments = container(world)["args"]

    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    given = command.make_context(name, list(arguments)).params
    assert given["stage"] == "by-a"
    assert given["attempt"] == 1
    assert given["pending"] is True
    assert all(one.startswith("spark.") and "=" in one for one in given["conf"])


def test_the_manifest_that_a_driver_reads_is_valid_and_has_its_storage() -> None:
    world = running(spark={"executors": {"instances": 2}, "shufflePartitions": 2, "stateStore": "RocksDB"})
    [settings_map] = [tree for key, tree in world.objects.items() if key[1].startswith("flights.collector-")]

    read = load(settings_map["data"]["pipeline.yaml"]).pipeline
    [collect] = [stage.collect for stage in read.spec.stages if stage.collect is not None]
    assert collect.spark is not None
    assert collect.spark.settings["spark.sql.shuffle.partitions"] == "2"
    assert collect.spark.settings["spark.sql.streaming.stateStore.providerClass"].endswith(
        "RocksDBStateStoreProvider"
    )
    assert not {"executors", "driver", "image"} & collect.spark.model_fields_set
    assert read.group_id == "air.flights"


@pytest.mark.parametrize("shared", [False, True])
def test_executors_are_kept_on_the_drivers_node_where_their_storage_is_not_shared(shared: bool) -> None:
    world = new(spark={"executors": {"instances": 2}})
    world.claim = Claim("flights", shared=shared)
    world.settle()

    [settings_map] = [tree for key, tree in world.objects.items() if key[1].startswith("flights.collector-")]
    template = json.loads(settings_map["data"]["executor.yaml"])
    assert ("affinity" in template["spec"]) != shared
    assert template["spec"]["automountServiceAccountToken"] is False
    assert template["metadata"]["labels"][names.COMPONENT] == "executor"


def test_a_collectors_pods_stay_on_the_nodes_that_the_workers_may_be_on() -> None:
    affinity = {"required": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    world = new(spark={"executors": {"instances": 2}})
    world.change(worker={"image": "flights:1", "affinity": affinity})
    world.settle()

    [settings_map] = [tree for key, tree in world.objects.items() if key[1].startswith("flights.collector-")]
    executors = json.loads(settings_map["data"]["executor.yaml"])["spec"]["affinity"]
    assert executors.keys() == {"nodeAffinity", "podAffinity"}
    assert driver(world)["spec"]["affinity"] == {"nodeAffinity": executors["nodeAffinity"]}


def test_all_pods_fit_pod_security_restricted() -> None:
    world = running(spark={"executors": {"instances": 2}})
    [settings_map] = [tree for key, tree in world.objects.items() if key[1].startswith("flights.collector-")]
    template = json.loads(settings_map["data"]["executor.yaml"])

    for spec in (driver(world)["spec"], template["spec"]):
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for one in spec["containers"]:
            assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert one["securityContext"]["allowPrivilegeEscalation"] is False
            assert one["securityContext"]["readOnlyRootFilesystem"] is True
        kinds = {next(kind for kind in volume if kind != "name") for volume in spec["volumes"]}
        assert kinds <= {"configMap", "emptyDir", "persistentVolumeClaim", "secret"}


def test_a_driver_that_was_killed_is_followed_by_another_once_its_executors_are_gone() -> None:
    world = running(spark={"executors": {"instances": 2}})
    world.add_executor()
    world.end_driver(137)
    world.reconcile()
    assert attempts(world) == [(1, "Killed")]
    for _ in range(3):
        world.clock.advance(10)
        world.reconcile()  # no kubelet: the executor is told to go, and does not
    assert attempts(world) == [(1, "Killed")]

    followed(world)
    assert attempts(world) == [(1, "Killed"), (2, "")]
    assert world.driver() == "flights.by-a.2"


def test_failures_in_a_row_are_followed_after_pauses_that_grow() -> None:
    record, pauses = Record(), []
    for _ in range(10):
        record = record.begun("d", 1, 1000.0).closed("Failed", "", 1010.0, failed=True)
        pauses.append(record.not_before - 1010.0)

    assert pauses == [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0, 300.0]


def test_the_next_attempt_is_not_begun_before_its_pause_is_over() -> None:
    world = running()
    for code in (1, 1):
        world.end_driver(code)
        followed(world)
    world.end_driver(1)
    world.reconcile()  # 8 s, from now
    world.kubelet()
    for _ in range(6):
        world.clock.advance(1.0)
        world.reconcile()
    assert attempts(world)[-1] == (3, "Failed")
    assert collector(world) == ("False", "Failed")

    world.clock.advance(2.0)
    world.reconcile()
    assert attempts(world)[-1] == (4, "")


def test_an_attempt_that_ran_for_long_fails_for_the_first_time() -> None:
    world = running()
    for _ in range(3):
        world.end_driver(1)
        followed(world)
    world.clock.advance(400)
    world.end_driver(1)
    world.reconcile()

    assert world.pipeline is not None
    assert world.pipeline["status"]["collector"]["failures"] == 1


@pytest.mark.parametrize(
    ("code", "reason"),
    [(3, "ManifestRefused"), (8, "StageFailed"), (18, "CheckpointRefused"), (19, "DataRefused")],
)
def test_what_would_end_the_same_way_is_not_tried_again_until_the_spec_changes(
    code: int, reason: str
) -> None:
    world = running()
    world.end_driver(code, message="error: a secret row\n  where: spec.stages[1].collect\n")
    world.settle()
    world.clock.advance(4000)
    world.settle()

    assert attempts(world) == [(1, reason)]
    assert collector(world) == ("False", reason)
    assert world.condition("Stalled") == ("True", reason)
    told = json.dumps(world.pipeline)
    assert ("a secret row" in told) == (code in (3, 18))

    world.change(stages=stages(aggregate={"n": "count(a)"}))
    world.settle()
    assert attempts(world)[-1] == (2, "")
    assert collector(world) == ("True", "Running")


@pytest.mark.parametrize(
    ("code", "reason"), [(5, "BrokerUnreachable"), (13, "StorageFailed"), (17, "OutOfMemory")]
)
def test_what_others_may_mend_is_tried_for_ever(code: int, reason: str) -> None:
    world = running()
    for _ in range(8):
        world.end_driver(code)
        followed(world)

    assert attempts(world)[-1] == (9, "")
    assert attempts(world)[-2] == (8, reason)


def test_a_pod_that_was_evicted_is_told_by_its_pod_and_not_by_a_code() -> None:
    world = running()
    world.spark[world.driver()]["status"] = {"phase": "Failed", "reason": "Evicted", "message": "low on disk"}
    world.reconcile()

    assert attempts(world) == [(1, "Evicted")]


def test_a_driver_that_somebody_deleted_is_followed_by_another() -> None:
    world = running()
    world.spark.clear()
    followed(world)

    assert attempts(world) == [(1, "Lost"), (2, "")]


def test_a_changed_query_replaces_the_driver_gracefully() -> None:
    world = running()
    world.change(stages=stages(aggregate={"n": "count(a)"}))
    world.reconcile()
    world.reconcile()
    assert "deletionTimestamp" in world.spark["flights.by-a.1"]["metadata"]
    assert world.alive() == ["flights.by-a.1"]
    world.settle()

    assert attempts(world) == [(1, "Replaced"), (2, "")]


@pytest.mark.parametrize("change", [{"replicas": 3}, {"nodeLost": {"after": "1h"}}])
def test_what_does_not_concern_it_leaves_the_driver_alone(change: dict[str, Any]) -> None:
    world = running()
    world.change(**change)
    world.settle()

    assert attempts(world) == [(1, "")]


def test_what_concerns_only_the_collector_rolls_no_worker() -> None:
    world = running()
    before = world.objects["StatefulSet", "flights"]
    world.change(stages=stages(spark={"driver": {"memory": "3Gi"}}, trigger={"interval": "1s"}))
    world.settle()

    assert world.objects["StatefulSet", "flights"] == before
    assert attempts(world)[0] == (1, "Replaced")


def test_suspension_stops_it_and_resuming_begins_another() -> None:
    world = running()
    world.change(suspend=True)
    world.settle()
    assert attempts(world) == [(1, "Stopped")]
    assert collector(world) == ("True", "Suspended")
    assert world.alive() == []

    world.change(suspend=False)
    world.settle()
    assert attempts(world)[-1] == (2, "")


def test_a_job_on_lag_runs_when_enough_waits_and_ends() -> None:
    world = running(trigger={"onLag": {"messages": 100}})
    assert attempts(world) == []
    assert collector(world) == ("True", "Waiting")
    world.waiting = 99
    world.settle()
    assert attempts(world) == []

    world.waiting = 100
    world.settle()
    assert attempts(world) == [(1, "")]
    assert "--pending" in container(world)["args"]
    world.waiting = 0
    world.end_driver(0)
    world.settle()
    assert attempts(world) == [(1, "Succeeded")]
    assert collector(world) == ("True", "Waiting")


def test_a_job_on_lag_that_died_is_started_again_whatever_waits() -> None:
    world = running(trigger={"onLag": {"messages": 100}})
    world.waiting = 100
    world.settle()
    world.waiting = 0
    world.end_driver(137)
    followed(world)

    assert attempts(world) == [(1, "Killed"), (2, "")]


@pytest.mark.parametrize(
    ("lacking", "reason"),
    [("storage", "StorageMissing"), ("claim", "StorageMissing"), ("image", "ImageMissing")],
)
def test_no_worker_starts_where_no_collector_can(lacking: str, reason: str) -> None:
    world = new()
    if lacking == "storage":
        world.change(storage=None)
    elif lacking == "claim":
        world.claim = None
    else:
        world.settings = Settings()
    world.settle()

    assert collector(world) == ("False", reason)
    assert world.condition("Stalled") == ("True", reason)
    assert ("StatefulSet", "flights") not in world.objects
    assert ("ConfigMap", "flights-epoch") not in world.objects

    world.change(storage=STORAGE)
    world.claim, world.settings = Claim("flights", shared=True), Settings(spark_image="spark:1")
    world.settle()
    assert world.condition("Ready") == ("True", "Running")


def test_a_claim_that_is_gone_stops_nothing_that_runs() -> None:
    world = running()
    world.claim = None
    world.settle()

    assert attempts(world) == [(1, "")]
    assert len(world.pods) == 2


def test_a_broker_that_is_away_stops_nothing_and_starts_nothing() -> None:
    world = running()
    world.broker_away = True
    world.settle()
    assert world.driver() == "flights.by-a.1"
    world.end_driver(5)
    world.settle()
    assert attempts(world) == [(1, "BrokerUnreachable")]

    world.broker_away = False
    followed(world)
    assert attempts(world)[-1] == (2, "")


def test_a_stage_that_is_taken_out_takes_its_driver_and_all_that_was_made_for_it_along() -> None:
    world = running(spark={"executors": {"instances": 1}})
    world.change(stages=[SCORED])
    world.settle()
    world.kubelet()

    assert world.spark == {}
    assert not [key for key in world.objects if "driver" in key[1] or "collector" in key[1]]
    assert collector(world) == ("True", "NoCollector")
    assert world.pipeline is not None
    assert "collector" not in world.pipeline["status"]


def test_deletion_waits_until_the_driver_has_ended() -> None:
    world = running()
    world.delete()
    for _ in range(5):
        world.reconcile()
    assert world.pipeline is not None
    assert "deletionTimestamp" in world.spark["flights.by-a.1"]["metadata"]
    for _ in range(20):
        world.kubelet()
        world.reconcile()

    assert world.pipeline is None


def test_a_driver_that_does_not_go_holds_no_deletion_up_for_ever() -> None:
    world = running()
    world.kubelet_of_spark = lambda: None  # type: ignore[method-assign]  # its node is lost
    world.delete()
    for _ in range(250):
        world.reconcile()
        world.kubelet()
        world.clock.advance(1.0)

    assert world.pipeline is None


def test_drivers_that_are_over_go_with_the_pipeline() -> None:
    world = running()
    world.end_driver(19)
    world.settle()
    world.delete()
    for _ in range(20):
        world.reconcile()
        world.kubelet()

    assert world.pipeline is None
    assert world.spark == {}


def test_drivers_that_are_over_are_kept_for_a_while() -> None:
    world = running()
    for _ in range(5):
        world.end_driver(1)
        followed(world)
    over = sorted(set(world.spark) - {world.driver()})
    assert over == ["flights.by-a.3", "flights.by-a.4", "flights.by-a.5"]

    world.clock.advance(3700)
    world.settle()
    assert list(world.spark) == [world.driver()]


def test_a_status_that_was_taken_away_is_found_again_by_the_pods() -> None:
    world = running()
    assert world.pipeline is not None
    world.pipeline["status"] = {}
    world.settle()

    assert attempts(world) == [(1, "")]
    assert world.driver() == "flights.by-a.1"


def test_the_driver_of_a_pipeline_of_the_same_name_that_was_deleted_is_waited_for() -> None:
    world = running()
    former = driver(world)
    former["metadata"]["ownerReferences"][0]["uid"] = "u-0"
    world.reconcile()
    world.clock.advance(60)
    world.reconcile()
    assert world.alive() == ["flights.by-a.1"]
    followed(world)

    assert attempts(world)[-1] == (2, "")


MOVES = st.one_of(
    st.tuples(st.just("crash"), st.integers(0, 12)),
    st.tuples(st.just("stale"), st.integers(0, 12)),
    st.tuples(st.just("code"), st.sampled_from([0, 1, 5, 137])),
    st.tuples(st.just("query"), st.integers(0, 2)),
    st.tuples(st.just("suspend"), st.integers(0, 1)),
    st.tuples(st.just("gone"), st.just(0)),
    st.tuples(st.just("executor"), st.just(0)),
    st.tuples(st.just("status"), st.just(0)),
    st.tuples(st.just("round"), st.integers(1, 3)),
    st.tuples(st.just("time"), st.integers(1, 400)),
    st.tuples(st.just("kubelet"), st.just(0)),
)


@settings(max_examples=8, deadline=None)
@given(st.lists(MOVES, max_size=16))
def test_whatever_happens_there_is_one_attempt_at_a_time_and_one_in_the_end(
    moves: list[tuple[str, int]],
) -> None:
    """That no driver is made beside another one, or without having been written down, the world itself checks."""
    world = new(spark={"executors": {"instances": 2}})
    for what, value in moves:
        _move(world, what, value)
    world.change(suspend=False)
    for _ in range(10):  # whatever pause there is
        for _ in range(5):
            world.reconcile()
            world.kubelet()
        world.clock.advance(100)
    world.settle(rounds=80)

    assert len([name for name in world.alive() if not name.startswith("exec")]) == 1
    assert attempts(world)[-1][1] == ""
    assert collector(world) == ("True", "Running")


def _move(world: World, what: str, value: int) -> None:
    drivers = [name for name in world.alive() if not name.startswith("exec")]
    if what == "crash":
        world.reconcile(parts=value)
        world.restart_operator()
    elif what == "stale":
        world.stale = True
        world.reconcile(parts=value)
        world.stale = False
    elif what == "code" and drivers:
        world.end_driver(value)
    elif what == "query":
        world.change(stages=stages(aggregate={"n": f"count({value})"}))
    elif what == "suspend":
        world.change(suspend=bool(value))
    elif what == "gone" and drivers:
        del world.spark[drivers[0]]
    elif what == "executor" and drivers:
        world.add_executor()
    elif what == "status" and world.pipeline is not None:
        world.pipeline["status"].pop("collector", None)
    elif what == "round":
        for _ in range(value):
            world.reconcile()
            world.kubelet()
            world.clock.advance(1.0)
    elif what == "time":
        world.clock.advance(value)
    elif what == "kubelet":
        world.kubelet()
