"""The user's `kubectl`, and what its failures mean."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millrace.errors import ExitCode, MillraceError

PIPELINES: Final = "consumerpipelines.millrace.dev"


@dataclass(frozen=True, slots=True)
class Scope:
    """Which cluster and namespace; None: what kubectl's current context says."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None

    def options(self) -> list[str]:
        given = {
            "--namespace": self.namespace,
            "--context": self.context,
            "--kubeconfig": self.kubeconfig,
        }
        return [f"{name}={value}" for name, value in given.items() if value]


class KubectlFailed(MillraceError):
    """kubectl, or the API server behind it, refused. `reason`: the API's own word (NotFound, Forbidden ...), or ""."""

    def __init__(self, what: str, *, remedy: str, code: ExitCode, reason: str = "") -> None:
        super().__init__(what, remedy=remedy, code=code)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Runs it. Each call raises KubectlFailed."""

    scope: Scope

    def run(self, *words: str, stdin: str | None = None) -> str:
        """Its standard output."""
        try:
            done = subprocess.run(
                self.command(*words),
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
        except OSError as error:
            raise not_to_be_started(error) from error
        if done.returncode != 0:
            raise failed(done.stderr)
        return done.stdout

    def json(self, *words: str) -> Mapping[str, object]:
        found = json.loads(self.run(*words, "-o", "json"))
        assert isinstance(found, dict)
        return found

    def stream(self, *words: str, seconds: float | None = None) -> Generator[str, None, None]:
        """Lines of its standard output as they come, for so many seconds at most (None: until it ends)."""
        try:
            process = subprocess.Popen(
                self.command(*words),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise not_to_be_started(error) from error
        assert process.stdout is not None
        end = threading.Timer(seconds, process.terminate) if seconds is not None else None
        try:
            if end is not None:
                end.start()
            for line in process.stdout:
                yield line.rstrip("\n")
            _, said = process.communicate()
            if process.returncode > 0:
                raise failed(said)
        finally:
            if end is not None:
                end.cancel()
            process.terminate()
            process.wait()

    def command(self, *words: str) -> Sequence[str]:
        """Its command line."""
        program = shutil.which("kubectl")
        if program is None:
            raise MillraceError(
                "there is no kubectl on this machine's PATH",
                remedy="install it: https://kubernetes.io/docs/tasks/tools/",
                code=ExitCode.SETUP,
            )
        return [program, *self.scope.options(), *words]


def not_to_be_started(error: OSError) -> MillraceError:
    return MillraceError(
        f"kubectl can't be started: {error.strerror}",
        remedy="see that it is a program that runs here",
        code=ExitCode.SETUP,
    )


_REASON: Final = re.compile(r"Error from server \((\w+)\)")
_BY_REASON: Final[Mapping[str, tuple[ExitCode, str]]] = {
    "NotFound": (
        ExitCode.USAGE,
        "`kubectl millrace status` lists what is there; --namespace and --context say where",
    ),
    "Forbidden": (
        ExitCode.CREDENTIALS,
        "ask for the right in this namespace; Millrace's chart adds pipelines to the roles view, edit and admin",
    ),
    "Unauthorized": (ExitCode.CREDENTIALS, "log in to the cluster anew"),
    "Invalid": (ExitCode.MANIFEST, "mend what is named by its path"),
    "BadRequest": (ExitCode.MANIFEST, "mend what is named by its path"),
    "AlreadyExists": (ExitCode.BUSY, "look what is there already"),
    "Conflict": (ExitCode.BUSY, "somebody else changed it at the same moment: try again"),
}
# What kubectl says of itself, with no reason of the API's.
_BY_TEXT: Final[Sequence[tuple[str, ExitCode, str]]] = (
    (r"is invalid:|error validating|error parsing|strict decoding", ExitCode.MANIFEST, "mend what is named"),
    (
        r"doesn't have a resource type|no matches for kind",
        ExitCode.SETUP,
        "Millrace's chart millrace-crds is not installed in this cluster",
    ),
    (
        r"must be logged in|[Uu]nauthorized|certificate|getting credentials",
        ExitCode.CREDENTIALS,
        "log in to the cluster anew; `kubectl config current-context` says which one is meant",
    ),
    (
        r"refused|no such host|i/o timeout|Unable to connect|TLS handshake timeout|no route to host|was refused",
        ExitCode.BROKER_UNREACHABLE,
        "check --context, and that the cluster is up",
    ),
    (
        r"context .* does not exist|context was not found|no configuration|stat .*no such file|current-context",
        ExitCode.USAGE,
        "see `kubectl config get-contexts`",
    ),
)


def failed(said: str) -> KubectlFailed:
    """The failure that kubectl has written to its standard error stream."""
    lines = [line for line in said.strip().splitlines() if line.strip() and not _NOISE.match(line)]
    what = "\n".join(lines) or "kubectl failed and said nothing"
    found = _REASON.search(what)
    reason = found[1] if found else ""
    if reason in _BY_REASON:
        code, remedy = _BY_REASON[reason]
        return KubectlFailed(what, remedy=remedy, code=code, reason=reason)
    for pattern, code, remedy in _BY_TEXT:
        if re.search(pattern, what):
            return KubectlFailed(what, remedy=remedy, code=code, reason=reason)
    return KubectlFailed(what, remedy="", code=ExitCode.FAILED, reason=reason)


_NOISE: Final = re.compile(
    r"[EWI]\d{4} \d\d:\d\d:\d\d\.\d+ "
)  # klog's lines, which tell the same several times
