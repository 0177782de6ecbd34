"""The Spark image is driver and executors on a cluster, in client mode and under Pod Security `restricted`: it reads the
Kafka in there, runs Python on executors, and these go with their driver.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cluster import kafka, products
from cluster.kind import Cluster
from millrace.clock import Deadline, SystemClock

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

HERE = Path(__file__).parent
RECORDS, PARTITIONS = 1_000, 4
SECONDS = 900.0


@pytest.fixture(scope="module")
def topic(kube: Cluster) -> str:
    """With the numbers below RECORDS in it."""
    name = f"numbers-{uuid.uuid4().hex[:12]}"
    bootstrap = {"bootstrap.servers": kafka.outside(kube)}
    admin = AdminClient(bootstrap)
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
    producer = Producer(bootstrap)
    for number in range(RECORDS):
        producer.produce(name, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    return name


def test_driver_and_executors_read_kafka_and_go_together(kube: Cluster, pods: str, topic: str) -> None:
    image = products.image("spark", lambda _: None)
    kube.load([image], lambda _: None)
    kube.kubectl("label", "namespace", pods, "pod-security.kubernetes.io/enforce=restricted", check=True)
    files = {"job.py": HERE / "spark_job.py", "executor.yaml": HERE / "spark-executor.yaml"}
    given = [f"--from-file={name}={path}" for name, path in files.items()]
    kube.kubectl("create", "configmap", "job", "-n", pods, *given, check=True)
    stated = (HERE / "spark-pods.yaml").read_text()
    for word, value in {"SPARK_IMAGE": image, "BROKERS": kafka.PLAIN, "SOURCE": topic}.items():
        stated = stated.replace(word, value)
    kube.kubectl("create", "-n", pods, "-f", "-", stdin=stated, check=True)

    said = answer(kube, pods)

    assert said["count"] == RECORDS
    assert said["sum"] == sum(range(RECORDS))
    executors = found(kube, pods)
    assert executors
    assert said["driver"] not in said["places"]
    assert {pod["metadata"]["name"] for pod in executors} >= set(said["places"])
    for pod in executors:
        assert [owner["name"] for owner in pod["metadata"]["ownerReferences"]] == ["driver"]

    kube.kubectl("delete", "pod", "-n", pods, "driver", "--grace-period=0", "--force", check=True)
    until(lambda: not found(kube, pods))


def answer(kube: Cluster, namespace: str) -> Mapping[str, Any]:
    """What the job has found: a line of its log, which Spark writes to, too."""
    lines: list[Mapping[str, Any]] = []

    def there() -> bool:
        log = kube.kubectl("logs", "-n", namespace, "driver").stdout.splitlines()
        lines.extend(json.loads(line) for line in log if line.startswith('{"driver"'))
        phase = kube.kubectl("get", "pod", "-n", namespace, "driver", "-o", "jsonpath={.status.phase}").stdout
        assert phase not in ("Failed", "Succeeded"), "\n".join(log[-40:])
        return bool(lines)

    until(there)
    return lines[0]


def found(kube: Cluster, namespace: str) -> list[dict[str, Any]]:
    """The executors' pods."""
    listed = kube.kubectl("get", "pods", "-n", namespace, "-l", "app=executor", "-o", "json", check=True)
    items: list[dict[str, Any]] = json.loads(listed.stdout)["items"]
    return items


def until(condition: Callable[[], object]) -> None:
    clock = SystemClock()
    deadline = Deadline.after(clock, SECONDS)
    while not condition():
        assert not deadline.expired()
        clock.sleep(0.5)
