"""The kind cluster for tests: `kube`, the one that `make cluster` made, and `pods`, a namespace in it.

These tests are for `make e2e`, which names the cluster: they share it, so one process runs them, one after another, and
`make test`, whose processes each run any test, skips them. With MILLRACE_REQUIRE_CLUSTER=1, as `make e2e` sets it, they
fail where the cluster does not run.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest
from xdist.scheduler import LoadScopeScheduling

from cluster.kind import Cluster


@pytest.fixture(scope="session")
def kube() -> Cluster:
    name = os.environ.get("CLUSTER")
    if not name:
        pytest.skip("NO CLUSTER HERE: `make e2e` makes one and runs these tests")
    cluster = Cluster(name)
    if not cluster.is_up():
        if os.environ.get("MILLRACE_REQUIRE_CLUSTER") == "1":
            pytest.fail(f"cluster {cluster.name} does not run: `make cluster`")
        pytest.skip(f"NO CLUSTER HERE: {cluster.name} does not run; `make cluster` makes it")
    return cluster


class Together(LoadScopeScheduling):
    """`--dist loadgroup`: tests on the kind cluster stay in one process, others are kept together by their module.

    By paths: the process that schedules collects nothing, and of marks it is not told (pytest-xdist 3.8's own groups
    are not seen by pytest 9.2).
    """

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return "kind" if module.startswith("tests/e2e/") else module


@pytest.fixture(scope="module")
def pods(kube: Cluster) -> Iterator[str]:
    """A namespace of the test module's own, which goes with it."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    kube.kubectl("create", "namespace", name, check=True)
    yield name
    kube.kubectl("delete", "namespace", name, "--wait=false", check=True)
