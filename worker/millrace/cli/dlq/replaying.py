"""`millrace dlq replay`."""

from __future__ import annotations

import sys
from collections.abc import Callable

import msgspec

from millrace.cli.dlq.access import DeadLetters, Place, dead_letters
from millrace.cli.dlq.chosen import Chosen
from millrace.cli.dlq.letters import Letter
from millrace.cli.dlq.listing import print_json
from millrace.cli.dlq.replay import Replay, replay
from millrace.errors import ExitCode, MillraceError

_EVERY = 1.0  # s between two lines about progress


class Replayed(msgspec.Struct, frozen=True, rename="camel"):
    """How many letters were (or, in a dry run, would be) sent, and to which topics; were left out by the choice; had been
    sent before.
    """

    dry_run: bool
    replayed: int
    topics: dict[str, int]
    left_out: int
    replayed_before: int


def replay_letters(
    place: Place,
    chosen: Chosen,
    *,
    to: str | None,
    again: bool,
    limit: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    with dead_letters(place) as there:
        done = replayed(there, chosen, to=to, again=again, limit=limit, dry_run=dry_run, say=_say)
    print_replayed(done, as_json)


def replayed(
    there: DeadLetters,
    chosen: Chosen,
    *,
    to: str | None,
    again: bool,
    limit: int | None,
    dry_run: bool,
    say: Callable[[str], None],
) -> Replayed:
    """`say` is told now and then how far it is. Raises MillraceError: what was sent by then stays sent."""
    if to == there.topic:
        raise MillraceError(
            f"{to} is the topic of the dead letters themselves",
            where="--to",
            remedy="choose another, or leave it out: they go where they came from",
            code=ExitCode.USAGE,
        )
    clock, next_line = there.clock, there.clock.monotonic() + _EVERY

    def told(letter: Letter, visited: int) -> None:
        nonlocal next_line
        if clock.monotonic() >= next_line:
            next_line = clock.monotonic() + _EVERY
            say(f"{visited} dead letters looked at, now at {letter.partition}:{letter.offset}")

    what = Replay(there.topic, there.replay_group, chosen, to, again, limit)
    result = replay(there.cluster, what, clock, dry_run=dry_run, told=told)
    return Replayed(dry_run, result.sent, result.by_topic, result.left_out, result.sent_before)


def print_replayed(done: Replayed, as_json: bool) -> None:
    if as_json:
        print_json(done)
    else:
        sys.stdout.write(_words(done) + "\n")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def _words(done: Replayed) -> str:
    topics = ", ".join(f"{count} to {topic}" for topic, count in sorted(done.topics.items()))
    verb = "would replay" if done.dry_run else "replayed"
    lines = [f"{verb} {topics}" if topics else f"{verb} nothing"]
    if done.left_out:
        lines.append(f"{done.left_out} others were not chosen")
    if done.replayed_before:
        lines.append(f"{done.replayed_before} were replayed before (--again replays them too)")
    return "\n".join(lines)
