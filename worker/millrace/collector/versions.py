"""Versions of a stage's checkpoint: `<storage>/<pipeline>/<stage>/v<n>`, one for each query that can't go on from the
state of the one before.

A job goes on in the newest version if its query is the same. If not, the next one begins: it reads the channel from the
oldest record that is kept, and leaves out the windows that the former version has written. So each window's result is
written by one version: those that were closed, by the former; those still open, from all their rows, by the new one.

What the former version has written is what Spark has committed, and a batch beyond that, perhaps: one that was written
when the job was killed, before Spark could say so. The sink's own record tells (`settle`).

What a function makes of rows is not known here: no window is left out where it, or the former query, is one's.

Kept are the version at work and the one before it, from which it took over. A version hands on in its own folder all
that was handed to it (`job.json`, and what was settled), so older ones tell nothing any more: `outlived`.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

from millrace.channel.wire import END
from millrace.collector import spec as specs
from millrace.collector.spec import JobSpec
from millrace.errors import ExitCode, MillraceError
from millrace.worker.files import write_whole

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

JOB_FILE = "job.json"
_SETTLED = "after.json"
_PREFIX = "v"


class _Metadata(msgspec.Struct):
    """The second line of one of Spark's offset logs: what holds for the whole batch."""

    batch_watermark_ms: int = msgspec.field(name="batchWatermarkMs", default=0)
    conf: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Former:
    """A version that was begun.

    Attributes:
        spec: of its last attempt.
        batch: the last one that is committed; None: none is.
        closed: event time, microseconds since the epoch: windows that end at or before it are written.
        frozen: Spark settings that this checkpoint keeps, whatever is set later.
    """

    spec: JobSpec
    batch: int | None
    closed: int | None
    frozen: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Choice:
    """What a job is to do. `spec`: with version, checkpoint and `after`. `former`: the version that is left behind; None
    if this goes on, or is the first. `why`: for people, what has changed; "" without a former.
    """

    spec: JobSpec
    former: Former | None = None
    why: str = ""

    def news(self, stage: str) -> str:
        """For people: what the change means to what is open and to what is written; "" if nothing has changed."""
        if self.former is None:
            return ""
        begins = (
            f"collector {stage}: {self.why}: version {self.spec.version} of its checkpoint begins. It reads the channel "
            "from the oldest record that is kept"
        )
        if self.spec.query.function is not None or self.former.spec.query.function is not None:
            return f"{begins}; what the former version has written stays, and may be written again by the new query"
        if self.spec.after is None:
            return f"{begins}; the former version has written no window"
        if self.spec.after >= END - _YEAR:
            return (
                f"{begins}, but the former version has closed all windows and written them: they stay as they are. To "
                "have them all by the new query, begin anew with another state"
            )
        told = (
            f"{begins}. Windows that end by {_said(self.spec.after)} are written and stay as they are; those still open "
            "are counted anew, by the new query"
        )
        if self.spec.query.window == self.former.spec.query.window:
            return told
        return (
            f"{told}. Where its windows are longer, the first of them lack rows of windows that are written"
        )


def beyond(result: DataFrame, after: int | None) -> DataFrame:
    """The result without the windows that a former version has written (`JobSpec.after`)."""
    from pyspark.sql import functions

    if after is None:
        return result
    return result.where(functions.col("window_end") > functions.timestamp_micros(functions.lit(after)))


def settle(checkpoint: Path, after: int | None, written: tuple[int, int] | None) -> int | None:
    """`JobSpec.after`, or later: by the last batch (version and number) that a former version has written, as its sink
    knows it. It is written down before this version writes anything, since that hides what the former has written.

    What was written down by an attempt that has begun no batch may be old: the former version may have gone on since.
    So it only ever rises.

    Raises MillraceError (DISK), (CHECKPOINT) if what was written down is damaged.
    """
    before = _settled(checkpoint)
    moments = [moment for moment in (before, after) if moment is not None]
    if written is not None:
        folder = checkpoint.parent / f"{_PREFIX}{written[0]}"
        try:
            millis = _metadata(folder, written[1]).batch_watermark_ms
            if millis and specs.read(folder / JOB_FILE).query.function is None:
                moments.append(millis * 1000)
        except (OSError, ValueError, IndexError, MillraceError):
            pass  # that version's folder has been removed
    settled = max(moments, default=None)
    if settled != before:
        write_whole(checkpoint / _SETTLED, msgspec.json.encode(settled), durable=True)
    return settled


def outlived(home: Path, version: int) -> Sequence[Path]:
    """The folders of versions that nothing needs any more now that a job has committed a batch of `version`, the newest:
    all but it and the last one before it in which a query had begun. The oldest comes first.
    """
    older = sorted(number for number in _numbers(home) if number < version)
    begun = [number for number in older if _entries(_folder(home, number) / "offsets")]
    return [_folder(home, number) for number in older if number not in begun[-1:]]


def remove_outlived(checkpoint: Path, version: int, log: structlog.typing.FilteringBoundLogger) -> None:
    """Remove what is `outlived`, each with a line in the log. What can't be removed is no reason to stop: it is tried
    again by the next attempt.
    """
    for folder in outlived(checkpoint.parent, version):
        try:
            # first: without it, it is none in which a query has begun, whatever is left of it by a kill
            shutil.rmtree(folder / "offsets", ignore_errors=True)
            shutil.rmtree(folder)
        except OSError as error:
            log.warning(
                "an old version of the checkpoint can't be removed", folder=str(folder), error=str(error)
            )
        else:
            log.info("an old version of the checkpoint is removed", folder=str(folder))


_YEAR = 366 * 86_400 * 1_000_000


def choose(home: Path, wanted: JobSpec) -> Choice:
    """home: the folder with the versions of this stage. Nobody else may use it meanwhile (`launch.locked`).

    Raises: MillraceError (CHECKPOINT) if what is there can't be understood.
    """
    former = newest(home)
    if former is None:
        return Choice(_placed(wanted, home, 1, None))
    why = changed(former, wanted)
    if not why:
        return Choice(_placed(wanted, home, former.spec.version, former.spec.after))
    left_out = (former.closed, former.spec.after, _settled(_folder(home, former.spec.version)))
    known = [moment for moment in left_out if moment is not None]
    if wanted.query.function is not None or former.spec.query.function is not None:
        known = []
    chosen = _placed(wanted, home, former.spec.version + 1, max(known, default=None))
    return Choice(chosen, former, why)


def changed(former: Former, wanted: JobSpec) -> str:
    """Why this job can't go on from the former's state, for people; "" if it can."""
    before = former.spec
    if before.query.fingerprint() != wanted.query.fingerprint():
        return "its query has changed"
    if before.layout != wanted.layout:
        return "this version of Millrace keeps state in another form"
    other = [key for key in former.frozen if before.query.conf.get(key) != wanted.query.conf.get(key)]
    if other:
        return f"{', '.join(sorted(other))} has changed, which a checkpoint keeps"
    return ""


def newest(home: Path) -> Former | None:
    """The newest version in which a query has begun; None if there is none."""
    for number in sorted(_numbers(home), reverse=True):
        folder = _folder(home, number)
        if _entries(folder / "offsets"):
            return _former(folder, number)
    return None


def _former(folder: Path, number: int) -> Former:
    try:
        spec = msgspec.structs.replace(specs.read(folder / JOB_FILE), version=number)
        begun = _metadata(folder, max(_entries(folder / "offsets")))
        done = max(_entries(folder / "commits"), default=None)
        closed = _metadata(folder, done).batch_watermark_ms if done is not None else 0
    except (OSError, ValueError, IndexError, MillraceError) as error:
        raise _damaged(folder, error) from error
    # Spark's watermark is 0 as long as there is none
    return Former(spec, done, closed * 1000 if closed else None, begun.conf)


def _metadata(folder: Path, batch: int) -> _Metadata:
    lines = (folder / "offsets" / str(batch)).read_text().splitlines()
    return msgspec.json.decode(lines[1], type=_Metadata)


def _settled(checkpoint: Path) -> int | None:
    """What `settle` has written down there. Raises MillraceError (CHECKPOINT)."""
    file = checkpoint / _SETTLED
    try:
        return msgspec.json.decode(file.read_bytes(), type=int | None)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise _damaged(checkpoint, error) from error


def _damaged(folder: Path, error: Exception) -> MillraceError:
    return MillraceError(
        f"the checkpoint {folder} can't be understood: {error}",
        where=str(folder),
        remedy="restore it from a copy; or remove it with the stage's results, and what the channel still holds is "
        "counted anew",
        code=ExitCode.CHECKPOINT,
    )


def _numbers(home: Path) -> list[int]:
    return [int(v.name[1:]) for v in home.glob(f"{_PREFIX}[0-9]*") if v.name[1:].isdigit()]


def _folder(home: Path, version: int) -> Path:
    return home / f"{_PREFIX}{version}"


def _entries(log: Path) -> list[int]:
    """The batches in one of Spark's metadata logs."""
    return [int(file.name) for file in log.glob("[0-9]*") if file.name.isdigit()]


def _placed(wanted: JobSpec, home: Path, version: int, after: int | None) -> JobSpec:
    checkpoint = str(_folder(home, version))
    return msgspec.structs.replace(wanted, version=version, checkpoint=checkpoint, after=after)


def _said(micros: int) -> str:
    from datetime import UTC, datetime

    return f"{datetime.fromtimestamp(micros // 1_000_000, UTC):%Y-%m-%d %H:%M:%S} UTC"
