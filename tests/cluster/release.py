"""Millrace on a cluster as a user installs it: the images of this checkout, and both charts by Helm."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping

from cluster import products
from cluster.binaries import Say, ensure
from cluster.kind import Cluster
from millrace.errors import ExitCode, MillraceError

NAMESPACE = "millrace-system"
NAME = "millrace"
_CHARTS = products.ROOT / "charts"
_SECONDS = 600


def install(cluster: Cluster, say: Say, **values: object) -> None:
    """Install or upgrade; returns when the operator runs. `values`: more of the chart's.

    Raises MillraceError (FAILED): Helm's own words.
    """
    images = {"image": products.image("operator", say), "workerImage": products.image("worker", say)}
    cluster.load(list(images.values()), say)
    say("installing the charts")
    install_resource(cluster)
    _upgrade(cluster, NAME, {**{key: _image(tag) for key, tag in images.items()}, **values})


def install_resource(cluster: Cluster) -> None:
    """The ConsumerPipeline alone, by its chart; returns when it is served."""
    _upgrade(cluster, f"{NAME}-crds", {})
    established = ("--for=condition=Established", "crd/consumerpipelines.millrace.dev")
    cluster.kubectl("wait", *established, f"--timeout={_SECONDS}s", check=True)


def uninstall(cluster: Cluster) -> None:
    """The operator; the resource stays, and the pipelines."""
    _helm(cluster, "uninstall", NAME, "--wait", "--ignore-not-found")


def _upgrade(cluster: Cluster, chart: str, values: Mapping[str, object]) -> None:
    _helm(
        cluster,
        *("upgrade", "--install", chart, str(_CHARTS / chart), "--create-namespace"),
        *("--wait", f"--timeout={_SECONDS}s", "--reset-values"),
        *(f"--set-json={key}={json.dumps(value)}" for key, value in values.items()),
    )


def _helm(cluster: Cluster, *arguments: str) -> None:
    helm = ensure(["helm"])["helm"]
    command = [str(helm), f"--kubeconfig={cluster.kubeconfig}", "-n", NAMESPACE, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()
        raise MillraceError(f"`helm {' '.join(arguments[:3])}` failed:\n{said}", code=ExitCode.FAILED)


def _image(tag: str) -> Mapping[str, str]:
    repository, _, version = tag.rpartition(":")
    return {"repository": repository, "tag": version}
