"""`kubectl millrace offsets` on a pipeline under the operator: real kubectl, API server, operator and broker; the pod that
asks the broker really does its work (`kubelet_double`), and its user has no more than the rights of an editor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.plane import ControlPlane
from editor import Editor
from kubelet_double import KubeletDouble
from millrace.connectivity.confluent import ConfluentCluster
from millrace.errors import ExitCode
from millrace.local.broker.embedded import EmbeddedBroker
from millrace.ownership.claim import OP, Claim
from operator_process import NAMESPACE, PIPELINE, PODS, Operator, manifest, prepare

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

PARTITIONS = 12


@pytest.fixture
def operator(
    start_plane: Callable[..., ControlPlane], kafka: EmbeddedBroker, tmp_path: Path
) -> Iterator[Operator]:
    plane = start_plane(pods=True)
    prepare(plane, kafka)
    found = Operator(plane, kafka, tmp_path)
    with KubeletDouble(plane, NAMESPACE, tmp_path):
        yield found
        found.close()


def claims(kafka: EmbeddedBroker) -> dict[int, tuple[int, int]]:
    """Offset and holder of each."""
    admin = ConfluentCluster(kafka.bootstrap, client_id="looks").admin()
    found = admin.group_offsets("air.flights.claims", "flights", range(PARTITIONS), 60.0, stable=False)
    admin.close()
    decoded = {p: (record.offset, Claim.decode(record.metadata)) for p, record in found.items()}
    return {p: (offset, claim.holder) for p, (offset, claim) in decoded.items() if claim is not None}


def forget_claims(kafka: EmbeddedBroker) -> None:
    admin = ConfluentCluster(kafka.bootstrap, client_id="forgets").admin()
    admin.delete_group("air.flights.claims", 60.0)
    admin.close()


def test_offsets_are_shown_reset_and_repaired_with_the_rights_of_an_editor(
    operator: Operator, kafka: EmbeddedBroker, tmp_path: Path
) -> None:
    editor = Editor(operator.plane, tmp_path)
    operator.start()
    assert operator.plane.request("PATCH", f"{PIPELINE}?force=true", manifest(kafka)).status in (200, 201)
    operator.eventually(lambda: operator.condition("Ready") == ("True", "Running"))
    operator.eventually(lambda: all(offset > 0 for offset, _ in claims(kafka).values()))

    # shown, and what would change, while workers are at work
    shown = editor.told("offsets", "show", "flights")
    assert (shown["group"], shown["running"], len(shown["partitions"])) == ("air.flights", True, PARTITIONS)
    assert {row["standing"] for row in shown["partitions"]} == {"ours"}
    generation = operator.get(PIPELINE)["metadata"]["generation"]
    planned = editor.told("offsets", "reset", "flights", "--to", "earliest", "--dry-run")
    assert (planned["dryRun"], {change["after"] for change in planned["changes"]}) == (True, {0})
    assert operator.get(PIPELINE)["metadata"]["generation"] == generation

    # reset: stopped, set, started again
    done = editor.run("offsets", "reset", "flights", "--to", "earliest", "--partitions", "0-3", "-o", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is paused" in done.stderr
    assert "goes on" in done.stderr
    changed = json.loads(done.stdout)["changes"]
    assert [(one["partition"], one["after"], one["before"] > 0) for one in changed] == [
        (p, 0, True) for p in range(4)
    ]
    assert {one["holder"] for one in changed} == {OP}
    assert operator.get(PIPELINE)["spec"]["suspend"] is False
    operator.eventually(lambda: operator.condition("Ready") == ("True", "Running"))
    assert operator.get(PODS)["items"].__len__() == 3  # that of the errand is gone

    # one that was suspended stays so
    operator.plane.request("PATCH", f"{PIPELINE}?force=true", manifest(kafka, suspend=True))
    operator.eventually(lambda: operator.condition("Ready") == ("True", "Suspended"))
    assert len(editor.told("offsets", "reset", "flights", "--to", "earliest")["changes"]) == PARTITIONS
    assert set(claims(kafka).values()) == {(0, OP)}
    assert operator.get(PIPELINE)["spec"]["suspend"] is True
    nothing = editor.run("offsets", "reset", "flights", "--from-group")
    assert (nothing.returncode, "nothing to change" in nothing.stdout) == (0, True)
    sound = editor.run("offsets", "repair", "flights", "--from-group")
    assert (sound.returncode, "no claim is lost" in sound.stderr) == (ExitCode.USAGE, True)

    # claims lost under workers at work
    operator.plane.request("PATCH", f"{PIPELINE}?force=true", manifest(kafka))
    operator.eventually(lambda: operator.condition("Ready") == ("True", "Running"))
    lose_claims(operator, kafka)
    refused = editor.run("offsets", "reset", "flights", "--to", "earliest")
    assert (refused.returncode, "offsets repair flights" in refused.stderr) == (ExitCode.CLAIM_LOST, True)
    repaired = editor.told("offsets", "repair", "flights", "--to", "earliest")
    assert {change["why"] for change in repaired["changes"]} == {"lost"}
    operator.eventually(lambda: operator.condition("Ready") == ("True", "Running"))
    assert {holder for _, holder in claims(kafka).values()} == {0, 1, 2}


def lose_claims(operator: Operator, kafka: EmbeddedBroker) -> None:
    """Of workers that have found it out: one in the midst of a commit would write its own again."""
    with operator.doubles_at_rest():
        forget_claims(kafka)
        operator.eventually(lambda: operator.condition("Stalled") == ("True", "ClaimLost"))


def test_what_is_in_the_way_is_told_and_leaves_the_pipeline_as_it_was(
    operator: Operator, kafka: EmbeddedBroker, tmp_path: Path
) -> None:
    editor = Editor(operator.plane, tmp_path)
    assert (
        editor.run("offsets", "reset", "flights", "--to", "earliest").returncode == ExitCode.USAGE
    )  # none is there
    assert operator.plane.request("PATCH", f"{PIPELINE}?force=true", manifest(kafka)).status == 201
    unmade = editor.run("offsets", "show", "flights")
    assert (unmade.returncode, "has not made the workers" in unmade.stderr) == (ExitCode.USAGE, True)

    operator.start()
    operator.eventually(lambda: operator.condition("Ready") == ("True", "Running"))
    # nobody stops the workers: no operator is there
    operator.stop()
    alone = editor.run("offsets", "reset", "flights", "--to", "earliest", "--timeout", 1)
    assert (alone.returncode, "no operator has looked at it" in alone.stderr) == (ExitCode.BUSY, True)
    assert operator.get(PIPELINE)["spec"]["suspend"] is False
    operator.start()
    operator.eventually(lambda: operator.condition("Ready") == ("True", "Running"))
    unclear = editor.run("offsets", "reset", "flights")
    assert (unclear.returncode, "one of --to and --from-group" in unclear.stderr) == (ExitCode.USAGE, True)
    outside = editor.run("offsets", "reset", "flights", "--to", 10**9)
    assert (outside.returncode, "no such offset" in outside.stderr) == (ExitCode.OFFSET_GONE, True)
    operator.eventually(lambda: operator.condition("Ready") == ("True", "Running"))

    # another one, that never ends
    other = pod_of_another()
    assert operator.plane.request("POST", PODS, other).status == 201
    for words in (("show",), ("reset", "--to", "earliest")):
        busy = editor.run("offsets", words[0], "flights", *words[1:])
        assert (busy.returncode, "another `kubectl millrace offsets`" in busy.stderr) == (ExitCode.BUSY, True)
    assert operator.plane.request("DELETE", f"{PODS}/flights.offsets?gracePeriodSeconds=0").status == 200

    # who may not make pods can't have one made for her
    viewer = Editor(operator.plane, tmp_path, "viewer", "view")
    generation = operator.get(PIPELINE)["metadata"]["generation"]
    forbidden = viewer.run("offsets", "reset", "flights", "--to", "earliest")
    assert (forbidden.returncode, "forbidden" in forbidden.stderr) == (ExitCode.CREDENTIALS, True)
    assert operator.get(PIPELINE)["metadata"]["generation"] == generation  # nothing was stopped for it


def pod_of_another() -> dict[str, Any]:
    return dict(
        yaml.safe_load(
            """
metadata: {name: flights.offsets}
spec:
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: waits
    image: waits
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
"""
        )
    )
