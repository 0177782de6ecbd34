"""The image of kind's nodes: the stock one where it can be pulled, else one of our own, built from packages alone.

Ours is Debian with systemd and containerd (node/), Kubernetes from Go modules, and in its containerd all images that
kubeadm asks for, made of the same programs: on a machine where the node image can't be pulled, they can't either.
Further images are put in on the way (`preload`): that costs nothing when a cluster is made of it, while `kind load` takes
some 4 s per 100 MB each time.
"""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster import images
from cluster.binaries import HERE, NETWORK, NODE, Say, ensure, versions
from cluster.docker import docker, has_image, pulled
from cluster.images import PREFIX, Image
from millrace.clock import Deadline, SystemClock
from millrace.errors import ExitCode, MillraceError

PODS, SERVICES = "10.244.0.0/16", "10.96.0.0/16"  # ranges of addresses; kind's defaults
_FOLDER = HERE / "node"
_COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
_PROGRAMS = {
    *NODE,
    *NETWORK,
    *_COMPONENTS,
    "kube-proxy",
    "etcd",
    "coredns",
    "pause",
    "local-path-provisioner",
}


@dataclass(frozen=True, slots=True)
class NodeImage:
    """What `kind create cluster --image` takes.

    Attributes:
        stock: whether it is kind's own.
        preloaded: the images that are in it already.
    """

    name: str
    stock: bool
    preloaded: frozenset[str] = frozenset()


def node_image(preload: Sequence[str], say: Say) -> NodeImage:
    """The stock image, pulled; or ours, built if need be. Raises MillraceError (SETUP): neither can be had."""
    stock = versions()["KIND_NODE_IMAGE"]
    if pulled(stock, say):
        return NodeImage(stock, stock=True)
    return NodeImage(_ours(preload, say), stock=False, preloaded=frozenset(preload))


def _ours(preload: Sequence[str], say: Say) -> str:
    programs = ensure(_PROGRAMS, say=say)
    asked_for = _names_kubeadm_asks_for(programs["kubeadm"])
    debian = images.debian_base(say)
    provisioner = images.from_program(
        "local-path-provisioner",
        programs["local-path-provisioner"],
        "/usr/local/bin/local-path-provisioner",
        say,
    )
    components = {asked_for[name]: _component(name, programs, debian, say) for name in asked_for}
    bare = _bare(programs, asked_for["pause"], debian, provisioner, say)
    inside = {**components, **{name: name for name in (provisioner, debian, *preload)}}
    mark = hashlib.sha256(repr((bare, sorted(inside.items()))).encode()).hexdigest()[:16]
    name = f"{PREFIX}/node:{mark}"
    if not has_image(name):
        say(f"putting {len(inside)} images into {name}")
        _put_in(bare, inside, name)
        images.prune("node")
    return name


def _names_kubeadm_asks_for(kubeadm: Path) -> Mapping[str, str]:
    """Full names by their last part: {"pause": "registry/pause:3.10", ...}."""
    listed = subprocess.run(
        [kubeadm, "config", "images", "list", f"--kubernetes-version={versions()['KUBERNETES']}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    return {name.rpartition("/")[2].partition(":")[0]: name for name in listed}


def _component(name: str, programs: Mapping[str, Path], debian: str, say: Say) -> str:
    """Our image in the place of one that kubeadm asks for."""
    if name == "kube-proxy":
        context = {name: programs[name]}
        return images.build(Image(name, _FOLDER / "proxy.Dockerfile", context, {"DEBIAN": debian}), say)
    # where the manifests, or the image's own entry point, expect them
    folder = "" if name in ("coredns", "pause") else "/usr/local/bin"
    return images.from_program(name, programs[name], f"{folder}/{name}", say)


def _bare(programs: Mapping[str, Path], pause: str, debian: str, provisioner: str, say: Say) -> str:
    system = images.build(Image("node-os", _FOLDER / "os.Dockerfile", {}, {"DEBIAN": debian}), say)
    context = {
        **{f"bin/{name}": programs[name] for name in NODE},
        **{f"cni/{name}": programs[name] for name in NETWORK},
        "files": _FOLDER / "files",
        "manifests": _FOLDER / "manifests",
    }
    arguments = {
        "OS": system,
        "KUBERNETES": versions()["KUBERNETES"],
        "PODS": PODS,
        "SERVICES": SERVICES,
        "PAUSE_IMAGE": pause,
        "PROVISIONER_IMAGE": provisioner,
        "HELPER_IMAGE": debian,
    }
    return images.build(Image("node-bare", _FOLDER / "node.Dockerfile", context, arguments), say)


def _put_in(bare: str, inside: Mapping[str, str], name: str) -> None:
    """Commit `bare` as `name`, with Docker's images `inside` in its containerd under the names that are their keys."""
    container = docker("run", "-d", "--privileged", "--entrypoint=sleep", bare, "infinity")
    try:
        docker("exec", "--privileged", "-d", container, "containerd")
        _await_containerd(container)
        _import(container, sorted(set(inside.values())))
        for wanted, ours in inside.items():
            if wanted != ours:
                docker("exec", container, *_CTR, "images", "tag", f"docker.io/{ours}", wanted)
                docker("exec", container, *_CTR, "images", "rm", f"docker.io/{ours}")
        docker("exec", container, "bash", "-ec", _SETTLE)
        entry = 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]'
        docker("commit", "-c", entry, container, name)
    finally:
        with contextlib.suppress(MillraceError):
            docker("rm", "-f", "-v", container)


_CTR = ("ctr", "-n", "k8s.io")

# Docker copies an image's /var to the volume of each node, file by file, and the images are most of it: they move to
# where it does not.
_SETTLE = """
kill $(pidof containerd)
while pidof containerd >/dev/null; do sleep 0.1; done
cd /var/lib/containerd
mv io.containerd.content.v1.content /kind/content
ln -s /kind/content io.containerd.content.v1.content
rm -rf /run/containerd /tmp/*
: >/etc/machine-id
"""


def _await_containerd(container: str) -> None:
    clock = SystemClock()
    deadline = Deadline.after(clock, 60)
    while True:
        try:
            docker("exec", container, "ctr", "version")
            return
        except MillraceError:
            if deadline.expired():
                raise
            clock.sleep(0.2)


def _import(container: str, names: Sequence[str]) -> None:
    """From Docker into the container's containerd. Nothing is unpacked: overlayfs can't have its upper folder on
    Docker's overlay2; each node does that on its own volume.
    """
    saving = subprocess.Popen(["docker", "save", *names], stdout=subprocess.PIPE)
    command = ["docker", "exec", "--privileged", "-i", container, *_CTR, "images", "import"]
    done = subprocess.run(
        [*command, "--all-platforms", "--no-unpack", "--digests", "-"],
        stdin=saving.stdout,
        capture_output=True,
        text=True,
        check=False,
    )
    if saving.wait() or done.returncode:
        raise MillraceError(
            f"images can't be put into the node image:\n{done.stderr[-2000:]}", code=ExitCode.SETUP
        )
