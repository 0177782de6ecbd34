"""The operator's part of the protocol in a local run: topics, epochs, claims, and how far it all has come.

It runs on one thread of its own, with Kafka clients of its own, because a broker that is slow or away must never keep
the parent from looking after its workers or from Ctrl-C. The parent tells it which workers there are (`fleet`) and
does what it asks about workers (`scale`); what it sees it publishes as one frozen `Sight`.

A broker that goes away in mid-run is no failure: it tries again until it is back. Whatever else Kafka says (wrong
credentials, a missing topic, lost claims) ends the run, as `error`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from millrace.channel.backlog import Backlog
from millrace.channel.progress import Note
from millrace.clock import Clock, Deadline
from millrace.connectivity.ports import Admin, KafkaError, OffsetAndMetadata, Span
from millrace.engine.bounds import Bounds
from millrace.errors import ExitCode, MillraceError
from millrace.local.view.figures import plural
from millrace.local.view.sight import Sight
from millrace.local.view.snapshot import PartitionSnapshot
from millrace.ownership.control_plane import (
    ControlPlane,
    EpochPublished,
    Event,
    Interrupted,
    Passed,
    Seeded,
    Why,
)
from millrace.ownership.control_rules import Fleet, Identity, Scale, Settled, holders, own_claim
from millrace.ownership.topics import ensure, ensure_channel
from millrace.worker.files import disk_error, write_whole
from millrace_api.needed import NeededTopic

T = TypeVar("T")

LOOK_EVERY = 1.0  # seconds between two looks at positions and ends
STEP_EVERY = 0.2  # seconds between two steps on the way to another epoch
_SHARE = 2  # a look that took t seconds is followed by a pause of at least this many t ...
_LONGEST_PAUSE = 3.0  # ... but of no more seconds
_BLIP = 2.0  # seconds of absence that are not worth a word
_PATIENCE = 8.0  # seconds in which the broker must have answered once


class Steward:
    """Args:
    open_plane: makes the control plane and an admin client; called on the steward's thread.
    topics: to be seen to first.
    replicas: wanted.
    channel: of the collect stage, to be made with the source's partitions; backlog: asks Kafka what waits in it, given
        an admin client and its ends.
    bounds_file: --until-end: the ends of the source at the start are written there, before workers are asked for.
    """

    def __init__(
        self,
        open_plane: Callable[[], tuple[ControlPlane, Admin]],
        clock: Clock,
        notice: Callable[[str, str], None],
        *,
        topic: str,
        topics: Sequence[NeededTopic],
        replicas: int,
        channel: str | None,
        bounds_file: Path | None,
        backlog: Callable[[Admin, Mapping[int, Span]], Backlog] | None = None,
    ) -> None:
        self._open, self._clock, self._notice = open_plane, clock, notice
        self._topic, self._topics, self._replicas = topic, topics, replicas
        self._channel, self._backlog, self._bounds_file = channel, backlog, bounds_file
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steward", daemon=True)
        self._targets: Mapping[int, int] | None = None
        self._begun: dict[int, int] = {}
        self._late_before: dict[int, int] = {}
        self._took = 0.0
        self._opened: tuple[ControlPlane, Admin] | None = None
        self.fleet = Fleet(0)
        self.scale = 0  # workers that should run, by the steps so far
        self.sight: Sight | None = None
        self.partitions: int | None = None  # of the source; known as soon as all topics are there
        self.phase = "looking for the broker"
        self.away_since: float | None = None  # monotonic; the broker has not answered since
        self.error: MillraceError | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def final_look(self) -> None:
        """After `stop` and `join`: see once more where everything stands. Failures are of no account any more."""
        if self._thread.is_alive() or self.sight is None:
            return
        try:
            self._look(settled=True)
        except MillraceError:
            pass
        finally:
            self._close()

    def _run(self) -> None:
        try:
            self._keep_on()
        except MillraceError as error:
            self.error = error
        except OSError as error:  # the epoch could not be published
            self.error = disk_error(error, Path(error.filename or "the state directory"))
        except Exception as error:  # noqa: BLE001  handed to the run, which shows it
            self.error = MillraceError(f"unexpected {type(error).__name__}: {error}")
            self.error.__cause__ = error
        finally:
            self._close()

    def _keep_on(self) -> None:
        self._persist(self._prepare, patience=_PATIENCE)
        while not self._stop.is_set():
            settled = self._persist(self._round) or False
            pause = min(_LONGEST_PAUSE, self._took * _SHARE)
            self._stop.wait(max(LOOK_EVERY, pause) if settled else STEP_EVERY)

    def _clients(self) -> tuple[ControlPlane, Admin]:
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def _close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            for client in opened:
                client.close()

    def _prepare(self) -> None:
        plane, admin = self._clients()
        self.phase = "looking for topics"
        deadline = Deadline.after(self._clock, 10.0)
        ensure(admin, self._topics, deadline, self._notice)
        described = admin.describe_topic(self._topic, deadline.remaining())
        count = described.partitions if described is not None else 0
        if self._channel is not None:
            ensure_channel(admin, self._channel, count, deadline, self._notice)
        if self._bounds_file is not None and self._targets is None:
            spans = admin.spans(self._topic, range(count), deadline.remaining())
            targets = {partition: span.end for partition, span in spans.items()}
            write_whole(self._bounds_file, Bounds(targets).encode().encode())
            self._targets = targets
        plane.open()
        self.partitions = count
        self.phase = "looking at claims"

    def _round(self) -> bool:
        """One reconcile and one look. Returns whether all is settled."""
        plane, _ = self._clients()
        done = plane.reconcile(self._replicas, self.fleet)
        self._tell(done.events)
        for event in done.events:
            # where a look comes too late to tell: its holder may have begun meanwhile
            if isinstance(event, Seeded):
                self._begun.setdefault(event.partition, event.offset)
                if event.why is not Why.ADOPTED:
                    self._late_before.setdefault(event.partition, 0)
        interrupted = [event.reason for event in done.events if isinstance(event, Interrupted)]
        settled = isinstance(done.step, Settled) and not interrupted
        waiting = interrupted[-1].partition("\n")[0] if interrupted else "waiting for workers"
        self.phase = "" if settled else waiting
        began = self._clock.monotonic()
        self._look(settled=settled)
        self._took = self._clock.monotonic() - began
        if isinstance(
            done.step, Scale
        ):  # after the look, which tells where all stood before any worker of this run
            self.scale = done.step.replicas
        return settled

    def _look(self, *, settled: bool) -> None:
        plane, admin = self._clients()
        seen = plane.observe()
        numbers = range(seen.partitions)
        held = holders(seen.identity, seen.claims, numbers)
        spans: Mapping[int, Span] = admin.spans(self._topic, numbers, 10.0)
        partitions = []
        for number in numbers:
            claim = seen.claims.get(number) if held[number] is not None else None
            position = claim.offset if claim is not None else None
            late = _late(seen.identity, claim)
            if position is not None:
                self._begun.setdefault(number, position)
                self._late_before.setdefault(number, late)
            target = (self._targets or {}).get(number)
            partitions.append(
                PartitionSnapshot(number, held[number], position, spans[number].end, target, late)
            )
        ends: Mapping[int, int] = {}
        backlog: Backlog | None = None
        if self._channel is not None and self.partitions is not None:
            written = admin.spans(self._channel, range(self.partitions), 10.0)
            ends = {number: span.end for number, span in written.items()}
            backlog = self._backlog(admin, written) if self._backlog is not None else None
        begun, late_before = dict(self._begun), dict(self._late_before)
        self.sight = Sight(seen.epoch, tuple(partitions), begun, settled, ends, late_before, backlog)

    def _persist(self, work: Callable[[], T], patience: float | None = None) -> T | None:
        """Do the work; as long as the broker is away, again. `patience` seconds bound that; None: until told to stop.

        Each attempt has clients of its own: librdkafka's may keep asking with what they knew before a broker was
        restarted (FENCED_LEADER_EPOCH), or wait for an answer that the former one owed.
        """
        since, told = self._clock.monotonic(), False
        while True:
            try:
                result = work()
            except KafkaError as error:
                if error.code != ExitCode.BROKER_UNREACHABLE:
                    raise
                self._close()
                now = self._clock.monotonic()
                if patience is not None and now - since >= patience:
                    raise
                if self.away_since is None:
                    self.away_since = since
                if not told and now - since >= _BLIP:
                    told = True
                    self._notice(f"the broker does not answer: {error.what.splitlines()[0]}", "warning")
                if self._stop.wait(0.5):
                    return None
            else:
                self.away_since = None
                if told:
                    away = self._clock.monotonic() - since
                    self._notice(f"the broker answers again, after {away:.0f} s", "info")
                return result

    def _tell(self, events: Sequence[Event]) -> None:
        seeded = [event for event in events if isinstance(event, Seeded)]
        passed = [event for event in events if isinstance(event, Passed)]
        for why in {event.why for event in seeded}:
            count = sum(event.why is why for event in seeded)
            self._notice(f"{plural(count, 'partition')} begin at: {why.value}", "info")
        if passed:
            self._notice(f"{plural(len(passed), 'claim')} passed on to the planned owners", "info")
        for event in events:
            if isinstance(event, EpochPublished):
                e = event.epoch
                self._notice(
                    f"epoch {e.number}: {plural(e.partitions, 'partition')}, {plural(e.replicas, 'worker')}",
                    "info",
                )


def _late(identity: Identity, record: OffsetAndMetadata | None) -> int:
    """Late rows of a partition, by the note in its claim."""
    claim = own_claim(identity, record)
    note = Note.decode(claim.note) if claim is not None else None
    return 0 if note is None else note.late
