"""The pod that does what `kubectl millrace` needs Kafka for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millrace.cli.dlq.in_pod import Show
from millrace.cli.kubectl.errand.pod import SECRETS, TOKEN, Errand, name_of, pod_of
from millrace.cli.kubectl.view import pipeline_of
from millrace.cli.offsets.in_pod import Change, Look
from millrace.cli.offsets.requests import Request
from millrace.errors import MillraceError
from millrace_operator import names
from operator_world import World

pytestmark = pytest.mark.unit

PIPELINE = pipeline_of({"metadata": {"name": "flights", "namespace": "air", "uid": "u-1"}})
SECRET = {"bootstrapServers": "kafka:9092", "credentials": {"secretRef": {"name": "kafka-user"}}}
WORKER = {
    "image": "flights:1",
    "code": {"configMapRef": {"name": "flights-code"}},
    "env": [{"name": "SEASON", "value": "winter"}],
    "imagePullSecrets": [{"name": "registry"}],
    "tolerations": [{"key": "spot", "operator": "Exists"}],
    "resources": {"limits": {"memory": "1Gi"}},
}


def stateful(**spec: object) -> dict[str, Any]:
    """As the operator makes it."""
    from millrace_operator.observed import Secret

    world = World(worker=WORKER, **spec)
    world.secret = Secret("kafka-user", "mark")
    world.settle()
    return dict(world.objects["StatefulSet", "flights"])


def offsets(request: Look | Change) -> Errand:
    return Errand.of("offsets", request, ("--manifest=", "--epoch-file=", SECRETS), alone=True, patience=180)


def dlq(*, alone: bool) -> Errand:
    return Errand.of("dlq", Show(0, 17), ("--manifest=", SECRETS), alone=alone, patience=3600)


def test_it_is_a_workers_pod_without_code_probes_and_ports_that_nobody_takes_for_a_worker() -> None:
    pod: dict[str, Any] = pod_of(stateful(kafka=SECRET), PIPELINE, offsets(Look(stopped=False)))
    spec, [container] = pod["spec"], pod["spec"]["containers"]
    assert (container["image"], container["resources"]) == ("flights:1", {"limits": {"memory": "1Gi"}})
    assert {"ports", "livenessProbe", "readinessProbe", "startupProbe"}.isdisjoint(container)
    assert [variable["name"] for variable in container["env"]] == ["SEASON"]
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in spec["volumes"]} == {"manifest", "epoch", "secrets", "tmp"}
    assert spec["activeDeadlineSeconds"] > 180
    assert (spec["restartPolicy"], spec["automountServiceAccountToken"]) == ("Never", False)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert (spec["imagePullSecrets"], spec["tolerations"][0]["key"]) == ([{"name": "registry"}], "spot")
    labels = pod["metadata"]["labels"]
    assert not names.selector("flights").items() <= labels.items()  # no Service, budget or policy of workers
    assert names.MANAGED_BY not in labels
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "u-1"


def test_its_arguments_are_those_of_the_command_line_and_no_text_of_a_user_is_expanded() -> None:
    request = Request("$(SECRET)", False, None, dry_run=False, again=False)
    pod: dict[str, Any] = pod_of(stateful(), PIPELINE, offsets(Change("reset", True, request)))
    args = pod["spec"]["containers"][0]["args"]
    assert args[:2] == ["offsets", "in-pod"]
    assert args[3:] == [
        "--manifest=/millrace/manifest/pipeline.yaml",
        "--epoch-file=/millrace/epoch/epoch.json",
    ]
    assert "$$(SECRET)" in args[2]
    told = json.loads(args[2].removeprefix("--errand=").replace("$$(", "$("))
    assert (told["action"], told["stopped"], told["request"]["to"]) == ("reset", True, "$(SECRET)")


def test_another_stateful_set_is_not_taken_for_one_of_millrace() -> None:
    with pytest.raises(MillraceError, match="no worker as Millrace's operator makes it"):
        pod_of({"spec": {"template": {"spec": {}}}}, PIPELINE, offsets(Look(stopped=False)))


def test_a_command_gets_of_a_workers_options_and_mounts_what_it_asks_for() -> None:
    pod: dict[str, Any] = pod_of(stateful(kafka=SECRET), PIPELINE, dlq(alone=False))
    [container] = pod["spec"]["containers"]
    assert container["args"] == [
        "dlq",
        "in-pod",
        '--errand={"type":"show","partition":0,"offset":17}',
        "--manifest=/millrace/manifest/pipeline.yaml",
        "--secrets=/millrace/secrets",
    ]
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["spec"]["volumes"]} == {"manifest", "secrets", "tmp"}


def test_workers_that_ask_for_nothing_have_a_pod_that_asks_for_a_little() -> None:
    world = World(worker={"image": "flights:1"})
    world.settle()
    pod: dict[str, Any] = pod_of(dict(world.objects["StatefulSet", "flights"]), PIPELINE, dlq(alone=True))
    assert pod["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "100m", "memory": "128Mi"}}


def test_those_that_exclude_one_another_have_one_name_and_others_one_each() -> None:
    alone, beside, another = dlq(alone=True), dlq(alone=False), dlq(alone=False)
    assert name_of(PIPELINE, alone) == name_of(PIPELINE, dlq(alone=True)) == "flights.dlq"
    assert name_of(PIPELINE, offsets(Look(stopped=True))) == "flights.offsets"
    names_of_others = {name_of(PIPELINE, beside), name_of(PIPELINE, another)}
    assert len(names_of_others) == 2
    assert all(name.startswith("flights.dlq-") for name in names_of_others)
    made: list[dict[str, Any]] = [pod_of(stateful(), PIPELINE, one) for one in (alone, dlq(alone=True))]
    assert made[0]["metadata"]["labels"][TOKEN] != made[1]["metadata"]["labels"][TOKEN]
