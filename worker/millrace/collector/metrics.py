"""Every Prometheus metric of a collector, made from its status at the scrape, and what else it serves over HTTP.

Counters begin at zero with the process, as Prometheus expects. Names say their unit; `partition` is the channel's, and
so the source's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from millrace.channel.wire import END
from millrace.clock import Clock
from millrace.collector.status import RUNNING, CollectorStatus
from millrace.worker.http import TEXT, Answer

_YEAR = 366 * 86_400 * 1_000_000
_PROCESS, _PLATFORM = ProcessCollector(registry=None), PlatformCollector(registry=None)

_COUNTERS: tuple[tuple[str, str, Callable[[CollectorStatus], float]], ...] = (
    ("millrace_collector_rows", "Rows of the channel that were read.", lambda s: s.rows),
    ("millrace_collector_written_rows", "Rows of results that were written.", lambda s: s.written),
    ("millrace_collector_batches", "Batches that are done.", lambda s: s.batches),
    ("millrace_collector_batch_seconds", "Time that batches took.", lambda s: s.busy),
    (
        "millrace_collector_late_groups",
        "Groups with rows that Spark has dropped by its watermark.",
        lambda s: s.late,
    ),
)
_GAUGES: tuple[tuple[str, str, Callable[[CollectorStatus], float]], ...] = (
    ("millrace_collector_running", "1 if batches are made, else 0.", lambda s: s.state == RUNNING),
    (
        "millrace_collector_rows_per_second",
        "Rows read per second in the last batch that had any.",
        lambda s: s.rows_per_second,
    ),
    ("millrace_collector_last_batch_seconds", "Time that the last batch took.", lambda s: s.seconds),
    ("millrace_collector_state_rows", "Groups whose window is open.", lambda s: s.state_rows),
    ("millrace_collector_state_bytes", "Memory of the groups whose window is open.", lambda s: s.state_bytes),
    ("millrace_collector_checkpoint_version", "Version of the checkpoint.", lambda s: s.version),
    ("millrace_collector_attempt", "Number of this attempt of the collector, from 1.", lambda s: s.attempt),
    (
        "millrace_collector_restarts",
        "How many attempts were made because the one before had failed.",
        lambda s: s.restarts,
    ),
)


def exposition(status: CollectorStatus, now: float) -> tuple[str, bytes]:
    """Content type and text of a scrape. now: seconds since the Unix epoch."""
    registry = CollectorRegistry()
    registry.register(_Snapshot(status, now))
    registry.register(_PROCESS)
    registry.register(_PLATFORM)
    return CONTENT_TYPE_PLAIN_0_0_4, generate_latest(registry)


class _Snapshot(Collector):
    def __init__(self, status: CollectorStatus, now: float) -> None:
        self._status, self._now = status, now

    def collect(self) -> Iterator[Metric]:
        status = self._status
        for name, text, value in _COUNTERS:
            yield CounterMetricFamily(name, text, value=value(status))
        for name, text, value in _GAUGES:
            yield GaugeMetricFamily(name, text, value=float(value(status)))
        # once all has ended the watermark is no time any more
        if status.watermark is not None and status.watermark < END - 11 * _YEAR:
            yield GaugeMetricFamily(
                "millrace_collector_watermark_lag_seconds",
                "How far the event time up to which windows are closed is behind the clock.",
                value=self._now - status.watermark / 1_000_000,
            )
        lag = GaugeMetricFamily(
            "millrace_collector_channel_lag_offsets",
            "Offsets of the channel that were not read when the last batch began: rows, marks, ends of transactions.",
            labels=["partition"],
        )
        for partition, end in status.latest.items():
            lag.add_metric([str(partition)], max(0, end - status.offsets.get(partition, 0)))
        yield lag


class Site:
    """What a collector serves: see `millrace.worker.http` for the paths. `status` and `since_progress` are asked on the
    server's threads; `bound`: seconds without progress of the job's loop after which it counts as stuck.
    """

    def __init__(
        self,
        status: Callable[[], CollectorStatus],
        since_progress: Callable[[], float],
        clock: Clock,
        *,
        bound: float = 300.0,
    ) -> None:
        self._status, self._idle, self._clock, self._bound = status, since_progress, clock, bound

    def __call__(self, path: str) -> Answer:
        status = self._status()
        match path:
            case "/livez":
                idle = self._idle()
                if idle <= self._bound:
                    return 200, TEXT, b"ok\n"
                return 503, TEXT, f"no progress for {idle:.0f} s (bound {self._bound:.0f} s)\n".encode()
            case "/readyz":
                ready = status.state == RUNNING
                return (200, TEXT, b"ok\n") if ready else (503, TEXT, f"{status.state}\n".encode())
            case "/metrics":
                kind, body = exposition(status, self._clock.time())
                return 200, kind, body
            case "/status":
                return 200, "application/json", msgspec.json.format(msgspec.json.encode(status)) + b"\n"
            case _:
                return 404, TEXT, b"there is /livez /readyz /metrics /status\n"
