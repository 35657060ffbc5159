"""The same queries through Polars, DuckDB, DataFusion and pyarrow give the rows that Python picks from a whole scan."""

from __future__ import annotations

import datetime as dt
import gc
import os
import pickle
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import kraftlog
from batch_rows import GOLDEN
from engine_logs import FIRST_TIME, Row, damage, places, rows_of, write_logs
from kraftlog.reading import Scan

Query = Callable[[Any, str], list[Row]]


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_logs(tmp_path_factory.mktemp("logs"))


def by_duckdb(scan: Scan, condition: str) -> list[Row]:
    with duckdb.connect(config={"threads": 2}) as connection:
        connection.execute("SET timezone = 'UTC'")
        scan.duckdb(connection, "logs", splits=3)
        return connection.sql(f"SELECT * FROM logs WHERE {condition}").to_arrow_table().to_pylist()


def by_datafusion(scan: Scan, condition: str) -> list[Row]:
    context = datafusion.SessionContext()
    scan.datafusion(context, "logs", splits=3)
    return context.sql(f"SELECT * FROM logs WHERE {condition}").to_arrow_table().to_pylist()


def by_polars(scan: Scan, condition: str) -> list[Row]:
    return (
        pl.SQLContext(logs=scan.polars(threads=2)).execute(f"SELECT * FROM logs WHERE {condition}").collect().to_dicts()
    )


def by_polars_streaming(scan: Scan, condition: str) -> list[Row]:
    lazy = pl.SQLContext(logs=scan.polars()).execute(f"SELECT * FROM logs WHERE {condition}")
    return lazy.collect(engine="streaming").to_dicts()


ENGINES = pytest.mark.parametrize("query", [by_duckdb, by_datafusion, by_polars, by_polars_streaming])


@ENGINES
@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("TRUE", lambda _: True),
        ("partition = 1", lambda row: row["partition"] == 1),
        ("topic = 'audit'", lambda row: row["topic"] == "audit"),
        ("topic IN ('audit', 'none') OR partition = 1", lambda row: row["topic"] == "audit" or row["partition"] == 1),
        ("topic <> 'audit'", lambda row: row["topic"] != "audit"),
        ('"offset" BETWEEN 100 AND 101', lambda row: row["offset"] in {100, 101}),
        ('"offset" > 100 AND "offset" < 90', lambda _: False),
        ('"offset" >= 470 OR "offset" = 3', lambda row: row["offset"] >= 470 or row["offset"] == 3),
        ('NOT ("offset" < 480)', lambda row: row["offset"] >= 480),
        ('77 >= "offset" AND partition <> 0', lambda row: row["offset"] <= 77 and row["partition"] != 0),
        ('"offset" % 50 = 7', lambda row: row["offset"] % 50 == 7),
        ('"offset" IN (5, 7, 400, -1)', lambda row: row["offset"] in {5, 7, 400}),
        ('"offset" < 20 AND headers IS NOT NULL', lambda row: row["offset"] < 20),
        ("key IS NULL AND partition = 1", lambda row: row["key"] is None and row["partition"] == 1),
        ("timestamp_type = 1", lambda _: False),
        ("partition = 9", lambda _: False),
    ],
)
def test_conditions(log_dir: Path, query: Query, condition: str, holds: Callable[[Row], bool]) -> None:
    scan = kraftlog.scan(log_dir)
    got = query(scan, condition)
    assert places(got) == places([row for row in rows_of(scan) if holds(row)])


def test_rows_are_whole(log_dir: Path) -> None:
    scan = kraftlog.scan(log_dir, timestamp_unit="us")
    place = ["topic", "partition", "offset"]
    expected = sorted(rows_of(scan), key=lambda row: tuple(row[name] for name in place))
    for query in (by_duckdb, by_datafusion, by_polars):
        assert sorted(query(scan, "TRUE"), key=lambda row: tuple(row[name] for name in place)) == expected, query


@pytest.mark.parametrize("unit", ["ms", "us"])
@ENGINES
def test_conditions_on_time(log_dir: Path, query: Query, unit: Any) -> None:
    scan = kraftlog.scan(log_dir, timestamp_unit=unit)
    since, until = (dt.datetime.fromtimestamp((FIRST_TIME + at) / 1000, dt.UTC) for at in (2500, 4000))
    if query in {by_polars, by_polars_streaming}:
        lazy = scan.polars().filter(pl.col("timestamp") >= since, pl.col("timestamp") < until)
        got = lazy.collect(engine="streaming" if query is by_polars_streaming else "in-memory").to_dicts()
    else:
        got = query(scan, f"\"timestamp\" >= '{since.isoformat()}' AND \"timestamp\" < '{until.isoformat()}'")
    expected = [row for row in rows_of(scan) if since <= row["timestamp"] < until]
    assert len(expected) > 50
    assert places(got) == places(expected)


def test_polars_limits_and_projections(log_dir: Path) -> None:
    scan = kraftlog.scan(log_dir)
    rows, lazy = rows_of(scan), scan.polars()
    in_order = [(row["topic"], row["partition"], row["offset"]) for row in rows]
    assert lazy.select("topic", "partition", "offset").collect().rows() == in_order
    assert lazy.head(7).collect().to_dicts() == rows[:7]
    assert lazy.tail(3).collect().to_dicts() == rows[-3:]
    assert lazy.slice(100, 5).collect().to_dicts() == rows[100:105]
    assert lazy.head(0).collect().to_dicts() == []
    assert lazy.select(pl.len()).collect().item() == len(rows)
    late = [row for row in rows if row["offset"] >= 30]
    assert lazy.filter(pl.col("offset") >= 30).head(3).collect().to_dicts() == late[:3]
    # A limit before the filter: the first 33 rows are counted, whatever the filter leaves of them.
    early = lazy.head(33).filter(pl.col("offset") >= 30).collect().to_dicts()
    assert early == [row for row in rows[:33] if row["offset"] >= 30] != []
    assert lazy.filter(pl.col("offset") >= 30).select("value").head(2).collect().columns == ["value"]
    joined = lazy.join(lazy, on=["topic", "partition", "offset"]).select(pl.len()).collect().item()
    assert joined == len(rows)


def test_polars_reads_dictionaries_and_large_binary(log_dir: Path) -> None:
    scan = kraftlog.scan(log_dir, topic_dictionary=True, binary_type="large_binary")
    got = scan.polars().filter(pl.col("topic") == "audit").select("topic", "offset", "key").collect()
    assert got["topic"].cast(pl.String).unique().to_list() == ["audit"]
    assert got["offset"].to_list() == [row["offset"] for row in rows_of(scan) if row["topic"] == "audit"]


def test_duckdb_counts_without_reading_records(log_dir: Path) -> None:
    scan = kraftlog.scan(log_dir)
    with duckdb.connect() as connection:
        relation = scan.duckdb(connection)
        assert relation.columns == scan.column_names
        assert relation.aggregate("count(*)").fetchall() == [(len(rows_of(scan)),)]
        narrow = kraftlog.scan(log_dir, columns=["value"]).duckdb(connection, "v")
        assert narrow.columns == ["value"]
        assert connection.execute("SELECT count(*), count(value) FROM v").fetchall() == [
            (len(rows_of(scan)), sum(row["value"] is not None for row in rows_of(scan)))
        ]


def test_duckdb_views_live_as_long_as_the_connection(log_dir: Path) -> None:
    with duckdb.connect() as connection:
        kraftlog.scan(log_dir, topics="audit").duckdb(connection, "logs")
        gc.collect()
        first = connection.execute("SELECT count(*) FROM logs").fetchall()
        assert connection.execute("SELECT count(*) FROM logs").fetchall() == first != [(0,)]
        kraftlog.scan(log_dir).duckdb(connection, "logs")  # in place of the other
        assert connection.execute("SELECT count(DISTINCT topic) FROM logs").fetchall() == [(2,)]
        joined = 'SELECT count(*) FROM logs a JOIN logs b USING (topic, partition, "offset")'
        assert connection.execute(joined).fetchall() == connection.execute("SELECT count(*) FROM logs").fetchall()


def test_duckdb_takes_plain_streams_on_other_threads(log_dir: Path) -> None:
    """DuckDB asks for the schema, then for the stream, and pulls it wherever a thread is free."""
    scan = kraftlog.scan(log_dir, threads=2)
    parts = scan.splits(4)
    assert len(parts) > 1
    found: list[Any] = []
    with duckdb.connect(config={"threads": 4}) as connection:
        for number, part in enumerate(parts):
            connection.register(f"part{number}", part)

        def work() -> None:
            union = " UNION ALL ".join(f"SELECT * FROM part{number}" for number in range(len(parts)))
            query = f'SELECT topic, partition, "offset" FROM ({union})'
            found.extend(connection.execute(query).fetchall() for _ in range(2))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(found) == 2
    for rows in found:
        assert sorted(rows) == places(rows_of(scan))


def test_datafusion_replaces_a_table_and_runs_fragments(log_dir: Path) -> None:
    context = datafusion.SessionContext()
    assert kraftlog.scan(log_dir, topics="audit").datafusion(context, "logs").count() == 480
    frame = kraftlog.scan(log_dir).datafusion(context, "logs", splits=3)
    assert frame.count() == 3 * 480
    plan = context.sql('SELECT sum("offset") FROM logs WHERE "offset" > 5').execution_plan()
    assert "number_of_fragments=3" in plan.display_indent()
    assert "projection=[offset]" in plan.display_indent()


def test_dataset_is_a_pyarrow_dataset(log_dir: Path) -> None:
    scan = kraftlog.scan(log_dir)
    dataset = scan.dataset(splits=3)
    table = pa.table(scan)
    assert dataset.schema == table.schema
    assert dataset.to_table().equals(table)
    assert dataset.to_table(columns=["offset", "key"]).equals(table.select(["offset", "key"]))
    assert dataset.count_rows() == table.num_rows
    assert dataset.count_rows(filter=ds.field("offset") < 10) == 10 + 10 + 5
    assert dataset.head(50, columns=["offset"]).equals(table.select(["offset"]).slice(0, 50))
    assert dataset.take(pa.array([3, 1000])).equals(table.take(pa.array([3, 1000])))
    fragments = list(dataset.get_fragments())
    assert len(fragments) == 3
    assert pa.concat_tables(fragment.to_table() for fragment in fragments).equals(table)
    doubled = dataset.to_table(
        columns={"twice": ds.field("offset") + ds.field("partition")}, filter=ds.field("partition") == 1
    )
    assert doubled["twice"].to_pylist() == [row["offset"] + 1 for row in rows_of(scan) if row["partition"] == 1]
    late = dataset.filter(ds.field("offset") > 100).filter(ds.field("partition") == 1)
    copy = pickle.loads(pickle.dumps(scan.dataset(splits=2)))
    assert copy.count_rows() == table.num_rows
    assert late.count_rows(filter=ds.field("offset") < 103) == 2
    assert sum(fragment.count_rows() for fragment in late.get_fragments()) == late.count_rows()
    assert dataset.sort_by([("offset", "descending")]).head(1).to_pylist()[0]["offset"] == max(
        table["offset"].to_pylist()
    )
    with pytest.raises(NotImplementedError, match="columns of a log are fixed"):
        dataset.replace_schema(table.schema)
    with pytest.raises(pa.ArrowInvalid, match="no column nothing"):
        dataset.to_table(columns=["nothing"])
    with pytest.raises(pa.ArrowInvalid):
        dataset.to_table(filter=ds.field("nothing") == 1)
    with pytest.raises(ValueError, match="splits"):
        scan.dataset(splits=0)


def test_dataset_bounds_come_from_the_filter(log_dir: Path) -> None:
    field = ds.field
    scan = kraftlog.scan(log_dir)

    def bounds(expression: ds.Expression) -> list[tuple[str, int, int, int | None]]:
        read = scan.dataset().scanner(columns=["key"], filter=expression).scan
        return [(source.topic, source.partition, source.start_offset, source.end_offset) for source in read.sources]

    assert bounds((field("offset") >= 100) & (field("key") == b"k1") & (field("offset") < 120)) == [
        ("audit", 0, 100, 120),
        ("orders", 0, 100, 120),
        ("orders", 1, 100, 120),
    ]
    assert bounds(
        (field("offset") == 7) | ((field("offset") > 30) & (field("offset") <= 40) & (field("partition") == 1))
    ) == [
        ("audit", 0, 7, 41),
        ("orders", 0, 7, 41),
        ("orders", 1, 7, 41),
    ]
    assert bounds((field("topic") == "orders") & field("partition").isin([1, 8])) == [("orders", 1, 5, None)]
    assert bounds(field("offset") < 0) == []
    times = scan.dataset().scanner(filter=(field("timestamp") > dt.datetime(2024, 1, 1, tzinfo=dt.UTC))).scan.options
    assert (times.from_timestamp, times.to_timestamp) == (1_704_067_200_000, None)


@ENGINES
def test_damage_in_the_middle_is_an_error_that_names_the_place(tmp_path: Path, query: Query) -> None:
    logs = write_logs(tmp_path)
    path, position, base_offset = damage(logs, "orders-1", 2)
    scan = kraftlog.scan(logs)
    with pytest.raises(Exception, match=rf"{path}.*{position}.*{base_offset}") as error:
        query(scan, "key IS NOT NULL")
    assert "CRC" in str(error.value)
    # What the bounds of a query leave out is not read.
    assert len(query(scan, "topic = 'audit'")) == 480
    assert len(query(scan, f'partition = 1 AND "offset" < {base_offset}')) == 80
    skipping = kraftlog.scan(logs, on_corrupt="skip")
    assert len(query(skipping, "TRUE")) == 3 * 480 - 40


@ENGINES
def test_directories_that_vanish_are_an_error(tmp_path: Path, query: Query) -> None:
    logs = write_logs(tmp_path / "logs", batches=3)
    with pytest.raises(FileNotFoundError, match="no directory"):
        kraftlog.scan(tmp_path / "nowhere")
    scan = kraftlog.scan(logs)
    shutil.rmtree(logs / "orders-0")
    with pytest.raises(Exception, match="orders-0"):
        query(scan, "TRUE")


def scan_threads() -> int:
    names = []
    for task in os.listdir("/proc/self/task"):
        try:
            names.append(Path(f"/proc/self/task/{task}/comm").read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return sum(name.startswith("kraftlog-scan") for name in names)


def open_logs() -> int:
    links = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:
            continue
    return sum(link.endswith(".log") for link in links)


def begin_with_pyarrow(scan: Scan) -> Any:
    reader = pa.RecordBatchReader.from_stream(scan)
    assert reader.read_next_batch().num_rows
    return reader


def begin_with_dataset(scan: Scan) -> Any:
    reader = scan.dataset().scanner(filter=ds.field("key") == b"k1").to_reader()
    assert reader.read_next_batch().num_rows
    return reader


def begin_with_duckdb(scan: Scan) -> Any:
    connection = duckdb.connect()
    connection.register("logs", scan)
    result = connection.sql("SELECT * FROM logs").to_arrow_reader(16)
    assert result.read_next_batch().num_rows
    return connection, result


def begin_with_iteration(scan: Scan) -> Any:
    rows = iter(scan)
    assert len(next(rows))
    return rows


def begin_with_nothing(scan: Scan) -> Any:
    return scan.__arrow_c_stream__()


@pytest.mark.parametrize(
    "begin", [begin_with_pyarrow, begin_with_dataset, begin_with_duckdb, begin_with_iteration, begin_with_nothing]
)
def test_dropped_streams_end_their_threads_and_close_their_files(tmp_path: Path, begin: Callable[[Scan], Any]) -> None:
    logs = write_logs(tmp_path, batches=60, batch_rows=400)
    before = (scan_threads(), open_logs())  # other tests of this process may hold some
    started = begin(kraftlog.scan(logs, threads=3, batch_rows=16))
    del started
    gc.collect()
    assert (scan_threads(), open_logs()) == before


def test_nothing_is_read_before_rows_are_asked_for(log_dir: Path) -> None:
    before = (scan_threads(), open_logs())
    scan = kraftlog.scan(log_dir, threads=3)
    reader = pa.RecordBatchReader.from_stream(scan)
    assert (scan_threads(), open_logs()) == before
    assert scan.report().bytes_read == 0
    assert reader.read_all().num_rows == scan.report().rows > 0


TRANSACTIONS = GOLDEN / "topics" / "node-1"


@pytest.mark.parametrize("topic", ["g-txn", "g-txn-open", "g-compact-txn"])
def test_bounds_do_not_change_what_is_committed(topic: str) -> None:
    """A transaction that is open at a bound and committed behind it is committed all the same."""
    log = kraftlog.open_log(TRANSACTIONS / f"{topic}-0")
    whole = [row["offset"] for row in rows_of(log.scan(isolation_level="read_committed"))]
    assert len(whole) > 10
    scan = kraftlog.scan(TRANSACTIONS, topics=topic, isolation_level="read_committed")
    first, last = whole[0], log.log_end_offset
    ends = [first + (last - first) * part // 6 for part in range(1, 6)]
    for start, end in [(0, 5), (5, 246), (246, 250), (0, 10_000), *((first, end) for end in ends)]:
        expected = [offset for offset in whole if start <= offset < end]
        bounded = log.scan(
            start_offset=max(start, log.log_start_offset), end_offset=end, isolation_level="read_committed"
        )
        assert [row["offset"] for row in rows_of(bounded)] == expected
        by_number = kraftlog.scan(TRANSACTIONS, topics=topic, isolation_level="read_committed", end_offsets={0: end})
        assert [row["offset"] for row in rows_of(by_number) if row["offset"] >= start] == expected
        parts = bounded.splits(3)
        assert [row["offset"] for part in parts for row in rows_of(part)] == expected
        by_condition = by_polars(scan, f'"offset" >= {start} AND "offset" < {end}')
        assert [row["offset"] for row in by_condition] == expected
    for query in (by_duckdb, by_datafusion):
        got = [row["offset"] for row in query(scan, f'"offset" < {ends[2]}')]
        assert sorted(got) == [offset for offset in whole if offset < ends[2]]
