"""The examples of pools as a user runs them, each to its end, with every result checked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.local.broker.embedded import EmbeddedBroker
from numbers_pipeline import ROOT, environment, millrace, read_all

pytestmark = pytest.mark.e2e

EXAMPLES = ROOT / "examples"


def feed(example: str, bootstrap: str, topic: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(20)
    script = EXAMPLES / example / "feed.py"
    subprocess.run([sys.executable, script, bootstrap, str(count)], check=True, timeout=60)


def run(example: str, tmp_path: Path, bootstrap: str) -> None:
    manifest = EXAMPLES / example / "pipeline.yaml"
    ended = millrace(
        "run", manifest, "--kafka", bootstrap, "--until-end", "--state", tmp_path / "state", timeout=240
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_numbers_are_factored_by_processes(tmp_path: Path, kafka: EmbeddedBroker) -> None:
    feed("factors", kafka.bootstrap, "numbers", 2_000)
    run("factors", tmp_path, kafka.bootstrap)
    found = [json.loads(value) for value in read_all(kafka.bootstrap, "numbers.factored")]
    assert len(found) == 1_996
    for one in found:
        product = 1
        for factor in one["factors"]:
            product *= factor
        assert product == one["n"]
    dead = [json.loads(value)["n"] for value in read_all(kafka.bootstrap, "numbers.dead")]
    assert sorted(dead) == [-1500, -1000, -500, 0]


def test_orders_are_priced_over_http(
    tmp_path: Path, kafka: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = subprocess.Popen(
        [sys.executable, EXAMPLES / "enrichment" / "server.py", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment()},
    )
    try:
        assert server.stdout is not None
        monkeypatch.setenv("PRICES", f"127.0.0.1:{server.stdout.readline().strip()}")
        feed("enrichment", kafka.bootstrap, "orders", 2_000)
        run("enrichment", tmp_path, kafka.bootstrap)
    finally:
        server.kill()
        server.communicate()
    found = {(one := json.loads(value))["order"]: one for value in read_all(kafka.bootstrap, "orders.priced")}
    unknown = {n for n in range(2_000) if (n * 7 % 1000 + 1) % 50 == 0}
    dead = {json.loads(value)["order"] for value in read_all(kafka.bootstrap, "orders.dead")}
    # every tenth answer is a refusal: one in 100,000 orders is refused five times
    assert dead >= unknown
    assert len(dead - unknown) <= 2
    assert found.keys() == set(range(2_000)) - dead
    for n, order in found.items():
        article = n * 7 % 1000 + 1
        assert order["price"] == (100 + article * 37 % 1000) * (n % 5 + 1)
