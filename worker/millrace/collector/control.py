"""The control stream: the query's watermark, as text files with one number each, in microseconds since the epoch.

Spark takes up a new file with the next batch, and closes windows by it with the one after; also where there is no data
(a batch is made for the file). A file that was taken up is in Spark's log, so a batch that is run again reads the same.
A watermark only rises: what is not higher than the last file is not written.
"""

from __future__ import annotations

from pathlib import Path

from millrace.errors import ExitCode, MillraceError
from millrace.worker.files import write_whole

FOLDER = "control"
_KEPT = 16
"""Files. The batch that may have to be run again has read one of the last two."""


class Control:
    """Args:
    checkpoint: of the query.
    """

    def __init__(self, checkpoint: Path) -> None:
        self.folder = checkpoint / FOLDER
        self._told: int | None = None

    @property
    def told(self) -> int | None:
        """The watermark that was written last."""
        return self._told

    def open(self) -> None:
        """Raises MillraceError (DISK), (CHECKPOINT) if the newest file is damaged."""
        self.folder.mkdir(parents=True, exist_ok=True)
        newest = max(self._numbers(), default=None)
        if newest is None:
            return
        file = self._file(newest)
        try:
            self._told = int(file.read_text())
        except ValueError as error:
            raise MillraceError(
                f"a control file of the collector is damaged: {error}",
                where=str(file),
                remedy="remove it",
                code=ExitCode.CHECKPOINT,
            ) from error

    def tell(self, watermark: int) -> bool:
        """Have Spark close what ends by this moment. False: it was told so before. Raises MillraceError (DISK)."""
        # Spark's own watermark is 0 from the beginning
        if watermark <= max(self._told or 0, 0):
            return False
        numbers = self._numbers()
        write_whole(self._file(max(numbers, default=0) + 1), b"%d\n" % watermark, durable=True)
        self._told = watermark
        for number in sorted(numbers)[: 1 - _KEPT]:
            self._file(number).unlink(missing_ok=True)
        return True

    def _numbers(self) -> list[int]:
        return [int(file.stem) for file in self.folder.glob("[0-9]*.txt")]

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:08}.txt"
