"""The sinks on real Spark: each batch's results once, whatever is run again, and as every reader takes them."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from millrace.collector.query import Query, Window
from millrace.collector.sinks import Console, Kafka, Parquet, Settings
from millrace.connectivity.confluent import ConfluentCluster
from millrace.errors import ExitCode, ManifestError, MillraceError
from millrace.local.broker.embedded import EmbeddedBroker
from millrace.worker import logs
from spark_session import WHERE, Flow

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]

BEGIN = datetime(2013, 1, 30, 22, tzinfo=UTC)
HOURLY = Query(
    schema="carrier string, at timestamp, delay double",
    group_by=("carrier",),
    window=Window(size=3600, time="at", lateness=3600),
    aggregate={"flights": "count(*)", "total": "sum(delay)"},
)
PLAIN = Query(schema="carrier string, at timestamp, delay double", function="plain:rows")
CARRIERS = ["AA", "9E", "a/b c", None]
Make = Callable[..., Flow]


@pytest.fixture
def flow(session: Any, tmp_path: Path) -> Make:
    (session.code / "plain.py").write_text("def rows(rows):\n    return rows\n")

    def make(query: Query, sink: Settings | None, bootstrap: str = "") -> Flow:
        directory = tmp_path / f"f-{uuid.uuid4().hex[:8]}"
        directory.mkdir()
        return Flow(session, directory, query, sink, bootstrap)

    return make


def hours(first: int, count: int) -> list[dict[str, object]]:
    """A row of each carrier in each of these hours since BEGIN."""
    return [
        {"carrier": carrier, "at": BEGIN + timedelta(hours=hour), "delay": float(hour)}
        for hour in range(first, first + count)
        for carrier in CARRIERS
    ]


def closed(count: int) -> dict[tuple[object, datetime], int]:
    return {(carrier, BEGIN + timedelta(hours=hour)): 1 for hour in range(count) for carrier in CARRIERS}


def test_parquet_is_the_same_to_every_reader_and_a_batch_that_is_run_again_changes_nothing(
    flow: Make, session: Any, tmp_path: Path
) -> None:
    path = tmp_path / "results"
    run = flow(HOURLY, Parquet(path=str(path), partition_by=("date(window_start)", "carrier")))
    left = run.checkpoint / "pending" / "batch=001-00000009"
    left.mkdir(parents=True)
    run.write(hours(0, 3))
    run.run()
    run.write(hours(3, 3))
    run.run()
    assert not left.exists()
    assert {file.name for file in path.iterdir()} == {"batch=001-00000001", "batch=001-00000003"}
    found = read_by_all(session, path)
    assert found == closed(4)  # hours 4 and 5 are open: the watermark is an hour behind

    before = files(path)
    run.forget_the_last_commit()
    run.run()
    assert files(path) == before
    run.write(hours(6, 2))
    run.run()
    assert read_by_all(session, path) == closed(6)
    marker = json.loads((path / "batch=001-00000003" / "_SUCCESS").read_text())
    assert (marker["version"], marker["batch"], marker["rows"]) == (1, 3, 12)
    assert {folder.name for folder in (path / "batch=001-00000003").glob("date=*")} == {
        "date=2013-01-30",
        "date=2013-01-31",
    }

    run.begin_anew()
    with pytest.raises(MillraceError, match="results of another checkpoint") as caught:
        run.run()
    assert (caught.value.code, caught.value.where) == (ExitCode.MANIFEST, f"{WHERE}.sink.parquet.path")
    run.version = 2  # what a former version has written stays
    run.run()
    assert {folder.name[:9] for folder in path.iterdir()} == {"batch=001", "batch=002"}


def files(path: Path) -> dict[str, tuple[int, int]]:
    return {str(f): (f.stat().st_ino, f.stat().st_mtime_ns) for f in path.rglob("*") if f.is_file()}


def read_by_all(session: Any, path: Path) -> dict[tuple[object, datetime], int]:
    """Groups and their counts, as docs/collector.md says how to read them; the same by all readers."""
    duckdb, pandas, pyarrow = (pytest.importorskip(name) for name in ("duckdb", "pandas", "pyarrow.dataset"))
    frames = [
        pandas.read_parquet(path, partitioning=pyarrow.partitioning(flavor="hive")),
        pyarrow.dataset(path, partitioning="hive").to_table().to_pandas(),
        duckdb.sql(f"SELECT * FROM read_parquet('{path}/**/*.parquet', hive_partitioning = true)").df(),
    ]
    spark = session.read.parquet(str(path))
    assert dict(spark.dtypes)["date"] == "date"
    frames.append(spark.selectExpr("carrier", "unix_micros(window_start) window_start", "flights").toPandas())
    frames[-1]["window_start"] = pandas.to_datetime(frames[-1]["window_start"], unit="us", utc=True)
    tables = []
    for frame in frames:
        groups = frame[["carrier", "window_start", "flights"]].itertuples(index=False)
        plain = [(None if pandas.isna(c) else str(c), s.to_pydatetime(), int(n)) for c, s, n in groups]
        tables.append(sorted(plain, key=str))
    assert tables[0] == tables[1] == tables[2] == tables[3]
    found = {(carrier, start): count for carrier, start, count in tables[0]}
    assert len(found) == len(tables[0])
    return found


def test_a_topic_gets_each_batch_once_whatever_is_run_again(
    flow: Make, kafka: EmbeddedBroker, make_topic: Callable[[int], str]
) -> None:
    topic = make_topic(2)
    run = flow(HOURLY, Kafka(topic=topic, key=("carrier",)), kafka.bootstrap)
    run.write(hours(0, 3))
    run.run()
    run.write(hours(3, 3))
    run.run()
    once = consumed(kafka.bootstrap, topic)
    for _ in range(2):
        run.forget_the_last_commit()
        run.run()
    assert consumed(kafka.bootstrap, topic) == once
    assert {(r["carrier"], r["window_start"]): r["flights"] for _, r, _ in once} == {
        (carrier, f"{at:%Y-%m-%dT%H:%M:%S}.000000Z"): 1 for carrier, at in closed(4)
    }
    assert [key for key, row, _ in once] == [row["carrier"] and row["carrier"].encode() for _, row, _ in once]
    assert {batch for _, _, batch in once} == {b"001-00000001", b"001-00000003"}
    assert len({p for key, p in placed(kafka.bootstrap, topic) if key == b"AA"}) == 1

    run.begin_anew()
    with pytest.raises(MillraceError, match="results of another checkpoint") as caught:
        run.run()
    assert (caught.value.code, caught.value.where) == (ExitCode.TOPIC, f"{WHERE}.sink.kafka.topic")
    run.version = 2
    run.run()
    assert len(consumed(kafka.bootstrap, topic)) == 2 * len(once)
    run.version = 1
    with pytest.raises(MillraceError, match="results of another checkpoint"):
        run.run()


def test_an_attempt_that_lives_on_is_fenced(
    flow: Make, kafka: EmbeddedBroker, make_topic: Callable[[int], str]
) -> None:
    topic = make_topic(1)
    run = flow(PLAIN, Kafka(topic=topic), kafka.bootstrap)
    run.write(hours(0, 1))
    successor = ConfluentCluster(kafka.bootstrap, client_id="t").transactional_producer(f"{run.group}.sink")
    run.opened = lambda: successor.init(30.0)
    with pytest.raises(MillraceError) as caught:
        run.run()
    successor.close()
    assert caught.value.code is ExitCode.SUPERSEDED
    assert consumed(kafka.bootstrap, topic) == []


def test_a_topic_that_is_not_there_is_named(flow: Make, kafka: EmbeddedBroker) -> None:
    run = flow(PLAIN, Kafka(topic="nowhere"), kafka.bootstrap)
    with pytest.raises(MillraceError, match="topic nowhere does not exist") as caught:
        run.run()
    assert (caught.value.code, caught.value.where) == (ExitCode.TOPIC, f"{WHERE}.sink.kafka.topic")


TYPES = (
    "b boolean, i int, l bigint, f float, d double, c decimal(20, 6), s string, x binary, day date, at timestamp, "
    "a array<double>, n struct<d: double, c: decimal(4, 1)>, m map<string, double>"
)


def test_every_type_of_the_channel_arrives_and_is_written_in_its_one_form(
    flow: Make, session: Any, kafka: EmbeddedBroker, make_topic: Callable[[int], str]
) -> None:
    """And what JSON has no word for is null: Spark makes NaN and infinity here, for a channel has none."""
    (session.code / "odd.py").write_text(
        "def rows(rows):\n"
        "    return rows.selectExpr('*', \"double('NaN') nan\", \"array(double('Infinity'), 1D) inf\")\n"
    )
    topic = make_topic(1)
    run = flow(Query(schema=TYPES, function="odd:rows"), Kafka(topic=topic, key=("i", "at")), kafka.bootstrap)
    row = {
        "b": True, "i": 7, "l": 2**62, "f": 0.5, "d": 1e300, "c": "0.000001", "s": 'quote" \u00e9', "x": "AAH/",
        "day": "2013-01-31", "at": BEGIN + timedelta(microseconds=1), "a": [1.5, None], "n": {"d": 2.5, "c": "3.1"},
        "m": {"k": 1.0},
    }  # fmt: skip
    empty = dict.fromkeys(row)
    run.write([row, empty])
    run.run()
    found = consumed(kafka.bootstrap, topic)
    odd = {"nan": None, "inf": [None, 1.0]}
    assert [value for _, value, _ in found] == [
        {**row, "at": "2013-01-30T22:00:00.000001Z", **odd},
        {**empty, **odd},
    ]
    assert [key for key, _, _ in found] == [b'[7,"2013-01-30T22:00:00.000001Z"]', b"[null,null]"]
    assert Decimal(found[0][1]["c"]) == Decimal("0.000001")
    assert date.fromisoformat(found[0][1]["day"]) == date(2013, 1, 31)


def test_the_console_shows_the_first_rows_and_reads_all(
    flow: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    run = flow(HOURLY, Console(rows=3))
    run.write(hours(0, 3))
    run.write(hours(3, 3))
    logs.configure()
    run.run()
    logging.getLogger().handlers.clear()
    said = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    shown = [line for line in said if line.get("event") == "result"]
    more = [(line["batch"], line["rows"]) for line in said if line.get("event") == "more results"]
    assert {line["batch"] for line in shown} <= {"001-00000001", "001-00000002", "001-00000003"}
    assert set(shown[0]["row"]) == {"carrier", "window_start", "window_end", "flights", "total"}
    assert all(line["row"]["flights"] == 1 for line in shown)
    assert run.outlet is not None
    assert run.outlet.written == 16  # four hours: no state was lost for what was not shown
    assert sum(rows for _, rows in more) + len(shown) == 16


@pytest.mark.parametrize(
    ("sink", "field", "what"),
    [
        (Parquet(path="r", partition_by=("nothing",)), "parquet.partitionBy[0]", '"nothing" is not a column'),
        (
            Parquet(path="r", partition_by=("day", "date(s)")),
            "parquet.partitionBy[1]",
            '"s" is of type string',
        ),
        (Parquet(path="r", partition_by=("n",)), "parquet.partitionBy[0]", '"n" is of type struct'),
        (Kafka(topic="t", key=("nothing",)), "kafka.key[0]", '"nothing" is not a column'),
    ],
)
def test_columns_that_a_functions_result_lacks_are_named(
    flow: Make, sink: Settings, field: str, what: str
) -> None:
    run = flow(Query(schema=TYPES, function="plain:rows"), sink)
    with pytest.raises(ManifestError, match=what) as caught:
        run.run()
    assert caught.value.where == f"{WHERE}.sink.{field}"


def consumed(bootstrap: str, topic: str) -> list[tuple[bytes | None, dict[str, Any], bytes]]:
    """Key, value and batch of each record that is committed, in the order of partitions."""
    return [
        (m.key(), json.loads(m.value()), dict(m.headers())["millrace-batch"])
        for m in _messages(bootstrap, topic)
    ]


def placed(bootstrap: str, topic: str) -> list[tuple[bytes | None, int]]:
    return [(message.key(), message.partition()) for message in _messages(bootstrap, topic)]


def _messages(bootstrap: str, topic: str) -> list[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    count = len(consumer.list_topics(topic, 20).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, p, 0) for p in range(count)])
    found, open_ = list[Any](), count
    while open_:
        message = consumer.poll(60)
        assert message is not None
        if message.error() is None:
            found.append(message)
        else:
            open_ -= 1
    consumer.close()
    return sorted(found, key=lambda m: (m.partition(), m.offset()))
