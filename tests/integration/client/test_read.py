"""``kraftlog.read``: a live cluster as a scan, whose rows equal those of the same log read from its directory."""

from __future__ import annotations

import pickle
import time

import pytest

import kraftlog
from kraftlog.client.config import ClientConfigError
from kraftlog.errors import KafkaError, LogError, OffsetOutOfRangeError
from kraftlog.reading.scan_options import DEFAULT_COLUMNS

pa = pytest.importorskip("pyarrow")
confluent = pytest.importorskip("confluent_kafka")
# Not older than the retention time, which a node applies half a minute after its start.
FIRST_MS = time.time_ns() // 1_000_000 - 3_600_000
RECORDS = 2000


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("read") / "data"


@pytest.fixture(scope="module")
def broker(data_dir):
    with kraftlog.Broker(data_dir=data_dir) as node:
        node.create_topic("orders", partitions=2)
        node.create_topic("paid")
        node.create_topic("empty")
        for codec in ("none", "zstd"):
            producer = confluent.Producer({"bootstrap.servers": node.bootstrap_servers, "compression.type": codec})
            for number in range(RECORDS // 2):
                key = None if number % 5 == 0 else b"key-%d" % number
                headers = [] if number % 3 else [("a", b"1"), ("b", None)]
                time_ms = FIRST_MS + number * 1000
                producer.produce("orders", b"v%d" % number, key, number % 2, headers=headers, timestamp=time_ms)
            producer.flush()
        producer = confluent.Producer({"bootstrap.servers": node.bootstrap_servers, "transactional.id": "t"})
        producer.init_transactions(30)
        for number in range(6):
            producer.begin_transaction()
            for inner in range(10):
                producer.produce("paid", b"%d-%d" % (number, inner))
            producer.flush()
            if number == 5:
                break  # open: read_committed ends before it
            (producer.abort_transaction if number % 2 else producer.commit_transaction)(30)
        yield node
        producer.abort_transaction(30)


def rows(scan):
    return pa.table(scan).to_pylist()


def read(broker, *arguments, **options):
    return kraftlog.read(broker.bootstrap_servers, *arguments, **options)


@pytest.mark.parametrize(
    ("bounds", "directory_bounds"),
    [
        ({}, {}),
        ({"from_offset": 100, "to_offset": 333}, {"start_offsets": 100, "end_offsets": 333}),
        ({"partitions": [1], "to_offset": {1: 77}}, {"partitions": [1], "end_offsets": {1: 77}}),
        ({"from_timestamp": FIRST_MS + 500_000}, {"from_timestamp": FIRST_MS + 500_000}),
        (
            {"from_timestamp": FIRST_MS + 1500, "to_timestamp": FIRST_MS + 9000, "columns": ["value", "timestamp"]},
            {"from_timestamp": FIRST_MS + 1500, "to_timestamp": FIRST_MS + 9000, "columns": ["value", "timestamp"]},
        ),
        ({"from_timestamp": FIRST_MS * 2}, {"from_timestamp": FIRST_MS * 2}),
        ({"binary_type": "binary_view", "timestamp_unit": "us", "topic_dictionary": True, "batch_rows": 7},) * 2,
    ],
)
def test_rows_equal_those_of_the_directory(broker, data_dir, bounds, directory_bounds):
    found, expected = read(broker, "orders", **bounds), kraftlog.scan(data_dir, topics="orders", **directory_bounds)
    assert rows(found) == rows(expected)
    assert pa.schema(found) == pa.schema(expected)
    assert found.report().rows == expected.report().rows


@pytest.mark.parametrize(("isolation", "count"), [("read_uncommitted", 60), ("read_committed", 30)])
@pytest.mark.parametrize("bounds", [{}, {"to_offset": 28}, {"from_offset": 5, "to_offset": 10}])
def test_rows_of_transactions_equal_those_of_the_directory(broker, data_dir, isolation, count, bounds):
    found = read(broker, "paid", isolation_level=isolation, **bounds)
    names = {"from_offset": "start_offsets", "to_offset": "end_offsets"}
    directory_bounds = {names[name]: value for name, value in bounds.items()}
    expected = kraftlog.scan(data_dir, topics="paid", isolation_level=isolation, **directory_bounds)
    assert rows(found) == rows(expected)
    assert bounds or len(rows(found)) == count
    assert [row for split in found.splits(4) for row in rows(split)] == rows(expected)


def test_a_scan_begins_anew_and_can_be_pickled_and_split(broker):
    scan = read(broker, "orders")
    assert len(rows(scan)) == RECORDS == len(rows(scan))
    copy = pickle.loads(pickle.dumps(scan))
    splits = copy.splits(3)
    assert len(splits) == 3
    assert [row for split in splits for row in rows(split)] == rows(scan)
    assert len(scan.splits(split_bytes=256 * 500)) == 4
    assert scan.column_names == list(DEFAULT_COLUMNS)
    assert rows(read(broker, "empty")) == []
    assert read(broker, "empty").splits() == ()
    assert {source.topic for source in read(broker).sources} == {"orders", "paid", "empty"}


def test_query_engines_read_it(broker):
    pl = pytest.importorskip("polars")
    duckdb = pytest.importorskip("duckdb")
    scan = read(broker, "orders")
    frame = scan.polars().filter((pl.col("offset") < 10) & (pl.col("partition") == 1)).select("value").collect()
    assert frame["value"].to_list() == [b"v%d" % number for number in range(1, 20, 2)]
    assert pl.DataFrame(scan).height == RECORDS
    relation = scan.duckdb(duckdb.connect())
    assert relation.aggregate("count(*)").fetchall() == [(RECORDS,)]
    assert scan.dataset(splits=3).count_rows() == RECORDS


def test_what_does_not_exist_is_an_error_that_names_it(broker):
    with pytest.raises(KafkaError, match="nothing"):
        read(broker, "nothing")
    with pytest.raises(ValueError, match="no partition 7"):
        read(broker, "orders", partitions=[7])
    with pytest.raises(ValueError, match=r"\('paid', 0\), which is not read"):
        read(broker, "orders", to_offset={("paid", 0): 5})
    with pytest.raises(OffsetOutOfRangeError, match="from_offset 5000 is not between 0 and 1000"):
        read(broker, "orders", from_offset={0: 5000})
    with pytest.raises(ValueError, match="no column"):
        read(broker, "orders", columns=["nothing"])
    with pytest.raises(ClientConfigError, match="unknown settings"):
        read(broker, "orders", config={"nothing": 1})


def test_a_failure_within_a_pass_reaches_a_loop_as_it_is_and_the_arrow_interface_as_text(broker):
    stale = pickle.loads(pickle.dumps(read(broker, "orders")))
    stale.settings["bootstrap.servers"] = "127.0.0.1:1"
    stale.settings["request.timeout.ms"] = "300"
    stale.settings["reconnect.backoff.max.ms"] = "50"
    with pytest.raises(TimeoutError):
        list(stale)
    with pytest.raises((LogError, OSError, pa.ArrowException), match="TimeoutError"):
        pa.table(stale)
