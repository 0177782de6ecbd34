"""`kubectl millrace dlq`, with the pod's part carried out here on the in-memory broker."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
import typer

from api_manifests import FLIGHTS
from millrace.cli.dlq import replaying
from millrace.cli.dlq.in_pod import Choice, Replay, do
from millrace.cli.dlq.purging import Which
from millrace.cli.kubectl.client import Kubectl, Scope
from millrace.cli.kubectl.dlq import course
from millrace.cli.kubectl.errand.pod import Errand
from millrace.cli.kubectl.errand.sending import Place
from millrace.cli.kubectl.view import Pipeline
from millrace.clock import SystemClock
from millrace.connectivity.memory import MemoryBroker
from millrace.errors import ExitCode, MillraceError
from millrace.worker import cluster

pytestmark = pytest.mark.unit

T = TypeVar("T")
DEAD = "flight-delays.dead"
EVERYTHING = Choice()


class Desk:
    """A cluster whose pods do their work at once, in this process."""

    def __init__(self, manifest: Path, broker: MemoryBroker) -> None:
        self.manifest, self.broker = manifest, broker
        self.sent: list[Errand] = []
        self.told: list[str] = []  # by the pod, meanwhile
        self.place = Place(Kubectl(Scope()), "flights", 60, SystemClock())

    def send(self, where: Place, one: Pipeline, errand: Errand, kind: type[T]) -> T:
        assert (where, one.metadata.name) == (self.place, "flights")
        self.sent.append(errand)
        found = do(errand.request, self.manifest, None, self.told.append)
        return msgspec.json.decode(msgspec.json.encode(found), type=kind)

    def die(self, value: bytes, stage: str = "score") -> None:
        writer = self.broker.cluster(client_id="writer").producer()
        headers = [
            ("millrace-reason", b"no rate"),
            ("millrace-stage", stage.encode()),
            ("millrace-topic", b"flights"),
            ("millrace-partition", b"1"),
            ("millrace-offset", b"7"),
            ("trace", b"\xff\x00"),
        ]
        writer.produce(DEAD, value, b"k", headers)
        writer.flush(5.0)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    broker = MemoryBroker(SystemClock())
    monkeypatch.setattr(cluster, "connect", lambda *_, **__: broker.cluster(client_id="test"))
    broker.create_topic("flights", 2)
    broker.create_topic(DEAD, 1)
    (tmp_path / "pipeline.yaml").write_text(FLIGHTS)
    (tmp_path / "kubectl").write_text('#!/bin/sh\necho \'{"metadata": {"name": "flights"}}\'\n')
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    desk = Desk(tmp_path / "pipeline.yaml", broker)
    monkeypatch.setattr(course, "send", desk.send)
    return desk


def test_letters_are_listed_and_one_is_shown_to_its_last_byte(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.die(b'{"n":0}')
    desk.die(b"\x00\xfe\n", "decode")
    course.list_letters(desk.place, Choice(stages=("decode",)), 10, True)
    [letter] = json.loads(capsys.readouterr().out)
    assert (letter["partition"], letter["offset"], letter["reason"]) == (0, 1, "no rate")
    course.list_letters(desk.place, EVERYTHING, 1, False)
    assert "the first 1; see more with --limit" in capsys.readouterr().out
    course.show_letter(desk.place, 0, 1, True)
    shown = json.loads(capsys.readouterr().out)
    assert (shown["valueBase64"], shown["key"]) == ("AP4K", "k")
    assert shown["headers"][-1] == {"name": "trace", "valueBase64": "/wA="}
    assert not any(errand.alone for errand in desk.sent)
    with pytest.raises(MillraceError, match="no dead letter at 0:2"):
        course.show_letter(desk.place, 0, 2, True)


def test_what_is_refused_anyway_needs_no_pod(desk: Desk) -> None:
    for choice, code in ((Choice(reason="("), ExitCode.USAGE), (Choice(since="today"), ExitCode.USAGE)):
        with pytest.raises(MillraceError) as raised:
            course.replay_letters(desk.place, Replay(choice, None, False, None, False), False)
        assert raised.value.code is code
    assert desk.sent == []


def test_a_dry_run_runs_beside_others_and_a_replay_alone(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "_EVERY", 0.0)
    desk.die(b"1")
    asked = Replay(EVERYTHING, None, False, None, dry_run=True)
    course.replay_letters(desk.place, asked, False)
    assert capsys.readouterr().out == "would replay 1 to flights\n"
    assert desk.broker.records("flights") == []
    course.replay_letters(desk.place, msgspec.structs.replace(asked, dry_run=False), True)
    assert json.loads(capsys.readouterr().out) == {
        "dryRun": False, "replayed": 1, "topics": {"flights": 1}, "leftOut": 0, "replayedBefore": 0,
    }  # fmt: skip
    assert [record.value() for record in desk.broker.records("flights")] == [b"1"]
    assert [errand.alone for errand in desk.sent] == [False, True]
    assert desk.told == ["1 dead letters looked at, now at 0:0"] * 2


def test_a_purge_asks_here_and_deletes_what_was_agreed_to_and_no_more(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def agree(*_: object, **__: object) -> bool:
        desk.die(b"that comes meanwhile")
        return True

    desk.die(b"1")
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(MillraceError, match="about to be deleted") as raised:
        course.purge_letters(desk.place, Which(everything=True), yes=False, as_json=True)
    assert raised.value.code is ExitCode.USAGE
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(typer, "confirm", agree)
    course.purge_letters(desk.place, Which(everything=True), yes=False, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"topic": DEAD, "deletedBelow": {"0": 1}}
    assert [record.value() for record in desk.broker.records(DEAD)] == [b"that comes meanwhile"]
    assert [errand.alone for errand in desk.sent] == [False, False, True]
    course.purge_letters(desk.place, Which(everything=True), yes=True, as_json=False)
    assert capsys.readouterr().out == f"deleted from {DEAD}: partition 0 below offset 2\n"
    assert [errand.alone for errand in desk.sent] == [False, False, True, True]
    course.purge_letters(desk.place, Which(replayed=True), yes=False, as_json=False)
    assert capsys.readouterr().out == f"nothing to delete in {DEAD}\n"
