"""`make demo`: a year of flights through a real broker and three workers, then compared with pandas, record by record; so
are the groups that the collector made of them.

CHAOS=1: the flights come in while the pipeline runs, and meanwhile workers, the broker and the collector are killed with
SIGKILL, and a worker is stopped for seconds; then the pipeline is stopped, and a second run takes up what is left. SEED=n:
which records are undecodable, and what chaos does when. State, result.json and comparison.json are in build/demo/.
"""

from __future__ import annotations

import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import load
import verify
from chaos import BEFORE
from siege import Siege
from striking import Over

from millrace.errors import MillraceError
from millrace.local.broker.embedded import EmbeddedBroker

ROOT = Path(__file__).parents[2]
PIPELINE = Path(__file__).with_name("pipeline.yaml")
NOT_ENOUGH = "chaos has not done its worst, so nothing is shown by this"
GIVE_UP = 900.0  # seconds


def main() -> int:
    chaotic = os.environ.get("CHAOS", "") not in ("", "0")
    given = os.environ.get("SEED")
    seed = int(given) if given else random.SystemRandom().randrange(1_000_000) if chaotic else 2013
    try:
        return Demo(ROOT / "build" / "demo", seed, chaotic).carry_out()
    except MillraceError as error:
        say(str(error))
        return int(error.code)


class Demo:
    """Loads, runs, verifies; each step's seconds and findings go to result.json."""

    def __init__(self, directory: Path, seed: int, chaotic: bool) -> None:
        self._directory, self._state = directory, directory / "state"
        self._seed, self._chaotic = seed, chaotic
        self._seconds: dict[str, float] = {}
        self._siege: Siege | None = None
        self._total = 0
        self._deadline = 0.0  # of the run under way, monotonic
        self._cut_short = 0  # exit code, if it ended, or was ended, before what accompanied it
        self._later: list[str] = []

    def carry_out(self) -> int:
        begun = time.monotonic()
        shutil.rmtree(self._directory, ignore_errors=True)
        self._state.mkdir(parents=True)
        say(f"seed {self._seed} (SEED={self._seed} repeats this)")
        self._load()
        code = self._run()
        missing = self._siege.strikes.missing() if self._siege else []
        if code or missing:
            self._write_result(equal=False, run_exit_code=code, missing=missing)
            if code:
                say(f"the run ended with exit code {code}")
            if missing:
                say(f"{NOT_ENOUGH}: {', '.join(missing)}")
            return 130 if code == 130 else 1
        verdict = self._verify()
        self._seconds["all"] = round(time.monotonic() - begun, 1)
        self._write_result(
            equal=verdict.equal,
            run_exit_code=code,
            outputs=verdict.outputs.found,
            dead_letters=verdict.dead_letters.found,
            groups=verdict.groups.found,
        )
        say(verify.describe(verdict))
        if self._siege is not None:
            say(self._siege.strikes.describe())
        say(
            f"{self._seconds['all']:.0f} s in all; {self._directory.relative_to(ROOT)}/ has result and comparison"
        )
        return 0 if verdict.equal else 1

    def _load(self) -> None:
        begun = time.monotonic()
        with EmbeddedBroker(self._state / "broker") as broker:
            self._bootstrap = broker.bootstrap  # the same in all its lives
            self._feed = load.Feed(broker.bootstrap, self._seed)
            self._feed.create_topic()
            self._feed.advance(round(self._feed.total * BEFORE) if self._chaotic else self._feed.total)
        self._total = self._feed.total
        self._seconds["load"] = round(time.monotonic() - begun, 1)
        rest = f" of {self._total:,}" if self._chaotic else ""
        say(
            f"{self._feed.fed:,}{rest} flights are in the topic, {self._feed.spoilt} of them undecodable "
            f"({self._seconds['load']} s)"
        )

    def _run(self) -> int:
        """`millrace run`, with its live view; returns its exit code."""
        if self._chaotic:
            # as for a live topic, without an end: told to stop when chaos is done
            self._siege = Siege(self._bootstrap, self._state, self._seed, self._feed, self._tell)
            code = self._carry_through("run_in_chaos", [], self._besiege)
            if code or self._cut_short:
                return code or self._cut_short
        return self._carry_through("run", ["--until-end"], self._accompany)

    def _besiege(self, run: subprocess.Popen[bytes]) -> None:
        assert self._siege is not None
        self._siege.live(run.pid, lambda: self._watch(run))
        run.send_signal(signal.SIGINT)
        self._wait_for(run)

    def _accompany(self, run: subprocess.Popen[bytes]) -> None:
        if self._siege is not None:
            self._siege.last(run.pid, lambda: self._watch(run))
        self._wait_for(run)

    def _carry_through(
        self, name: str, options: list[str], accompany: Callable[[subprocess.Popen[bytes]], None]
    ) -> int:
        """One `millrace run` to its end."""
        command = [
            sys.executable,
            "-m",
            "millrace.cli",
            "run",
            str(PIPELINE.relative_to(ROOT)),
            "--kafka",
            "embedded",
            *options,
            "--state",
            str(self._state.relative_to(ROOT)),
        ]
        say("$ millrace " + " ".join(command[3:]))
        if picture := os.environ.get("PICTURE"):
            command += ["--picture", picture]
        begun = time.monotonic()
        run = subprocess.Popen(command, cwd=ROOT)
        # Ctrl-C in the terminal reaches the run as well, which drains: wait for it
        former = signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._deadline, self._later, self._cut_short = begun + GIVE_UP, [], 0
        try:
            accompany(run)
        except Over:
            self._cut_short = 1 if run.poll() is None else 130  # ended by whom, if not by Ctrl-C?
            if run.poll() is None:
                say(f"not done after {GIVE_UP:.0f} s: ended")
        finally:
            if run.poll() is None:
                run.terminate()
                run.wait(120)
            signal.signal(signal.SIGINT, former)
        for text in self._later:
            say(text)
        self._seconds[name] = round(time.monotonic() - begun, 1)
        if run.returncode:
            say(f"millrace run ended with exit code {run.returncode}; logs are in {self._state}")
        return run.returncode

    def _tell(self, text: str) -> None:
        if sys.stdout.isatty():  # said in mid-run, it would tear the live view
            self._later.append(text)
        else:
            say(text)

    def _watch(self, run: subprocess.Popen[bytes]) -> None:
        if run.poll() is not None or time.monotonic() > self._deadline:
            raise Over

    def _wait_for(self, run: subprocess.Popen[bytes]) -> None:
        while run.poll() is None:
            self._watch(run)
            time.sleep(0.05)

    def _verify(self) -> verify.Verdict:
        say("comparing every record with pandas ...")
        begun = time.monotonic()
        with EmbeddedBroker(self._state / "broker") as broker:
            verdict = verify.verify(broker.bootstrap, self._state / "results")
        self._seconds["verify"] = round(time.monotonic() - begun, 1)
        self._write("comparison.json", verdict.as_json())
        return verdict

    def _write_result(self, *, equal: bool, **more: object) -> None:
        chaos = self._siege.strikes.as_json() if self._siege else []
        machine = {"cpus": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}
        content = {
            "equal": equal,
            "seed": self._seed,
            "flights": self._total,
            **more,
            "seconds": self._seconds,
        }
        self._write("result.json", {**content, "chaos": chaos, "machine": machine})

    def _write(self, name: str, content: object) -> None:
        (self._directory / name).write_text(json.dumps(content, indent=2) + "\n")


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
