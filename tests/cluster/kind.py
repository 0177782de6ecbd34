"""A kind cluster by name: made, found again, and removed, whatever an earlier run has left of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from cluster import node as nodes
from cluster.binaries import Say, ensure, root
from cluster.docker import answers, docker
from cluster.node import NodeImage
from cluster.plane import AUDIT_POLICY, events
from millrace.errors import ExitCode, MillraceError

PROGRAMS = ("kind", "kubectl", "helm")
_READY_SECONDS = 600
_MADE_OF = "made-of.yaml"
_POLICY = (
    "/etc/kubernetes/audit-policy.yaml"  # on the control plane's node, and where its API server sees them
)
_LOGS = "/var/log/kubernetes"


class Cluster:
    """One kind cluster, there or not.

    Args:
        name: kind's, and of its folder in the cache.
    """

    def __init__(self, name: str = "millrace") -> None:
        self.name = name
        self.directory = root() / "kind" / name
        self.kubeconfig = self.directory / "kubeconfig"
        self._audit_policy = self.directory / "audit-policy.yaml"

    def up(self, image: NodeImage, say: Say, *, workers: int = 0) -> None:
        """See that it runs, of this image, with so many nodes beside the control plane's, all Ready. One that is
        there and whole is kept; what is left of one that is not is removed.

        Raises MillraceError (SETUP): it can't be made; the end of what kind said is told.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._alone():
            config = self._config(image, workers)
            if self._runs(config):
                say(f"cluster {self.name} is there")
                return
            self._remove(say)
            say(f"making cluster {self.name} of {image.name}")
            self._create(config)
            self._await_nodes(_READY_SECONDS)
            if not image.stock:
                self._check_confined()
            (self.directory / _MADE_OF).write_text(config)

    def down(self, say: Say) -> None:
        """Remove it, or what is left of it."""
        if self.directory.exists():
            with self._alone():
                self._remove(say)
            shutil.rmtree(self.directory)

    def load(self, images: Sequence[str], say: Say) -> None:
        """Bring Docker's images to all nodes; those that are there already cost nothing."""
        kind = str(ensure(["kind"])["kind"])
        for image in images:
            say(f"loading {image}")
            _run([kind, "load", "docker-image", image, f"--name={self.name}"])

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """kubectl as administrator. With `check` a failure raises MillraceError (FAILED)."""
        kubectl = str(ensure(["kubectl"])["kubectl"])
        return _run([kubectl, f"--kubeconfig={self.kubeconfig}", *arguments], stdin=stdin, check=check)

    def is_up(self) -> bool:
        """Whether its API server answers."""
        return (
            self.kubeconfig.exists()
            and self.kubectl("get", "--raw=/readyz", "--request-timeout=5s").returncode == 0
        )

    def address(self) -> str:
        """Of the control plane's node: where its node ports are reached from this machine."""
        path = '{.items[0].status.addresses[?(@.type=="InternalIP")].address}'
        return self.kubectl("get", "nodes", "-o", f"jsonpath={path}", check=True).stdout

    def audited(self) -> Iterator[Mapping[str, Any]]:
        """The audit events so far, one for each request that was answered (a watch: also when it ended)."""
        command = ["docker", "exec", f"{self.name}-control-plane", "cat", f"{_LOGS}/audit.jsonl"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reading:
            assert reading.stdout is not None
            yield from events(reading.stdout)

    def _config(self, image: NodeImage, workers: int) -> str:
        patches: list[object] = [
            {
                "kind": "ClusterConfiguration",
                # with several API servers there would be an election to wait for; and nothing here outlives the cluster
                "etcd": {"local": {"extraArgs": {"unsafe-no-fsync": "true"}}},
                "controllerManager": {
                    "extraArgs": {"leader-elect": "false", "kube-api-qps": "300", "kube-api-burst": "600"}
                },
                "scheduler": {"extraArgs": {"leader-elect": "false"}},
                "apiServer": {
                    "extraArgs": {
                        "audit-log-path": f"{_LOGS}/audit.jsonl",
                        "audit-policy-file": _POLICY,
                        "audit-log-maxsize": "1000",  # MB
                    },
                    "extraVolumes": [
                        {"name": "audit-policy", "hostPath": _POLICY, "mountPath": _POLICY, "readOnly": True},
                        {
                            "name": "audit-logs",
                            "hostPath": _LOGS,
                            "mountPath": _LOGS,
                            "pathType": "DirectoryOrCreate",
                        },
                    ],
                },
            }
        ]
        if not image.stock:
            # as the node's containerd has it
            patches.append({"kind": "KubeletConfiguration", "cgroupDriver": "cgroupfs"})
        control_plane = {
            "role": "control-plane",
            "extraMounts": [
                {"hostPath": str(self._audit_policy), "containerPath": _POLICY, "readOnly": True}
            ],
        }
        return yaml.safe_dump(
            {
                "kind": "Cluster",
                "apiVersion": "kind.x-k8s.io/v1alpha4",
                "networking": {"podSubnet": nodes.PODS, "serviceSubnet": nodes.SERVICES},
                "kubeadmConfigPatches": [yaml.safe_dump(patch) for patch in patches],
                "nodes": [
                    {**role, "image": image.name} for role in (control_plane, *[{"role": "worker"}] * workers)
                ],
            }
        )

    def _runs(self, config: str) -> bool:
        made_of = self.directory / _MADE_OF
        containers = self._containers()
        if not containers or not made_of.exists() or made_of.read_text() != config:
            return False
        states = docker("inspect", "-f", "{{.State.Running}}", *containers).split()
        if set(states) != {"true"}:
            return False
        with contextlib.suppress(MillraceError):
            self._await_nodes(60)
            return True
        return False

    def _create(self, config: str) -> None:
        self._audit_policy.write_text(AUDIT_POLICY)
        kind = str(ensure(["kind"])["kind"])
        command = [kind, "create", "cluster", f"--name={self.name}", f"--kubeconfig={self.kubeconfig}"]
        try:
            _run([*command, "--config=-"], stdin=config)
        except MillraceError:
            self._remove(lambda _: None)
            raise

    def _await_nodes(self, seconds: int) -> None:
        self.kubectl("wait", "--for=condition=Ready", "node", "--all", f"--timeout={seconds}s", check=True)

    def _check_confined(self) -> None:
        """That no address of a service or a pod leaves a node: one that nobody has is refused on the spot."""
        for container in self._containers():
            for unused in (nodes.PODS, nodes.SERVICES):
                address = unused.rpartition(".0.0/")[0] + ".255.250"
                probe = f"timeout 3 bash -c '</dev/tcp/{address}/80'; [ $? = 1 ]"
                try:
                    docker("exec", container, "bash", "-c", probe)
                except MillraceError as error:
                    raise MillraceError(
                        f"a call to {address}, which nobody has, leaves the node",
                        where=container,
                        code=ExitCode.SETUP,
                    ) from error

    def _remove(self, say: Say) -> None:
        self.kubeconfig.unlink(missing_ok=True)
        (self.directory / _MADE_OF).unlink(missing_ok=True)
        if containers := self._containers():
            say(f"removing {len(containers)} nodes of cluster {self.name}")
            docker("rm", "-f", "-v", *containers)

    def _containers(self) -> Sequence[str]:
        if not answers():
            return ()
        label = f"label=io.x-k8s.kind.cluster={self.name}"
        return docker("ps", "-aq", "--filter", label).split()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One at a time makes or removes it."""
        with (self.directory.parent / f"{self.name}.lock").open("w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield


def _run(
    command: Sequence[str], *, stdin: str | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, input=stdin or "", capture_output=True, text=True, check=False, env=os.environ
    )
    if check and done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-25:])
        raise MillraceError(f"`{' '.join(command)}` failed:\n{said}", code=ExitCode.FAILED)
    return done
