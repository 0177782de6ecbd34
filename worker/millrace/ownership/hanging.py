"""Offsets of a transaction that its broker has forgotten: pending for ever, and so never to be read stably (R2).

A broker that died for want of disk space can leave such a one behind (Kafka calls it a hanging transaction: the commit
of an offset is in the log, what the transaction coordinator knew of it is not). It is told apart by R1: claims that
name x are written only by the producer of x, and `init` has just ended whatever that had left open. What still is
pending is ended by the abort of another transaction of the same producer on the same group: the group's coordinator
drops all that is pending of a producer when a marker of that producer comes.
"""

from __future__ import annotations

from collections.abc import Mapping

from millrace.clock import Deadline
from millrace.connectivity.ports import Admin, OffsetAndMetadata, TransactionalProducer, Unstable


def end_hanging(
    records: Mapping[int, OffsetAndMetadata],
    *,
    group: str,
    topic: str,
    producer: TransactionalProducer,
    admin: Admin,
    deadline: Deadline,
) -> bool:
    """To be called after `init`, before anything is begun. Changes no committed offset.

    Args:
        records: what is committed (a read that is not stable) of the claims that name the producer's id.

    Returns whether there was something to end (or a marker was just about to arrive; then it was for nothing, and did
    no harm). Raises what the clients raise.
    """
    if not records:
        return False
    try:
        admin.group_offsets(group, topic, records, deadline.remaining(), stable=True)
    except Unstable:
        partition = min(records)
        producer.begin()
        producer.send_offsets(group, topic, {partition: records[partition]}, deadline.remaining())
        producer.abort(deadline.remaining())
        return True
    return False
