"""What must hold of how a stage's function is executed. `cel` says the same to the API server."""

from __future__ import annotations

from collections.abc import Iterator

from millrace_api.pools import (
    DEFAULT_BACKOFF,
    DEFAULT_LONGEST_BACKOFF,
    LONGEST_BACKOFF,
    LONGEST_TIMEOUT,
    POOL_KINDS,
    SHORTEST_BACKOFF,
    SHORTEST_TIMEOUT,
)
from millrace_api.problems import PathParts
from millrace_api.times import duration_seconds
from millrace_api.tree import at, get

Broken = tuple[PathParts, str, str]
"""Path below the stage's kind, what is wrong, what to do."""

RANGES = (
    (("timeout",), SHORTEST_TIMEOUT, LONGEST_TIMEOUT),
    (("retry", "backoff"), SHORTEST_BACKOFF, LONGEST_BACKOFF),
    (("retry", "maxBackoff"), SHORTEST_BACKOFF, LONGEST_BACKOFF),
)
"""Durations that have bounds: path below the stage's kind, shortest, longest."""


def broken_pool_rules(stage: object, *, exactly_once: bool, in_order: str) -> Iterator[Broken]:
    """What is wrong with a function stage (what stands under its kind, any shape).

    Args:
        exactly_once: delivery is ExactlyOnce.
        in_order: kind of a stage in the chain that needs messages in the order of their partition; "": there is none.
    """
    pool = get(stage, "pool")
    if pool is not None:
        kinds = [kind for kind in POOL_KINDS if get(pool, kind) is not None]
        known = f"give it exactly one of {', '.join(POOL_KINDS)}"
        if len(kinds) > 1:
            yield ("pool",), f"the pool has {len(kinds)} kinds, {' and '.join(kinds)}", known
        elif isinstance(pool, dict) and not {key for key, value in pool.items() if value is not None}:
            yield ("pool",), "the pool is of no kind", f"{known}, or leave it out"
    else:
        if get(stage, "timeout") is not None:
            yield (
                ("timeout",),
                "without a pool nothing can end the wait for a function: it runs on the worker's own thread",
                "add pool: {threads: 1}, or another one, or leave timeout out",
            )
    ordering = get(stage, "ordering")
    if ordering in ("Key", "None"):
        if pool is None:
            yield (
                ("ordering",),
                f"{ordering} says how messages leave a pool, and there is none",
                "add a pool, or leave ordering out",
            )
        if exactly_once:
            yield (
                ("ordering",),
                f"with delivery: ExactlyOnce messages leave in the order of their partition, not {ordering}",
                "use ordering: Partition, or delivery: AtLeastOnce",
            )
        if in_order:
            yield (
                ("ordering",),
                f"in a chain with a {in_order} stage messages leave in the order of their partition, not {ordering}",
                "use ordering: Partition",
            )
    given = [at(stage, ("retry", key)) for key in ("backoff", "maxBackoff")]
    backoff, longest = _seconds(given[0] or DEFAULT_BACKOFF), _seconds(given[1] or DEFAULT_LONGEST_BACKOFF)
    if backoff is not None and longest is not None and backoff > longest:
        yield (
            ("retry", "maxBackoff"),
            f'"{given[1] or DEFAULT_LONGEST_BACKOFF}" is shorter than backoff, the first wait',
            "make it at least as long",
        )


def _seconds(text: object) -> float | None:
    if not isinstance(text, str):
        return None
    try:
        return duration_seconds(text)
    except ValueError:
        return None
