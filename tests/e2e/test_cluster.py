"""The kind cluster does what tests of the operator will ask of one: images, pods, names, volumes, Kafka, an audit log."""

from __future__ import annotations

import json
import textwrap
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cluster import images, kafka
from cluster.images import Image
from cluster.kind import Cluster
from millrace.clock import Deadline, SystemClock

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

SECONDS = 400.0

DOCKERFILE = """\
ARG BASE_IMAGE=python:3.11-slim-bookworm
FROM $BASE_IMAGE
RUN pip install -q confluent-kafka
COPY server.py /server.py
USER 10001:10001
CMD ["python3", "-u", "/server.py"]
"""

SERVER = """\
import http.server, signal, socket, sys

class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(socket.gethostname().encode())

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("listening")
http.server.ThreadingHTTPServer(("", 8080), Hello).serve_forever()
"""


def eventually(condition: Callable[[], bool]) -> bool:
    clock = SystemClock()
    deadline = Deadline.after(clock, SECONDS)
    while not condition():
        if deadline.expired():
            return False
        clock.sleep(0.25)
    return True


@pytest.fixture(scope="module")
def image(kube: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image that was built on this machine, on all nodes of the cluster."""
    folder = tmp_path_factory.mktemp("image")
    (folder / "Dockerfile").write_text(DOCKERFILE)
    (folder / "server.py").write_text(SERVER)
    tag = images.build(
        Image("tests", folder / "Dockerfile", {"server.py": folder / "server.py"}), lambda _: None
    )
    kube.load([tag], lambda _: None)
    return tag


def pod(image: str, **container: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": "20m", "memory": "32Mi"}}
    main = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "resources": resources,
        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
    }
    return {"terminationGracePeriodSeconds": 5, "containers": [{**main, **container}]}


@pytest.fixture(scope="module")
def server(kube: Cluster, pods: str, image: str) -> str:
    """A StatefulSet of one, `server`, with a Service and a volume at /data. Its pod is server-0."""
    labels = {"app": "server"}
    service = {"clusterIP": "None", "selector": labels, "ports": [{"port": 8080}]}
    reached = {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Mi"}}}
    spec = {
        "serviceName": "server",
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": pod(image, volumeMounts=[{"name": "data", "mountPath": "/data"}]),
        },
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
    }
    manifests = [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "server"}, "spec": service},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": reached},
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "server"}, "spec": spec},
    ]
    kube.kubectl("apply", "-n", pods, "-f", "-", stdin=yaml.safe_dump_all(manifests), check=True)
    kube.kubectl("rollout", "status", "-n", pods, "sts/server", f"--timeout={SECONDS:.0f}s", check=True)
    return "server-0"


def run_python(kube: Cluster, namespace: str, pod: str, code: str) -> str:
    """What a Python program prints in a pod; its failure fails the test."""
    done = kube.kubectl("exec", "-n", namespace, pod, "--", "python3", "-c", textwrap.dedent(code))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_pod_of_an_image_built_here_runs_and_tells_its_log(kube: Cluster, pods: str, server: str) -> None:
    assert "listening" in kube.kubectl("logs", "-n", pods, server).stdout.splitlines()


@pytest.mark.parametrize("address", ["web", "web.{}.svc.cluster.local", "server-0.server.{}.svc:8080"])
def test_pods_find_services_and_each_other_by_name(
    kube: Cluster, pods: str, server: str, address: str
) -> None:
    url = f"http://{address.format(pods)}"
    code = f"import urllib.request as r; print(r.urlopen('{url}', timeout=5).read().decode())"

    def found() -> bool:  # a name may need some seconds until all of the cluster knows it
        done = kube.kubectl("exec", "-n", pods, server, "--", "python3", "-c", code)
        return done.stdout.strip() == server

    assert eventually(found)


def test_the_api_server_reaches_services_as_it_must_for_webhooks(
    kube: Cluster, pods: str, server: str
) -> None:
    through = f"/api/v1/namespaces/{pods}/services/web:80/proxy/"

    assert kube.kubectl("get", "--raw", through).stdout == server


def test_a_volume_outlives_its_pod(kube: Cluster, pods: str, server: str) -> None:
    run_python(kube, pods, server, "open('/data/kept', 'w').write('yes')")

    kube.kubectl("delete", "pod", "-n", pods, server, check=True)
    kube.kubectl("rollout", "status", "-n", pods, "sts/server", f"--timeout={SECONDS:.0f}s", check=True)

    assert eventually(lambda: kube.kubectl("exec", "-n", pods, server, "--", "true").returncode == 0)
    assert run_python(kube, pods, server, "print(open('/data/kept').read())") == "yes"


def test_too_much_memory_is_a_reason_of_its_own(kube: Cluster, pods: str, image: str) -> None:
    hungry = pod(
        image,
        command=["python3", "-c", "bytearray(300 << 20)"],
        resources={"limits": {"memory": "64Mi"}},
        readinessProbe=None,
    )
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hungry"}}
    manifest["spec"] = {**hungry, "restartPolicy": "Never"}  # type: ignore[assignment]
    kube.kubectl("apply", "-n", pods, "-f", "-", stdin=yaml.safe_dump(manifest), check=True)

    path = "{.status.containerStatuses[0].state.terminated.reason}"

    def reason() -> str:
        return kube.kubectl("get", "pod", "-n", pods, "hungry", "-o", f"jsonpath={path}").stdout

    assert eventually(lambda: bool(reason()))
    assert reason() == "OOMKilled"


def make_topic(client: dict[str, Any], topic: str) -> None:
    admin = AdminClient(client)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)


def test_a_client_on_this_machine_produces_to_kafka_and_consumes(kube: Cluster) -> None:
    bootstrap = {"bootstrap.servers": kafka.outside(kube)}
    topic = f"t-{uuid.uuid4().hex[:12]}"
    make_topic(bootstrap, topic)
    producer = Producer(bootstrap)
    producer.produce(topic, b"hello")
    assert producer.flush(30) == 0

    consumer = Consumer({**bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(30)
    consumer.close()

    assert message is not None
    assert message.value() == b"hello"


@pytest.mark.parametrize(("user", "may"), [("alice", True), ("bob", False)])
def test_a_pod_speaks_to_kafka_with_tls_and_scram(
    kube: Cluster, pods: str, server: str, user: str, may: bool
) -> None:
    topic = f"{user}-{uuid.uuid4().hex[:8]}"
    secret = kube.kubectl("get", "secret", "-n", kafka.NAMESPACE, f"kafka-{user}", "-o", "json", check=True)
    code = f"""
        import base64
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic
        keys = {{key: base64.b64decode(value).decode() for key, value in {json.loads(secret.stdout)["data"]}.items()}}
        admin = AdminClient({{
            "bootstrap.servers": "{kafka.SECURE}", "security.protocol": "SASL_SSL", "ssl.ca.pem": keys["ca.crt"],
            "sasl.mechanism": keys["sasl.mechanism"], "sasl.username": keys["username"],
            "sasl.password": keys["password"],
        }})
        try:
            admin.create_topics([NewTopic("{topic}", 1, 1)])["{topic}"].result(30)
            print("made")
        except KafkaException as refused:
            print(refused.args[0].name())
    """
    assert run_python(kube, pods, server, code) == ("made" if may else "TOPIC_AUTHORIZATION_FAILED")


def test_kafka_keeps_what_it_acknowledged_when_it_is_killed(kube: Cluster) -> None:
    bootstrap = {"bootstrap.servers": kafka.outside(kube), "reconnect.backoff.max.ms": 500}
    topic = f"t-{uuid.uuid4().hex[:12]}"
    make_topic(bootstrap, topic)
    producer = Producer(bootstrap)
    producer.produce(topic, b"kept")
    assert producer.flush(30) == 0

    kube.kubectl("delete", "pod", "-n", kafka.NAMESPACE, "kafka-0", "--grace-period=0", "--force", check=True)
    kube.kubectl("rollout", "status", "-n", kafka.NAMESPACE, "sts/kafka", "--timeout=180s", check=True)

    consumer = Consumer({**bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes | None] = []

    def arrived() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(message.value())
        return bool(found)

    assert eventually(arrived)
    consumer.close()
    assert found == [b"kept"]


def test_the_audit_log_tells_who_wrote_what(kube: Cluster, pods: str) -> None:
    kube.kubectl("create", "configmap", "written", "-n", pods, check=True)

    writes = [
        event["verb"]
        for event in kube.audited()
        if event.get("objectRef", {}).items()
        >= {"namespace": pods, "resource": "configmaps", "name": "written"}.items()
    ]
    assert writes == ["create"]


def test_an_image_is_built_anew_only_if_what_it_is_made_of_has_changed(kube: Cluster, tmp_path: Path) -> None:
    told: list[str] = []
    content = tmp_path / "content"
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY content /content\n")

    def build(text: str) -> str:
        content.write_text(text)
        return images.build(Image("tests", tmp_path / "Dockerfile", {"content": content}), told.append)

    first, again = build("one " * 7), build("one " * 7)
    other = build(f"{uuid.uuid4()}")

    assert first == again
    assert other != first
    assert told.count(f"building {first}") <= 1
    assert told.count(f"building {other}") == 1
