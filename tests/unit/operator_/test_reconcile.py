"""The operator's pure core in a cluster in memory: what it does, in which order, and that it comes to rest."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.connectivity.ports import OffsetAndMetadata
from millrace.ownership.claim import OP, Claim
from millrace_operator.reconcile import reconcile
from millrace_operator.times import written
from operator_world import PARTITIONS, World

pytestmark = pytest.mark.unit


def running(**spec: object) -> World:
    world = World(**spec)
    world.settle()
    world.writes.clear()
    return world


def test_a_new_pipeline_comes_to_run() -> None:
    world = World()
    world.settle()

    assert world.condition("Ready") == ("True", "Running")
    assert world.condition("Reconciling") == ("", "")
    assert sorted(world.claims().values()) == [0, 0, 0, 1, 1, 1]
    assert world.published().replicas == 2


def test_as_few_writes_as_can_be_lead_there() -> None:
    world = World()
    world.settle()

    objects = [write for write in world.writes if write.startswith("apply")]
    told = [write for write in world.writes if write.startswith(("status", "finalizers"))]
    epochs = [write for write in world.writes if write.startswith("epoch")]
    assert len(objects) == len(set(objects)) == 7  # + the epoch's ConfigMap, made as epoch 0
    assert len(told) <= 4, told
    assert epochs == ["epoch 0", "epoch 1"]
    assert len([write for write in world.writes if write.startswith("annotate")]) == 2


def test_what_is_observed_stays_as_it_is() -> None:
    """Here and in the operator it is what the cache has, not a copy."""
    world = World()
    for _ in range(8):
        seen = world.observed()
        before = copy.deepcopy(seen)
        reconcile(seen, world.clock.time())
        assert seen == before
        world.reconcile()
        world.kubelet()


def test_epoch_0_is_there_before_any_pod_may_start() -> None:
    world = World()
    world.settle()

    assert world.writes.index("epoch 0") < world.writes.index("apply ('StatefulSet', 'flights')")


def test_growing_starts_workers_before_it_publishes() -> None:
    world = running()
    world.change(replicas=4)
    world.settle()

    order = [write for write in world.writes if write.startswith(("apply", "epoch"))]
    assert order == ["apply ('StatefulSet', 'flights')", "epoch 2"]
    assert world.scale == 4
    assert set(world.claims().values()) == {0, 1, 2, 3}


def test_shrinking_publishes_before_it_stops_workers() -> None:
    world = running(replicas=4)
    world.change(replicas=1)
    world.settle()

    order = [write for write in world.writes if write.startswith(("apply", "epoch"))]
    assert order == ["epoch 2", "apply ('StatefulSet', 'flights')"]
    assert set(world.claims().values()) == {0}
    assert set(world.pods) == {0}


def test_no_worker_is_stopped_while_a_claim_names_it() -> None:
    world = running(replicas=3)
    world.change(replicas=1)
    for _ in range(5):
        world.reconcile()  # the workers don't move

    assert world.scale == 3
    assert world.condition("Ready") == ("False", "Reconciling")


def test_suspension_parks_all_claims_and_resuming_goes_on_from_there() -> None:
    world = running()
    world.kubelet(processed=7)
    world.change(suspend=True)
    world.settle()

    assert set(world.claims().values()) == {OP}
    assert (world.scale, world.pods) == (0, {})
    assert world.condition("Ready") == ("True", "Suspended")

    world.change(suspend=False)
    world.settle()
    admin = world.broker.cluster(client_id="t").admin()
    records = admin.group_offsets("air.flights.claims", "flights", range(PARTITIONS), 1, stable=False)
    assert {record.offset for record in records.values()} == {7}
    assert world.condition("Ready") == ("True", "Running")


def test_a_pipeline_that_starts_suspended_has_no_worker() -> None:
    world = running(suspend=True)

    assert (world.scale, world.pods) == (0, {})
    assert world.condition("Ready") == ("True", "Suspended")


@pytest.mark.parametrize("replicas", [0, 5])
def test_whoever_scales_the_stateful_set_is_corrected(replicas: int) -> None:
    world = running(replicas=2)
    world.objects["StatefulSet", "flights"]["spec"]["replicas"] = replicas
    world.settle()

    assert world.scale == 2
    assert sorted(world.claims().values()) == [0, 0, 0, 1, 1, 1]


def test_a_child_that_was_changed_or_deleted_is_mended() -> None:
    world = running()
    kinds = sorted(key for key in world.objects if key[1] != "flights-epoch")
    for key in kinds:
        was = world.objects[key]
        if "spec" in was:
            was["spec"] = {**was["spec"]}
            was["spec"].pop(next(iter(was["spec"])))
        elif "data" in was:
            was["data"] = {}
        else:
            del world.objects[key]
        world.writes.clear()
        world.settle()
        assert world.writes[0] == f"apply {key}"


def test_an_epoch_that_was_deleted_is_published_anew_with_a_higher_number() -> None:
    world = running()
    del world.objects["ConfigMap", "flights-epoch"]
    world.settle()

    assert world.published().number == 2
    del world.objects["ConfigMap", "flights-epoch"]  # before any claim has got that number
    world.settle()

    assert world.published().number == 3
    assert sorted(world.claims().values()) == [0, 0, 0, 1, 1, 1]


def test_a_worker_that_crashes_for_long_is_acted_for_when_the_group_shrinks() -> None:
    world = running(replicas=3)
    world.broken = {2: {"containerStatuses": [_crashed(world)]}}
    world.change(replicas=2)
    for _ in range(200):
        world.reconcile()
        world.kubelet()
        world.clock.advance(2.0)
    world.settle()

    assert set(world.claims().values()) == {0, 1}
    assert world.scale == 2


def _crashed(world: World) -> dict[str, object]:
    ended = {
        "exitCode": 4,
        "startedAt": written(world.clock.time()),
        "message": '{"event": "failed", "what": "no f"}',
    }
    return {
        "name": "worker",
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ended},
        "restartCount": 3,
    }


def test_a_crash_names_its_reason_and_degrades_only_its_share() -> None:
    world = running()
    world.broken = {1: {"containerStatuses": [_crashed(world)]}}
    world.kubelet()
    world.settle()

    assert world.condition("WorkersReady") == ("False", "FunctionFailed")
    assert world.condition("Degraded") == ("True", "FunctionFailed")
    assert world.condition("Ready") == ("False", "FunctionFailed")


def test_a_pod_on_a_lost_node_is_deleted_at_once_after_node_lost() -> None:
    world = running(nodeLost={"after": "60s"})
    world.nodes["n2"] = {"metadata": {"name": "n2"}, "status": {}}
    world.pods[1]["spec"]["nodeName"] = "n2"
    since = written(world.clock.time())
    world.nodes["n2"]["status"] = {
        "conditions": [{"type": "Ready", "status": "Unknown", "lastTransitionTime": since}]
    }
    uid = world.pods[1]["metadata"]["uid"]
    world.reconcile()
    assert world.pods[1]["metadata"]["uid"] == uid

    world.clock.advance(61)
    world.reconcile()
    world.kubelet()
    assert world.pods[1]["metadata"]["uid"] != uid


def test_a_pipeline_is_drained_before_it_goes() -> None:
    world = running()
    world.delete()
    while world.pipeline is not None:
        world.reconcile()
        world.kubelet()
        world.clock.advance(1.0)
        assert world.clock.time() < 1_700_000_300

    order = [write.split(" ")[0] for write in world.writes if not write.startswith("annotate")]
    assert order[0] == "epoch"  # N = 0
    assert order[-1] == "finalizers"
    assert set(world.claims().values()) == {OP}


def test_a_pipeline_that_goes_says_so_and_what_it_waits_for() -> None:
    world = running()
    world.delete()
    told = []
    while world.pipeline is not None:
        ready = next(c for c in world.pipeline["status"]["conditions"] if c["type"] == "Ready")
        if (ready["reason"], ready["message"]) not in told:
            told.append((ready["reason"], ready["message"]))
        world.reconcile()
        world.kubelet()
        world.clock.advance(1.0)

    assert [reason for reason, _ in told] == ["Running", "Deleting", "Deleting"]
    assert [message for _, message in told[1:]] == [
        "workers commit, pass on what they have and end",
        "what belongs to it is removed",
    ]


def test_a_broker_that_is_gone_does_not_hold_a_deletion_up_for_ever() -> None:
    world = running()
    world.broker_away = True
    world.restart_operator()
    world.delete()
    for _ in range(400):
        world.reconcile()
        world.kubelet()
        world.clock.advance(1.0)

    assert world.pipeline is None
    assert ("Warning", "DrainAbandoned") in world.events


def test_a_broker_that_is_away_changes_nothing_but_what_is_said() -> None:
    world = running()
    world.broker_away = True
    world.settle()

    assert world.writes == ["status False BrokerUnreachable"]
    world.broker_away = False
    world.settle()
    assert world.condition("Ready") == ("True", "Running")


def test_lost_claims_stall_the_pipeline_and_nothing_is_repaired() -> None:
    world = running()
    world.broker.groups.delete("air.flights.claims")
    world.settle()

    assert world.condition("Stalled") == ("True", "ClaimLost")
    assert world.claims() == {}


def test_workers_of_a_pipeline_with_lost_claims_end_when_it_is_suspended() -> None:
    world = running()
    world.broker.groups.delete("air.flights.claims")
    world.settle()
    assert world.scale == 2

    world.change(suspend=True)
    world.settle()
    assert (world.scale, world.pods) == (0, {})
    assert world.condition("Stalled") == ("True", "ClaimLost")
    assert world.claims() == {}


def test_where_another_holds_the_claims_there_is_a_stateful_set_and_no_worker() -> None:
    """It says all that a repair by hand needs to know: image, Secret, manifest."""
    world = World()
    admin = world.broker.cluster(client_id="t").admin()
    described = admin.describe_topic("flights", 1)
    assert described is not None
    theirs = Claim("u-0", described.id, 3, 1)
    admin.commit_offsets("air.flights.claims", "flights", {0: OffsetAndMetadata(5, theirs.encode())}, 1)
    world.settle()

    assert world.condition("Stalled") == ("True", "ForeignClaim")
    assert (world.scale, world.pods) == (0, {})


def test_a_spec_that_cannot_be_used_leaves_what_runs() -> None:
    world = running()
    world.change(stages=[])
    world.settle()

    assert world.writes == ["status False InvalidSpec"]
    assert len(world.pods) == 2


def test_code_that_is_not_there_is_named_and_is_used_when_it_comes() -> None:
    world = World()
    code, world.code = world.code, None
    world.settle()
    assert world.condition("WorkersReady") == ("False", "CodeMissing")
    assert ("StatefulSet", "flights") not in world.objects

    world.code = code
    world.settle()
    assert world.condition("Ready") == ("True", "Running")


def test_other_code_is_another_template_and_the_former_copy_goes_when_nobody_mounts_it() -> None:
    world = running()
    former = {key for key in world.objects if "-code-" in key[1]}
    world.code = {"flights.py": "def score(v): return 2"}
    world.settle()
    assert former <= set(world.objects)  # its pods mount it

    for index in list(world.pods):
        world.end_pod(index)
    world.settle()
    assert len({key for key in world.objects if "-code-" in key[1]}) == 1
    assert not former & set(world.objects)


def test_workers_go_on_when_their_code_is_deleted() -> None:
    world = running()
    world.code = None
    world.settle()

    assert world.condition("WorkersReady") == ("False", "CodeMissing")
    assert not [write for write in world.writes if write.startswith("apply")]


MOVES = st.one_of(
    st.tuples(st.just("replicas"), st.integers(0, 4)),
    st.tuples(st.just("suspend"), st.booleans()),
    st.tuples(st.just("crash"), st.integers(0, 12)),
    st.tuples(st.just("drift"), st.integers(0, 9)),
    st.tuples(st.just("pod"), st.integers(0, 3)),
    st.tuples(st.just("round"), st.integers(1, 3)),
    st.tuples(st.just("image"), st.integers(1, 3)),
)


@settings(max_examples=60)
@given(st.lists(MOVES, max_size=12), st.booleans())
def test_whatever_happens_it_comes_to_rest_where_it_should(
    moves: list[tuple[str, int]], deleted: bool
) -> None:
    world = World()
    for what, value in moves:
        _move(world, what, value)
    if deleted:
        world.delete()
        for _ in range(60):
            world.reconcile()
            world.kubelet()
            world.clock.advance(1.0)
        world.kubelet()
        assert world.pipeline is None
        assert not world.pods
        assert set(world.claims().values()) <= {OP}
        return
    world.settle(rounds=80)

    assert world.pipeline is not None
    wanted = 0 if world.pipeline["spec"].get("suspend") else world.pipeline["spec"]["replicas"]
    assert world.condition("Ready")[0] == "True"
    assert len(world.pods) == wanted
    epoch = world.published()
    assert world.claims() == {p: epoch.owner(p) for p in range(PARTITIONS)}
    assert epoch.replicas == wanted


def _move(world: World, what: str, value: int) -> None:
    if what in ("replicas", "suspend"):
        world.change(**{what: value})
    elif what == "image":
        world.change(worker={"image": f"flights:{value}", "code": {"configMapRef": {"name": "flights-code"}}})
    elif what == "crash":
        world.reconcile(parts=value)
        world.restart_operator()
    elif what == "drift" and len(world.objects) > value:
        key = sorted(world.objects)[value]
        if key == ("ConfigMap", "flights-epoch"):
            world.settle(rounds=80)  # its number is known elsewhere, too, once the operator has come to rest
        world.objects.pop(key, None)
    elif what == "pod":
        world.end_pod(value)
    elif what == "round":
        for _ in range(value):
            world.reconcile()
            world.kubelet()
            world.clock.advance(1.0)


def test_a_restart_is_an_annotation_that_rolls_the_workers_and_nothing_else() -> None:
    world = running()
    assert world.pipeline is not None
    world.pipeline["metadata"]["annotations"] = {"millrace.dev/restarted-at": "2026-01-31T00:00:00+00:00"}
    world.settle()

    assert [write for write in world.writes if write.startswith(("apply", "epoch"))] == [
        "apply ('StatefulSet', 'flights')"
    ]
    template = world.objects["StatefulSet", "flights"]["spec"]["template"]["metadata"]
    assert template["annotations"] == {"millrace.dev/restarted-at": "2026-01-31T00:00:00+00:00"}
    world.writes.clear()
    world.settle()
    assert not [write for write in world.writes if write.startswith("apply")]


def test_the_lag_of_each_worker_is_told_and_renewed_with_the_whole() -> None:
    world = running()
    assert world.pipeline is not None
    assert {w["index"]: w["lag"] for w in world.pipeline["status"]["workers"]} == {0: 300, 1: 300}

    world.ends[0] = 140  # of 600: not worth a write
    world.writes.clear()
    world.settle()
    assert not [write for write in world.writes if write.startswith("status")]
    world.ends[0] = 740
    world.settle()
    assert world.pipeline["status"]["lag"] == 1200
    assert sorted(w["lag"] for w in world.pipeline["status"]["workers"]) == [300, 940]
