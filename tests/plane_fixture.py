"""A real API server for tests: `plane`, one in a test process, started by the first test that asks; `namespace` in it.

Where its programs are neither in the cache nor to be fetched, these tests are skipped with the reason (building them
takes longer than a test may: `make plane` does that); with MILLRACE_REQUIRE_CLUSTER=1, as `make e2e` sets it, they fail.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.plane import ControlPlane
from millrace.errors import ExitCode, MillraceError


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """With controllers, without pods."""
    control_plane = ControlPlane(tmp_path_factory.mktemp("plane"))
    start_or_skip(control_plane)
    yield control_plane
    control_plane.stop()


@pytest.fixture
def start_plane(tmp_path: Path) -> Iterator[Callable[..., ControlPlane]]:
    """start_plane(**what ControlPlane takes): one of the test's own."""
    started: list[ControlPlane] = []

    def start(**options: bool) -> ControlPlane:
        started.append(ControlPlane(tmp_path / f"plane-{len(started)}", **options))
        start_or_skip(started[-1])
        return started[-1]

    yield start
    for control_plane in started:
        control_plane.stop()


@pytest.fixture
def namespace(plane: ControlPlane) -> str:
    """A namespace of `plane` that no other test has."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    reply = plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    assert reply.status == 201, reply.message
    return name


def start_or_skip(control_plane: ControlPlane) -> None:
    try:
        control_plane.start(build=False)
    except MillraceError as error:
        control_plane.stop()
        if error.code is not ExitCode.SETUP or os.environ.get("MILLRACE_REQUIRE_CLUSTER") == "1":
            raise
        pytest.skip(f"NO KUBERNETES HERE: {error}")
