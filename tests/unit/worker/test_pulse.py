"""What a worker says of itself: snapshots, health, metrics, the status file."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from millrace.clock import VirtualClock
from millrace.errors import ExitCode, MillraceError, StageFailed
from millrace.worker.http import HealthServer, answer, parse_address, site_of
from millrace.worker.pulse import Pulse
from millrace.worker.status import StageStatus, WorkerStatus, read

pytestmark = pytest.mark.unit


def filled(status: WorkerStatus) -> WorkerStatus:
    return msgspec.structs.replace(
        status,
        state="running",
        ready=True,
        reasons=(),
        epoch=3,
        positions={0: 100, 4: 7},
        late_rows={0: 12, 4: 0},
        messages=107,
        stages=(
            StageStatus(
                "score", "map", 107, 100, 7, 0.25, 0, 3, 2, 1.5, 40, (0, 1, *[0] * 7, 2, *[0] * 6), 1.6
            ),
            StageStatus("by", "collect", 100, 95, 0, 0.5, 5),
        ),
    )


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def pulse(clock: VirtualClock, tmp_path: Path) -> Pulse:
    return Pulse(2, clock, tmp_path / "2.json", live_within=60.0)


@pytest.fixture
def server(pulse: Pulse) -> Iterator[HealthServer]:
    server = HealthServer(("127.0.0.1", 0), site_of(pulse))
    yield server
    server.close()


def test_a_worker_is_live_while_its_loop_comes_round(pulse: Pulse, clock: VirtualClock) -> None:
    clock.advance(59)
    assert answer("/livez", pulse)[0] == 200
    clock.advance(2)
    code, _, body = answer("/livez", pulse)
    assert (code, body) == (503, b"no progress for 61 s (bound 60 s)\n")
    pulse.beat()
    assert answer("/livez", pulse)[0] == 200


def test_a_worker_that_is_not_ready_says_why(pulse: Pulse, clock: VirtualClock) -> None:
    assert answer("/readyz", pulse)[::2] == (503, b"starting\n")
    pulse.fill_from(filled)
    clock.advance(1)
    pulse.beat()
    assert answer("/readyz", pulse)[0] == 200


def test_metrics_are_made_from_the_snapshot(pulse: Pulse) -> None:
    pulse.fill_from(filled)
    pulse.publish()
    _, _, body = answer("/metrics", pulse)
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }
    assert found[("millrace_worker_ready",)] == 1
    assert found[("millrace_worker_epoch",)] == 3
    assert found[("millrace_worker_messages_total",)] == 107
    assert found[("millrace_partition_position", "4")] == 7
    assert found[("millrace_stage_dead_letters_total", "score")] == 7
    assert found[("millrace_stage_busy_seconds_total", "score")] == 0.25
    assert found[("millrace_stage_late_rows_total", "by")] == 5
    assert found[("millrace_stage_batches_total", "score")] == 3
    assert found[("millrace_stage_rejections_total", "score")] == 2
    assert found[("millrace_stage_back_pressure_seconds_total", "score")] == 1.5
    assert found[("millrace_stage_in_flight_messages", "score")] == 40
    assert found[("millrace_stage_latency_seconds_count", "score")] == 3
    assert found[("millrace_stage_latency_seconds_sum", "score")] == 1.6
    bucket = "millrace_stage_latency_seconds_bucket"
    classes = [found[(bucket, bound, "score")] for bound in ("0.001", "0.0025", "0.5", "1.0", "+Inf")]
    assert classes == [0, 1, 1, 3, 3]
    assert found[("millrace_partition_late_rows_total", "0")] == 12
    assert ("process_cpu_seconds_total",) in found


def test_the_endpoints_answer_over_http(server: HealthServer, pulse: Pulse) -> None:
    pulse.fill_from(filled)
    pulse.publish()
    base = f"http://127.0.0.1:{server.port}"
    with urllib.request.urlopen(f"{base}/status", timeout=5) as reply:
        assert json.load(reply)["positions"] == {"0": 100, "4": 7}
    with pytest.raises(urllib.error.HTTPError) as missing:
        urllib.request.urlopen(f"{base}/nothing", timeout=5)
    assert missing.value.code == 404
    missing.value.close()


def test_a_port_in_use_is_told_as_such(server: HealthServer, pulse: Pulse) -> None:
    with pytest.raises(MillraceError) as refused:
        HealthServer(("127.0.0.1", server.port), site_of(pulse))
    assert refused.value.code == ExitCode.BUSY
    assert str(server.port) in refused.value.what


@pytest.mark.parametrize("text", ["9400", "host:", "host:port", "host:70000"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(MillraceError) as refused:
        parse_address(text)
    assert refused.value.code == ExitCode.USAGE


def test_addresses() -> None:
    assert parse_address("127.0.0.1:9400") == ("127.0.0.1", 9400)
    assert parse_address(":9400") == ("", 9400)
    assert parse_address("[::1]:9400") == ("::1", 9400)


def test_the_status_file_is_written_twice_a_second_and_not_at_each_step(
    pulse: Pulse, clock: VirtualClock, tmp_path: Path
) -> None:
    pulse.fill_from(filled)
    for _ in range(20):
        clock.advance(0.02)
        pulse.beat()
    assert not (tmp_path / "2.json").exists()
    clock.advance(0.2)
    pulse.beat()
    status = read(tmp_path / "2.json")
    assert status is not None
    assert status.positions == {0: 100, 4: 7}


def test_a_failure_stands_in_the_last_status(pulse: Pulse, tmp_path: Path) -> None:
    pulse.failed(StageFailed("ValueError: no delay", stage="score", partition=3, offset=17, remedy="mend it"))
    status = read(tmp_path / "2.json")
    assert status is not None
    assert status.error is not None
    assert status.state == "failed"
    error = status.error.error()
    assert (error.what, error.code) == ("ValueError: no delay", ExitCode.STAGE_FAILED)
    assert error.where == "stage score, partition 3, offset 17"


def test_the_last_status_does_not_depend_on_what_has_failed(pulse: Pulse, tmp_path: Path) -> None:
    def broken(_status: WorkerStatus) -> WorkerStatus:
        raise RuntimeError("the replica is gone")

    pulse.fill_from(broken)
    pulse.stopped()
    status = read(tmp_path / "2.json")
    assert status is not None
    assert status.state == "stopped"


def test_a_status_file_that_cannot_be_written_stops_nobody(clock: VirtualClock, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    pulse = Pulse(0, clock, tmp_path / "file" / "0.json")
    pulse.publish()
    pulse.publish()
    assert pulse.status().state == "starting"
