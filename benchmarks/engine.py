"""Client CPU per message of the engine, beside the bare client's loop and beside frameworks from PyPI.

    python benchmarks/engine.py                       all of the table; QUICK=1: fewer messages, three rounds, 200 B
    python benchmarks/engine.py --case functions ...  only these cases (--size 200: only this size)
    python benchmarks/engine.py --no-peers            without those from PyPI
    python benchmarks/engine.py --check               20,000 messages, one round, calls of the functions counted
    python benchmarks/engine.py --profile functions   where the engine spends its time in Python in a case

On an embedded broker, which is real. What is measured of a run and how: peers/child.py; how runs alternate and are
checked: rounds.py; the table and its aims: engine_cases.py.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from engine_cases import CASES, ONE_SIZE, Setting
from report import Figure, publish
from rounds import PROGRAMS, Client, Rounds, RunFailed, say
from topics import PARTITIONS, Topics

from millrace.local.broker.embedded import EmbeddedBroker

QUICK = os.environ.get("QUICK", "") not in ("", "0")
ROUNDS = 3 if QUICK else 5
SIZES = (200,) if QUICK else (200, 1024)
SCALE = 0.2 if QUICK else 1.0
CHECKED = 20_000


def measure(topics: Topics, given: argparse.Namespace) -> None:
    began = time.monotonic()
    rounds = Rounds(
        topics,
        1 if given.check else given.rounds,
        peers=given.peers,
        count_calls=given.check,
    )
    figures: list[Figure] = []
    failed = False
    for name in given.case or CASES:
        for size in given.size or SIZES:
            if size != SIZES[0] and name in ONE_SIZE and name not in (given.case or ()):
                continue
            exactly = CHECKED if given.check else None
            try:
                figures += CASES[name](Setting(rounds, size, SCALE, exactly))
            except RunFailed as failure:  # of ours or of the bare loop: the other cases still count
                rounds.leave_out(f"{name}, {size} B", str(failure))
                failed = True
    notes = {
        "rounds": given.rounds,
        "partitions": PARTITIONS,
        "quick": QUICK,
        "cases": given.case or "all",
        "minutes": round((time.monotonic() - began) / 60, 1),
        "left_out": rounds.left_out or ({} if given.peers else {"peers from PyPI": "--no-peers"}),
        "cpu_us_per_message_of_each_run": rounds.raw,
    }
    if not given.check:
        publish("engine", figures, notes, rounds.versions)
    for what, why in rounds.left_out.items():
        sys.stderr.write(f"!!! LEFT OUT: {what}: {why}\n")
    if failed or (given.check and rounds.left_out):
        sys.exit(1)
    if given.check:
        say(
            f"checked: in all of {len(rounds.raw)} cases {CHECKED} messages were processed, committed and written"
        )


def profile(topics: Topics, case: str) -> None:
    client = Client("ours", "ours", case, produces=case == "produce")
    kind = "json" if case == "json" else "bytes"
    todo = Rounds(topics, 1, peers=False).work(client, kind, SIZES[0], int(1_000_000 * SCALE))
    command = [
        sys.executable,
        "-m",
        "cProfile",
        "-s",
        "tottime",
        str(PROGRAMS["ours"]),
        json.dumps(asdict(todo)),
    ]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    say("\n".join(said.splitlines()[:40]))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Client CPU per message of the engine, beside its peers.")
    parser.add_argument("--case", nargs="+", choices=CASES)
    parser.add_argument("--size", nargs="+", type=int, help="bytes of a value")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--check", action="store_true", help="that every program does its work; no figures")
    parser.add_argument("--profile", metavar="CASE", help="one that peers/ours.py knows")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as directory:
        broker = EmbeddedBroker(Path(directory))
        broker.start()
        try:
            topics = Topics(broker.bootstrap)
            if given.profile:
                profile(topics, given.profile)
            else:
                measure(topics, given)
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
