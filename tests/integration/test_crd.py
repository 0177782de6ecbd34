"""The CRD at a real API server: it is taken, and refuses and accepts what `millrace validate` does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from api_manifests import ABSENT, BAD, VALID, Bad, changed
from cluster.plane import ControlPlane, Reply
from millrace_api.cel import RULES

pytestmark = pytest.mark.cluster

CRD_FILE = Path(__file__).parents[2] / "crds" / "millrace.dev_consumerpipelines.yaml"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/consumerpipelines.millrace.dev"

# What the generated schema leaves to `load` because the API server has its own word on it.
SERVERS_OWN = ("the API server routes", "the API server demands", "metadata is the API server's own")


@pytest.fixture(scope="module")
def served(plane: ControlPlane) -> ControlPlane:
    """The control plane with the CRD, as `kubectl apply` brings it there."""
    applied = plane.kubectl("apply", "-f", str(CRD_FILE))
    assert applied.returncode == 0, applied.stderr
    plane.serve(CRD_FILE)
    return plane


def pipelines(namespace: str) -> str:
    return f"/apis/millrace.dev/v1alpha1/namespaces/{namespace}/consumerpipelines"


def tried(plane: ControlPlane, manifest: Mapping[str, Any]) -> Reply:
    """What the API server says to a new object, which it does not keep; unknown fields are errors, as for kubectl."""
    query = "?dryRun=All&fieldValidation=Strict"
    return plane.request("POST", pipelines("default") + query, manifest)


def test_the_crd_is_taken_whole(served: ControlPlane) -> None:
    conditions = served.request("GET", CRD).body["status"]["conditions"]

    # NonStructuralSchema is there if it is not: unknown fields would then be kept, and no rule would be checked
    assert {c["type"]: c["status"] for c in conditions} == {"NamesAccepted": "True", "Established": "True"}


def test_server_side_apply_takes_it_too(served: ControlPlane) -> None:
    reply = served.request("PATCH", CRD + "?dryRun=All&force=true", yaml.safe_load(CRD_FILE.read_text()))

    assert reply.status == 200, reply.message


@pytest.mark.parametrize("name", VALID)
def test_a_valid_manifest_is_accepted(served: ControlPlane, name: str) -> None:
    reply = tried(served, changed(VALID[name]))

    assert reply.status == 201, reply.message


@pytest.mark.parametrize("bad", [bad for bad in BAD if not bad.only_python], ids=lambda bad: bad.name)
def test_an_invalid_manifest_is_refused(served: ControlPlane, bad: Bad) -> None:
    reply = tried(served, changed(bad.changes))

    assert reply.status in (400, 422), reply.message


@pytest.mark.parametrize(
    "bad",
    [bad for bad in BAD if bad.only_python and not bad.only_python.startswith(SERVERS_OWN)],
    ids=lambda bad: bad.name,
)
def test_what_only_python_knows_is_really_unknown_to_the_api_server(served: ControlPlane, bad: Bad) -> None:
    reply = tried(served, changed(bad.changes))

    assert reply.status == 201, reply.message


def test_each_rule_speaks_in_its_own_words(served: ControlPlane, namespace: str) -> None:
    said = [tried(served, changed(bad.changes)).message for bad in BAD]
    served.request("POST", pipelines(namespace), changed({}))
    forbidden = ({"spec/source/topic": "other"}, {"spec/source/groupId": "other"})
    said += [replaced(served, namespace, change).message for change in forbidden]

    assert [rule.message for rule in RULES if not any(rule.message in words for words in said)] == []


@pytest.mark.parametrize(
    ("before", "after", "refusal"),
    [
        ({}, {"spec/replicas": 9, "spec/source/format": "bytes", "spec/stages/0": ABSENT}, ""),
        ({"spec/source/groupId": ABSENT}, {"spec/source/groupId": ABSENT, "spec/replicas": 9}, ""),
        ({}, {"spec/source/topic": "other"}, "the topic can't be changed; make a new pipeline"),
        ({}, {"spec/source/groupId": "other"}, "groupId can't be added, changed or removed later"),
        ({}, {"spec/source/groupId": ABSENT}, "groupId can't be added, changed or removed later"),
        ({"spec/source/groupId": ABSENT}, {}, "groupId can't be added, changed or removed later"),
    ],
)
def test_what_can_not_be_changed_is_refused(
    served: ControlPlane,
    namespace: str,
    before: dict[str, object],
    after: dict[str, object],
    refusal: str,
) -> None:
    made = served.request("POST", pipelines(namespace), changed(before))
    assert made.status == 201, made.message

    reply = replaced(served, namespace, after)

    assert reply.status == (422 if refusal else 200)
    assert refusal in reply.message


def replaced(plane: ControlPlane, namespace: str, changes: Mapping[str, object]) -> Reply:
    """The one pipeline of the namespace, with another spec."""
    path = f"{pipelines(namespace)}/flight-delays"
    new = changed(changes)
    new["metadata"]["resourceVersion"] = plane.request("GET", path).body["metadata"]["resourceVersion"]
    return plane.request("PUT", path, new)


def test_an_unknown_field_is_named_to_the_user_of_kubectl(served: ControlPlane, namespace: str) -> None:
    manifest = yaml.safe_dump(changed({"spec/source/topc": "flights"}))

    applied = served.kubectl("apply", "-n", namespace, "-f", "-", stdin=manifest)

    assert applied.returncode != 0
    assert 'unknown field "spec.source.topc"' in applied.stderr


def test_kubectl_scale_and_autoscalers_write_the_replicas(served: ControlPlane, namespace: str) -> None:
    served.request("POST", pipelines(namespace), changed({}))
    path = f"{pipelines(namespace)}/flight-delays"
    observed = {"status": {"replicas": 3, "selector": "millrace.dev/pipeline=flight-delays"}}
    manifest = {"apiVersion": "millrace.dev/v1alpha1", "kind": "ConsumerPipeline"}
    reply = served.request(
        "PATCH", f"{path}/status", {**manifest, "metadata": {"name": "flight-delays"}, **observed}
    )
    assert reply.status == 200, reply.message

    scaled = served.kubectl("scale", "-n", namespace, "cpl/flight-delays", "--replicas=7")

    assert scaled.returncode == 0, scaled.stderr
    assert served.request("GET", path).body["spec"]["replicas"] == 7
    scale = served.request("GET", f"{path}/scale").body
    assert scale["spec"] == {"replicas": 7}
    assert scale["status"] == {"replicas": 3, "selector": "millrace.dev/pipeline=flight-delays"}


def test_the_status_is_written_apart_from_the_spec(served: ControlPlane, namespace: str) -> None:
    served.request("POST", pipelines(namespace), {**changed({}), "status": {"replicas": 5}})
    path = f"{pipelines(namespace)}/flight-delays"
    made = served.request("GET", path).body
    assert "status" not in made

    reply = served.request(
        "PUT",
        f"{path}/status",
        {**made, "spec": {**made["spec"], "replicas": 9}, "status": {"readyReplicas": 2}},
    )

    assert reply.status == 200, reply.message
    assert (reply.body["spec"]["replicas"], reply.body["status"]) == (3, {"readyReplicas": 2})
    assert reply.body["metadata"]["generation"] == made["metadata"]["generation"]


def test_defaults_are_filled_in(served: ControlPlane) -> None:
    spec = tried(served, changed({"spec/replicas": ABSENT, "spec/source/format": ABSENT})).body["spec"]

    assert (spec["replicas"], spec["source"]["format"]) == (1, "json")


@pytest.mark.parametrize("kind", ["consumerpipelines", "consumerpipeline", "cpl", "streaming"])
def test_kubectl_get_knows_its_names_and_fits_a_terminal(
    served: ControlPlane, namespace: str, kind: str
) -> None:
    served.request("POST", pipelines(namespace), changed({"metadata/name": "a" * 52}))
    ready = {
        "type": "Ready",
        "status": "False",
        "reason": "W" * 28,
        "message": "none of three workers is ready",
        "lastTransitionTime": "2026-01-31T00:00:00Z",
    }
    status = {"conditions": [ready], "readyReplicas": 10_000}
    manifest = {"apiVersion": "millrace.dev/v1alpha1", "kind": "ConsumerPipeline", "status": status}
    path = f"{pipelines(namespace)}/{'a' * 52}/status"
    assert served.request("PATCH", path, {**manifest, "metadata": {"name": "a" * 52}}).status == 200

    head, row = served.kubectl("get", "-n", namespace, kind).stdout.splitlines()

    assert head.split() == ["NAME", "READY", "REASON", "REPLICAS", "UP", "AGE"]
    assert row.split()[:5] == ["a" * 52, "False", "W" * 28, "3", "10000"]
    assert max(len(head), len(row)) <= 120


def test_kubectl_explain_tells_what_a_field_means(served: ControlPlane) -> None:
    explained = served.kubectl("explain", "cpl.spec.source.startFrom").stdout

    assert "Where a pipeline begins that has no committed offsets" in " ".join(explained.split())
