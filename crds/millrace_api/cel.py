"""The rules of `rules` and `changes` in CEL, as the API server checks them.

It takes them only if their estimated cost stays within a budget, which is why every list, mapping and text of the
models has a bound. That names in a list differ is no rule here: its type, map, says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from millrace_api.collect import (
    LONGEST_AGE,
    LONGEST_TRIGGER,
    LONGEST_WINDOW,
    SHORTEST_AGE,
    SHORTEST_TRIGGER,
    SHORTEST_WINDOW,
)
from millrace_api.forms import LABEL_KEY
from millrace_api.gather import LONGEST_HOLD, SHORTEST_HOLD
from millrace_api.placing import FREE, KEPT_DOMAINS, KEPT_KEYS, KEPT_PREFIX, VALUED
from millrace_api.pool_rules import RANGES
from millrace_api.pools import POOL_KINDS
from millrace_api.rules import (
    LONGEST_COMMIT,
    LONGEST_NODE_LOST,
    RESERVED_ENV,
    SHORTEST_COMMIT,
    SHORTEST_NODE_LOST,
)
from millrace_api.sinks import SINK_KINDS
from millrace_api.spark import KEPT, KEPT_BELOW
from millrace_api.stages import (
    FUNCTION_KINDS,
    GATHER_KINDS,
    IN_ORDER_KINDS,
    KINDS,
    ON_ERROR_KINDS,
    RESERVED_STAGE_NAMES,
    TERMINAL_KINDS,
)


@dataclass(frozen=True, slots=True)
class CelRule:
    """Something that must hold.

    Attributes:
        at: where in the schema it stands; "*" is every item of a list.
        rule: the expression; `self` is the value at that place, `oldSelf` the one before an update.
        message: what the API server says when it is broken.
    """

    at: tuple[str, ...]
    rule: str
    message: str


def _endings(kinds: Sequence[str]) -> Iterator[Sequence[str]]:
    for count in range(1, len(kinds) + 1):
        yield from combinations(kinds, count)


def _terminal_cel() -> str:
    """True if the terminal stages are one of the allowed endings. CEL knows no index inside all(), so each ending is
    spelled out.
    """
    terminal = " || ".join(f"has(s.{kind})" for kind in TERMINAL_KINDS)
    count = f"self.filter(s, {terminal}).size()"
    endings = [f"{count} == 0"]
    for ending in _endings(TERMINAL_KINDS):
        places = [f"has(self[self.size() - {len(ending) - i}].{kind})" for i, kind in enumerate(ending)]
        endings.append(" && ".join([f"{count} == {len(ending)}", f"self.size() >= {len(ending)}", *places]))
    return " || ".join(f"({ending})" for ending in endings)


def _between(least: str, most: str) -> str:
    return f"duration(self) >= duration('{least}') && duration(self) <= duration('{most}')"


def _none_kept() -> str:
    below = " || ".join(f"key.startsWith('{prefix}')" for prefix in KEPT_BELOW)
    return f"self.all(key, !({below} || key in [{', '.join(repr(key) for key in KEPT)}]))"


def _own_keys() -> str:
    domains = "|".join(one.replace(".", "[.]") for one in KEPT_DOMAINS)
    kept = f"key.matches('^([^/]*[.])?({domains})/') || key.startsWith('{KEPT_PREFIX}') || key in {list(KEPT_KEYS)}"
    form = f"key.size() <= {LABEL_KEY.max_length} && key.matches('{LABEL_KEY.pattern}')"
    return f"self.all(key, {form} && (key in {list(FREE)} || !({kept})))"


_STAGES: Final = ("spec", "stages")
_COLLECT: Final = (*_STAGES, "*", "collect")


def _ordered(kind: str) -> str:
    """True if stage s, where it is of this kind, lets messages leave in the order of their partition."""
    return f"!(has(s.{kind}) && has(s.{kind}.ordering) && s.{kind}.ordering != 'Partition')"


_ALL_ORDERED: Final = f"self.stages.all(s, {' && '.join(map(_ordered, FUNCTION_KINDS))})"

RULES: Final[Sequence[CelRule]] = (
    CelRule(
        at=(*_STAGES, "*"),
        rule=f"[{', '.join(f'has(self.{kind})' for kind in KINDS)}].filter(there, there).size() == 1",
        message=f"a stage has exactly one of {', '.join(KINDS)}",
    ),
    CelRule(
        at=(*_STAGES, "*", "name"),
        rule=f"!(self in [{', '.join(repr(name) for name in RESERVED_STAGE_NAMES)}])",
        message=f"{', '.join(RESERVED_STAGE_NAMES)} is reserved",
    ),
    CelRule(
        at=_STAGES,
        rule=_terminal_cel(),
        message=f"{', then '.join(TERMINAL_KINDS)} only at the end of the chain",
    ),
    CelRule(
        at=_STAGES,
        rule="self.size() == 0 || !has(self[self.size() - 1].batch)",
        message="a batch stage can't be the last one",
    ),
    CelRule(
        at=_STAGES,
        rule="self.size() == 0 || !has(self[self.size() - 1].reduce) || has(self[self.size() - 1].reduce.flush)",
        message="a reduce stage as the last one needs flush",
    ),
    *(
        CelRule(
            at=(*_STAGES, "*", kind, "interval"),
            rule=_between(SHORTEST_HOLD, LONGEST_HOLD),
            message=f"from {SHORTEST_HOLD} to {LONGEST_HOLD}",
        )
        for kind in GATHER_KINDS
    ),
    CelRule(
        at=("spec",),
        rule="has(self.deadLetter) || self.stages.all(s, "
        + " && ".join(
            f"!(has(s.{kind}) && has(s.{kind}.onError) && s.{kind}.onError == 'DeadLetter')"
            for kind in ON_ERROR_KINDS
        )
        + ")",
        message="onError: DeadLetter needs spec.deadLetter",
    ),
    CelRule(
        at=("spec",),
        rule="has(self.deadLetter) || self.stages.all(s, "
        "!(has(s.collect) && has(s.collect.window.late) && s.collect.window.late == 'DeadLetter'))",
        message="window.late: DeadLetter needs spec.deadLetter",
    ),
    CelRule(
        at=("spec",),
        rule="!has(self.deadLetter) || self.deadLetter.topic != self.source.topic",
        message="deadLetter.topic can't be the topic of the source",
    ),
    CelRule(
        at=("spec",),
        rule="self.stages.all(s, !has(s.produce) || (s.produce.topic != self.source.topic && "
        "(!has(self.deadLetter) || s.produce.topic != self.deadLetter.topic)))",
        message="produce.topic can't be the topic of the source or of deadLetter",
    ),
    *(
        CelRule(
            at=(*_STAGES, "*", kind, *below), rule=_between(least, most), message=f"from {least} to {most}"
        )
        for kind in FUNCTION_KINDS
        for below, least, most in RANGES
    ),
    *(
        rule
        for kind in FUNCTION_KINDS
        for rule in (
            CelRule(
                at=(*_STAGES, "*", kind, "pool"),
                rule=f"[{', '.join(f'has(self.{one})' for one in POOL_KINDS)}].filter(there, there).size() == 1",
                message=f"a pool has exactly one of {', '.join(POOL_KINDS)}",
            ),
            CelRule(
                at=(*_STAGES, "*", kind),
                rule="has(self.pool) || !has(self.timeout)",
                message="timeout needs a pool",
            ),
            CelRule(
                at=(*_STAGES, "*", kind),
                rule="has(self.pool) || !has(self.ordering) || self.ordering == 'Partition'",
                message="ordering needs a pool",
            ),
            CelRule(
                at=(*_STAGES, "*", kind, "retry"),
                rule="!has(self.backoff) || !has(self.maxBackoff) || duration(self.backoff) <= duration(self.maxBackoff)",
                message="maxBackoff is at least backoff",
            ),
        )
    ),
    CelRule(
        at=("spec",),
        rule=f"!has(self.delivery) || self.delivery != 'ExactlyOnce' || {_ALL_ORDERED}",
        message="ordering: Key or None can't stand beside delivery: ExactlyOnce",
    ),
    CelRule(
        at=("spec",),
        rule=f"self.stages.all(s, {' && '.join(f'!has(s.{kind})' for kind in IN_ORDER_KINDS)}) || {_ALL_ORDERED}",
        message="ordering: Key or None can't stand in a chain with a batch, reduce or collect stage",
    ),
    CelRule(
        at=("spec", "commit", "interval"),
        rule=_between(SHORTEST_COMMIT, LONGEST_COMMIT),
        message=f"from {SHORTEST_COMMIT} to {LONGEST_COMMIT}",
    ),
    CelRule(
        at=("spec", "nodeLost", "after"),
        rule=_between(SHORTEST_NODE_LOST, LONGEST_NODE_LOST),
        message=f"from {SHORTEST_NODE_LOST} to {LONGEST_NODE_LOST}",
    ),
    CelRule(
        at=("spec", "worker", "env", "*", "name"),
        rule=f"self != '{RESERVED_ENV}'",
        message=f"{RESERVED_ENV} is how a worker gets its index",
    ),
    *(
        CelRule(
            at=("spec", "worker", field),
            rule=_own_keys(),
            message="keys are those of labels, and not Kubernetes' or Millrace's own",
        )
        for field in ("labels", "annotations")
    ),
    *(
        CelRule(
            at=("spec", "worker", "affinity", kind, "*"),
            rule=f"(!has(self.operator) || self.operator in {list(VALUED)}) == (has(self.values) && self.values.size() > 0)",
            message=f"{' and '.join(VALUED)} need values, the others have none",
        )
        for kind in ("required", "preferred")
    ),
    *(
        CelRule(
            at=(*_COLLECT, "window", field),
            rule=_between(least, LONGEST_WINDOW),
            message=f"from {least} to {LONGEST_WINDOW}",
        )
        for field, least in (("size", SHORTEST_WINDOW), ("slide", SHORTEST_WINDOW), ("lateness", "0s"))
    ),
    CelRule(
        at=(*_COLLECT, "window"),
        # CEL's durations can't be divided, their milliseconds can; finer ones are left to the workers' reading. To make
        # a duration of a text that the rule itself has made costs more than the whole budget.
        rule="!has(self.slide) || !has(self.size) || self.slide.matches('[.un]') || duration(self.slide) < duration('1s') || "
        "duration(self.size).getMilliseconds() % duration(self.slide).getMilliseconds() == 0",
        message="slide must divide size",
    ),
    CelRule(
        at=(*_COLLECT, "trigger", "interval"),
        rule=_between(SHORTEST_TRIGGER, LONGEST_TRIGGER),
        message=f"from {SHORTEST_TRIGGER} to {LONGEST_TRIGGER}",
    ),
    CelRule(
        at=_COLLECT,
        rule="has(self.function) != has(self.aggregate)",
        message="a collect stage has exactly one of aggregate, function",
    ),
    CelRule(
        at=_COLLECT,
        rule="has(self.function) || (has(self.window) && has(self.window.size) && has(self.sink))",
        message="aggregate needs window with size, and sink",
    ),
    CelRule(
        at=_COLLECT,
        rule="!has(self.function) || ((!has(self.groupBy) || self.groupBy.size() == 0) && "
        "(!has(self.window) || (!has(self.window.size) && !has(self.window.slide))))",
        message="groupBy, window.size and window.slide can't stand beside function",
    ),
    CelRule(
        at=("spec",),
        rule="self.stages.all(s, !has(s.collect) || !has(s.collect.sink) || !has(s.collect.sink.kafka) || "
        "(s.collect.sink.kafka.topic != self.source.topic && "
        "(!has(self.deadLetter) || s.collect.sink.kafka.topic != self.deadLetter.topic)))",
        message="sink.kafka.topic can't be the topic of the source or of deadLetter",
    ),
    CelRule(
        at=(*_COLLECT, "trigger"),
        rule="!(has(self.interval) && has(self.onLag))",
        message="a trigger is either interval or onLag",
    ),
    CelRule(
        at=(*_COLLECT, "trigger", "onLag"),
        rule="has(self.messages) || has(self.age)",
        message="onLag has messages, age, or both",
    ),
    CelRule(
        at=(*_COLLECT, "trigger", "onLag", "age"),
        rule=_between(SHORTEST_AGE, LONGEST_AGE),
        message=f"from {SHORTEST_AGE} to {LONGEST_AGE}",
    ),
    CelRule(
        at=(*_COLLECT, "spark", "conf"),
        rule=_none_kept(),
        message="where a job runs, what is on its class path and all of spark.kubernetes. are Millrace's own",
    ),
    CelRule(
        at=(*_COLLECT, "spark", "executors"),
        rule="has(self.instances) != has(self.max) && !(has(self.instances) && has(self.min)) && "
        "(!has(self.min) || !has(self.max) || self.min <= self.max)",
        message="executors have instances, or max with a min that is not above it",
    ),
    CelRule(
        at=(*_COLLECT, "sink"),
        rule=f"[{', '.join(f'has(self.{kind})' for kind in SINK_KINDS)}].filter(there, there).size() == 1",
        message=f"a sink has exactly one of {', '.join(SINK_KINDS)}",
    ),
    CelRule(
        at=("spec", "source", "startFrom"),
        rule="self in ['Earliest', 'Latest'] || timestamp(self) >= timestamp('1970-01-01T00:00:00Z')",
        message="a day that exists, from 1970-01-01T00:00:00Z on",
    ),
    CelRule(
        at=("spec", "kafka", "properties"),
        rule="self.all(key, key.size() <= 128)",
        message="a property's name has at most 128 characters",
    ),
    CelRule(
        at=("spec", "source", "topic"),
        rule="self == oldSelf",
        message="the topic can't be changed; make a new pipeline",
    ),
    CelRule(
        at=("spec", "source"),
        # has() on both sides: a rule on the field itself would not see it come or go
        rule="has(self.groupId) == has(oldSelf.groupId) && (!has(self.groupId) || self.groupId == oldSelf.groupId)",
        message="groupId can't be added, changed or removed later; make a new pipeline",
    ),
)
