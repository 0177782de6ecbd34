"""The collector beside a Spark job written by hand that does the same over one stream (collector_peer.py).

Both read the same channel of a real broker with the same settings of Spark, in turn, each in a process of its own with a
JVM of its own; what they write must be the same. Compared are the medians of user and system time of all their
processes, of elapsed time, and of the largest sum of their resident memory. The start is what had been spent when the
first batch began.

    python benchmarks/collector.py                      the whole, a quarter of an hour; QUICK=1: 200,000 records, once
    python benchmarks/collector.py 12x1000000 1x50000   these cases only: PARTITIONSxRECORDS (--rounds=N)

Three rounds of the cases with a target, two of the others: they are for the shape of the table.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import msgspec
import pyarrow.compute as pc
from collector_data import LAST, LATENESS, SCHEMA, fill
from collector_peer import Work
from pyarrow import Table, dataset
from report import Figure, publish
from spent import Spent, measured_here

from millrace.collector import Attempt, JobSpec, Query, Window, class_data, session
from millrace.collector.sinks import Parquet
from millrace.collector.stage import connector
from millrace.host import java
from millrace.local.broker.embedded import EmbeddedBroker

QUICK = os.environ.get("QUICK", "") not in ("", "0")
TARGET = 1.1
TARGET_PARTITIONS = 12
ROUNDS = 3
OTHER_ROUNDS = 2
CASES = (
    ((12, 200_000),)
    if QUICK
    else ((12, 1_000_000), (12, 5_000_000), *((partitions, 1_000_000) for partitions in (1, 24, 48, 96)))
)
PEER = "hand-written Spark job"
_TIMEOUT = 1800.0
_COLUMNS = ("flights", "total", "average", "least", "most")


@dataclass(frozen=True, slots=True)
class Case:
    partitions: int
    rows: int

    @property
    def name(self) -> str:
        return f"{self.rows:,} records, {self.partitions} partition{'s' if self.partitions > 1 else ''}"

    @property
    def topic(self) -> str:
        return f"bench-{self.partitions}-{self.rows}.channel"


@dataclass(slots=True)
class Runs:
    """What the runs of one case cost; `ours` and `peer` in the order of the rounds."""

    ours: list[Spent] = field(default_factory=list)
    peer: list[Spent] = field(default_factory=list)


def ours(spec: JobSpec, directory: Path) -> None:
    """An attempt of the collector, to its end, as `millrace run` has it."""
    attempt = Attempt(spec, directory / "job.log")
    attempt.start()
    while attempt.exit_code is None:
        time.sleep(0.05)
    failure = attempt.failure()
    attempt.kill()
    if failure is not None:
        raise failure


def peer(spec: JobSpec, directory: Path) -> None:
    logging = directory / "log4j2.properties"
    logging.write_text("rootLogger.level = error\n")
    work = Work(
        bootstrap=spec.bootstrap,
        topic=spec.channel,
        checkpoint=spec.checkpoint,
        output=str(directory / "results"),
        records_per_batch=spec.records_per_batch,
        schema=SCHEMA,
        lateness=LATENESS,
        settings=dict(session.settings(spec, logging)),
    )
    file = directory / "work.json"
    file.write_bytes(msgspec.json.encode(work))
    command = [sys.executable, str(Path(__file__).with_name("collector_peer.py")), str(file)]
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONWARNINGS": "ignore::FutureWarning:pyspark.testing.utils",
    }
    with (directory / "job.log").open("wb") as log:
        subprocess.run(command, check=True, env=environment, stdout=log, stderr=subprocess.STDOUT)


RUNS: Mapping[str, Callable[[JobSpec, Path], None]] = {"ours": ours, "peer": peer}


def child(name: str, directory: Path) -> None:
    """Measures one run; what it spent is printed as JSON."""
    spec = msgspec.json.decode((directory / "spec.json").read_bytes(), type=JobSpec)
    # Spark writes it when the first batch begins
    begun = Path(spec.checkpoint) / "offsets" / "0"
    spent = measured_here(begun, lambda: RUNS[name](spec, directory))
    say(msgspec.json.encode(spent).decode())


def run(name: str, directory: Path, bootstrap: str, case: Case) -> Spent:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / "spec.json").write_bytes(msgspec.json.encode(job(directory, bootstrap, case)))
    command = [sys.executable, __file__, "--child", name, str(directory)]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=_TIMEOUT, check=False)
    if done.returncode:
        log = directory / "job.log"
        said = log.read_text()[-3000:] if log.exists() else ""
        raise RuntimeError(f"{case.name}: {name} failed\n{said}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Spent)


def job(directory: Path, bootstrap: str, case: Case) -> JobSpec:
    jars = connector()
    return JobSpec(
        name="bench/collect",
        query=Query(
            schema=SCHEMA,
            group_by=("carrier",),
            window=Window(size=3600, time="scheduled", lateness=LATENESS * 3600),
            aggregate={
                "flights": "count(*)",
                "total": "sum(delay)",
                "average": "avg(delay)",
                "least": "min(delay)",
                "most": "max(delay)",
            },
        ),
        bootstrap=bootstrap,
        channel=case.topic,
        partitions=case.partitions,
        group=f"bench-{time.time_ns()}",
        checkpoint=str(directory / "checkpoint"),
        sink=Parquet(path=str(directory / "results")),
        where="spec.stages[0].collect",
        status_file=str(directory / "collector.json"),
        log=str(directory / "spark.log"),
        jars=str(jars),
        # both have it, or none
        archive=str(class_data.find(java.find(), jars) or ""),
        until_end=True,
    )


def measure(work: Path, bootstrap: str, cases: Sequence[Case], rounds: int | None) -> dict[Case, Runs]:
    found: dict[Case, Runs] = defaultdict(Runs)
    for case in cases:
        began = time.monotonic()
        fill(bootstrap, case.topic, case.partitions, case.rows)
        say(f"{case.name}: channel filled in {time.monotonic() - began:.0f} s")
        for round_ in range(rounds or rounds_of(case)):
            # who is first has a colder page cache: they take turns
            results = {}
            for name in RUNS if round_ % 2 == 0 else reversed(list(RUNS)):
                directory = work / name
                spent = run(name, directory, bootstrap, case)
                getattr(found[case], name).append(spent)
                results[name] = read_results(directory / "results")
                say(
                    f"  {name}: {spent.seconds:.1f} s, CPU {spent.cpu:.1f} s (start {spent.start_cpu:.1f}), "
                    f"{spent.memory >> 20} MiB"
                )
            compare(results, case)
            say(f"  round {round_ + 1}: the results are equal")
    return found


def rounds_of(case: Case) -> int:
    if QUICK:
        return 1
    return ROUNDS if case.partitions == TARGET_PARTITIONS else OTHER_ROUNDS


def read_results(path: Path) -> Table:
    found = dataset.dataset(path, format="parquet", partitioning="hive").to_table(
        columns=["carrier", "window_start", *_COLUMNS], filter=pc.field("carrier") != LAST
    )
    return found.sort_by([("carrier", "ascending"), ("window_start", "ascending")])


def compare(results: Mapping[str, Table], case: Case) -> None:
    """Both must have counted every row, and the same groups. Raises RuntimeError."""
    for name, table in results.items():
        counted = pc.sum(table["flights"]).as_py()
        if counted != case.rows:
            raise RuntimeError(f"{case.name}: {name} counted {counted:,} rows")
    mine, theirs = results["ours"], results["peer"]
    for column in ("carrier", "window_start", "flights", "total", "least", "most"):
        if mine[column].cast(theirs[column].type) != theirs[column]:
            raise RuntimeError(f"{case.name}: {column} differs")


def figures(found: Mapping[Case, Runs]) -> list[Figure]:
    made = []
    for case, runs in found.items():
        target = TARGET if case.partitions == TARGET_PARTITIONS else None
        made.append(figure(case, "CPU, user and system", "s", runs, lambda spent: spent.cpu, target))
        made.append(
            figure(case, "CPU less the start's", "s", runs, lambda spent: spent.cpu - spent.start_cpu)
        )
        made.append(
            figure(
                case, "share of the start in CPU", "%", runs, lambda spent: 100 * spent.start_cpu / spent.cpu
            )
        )
        made.append(figure(case, "time", "s", runs, lambda spent: spent.seconds))
        made.append(figure(case, "time until the first batch", "s", runs, lambda spent: spent.start_seconds))
        made.append(figure(case, "memory at most", "MiB", runs, lambda spent: spent.memory / 2**20))
    return made


def figure(
    case: Case, name: str, unit: str, runs: Runs, of: Callable[[Spent], float], target: float | None = None
) -> Figure:
    mine = statistics.median(of(spent) for spent in runs.ours)
    theirs = statistics.median(of(spent) for spent in runs.peer)
    ratio = round(mine / theirs, 3)
    met = ratio <= target if target is not None else None
    return Figure(case.name, name, round(mine, 1), unit, {PEER: round(theirs, 1)}, ratio, target, met)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], Path(sys.argv[3]))
        return
    words = [word.split("x") for word in sys.argv[1:] if not word.startswith("--")]
    options = dict(word[2:].split("=") for word in sys.argv[1:] if word.startswith("--"))
    cases = [Case(int(partitions), int(rows)) for partitions, rows in words or CASES]
    rounds = int(options["rounds"]) if "rounds" in options else None
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as directory:
        broker = EmbeddedBroker(Path(directory) / "broker")
        broker.start()
        try:
            found = measure(Path(directory), broker.bootstrap, cases, rounds)
        finally:
            broker.stop()
    notes = {
        "rounds": {case.name: len(runs.ours) for case, runs in found.items()},
        "quick": QUICK,
        "load_at_start": round(load, 2),
        "class_data_archive": class_data.find(java.find(), connector()) is not None,
    }
    publish(
        "collector", figures(found), notes, {"pyspark": version("pyspark"), "java": str(java.find().version)}
    )


if __name__ == "__main__":
    main()
