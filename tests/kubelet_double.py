"""A kubelet for single pods on a control plane's node that is not there: it runs a pod's container as a process of this
machine, with what the pod mounts, and serves its log to the API server as a kubelet does.

kwok only claims that pods run. Where a pod's work matters, this does it: the command is the pod's own (`millrace` is this
project's), volumes are made of the API server's ConfigMaps and Secrets, and paths to them are those of a temporary
directory. Everything else about the pod (scheduling, admission, status, deletion) is the API server's and kwok's.
"""

from __future__ import annotations

import base64
import http.server
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from certificates import Authority
from cluster.plane import ControlPlane
from millrace.cli.kubectl.errand.pod import CONTAINER
from millrace.clock import Deadline, SystemClock

ROOT = Path(__file__).parents[1]


@dataclass
class _Container:
    """One that was started: its process, and the file that both of its streams are written to."""

    process: subprocess.Popen[bytes]
    log: Path
    ended: threading.Event = field(default_factory=threading.Event)


class KubeletDouble:
    """Alive in a `with`. Pods of errands are run; the others are left to kwok."""

    def __init__(self, plane: ControlPlane, namespace: str, folder: Path) -> None:
        self._plane, self._folder = plane, folder
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._namespace = namespace
        self._containers: dict[str, _Container] = {}  # by the pod's uid
        self._threads: list[threading.Thread] = []  # one for each
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())

    def __enter__(self) -> KubeletDouble:
        certificate = self._folder / "kubelet.pem"
        certificate.write_bytes(Authority("kubelet").issue("localhost"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        node = self._plane.request("GET", "/api/v1/nodes/pods").body
        node["status"]["addresses"] = [{"type": "InternalIP", "address": "127.0.0.1"}]
        node["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": self._server.server_port}}
        told = self._plane.request("PUT", "/api/v1/nodes/pods/status", node)
        assert told.status == 200, told.message
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(120)
        for container in self._containers.values():
            container.process.kill()
        for thread in self._threads:
            thread.join(120)
        self._server.shutdown()
        self._server.server_close()

    def _run(self) -> None:
        begun: set[str] = set()
        while not self._end.wait(0.1):
            reply = self._plane.request("GET", self._pods)
            if reply.status != 200:
                continue
            pods = {pod["metadata"]["uid"]: pod for pod in reply.body["items"]}
            for uid, pod in pods.items():
                mine = pod["spec"]["containers"][0]["name"] == CONTAINER
                if mine and uid not in begun and pod.get("status", {}).get("phase") == "Running":
                    begun.add(uid)
                    self._threads.append(threading.Thread(target=self._work, args=(pod,)))
                    self._threads[-1].start()
            for uid, container in list(self._containers.items()):
                if uid not in pods or "deletionTimestamp" in pods[uid]["metadata"]:
                    container.process.terminate()

    def _work(self, pod: Mapping[str, Any]) -> None:
        container, uid = pod["spec"]["containers"][0], pod["metadata"]["uid"]
        folder = self._folder / uid
        paths = {
            mount["mountPath"]: self._volume(pod, mount["name"], folder)
            for mount in container["volumeMounts"]
        }
        words = [_outside(word.replace("$$(", "$("), paths) for word in container["args"]]
        assert container["command"] == ["millrace"]
        code = os.pathsep.join(str(ROOT / part) for part in ("crds", "worker"))
        log = folder / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "millrace.cli", *words],
                env={"PATH": os.environ["PATH"], "PYTHONPATH": code}
                | {variable["name"]: variable.get("value", "") for variable in container.get("env", ())},
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        found = self._containers[uid] = _Container(process, log)
        code_of_end = process.wait()
        found.ended.set()
        self._tell(pod, code_of_end)

    def _volume(self, pod: Mapping[str, Any], name: str, folder: Path) -> Path:
        [volume] = [one for one in pod["spec"]["volumes"] if one["name"] == name]
        place = folder / name
        place.mkdir(parents=True)
        if "configMap" in volume:
            kept = self._get("configmaps", volume["configMap"]["name"]).get("data", {})
            found = {key: text.encode() for key, text in kept.items()}
        elif "secret" in volume:
            kept = self._get("secrets", volume["secret"]["secretName"]).get("data", {})
            found = {key: base64.b64decode(text) for key, text in kept.items()}
        else:
            found = {}
        for key, content in found.items():
            (place / key).write_bytes(content)
        return place

    def _get(self, kind: str, name: str) -> Mapping[str, Any]:
        reply = self._plane.request("GET", f"/api/v1/namespaces/{self._namespace}/{kind}/{name}")
        assert reply.status == 200, reply.message
        return reply.body

    def _tell(self, pod: Mapping[str, Any], code: int) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "finishedAt": now}
        container = {
            "name": CONTAINER,
            "image": "",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": ended},
        }
        path = f"{self._pods}/{pod['metadata']['name']}"
        live = self._plane.request("GET", path).body
        if live.get("metadata", {}).get("uid") == pod["metadata"]["uid"]:  # else it was deleted meanwhile
            phase = "Succeeded" if code == 0 else "Failed"
            status = {**live["status"], "phase": phase, "containerStatuses": [container]}
            self._plane.request("PUT", f"{path}/status", {**live, "status": status})

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        double = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                """/containerLogs/NAMESPACE/POD/CONTAINER?follow=true"""
                path, _, query = self.path.partition("?")
                parts = path.split("/")
                found = double._started(parts[3]) if parts[1:2] == ["containerLogs"] else None
                self.send_response(404 if found is None else 200)
                self.send_header("Content-Type", "text/plain")
                self.end_headers()
                if found is not None:
                    for piece in _pieces(found, follow="follow=true" in query):
                        self.wfile.write(piece)
                        self.wfile.flush()

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler

    def _started(self, name: str) -> _Container | None:
        """That of the pod which has this name now: kwok says Running before it is."""
        deadline = Deadline.after(SystemClock(), 60)
        while not deadline.expired() and not self._end.is_set():
            reply = self._plane.request("GET", f"{self._pods}/{name}")
            found = self._containers.get(reply.body.get("metadata", {}).get("uid", ""))
            if reply.status != 200 or found is not None:
                return found
            self._end.wait(0.05)
        return None


def _pieces(container: _Container, *, follow: bool) -> Iterator[bytes]:
    with container.log.open("rb") as log:
        while True:
            last = container.ended.wait(0.02) or not follow
            while piece := log.read(65536):
                yield piece
            if last:
                return


def _outside(word: str, paths: Mapping[str, Path]) -> str:
    """An option whose value is a path inside of the container, as this machine has it."""
    option, _, value = word.partition("=")
    for inside, outside in paths.items():
        if value == inside or value.startswith(f"{inside}/"):
            return f"{option}={outside}{value.removeprefix(inside)}"
    return word
