"""Every Prometheus metric of a worker, made from its snapshot at the scrape; nothing is counted per message here.

Counters begin at zero with the process, as Prometheus expects, but for those of partitions: they go on with the partition,
in whichever process holds it. Names say their unit; `partition` is the source's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from millrace.engine.stats import LATENCIES
from millrace.worker.status import StageStatus, StuckStage, WorkerStatus


def exposition(status: WorkerStatus) -> tuple[str, bytes]:
    """Content type and text of a scrape."""
    registry = CollectorRegistry()
    registry.register(_Snapshot(status))
    registry.register(_PROCESS)
    registry.register(_PLATFORM)
    return CONTENT_TYPE_PLAIN_0_0_4, generate_latest(registry)


_PROCESS = ProcessCollector(registry=None)
_PLATFORM = PlatformCollector(registry=None)

_PER_STAGE: tuple[tuple[str, str, Callable[[StageStatus], float]], ...] = (
    ("millrace_stage_received_messages", "Messages a stage was given.", lambda s: s.received),
    ("millrace_stage_emitted_messages", "Messages a stage handed on.", lambda s: s.emitted),
    ("millrace_stage_dead_letters", "Messages a stage gave up as dead letters.", lambda s: s.dead),
    (
        "millrace_stage_late_rows",
        "Rows that a collect stage left out as late; what is repeated after a crash counts again.",
        lambda s: s.late,
    ),
    ("millrace_stage_busy_seconds", "Time spent in a stage's own work.", lambda s: s.seconds),
    ("millrace_stage_batches", "Batches a stage was given.", lambda s: s.batches),
    (
        "millrace_stage_rejections",
        "Times that a stage began to refuse batches: its pool or the producer's buffer was full.",
        lambda s: s.rejected,
    ),
    (
        "millrace_stage_back_pressure_seconds",
        "Time for which a stage refused batches, and held back all before it.",
        lambda s: s.held_back,
    ),
)

_OF_STUCK: tuple[tuple[str, str, Callable[[StuckStage], float]], ...] = (
    (
        "millrace_stage_stuck_calls",
        "Calls of a stage's function that take longer than they should.",
        lambda s: s.calls,
    ),
    (
        "millrace_stage_stuck_seconds",
        "For how long the first of these has been under way.",
        lambda s: s.seconds,
    ),
)


class _Snapshot(Collector):
    def __init__(self, status: WorkerStatus) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        status = self._status
        yield GaugeMetricFamily("millrace_worker_ready", "1 if ready, else 0.", value=float(status.ready))
        yield GaugeMetricFamily(
            "millrace_worker_epoch", "Number of the epoch the worker goes by; -1: none yet.",
            value=-1 if status.epoch is None else status.epoch,
        )  # fmt: skip
        yield GaugeMetricFamily("millrace_worker_partitions", "Partitions held.", value=len(status.positions))
        yield CounterMetricFamily(
            "millrace_worker_interruptions", "Times that everything was dropped and begun again.",
            value=status.interruptions,
        )  # fmt: skip
        yield CounterMetricFamily("millrace_worker_messages", "Source messages taken.", value=status.messages)
        position = GaugeMetricFamily(
            "millrace_partition_position",
            "Offset up to which the partition is processed.",
            labels=["partition"],
        )
        for partition, offset in status.positions.items():
            position.add_metric([str(partition)], offset)
        yield position
        if status.late_rows:
            late = CounterMetricFamily(
                "millrace_partition_late_rows",
                "Rows that were late since the pipeline began, each counted once.",
                labels=["partition"],
            )
            for partition, count in status.late_rows.items():
                late.add_metric([str(partition)], count)
            yield late
        for name, text, value in _PER_STAGE:
            family = CounterMetricFamily(name, text, labels=["stage"])
            for stage in status.stages:
                family.add_metric([stage.name], value(stage))
            yield family
        in_flight = GaugeMetricFamily(
            "millrace_stage_in_flight_messages",
            "Source messages that a stage has and has not handed on.",
            labels=["stage"],
        )
        latency = HistogramMetricFamily(
            "millrace_stage_latency_seconds",
            "From a batch's coming to a stage to its results, waits included.",
            labels=["stage"],
        )
        for stage in status.stages:
            in_flight.add_metric([stage.name], stage.in_flight)
            if stage.latencies:
                bounds = [*map(str, LATENCIES), "+Inf"]
                buckets = list(zip(bounds, accumulate(stage.latencies), strict=True))
                latency.add_metric([stage.name], buckets, stage.latency)
        yield in_flight
        yield latency
        stuck = {one.stage: one for one in status.stuck}
        for name, text, told in _OF_STUCK:
            gauge = GaugeMetricFamily(name, text, labels=["stage"])
            for stage in status.stages:
                found = stuck.get(stage.name)
                gauge.add_metric([stage.name], told(found) if found is not None else 0)
            yield gauge
