"""How a replica paces itself. Seconds, unless a name says otherwise."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """Attributes:
    commit_interval: between commits while there is something to commit (spec.commit.interval). Back-to-back
        transactions cost about 100 ms each, spaced ones 10 ms.
    commit_messages: messages taken after which a commit is made sooner.
    transaction_age: an open transaction is committed at this age even if `commit_interval` is longer, well before the
        broker aborts it (transaction.timeout.ms, 10 s).
    idle_commit: after which a partition without progress is committed anyway (R3g).
    claim_check: between two looks at all claims (R3f).
    claim_wait: between two looks at claims that are awaited.
    pass_wait: for how long a drained partition waits for others that are about to be, to be passed in one transaction.
    drain_deadline: after which what is in flight of a leaving partition is abandoned (R3d).
    request_timeout: for questions to the broker.
    init_timeout: for init_transactions, in one step.
    commit_timeout: for a commit; when it is over the outcome is unknown (R3e).
    backoff_first, backoff_largest: between attempts after a failure that passes.
    batch_size: messages per fetch.
    first_batch: messages in the first batch of a partition; from then on a batch is as large as its time allows. A
        larger one of a slow function could have the open transaction time out, and so again after each restart.
    max_in_flight: messages in the chain beyond which nothing is fetched.
    """

    commit_interval: float = 1.0
    commit_messages: int = 100_000
    transaction_age: float = 5.0
    idle_commit: float = 60.0
    claim_check: float = 15.0
    claim_wait: float = 0.1
    pass_wait: float = 0.1
    drain_deadline: float = 30.0
    request_timeout: float = 3.0
    init_timeout: float = 3.0
    commit_timeout: float = 10.0
    backoff_first: float = 0.1
    backoff_largest: float = 5.0
    batch_size: int = 500
    first_batch: int = 1
    max_in_flight: int = 100_000


class Backoff:
    """How long to wait before the next attempt: twice as long each time, up to a largest."""

    def __init__(self, first: float, largest: float) -> None:
        self._first, self._largest, self._next = first, largest, first

    def failed(self) -> float:
        """Seconds to wait after yet another failure."""
        wait, self._next = self._next, min(self._next * 2, self._largest)
        return wait

    def succeeded(self) -> None:
        self._next = self._first
