"""The table of bench-engine: what is measured beside what, and what is aimed at.

Each case is a function of the rounds to run, the size of a value, and how many messages there are in a full run or a quick
one (`scale`). A figure with an aim is a ratio to one peer; figures without are there to be looked at.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from report import Figure
from rounds import Client, Rounds, Spent

CORES = os.cpu_count() or 1
CPU, RATE = "client CPU per message", "messages per second"
BARE = "confluent-kafka consume(500)"
KEEPS = f"{BARE}, keeping key, headers, timestamp"
GETMANY, FOR = "aiokafka getmany", "aiokafka async for"
ARROYO, QUIX = "sentry-arroyo", "quixstreams"
OURS = "Millrace"


@dataclass(frozen=True)
class Setting:
    """`scale`: of the messages of a full run. `exactly`: so many in each case instead."""

    rounds: Rounds
    size: int
    scale: float
    exactly: int | None = None

    def messages(self, full: int) -> int:
        return self.exactly or int(full * self.scale)

    def run(
        self, title: str, messages: int, clients: Sequence[Client], kind: str = "bytes"
    ) -> Mapping[str, Spent]:
        return self.rounds.run(f"{title}, {self.size} B", kind, self.size, self.messages(messages), clients)


def functions(at: Setting) -> list[Figure]:
    title = "filter, map, commit"
    spent = at.run(
        title,
        1_000_000,
        [
            Client(ARROYO, "arroyo", "functions", share=0.25),
            Client(OURS, "ours", "functions"),
            Client(BARE, "bare", "functions"),
            Client(GETMANY, "aiokafka", "functions"),
            Client(QUIX, "quixstreams", "functions", share=0.25),
            Client(FOR, "aiokafka", "functions", "for", share=0.25),
        ],
    )
    aims = {BARE: 1.15, ARROYO: 1 / 10, QUIX: 1 / 8, GETMANY: 1 / 1.5, FOR: None}
    return _beside(f"{title}, {at.size} B", spent, aims)


def json(at: Setting) -> list[Figure]:
    title = "filter, map, commit of JSON objects"
    clients = [Client(OURS, "ours", "json"), Client(BARE, "bare", "json")]
    return _beside(f"{title}, {at.size} B", at.run(title, 1_000_000, clients, "json"), {BARE: 1.15})


def vectorized(at: Setting) -> list[Figure]:
    title = "filter, map, commit, vectorized"
    clients = [Client(OURS, "ours", "vectorized"), Client(BARE, "bare", "vectorized")]
    return _beside(f"{title}, {at.size} B", at.run(title, 1_000_000, clients), {BARE: 1.1})


def produce(at: Setting) -> list[Figure]:
    title = "consume, map, produce, commit"
    batches = "aiokafka send_batch"
    spent = at.run(
        title,
        500_000,
        [
            Client(ARROYO, "arroyo", "produce", share=0.2, produces=True),
            Client(OURS, "ours", "produce", produces=True),
            Client(BARE, "bare", "produce", produces=True),
            Client(KEEPS, "bare", "produce", "keeps", produces=True),
            Client("aiokafka send", "aiokafka", "produce", share=0.2, produces=True),
            Client(batches, "aiokafka", "produce", "batch", share=0.5, produces=True),
            Client(QUIX, "quixstreams", "produce", share=0.2, produces=True),
        ],
    )
    aims = {BARE: 1.2, KEEPS: None, ARROYO: 1 / 12, QUIX: 1 / 4, "aiokafka send": 1 / 3, batches: None}
    return _beside(f"{title}, {at.size} B", spent, aims)


def processes(at: Setting) -> list[Figure]:
    title = "2 processes, trivial function"
    spent = at.run(
        title,
        1_000_000,
        [
            Client(ARROYO, "arroyo", "trivial", share=0.2),
            Client(OURS, "ours", "trivial", "processes"),
        ],
    )
    case, ours = f"{title}, {at.size} B", spent[OURS].own
    # what the parent can feed when its processes are no bottleneck: one core of CPU, 300,000 messages a second
    ceiling = Figure(
        case, "parent's CPU per message", round(ours, 3), "us", target=3.333, met=ours <= 1e6 / 300_000
    )
    parents = {name: one.own for name, one in spent.items()}
    return [
        ceiling,
        *_compared(case, "parent's CPU per message", parents, {ARROYO: 1 / 10}),
        _rates(case, spent),
    ]


def busy(at: Setting) -> list[Figure]:
    title, one = f"100 us of CPU, {CORES} processes", "one process / cores"
    spent = at.run(
        title,
        50_000,
        [
            Client(OURS, "ours", "busy", "processes", processes=CORES),
            Client(one, "ours", "busy"),
        ],
    )
    case = f"{title}, {at.size} B"
    times = {OURS: spent[OURS].wall, one: spent[one].wall / CORES}
    return [*_compared(case, "time per message", times, {one: 1 / 0.9}), _rates(case, spent)]


def asyncio(at: Setting) -> list[Figure]:
    figures = []
    peer = "consume(500), 1,000 coroutines"
    for case, words in (("asyncio-trivial", "trivial"), ("asyncio-1ms", "awaits of 1 ms")):
        title = f"asyncio, {words}, 1,000 at a time"
        spent = at.run(title, 300_000, [Client(OURS, "ours", case), Client(peer, "bare", case)])
        figures += _beside(f"{title}, {at.size} B", spent, {peer: 1.15})
    return figures


def exactly_once(at: Setting) -> list[Figure]:
    title = "ExactlyOnce"
    base, second, tenth = "AtLeastOnce, 1 s", "ExactlyOnce, 1 s", "ExactlyOnce, 100 ms"
    spent = at.run(
        title,
        1_000_000,
        [
            Client(base, "ours", "produce", produces=True),
            Client(second, "ours", "produce", "exactly-once", produces=True),
            Client(tenth, "ours", "produce", "exactly-once", interval=0.1, produces=True),
        ],
    )
    figures = []
    for name, aim in ((second, 1.1), (tenth, 1.3)):
        case = f"consume, map, produce; {name}, {at.size} B"
        costs = {OURS: spent[name].cpu, base: spent[base].cpu}
        figures += _compared(case, CPU, costs, {base: aim})
    return [*figures, _rates(f"consume, map, produce; {title}, {at.size} B", spent)]


def fenced(at: Setting) -> list[Figure]:
    """No measurable difference: within 5 %, which two series of the same loop differ by."""
    title = "bare loop, commits of 1 s"
    plain = "plain commits"
    clients = [Client("fenced commits", "bare", "functions", "fenced"), Client(plain, "bare", "functions")]
    spent = at.run(title, 3_000_000 if at.size <= 200 else 1_500_000, clients)
    costs = {OURS: spent["fenced commits"].cpu, plain: spent[plain].cpu}
    case = f"{title}: fenced beside plain, {at.size} B"
    return [*_compared(case, CPU, costs, {plain: 1.05}), _rates(case, spent)]


def memory(at: Setting) -> list[Figure]:
    """Memory does not depend on what else the machine does, so one run suffices. As many bytes of 1 KB as of 200 B."""
    title = "memory over a backlog"
    full = 10_000_000 if at.scale == 1 else 5_000_000  # a quick run has a million
    messages = at.messages(full * 200 // at.size)
    client = Client(OURS, "ours", "functions", watch_memory=True)
    spent = at.rounds.run(f"{title}, {at.size} B", "bytes", at.size, messages, [client], once=True)[OURS]
    at.rounds.drop("bytes", at.size, messages)
    case = f"{title} of {messages:,}, {at.size} B"
    most, growth = spent.memory / 1e6, spent.late / spent.early if spent.early else 1.0
    return [
        Figure(case, "peak resident memory", round(most, 1), "MB", target=300, met=most < 300),
        Figure(
            case,
            "peak of its last third beside its first",
            round(growth, 3),
            "x",
            target=1.1,
            met=growth <= 1.1,
        ),
    ]


CASES: Mapping[str, Callable[[Setting], list[Figure]]] = {
    "functions": functions,
    "json": json,
    "vectorized": vectorized,
    "produce": produce,
    "processes": processes,
    "busy": busy,
    "asyncio": asyncio,
    "exactly-once": exactly_once,
    "fenced": fenced,
    "memory": memory,
}
ONE_SIZE = ("json", "busy")
"""Cases in which the size of a value decides nothing: measured with 200 B."""


def _beside(case: str, spent: Mapping[str, Spent], aims: Mapping[str, float | None]) -> list[Figure]:
    costs = {name: one.cpu for name, one in spent.items()}
    return [*_compared(case, CPU, costs, aims), _rates(case, spent)]


def _compared(
    case: str, figure: str, costs: Mapping[str, float], aims: Mapping[str, float | None]
) -> list[Figure]:
    """A figure for each peer that took part: ours, its, the ratio, and whether that is as aimed at."""
    figures, ours = [], costs[OURS]
    for peer, aim in aims.items():
        if peer in costs:
            ratio = ours / costs[peer]
            met = None if aim is None else ratio <= aim
            target = None if aim is None else round(aim, 3)
            beside = {peer: round(costs[peer], 3)}
            figures.append(Figure(case, figure, round(ours, 3), "us", beside, round(ratio, 3), target, met))
    return figures


def _rates(case: str, spent: Mapping[str, Spent]) -> Figure:
    """Whatever is said of the machine then: the broker runs on the same cores."""
    rates = {name: round(1e6 / one.wall) for name, one in spent.items()}
    first = OURS if OURS in rates else next(iter(rates))
    peers = {name: float(rate) for name, rate in rates.items() if name != first}
    return Figure(case, RATE, rates[first], "1/s", peers)
