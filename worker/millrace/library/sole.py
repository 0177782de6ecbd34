"""A pipeline's only worker, which plays the control plane for itself: what `millrace run` does with several processes, on
one thread of one program.

The fence is as ever: a second program of the same pipeline that starts takes over, and the first one ends with Fenced.
"""

from __future__ import annotations

from millrace.chain import Functions
from millrace.channel.progress import Note
from millrace.clock import Clock, Deadline
from millrace.connectivity.ports import BrokerUnreachable, Cluster, TimedOut
from millrace.engine.bounds import Bounds
from millrace.engine.readiness import Snapshot
from millrace.engine.replica import Replica
from millrace.engine.settings import ReplicaSettings
from millrace.ownership.control_plane import ControlPlane, Interrupted
from millrace.ownership.control_rules import Fleet, Settled
from millrace.ownership.epoch_store import MemoryEpochs
from millrace.worker.assembly import Chains
from millrace.worker.manifest import start_from
from millrace_api import ConsumerPipeline
from millrace_api.needed import transactional

LOOK_EVERY = 30.0  # s between two looks at the topic and at claims: how soon an added partition is read
STEP_EVERY = 0.1  # s between two steps on the way to an epoch
_INDEX = 0


class SoleWorker:
    """Stepped from outside, as a Replica is. All topics have to be there.

    Args:
        uid: of the pipeline: claims of another one are foreign.
        bounds: where a bounded run ends; None: it goes on for ever.
    """

    def __init__(
        self,
        pipeline: ConsumerPipeline,
        functions: Functions,
        cluster: Cluster,
        clock: Clock,
        *,
        uid: str,
        epochs: MemoryEpochs,
        bounds: Bounds | None = None,
    ) -> None:
        self._clock, self._bounds = clock, bounds
        self._collects = any(stage.collect is not None for stage in pipeline.spec.stages)
        topic, group, claims = pipeline.spec.source.topic, pipeline.group_id, pipeline.claims_group
        outputs = transactional(pipeline)
        self._chains = Chains(pipeline, functions, cluster, clock)
        self._plane = ControlPlane(
            cluster,
            epochs,
            clock,
            uid=uid,
            topic=topic,
            group=group,
            claims_group=claims,
            start_from=start_from(pipeline),
            outputs=outputs,
            timeout=10.0,
        )
        self._plane.open()
        self._replica = Replica(
            cluster,
            topic=topic,
            group=group,
            claims_group=claims,
            index=_INDEX,
            epoch_source=epochs.newest,
            chain=self._chains,
            clock=clock,
            settings=ReplicaSettings(commit_interval=pipeline.spec.commit.interval_seconds),
            bounds=bounds,
            outputs=outputs,
        )
        self._next_look, self.settled = clock.monotonic(), False

    def step(self, timeout: float) -> int:
        """As Replica.step, with a step of the control plane before it when one is due. Raises also what
        ControlPlane.reconcile does; that the broker does not answer only before the first epoch.
        """
        if self._clock.monotonic() >= self._next_look:
            self._reconcile()
        return self._replica.step(timeout)

    def snapshot(self) -> Snapshot:
        return self._replica.snapshot()

    def at_end(self) -> bool:
        """Whether all below the bounds is committed, end marks included. Without bounds: never."""
        if self._bounds is None or not self.settled:
            return False
        seen, ends = self.snapshot(), self._bounds.ends
        return all(
            seen.committed.get(partition, -1) >= end
            and (not self._collects or _ended(seen.notes.get(partition)))
            for partition, end in ends.items()
        )

    def close(self, deadline: Deadline) -> bool:
        """Bring what was taken to its end, commit it, and release everything. Returns whether nothing was left undone."""
        try:
            return self._replica.close(deadline)
        finally:
            self._release()

    def terminate(self) -> None:
        """Release everything and commit nothing more. Idempotent."""
        self._replica.terminate()
        self._release()

    def _release(self) -> None:
        self._chains.close()
        self._plane.close()

    def _reconcile(self) -> None:
        ready = frozenset({_INDEX} if self.snapshot().ready else ())
        try:
            done = self._plane.reconcile(1, Fleet(1, frozenset({_INDEX}), ready))
        except (TimedOut, BrokerUnreachable):
            if not self.settled:
                raise
            self._next_look = self._clock.monotonic() + LOOK_EVERY  # the replica rides it out
            return
        settled = isinstance(done.step, Settled)
        self.settled = self.settled or settled
        again = not settled or any(isinstance(event, Interrupted) for event in done.events)
        self._next_look = self._clock.monotonic() + (STEP_EVERY if again else LOOK_EVERY)


def _ended(text: str | None) -> bool:
    note = Note.decode(text)
    return note is not None and note.standing == "end"
