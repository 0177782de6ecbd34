"""How many dead letters are too many, per partition.

maxConsecutive = n   n dead letters in a row pass; the next one in that row is one too many. A message that was
                     processed or filtered out ends the row.
maxRatio = r         at a dead letter, if the partition's last 10,000 messages (all since it was taken up, while they
                     are fewer; at least 1,000) hold more dead letters than r times their number, this one included,
                     it is one too many. Exactly r passes. 10,000 tell a ratio of 1 in 1,000 well and forget an
                     incident of yesterday; below 1,000 a single bad message could already be a breach, and a stream
                     that is bad from its beginning is what maxConsecutive is for.

The message that is one too many is not made a dead letter: the part of the batch before it goes on and is committed,
then DeadLetterLimit stops the worker. The counts start anew when a partition is taken up, by a restart too. They are
of source messages in offset order, so gaps in the log change nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Set
from dataclasses import dataclass, field
from fractions import Fraction

from millrace.engine.batch import Batch, DeadLetter
from millrace.errors import DeadLetterLimit
from millrace.strategies.each import Outcome

RATIO_WINDOW = 10_000  # messages
RATIO_FROM = 1_000  # messages


@dataclass(slots=True)
class Account:
    """The counts of one partition."""

    seen: int = 0  # messages since the partition was taken up
    row: int = 0  # dead letters since the last message that was none
    recent: deque[int] = field(
        default_factory=deque
    )  # the numbers (1 = first seen) of dead letters within the window


class Limits:
    """Counts the dead letters of each batch that passes, and cuts the batch before the one that is too many."""

    def __init__(self, max_ratio: float | None = None, max_consecutive: int | None = None) -> None:
        # 0.29 * 100 is less than 29 in binary; what the manifest says is meant as a decimal
        self._ratio = None if max_ratio is None else Fraction(repr(max_ratio))
        self._consecutive = max_consecutive
        self._accounts: dict[int, Account] = {}

    def __call__(self, batch: Batch) -> Outcome:
        account = self._accounts.setdefault(batch.partition, Account())
        first = account.seen
        if batch.dead:
            numbers = {record.offset(): first + n for n, record in enumerate(batch.source, start=1)}
            for letter in batch.dead:
                problem = self._count(account, numbers[letter.record.offset()])
                if problem:
                    offset = letter.record.offset()
                    return Outcome(batch.before(offset), _failure(problem, letter, batch.partition))
        if account.seen < first + batch.count:
            account.seen = first + batch.count
            account.row = 0
        return Outcome(batch)

    def forget(self, partitions: Set[int]) -> None:
        """Start anew when one of these is taken up again."""
        for partition in partitions:
            self._accounts.pop(partition, None)

    def _count(self, account: Account, number: int) -> str:
        """Count the dead letter that is the `number`-th message of its partition. Says what limit it breaks, if any."""
        account.row = account.row + 1 if number == account.seen + 1 else 1
        account.seen = number
        if self._consecutive is not None and account.row > self._consecutive:
            return f"more than {self._consecutive} dead letters in a row (maxConsecutive)"
        if self._ratio is None:
            return ""
        recent = account.recent
        recent.append(number)
        while recent[0] <= number - RATIO_WINDOW:
            recent.popleft()
        window = min(number, RATIO_WINDOW)
        if number >= RATIO_FROM and len(recent) > self._ratio * window:
            return f"{len(recent)} dead letters among the last {window} messages, more than maxRatio {float(self._ratio)}"
        return ""


def _failure(problem: str, letter: DeadLetter, partition: int) -> DeadLetterLimit:
    return DeadLetterLimit(
        f"{problem}; the last one: {letter.reason}",
        stage=letter.stage,
        partition=partition,
        offset=letter.record.offset(),
        remedy="look at the dead letters (`millrace dlq list`), mend their cause, or raise the limit under deadLetter",
    )
