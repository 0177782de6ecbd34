"""What can be made to go wrong, and the hook around every client call.

Each call of a client is a `Call`. The broker's hook sees it before it takes effect and after; there the simulation
switches to another process, moves time, or raises: an exception of its own for the crash of the caller, an error of
the ports for a refusal. Setting `call.fate` in the hook, or `Faults.plan` beforehand, lets requests and replies be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from millrace.clock import Clock, Deadline
from millrace.connectivity.ports import BrokerUnreachable, KafkaError, TimedOut

_T = TypeVar("_T")

RETRY_SECONDS = 0.05  # how long a waiting client sleeps before it looks again


class Phase(Enum):
    BEFORE = "before"
    AFTER = "after"


class Fate(Enum):
    """What becomes of a call's request and reply on the network."""

    CARRIED_OUT = "carried out"
    LOST = "lost"  # the request never arrives
    REPLY_LOST = "reply lost"  # it takes effect, the caller never learns
    LATE = "late"  # it is under way: lands when the test says so (`MemoryBroker.land`), or never
    REFUSED = "refused"  # commit only: the broker has aborted the transaction


@dataclass(slots=True)
class Call:
    """One call of one client.

    Attributes:
        client: the client id.
        kind: "consumer", "producer", "transactional", "admin" or "survey".
        name: the port's method; "deliver" when a producer sends what it has buffered.
        about: what it concerns (transactional_id, group, topic, partitions...), for traces and for choosing faults.
        phase: where the call is now.
        fate: set it, in phase BEFORE, to lose the request or the reply.
    """

    client: str
    kind: str
    name: str
    about: Mapping[str, object]
    phase: Phase = Phase.BEFORE
    fate: Fate = Fate.CARRIED_OUT


Hook = Callable[[Call], None]


def _no_hook(_: Call) -> None:
    pass


@dataclass(slots=True)
class _Plan:
    name: str
    fate: Fate
    client: str | None


@dataclass(slots=True)
class Faults:
    """The faults of one broker. `up` False: nobody reaches it; transactions time out nevertheless."""

    clock: Clock
    up: bool = True
    hook: Hook = _no_hook
    _plans: list[_Plan] = field(default_factory=list)

    def plan(self, name: str, fate: Fate, *, client: str | None = None) -> None:
        """The next call of this name (by this client id) has this fate."""
        self._plans.append(_Plan(name, fate, client))

    def carry_out(
        self,
        call: Call,
        effect: Callable[[], _T],
        deadline: Deadline,
        *,
        lost: type[KafkaError] = TimedOut,
        late: Callable[[], None] | None = None,
    ) -> _T:
        """Do `effect` as a client's call. `lost`: how the caller learns of a missing reply; `late`: what puts the
        request on its way when it shall land later (where that can be).
        """
        self.hook(call)
        fate = self._fate(call)
        self.wait_until_up(call, deadline, lost)
        if fate is Fate.LATE and late is not None:
            late()
        if fate in (Fate.LOST, Fate.LATE):
            raise no_reply(lost, call)
        result = effect()
        call.phase = Phase.AFTER
        self.hook(call)
        if fate is Fate.REPLY_LOST:
            raise no_reply(lost, call)
        return result

    def wait_until_up(self, call: Call, deadline: Deadline, lost: type[KafkaError]) -> None:
        while not self.up:
            if deadline.expired():
                raise no_reply(
                    BrokerUnreachable if lost is TimedOut and call.kind in ("admin", "survey") else lost, call
                )
            self.pause(deadline)

    def pause(self, deadline: Deadline) -> None:
        """Wait a little, never beyond the deadline."""
        self.clock.sleep(min(RETRY_SECONDS, deadline.remaining()))

    def _fate(self, call: Call) -> Fate:
        for i, planned in enumerate(self._plans):
            if planned.name == call.name and planned.client in (None, call.client):
                del self._plans[i]
                call.fate = planned.fate
                break
        return call.fate


def no_reply(error: type[KafkaError], call: Call) -> KafkaError:
    what = "no broker answers" if error is BrokerUnreachable else "no reply came"
    return error(f"{call.name}: {what}", where=f"client {call.client}")
