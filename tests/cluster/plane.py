"""A Kubernetes control plane alone, as processes of this machine: no container, no kubelet.

etcd, the API server and the controller manager are the real ones, so a resource meets real validation, defaulting,
admission, garbage collection and StatefulSets. With `pods`, a scheduler and kwok let pods appear to run on a node that
is not there. Several can run at once: each has a directory and ports of its own. All is thrown away at the end.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from certificates import Authority
from cluster import binaries
from cluster.binaries import HERE, Say
from millrace.clock import Deadline, SystemClock
from millrace.errors import ExitCode, MillraceError
from millrace.host.tether import tethered

_START_SECONDS = 300.0  # far more than it takes, for a machine with a build beside
_PODS = ("kube-scheduler", "kwok")


@dataclass(frozen=True, slots=True)
class Reply:
    """What the API server answered: the HTTP status and the object (a Status where it refused)."""

    status: int
    body: dict[str, Any]

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))


class ControlPlane:
    """etcd, API server and controllers, alive between `start` and `stop`, or in a `with`.

    They die with the process that started them (see `millrace.host.tether`). Not thread-safe, but for `request`.

    Args:
        directory: of its own; made if need be, and emptied of data by `stop`, which leaves the logs.
        controllers: also run the controller manager: garbage collection, StatefulSets, namespaces, service accounts.
        pods: also run a scheduler, and kwok with one node of that name: pods become Ready without running.
    """

    def __init__(self, directory: Path, *, controllers: bool = True, pods: bool = False) -> None:
        self.directory = directory
        self.kubeconfig = directory / "kubeconfig"
        self.audit_log = directory / "audit.jsonl"
        self._controllers, self._pods = controllers, pods
        self._clock = SystemClock()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, Sequence[str]] = {}
        self._port, self._token, self._ca = 0, "", ""
        self._tls = ssl.create_default_context()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    def start(self, *, build: bool = True, say: Say = lambda _: None) -> Self:
        """Returns when it is ready for use: the API server answers, and the controllers have made what each namespace
        has from the start.

        build, say: as `binaries.ensure` has them. Raises MillraceError (SETUP): its programs are not to be had, or one
        of them ended; its log is told.
        """
        programs = binaries.ensure(needed(self._controllers, self._pods), build=build, say=say)
        for _ in range(3):
            self._configure(programs)
            try:
                self._start_all(Deadline.after(self._clock, _START_SECONDS))
                return self
            except _PortTaken:
                self.stop()
        raise MillraceError("no free ports are to be had", where=str(self.directory), code=ExitCode.BUSY)

    def stop(self) -> None:
        """At once: what they know is thrown away anyway, and an orderly end takes the API server long."""
        for name in list(self._running):
            self.kill(name)
        shutil.rmtree(self.directory / "etcd", ignore_errors=True)

    def kill(self, program: str) -> None:
        """SIGKILL to one of its programs ("kube-apiserver"); `revive` brings it back with all that it knew."""
        process = self._running.pop(program)
        process.kill()
        process.wait()

    def revive(self, program: str) -> None:
        self._run(program)
        self._await_ready(Deadline.after(self._clock, _START_SECONDS))

    def request(
        self, method: str, path: str, body: object = None, *, accept: str = "application/json"
    ) -> Reply:
        """One request as administrator. A PATCH is a server-side apply by the field manager "test" unless `path` names
        another.
        """
        apply = method == "PATCH"
        if apply and "fieldManager=" not in path:
            path += f"{'&' if '?' in path else '?'}fieldManager=test"
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Accept": accept,
            "Content-Type": "application/apply-patch+yaml" if apply else "application/json",
        }
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=30, context=self._tls)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        is_json = answer.headers.get_content_type() == "application/json"
        return Reply(answer.status, json.loads(text) if is_json else {"message": text})

    def kubectl(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """kubectl as administrator; look at `returncode`, `stdout`, `stderr`."""
        command = [
            str(binaries.ensure(["kubectl"])["kubectl"]),
            f"--kubeconfig={self.kubeconfig}",
            *arguments,
        ]
        home = {"HOME": str(self.directory)}  # its discovery cache
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=False, env={**os.environ, **home}
        )

    def serve(self, crd: Path) -> None:
        """Apply a CustomResourceDefinition and wait until it is served, and described, which comes later. Raises
        AssertionError.
        """
        clock = SystemClock()
        deadline = Deadline.after(clock, 120)

        def insist(*arguments: str, tells: str = "") -> None:
            told = self.kubectl(*arguments)
            while told.returncode != 0 or tells not in told.stdout:
                assert not deadline.expired(), told.stderr
                clock.sleep(0.2)
                told = self.kubectl(*arguments)

        insist("apply", "--server-side", "-f", str(crd))
        # (fails where there are no conditions yet at all)
        insist("wait", "--for=condition=Established", "--timeout=60s", "-f", str(crd))
        spec = yaml.safe_load(crd.read_text())["spec"]
        path = f"/openapi/v3/apis/{spec['group']}/{spec['versions'][-1]['name']}"
        insist("get", "--raw", path, tells=f'"kind":"{spec["names"]["kind"]}"')

    def kubeconfig_of(self, namespace: str, service_account: str) -> Path:
        """The kubeconfig of a service account that exists, good for a day: what it does is in the audit log under
        system:serviceaccount:NAMESPACE:NAME.
        """
        reply = self.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token",
            {"spec": {"expirationSeconds": 86_400}},
        )
        if reply.status != 201:
            raise RuntimeError(f"no token for {namespace}/{service_account}: {reply.message}")
        file = self.directory / f"{namespace}.{service_account}.kubeconfig"
        self._write_kubeconfig(file, service_account, reply.body["status"]["token"])
        return file

    def audited(self) -> Iterator[Mapping[str, Any]]:
        """The audit events so far, one for each request that was answered (a watch: also when it ended)."""
        with self.audit_log.open() as log:
            yield from events(log)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _configure(self, programs: Mapping[str, Path]) -> None:
        here = self.directory
        here.mkdir(parents=True, exist_ok=True)
        client, peer, self._port, controllers, scheduler, kwok = _free_ports(6)
        etcd = f"http://127.0.0.1:{client}"
        authority = Authority("millrace test control plane")
        self._ca = authority.certificate_pem.decode()
        self._tls = ssl.create_default_context(cadata=self._ca)
        self._token = secrets.token_urlsafe(16)
        _write_secret(here / "server.pem", authority.issue("localhost").decode())
        _write_secret(here / "accounts.pem", _signing_key())
        _write_secret(here / "tokens.csv", f"{self._token},admin,admin,system:masters\n")
        (here / "ca.pem").write_text(self._ca)
        (here / "audit-policy.yaml").write_text(AUDIT_POLICY)
        self._write_kubeconfig(self.kubeconfig, "admin", self._token)
        as_admin = [
            f"--{use}kubeconfig={self.kubeconfig}" for use in ("", "authentication-", "authorization-")
        ]
        kinds: dict[str, Sequence[str]] = {
            "etcd": [
                f"--data-dir={here / 'etcd'}",
                "--unsafe-no-fsync",  # nothing in it outlives a test
                "--log-level=error",
                f"--listen-client-urls={etcd}",
                f"--advertise-client-urls={etcd}",
                f"--listen-peer-urls=http://127.0.0.1:{peer}",
                f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
                f"--initial-cluster=default=http://127.0.0.1:{peer}",
            ],
            "kube-apiserver": [
                f"--etcd-servers={etcd}",
                "--bind-address=127.0.0.1",
                f"--secure-port={self._port}",
                # one file with key and certificate serves for both
                f"--tls-cert-file={here / 'server.pem'}",
                f"--tls-private-key-file={here / 'server.pem'}",
                f"--cert-dir={here}",
                f"--token-auth-file={here / 'tokens.csv'}",
                "--authorization-mode=RBAC",
                "--allow-privileged",
                "--service-cluster-ip-range=10.96.0.0/16",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={here / 'accounts.pem'}",
                f"--service-account-signing-key-file={here / 'accounts.pem'}",
                "--endpoint-reconciler-type=none",
                f"--audit-log-path={self.audit_log}",
                f"--audit-policy-file={here / 'audit-policy.yaml'}",
            ],
            "kube-controller-manager": [
                *as_admin,
                "--bind-address=127.0.0.1",
                f"--secure-port={controllers}",
                f"--cert-dir={here}",
                f"--root-ca-file={here / 'ca.pem'}",
                f"--service-account-private-key-file={here / 'accounts.pem'}",
                "--use-service-account-credentials",
                "--leader-elect=false",
                # with its default of 20 a second it waits seconds for itself at the start
                "--kube-api-qps=300",
                "--kube-api-burst=600",
            ],
            "kube-scheduler": [
                *as_admin,
                "--bind-address=127.0.0.1",
                f"--secure-port={scheduler}",
                f"--cert-dir={here}",
                "--leader-elect=false",
                "--kube-api-qps=300",
                "--kube-api-burst=600",
            ],
            "kwok": [
                f"--config={HERE / 'kwok.yaml'}",
                f"--kubeconfig={self.kubeconfig}",
                "--manage-all-nodes=true",
                "--cidr=10.244.0.0/16",
                "--node-ip=10.0.0.1",
                f"--server-address=127.0.0.1:{kwok}",
            ],
        }
        self._commands = {
            name: [str(path), *kinds[name]] for name, path in programs.items() if name != "kubectl"
        }

    def _write_kubeconfig(self, file: Path, user: str, token: str) -> None:
        cluster = {"server": self.url, "certificate-authority": str(self.directory / "ca.pem")}
        _write_secret(
            file,
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "plane",
                    "clusters": [{"name": "plane", "cluster": cluster}],
                    "users": [{"name": user, "user": {"token": token}}],
                    "contexts": [{"name": "plane", "context": {"cluster": "plane", "user": user}}],
                }
            ),
        )

    def _start_all(self, deadline: Deadline) -> None:
        self._run("etcd")
        self._run("kube-apiserver")
        self._await_ready(deadline)
        for name in self._commands.keys() - {"etcd", "kube-apiserver"}:
            self._run(name)
        if self._controllers:
            account = "/api/v1/namespaces/default/serviceaccounts/default"
            self._await(lambda: self.request("GET", account).status == 200, deadline)
        if self._pods:
            self.request("POST", "/api/v1/nodes", _NODE)
            self._await(self._node_is_ready, deadline)

    def _run(self, name: str) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            command = tethered(self._commands[name])
            self._running[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=self.directory
            )

    def _await_ready(self, deadline: Deadline) -> None:
        def ready() -> bool:
            try:
                return self.request("GET", "/readyz").status == 200
            except (OSError, http.client.HTTPException):
                return False

        self._await(ready, deadline)

    def _node_is_ready(self) -> bool:
        conditions = self.request("GET", "/api/v1/nodes/pods").body.get("status", {}).get("conditions", [])
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)

    def _await(self, condition: Callable[[], bool], deadline: Deadline) -> None:
        while not condition():
            for name, process in self._running.items():
                if process.poll() is not None:
                    raise self._ended(name, process.returncode)
            if deadline.expired():
                raise MillraceError(
                    f"the control plane is not ready after {_START_SECONDS:.0f} s",
                    where=str(self.directory),
                    remedy="see the logs there",
                    code=ExitCode.SETUP,
                )
            self._clock.sleep(0.03)

    def _ended(self, name: str, code: int) -> Exception:
        said = (self.directory / f"{name}.log").read_text(errors="replace")
        if "address already in use" in said:
            return _PortTaken()
        return MillraceError(
            f"{name} ended with code {code}; the last that its log says:\n"
            + "\n".join(said.splitlines()[-5:]),
            where=str(self.directory / f"{name}.log"),
            code=ExitCode.SETUP,
        )


class _PortTaken(Exception):
    """Somebody took a port between the moment it was found free and its use."""


def events(log: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """Those of an audit log, by its lines."""
    return (json.loads(line) for line in log if line.endswith("\n"))  # else it is still being written


def needed(controllers: bool = True, pods: bool = False) -> Sequence[str]:
    """The programs of such a control plane."""
    wanted = [name for name in binaries.CONTROL_PLANE if controllers or name != "kube-controller-manager"]
    return [*wanted, *(_PODS if pods else ())]


def _free_ports(count: int) -> Sequence[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _signing_key() -> str:
    """Signs the tokens of service accounts. In the older form of PEM: in PKCS#8 the API server finds no public key."""
    return (
        ec.generate_private_key(ec.SECP256R1())
        .private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        .decode()
    )


def _write_secret(file: Path, text: str) -> None:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        stream.write(text)


AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
"""

_NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "pods", "labels": {"kubernetes.io/hostname": "pods", "kubernetes.io/os": "linux"}},
    "spec": {"podCIDR": "10.244.0.0/16"},
}
