"""A stand-in for a worker: it plays R1 to R3 over the ports of connectivity and processes nothing.

For tests in which pods are only claimed to run: somebody must hold the claims and pass them on, or the operator would
wait for ever. It commits its partitions at the positions that it is told to have reached; the real worker's rules are
tested elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable

from millrace.connectivity.ports import Cluster, Fenced, OffsetAndMetadata, TransactionalProducer, Unstable
from millrace.ownership.claim import Claim, transactional_id
from millrace.ownership.epoch import Epoch

TIMEOUT = 10.0


class WorkerDouble:
    """Call `work` again and again. `ready` as the real one is: epoch read, producer initialised."""

    def __init__(
        self,
        cluster: Cluster,
        read_epoch: Callable[[], Epoch | None],
        index: int,
        *,
        topic: str,
        claims_group: str,
    ) -> None:
        self._cluster, self._read, self.index = cluster, read_epoch, index
        self._topic, self._group = topic, claims_group
        self._admin = cluster.admin()
        self._producer: TransactionalProducer | None = None
        self._view: Epoch | None = None
        self.fenced = False
        self.held: frozenset[int] = frozenset()

    @property
    def ready(self) -> bool:
        return self._producer is not None and not self.fenced

    def work(self, processed: int = 0) -> None:
        """Take the newest epoch in, hold what the claims give, pass on what the plan gives to another; commit
        `processed` more messages of each partition held.
        """
        epoch = self._read()
        if epoch is None or self.fenced:
            return
        if self._view is None or epoch.number > self._view.number:
            self._view = epoch
        if self._producer is None:
            self._producer = self._cluster.transactional_producer(transactional_id(epoch.uid, self.index))
            self._producer.init(TIMEOUT)
        try:
            self._commit(self._producer, self._view, processed)
        except Fenced:
            self.fenced = True
        except Unstable:
            pass

    def _commit(self, producer: TransactionalProducer, view: Epoch, processed: int) -> None:
        records = self._admin.group_offsets(
            self._group, self._topic, range(view.partitions), TIMEOUT, stable=True
        )
        offsets, held = {}, set()
        for partition, record in records.items():
            claim = Claim.decode(record.metadata)
            if (
                claim is None
                or claim.holder != self.index
                or claim.epoch > view.number
                or claim.uid != view.uid
            ):
                continue
            owner = view.owner(partition)
            if owner == self.index:
                held.add(partition)
            if owner != self.index or processed:
                mine = Claim(claim.uid, claim.topic_id, view.number, owner, claim.note)
                offset = record.offset + (processed if owner == self.index else 0)
                offsets[partition] = OffsetAndMetadata(offset, mine.encode())
        if offsets:
            producer.begin()
            producer.send_offsets(self._group, self._topic, offsets, TIMEOUT)
            producer.commit(TIMEOUT)
        self.held = frozenset(held)

    def end(self) -> None:
        """As by SIGKILL."""
        if self._producer is not None:
            self._producer.close()
        self._admin.close()
