"""Kafka in a cluster, as kafka.yaml says: its image, its certificates and users, its start."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping

from certificates import Authority
from cluster import images
from cluster.binaries import HERE, Say
from cluster.images import Image
from cluster.kind import Cluster
from millrace.host import jars
from millrace.local.broker.jars import BROKER
from millrace.local.broker.server import new_cluster_id

NAMESPACE = "kafka"
PLAIN = "kafka.kafka.svc:9092"
SECURE = "kafka.kafka.svc:9093"  # TLS and SASL; what alice and bob need is in the Secrets kafka-alice and kafka-bob
_USERS = ("alice", "bob")
_MANIFEST = HERE / "kafka.yaml"
_CERTIFICATE_DAYS = 365


def image(say: Say) -> str:
    """The broker's image, built if need be."""
    folder = HERE / "kafka"
    context = {"jars": jars.ensure(BROKER), "class-data": folder / "class-data"}
    return images.build(Image("kafka", folder / "Dockerfile", context), say)


def deploy(cluster: Cluster, broker_image: str, say: Say) -> None:
    """See that it runs in the cluster; that has the image already. Raises MillraceError (FAILED) if it does not get
    ready.
    """
    say("starting Kafka in it")
    manifest = _MANIFEST.read_text().replace("KAFKA_IMAGE", broker_image)
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest, check=True)
    if cluster.kubectl("get", "secret", "-n", NAMESPACE, "kafka-server").returncode != 0:
        cluster.kubectl("create", "-f", "-", stdin=_credentials(), check=True)
    cluster.kubectl("rollout", "status", "-n", NAMESPACE, "statefulset/kafka", "--timeout=240s", check=True)


def outside(cluster: Cluster) -> str:
    """The plain listener's address for clients on this machine."""
    return f"{cluster.address()}:30092"


def _credentials() -> str:
    """The broker's Secret, and one for each user with the keys that Millrace reads (docs/credentials.md)."""
    authority = Authority("millrace test cluster", days=_CERTIFICATE_DAYS)
    host = SECURE.partition(":")[0]
    keystore = authority.issue(host, f"{host}.cluster.local").decode()
    passwords = {user: secrets.token_urlsafe(16) for user in _USERS}
    ca = authority.certificate_pem.decode()
    made = [_secret("kafka-server", {"keystore.pem": keystore, "cluster.id": new_cluster_id(), **passwords})]
    for user, password in passwords.items():
        keys = {"username": user, "password": password, "sasl.mechanism": "SCRAM-SHA-512", "ca.crt": ca}
        made.append(_secret(f"kafka-{user}", keys))
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": made})


def _secret(name: str, keys: Mapping[str, str]) -> Mapping[str, object]:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": keys}
