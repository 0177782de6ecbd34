"""The worker's image does its work on a cluster: three pods of it, under Pod Security `restricted`, take the flights from
the Kafka in there, and what comes out is exact. There is no operator: this test decides about epochs and claims.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster import images, kafka, products
from cluster.images import Image
from cluster.kind import Cluster
from flights_example import FOLDER, example
from kubectl_operator import ConfigMapStore, Group
from millrace.clock import Deadline, SystemClock
from millrace.connectivity.confluent import ConfluentCluster
from millrace.ownership.control_plane import ControlPlane
from millrace.ownership.topics import ensure, ensure_channel
from millrace_api import ConsumerPipeline, load
from millrace_api.needed import needed

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

HERE = Path(__file__).parent
FED = 60_000  # flights, of the year's 336,776


@pytest.fixture(scope="module")
def image(kube: Cluster) -> str:
    """The worker's image with the package of the weather, on the cluster's nodes."""
    worker = products.image("worker", lambda _: None)
    tag = images.build(
        Image("flights", HERE / "flights.Dockerfile", arguments={"WORKER_IMAGE": worker}), lambda _: None
    )
    kube.load([tag], lambda _: None)
    return tag


@pytest.fixture(scope="module")
def place(kube: Cluster, pods: str) -> str:
    """A namespace that admits what is restricted, and nothing else."""
    kube.kubectl("label", "namespace", pods, "pod-security.kubernetes.io/enforce=restricted", check=True)
    return pods


@pytest.fixture(scope="module")
def manifest() -> str:
    """That of the example, with names of its own: the broker is everybody's."""
    mark = uuid.uuid4().hex[:12]
    written = yaml.safe_load((FOLDER / "pipeline.yaml").read_text())
    spec = written["spec"]
    written["metadata"]["name"] = f"flights-{mark}"
    spec["kafka"]["bootstrapServers"] = kafka.PLAIN
    spec["source"] |= {"topic": f"{mark}.flights", "groupId": mark}
    spec["deadLetter"]["topic"] = f"{mark}.dead"
    for stage in spec["stages"]:
        if "produce" in stage:
            stage["produce"]["topic"] = f"{mark}.scored"
    spec["worker"] = {"code": {"configMapRef": {"name": "pipeline-code"}}}
    return yaml.safe_dump(written)


@pytest.fixture(scope="module")
def pipeline(manifest: str) -> ConsumerPipeline:
    return load(manifest).pipeline


@pytest.fixture(scope="module")
def config_maps(kube: Cluster, place: str, manifest: str, pipeline: ConsumerPipeline) -> None:
    contents = {
        "pipeline-manifest": {"pipeline.yaml": manifest},
        "pipeline-code": {"flights.py": (FOLDER / "flights.py").read_text()},
        "broken": {"pipeline.yaml": manifest.replace("flights:departed", "flights:arrived")},
    }
    for name, data in contents.items():
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        kube.kubectl("create", "-n", place, "-f", "-", stdin=json.dumps(made), check=True)


@pytest.mark.parametrize(("config_map", "code"), [("pipeline-manifest", 0), ("broken", 4)])
def test_a_pod_says_whether_a_manifest_is_valid_and_its_functions_are_there(
    kube: Cluster, place: str, image: str, config_maps: None, config_map: str, code: int
) -> None:
    *_, group = yaml.safe_load_all((HERE / "worker-pods.yaml").read_text())
    spec = group["spec"]["template"]["spec"] | {"restartPolicy": "Never"}
    container = spec["containers"][0]
    container |= {
        "image": image,
        "args": ["validate", "/etc/millrace/manifest/pipeline.yaml", "--code=/etc/millrace/code"],
    }
    for unneeded in ("env", "startupProbe", "readinessProbe", "livenessProbe"):
        del container[unneeded]
    container["volumeMounts"] = [m for m in container["volumeMounts"] if m["name"] != "epoch"]
    spec["volumes"] = [v for v in spec["volumes"] if v["name"] != "epoch"]
    spec["volumes"][0]["configMap"]["name"] = config_map
    name = f"validate-{config_map}"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    kube.kubectl("create", "-n", place, "-f", "-", stdin=json.dumps(pod), check=True)

    ended = f"jsonpath={{.status.phase}}={'Failed' if code else 'Succeeded'}"
    kube.kubectl("wait", "-n", place, f"pod/{name}", f"--for={ended}", "--timeout=120s", check=True)

    path = "{.status.containerStatuses[0].state.terminated.exitCode}"
    assert kube.kubectl("get", "pod", "-n", place, name, "-o", f"jsonpath={path}").stdout == str(code)
    said = kube.kubectl("logs", "-n", place, name).stdout
    assert "arrived" in said if code else "valid" in said


@pytest.fixture(scope="module")
def workers(
    kube: Cluster, place: str, image: str, config_maps: None, pipeline: ConsumerPipeline
) -> Iterator[Group]:
    """The group, with no worker yet; all topics are there."""
    clock = SystemClock()
    cluster = ConfluentCluster(kafka.outside(kube), credentials=None, properties={}, client_id="test-op")
    admin = cluster.admin()
    deadline = Deadline.after(clock, 60)
    ensure(admin, needed(pipeline), deadline, lambda *_: None)
    [collect] = [stage for stage in pipeline.spec.stages if stage.collect]
    partitions = pipeline.spec.source.create.partitions if pipeline.spec.source.create else 0
    ensure_channel(
        admin, f"{pipeline.group_id}.{collect.name}.channel", partitions, deadline, lambda *_: None
    )
    admin.close()
    plane = ControlPlane(
        cluster,
        ConfigMapStore(kube, place, "pipeline-epoch", "app=pipeline"),
        clock,
        uid=uuid.uuid4().hex,
        topic=pipeline.spec.source.topic,
        group=pipeline.group_id,
        claims_group=pipeline.claims_group,
    )
    plane.open()
    stated = (HERE / "worker-pods.yaml").read_text().replace("WORKER_IMAGE", image)
    kube.kubectl("create", "-n", place, "-f", "-", stdin=stated, check=True)
    yield Group(kube, place, "pipeline", plane)
    plane.close()


def test_flights_come_out_exactly_though_a_pod_is_killed_and_the_group_shrinks(
    kube: Cluster, place: str, workers: Group, pipeline: ConsumerPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap, source = kafka.outside(kube), pipeline.spec.source.topic
    monkeypatch.setattr(example("load"), "TOPIC", source)
    monkeypatch.setattr(example("verify"), "SOURCE", source)
    feed = example("load").Feed(bootstrap, seed=2013)

    workers.bring_to(3)
    feed.advance(FED // 2)
    workers.until(lambda: any(offset > 500 for offset in positions(workers).values()), "they work")
    kube.kubectl("delete", "pod", "-n", place, "pipeline-1", "--grace-period=0", "--force", check=True)
    feed.advance(FED * 3 // 4)
    workers.bring_to(2)
    feed.advance(FED)
    ends = dict(enumerate(feed.ends))
    workers.until(lambda: positions(workers) == ends, "all is processed")
    workers.bring_to(0)

    assert positions(workers) == ends
    compare_with_pandas(bootstrap, pipeline)


def positions(workers: Group) -> dict[int, int]:
    return {partition: claim.offset for partition, claim in workers.plane.observe().claims.items()}


def compare_with_pandas(bootstrap: str, pipeline: ConsumerPipeline) -> None:
    verify, read, compare = example("verify"), example("topics").read, example("comparing").compare
    source = read(bootstrap, pipeline.spec.source.topic)
    assert len(source) == FED
    flights, undecodable = verify.decode(source)
    outputs, invalid, _ = verify.expected(flights)
    letters = verify.expected_letters(source, undecodable, invalid)
    keys = {(record.partition, record.offset): record.key for record in source}
    for identity, content in outputs.items():
        content["(key)"] = keys[identity]
    [scored] = [stage.produce.topic for stage in pipeline.spec.stages if stage.produce]
    assert pipeline.spec.dead_letter is not None

    of_outputs = compare(outputs, map(verify.found_output, read(bootstrap, scored)))
    of_letters = compare(letters, map(verify.found_letter, read(bootstrap, pipeline.spec.dead_letter.topic)))

    assert of_outputs.equal, of_outputs
    assert of_letters.equal, of_letters
    assert of_outputs.found > FED * 0.9
    assert of_letters.found > 0
