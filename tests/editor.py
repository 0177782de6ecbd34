"""Somebody who may edit what is in a namespace of a control plane, at her command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from cluster import binaries
from cluster.plane import ControlPlane
from operator_process import NAMESPACE, ROOT

RBAC = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
# What the chart adds to the cluster's role "edit", of the resource itself.
EDITS_PIPELINES = {
    "apiGroups": ["millrace.dev"],
    "resources": ["consumerpipelines"],
    "verbs": ["get", "list", "watch", "patch"],
}


class Editor:
    """Somebody who may edit what is in the namespace, and her command line."""

    def __init__(self, plane: ControlPlane, folder: Path, name: str = "editor", role: str = "edit") -> None:
        self.plane, self.folder = plane, folder
        account = {"metadata": {"name": name}}
        assert plane.request("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account).status == 201
        whole = {"metadata": {"name": name}, "rules": [EDITS_PIPELINES]}
        assert plane.request("POST", f"{RBAC}/roles", whole).status == 201
        for kind, of in (("ClusterRole", role), ("Role", name)):
            binding = {
                "metadata": {"name": f"{name}-{kind.lower()}"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": of},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
            }
            assert plane.request("POST", f"{RBAC}/rolebindings", binding).status == 201
        self.kubeconfig = plane.kubeconfig_of(NAMESPACE, name)
        (folder / "bin").mkdir(exist_ok=True)
        if not (folder / "bin" / "kubectl").exists():
            (folder / "bin" / "kubectl").symlink_to(binaries.ensure(["kubectl"], build=False)["kubectl"])

    def start(self, *words: object) -> subprocess.Popen[str]:
        """kubectl millrace ..."""
        code = os.pathsep.join(str(ROOT / part) for part in ("crds", "worker"))
        return subprocess.Popen(
            [sys.executable, "-m", "millrace.cli.kubectl", *map(str, words), "-n", NAMESPACE],
            env={
                **os.environ,
                "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
                "PYTHONPATH": code,
                "KUBECONFIG": str(self.kubeconfig),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        with self.start(*words) as process:
            try:
                out, err = process.communicate(timeout=400)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def told(self, *words: object) -> Any:
        done = self.run(*words, "-o", "json")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)
