"""`millrace plan`."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from millrace.errors import ExitCode, MillraceError
from millrace.ownership.errors import shorten
from millrace.ownership.plan import Move, moves
from millrace.ownership.plan import plan as owners_of

_SHOWN = 16  # ranges of partitions named per line before the rest is only counted


def plan(
    manifest: Path | None, partitions: int | None, replicas: int | None, to: int | None, as_json: bool
) -> None:
    if manifest is not None:
        partitions, replicas = _from_manifest(manifest, partitions, replicas)
    if partitions is None or replicas is None:
        missing = "--partitions" if partitions is None else "--replicas"
        raise MillraceError(
            f"{missing} is missing",
            remedy="give --partitions and --replicas, or a manifest that says them",
            code=ExitCode.USAGE,
        )
    now = owners_of(partitions, replicas)
    changes = moves(now, owners_of(partitions, to)) if to is not None else None
    if as_json:
        import msgspec

        answer: dict[str, object] = {"partitions": partitions, "replicas": replicas, "owners": now}
        if changes is not None:
            answer["to"] = to
            answer["moves"] = [{"partition": m.partition, "from": m.source, "to": m.target} for m in changes]
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    else:
        sys.stdout.write("\n".join(_lines(now, replicas, to, changes)) + "\n")


def _from_manifest(
    manifest: Path, partitions: int | None, replicas: int | None
) -> tuple[int | None, int | None]:
    from millrace.worker.manifest import read

    spec = read(manifest).pipeline.spec
    if partitions is None and spec.source.create is not None:
        partitions = spec.source.create.partitions
    return partitions, spec.replicas if replicas is None else replicas


def _lines(
    owners: tuple[int, ...], replicas: int, to: int | None, changes: tuple[Move, ...] | None
) -> list[str]:
    held: dict[int, list[int]] = {index: [] for index in range(replicas)}
    for partition, owner in enumerate(owners):
        held[owner].append(partition)
    width = len(str(max(len(mine) for mine in held.values())))
    name = len(str(replicas - 1))
    lines = [
        f"worker {index:>{name}}  {len(mine):>{width}} {'partition ' if len(mine) == 1 else 'partitions'}  {_named(mine)}"
        for index, mine in held.items()
    ]
    if changes is not None:
        lines.append("")
        lines.append(f"{replicas} to {to} workers: {len(changes)} of {len(owners)} partitions move")
        flows = Counter((move.source, move.target) for move in changes)
        lines.extend(
            f"  worker {source} to worker {target}  {_named([m.partition for m in changes if m.source == source and m.target == target])}"
            for source, target in sorted(flows, key=str)
        )
    return lines


def _named(partitions: list[int]) -> str:
    runs = shorten(partitions).split(", ")
    rest = len(runs) - _SHOWN
    return ", ".join(runs[:_SHOWN]) + (f" and {rest} more ranges" if rest > 0 else "")
