"""Which partitions and offsets a query reads, and in which tasks, without Spark."""

from __future__ import annotations

import json
import pickle
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

import kraftlog
from batch_rows import GOLDEN
from kraftlog.errors import LogError, OffsetOutOfRangeError
from kraftlog.spark.options import SourceOptions
from kraftlog.spark.plan import list_partitions, plan_tasks, read_range, resolve_offsets, split_ranges
from partition_files import make_batch, write_checkpoint, write_log, write_segment

NODE = GOLDEN / "topics" / "node-1"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """orders-0 to orders-2, other-0 and an internal topic; 3000 records each, the second from 1000 on."""
    write_log(tmp_path / "orders-0")
    write_log(tmp_path / "orders-1", start=1000, end=4000)
    write_log(tmp_path / "orders-2", end=40)
    write_log(tmp_path / "other-0")
    write_log(tmp_path / "__consumer_offsets-0", end=10)
    return tmp_path


def parse(path: Path, **options: str) -> SourceOptions:
    return SourceOptions.parse(
        {"path": str(path), **{name.replace("_", "."): value for name, value in options.items()}}
    )


def names(options: SourceOptions) -> list[str]:
    return [str(log) for log in list_partitions(options)]


def resolve(options: SourceOptions) -> dict[str, tuple[int, int]]:
    found = resolve_offsets(options, list_partitions(options))
    return {f"{topic}-{partition}": offsets for (topic, partition), offsets in found.items()}


def orders(*values: int) -> str:
    return json.dumps({"orders": {str(partition): value for partition, value in enumerate(values)}})


def test_what_is_selected(log_dir: Path) -> None:
    everything = ["orders-0", "orders-1", "orders-2", "other-0"]
    assert names(parse(log_dir)) == everything
    assert names(parse(log_dir, subscribe="orders")) == everything[:3]
    assert names(parse(log_dir, subscribe="__consumer_offsets,other")) == ["__consumer_offsets-0", "other-0"]
    assert names(parse(log_dir, subscribePattern="o[rt].*r")) == ["other-0"]
    assert names(parse(log_dir, subscribePattern=".*")) == everything
    assert names(parse(log_dir, subscribePattern="order")) == []
    assert names(parse(log_dir, assign='{"orders": [2, 0], "other": [0]}')) == ["orders-0", "orders-2", "other-0"]
    assert names(parse(log_dir / "orders-1")) == ["orders-1"]
    with pytest.raises(FileNotFoundError, match="no partition of topic missing"):
        names(parse(log_dir, subscribe="orders,missing"))
    with pytest.raises(FileNotFoundError, match="option assign: no partition orders-7"):
        names(parse(log_dir, assign='{"orders": [0, 7]}'))
    with pytest.raises(FileNotFoundError, match="no directory"):
        names(parse(log_dir / "missing"))


def test_a_partition_in_two_directories_is_not_read_twice(log_dir: Path, tmp_path: Path) -> None:
    write_log(tmp_path / "replica" / "orders-0")
    paths = json.dumps([str(log_dir), str(tmp_path / "replica")])
    with pytest.raises(ValueError, match=r"partition orders-0 is in .*orders-0 and in .*: name one of them"):
        names(SourceOptions.parse({"paths": paths}))
    twice = json.dumps([str(log_dir), str(log_dir / "orders-0")])
    assert names(SourceOptions.parse({"paths": twice, "subscribe": "orders"})) == ["orders-0", "orders-1", "orders-2"]


def test_the_high_watermark_ends_what_is_read(log_dir: Path) -> None:
    # Without the file, nothing says that the directory is a running broker's.
    assert resolve(parse(log_dir, subscribe="orders"))["orders-0"] == (0, 3000)
    write_checkpoint(log_dir, "replication-offset-checkpoint", {("orders", 0): 2345, ("orders", 1): 9999})
    assert resolve(parse(log_dir, subscribe="orders")) == {
        "orders-0": (0, 2345),
        "orders-1": (1000, 4000),
        "orders-2": (0, 0),
    }
    assert resolve(parse(log_dir, subscribe="orders", endOffset="logEnd"))["orders-0"] == (0, 3000)
    assert resolve(parse(log_dir / "orders-0")) == {"orders-0": (0, 2345)}
    with pytest.raises(OffsetOutOfRangeError, match=r"endingOffsets: offset 2346 of orders-0 .*endOffset=logEnd"):
        resolve(parse(log_dir, subscribe="orders", endingOffsets=orders(2346, -1, -1)))
    (log_dir / "replication-offset-checkpoint").write_text("0\n1\norders 0\n")
    with pytest.raises(LogError, match="replication-offset-checkpoint"):
        names(parse(log_dir))


def test_the_log_of_the_quorum_has_no_checkpointed_watermark(tmp_path: Path) -> None:
    write_log(tmp_path / "__cluster_metadata-0", end=50)
    write_checkpoint(tmp_path, "replication-offset-checkpoint", {})
    assert resolve(parse(tmp_path, subscribe="__cluster_metadata")) == {"__cluster_metadata-0": (0, 50)}


def test_deleted_records_are_before_the_start(log_dir: Path) -> None:
    write_checkpoint(log_dir, "log-start-offset-checkpoint", {("orders", 0): 1234})
    assert resolve(parse(log_dir, subscribe="orders", startingOffsets="earliest"))["orders-0"] == (1234, 3000)
    with pytest.raises(OffsetOutOfRangeError, match=r"startingOffsets: offset 1233 of orders-0 .* start offset 1234"):
        resolve(parse(log_dir, subscribe="orders", startingOffsets=orders(1233, 1000, 0)))


def test_offsets_by_partition(log_dir: Path) -> None:
    options = {"subscribe": "orders", "startingOffsets": orders(5, -2, 40), "endingOffsets": orders(-1, 1001, 40)}
    assert resolve(parse(log_dir, **options)) == {
        "orders-0": (5, 3000),
        "orders-1": (1000, 1001),
        "orders-2": (40, 40),
    }
    with pytest.raises(ValueError, match=r"option startingOffsets has to name exactly .* it lacks orders-2"):
        resolve(parse(log_dir, subscribe="orders", startingOffsets=orders(5, -2)))
    with pytest.raises(ValueError, match=r"option endingOffsets has to name .* it names unselected orders-3"):
        resolve(parse(log_dir, subscribe="orders", endingOffsets=orders(5, -1, -1, -1)))
    with pytest.raises(
        ValueError, match="startingOffsets starts orders-0 at offset 50, after the end 7 by endingTimes"
    ):
        resolve(parse(log_dir, subscribe="orders", startingOffsets=orders(50, -2, -2), endingTimestamp="1007"))


def test_times_are_offsets_of_the_first_record_as_late(log_dir: Path) -> None:
    at = {"subscribe": "orders", "startingOffsetsByTimestampStrategy": "latest"}
    assert resolve(parse(log_dir, **at, startingTimestamp="2500", endingTimestamp="3500")) == {
        "orders-0": (1500, 2500),
        "orders-1": (1500, 2500),
        "orders-2": (40, 40),
    }
    with pytest.raises(
        ValueError, match="startingTimestamp: orders-2 has no record at 2500 ms or later before offset 40"
    ):
        resolve(parse(log_dir, subscribe="orders", startingTimestamp="2500"))
    by_partition = resolve(parse(log_dir, **at, startingOffsetsByTimestamp=orders(1005, 2500, 1039)))
    assert by_partition == {"orders-0": (5, 3000), "orders-1": (1500, 4000), "orders-2": (39, 40)}
    # A broker knows no record at or after its high watermark.
    write_checkpoint(log_dir, "replication-offset-checkpoint", {("orders", 0): 1500, ("orders", 1): 4000})
    assert resolve(parse(log_dir, **at, startingTimestamp="2500"))["orders-0"] == (1500, 1500)


def test_loss_of_data_can_be_allowed(log_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    report = tmp_path / "report"
    options = {"subscribe": "orders", "failOnDataLoss": "false", "dataLossReport": str(report)}
    limits = {"startingOffsets": orders(5, 3, 99), "endingOffsets": orders(-1, -1, 100)}
    for _ in range(2):
        assert resolve(parse(log_dir, **options, **limits)) == {
            "orders-0": (5, 3000),
            "orders-1": (1000, 4000),
            "orders-2": (40, 40),
        }
    assert "failOnDataLoss=false: 3 ranges of orders-1 and others" in caplog.text
    (file,) = report.iterdir()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["partition"], line["start_offset"], line["end_offset"]) for line in lines] == [
        (1, 3, 1000),
        (2, 40, 99),
        (2, 40, 100),
    ]


def test_read_committed_ends_before_the_first_open_transaction() -> None:
    committed = parse(NODE, subscribe="g-txn-open", kafka_isolation_level="read_committed")
    assert resolve(committed) == {"g-txn-open-0": (0, 38)}
    (task,) = plan_tasks(committed)
    rows = list(read_range(task, committed, ["offset", "value"]))
    expected = pa.table(
        kraftlog.open_log(NODE / "g-txn-open-0").scan(columns=["offset", "value"], isolation_level="read_committed")
    )
    assert pa.Table.from_batches(rows).equals(expected)
    with pytest.raises(OffsetOutOfRangeError, match=r"offset 39 of g-txn-open-0 .* is after 38.*last stable offset"):
        resolve(
            parse(
                NODE,
                subscribe="g-txn-open",
                kafka_isolation_level="read_committed",
                endingOffsets='{"g-txn-open": {"0": 39}}',
            )
        )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"splitBytes": "20000"},
        {"minPartitions": "9"},
        {"minPartitions": "1000"},
        {"minPartitions": "3000", "startingOffsets": orders(2990, 3990, 30)},
        {"maxRecordsPerPartition": "17"},
        {"maxRecordsPerPartition": "700", "minPartitions": "3"},
        {"startingOffsets": orders(1234, 1555, 3), "endingOffsets": orders(1236, 3999, 4), "splitBytes": "5000"},
        {"kafka_isolation_level": "read_committed", "maxRecordsPerPartition": "333"},
    ],
)
def test_tasks_hold_every_offset_once(log_dir: Path, options: dict[str, str]) -> None:
    given = parse(log_dir, subscribe="orders", **options)
    tasks = plan_tasks(given)
    expected = {name: list(range(*ends)) for name, ends in resolve(given).items()}
    planned: dict[str, list[int]] = {name: [] for name in expected}
    read: dict[str, list[int]] = {name: [] for name in expected}
    for task in pickle.loads(pickle.dumps(tasks)):
        for offset_range in task:
            planned[f"{offset_range.topic}-{offset_range.partition}"] += range(
                offset_range.start_offset, offset_range.end_offset
            )
            for batch in read_range([offset_range], given, ["offset"]):
                read[f"{offset_range.topic}-{offset_range.partition}"] += batch["offset"].to_pylist()
    assert planned == expected
    assert read == expected
    counts = [sum(offset_range.end_offset - offset_range.start_offset for offset_range in task) for task in tasks]
    if given.max_records_per_partition is not None:
        assert max(counts) <= given.max_records_per_partition
    if given.min_partitions is not None:
        assert len(tasks) >= min(given.min_partitions, sum(map(len, expected.values())))
    if "splitBytes" in options:
        assert max(sum(offset_range.size_bytes for offset_range in task) for task in tasks) < 2 * given.split_bytes


def test_small_partitions_share_a_task_and_large_ones_have_many(tmp_path: Path) -> None:
    for number in range(40):
        write_log(tmp_path / f"small-{number}", end=10)
    write_segment(tmp_path / "large-0", [make_batch(at, value=b"x" * 10_000) for at in range(0, 1000, 10)])
    assert len(plan_tasks(parse(tmp_path, subscribe="small"))) == 1
    assert len(plan_tasks(parse(tmp_path, subscribe="small", minPartitions="40"))) == 40
    tasks = plan_tasks(parse(tmp_path, subscribe="large", splitBytes="1000000"))
    assert 9 <= len(tasks) <= 11
    ends = [(task[0].start_offset, task[-1].end_offset) for task in tasks]
    assert all(before[1] == after[0] for before, after in pairwise(ends))


def test_an_empty_log_has_no_task(tmp_path: Path) -> None:
    (tmp_path / "empty-0").mkdir()
    (tmp_path / "empty-0" / f"{0:020}.log").touch()
    assert plan_tasks(parse(tmp_path)) == []
    assert resolve(parse(tmp_path)) == {"empty-0": (0, 0)}
    assert split_ranges(parse(tmp_path), [], {}) == []
