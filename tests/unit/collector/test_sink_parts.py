"""What sinks are made of, as far as it needs no Spark."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from millrace.collector import sinks
from millrace.collector.sinks import places, rows
from millrace.collector.sinks.parquet import Marker, ParquetByBatch
from millrace.collector.sinks.protocol import Batch
from millrace.errors import ExitCode, MillraceError

pytestmark = pytest.mark.unit


def test_names_of_batches_sort_as_they_came() -> None:
    came = [Batch(1, 2, "q"), Batch(1, 10, "q"), Batch(2, 0, "q"), Batch(10, 99_999_999, "q")]
    names = [batch.name for batch in came]
    assert names == sorted(names)
    assert names[0] == "001-00000002"


def test_a_workshop_is_empty_and_on_the_file_system_of_the_results(tmp_path: Path) -> None:
    left = tmp_path / "checkpoint" / "pending" / "batch=001-00000007" / "part-0.parquet"
    left.parent.mkdir(parents=True)
    left.touch()
    path = tmp_path / "a" / "results"
    workshop = places.workshop(path, tmp_path / "checkpoint")
    assert workshop == tmp_path / "checkpoint" / "pending"
    assert list(workshop.rglob("*")) == [*workshop.iterdir()]
    assert not left.exists()
    assert list(path.iterdir()) == []

    (workshop / "batch=001-00000000").mkdir()
    places.put_in_place(workshop / "batch=001-00000000", path / "batch=001-00000000")
    assert [folder.name for folder in path.iterdir()] == ["batch=001-00000000"]


def test_where_the_checkpoint_is_on_another_file_system_the_workshop_is_beside_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if self.is_relative_to(tmp_path / "checkpoint"):
            raise OSError(18, "Invalid cross-device link", str(self))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    workshop = places.workshop(tmp_path / "results", tmp_path / "checkpoint")
    assert workshop == tmp_path / ".results.pending"
    assert not (tmp_path / "checkpoint" / "pending").exists()


def test_a_path_that_can_not_be_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MillraceError) as caught:
        places.workshop(tmp_path / "file" / "results", tmp_path / "checkpoint")
    assert caught.value.code is ExitCode.DISK
    assert str(tmp_path / "file") in caught.value.what


def test_the_last_batch_of_a_former_version_is_known_by_its_marker(tmp_path: Path) -> None:
    for name in ("001-00000003", "001-00000012", "002-00000000"):
        folder = tmp_path / f"batch={name}"
        folder.mkdir()
        version, _, number = name.partition("-")
        marker = Marker(int(version), int(number), 1, "q")
        (folder / "_SUCCESS").write_bytes(msgspec.json.encode(marker))
    (tmp_path / "batch=001-00000013").mkdir()  # no marker: no batch of ours
    sink = ParquetByBatch(sinks.Parquet(path=str(tmp_path)), tmp_path, "")
    assert [sink.former(version) for version in (1, 2, 3)] == [None, (1, 12), (2, 0)]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"carrier":"AA"}', b"AA"),
        ('{"carrier":"\u00e9\\n"}', "\u00e9\n".encode()),
        ('{"carrier":null}', None),
        ('{"n":17}', b"17"),
        ('{"of":{"a":1}}', b'{"a":1}'),
        ('{"carrier":"AA","n":null}', b'["AA",null]'),
    ],
)
def test_a_key_is_the_text_of_one_column_or_a_list_of_several(text: str, key: bytes | None) -> None:
    assert rows.key_of(text) == key
