"""`millrace offsets`: what is understood, what is refused before anything is touched, and what is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millrace.cli.offsets import shown
from millrace.cli.offsets.answers import changes_of, offsets_of
from millrace.cli.offsets.commands import Place, repair, reset, show
from millrace.cli.offsets.requests import Request, parse_partitions, parse_position
from millrace.cli.offsets.work import check_again
from millrace.clock import VirtualClock
from millrace.connectivity.memory import MemoryBroker
from millrace.connectivity.ports import Cluster, OffsetAndMetadata, Span
from millrace.errors import ExitCode, MillraceError
from millrace.local.state import RunRecord, StateDirectory
from millrace.ownership.claim import OP, Claim
from millrace.ownership.control_plane import ControlPlane
from millrace.ownership.control_rules import Fleet, Identity
from millrace.ownership.epoch import Epoch
from millrace.ownership.epoch_store import EpochFile
from millrace.ownership.errors import ClaimLost
from millrace.ownership.repositioning import To, ToOffset, ToTime, repairs, resets
from millrace.ownership.rewriting import Sight
from millrace_api import ConsumerPipeline, load

pytestmark = pytest.mark.unit

MANIFEST = """
apiVersion: millrace.dev/v1alpha1
kind: ConsumerPipeline
metadata: {name: numbers}
spec:
  kafka: {bootstrapServers: "127.0.0.1:1"}
  source: {topic: numbers}
  stages:
  - name: by-kind
    collect:
      schema: kind string, at timestamp
      groupBy: [kind]
      window: {size: 1h, time: at, lateness: 10m}
      aggregate: {numbers: count(*)}
      sink: {console: {}}
"""
PIPELINE: ConsumerPipeline = load(MANIFEST).pipeline


def request(to: str | None = None, *, from_group: bool = False) -> Request:
    return Request(to, from_group, None, dry_run=False, again=False)


def sight() -> Sight:
    """Partition 0 as it should be, its mirror set back from outside; 1 parked; 2 lost; 3 another's; 4 not begun."""
    identity = Identity("u", "numbers", "id-1", "g", "g.claims")
    claims = {
        0: OffsetAndMetadata(7, Claim("u", "id-1", 2, 0).encode()),
        1: OffsetAndMetadata(5, Claim("u", "id-1", 2, OP).encode()),
        3: OffsetAndMetadata(9, Claim("v", "id-1", 8, 1).encode()),
    }
    mirror = {0: OffsetAndMetadata(3), 1: OffsetAndMetadata(5), 2: OffsetAndMetadata(6)}
    spans = dict.fromkeys(range(5), Span(0, 10))
    return Sight(identity, Epoch("u", 2, 4, 1, 1), claims, mirror, spans)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", To.EARLIEST),
        ("Latest", To.LATEST),
        ("0", ToOffset(0)),
        ("1200", ToOffset(1200)),
        ("2023-11-14T22:13:20Z", ToTime(1_700_000_000_000)),
        ("2023-11-14T23:13:20.500+01:00", ToTime(1_700_000_000_500)),
    ],
)
def test_positions(text: str, position: object) -> None:
    assert parse_position(request(text)) == position
    assert parse_position(request(from_group=True)) is To.GROUP


@pytest.mark.parametrize(
    "text", ["", "beginning", "-1", "1.5", "2023-11-14T22:13:20", "2023-02-31T00:00:00Z"]
)
def test_what_is_no_position(text: str) -> None:
    with pytest.raises(MillraceError, match="is no position") as caught:
        parse_position(request(text))
    assert caught.value.code is ExitCode.USAGE


def test_one_position_has_to_be_given() -> None:
    for bad in (request(), request("earliest", from_group=True)):
        with pytest.raises(MillraceError, match="one of --to and --from-group"):
            parse_position(bad)


def test_partitions() -> None:
    assert parse_partitions(None, range(3)) == [0, 1, 2]
    assert parse_partitions("0, 3-5,4", range(6)) == [0, 3, 4, 5]
    for bad in ("", "a", "1-", "5-3", "0,6", "1;2"):
        with pytest.raises(MillraceError) as caught:
            parse_partitions(bad, range(6))
        assert caught.value.code is ExitCode.USAGE


def test_each_partition_is_shown_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    found = offsets_of(sight(), running=False)
    rows = {row.partition: row for row in found.partitions}
    assert [rows[p].standing for p in range(5)] == [
        "ours",
        "ours",
        "lost",
        "another pipeline's",
        "unclaimed",
    ]
    assert (rows[0].difference, rows[0].lag, rows[3].uid, rows[3].lag) == (-4, 3, "v", None)
    shown.offsets(found, shown.LOCAL, as_json=False)
    told = capsys.readouterr().out
    for words in ("parked", "worker 0", "-4", "lost", "(v)", "offsets reset --from-group", "offsets repair"):
        assert words in told
    shown.offsets(offsets_of(sight(), running=True), shown.CLUSTER, as_json=True)
    answer = json.loads(capsys.readouterr().out)
    assert (answer["claimsGroup"], answer["running"], len(answer["partitions"])) == ("g.claims", True, 5)


def test_changes_come_with_what_they_lead_to(capsys: pytest.CaptureFixture[str]) -> None:
    seen = sight()
    found = resets(seen.identity, seen.claims, {0: 2, 1: 8})
    shown.changes(changes_of("reset", found, seen, PIPELINE, dry_run=False), shown.LOCAL, as_json=False)
    told = capsys.readouterr().out
    for words in (
        "2 partitions set",
        "5 messages are processed again",
        "3 messages are left out",
        "collector",
    ):
        assert words in told
    anew = repairs(seen.identity, seen.epoch, seen.claims, {2: 6, 3: 9})
    shown.changes(changes_of("repair", anew, seen, PIPELINE, dry_run=True), shown.LOCAL, as_json=True)
    answer = json.loads(capsys.readouterr().out)
    assert answer["dryRun"] is True
    assert [(c["partition"], c["before"], c["after"], c["why"]) for c in answer["changes"]] == [
        (2, None, 6, "lost"),
        (3, 9, 9, "another pipeline's"),
    ]


def test_a_collectors_rows_are_not_written_again_unasked() -> None:
    seen = sight()
    back, on = ({0: 2}, {0: 9})
    plain = request("earliest")
    check_again(PIPELINE, plain, resets(seen.identity, seen.claims, on), seen)
    with pytest.raises(MillraceError, match="by-kind has their rows") as caught:
        check_again(PIPELINE, plain, resets(seen.identity, seen.claims, back), seen)
    assert "--again" in caught.value.remedy
    # of a lost claim the mirror tells how far it had come
    check_again(PIPELINE, plain, repairs(seen.identity, seen.epoch, seen.claims, {2: 6}), seen)
    with pytest.raises(MillraceError, match="partitions 2 would"):
        check_again(PIPELINE, plain, repairs(seen.identity, seen.epoch, seen.claims, {2: 5}), seen)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    manifest = tmp_path / "pipeline.yaml"
    manifest.write_text(MANIFEST)
    return Place(manifest, None, tmp_path / "state", None)


def test_without_a_run_there_is_nothing_to_show(place: Place) -> None:
    with pytest.raises(MillraceError, match="no run has used the state directory"):
        show(place, as_json=False)


def test_a_running_run_keeps_its_offsets(place: Place) -> None:
    assert place.state is not None
    state = StateDirectory(place.state)
    state.create()
    state.write_record(RunRecord("u", "numbers", "default.numbers", "numbers", "external"))
    with state.locked(), pytest.raises(MillraceError, match="in use by another run") as caught:
        reset(place, request("earliest"), as_json=False)
    assert caught.value.code is ExitCode.BUSY


def test_a_state_of_another_pipeline_is_told(place: Place) -> None:
    assert place.state is not None
    state = StateDirectory(place.state)
    state.create()
    state.write_record(RunRecord("u", "letters", "default.letters", "letters", "external"))
    with pytest.raises(MillraceError, match="belongs to pipeline 'letters'"):
        show(place, as_json=False)


class Site:
    """The place of runs whose broker is in memory."""

    def __init__(self, place: Place) -> None:
        self.place, self.clock = place, VirtualClock()
        self.broker = MemoryBroker(self.clock)
        self.broker.create_topic("numbers", 3)
        for p in range(3):
            self.broker.append("numbers", p, [b"x"] * 10)
        assert place.state is not None
        self.state = StateDirectory(place.state)
        self.state.create()
        self.state.write_record(RunRecord("u", "numbers", "default.numbers", "numbers", "external"))

    def connect(self, *_: object, **__: object) -> Cluster:
        return self.broker.cluster(client_id="offsets")

    def start(self) -> None:
        """As a run does."""
        plane = ControlPlane(
            self.broker.cluster(client_id="op"),
            EpochFile(self.state.epoch_file),
            self.clock,
            uid="u",
            topic="numbers",
            group="default.numbers",
            claims_group="default.numbers.claims",
        )
        plane.reconcile(1, Fleet(1, frozenset({0}), frozenset({0})))
        plane.reconcile(1, Fleet(1, frozenset({0}), frozenset({0})))

    def offsets(self) -> dict[int, int]:
        found = self.broker.groups.read("default.numbers.claims", "numbers", range(3), stable=True)
        return {p: record.offset for p, record in found.items()}


@pytest.fixture
def site(place: Place, monkeypatch: pytest.MonkeyPatch) -> Site:
    site = Site(place)
    monkeypatch.setattr("millrace.local.visit.connect", site.connect)
    return site


def asked(
    to: str | None, partitions: str | None = None, *, dry_run: bool = False, again: bool = False
) -> Request:
    return Request(to, to is None, partitions, dry_run, again)


def test_before_anything_was_begun_there_is_nothing_to_reset_or_to_repair(site: Site) -> None:
    with pytest.raises(MillraceError, match="nothing to reset") as caught:
        reset(site.place, asked("latest"), as_json=False)
    assert "startFrom" in caught.value.remedy
    with pytest.raises(MillraceError, match="no claim is lost"):
        repair(site.place, asked("latest"), as_json=False)


def test_a_reset_from_the_command_to_the_next_run(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.start()
    reset(site.place, asked("7", "0,2", dry_run=True), as_json=False)
    assert "2 partitions would be set" in capsys.readouterr().out
    assert site.offsets() == {0: 0, 1: 0, 2: 0}
    reset(site.place, asked("7", "0,2"), as_json=False)
    assert "2 partitions set" in capsys.readouterr().out
    reset(site.place, asked("7", "0,2"), as_json=False)
    assert "nothing to change" in capsys.readouterr().out
    with pytest.raises(MillraceError, match="has their rows"):
        reset(site.place, asked("3", "0"), as_json=False)
    reset(site.place, asked("3", "0", again=True), as_json=False)
    assert "the collector gets rows again" in capsys.readouterr().out
    with pytest.raises(MillraceError, match="partitions 1 of numbers have no such offset"):
        reset(site.place, asked("11", "1"), as_json=False)
    site.start()
    assert site.offsets() == {0: 3, 1: 0, 2: 7}


def test_a_repair_from_the_command_to_the_next_run(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.start()
    reset(site.place, asked("7"), as_json=False)
    site.broker.groups.delete("default.numbers.claims")
    with pytest.raises(ClaimLost, match="claims are lost") as lost:
        site.start()
    assert "millrace offsets repair MANIFEST --from-group" in lost.value.remedy
    with pytest.raises(ClaimLost):
        reset(site.place, asked("7"), as_json=False)
    with pytest.raises(MillraceError, match="has their rows"):
        repair(site.place, asked("earliest"), as_json=False)
    repair(site.place, asked(None, "1"), as_json=True)
    show(site.place, as_json=True)
    answers = capsys.readouterr().out.split("\n}\n")
    standing = [row["standing"] for row in json.loads(answers[-2] + "}")["partitions"]]
    assert standing == ["lost", "ours", "lost"]
    repair(site.place, asked("latest"), as_json=False)
    site.start()
    assert site.offsets() == {0: 10, 1: 7, 2: 10}


def test_anothers_claims_are_taken_over_only_when_that_is_said(site: Site) -> None:
    site.start()
    site.state.write_record(RunRecord("v", "numbers", "default.numbers", "numbers", "external"))
    site.state.epoch_file.unlink()
    with pytest.raises(MillraceError, match="belong to another pipeline or run") as caught:
        repair(site.place, asked(None), as_json=False)
    assert caught.value.code is ExitCode.CLAIM_FOREIGN
    repair(site.place, Request(None, True, None, dry_run=False, again=False, take_over=True), as_json=False)
    claims = site.broker.groups.read("default.numbers.claims", "numbers", range(3), stable=True)
    assert {claim.uid for r in claims.values() if (claim := Claim.decode(r.metadata))} == {"v"}
