"""How offsets, and changes of them, are printed."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from millrace.local.view.figures import count, plural
from millrace.ownership.claim import OP, Claim
from millrace.ownership.control_rules import Standing, own_claim, standing
from millrace.ownership.repositioning import Change, damaged, whose
from millrace.ownership.rewriting import Sight
from millrace_api import ConsumerPipeline

_WIDE = 200  # columns, where nobody cuts lines


class PartitionOffsets(msgspec.Struct, frozen=True, rename="camel"):
    """One partition. `holder` -1: parked; `difference`: what the consumer group's offset is ahead of the claim's (R7:
    it changes nothing). `standing`: ours, unclaimed (nothing has begun), or what is wrong; `uid`: whose it is, if not ours.
    """

    partition: int
    standing: str
    holder: int | None
    epoch: int | None
    offset: int | None
    group_offset: int | None
    difference: int | None
    beginning: int
    end: int
    lag: int | None
    uid: str | None = None


class ChangedOffset(msgspec.Struct, frozen=True, rename="camel"):
    """`before`: the offset claimed until now, or None; `why`: what was wrong, None with a reset."""

    partition: int
    before: int | None
    after: int
    difference: int | None
    holder: int
    why: str | None


def rows(sight: Sight) -> list[PartitionOffsets]:
    identity = sight.identity
    bad = damaged(identity, sight.epoch, sight.claims, sight.spans)
    found = []
    for p, span in sorted(sight.spans.items()):
        record, mirror = sight.claims.get(p), sight.mirror.get(p)
        ours = own_claim(identity, record)
        claim = Claim.decode(record.metadata) if record else None
        there = standing(identity, record)
        stands = (
            bad[p].value
            if p in bad
            else {Standing.OURS: "ours", Standing.ADOPTABLE: "parked by a former pipeline"}.get(
                there, "unclaimed"
            )
        )
        at = record.offset if record else None
        known = mirror.offset if mirror else None
        found.append(
            PartitionOffsets(
                p,
                stands,
                claim.holder if claim else None,
                claim.epoch if claim else None,
                at,
                known,
                known - at if known is not None and at is not None else None,
                span.beginning,
                span.end,
                max(0, span.end - at) if ours and at is not None else None,
                whose(identity, record) or None,
            )
        )
    return found


def stand(sight: Sight, running: int | None, as_json: bool) -> None:
    found, identity = rows(sight), sight.identity
    bad = damaged(identity, sight.epoch, sight.claims, sight.spans)
    if as_json:
        _json(
            {
                "topic": identity.topic,
                "topicId": identity.topic_id,
                "group": identity.group,
                "claimsGroup": identity.claims_group,
                "uid": identity.uid,
                "epoch": sight.epoch.number,
                "running": running is not None,
                "partitions": found,
            }
        )
        return
    console = _console()
    table = _table(
        "partition", "holder", "epoch", "offset", "group", "difference", "beginning", "end", "lag", ""
    )
    for row in found:
        note = "" if row.standing == "ours" else f"{row.standing}{f' ({row.uid})' if row.uid else ''}"
        table.add_row(
            str(row.partition),
            _holder(row.holder),
            _figure(row.epoch),
            _figure(row.offset),
            _figure(row.group_offset),
            _difference(row.difference) if row.difference else "",
            _figure(row.beginning),
            _figure(row.end),
            _figure(row.lag),
            Text(note, style="red"),
        )
    console.print(table)
    lag = sum(row.lag or 0 for row in found)
    console.print(
        Text(
            f"{identity.topic}, group {identity.group}, epoch {sight.epoch.number}, lag {count(lag)}",
            style="dim",
        )
    )
    if any(row.difference for row in found):
        console.print(
            f"The offsets of group {identity.group} were changed from outside, which changes nothing by itself; "
            + (
                "the run writes over them."
                if running is not None
                else "`millrace offsets reset --from-group` makes it so."
            )
        )
    if any(row.partition in bad for row in found):
        console.print("Claims that are lost, or not ours, are written anew by `millrace offsets repair`.")


def changes(
    what: str,
    found: Sequence[Change],
    sight: Sight,
    pipeline: ConsumerPipeline,
    dry_run: bool,
    as_json: bool,
) -> None:
    if as_json:
        told = [
            ChangedOffset(
                c.partition,
                c.before,
                c.after,
                c.after - c.before if c.before is not None else None,
                c.claim.holder,
                c.damage.value if c.damage else None,
            )
            for c in found
        ]
        _json({"action": what, "dryRun": dry_run, "changes": told})
        return
    console = _console()
    if not found:
        console.print("nothing to change: the claims say these offsets already")
        return
    table = _table("partition", "from", "to", "difference", "left", "")
    for change in found:
        known = change.before
        table.add_row(
            str(change.partition),
            _figure(known),
            _figure(change.after),
            _difference(change.after - known) if known is not None else "",
            _figure(max(0, sight.spans[change.partition].end - change.after)),
            Text(f"was {change.damage.value}" if change.damage else "", style="red"),
        )
    console.print(table)
    for line in consequences(found, pipeline):
        console.print(Text(line, style="dim"))
    done = f"{plural(len(found), 'partition')} {'would be set' if dry_run else 'set'}"
    console.print(
        f"{done}; nothing was changed (--dry-run)" if dry_run else f"{done}; the next run begins there"
    )


def consequences(found: Sequence[Change], pipeline: ConsumerPipeline) -> list[str]:
    """What the next run will do that no run does otherwise; figures are offsets, of which not each is a message."""
    back = sum(c.before - c.after for c in found if c.before is not None and c.after < c.before)
    on = sum(c.after - c.before for c in found if c.before is not None and c.after > c.before)
    unknown = [c.partition for c in found if c.before is None]
    lines = []
    if back:
        lines.append(
            f"up to {plural(back, 'message')} are processed again, and what they lead to is written again"
        )
    if on:
        lines.append(f"up to {plural(on, 'message')} are left out, and never processed")
    if unknown:
        lines.append(
            "messages below an offset set anew are not processed; those from there on are, perhaps again"
        )
    if (back or unknown) and any(stage.collect is not None for stage in pipeline.spec.stages):
        lines.append("the collector gets rows again that it has had: see docs/offsets.md")
    return lines


def _holder(holder: int | None) -> str:
    return "" if holder is None else "parked" if holder == OP else f"worker {holder}"


def _figure(number: int | None) -> str:
    return "" if number is None else count(number)


def _difference(number: int) -> str:
    return f"{number:+,}"


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in heads:
        table.add_column(head, justify="left" if head in ("holder", "") else "right", no_wrap=True)
    return table


def _console() -> Console:
    terminal = sys.stdout.isatty()
    return Console(width=None if terminal else _WIDE, soft_wrap=not terminal, highlight=False)


def _json(answer: object) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(answer)).decode() + "\n")
