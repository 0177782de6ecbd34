"""What the commands of `millrace dlq` print, and how they end, on the in-memory broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from api_manifests import FLIGHTS
from millrace.cli.dlq.access import Place
from millrace.cli.dlq.chosen import Chosen
from millrace.cli.dlq.listing import list_letters, show_letter
from millrace.cli.dlq.purging import purge_letters
from millrace.cli.dlq.replaying import replay_letters
from millrace.clock import SystemClock
from millrace.connectivity.memory import MemoryBroker
from millrace.errors import ExitCode, MillraceError
from millrace.worker import cluster

pytestmark = pytest.mark.unit

DEAD = "flight-delays.dead"


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> MemoryBroker:
    broker = MemoryBroker(SystemClock())
    monkeypatch.setattr(cluster, "connect", lambda *_, **__: broker.cluster(client_id="test"))
    broker.create_topic("flights", 2)
    broker.create_topic(DEAD, 1)
    producer = broker.cluster(client_id="writer").producer()
    for n, stage in enumerate(("score", "decode", "score")):
        headers = [
            ("millrace-reason", b"no rate for %d" % n),
            ("millrace-stage", stage.encode()),
            ("millrace-topic", b"flights"),
            ("millrace-partition", b"1"),
            ("millrace-offset", b"%d" % n),
            ("millrace-timestamp", b"1700000000000"),
            ("trace", b"\xff"),
        ]
        producer.produce(DEAD, b"x" * 1_000 if n == 2 else b"\xfe" if n else b'{"n":0}', b"k", headers)
    producer.flush(5.0)
    return broker


@pytest.fixture
def place(tmp_path: Path, broker: MemoryBroker) -> Place:
    (tmp_path / "pipeline.yaml").write_text(FLIGHTS)
    return Place(tmp_path / "pipeline.yaml", "localhost:9092", None, None)


def test_list_shows_what_was_chosen(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    list_letters(place, Chosen(stages=frozenset({"score"})), 10, True)
    first, second = json.loads(capsys.readouterr().out)
    assert (first["offset"], first["stage"], first["sourceTopic"], first["sourceOffset"]) == (
        0, "score", "flights", 0,
    )  # fmt: skip
    assert len(second["value"]) == 500, "shortened"
    list_letters(place, Chosen(), 2, False)
    told = capsys.readouterr().out
    assert "flights/1:1" in told
    assert "the first 2; see more with --limit" in told
    list_letters(place, Chosen(partitions=frozenset({9})), 2, False)
    assert capsys.readouterr().out == f"no such dead letters in {DEAD}\n"


def test_show_has_all_of_one(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    show_letter(place, 0, 2, True)
    shown = json.loads(capsys.readouterr().out)
    assert shown["value"] == "x" * 1_000
    assert shown["headers"][-1] == {"name": "trace", "valueBase64": "/w=="}
    assert (shown["key"], shown["sourceTimestamp"]) == ("k", 1_700_000_000_000)
    show_letter(place, 0, 1, True)
    assert json.loads(capsys.readouterr().out)["valueBase64"] == "/g=="
    show_letter(place, 0, 0, False)
    told = capsys.readouterr().out
    for words in ("0:0, written", "of 2023-11-14T22:13:20+00:00", "no rate for 0", "trace: \\xff", '{"n":0}'):
        assert words in told


def test_show_of_nothing_says_where_to_look(place: Place) -> None:
    for partition, offset in ((0, 3), (7, 0)):
        with pytest.raises(MillraceError) as raised:
            show_letter(place, partition, offset, False)
        assert raised.value.code is ExitCode.USAGE
        assert "dlq list" in raised.value.remedy


def test_replay_says_what_it_would_do_and_what_it_did(
    place: Place, broker: MemoryBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(chosen: Chosen, **options: object) -> str:
        given: dict[str, object] = {
            "to": None,
            "again": False,
            "limit": None,
            "dry_run": False,
            "as_json": False,
        }
        replay_letters(place, chosen, **(given | options))  # type: ignore[arg-type]
        return capsys.readouterr().out

    score = Chosen(stages=frozenset({"score"}))
    assert run(score, dry_run=True) == "would replay 2 to flights\n1 others were not chosen\n"
    assert broker.records("flights") == []
    assert json.loads(run(score, as_json=True)) == {
        "dryRun": False, "replayed": 2, "topics": {"flights": 2}, "leftOut": 1, "replayedBefore": 0,
    }  # fmt: skip
    assert run(score) == (
        "replayed nothing\n1 others were not chosen\n1 were replayed before (--again replays them too)\n"
    )
    assert [record.partition() for record in broker.records("flights")] == [1, 1]
    with pytest.raises(MillraceError) as raised:
        run(score, to=DEAD)
    assert (raised.value.where, raised.value.code) == ("--to", ExitCode.USAGE)


def test_purge_deletes_up_to_a_point_and_asks_before(
    place: Place, broker: MemoryBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*, yes: bool = True, as_json: bool = True, **what: object) -> str:
        given: dict[str, object] = {"everything": False, "replayed": False, "before": None}
        purge_letters(place, yes=yes, as_json=as_json, **(given | what))  # type: ignore[arg-type]
        return capsys.readouterr().out

    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(MillraceError) as raised:
        run(everything=True, yes=False)
    assert "--yes" in raised.value.remedy
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: False)
    with pytest.raises(MillraceError) as raised:
        run(everything=True, yes=False)
    assert (raised.value.what, raised.value.code) == ("nothing was deleted", ExitCode.INTERRUPTED)
    assert json.loads(run(replayed=True)) == {"topic": DEAD, "deletedBelow": {}}
    assert json.loads(run(before="2000-01-01T00:00:00Z")) == {"topic": DEAD, "deletedBelow": {}}
    assert len(broker.records(DEAD)) == 3
    replay_letters(place, Chosen(), to=None, again=False, limit=2, dry_run=False, as_json=True)
    capsys.readouterr()
    assert run(replayed=True, as_json=False) == f"deleted from {DEAD}: partition 0 below offset 2\n"
    assert json.loads(run(everything=True)) == {"topic": DEAD, "deletedBelow": {"0": 3}}
    assert run(everything=True, as_json=False) == f"nothing to delete in {DEAD}\n"


def test_a_pipeline_without_dead_letters_says_so(place: Place) -> None:
    place.manifest.write_text(
        "apiVersion: millrace.dev/v1alpha1\nkind: ConsumerPipeline\nmetadata: {name: smallest}\nspec:\n"
        "  kafka: {bootstrapServers: 'localhost:9092'}\n  source: {topic: in}\n"
        "  stages: [{name: look, map: {function: 'look:at'}}]\n"
    )
    with pytest.raises(MillraceError) as raised:
        list_letters(place, Chosen(), 1, False)
    assert (raised.value.where, raised.value.code) == ("spec.deadLetter", ExitCode.MANIFEST)
