"""The pipelines of examples/sqlite and examples/copy; e2e runs them as processes."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from millrace.testing import Input, PipelineHarness

pytestmark = pytest.mark.unit

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_orders_that_come_again_are_in_the_table_once(tmp_path: Path) -> None:
    database = tmp_path / "orders.db"
    orders = [Input({"customer": "c", "cents": n}, partition=n % 2) for n in range(250)]
    manifest, env = EXAMPLES / "sqlite" / "pipeline.yaml", {"ORDERS_DB": str(database)}
    with PipelineHarness.of(manifest, env=env) as h:
        h.feed([*orders, {"customer": None, "cents": 1}])
        h.run_for(0.9)  # less than the commit interval, more than a batch waits
        assert h.commits == {}
        h.kill()
        with sqlite3.connect(database) as table:
            assert table.execute("SELECT count(*) FROM orders").fetchall() == [(250,)]
        h.run_to_end()
        assert [letter.value for letter in h.dead_letters] == [b'{"customer":null,"cents":1}']
        assert h.commits == {0: 126, 1: 125}
    with sqlite3.connect(database) as table:
        rows = table.execute("SELECT partition, position, customer, cents FROM orders").fetchall()
    assert sorted(rows) == sorted((n % 2, n // 2, "c", n) for n in range(250))


def test_a_copy_keeps_bytes_key_headers_time_and_partition() -> None:
    with PipelineHarness.of(EXAMPLES / "copy" / "pipeline.yaml") as h:
        h.feed([Input(b"\xff%d" % n, b"k", {"h": b"1"}, 1_000 + n, partition=3) for n in range(5)])
        h.run_to_end()
        copies = h.outputs("payments.copy")
    assert [copy.value for copy in copies] == [b"\xff%d" % n for n in range(5)]
    assert [copy.timestamp for copy in copies] == [1_000 + n for n in range(5)]
    assert {(copy.key, copy.partition, copy.headers["h"]) for copy in copies} == {(b"k", 3, b"1")}
