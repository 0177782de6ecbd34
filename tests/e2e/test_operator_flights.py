"""The operator, installed by Helm, runs the flights on a real cluster: whatever is killed, changed or scaled meanwhile,
what comes out is what pandas computes, each flight once.

The tests share one pipeline, and each goes on from where the one before has left it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from cluster import kafka
from cluster.kind import Cluster
from flights_on_kind import Flights, worker_image
from installed_operator import NAMESPACE, Installed, eventually, installed, kill_program
from millrace.ownership.claim import OP

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def operator(kube: Cluster) -> Iterator[Installed]:
    with installed(kube, replicas=2) as found:
        yield found


@pytest.fixture(scope="module")
def flights(kube: Cluster, pods: str, operator: Installed) -> Iterator[Flights]:
    """Three workers, exactly once, in a namespace that admits what is restricted and nothing else."""
    kube.kubectl("label", "namespace", pods, "pod-security.kubernetes.io/enforce=restricted", check=True)
    found = Flights(kube, pods, worker_image(kube))
    found.apply()
    yield found
    found.close()


def test_the_manifest_of_the_laptop_does_the_same_on_a_cluster(flights: Flights) -> None:
    flights.await_running(3)
    flights.feed(60_000)

    flights.exact()
    assert set(flights.holders().values()) == {0, 1, 2}


def kill_a_worker(flights: Flights, operator: Installed) -> None:
    kill_program(flights.cluster, flights.namespace, f"{flights.name}-1", "millrace worker")
    pod = f"pod/{flights.name}-1"
    ended = "jsonpath={.status.containerStatuses[0].restartCount}"
    eventually(lambda: int(flights.kubectl("get", pod, "-o", ended)) > 0, "the worker is started again")


def delete_a_pod(flights: Flights, operator: Installed) -> None:
    flights.kubectl("delete", "pod", f"{flights.name}-2", "--grace-period=0", "--force")


def kill_the_operator(flights: Flights, operator: Installed) -> None:
    led = operator.leader()
    flights.cluster.kubectl("delete", "pod", "-n", NAMESPACE, led, "--grace-period=0", "--force", check=True)
    eventually(lambda: operator.leader() not in ("", led), "the other operator leads", operator.logs)


def kill_the_broker(flights: Flights, operator: Installed) -> None:
    where = ("-n", kafka.NAMESPACE)
    flights.cluster.kubectl("delete", "pod", *where, "kafka-0", "--grace-period=0", "--force", check=True)
    flights.cluster.kubectl("rollout", "status", *where, "sts/kafka", "--timeout=240s", check=True)


@pytest.mark.parametrize("blow", [kill_a_worker, delete_a_pod, kill_the_operator, kill_the_broker])
def test_nothing_is_lost_or_doubled_by(
    flights: Flights, operator: Installed, blow: Callable[[Flights, Installed], None]
) -> None:
    with flights.flowing():
        blow(flights, operator)

    flights.exact()
    flights.await_running(3)


def test_workers_come_and_go_while_flights_flow(flights: Flights) -> None:
    with flights.flowing():
        flights.scale(5)
        flights.await_running(5)
        flights.scale(2)
        flights.await_running(2)
        eventually(lambda: len(flights.pods()) == 2, "the others are gone", flights.told)

    flights.exact()
    flights.scale(3)
    flights.await_running(3)


def test_a_change_rolls_the_workers_one_by_one_while_flights_flow(flights: Flights) -> None:
    before = {pod["metadata"]["uid"] for pod in flights.pods()}
    worker = flights.manifest["spec"]["worker"]
    with flights.flowing():
        flights.apply(worker={**worker, "env": [{"name": "SEASON", "value": "winter"}]})
        eventually(
            lambda: flights.runs(3) and not before & {pod["metadata"]["uid"] for pod in flights.pods()},
            "all workers are new",
            flights.told,
        )

    flights.exact()
    first, second, third = flights.pods()
    assert _running_since(third) <= _made(second)
    assert _running_since(second) <= _made(first)


def test_other_code_in_the_users_config_map_rolls_the_workers(flights: Flights) -> None:
    before = {pod["metadata"]["uid"] for pod in flights.pods()}
    changed = {"data": {"more.py": "# nothing in it\n"}}
    flights.kubectl("patch", "configmap", f"{flights.name}-code", "-p", json.dumps(changed))

    eventually(
        lambda: flights.runs(3) and not before & {pod["metadata"]["uid"] for pod in flights.pods()},
        "all workers are new",
        flights.told,
    )
    flights.feed(1_000)
    flights.exact()


def test_to_apply_the_same_again_restarts_nobody_and_writes_nothing(
    flights: Flights, operator: Installed
) -> None:
    flights.await_running(3)
    eventually(lambda: flights.status().get("lag") == 0, "the status says that nothing waits", flights.told)
    before, writes = _workers(flights), len(operator.writes())
    done = operator.reconciles()

    flights.apply()
    # which an operator that has nothing to do with it sees as well
    flights.kubectl("annotate", "cpl", flights.name, "--overwrite", "note=looked-at")
    eventually(lambda: operator.reconciles() > done, "the operator has looked again")

    assert _workers(flights) == before
    assert operator.writes()[writes:] == []
    assert flights.cluster.kubectl("diff", "-f", "-", stdin=json.dumps(flights.manifest)).returncode == 0


def test_a_suspended_pipeline_goes_on_where_it_was(flights: Flights) -> None:
    flights.apply(suspend=True)
    eventually(lambda: flights.condition("Ready") == ("True", "Suspended"), "suspended", flights.told)
    eventually(lambda: not flights.pods(), "no pod is left", flights.told)
    assert set(flights.holders().values()) == {OP}
    flights.feed(2_000)

    flights.apply(suspend=False)
    flights.await_running(3)
    flights.exact()


def test_dead_letters_and_offsets_are_looked_at_from_where_kubectl_is(flights: Flights) -> None:
    """By pods of their own, on a real kubelet: a long answer and one that is bytes come through its log as they are."""
    there = flights.letters()
    listed = flights.millrace("dlq", "list", flights.name, "--limit", str(len(there)))
    assert {(one["partition"], one["offset"]) for one in listed} == set(there)
    (partition, offset), value = max(there.items(), key=lambda letter: len(letter[1] or b""))
    shown = flights.millrace("dlq", "show", flights.name, f"{partition}:{offset}")
    whole = shown["value"].encode() if "value" in shown else base64.b64decode(shown["valueBase64"])
    assert whole == value
    planned = flights.millrace("dlq", "replay", flights.name, "--dry-run")
    assert (planned["dryRun"], planned["replayed"]) == (True, len(there))

    offsets = flights.millrace("offsets", "show", flights.name)
    assert {row["partition"]: row["holder"] for row in offsets["partitions"]} == flights.holders()
    left = [pod["metadata"]["name"] for pod in flights.pods()]
    eventually(lambda: len(flights.pods()) == 3, f"errands leave no pod behind: {left}")


def test_a_deleted_pipeline_is_drained_and_leaves_nothing(flights: Flights) -> None:
    flights.feed(3_000)
    flights.kubectl("delete", "cpl", flights.name, "--wait=false")
    eventually(lambda: not _exists(flights), "it is gone", _events(flights))
    kinds = "all,configmaps,serviceaccounts,poddisruptionbudgets,networkpolicies"
    label = f"millrace.dev/pipeline={flights.name}"
    eventually(lambda: not flights.kubectl("get", kinds, "-l", label, "-o", "name"), "no child is left")

    assert set(flights.holders().values()) == {OP}
    # the next of that name takes over where this one has stopped
    flights.apply()
    flights.await_running(3)
    flights.exact()
    flights.kubectl("delete", "cpl", flights.name, "--timeout=120s")


def _events(flights: Flights) -> Callable[[], str]:
    return lambda: flights.kubectl("get", "events", "--sort-by=.lastTimestamp")


def _exists(flights: Flights) -> bool:
    return bool(flights.kubectl("get", "cpl", flights.name, "--ignore-not-found", "-o", "name"))


def _workers(flights: Flights) -> list[tuple[str, int]]:
    return [
        (pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"])
        for pod in flights.pods()
    ]


def _made(pod: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(pod["metadata"]["creationTimestamp"])


def _running_since(pod: dict[str, Any]) -> datetime:
    """(Not since when it is ready: on a slow machine it may have been unready for a moment since then.)"""
    [worker] = [one for one in pod["status"]["containerStatuses"] if one["name"] == "worker"]
    return datetime.fromisoformat(worker["state"]["running"]["startedAt"])
