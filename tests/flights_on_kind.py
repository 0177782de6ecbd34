"""The flights on the kind cluster, under the operator: applied, fed while things happen, and compared with pandas.

The workers' part of the example, with names of its own, since the broker is everybody's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from cluster import images, kafka, products
from cluster.images import Image
from cluster.kind import Cluster
from flights_example import FOLDER, example
from installed_operator import eventually
from millrace.connectivity.confluent import ConfluentCluster
from millrace.ownership.claim import Claim

Object = dict[str, Any]

ROOT = Path(__file__).parents[1]
PORTION = 200  # flights at a time while they flow
PAUSE = 0.3  # seconds between two portions


def worker_image(cluster: Cluster) -> str:
    """The worker's image with the package of the weather, on the cluster's nodes."""
    recipe = Path(__file__).parent / "e2e" / "flights.Dockerfile"
    worker = products.image("worker", lambda _: None)
    tag = images.build(Image("flights", recipe, arguments={"WORKER_IMAGE": worker}), lambda _: None)
    cluster.load([tag], lambda _: None)
    return tag


class Flights:
    """One pipeline of them. `apply` it, `feed` it, see that all is `exact`.

    Args:
        namespace: there already; the ConfigMap with the code is made in it.
        image: of the workers.
        spec: more of the manifest's spec, over what the example says.
    """

    def __init__(self, cluster: Cluster, namespace: str, image: str, **spec: object) -> None:
        self.cluster, self.namespace = cluster, namespace
        mark = uuid.uuid4().hex[:8]
        self.name = f"flights-{mark}"
        self.source, self.scored, self.dead = f"{mark}.flights", f"{mark}.scored", f"{mark}.dead"
        self.bootstrap = kafka.outside(cluster)
        self._admin = ConfluentCluster(
            self.bootstrap, credentials=None, properties={}, client_id="flights-test"
        ).admin()
        with mock.patch.object(example("load"), "TOPIC", self.source):
            self._feed = example("load").Feed(self.bootstrap, seed=2013)
        self.manifest = self._manifest(image, spec)
        code = {"flights.py": (FOLDER / "flights.py").read_text()}
        made = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{self.name}-code"},
            "data": code,
        }
        self.kubectl("create", "-f", "-", stdin=json.dumps(made))

    def _manifest(self, image: str, spec: Mapping[str, object]) -> Object:
        written: Object = yaml.safe_load((FOLDER / "pipeline.yaml").read_text())
        written["metadata"] = {"name": self.name, "namespace": self.namespace}
        found = written["spec"]
        found["stages"] = [stage for stage in found["stages"] if "collect" not in stage]
        for stage in found["stages"]:
            if "produce" in stage:
                stage["produce"]["topic"] = self.scored
        found["kafka"] = {"bootstrapServers": kafka.PLAIN}
        found["source"]["topic"] = self.source
        del found["source"]["groupId"]
        found["deadLetter"]["topic"] = self.dead
        found["worker"] = {
            "image": image,
            "code": {"configMapRef": {"name": f"{self.name}-code"}},
            "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "384Mi"}},
        }
        found |= spec
        return written

    @property
    def group(self) -> str:
        return f"{self.namespace}.{self.name}"

    @property
    def uid(self) -> str:
        return str(self.resource()["metadata"]["uid"])

    # what a user does

    def apply(self, **spec: object) -> None:
        """The manifest, with what is given in its spec from now on."""
        self.manifest["spec"] |= spec
        self.kubectl("apply", "-f", "-", stdin=json.dumps(self.manifest))

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl("-n", self.namespace, *arguments, stdin=stdin, check=True).stdout

    def millrace(self, *words: str) -> Any:
        """What `kubectl millrace WORDS -o json` prints; it finds kubectl as a user's shell does."""
        code = os.pathsep.join(str(ROOT / part) for part in ("crds", "worker"))
        tools = f"{self.cluster.directory / 'bin'}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            [sys.executable, "-m", "millrace.cli.kubectl", *words, "-n", self.namespace, "-o", "json"],
            env={
                **os.environ,
                "PATH": tools,
                "PYTHONPATH": code,
                "KUBECONFIG": str(self.cluster.kubeconfig),
            },
            capture_output=True,
            text=True,
            timeout=400,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def scale(self, replicas: int) -> None:
        self.kubectl("scale", f"cpl/{self.name}", f"--replicas={replicas}")

    # how it is

    def resource(self) -> Object:
        return dict(json.loads(self.kubectl("get", "cpl", self.name, "-o", "json")))

    def status(self) -> Object:
        return dict(self.resource().get("status", {}))

    def condition(self, kind: str) -> tuple[str, str]:
        for one in self.status().get("conditions", []):
            if one["type"] == kind:
                return one["status"], one["reason"]
        return "", ""

    def runs(self, replicas: int) -> bool:
        """Whether so many workers are ready, share all partitions, and the operator is content."""
        status = self.status()
        ready = [c for c in status.get("conditions", []) if c["type"] == "Ready" and c["reason"] == "Running"]
        return (
            status.get("observedGeneration") == self.resource()["metadata"]["generation"]
            and bool(ready)
            and ready[0]["status"] == "True"
            and status.get("readyReplicas") == replicas
            and [worker["index"] for worker in status.get("workers", ())] == list(range(replicas))
        )

    def await_running(self, replicas: int = 3, seconds: float = 600.0) -> None:
        eventually(lambda: self.runs(replicas), f"{replicas} workers run", self.told, seconds)

    def pods(self) -> Sequence[Object]:
        """Of the workers, by index."""
        found = json.loads(
            self.kubectl("get", "pods", "-l", f"millrace.dev/pipeline={self.name}", "-o", "json")
        )
        return sorted(found["items"], key=lambda pod: pod["metadata"]["name"])

    def told(self) -> str:
        """All that helps to see why it is not as it should be."""
        pods = [f"{pod['metadata']['name']}: {json.dumps(pod['status'])}" for pod in self.pods()]
        logs = [
            self.cluster.kubectl(
                "logs", "-n", self.namespace, pod["metadata"]["name"], "--tail=8", *previous
            ).stdout
            for pod in self.pods()
            for previous in ((), ("--previous",))
        ]
        return "\n".join([*pods, *logs, json.dumps(self.status(), indent=1), str(self.offsets())])

    def offsets(self) -> Mapping[int, int]:
        """How far each partition is committed, from its claim."""
        return {partition: record.offset for partition, record in self._claims().items()}

    def holders(self) -> Mapping[int, int]:
        """Who holds each partition."""
        claims = {p: Claim.decode(record.metadata) for p, record in self._claims().items()}
        return {partition: claim.holder for partition, claim in claims.items() if claim is not None}

    def _claims(self) -> Mapping[int, Any]:
        return self._admin.group_offsets(
            f"{self.group}.claims", self.source, range(example("load").PARTITIONS), 20.0, stable=False
        )

    # the flights

    def letters(self) -> Mapping[tuple[int, int], bytes | None]:
        """Values of the dead letters, by partition and offset."""
        found = example("topics").read(self.bootstrap, self.dead)
        return {(record.partition, record.offset): record.value for record in found}

    def feed(self, count: int) -> None:
        """So many more of them."""
        with mock.patch.object(example("load"), "TOPIC", self.source):
            self._feed.advance(self._feed.fed + count)

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Flights come in as long as this is open, however long what happens meanwhile may take."""
        end, failures = threading.Event(), []

        def flow() -> None:
            try:
                while not end.wait(PAUSE):
                    self.feed(PORTION)
            except Exception as failure:  # noqa: BLE001  told below, on the test's thread
                failures.append(failure)

        thread = threading.Thread(target=flow)
        thread.start()
        try:
            self.await_progress()
            yield
            self.await_progress()
        finally:
            end.set()
            thread.join()
        assert not failures, failures

    def await_progress(self) -> None:
        """Returns when more has been committed than when it was called, in each partition that has had more."""
        before = sum(self.offsets().values())
        eventually(lambda: sum(self.offsets().values()) > before, "progress", self.told)

    def await_all_done(self) -> None:
        ends = {partition: end for partition, end in enumerate(self._feed.ends) if end}
        eventually(
            lambda: {p: offset for p, offset in self.offsets().items() if p in ends} == ends,
            f"all is processed, {ends}",
            self.told,
        )

    def exact(self) -> None:
        """All that was fed is processed, and what came out is what pandas computes: each once, in order."""
        self.await_all_done()
        verify, read, compare = example("verify"), example("topics").read, example("comparing").compare
        source = read(self.bootstrap, self.source)
        assert len(source) == self._feed.fed
        with mock.patch.object(verify, "SOURCE", self.source):
            flights, undecodable = verify.decode(source)
            outputs, invalid, _ = verify.expected(flights)
            letters = verify.expected_letters(source, undecodable, invalid)
        keys = {(record.partition, record.offset): record.key for record in source}
        for identity, content in outputs.items():
            content["(key)"] = keys[identity]
        of_outputs = compare(outputs, map(verify.found_output, read(self.bootstrap, self.scored)))
        of_letters = compare(letters, map(verify.found_letter, read(self.bootstrap, self.dead)))
        assert of_outputs.equal, of_outputs
        assert of_letters.equal, of_letters
        assert of_outputs.found > 0.9 * len(source)
        assert of_letters.found > 0

    def close(self) -> None:
        self._admin.close()
