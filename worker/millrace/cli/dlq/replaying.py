"""`millrace dlq replay`."""

from __future__ import annotations

import sys

from millrace.cli.dlq.access import Place, dead_letters
from millrace.cli.dlq.chosen import Chosen
from millrace.cli.dlq.letters import Letter
from millrace.cli.dlq.listing import print_json
from millrace.cli.dlq.replay import Replay, Result, replay
from millrace.errors import ExitCode, MillraceError

_EVERY = 1.0  # s between two lines about progress


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
                at = f"{letter.partition}:{letter.offset}"
                sys.stderr.write(f"{visited} dead letters looked at, now at {at}\n")

        what = Replay(there.topic, there.replay_group, chosen, to, again, limit)
        result = replay(there.cluster, what, clock, dry_run=dry_run, told=told)
    if as_json:
        print_json(
            {
                "dryRun": dry_run,
                "replayed": result.sent,
                "topics": result.by_topic,
                "leftOut": result.left_out,
                "replayedBefore": result.sent_before,
            }
        )
    else:
        sys.stdout.write(_words(result, dry_run) + "\n")


def _words(result: Result, dry_run: bool) -> str:
    topics = ", ".join(f"{count} to {topic}" for topic, count in sorted(result.by_topic.items()))
    verb = "would replay" if dry_run else "replayed"
    lines = [f"{verb} {topics}" if topics else f"{verb} nothing"]
    if result.left_out:
        lines.append(f"{result.left_out} others were not chosen")
    if result.sent_before:
        lines.append(f"{result.sent_before} were replayed before (--again replays them too)")
    return "\n".join(lines)
