"""The kind cluster for tests: `kube`, the one that `make cluster` made, and `pods`, a namespace in it.

Where it does not run these tests are skipped; with MILLRACE_REQUIRE_CLUSTER=1, as `make e2e` sets it, they fail.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from cluster.kind import Cluster


@pytest.fixture(scope="session")
def kube() -> Cluster:
    cluster = Cluster(os.environ.get("CLUSTER") or "millrace")
    if not cluster.is_up():
        if os.environ.get("MILLRACE_REQUIRE_CLUSTER") == "1":
            pytest.fail(f"cluster {cluster.name} does not run: `make cluster`")
        pytest.skip(f"NO CLUSTER HERE: {cluster.name} does not run; `make cluster` makes it")
    return cluster


@pytest.fixture(scope="module")
def pods(kube: Cluster) -> Iterator[str]:
    """A namespace of the test module's own, which goes with it."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    kube.kubectl("create", "namespace", name, check=True)
    yield name
    kube.kubectl("delete", "namespace", name, "--wait=false", check=True)
