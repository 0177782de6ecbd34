"""A replica follows R1-R3, on the in-memory broker and a virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from millrace.clock import Deadline, VirtualClock
from millrace.connectivity.memory import Call, Fate, Phase
from millrace.connectivity.ports import DeliveryFailed, Fenced, OffsetAndMetadata, OffsetOutOfRange
from millrace.engine.batch import Batch
from millrace.engine.claims import Superseded
from millrace.engine.outbox import Outbox
from millrace.engine.readiness import State
from millrace.engine.replica import Replica
from millrace.engine.session import ChainFactory, OnComplete
from millrace.engine.settings import ReplicaSettings
from millrace.engine.strategy import MessageRejected, Strategy
from millrace.errors import StageFailed
from millrace.ownership.claim import OP, Claim
from millrace.ownership.control_rules import Fleet
from millrace.ownership.epoch import Epoch
from millrace.ownership.errors import ClaimLost, ForeignClaim
from millrace.strategies import Commit
from replica_stage import CLAIMS, GROUP, OUTPUT, SOURCE, Stage, copying

pytestmark = pytest.mark.unit


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def stage(clock: VirtualClock) -> Stage:
    return Stage(clock, partitions=4, messages=10)


def everybody(replicas: int) -> Fleet:
    return Fleet(replicas, frozenset(range(replicas)), frozenset(range(replicas)))


def publish(stage: Stage, replicas: int) -> Epoch:
    return stage.plane().reconcile(replicas, everybody(replicas)).epoch


def run(until: Callable[[], bool], *replicas: Replica, seconds: float = 120) -> None:
    """Step all of them in turn until the condition holds."""
    clock = replicas[0]._clock
    deadline = Deadline.after(clock, seconds)
    while not until():
        assert not deadline.expired(), [replica.snapshot() for replica in replicas]
        for replica in replicas:
            replica.step(0.05)
            clock.sleep(0.001)


def everything_committed(stage: Stage) -> Callable[[], bool]:
    return lambda: stage.offsets() == stage.ends()


class TestWorking:
    def test_a_worker_alone_processes_everything_once_and_commits_it(self, stage: Stage) -> None:
        publish(stage, 1)
        run(everything_committed(stage), stage.replica(0))
        assert stage.outputs() == stage.expected()
        assert stage.offsets(GROUP) == stage.ends()
        assert set(stage.holders().values()) == {0}

    def test_at_least_once_commits_what_a_plain_producer_has_delivered(self, stage: Stage) -> None:
        publish(stage, 1)
        run(everything_committed(stage), stage.replica(0, exactly_once=False))
        assert stage.outputs() == stage.expected()

    def test_workers_share_the_partitions_by_the_plan(self, stage: Stage) -> None:
        epoch = publish(stage, 3)
        replicas = [stage.replica(i) for i in range(3)]
        run(everything_committed(stage), *replicas)
        for index, replica in enumerate(replicas):
            assert set(replica.snapshot().positions) == epoch.owned_by(index)

    def test_commits_are_made_by_time_not_by_batch(self, stage: Stage, clock: VirtualClock) -> None:
        publish(stage, 1)
        commits: list[float] = []

        def watch(call: Call) -> None:
            if call.name == "commit" and call.phase is Phase.AFTER:
                commits.append(clock.monotonic())

        stage.broker.hook = watch
        replica = stage.replica(0, settings=ReplicaSettings(batch_size=1))
        run(everything_committed(stage), replica)
        for _ in range(100):
            stage.produce(0, 1)
            clock.advance(0.05)
            replica.step(0.05)
        gaps = [b - a for a, b in pairwise(commits)]
        assert min(gaps) >= 1.0

    def test_or_sooner_by_count(self, stage: Stage, clock: VirtualClock) -> None:
        publish(stage, 1)
        replica = stage.replica(0, settings=ReplicaSettings(commit_interval=3600, commit_messages=20))
        run(lambda: sum(stage.offsets().values()) >= 20, replica)
        assert clock.monotonic() < 10

    def test_idle_partitions_are_committed_each_minute(self, stage: Stage, clock: VirtualClock) -> None:
        publish(stage, 1)
        replica = stage.replica(0)
        run(everything_committed(stage), replica)
        stage.broker.groups.expire(GROUP, SOURCE, [2])
        run(lambda: 2 in stage.offsets(GROUP), replica)
        assert 50 < clock.monotonic() < 75

    def test_outputs_and_offsets_appear_together(self, stage: Stage) -> None:
        publish(stage, 1)
        replica = stage.replica(0, settings=ReplicaSettings(commit_interval=5))
        while not any(stage.offsets().values()):
            assert stage.outputs() == []
            replica.step(0.05)
        assert len(stage.outputs()) == sum(stage.offsets().values())

    @pytest.mark.parametrize("seconds", [0.03, 0.4, 3.0])
    @pytest.mark.parametrize("interval", [1.0, 60.0])
    def test_a_slow_function_never_keeps_a_transaction_open_until_the_broker_aborts_it(
        self, clock: VirtualClock, seconds: float, interval: float
    ) -> None:
        """12 partitions of one fetch, worked off one after the other, each with outputs in the same transaction. Unlike
        the in-memory producer librdkafka sends by itself, while the function works.
        """
        stage = Stage(clock, partitions=12, messages=60 if seconds < 1 else 4)
        publish(stage, 1)
        outboxes: list[Outbox] = []

        def work(_partition: int, _offset: int) -> None:
            outboxes[-1].poll()
            clock.advance(seconds)

        def chain(outbox: Outbox, on_complete: OnComplete) -> Strategy:
            outboxes.append(outbox)
            return copying(clock, work)(outbox, on_complete)

        replica = stage.replica(0, chain=chain, settings=ReplicaSettings(commit_interval=interval))
        run(everything_committed(stage), replica, seconds=1000)
        assert replica.snapshot().interruptions == 0
        assert stage.outputs() == stage.expected()


class TestInitialising:
    def test_it_waits_for_an_epoch(self, stage: Stage) -> None:
        replica = stage.replica(0)
        replica.step(0.05)
        assert replica.snapshot().state is State.STARTING
        assert replica.snapshot().reasons == ("waiting for an epoch",)

    def test_it_is_ready_without_holding_anything(self, stage: Stage) -> None:
        stage.plane().open()
        replica = stage.replica(0)
        run(lambda: replica.snapshot().ready, replica)
        assert replica.snapshot().positions == {}

    def test_what_has_to_end_before_its_sweep_is_told(self, stage: Stage) -> None:
        """Above a transaction that another has open nobody can tell what is left open."""
        publish(stage, 1)
        run(everything_committed(stage), stage.replica(0))
        others = stage.broker.cluster(client_id="other").transactional_producer("other")
        others.init(5)
        others.begin()
        for partition in range(3):
            others.produce(OUTPUT, b"", partition=partition)
        others.poll()
        for partition in range(4):
            stage.produce(partition, 5)
        former = stage.replica(0)
        run(everything_committed(stage), former)

        replica = stage.replica(0)
        run(lambda: bool(replica.snapshot().reasons and "another" in replica.snapshot().reasons[0]), replica)
        assert not replica.snapshot().ready
        others.abort(5)
        run(lambda: replica.snapshot().ready, replica)
        assert stage.outputs() == stage.expected()

    def test_the_producer_is_initialised_before_any_claim_is_read(self, stage: Stage) -> None:
        publish(stage, 1)
        calls: list[str] = []

        def watch(call: Call) -> None:
            if call.phase is Phase.BEFORE:
                calls.append(call.name)

        stage.broker.hook = watch
        run(everything_committed(stage), stage.replica(0))
        assert calls.index("init") < calls.index("group_offsets")

    @pytest.mark.parametrize("fate", [Fate.LOST, Fate.REPLY_LOST])
    def test_a_question_unanswered_after_that_is_asked_again_by_another_producer(
        self, stage: Stage, fate: Fate
    ) -> None:
        """librdkafka refuses a second init of the same producer."""
        publish(stage, 1)
        replica = stage.replica(0)
        stage.broker.faults.plan("group_offsets", fate)
        run(everything_committed(stage), replica)
        assert replica.snapshot().interruptions == 1
        assert stage.outputs() == stage.expected()

    def test_a_worker_never_seeds(self, stage: Stage) -> None:
        stage.epochs.publish(Epoch("u", 1, 4, 1, 1), None)
        replica = stage.replica(0)
        for _ in range(200):
            replica.step(0.05)
        assert stage.records() == {}
        assert replica.snapshot().reasons == ("partition 0-3 waits: it has no claim",)

    def test_nor_takes_up_what_a_stray_committed(self, stage: Stage) -> None:
        stage.epochs.publish(Epoch("u", 1, 4, 1, 1), None)
        stage.broker.groups.commit_plain(CLAIMS, {(SOURCE, 1): OffsetAndMetadata(3)})
        replica = stage.replica(0)
        for _ in range(50):
            replica.step(0.05)
        assert replica.snapshot().positions == {}
        assert "partition 1 waits: its claim is not this pipeline's" in replica.snapshot().reasons

    def test_a_claim_of_an_epoch_it_has_not_seen_is_left_alone(self, stage: Stage) -> None:
        old = stage.plane().open()
        publish(stage, 1)
        seen = [old]
        replica = stage.replica(0, epochs=lambda: seen[-1])
        for _ in range(50):
            replica.step(0.05)
        assert replica.snapshot().positions == {}
        seen.append(stage.epochs.history[-1])
        run(everything_committed(stage), replica)

    def test_a_topic_that_is_longer_than_the_log_says_so(self, stage: Stage) -> None:
        publish(stage, 1)
        stage.source.logs[2].delete_before(5)
        with pytest.raises(OffsetOutOfRange, match="offset 0"):
            run(everything_committed(stage), stage.replica(0))


class TestPassing:
    def test_growing_moves_partitions_while_all_run(self, stage: Stage) -> None:
        publish(stage, 1)
        first, second = stage.replica(0), stage.replica(1)
        run(lambda: len(first.snapshot().positions) == 4, first, second)
        for partition in range(4):
            stage.produce(partition, 50)
        epoch = publish(stage, 2)
        run(lambda: set(second.snapshot().positions) == epoch.owned_by(1), first, second)
        run(everything_committed(stage), first, second)
        assert stage.outputs() == stage.expected()
        assert stage.holders() == {p: epoch.owner(p) for p in range(4)}
        assert {claim.epoch for p, claim in stage.claims().items() if p in epoch.owned_by(1)} == {
            epoch.number
        }

    def test_shrinking_passes_everything_on(self, stage: Stage) -> None:
        publish(stage, 2)
        first, second = stage.replica(0), stage.replica(1)
        run(everything_committed(stage), first, second)
        publish(stage, 1)
        run(lambda: len(first.snapshot().positions) == 4, first, second)
        assert second.snapshot().positions == {}
        for partition in range(4):
            stage.produce(partition, 5)
        run(everything_committed(stage), first, second)
        assert stage.outputs() == stage.expected()

    def test_without_replicas_everything_is_parked(self, stage: Stage) -> None:
        publish(stage, 1)
        replica = stage.replica(0)
        run(everything_committed(stage), replica)
        publish(stage, 0)
        run(lambda: set(stage.holders().values()) == {OP}, replica)
        assert stage.offsets() == stage.ends()

    def test_partitions_that_stay_are_not_held_up(self, stage: Stage, clock: VirtualClock) -> None:
        """The partition that leaves is stuck in the chain; the others go on meanwhile."""
        publish(stage, 1)
        stuck = sorted(Epoch("u", 0, 4, 2, 2).owned_by(1))
        replica = stage.replica(0, chain=sticking(set(stuck)))
        run(lambda: set(replica.snapshot().positions) == {0, 1, 2, 3}, replica)
        publish(stage, 2)
        begin = clock.monotonic()
        staying = {0, 1, 2, 3} - set(stuck)
        run(lambda: all(stage.offsets()[p] == 10 for p in staying), replica)
        assert clock.monotonic() - begin < 5
        assert replica.snapshot().leaving == set(stuck)

    def test_a_drain_over_its_deadline_passes_the_last_complete_offset(
        self, stage: Stage, clock: VirtualClock
    ) -> None:
        publish(stage, 1)
        stuck = Epoch("u", 0, 4, 2, 2).owned_by(1)
        first = stage.replica(0, chain=sticking(set(stuck)))
        run(lambda: all(stage.offsets()[p] == 10 for p in range(4) if p not in stuck), first)
        epoch = publish(stage, 2)
        begin = clock.monotonic()
        run(lambda: stage.holders() == {p: epoch.owner(p) for p in range(4)}, first)
        assert 29 < clock.monotonic() - begin < 35
        assert all(stage.offsets()[p] == 0 for p in stuck)
        run(everything_committed(stage), first, stage.replica(1))

    def test_a_partition_that_a_yet_newer_epoch_gives_back_is_kept(self, stage: Stage) -> None:
        publish(stage, 1)
        replica = stage.replica(0, chain=sticking({0, 1, 2, 3}, until=20))
        run(lambda: len(replica.snapshot().positions) == 4, replica)
        publish(stage, 2)
        run(lambda: bool(replica.snapshot().leaving), replica)
        publish(stage, 1)
        run(everything_committed(stage), replica)
        assert set(stage.holders().values()) == {0}
        assert replica.snapshot().leaving == frozenset()

    def test_an_epoch_that_is_not_newer_is_not_looked_at(self, stage: Stage) -> None:
        newest = publish(stage, 1)
        seen = [newest]
        replica = stage.replica(0, epochs=lambda: seen[-1])
        run(everything_committed(stage), replica)
        seen.append(Epoch("u", newest.number, 4, 2, 2))
        for _ in range(20):
            replica.step(0.05)
        assert len(replica.snapshot().positions) == 4

    def test_the_epoch_of_another_pipeline_stops_the_worker(self, stage: Stage) -> None:
        seen = [publish(stage, 1)]
        replica = stage.replica(0, epochs=lambda: seen[-1])
        run(everything_committed(stage), replica)
        seen.append(Epoch("v", 9, 4, 1, 1))
        with pytest.raises(Superseded, match="another pipeline"):
            replica.step(0.05)

    def test_claims_left_from_an_earlier_plan_are_passed_on_after_a_start(self, stage: Stage) -> None:
        publish(stage, 1)
        epoch = publish(stage, 2)
        first, second = stage.replica(0), stage.replica(1)
        run(everything_committed(stage), first, second)
        assert stage.holders() == {p: epoch.owner(p) for p in range(4)}


class TestFailing:
    def test_a_successor_fences_the_former_process(self, stage: Stage) -> None:
        publish(stage, 1)
        former = stage.replica(0, name="former")
        run(everything_committed(stage), former)
        stage.produce(0, 5)
        successor = stage.replica(0, name="successor")
        run(everything_committed(stage), successor)
        with pytest.raises(Fenced):
            run(lambda: False, former)
        assert former.snapshot().state is State.STOPPED
        assert stage.outputs() == stage.expected()

    def test_a_claim_that_names_another_stops_the_worker(self, stage: Stage) -> None:
        publish(stage, 1)
        replica = stage.replica(0)
        run(everything_committed(stage), replica)
        topic_id = stage.source.id
        stage.broker.groups.commit_plain(
            CLAIMS, {(SOURCE, 1): OffsetAndMetadata(10, Claim("u", topic_id, 1, 5).encode())}
        )
        with pytest.raises(Superseded, match="partition 1 was passed to worker 5"):
            run(lambda: False, replica)

    def test_a_deleted_claims_group_is_noticed(self, stage: Stage) -> None:
        publish(stage, 1)
        replica = stage.replica(0)
        run(everything_committed(stage), replica)
        stage.broker.groups.delete(CLAIMS)
        with pytest.raises(ClaimLost):
            run(lambda: False, replica)

    def test_claims_that_were_lost_or_taken_are_not_written_again_at_the_end(
        self, stage: Stage, clock: VirtualClock
    ) -> None:
        """R6: a worker that has just learned that its claims are gone, or another pipeline's, commits nothing more."""
        publish(stage, 1)
        slow = ReplicaSettings(commit_interval=3600, transaction_age=3600)
        replica = stage.replica(0, exactly_once=False, settings=slow)
        run(lambda: sum(replica.snapshot().positions.values()) == 40, replica)
        stage.broker.groups.delete(CLAIMS)
        taken = OffsetAndMetadata(0, Claim("other", stage.source.id, 1, 0).encode())
        stage.broker.groups.commit_plain(CLAIMS, {(SOURCE, 1): taken})
        with pytest.raises((ClaimLost, ForeignClaim)):
            run(lambda: False, replica)
        replica.close(Deadline.after(clock, 10))
        assert stage.records() == {1: taken}

    def test_a_topic_made_anew_is_noticed(self, stage: Stage) -> None:
        publish(stage, 1)
        replica = stage.replica(0)
        run(everything_committed(stage), replica)
        records = {(SOURCE, p): r for p, r in stage.records().items()}
        stage.broker.delete_topic(SOURCE)
        stage.source = stage.broker.create_topic(SOURCE, 4)
        for partition in range(4):
            stage.produce(partition, 20)
        stage.broker.groups.commit_plain(CLAIMS, records)
        with pytest.raises(ForeignClaim):
            run(lambda: False, replica)

    @pytest.mark.parametrize("fate", [Fate.LOST, Fate.REPLY_LOST, Fate.LATE, Fate.REFUSED])
    @pytest.mark.parametrize("call", ["commit", "send_offsets"])
    def test_a_commit_that_went_wrong_is_begun_again_from_init(
        self, stage: Stage, call: str, fate: Fate
    ) -> None:
        publish(stage, 1)
        replica = stage.replica(0)
        stage.broker.faults.plan(call, fate)
        run(everything_committed(stage), replica)
        assert replica.snapshot().interruptions == 1
        assert stage.outputs() == stage.expected()

    def test_transactions_refused_again_and_again_end_the_worker(self, stage: Stage) -> None:
        publish(stage, 1)
        for _ in range(10):
            stage.broker.faults.plan("commit", Fate.REFUSED)
        with pytest.raises(DeliveryFailed, match="tried 5 times"):
            run(lambda: False, stage.replica(0))

    def test_a_missing_output_topic_ends_the_worker(self, stage: Stage) -> None:
        publish(stage, 1)
        stage.broker.delete_topic(OUTPUT)
        with pytest.raises(DeliveryFailed, match=OUTPUT):
            run(lambda: False, stage.replica(0))

    def test_a_late_reply_that_lands_after_init_changes_nothing(self, stage: Stage) -> None:
        publish(stage, 1)
        replica = stage.replica(0)
        stage.broker.faults.plan("commit", Fate.LATE)
        run(lambda: bool(stage.broker.late), replica)
        run(lambda: replica.snapshot().state is State.RUNNING, replica)
        assert not stage.broker.land(stage.broker.late[0])
        run(everything_committed(stage), replica)
        assert stage.outputs() == stage.expected()

    @pytest.mark.parametrize("seconds", [2.0, 30.0])
    def test_an_outage_is_ridden_out(self, stage: Stage, clock: VirtualClock, seconds: float) -> None:
        publish(stage, 1)
        replica = stage.replica(0)
        run(lambda: any(stage.outputs()), replica)
        for partition in range(4):
            stage.produce(partition, 10)
        replica.step(0.05)
        stage.broker.faults.up = False
        back = clock.monotonic() + seconds
        reasons: set[str] = set()
        while clock.monotonic() < back:
            replica.step(0.05)
            reasons |= set(replica.snapshot().reasons)
        assert seconds < 15 or reasons
        stage.broker.faults.up = True
        run(everything_committed(stage), replica)
        assert stage.outputs() == stage.expected()

    def test_a_stage_that_fails_keeps_what_was_before_it(self, stage: Stage, clock: VirtualClock) -> None:
        publish(stage, 1)

        def seen(partition: int, offset: int) -> None:
            if (partition, offset) == (1, 6):
                raise StageFailed("no", stage="copy", partition=1, offset=6)

        replica = stage.replica(0, seen=seen, settings=ReplicaSettings(batch_size=2))
        with pytest.raises(StageFailed):
            run(lambda: False, replica)
        replica.close(Deadline.after(clock, 10))
        assert stage.offsets()[1] == 6
        assert len(stage.outputs()) == sum(stage.offsets().values())

    def test_an_output_that_will_never_be_written_ends_the_worker(self, stage: Stage) -> None:
        publish(stage, 1)
        stage.broker.topic("output").max_message_bytes = 10
        with pytest.raises(DeliveryFailed, match="larger than the topic allows"):
            run(lambda: False, stage.replica(0))


class TestClosing:
    def test_everything_in_flight_is_committed(self, stage: Stage, clock: VirtualClock) -> None:
        publish(stage, 1)
        replica = stage.replica(0, settings=ReplicaSettings(commit_interval=3600))
        run(lambda: sum(replica.snapshot().positions.values()) == 40, replica)
        assert sum(stage.offsets().values()) == 0
        assert replica.close(Deadline.after(clock, 10))
        assert stage.offsets() == stage.ends()
        assert set(stage.holders().values()) == {0}
        assert stage.outputs() == stage.expected()

    def test_what_the_newest_epoch_gives_to_others_is_passed_on(
        self, stage: Stage, clock: VirtualClock
    ) -> None:
        publish(stage, 1)
        replica = stage.replica(0)
        run(everything_committed(stage), replica)
        epoch = publish(stage, 2)
        assert replica.close(Deadline.after(clock, 10))
        assert stage.holders() == {p: epoch.owner(p) for p in range(4)}

    def test_what_is_not_done_by_the_deadline_is_left_uncommitted(
        self, stage: Stage, clock: VirtualClock
    ) -> None:
        publish(stage, 1)
        replica = stage.replica(0, chain=sticking({2}))
        run(lambda: stage.offsets() == {0: 10, 1: 10, 2: 0, 3: 10}, replica)
        begin = clock.monotonic()
        assert not replica.close(Deadline.after(clock, 5))
        assert clock.monotonic() - begin <= 5.01
        assert stage.offsets()[2] == 0

    def test_some_of_the_time_is_kept_to_commit_what_is_complete(self) -> None:
        clock = Alarm()
        stage = Stage(clock, partitions=4, messages=10)
        publish(stage, 1)
        settings = ReplicaSettings(commit_interval=3600)
        replica = stage.replica(0, chain=sticking({2}), settings=settings)
        run(lambda: sum(replica.snapshot().positions.values()) == 30, replica)
        assert sum(stage.offsets().values()) == 0

        def away_for_a_moment(call: Call) -> None:
            if call.name == "send_offsets" and call.phase is Phase.BEFORE and clock.rings is None:
                stage.broker.faults.up = False
                clock.at(clock.monotonic() + 1.0, lambda: setattr(stage.broker.faults, "up", True))

        stage.broker.hook = away_for_a_moment
        begin = clock.monotonic()
        assert not replica.close(Deadline.after(clock, 5))
        assert clock.monotonic() - begin <= 5.1
        assert stage.offsets() == {0: 10, 1: 10, 2: 0, 3: 10}

    def test_without_a_broker_it_ends_within_its_deadline(self, stage: Stage, clock: VirtualClock) -> None:
        publish(stage, 1)
        replica = stage.replica(0, settings=ReplicaSettings(commit_interval=3600))
        run(lambda: sum(replica.snapshot().positions.values()) == 40, replica)
        stage.broker.faults.up = False
        begin = clock.monotonic()
        assert not replica.close(Deadline.after(clock, 5))
        assert clock.monotonic() - begin <= 5.1

    def test_closing_twice_does_no_harm(self, stage: Stage, clock: VirtualClock) -> None:
        replica = stage.replica(0)
        assert replica.close(Deadline.after(clock, 1))
        replica.close(Deadline.after(clock, 1))


class Alarm(VirtualClock):
    """Something happens at a time, whoever waits for it."""

    rings: float | None = None

    def at(self, time: float, what: Callable[[], None]) -> None:
        self.rings, self._what = time, what

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        if self.rings is not None and self.monotonic() >= self.rings:
            self._what()


class Sticking(Strategy):
    """Never finishes the batches of some partitions, or not before a time."""

    def __init__(self, next_: Strategy, partitions: set[int], until: float | None) -> None:
        self._next, self._partitions, self._until = next_, partitions, until
        self._kept: list[Batch] = []
        self._now = 0

    def submit(self, batch: Batch) -> None:
        if batch.partition not in self._partitions:
            self._next.submit(batch)
        elif len(self._kept) > 100:
            raise MessageRejected
        else:
            self._kept.append(batch)

    def poll(self) -> None:
        self._now += 1
        if self._until is not None and self._now >= self._until:
            while self._kept:
                self._next.submit(self._kept.pop(0))
        self._next.poll()

    def drain(self, partitions: object) -> None:
        """Nothing can be done for them."""

    def abandon(self, partitions: object) -> None:
        self._kept = [batch for batch in self._kept if batch.partition not in partitions]  # type: ignore[operator]

    def close(self) -> None:
        self._next.close()

    def join(self, deadline: Deadline) -> bool:
        if self._kept:
            deadline.clock.sleep(deadline.remaining())
        return not self._kept and self._next.join(deadline)

    def terminate(self) -> None:
        self._next.terminate()


def sticking(partitions: set[int], *, until: float | None = None) -> ChainFactory:
    def make(outbox: Outbox, on_complete: OnComplete) -> Strategy:
        return Sticking(Commit(on_complete, outbox), partitions, until)

    return make
