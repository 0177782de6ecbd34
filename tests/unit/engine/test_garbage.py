"""The collector's setting: batches are no growth, cycles still are."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from millrace.engine.garbage import YOUNG, tune_garbage_collection

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


class Node:
    def __init__(self) -> None:
        self.me = self


def test_a_batch_of_containers_does_not_wake_the_collector() -> None:
    tune_garbage_collection()
    before = [generation["collections"] for generation in gc.get_stats()]
    for _ in range(20):
        batch = [{"n": n, "list": [n]} for n in range(5_000)]
        assert len(batch) == 5_000
        del batch
    assert [generation["collections"] for generation in gc.get_stats()] == before


def test_cycles_that_user_code_leaves_behind_are_collected() -> None:
    tune_garbage_collection()
    first = weakref.ref(Node())
    nodes = 0
    while first() is not None and nodes < 3 * YOUNG:
        Node()
        nodes += 1
    assert first() is None
