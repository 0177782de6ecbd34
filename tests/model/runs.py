"""Runs of the model: what must hold, and mistakes that must be found."""

from __future__ import annotations

from model.search import EVERY
from model.state import Config

UP_DOWN_UP = ((1, 2), (1, 1), (1, 2))
GROW, SHRINK = ((1, 1), (1, 2)), ((1, 2), (1, 1))

BUGS: dict[str, Config] = {
    "plain commits, a reply lost or late": Config(fenced=False, messages=1, faults={"late": 1}),
    "plain commits, node lost": Config(fenced=False, faults={"node lost": 1}),
    "plain commits, the control plane dies, its write lands late": Config(
        fenced=False, messages=1, epochs=UP_DOWN_UP, faults={"plane crash": 1}
    ),
    "plain commits, two control planes": Config(fenced=False, messages=1, planes=2, epochs=UP_DOWN_UP),
    "plain commits, 'gone' from a stale cache": Config(fenced=False, messages=1, faults={"wrongly gone": 1}),
    "the planned owner seeds, two views, no fault": Config(
        workers_seed=True, seed_first=False, messages=1, epochs=GROW
    ),
    "the planned owner seeds, Latest, seed not written first": Config(
        workers_seed=True,
        seed_first=False,
        messages=3,
        produced_late=2,
        start="Latest",
        epochs=((1, 1),),
        faults={"crash": 1},
    ),
    "the planned owner seeds, a claim expires": Config(
        workers_seed=True, seed_first=False, messages=1, epochs=GROW, faults={"expire": 1}
    ),
    "the planned owner seeds, Latest, a claim expires while it is down": Config(
        workers_seed=True,
        produced_late=1,
        start="Latest",
        epochs=((1, 1),),
        faults={"expire": 1, "crash": 1},
    ),
    "the planned owner takes up a stray's offset": Config(
        workers_seed=True,
        seed_first=False,
        messages=3,
        produced_late=2,
        epochs=((1, 1),),
        faults={"stray": 1, "crash": 1},
    ),
    "a worker reads before it initialises": Config(
        init_first=False, messages=1, epochs=GROW, faults={"node lost": 1}
    ),
    "the control plane reads, fences, writes": Config(
        plane_order="read, fence, write", messages=1, epochs=SHRINK, faults={"node lost": 1}
    ),
    "the control plane fences, reads, writes plainly": Config(
        plane_writes="plain", messages=1, epochs=UP_DOWN_UP, faults={"plane crash": 1}
    ),
    "unstable reads": Config(stable_reads=False, messages=1, epochs=GROW, faults={"crash": 1}),
    "an unknown outcome is taken for a failure": Config(
        unknown="retry", messages=1, epochs=GROW, faults={"late": 1}
    ),
    "a read from before the own pass is used after it": Config(
        prefetch=True, messages=1, epochs=GROW, faults={"stale read": 1}
    ),
    "a shrink waits for ever for a crash loop": Config(
        deadline=False, messages=1, epochs=SHRINK, faults={"crash loop": 1}
    ),
    "nobody looks again after a shrink": Config(keep_passing=False, messages=1, epochs=SHRINK),
    "an epoch is published without compare-and-set": Config(
        compare_and_set=False,
        messages=1,
        epochs=((1, 1), (1, 2), (1, 1)),
        numbers=(0, 1, 2, 2),
        fork=(2, 3),
        faults={"fork": 1},
    ),
    "epoch numbers start again": Config(messages=1, epochs=((1, 2), (1, 2), (1, 1)), numbers=(0, 1, 2, 1)),
}

Run = tuple[Config, tuple[str, ...]]

HOLDS: dict[str, Run] = {
    "plain commits, crashes only": (
        Config(fenced=False, epochs=((1, 1), (1, 2), (1, 1)), faults={"crash": 2}),
        EVERY,
    ),
    "plain commits, P grows": (
        Config(fenced=False, messages=1, epochs=((1, 1), (2, 2), (2, 1)), faults={"crash": 1}),
        EVERY,
    ),
    "crash, late replies, control plane crash": (
        Config(messages=1, faults={"crash": 1, "late": 1, "plane crash": 1}),
        EVERY,
    ),
    "node lost, late reply": (Config(messages=1, epochs=GROW, faults={"node lost": 1, "late": 1}), EVERY),
    "node lost, crash": (Config(messages=1, epochs=SHRINK, faults={"node lost": 1, "crash": 1}), EVERY),
    "a zombie's container restarts": (
        Config(messages=1, epochs=SHRINK, faults={"node lost": 1, "zombie restarts": 1}),
        EVERY,
    ),
    "to zero and up again, another N": (
        Config(messages=1, epochs=((1, 2), (1, 0), (1, 1)), faults={"crash": 1, "plane crash": 1}),
        EVERY,
    ),
    "two control planes, wrongly gone": (
        Config(messages=1, planes=2, epochs=GROW, faults={"wrongly gone": 1}),
        EVERY,
    ),
    "two control planes, P grows": (Config(messages=1, planes=2, epochs=((1, 1), (2, 2))), EVERY),
    "partitions added, crash": (Config(messages=1, epochs=((1, 1), (2, 2)), faults={"crash": 1}), EVERY),
    "two partitions, one moves, one stays": (
        Config(messages=1, epochs=((1, 2), (2, 2), (2, 1)), faults={"crash": 1}),
        EVERY,
    ),
    "three replicas": (Config(messages=1, epochs=((1, 3), (1, 1), (1, 2)), faults={"crash": 1}), EVERY),
    "crash loop": (Config(messages=1, epochs=UP_DOWN_UP, faults={"crash loop": 1}), EVERY),
    "a claim of a newer epoch is acted upon (churn, no harm)": (
        Config(wait_for_epoch=False, messages=1, faults={"crash": 1}),
        EVERY,
    ),
    "a lost claim stops its partition, crash": (
        Config(messages=1, epochs=GROW, faults={"expire": 1, "crash": 1}),
        EVERY,
    ),
    "a stray over a claim stops its partition, crash": (
        Config(messages=1, epochs=GROW, faults={"stray": 1, "crash": 1}),
        EVERY,
    ),
    "Latest, a lost claim, crash": (
        Config(produced_late=1, start="Latest", epochs=GROW, faults={"expire": 1, "crash": 1}),
        EVERY,
    ),
    "exactly once, crash, late, control plane crash": (
        Config(messages=1, exactly_once=True, faults={"crash": 1, "late": 1, "plane crash": 1}),
        EVERY,
    ),
    "exactly once, wrongly gone, down and up": (
        Config(messages=1, exactly_once=True, epochs=UP_DOWN_UP, faults={"wrongly gone": 1, "crash": 1}),
        EVERY,
    ),
}

LONG: dict[str, Run] = {
    "plain commits, every fault: nothing lost or stuck": (
        Config(fenced=False, messages=1, epochs=SHRINK, faults={"node lost": 1, "late": 1, "plane crash": 1}),
        ("LOSS", "STUCK"),
    ),
    "node lost, two messages, late reply": (Config(epochs=GROW, faults={"node lost": 1, "late": 1}), EVERY),
    "index used again after down and up, node lost": (
        Config(messages=1, epochs=UP_DOWN_UP, faults={"node lost": 1}),
        EVERY,
    ),
    "to zero and up again, node lost": (
        Config(messages=1, epochs=((1, 2), (1, 0), (1, 1)), faults={"node lost": 1}),
        EVERY,
    ),
    "exactly once, two messages, node lost, late": (
        Config(exactly_once=True, epochs=GROW, faults={"node lost": 1, "late": 1}),
        EVERY,
    ),
    "lost claim and stray, crash": (
        Config(messages=1, epochs=GROW, faults={"stray": 1, "expire": 1, "crash": 1}),
        EVERY,
    ),
    "lost claim, two control planes": (
        Config(messages=1, planes=2, epochs=GROW, faults={"expire": 1}),
        EVERY,
    ),
    "lost claim, node lost": (Config(messages=1, epochs=GROW, faults={"expire": 1, "node lost": 1}), EVERY),
    "three epochs, two messages, node lost": (Config(faults={"node lost": 1}), EVERY),
    "node lost, crash, late reply": (
        Config(messages=1, epochs=SHRINK, faults={"node lost": 1, "crash": 1, "late": 1}),
        EVERY,
    ),
    "three replicas, crash, late reply": (
        Config(messages=1, epochs=((1, 3), (1, 1), (1, 2)), faults={"crash": 1, "late": 1}),
        EVERY,
    ),
    "two partitions, late reply, wrongly gone": (
        Config(messages=1, epochs=((2, 2), (2, 1)), faults={"late": 1, "wrongly gone": 1}),
        EVERY,
    ),
    "three partitions, three replicas": (Config(messages=1, epochs=((3, 2), (3, 3))), EVERY),
    "two control planes, crash, wrongly gone, late": (
        Config(messages=1, planes=2, epochs=SHRINK, faults={"wrongly gone": 1, "crash": 1, "plane crash": 1}),
        EVERY,
    ),
}
