"""The live view: everything that matters, in the room there is."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console

from millrace.local.run import summary
from millrace.local.view.display import save_picture
from millrace.local.view.figures import count, percent, short, span
from millrace.local.view.live import view
from millrace.local.view.plain import PlainLines, line
from millrace.local.view.snapshot import (
    CollectorSnapshot,
    Notice,
    PartitionSnapshot,
    RunSnapshot,
    StageSnapshot,
    WorkerSnapshot,
    decode,
    encode,
)

pytestmark = pytest.mark.unit


COLLECTOR = CollectorSnapshot(
    "by-carrier", "running", 99, 2, 54_321.0, 123_456, 7, 4_040, 1_357_041_600_000_000, 1_234
)


def snapshot(
    partitions: int = 12,
    workers: int = 3,
    *,
    until_end: bool = True,
    notices: int = 2,
    collector: bool = False,
) -> RunSnapshot:
    return RunSnapshot(
        "flight-delays",
        "running",
        0.0,
        31.0,
        31.0,
        kafka="127.0.0.1:19092",
        embedded=True,
        delivery="ExactlyOnce",
        replicas=workers,
        epoch=1,
        partitions=tuple(
            PartitionSnapshot(p, p % workers if workers else None, 100 * p, 5000, 5000 if until_end else None)
            for p in range(partitions)
        ),
        workers=tuple(
            WorkerSnapshot(
                i, "running" if i else "restarting", "" if i else "back in 0.4 s", 99, 0 if i else 1
            )
            for i in range(workers)
        ),
        stages=tuple(
            StageSnapshot(name, kind, 12_345.0, 1_234_567, 1_200_000, dead, 3.2)
            for name, kind, dead in (("decode", "decode", 31), ("departed", "filter", 0), ("score", "map", 3))
        ),
        collector=COLLECTOR if collector else None,
        rate=12_345.0,
        done=30_000,
        total=60_000 if until_end else None,
        eta=19.0,
        notices=tuple(Notice(float(n), f"notice {n}", "warning") for n in range(notices)),
    )


def drawn(run: RunSnapshot, columns: int = 80, lines: int = 24) -> list[str]:
    out = StringIO()
    console = Console(file=out, width=columns, height=lines, force_terminal=True, color_system=None)
    console.print(view(run))
    return out.getvalue().splitlines()


def test_it_shows_owners_with_lag_rates_dead_letters_and_progress() -> None:
    text = "\n".join(drawn(snapshot()))
    for said in ("flight-delays", "running", "0:00:31", "50 %", "ETA 0:00:19", "worker 1", "back in 0.4 s"):
        assert said in text
    for said in ("score", "12,345", "dead letters 34", "restarts 1", "embedded", "notice 1"):
        assert said in text


def test_a_stage_that_holds_back_the_others_is_named() -> None:
    calm = snapshot()
    stages = tuple(replace(stage, held_back=0.83) for stage in calm.stages[-1:])
    held = replace(calm, stages=(*calm.stages[:-1], *stages))
    assert "held back by score 83 %" in "\n".join(drawn(held, 100))
    assert "held back by score 83 %" in line(held)
    assert "held back" not in line(calm)


@settings(max_examples=60, deadline=None)
@given(
    partitions=st.integers(0, 400),
    workers=st.integers(1, 60),
    columns=st.integers(80, 240),
    lines=st.integers(24, 70),
    until_end=st.booleans(),
    notices=st.integers(0, 40),
    collector=st.booleans(),
)
def test_it_fits_any_window_from_80_by_24(
    partitions: int, workers: int, columns: int, lines: int, until_end: bool, notices: int, collector: bool
) -> None:
    run = snapshot(partitions, workers, until_end=until_end, notices=notices, collector=collector)
    rows = drawn(run, columns, lines)
    assert len(rows) <= lines
    assert max(map(len, rows)) <= columns


def test_the_collector_has_one_line() -> None:
    run = snapshot(collector=True)
    (shown,) = [row for row in drawn(run, 120) if "collector" in row]
    for said in (
        "by-carrier running",
        "54,321 rows/s",
        "watermark 2013-01-01 12:00",
        "lag 1,234",
        "restarts 2",
    ):
        assert said in shown
    assert "collector running 54,321 rows/s watermark 2013-01-01 12:00 lag 1,234 late 7" in line(run)


def test_a_worker_in_trouble_is_shown_even_where_there_is_no_room_for_all() -> None:
    text = "\n".join(drawn(snapshot(200, 50)))
    assert "worker 0 " in text
    assert "more" in text or "+" in text


def test_a_run_that_has_just_begun_can_be_shown() -> None:
    assert drawn(RunSnapshot("flights", "starting", 0.0, 0.0, 0.0, phase="the broker starts"))


def test_a_narrow_window_has_short_figures_rather_than_cut_ones() -> None:
    text = "\n".join(drawn(snapshot(), columns=60))
    assert "1.2M" in text
    assert "1,23" not in text
    assert "0:00:01 notice 1" in text
    assert "…" not in text.partition("stage")[2].partition("lag")[0]


def test_the_summary_of_a_calm_run_says_what_workers_counted() -> None:
    run = replace(snapshot(), state="finished", workers=(), messages=30_000, partitions=())
    assert summary(run) == "finished after 0:00:31, 30,000 messages, 34 dead letters"


def test_late_rows_are_told_wherever_figures_are() -> None:
    run = replace(snapshot(collector=True), messages=30_000, late=1_234)
    calm = replace(run, state="finished", workers=(), partitions=())
    assert summary(calm).endswith(", 34 dead letters, 1,234 late, 123,456 rows collected")
    assert "late 1,234" in line(run)
    assert any("late 1,234" in text for text in drawn(run))


def test_the_summary_after_crashes_tells_the_input_from_repeated_work() -> None:
    run = replace(snapshot(), state="finished", messages=45_000, partitions=())
    first, second, third = summary(run).splitlines()
    assert first == "finished after 0:00:31, 30,000 messages done (by committed offsets)"
    assert second == "  with 1 restart workers took 45,000 messages and made 34 dead letters:"
    assert "repeated work is counted" in third


def test_a_run_that_found_nothing_says_so() -> None:
    run = replace(snapshot(), state="finished", messages=0, done=0, workers=(), partitions=(), stages=())
    assert summary(run) == "finished after 0:00:31: there was nothing new in the source"


def test_a_picture_of_it_is_an_svg(tmp_path: Path) -> None:
    save_picture(snapshot(), tmp_path / "live.svg", "millrace run")
    assert (tmp_path / "live.svg").read_text().startswith("<svg")
    assert "@font-face" not in (tmp_path / "live.svg").read_text()


def test_a_snapshot_survives_the_status_file() -> None:
    assert decode(encode(snapshot())) == snapshot()


def test_plain_lines_tell_each_notice_once_and_progress_now_and_then() -> None:
    out = StringIO()
    lines = PlainLines(out, every=3.0)
    lines.show(snapshot())
    lines.show(snapshot())
    text = out.getvalue().splitlines()
    assert [row for row in text if "notice 0" in row] == ["0:00:00 warning: notice 0"]
    assert len([row for row in text if "messages/s" in row]) == 1


def test_a_plain_line_has_all_figures() -> None:
    assert line(snapshot()) == (
        "running, 50 %, 12,345 messages/s, lag 53,400, dead letters 34, workers 2/3, ETA 0:00:19"
    )


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999, "999"),
        (999.6, "1.0k"),
        (9_940, "9.9k"),
        (9_960, "10k"),
        (999_700, "1.0M"),
        (12_345_678, "12M"),
    ],
)
def test_short_figures_take_four_characters(number: float, text: str) -> None:
    assert short(number) == text


@given(st.floats(0, 1e14))
def test_short_figures_never_take_more(number: float) -> None:
    assert len(short(number)) <= 4


def test_progress_says_all_only_when_it_is_all() -> None:
    assert [percent(f) for f in (0.0, 0.5, 0.9951, 0.999999, 1.0)] == [
        "0 %",
        "50 %",
        "99.5 %",
        "99.9 %",
        "100 %",
    ]


def test_figures_for_people() -> None:
    assert count(1_234_567.4) == "1,234,567"
    assert [span(s) for s in (0, 61, 3600, 90_061)] == ["0:00:00", "0:01:01", "1:00:00", "1d 1:01:01"]
