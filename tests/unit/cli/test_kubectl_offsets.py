"""The pod that does what `kubectl millrace offsets` needs Kafka for, and what becomes of its answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millrace.cli.kubectl.offsets.errand import _waits
from millrace.cli.kubectl.offsets.pod import pod_of
from millrace.cli.kubectl.view import pipeline_of
from millrace.cli.offsets.in_pod import MARK, Answer, Errand, Failed, read_answer
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


def test_it_is_a_workers_pod_without_code_probes_and_ports_that_nobody_takes_for_a_worker() -> None:
    pod: dict[str, Any] = pod_of(stateful(kafka=SECRET), PIPELINE, Errand("show", stopped=False))
    spec, [container] = pod["spec"], pod["spec"]["containers"]
    assert (container["image"], container["resources"]) == ("flights:1", {"limits": {"memory": "1Gi"}})
    assert {"ports", "livenessProbe", "readinessProbe", "startupProbe"}.isdisjoint(container)
    assert [variable["name"] for variable in container["env"]] == ["SEASON"]
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in spec["volumes"]} == {"manifest", "epoch", "secrets", "tmp"}
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
    pod: dict[str, Any] = pod_of(stateful(), PIPELINE, Errand("reset", True, request))
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
        pod_of({"spec": {"template": {"spec": {}}}}, PIPELINE, Errand("show", stopped=False))


def test_the_answer_is_found_among_other_lines() -> None:
    line = '{"failed":{"what":"w","where":"","remedy":"","code":10}}'
    log = f"%3|1|FAIL|rdkafka#1\n{MARK}{line}\n%3|2|FAIL|\n"
    assert read_answer(log) == Answer(failed=Failed("w", "", "", 10))
    assert read_answer("Traceback\n") is None
    assert read_answer(f"{MARK}cut of") is None


def test_what_a_pod_waits_for_is_named_by_its_reason_first() -> None:
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    assert _waits({"status": {"containerStatuses": [waiting]}}) == "ImagePullBackOff: no such image"
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    assert _waits({"status": {"conditions": [unscheduled]}}) == "Unschedulable: no room"
    assert _waits({}) == ""
