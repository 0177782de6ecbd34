"""What of `kubectl millrace` writes to the cluster, or asks whether it could: pause, resume, restart, validate."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from millrace.cli.kubectl.client import PIPELINES, Kubectl
from millrace.clock import SystemClock
from millrace_api.pipeline import RESTARTED


def suspend(kubectl: Kubectl, name: str, suspended: bool) -> None:
    """Raises KubectlFailed."""
    set_suspend(kubectl, name, suspended=suspended)
    then = (
        "workers finish what they have taken, commit, and end; its place is kept"
        if suspended
        else "workers start, and go on where it stopped"
    )
    _say(f"{name} {'is paused' if suspended else 'goes on'}: {then}")


def set_suspend(kubectl: Kubectl, name: str, *, suspended: bool) -> None:
    """Without a word. Raises KubectlFailed."""
    _patch(kubectl, name, {"spec": {"suspend": suspended}})


def restart(kubectl: Kubectl, name: str) -> None:
    """Raises KubectlFailed."""
    now = datetime.fromtimestamp(SystemClock().time(), UTC).isoformat(timespec="seconds")
    _patch(kubectl, name, {"metadata": {"annotations": {RESTARTED: now}}})
    _say(f"{name} restarts: its workers one after the other, each after it has drained")


def validate(kubectl: Kubectl, manifest: Path) -> None:
    """The manifest by itself, then as the cluster's API server sees it. Nothing is changed.

    Raises: ManifestError, InvalidManifest, KubectlFailed.
    """
    from millrace.worker.manifest import read

    name = read(manifest).pipeline.metadata.name
    told = kubectl.run("apply", "--dry-run=server", "--filename", str(manifest))
    _say(f"{manifest}: pipeline {name} is valid, and the cluster would take it:")
    for line in told.splitlines():
        _say(f"  {line}")


def _patch(kubectl: Kubectl, name: str, patch: object) -> None:
    kubectl.run("patch", PIPELINES, name, "--type=merge", "--patch", json.dumps(patch))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
