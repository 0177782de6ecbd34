"""Small pipelines for tests that run Millrace as a user does: manifest, functions, input, and what must come out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

ROOT = Path(__file__).parents[1]

FUNCTIONS = '''
import os, time
import millrace

def kept(value):
    """Multiples of a hundred are no numbers of ours; odd ones are left out."""
    if value["n"] % 100 == 0:
        raise millrace.Invalid("a multiple of a hundred")
    return value["n"] % 2 == 0

def doubled(value):
    if PAUSE > 1:
        open(os.path.join(os.path.dirname(__file__), "begun"), "w").close()
    time.sleep(PAUSE)
    if value["n"] == BAD:
        raise ValueError("no such number")
    return {"n": value["n"], "twice": value["n"] * 2}
'''


def millrace(
    *words: object, cwd: Path | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """The command line, run to its end."""
    return subprocess.run(
        _command(words), cwd=cwd, env=environment(), capture_output=True, text=True, timeout=timeout
    )


def _command(words: Sequence[object]) -> list[str]:
    return [sys.executable, "-m", "millrace.cli", *map(str, words)]


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONFAULTHANDLER": "1",
        "PYTHONPATH": f"{ROOT / 'crds'}:{ROOT / 'worker'}",
        "COLUMNS": "120",
    }


@dataclass
class Numbers:
    """A pipeline over a topic of numbers: filter, map, produce, dead letters."""

    directory: Path
    topic: str
    bootstrap: str = "localhost:9092"
    partitions: int = 4
    delivery: str = "ExactlyOnce"
    dead_letter: bool = True
    pause: float = 0.0
    bad: int | None = None
    create_source: bool = True
    sent: int = field(default=0, init=False)

    @property
    def manifest(self) -> Path:
        return self.directory / "pipeline.yaml"

    @property
    def output(self) -> str:
        return f"{self.topic}.out"

    @property
    def dead(self) -> str:
        return f"{self.topic}.dead"

    @property
    def state(self) -> Path:
        return self.directory / "state"

    def write(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        source: dict[str, object] = {"topic": self.topic, "format": "json"}
        if self.create_source:
            source["create"] = {"partitions": self.partitions}
        module = f"functions_{self.topic.replace('-', '_')}"
        spec: dict[str, object] = {
            "kafka": {"bootstrapServers": self.bootstrap},
            "source": source,
            "stages": [
                {"name": "kept", "filter": {"function": f"{module}:kept"}},
                {"name": "doubled", "map": {"function": f"{module}:doubled"}},
                {"name": "out", "produce": {"topic": self.output, "create": {"partitions": 2}}},
            ],
            "delivery": self.delivery,
            "commit": {"interval": "300ms"},
        }
        if self.dead_letter:
            spec["deadLetter"] = {"topic": self.dead, "create": {"partitions": 1}}
        text = {
            "apiVersion": "millrace.dev/v1alpha1",
            "kind": "ConsumerPipeline",
            "metadata": {"name": self.topic},
            "spec": spec,
        }
        self.manifest.write_text(json.dumps(text, indent=1))  # JSON is YAML
        code = f"PAUSE = {self.pause}\nBAD = {self.bad}\n{FUNCTIONS}"
        (self.directory / f"{module}.py").write_text(code)
        return self

    def make_topic(self, bootstrap: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(self.topic, self.partitions, 1)])[self.topic].result(120)

    def add_partitions(self, bootstrap: str, total: int) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_partitions([NewPartitions(self.topic, total)])[self.topic].result(120)
        self.partitions = total

    def send(self, bootstrap: str, count: int) -> None:
        """The next `count` numbers, spread evenly over the partitions."""
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True})
        for n in range(self.sent, self.sent + count):
            value = json.dumps({"n": n}).encode()
            while True:
                try:
                    producer.produce(self.topic, value, key=b"%d" % n, partition=n % self.partitions)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(30) == 0
        self.sent += count

    def expected(self) -> Counter[int]:
        return Counter(n for n in range(self.sent) if n % 2 == 0 and n % 100 and n != self.bad)

    def expected_dead(self) -> Counter[int]:
        return Counter(n for n in range(self.sent) if n % 100 == 0)

    def produced(self, bootstrap: str) -> Counter[int]:
        """The numbers in the output topic, as a read_committed reader finds them; each must be right."""
        found: Counter[int] = Counter()
        for value in read_all(bootstrap, self.output):
            record = json.loads(value)
            assert record["twice"] == record["n"] * 2
            found[record["n"]] += 1
        return found

    def produced_dead(self, bootstrap: str) -> Counter[int]:
        return Counter(json.loads(value)["n"] for value in read_all(bootstrap, self.dead))

    def assert_exact(self, bootstrap: str) -> None:
        _assert_same(self.produced(bootstrap), self.expected(), "outputs")
        _assert_same(self.produced_dead(bootstrap), self.expected_dead(), "dead letters")


def _assert_same(found: Counter[int], expected: Counter[int], what: str) -> None:
    missing, extra = sorted((expected - found).elements()), sorted((found - expected).elements())
    assert not missing, f"{what}: {len(missing)} missing, {missing[:20]} first"
    assert not extra, f"{what}: {len(extra)} too many, {extra[:20]} first"


def read_all(bootstrap: str, topic: str) -> list[bytes]:
    """All committed values of a topic, in no particular order of partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        open_ended, values = set(partitions), list[bytes]()
        deadline = time.monotonic() + 60
        while open_ended:
            assert time.monotonic() < deadline, f"{topic} could not be read to its end"
            for message in consumer.consume(1000, 0.5):
                error = message.error()
                if error is None:
                    values.append(message.value() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_ended.discard(message.partition())
        return values
    finally:
        consumer.close()


class Run:
    """`millrace run` in the background, in a session of its own as in a terminal's job."""

    def __init__(self, *words: object) -> None:
        self.process = subprocess.Popen(
            _command(["run", *words]),
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def wait(self, timeout: float = 90) -> tuple[int, str, str]:
        """Exit code, standard output and error."""
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def status(state: Path) -> dict[str, object]:
    """The last snapshot of the run; {} if there is none yet."""
    try:
        found = json.loads((state / "status.json").read_text())
    except FileNotFoundError:
        return {}
    assert isinstance(found, dict)
    return found


def await_that(
    condition: Callable[[], bool], what: str, run: Run | None = None, seconds: float = 240
) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if run is not None and run.process.poll() is not None:
            raise AssertionError(f"the run ended before {what}: {run.wait()}")
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def done(state: Path) -> int:
    """Messages that a run's workers have taken, by its status."""
    found = status(state).get("messages", 0)
    assert isinstance(found, int)
    return found


def worker_pids(state: Path) -> list[int]:
    return [json.loads(path.read_text())["pid"] for path in sorted((state / "workers").glob("*.json"))]
