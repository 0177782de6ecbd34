"""A claim that is bound, on a control plane that has nobody to make volumes: the scheduler waits for that."""

from __future__ import annotations

from cluster.plane import ControlPlane


def make_claim(plane: ControlPlane, namespace: str, name: str) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    volume = {
        **spec,
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/tmp"},
        "claimRef": {"namespace": namespace, "name": name},
    }
    found = plane.request(
        "POST", "/api/v1/persistentvolumes", {"metadata": {"name": f"{namespace}-{name}"}, "spec": volume}
    )
    assert found.status == 201, found.message
    claim = {**spec, "resources": {"requests": {"storage": "1Gi"}}}
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    found = plane.request("POST", path, {"metadata": {"name": name}, "spec": claim})
    assert found.status == 201, found.message
