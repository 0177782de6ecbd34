"""How far the group as a whole has come in event time."""

from __future__ import annotations

import pytest

from chain_fakes import FakeRecord
from millrace.channel.lateness import Lateness, Ruling, rule
from millrace.channel.progress import Note, Progress, Standing
from millrace.ownership.claim import Claim

pytestmark = pytest.mark.unit


def heard(*notes: Note | None) -> Progress:
    progress = Progress()
    progress.hear(dict(enumerate(notes)))
    return progress


def test_while_some_are_read_the_one_that_lags_tells() -> None:
    assert heard(Note(30), Note(10), Note(20, "idle")).horizon({}) == 10


def test_when_none_is_read_the_one_that_came_furthest_tells() -> None:
    assert heard(Note(30, "idle"), Note(10, "end"), Note(None, "idle")).horizon({}) == 30


@pytest.mark.parametrize("unknown", [None, Note()])
def test_a_partition_that_is_read_and_has_no_row_yet_leaves_it_open(unknown: Note | None) -> None:
    assert heard(Note(30), unknown).horizon({}) is None


def rows(progress: Progress, partition: int, *times: int, start: int = 0, complete: bool = True) -> Ruling:
    """Rows of messages of their own come, and their batch is complete."""
    records = [FakeRecord(start + n, of=partition) for n in range(len(times))]
    ruling = rule(progress.latest(partition), times, Lateness(5), range(start, start + len(times)))
    progress.ruled(partition, start, start + len(times), records, times, ruling, 0.0)
    if complete:
        progress.complete(partition, start, start + len(times))
    return ruling


def test_nothing_is_known_before_the_notes_were_heard() -> None:
    progress = Progress()
    rows(progress, 0, 5)
    assert progress.horizon({0: "idle"}) is None


def test_of_its_own_partitions_a_worker_knows_better_than_the_notes() -> None:
    progress = heard(Note(10, "idle"), Note(40))
    progress.adopt(0, Note(10, "idle"))
    rows(progress, 0, 20, 17)
    rows(progress, 0, 15, start=2)
    assert progress.time(0) == 20
    assert progress.horizon({0: "reading"}) == 20
    assert progress.horizon({0: "idle"}) == 40


def test_what_was_passed_on_is_known_as_it_was_left_until_it_is_heard_of() -> None:
    progress = heard(Note(10), Note(40))
    progress.adopt(0, Note(10))
    rows(progress, 0, 20)
    progress.dismiss(0, "reading")
    assert progress.time(0) == 20
    progress.hear({0: Note(30), 1: Note(40)})
    assert progress.time(0) == 30


def test_a_note_says_what_is_complete_and_the_next_rows_are_measured_by_what_is_on_its_way_too() -> None:
    progress = Progress()
    progress.adopt(3, Note(10, told=10, late=7))
    rows(progress, 3, 4, 20, 14, complete=False)
    assert progress.latest(3) == 20
    assert progress.note(3, "reading") == Note(10, told=10, late=7)
    progress.complete(3, 0, 3)
    assert progress.note(3, "reading") == Note(20, told=10, late=9)


def test_of_a_batch_that_is_cut_only_what_was_before_the_cut_is_noted() -> None:
    progress = Progress()
    rows(progress, 0, 10, 3, 20, complete=False)
    progress.complete(0, 0, 2)
    assert progress.note(0, "reading") == Note(10, late=1)


def test_what_was_abandoned_on_its_way_is_as_if_it_had_not_come() -> None:
    progress = Progress()
    rows(progress, 0, 10)
    rows(progress, 0, 100, start=1, complete=False)
    progress.forget({0})
    assert progress.latest(0) == 10
    assert rows(progress, 0, 9, start=1).late is None


def test_the_promises_of_marks_are_what_rows_are_measured_by_but_no_rows() -> None:
    progress = heard(Note(10))
    progress.adopt(0, Note(10))
    progress.told(0, 50)
    assert progress.latest(0) == 50
    assert progress.time(0) == 10
    assert rows(progress, 0, 44, 45).late == [True, False]
    assert progress.untold() == {}


def test_a_note_about_another_column_or_stage_says_nothing() -> None:
    progress = Progress(of="by.t")
    progress.adopt(0, Note(10, "idle", 20, 3, of="by.u"))
    assert progress.note(0, "reading") == Note(of="by.t")
    progress.hear({1: Note(10, of="by.u")})
    assert progress.time(1) is None


def test_a_topic_without_any_row_promises_nothing() -> None:
    assert heard(Note(None, "idle"), Note(None, "idle")).horizon({}) is None


@pytest.mark.parametrize("standing", ["reading", "idle", "end"])
@pytest.mark.parametrize("time", [None, -5, 10**17])
def test_a_note_is_read_as_it_was_written(time: int | None, standing: Standing) -> None:
    note = Note(time, standing, time, 3, "by.t")
    assert Note.decode(note.encode()) == note


def test_a_claim_has_room_for_the_largest_note() -> None:
    largest = Note(-(10**17), "reading", -(10**17), 10**18, f"{'s' * 63}.{'c' * 128}")
    assert len(Claim("u" * 36, "t" * 22, 2**53, 10**4, largest.encode()).encode()) < 1000


@pytest.mark.parametrize("text", [None, "", "hello", "[]", '{"time":"x"}', '{"standing":"gone"}'])
def test_what_a_stranger_committed_is_no_note(text: str | None) -> None:
    assert Note.decode(text) is None
