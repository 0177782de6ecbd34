"""Why pods don't come into being: over quota, against a policy, a priority that there is not.

A StatefulSet has no condition for it; its controller says so in events only. They are asked for when pods have been
missing for a while, of this one object, and not again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from millrace.clock import Clock
from millrace_api.tree import Tree
from millrace_operator.cluster import Cluster, ClusterError
from millrace_operator.objects import CORE_EVENTS, number, text
from millrace_operator.times import unix
from millrace_operator.work_queue import Key

ASK_EVERY: Final = 10.0  # seconds


@dataclass(slots=True)
class _Missing:
    stateful: str
    since: float
    asked: float | None = None
    told: str = ""


class AbsentPods:
    """Args:
    after: seconds that pods may be missing before anybody is asked.
    """

    def __init__(self, cluster: Cluster, clock: Clock, after: float) -> None:
        self._cluster, self._clock, self._after = cluster, clock, after
        self._missing: dict[Key, _Missing] = {}

    async def why(self, key: Key, stateful: Tree | None, pods: int) -> str:
        """In the API server's words; "" while all are there, or for a reason that nobody knows.

        Args:
            stateful: the live StatefulSet; None: there is none.
            pods: that there are of it.
        """
        uid = text(stateful, "metadata", "uid")
        if pods >= number(stateful, "spec", "replicas"):
            self.forget(key)
            return ""
        now = self._clock.monotonic()
        missing = self._missing.get(key)
        if missing is None or missing.stateful != uid:
            missing = self._missing[key] = _Missing(uid, now)
        due = now - missing.since >= self._after
        if due and (missing.asked is None or now - missing.asked >= ASK_EVERY):
            missing.asked, missing.told = now, await self._ask(key[0], uid)
        return missing.told

    def forget(self, key: Key) -> None:
        self._missing.pop(key, None)

    async def _ask(self, namespace: str, uid: str) -> str:
        try:
            found = await self._cluster.list(
                CORE_EVENTS, namespace=namespace, fields=f"involvedObject.uid={uid}"
            )
        except ClusterError:
            return ""  # it explains, and nothing depends on it
        return refusal(found.items)


def refusal(events: Sequence[Tree]) -> str:
    """What the newest attempt to make pods failed with; "" if a later one succeeded, or there was none."""
    failed = [event for event in events if text(event, "reason") == "FailedCreate"]
    made = [_time(event) for event in events if text(event, "reason") == "SuccessfulCreate"]
    if not failed:
        return ""
    newest = max(failed, key=_time)
    # of several pods made at once some may be refused: both are of the same second then
    if _time(newest) < max(made, default=0.0):
        return ""
    said = text(newest, "message")
    return said.partition("failed error: ")[2] or said


def _time(event: Tree) -> float:
    told = (text(event, field) for field in ("lastTimestamp", "eventTime", "firstTimestamp"))
    return next((moment for one in told if one and (moment := unix(one)) is not None), 0.0)
