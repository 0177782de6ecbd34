"""Events of the API server: one for each transition, never for a state that goes on."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import structlog

from millrace.clock import Clock
from millrace_operator.cluster import Cluster, ClusterError
from millrace_operator.observed import Resource
from millrace_operator.outcome import Event


class Recorder:
    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster, self._clock = cluster, clock
        self._log = structlog.get_logger("millrace.operator")

    async def record(self, resource: Resource, event: Event) -> None:
        """One that can't be written is logged and given up: nothing depends on it."""
        about = {"namespace": resource.namespace, "pipeline": resource.name}
        self._log.info("event", type=event.type, reason=event.reason, message=event.message, **about)
        moment = datetime.fromtimestamp(self._clock.time(), UTC)
        tree = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{resource.name}.{uuid.uuid4().hex[:16]}", "namespace": resource.namespace},
            "eventTime": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": event.type,
            "reason": event.reason,
            "note": event.message[:1000],
            "action": "Reconcile",
            "reportingController": "millrace.dev/operator",
            "reportingInstance": "millrace-operator",
            "regarding": {
                "apiVersion": "millrace.dev/v1alpha1",
                "kind": "ConsumerPipeline",
                "name": resource.name,
                "namespace": resource.namespace,
                "uid": resource.uid,
            },
        }
        try:
            await self._cluster.create(tree)
        except ClusterError as error:
            self._log.warning("event not written", what=error.what[:300], **about)
