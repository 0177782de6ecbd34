"""Helm and the charts, as tests use them."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import binaries
from cluster.binaries import versions
from millrace.errors import ExitCode, MillraceError

CHARTS = Path(__file__).parents[1] / "charts"
NAMES = ("millrace", "millrace-crds")


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Skips the test where Helm is neither there nor to be fetched; with MILLRACE_REQUIRE_CLUSTER=1 it fails."""
    try:
        program = binaries.ensure(["helm"], build=False)["helm"]
    except MillraceError as error:
        if error.code is not ExitCode.SETUP or os.environ.get("MILLRACE_REQUIRE_CLUSTER") == "1":
            raise
        pytest.skip(f"NO HELM HERE: {error}")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def template(chart: str, values: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    """`helm template` of release `r` in namespace `ns`."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(dict(values), file)
        file.flush()
        known = ("--kube-version", versions()["KUBERNETES"])
        return helm("template", "r", str(CHARTS / chart), "-n", "ns", "-f", file.name, *known)


def rendered(chart: str, values: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    done = template(chart, values)
    assert done.returncode == 0, done.stderr
    return [tree for tree in yaml.safe_load_all(done.stdout) if tree]
