"""Runs of several programs in turn over the same topic of a real broker, each in a process of its own, each checked.

In each round every program runs once, and the next round begins with another one, so that what changes on the machine
meanwhile meets all alike. After each run its consumer group must have committed all messages, and its output topic must
have them, or the run is an error: no figure of a program that did less.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from environments import PEERS, NoEnvironment, pinned, python_of
from peers.child import Work
from topics import PARTITIONS, Topics

from millrace.connectivity import settings

PROGRAMS = {
    "ours": PEERS / "ours.py",
    "bare": PEERS / "bare.py",
    "arroyo": PEERS / "arroyo_peer.py",
    "aiokafka": PEERS / "aiokafka_peer.py",
    "quixstreams": PEERS / "quixstreams_peer.py",
}
OF_PYPI = ("arroyo", "aiokafka", "quixstreams")
_SECONDS = 300  # for one run: many times what any should need


@dataclass(frozen=True)
class Client:
    """A program and what it does. `share`: of the messages of a round, for slow programs, whose cost per message does
    not depend on how many there are.
    """

    name: str
    program: str
    case: str
    way: str = ""
    share: float = 1.0
    interval: float = 1.0
    produces: bool = False
    processes: int = 2
    watch_memory: bool = False


@dataclass(frozen=True)
class Spent:
    """Medians over the rounds: us of CPU per message, of the program with its processes (`cpu`) and without (`own`); us of
    time per message; the most resident memory, bytes, also of the first and the last third.
    """

    cpu: float
    own: float
    wall: float
    memory: float
    early: float
    late: float


class RunFailed(Exception):
    """A program failed, or did not do what it should; the text says which and how."""


class Rounds:
    """
    Args:
        rounds: of each case; none only warms up, for medians of five bear one that is slow.
        peers: whether those from PyPI take part.
        count_calls: check with each run that the function was called once per message.

    Attributes:
        left_out: programs that did not take part though they should have, with the reason.
        raw: the CPU of each run, us per message, by case and program.
        versions: of the peers that took part.
    """

    def __init__(self, topics: Topics, rounds: int, *, peers: bool, count_calls: bool = False) -> None:
        self._topics, self._rounds = topics, rounds
        self._peers, self._count_calls = peers, count_calls
        self._pythons: dict[str, Path | None] = {}
        self._number = 0
        self.left_out: dict[str, str] = {}
        self.raw: dict[str, dict[str, list[float]]] = {}
        self.versions: dict[str, str] = {}

    def run(
        self,
        title: str,
        kind: str,
        size: int,
        messages: int,
        clients: Sequence[Client],
        *,
        once: bool = False,
    ) -> dict[str, Spent]:
        """All clients in turn over topics of `messages` values of this kind and size. A peer that can't take part is not
        in the result. once: a single round.
        """
        say(f"{title} ...")
        taking_part = [client for client in clients if self._python(client.program) is not None]
        runs: dict[str, list[Mapping[str, float]]] = {client.name: [] for client in taking_part}
        for number in range(1 if once else self._rounds):
            first = number % len(taking_part)
            for client in taking_part[first:] + taking_part[:first]:
                if client.name not in runs:
                    continue  # it failed
                try:
                    spent = self._once(self.work(client, kind, size, messages), client)
                except RunFailed as failure:
                    if client.program not in OF_PYPI:
                        raise
                    self.leave_out(f"{client.name}: {title}", str(failure))
                    del runs[client.name]
                    continue
                runs[client.name].append(spent)
        raw = self.raw[title] = {}
        for name, of in runs.items():
            raw[name] = [round(_each(run, "cpu"), 3) for run in of]
            if any(run["cpu"] > run["own_cpu"] for run in of):
                raw[f"{name}, without its processes"] = [round(_each(run, "own_cpu"), 3) for run in of]
        for name, values in raw.items():
            say(f"  {name}: {' '.join(f'{value:.2f}' for value in values)} us")
        return {name: _medians(of) for name, of in runs.items()}

    def drop(self, kind: str, size: int, messages: int) -> None:
        """Give the disk of a topic back that no further case reads."""
        self._topics.drop(kind, size, messages)

    def work(self, client: Client, kind: str, size: int, messages: int) -> Work:
        """What to tell the client, with a consumer group and an output of its own; the topic is there and filled."""
        self._number += 1
        count = int(messages * client.share)
        group = f"{client.program}-{self._number}"
        common = settings.common(self._topics.bootstrap, group, None)
        return Work(
            case=client.case,
            way=client.way,
            bootstrap=self._topics.bootstrap,
            topic=self._topics.input(kind, size, count),
            partitions=PARTITIONS,
            messages=count,
            group=group,
            output=self._topics.output(group) if client.produces else None,
            consumer=settings.consumer(common, {}, group),
            producer=settings.producer(common, {}),
            transactional=settings.transactional(common, {}, group),
            interval=client.interval,
            processes=client.processes,
            watch_memory=client.watch_memory,
        )

    def _once(self, todo: Work, client: Client) -> Mapping[str, float]:
        with tempfile.NamedTemporaryFile() as calls:
            spent = self._started(client, todo, Path(calls.name))
            if self._count_calls:
                said = os.path.getsize(calls.name)
                if said != todo.messages:
                    raise RunFailed(
                        f"{client.name} called the function {said} times for {todo.messages} messages"
                    )
        self._check(client, todo)
        return spent

    def _started(self, client: Client, todo: Work, calls: Path) -> Mapping[str, float]:
        python = self._python(client.program)
        command = [str(python), str(PROGRAMS[client.program]), json.dumps(asdict(todo))]
        environment = {name: value for name, value in os.environ.items() if name != "BENCH_CALLS"}
        if self._count_calls:
            environment["BENCH_CALLS"] = str(calls)
        if client.program in OF_PYPI:
            environment.pop("PYTHONPATH", None)
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise RunFailed(f"{client.name} was not done after {_SECONDS} s") from error
        if done.returncode or not done.stdout.strip():
            raise RunFailed(f"{client.name} ended with code {done.returncode}:\n{done.stderr[-2000:]}")
        spent: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return spent

    def _check(self, client: Client, todo: Work) -> None:
        committed = self._topics.committed(todo.group, todo.topic)
        if committed != todo.messages:
            raise RunFailed(f"{client.name} committed {committed} of {todo.messages} messages")
        if todo.output is not None:
            found = self._topics.count(todo.output)
            if found != todo.messages:
                raise RunFailed(f"{client.name} wrote {found} records for {todo.messages} messages")
            self._topics.delete(todo.output)

    def _python(self, program: str) -> Path | None:
        """None: this program does not take part."""
        if program not in OF_PYPI:
            return Path(sys.executable)
        if not self._peers:
            return None
        if program not in self._pythons:
            say(f"environment of {program} ...")
            try:
                self._pythons[program] = python_of(program)
                self.versions |= pinned(program)
            except NoEnvironment as reason:
                self._pythons[program] = None
                self.leave_out(program, f"its environment can't be made: {reason}")
        return self._pythons[program]

    def leave_out(self, what: str, why: str) -> None:
        """Say it now; it is said again at the end."""
        self.left_out[what] = why
        sys.stderr.write(f"\n!!! LEFT OUT: {what}: {why}\n\n")


def _medians(runs: Sequence[Mapping[str, float]]) -> Spent:
    def median(name: str) -> float:
        return statistics.median(_each(run, name) for run in runs)

    def most(name: str) -> float:
        return max(run[name] for run in runs)

    return Spent(
        median("cpu"), median("own_cpu"), median("seconds"), most("memory"), most("early"), most("late")
    )


def _each(run: Mapping[str, float], figure: str) -> float:
    """us per message; of very few messages all may have come at once, and none is left to measure."""
    return run[figure] / max(1, run["messages"]) * 1e6


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
