"""What tasks of a stream read while the log changes under them: the planned rows or an error; without a JVM."""

from __future__ import annotations

import json
import os
import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install kraftlog[spark]: the readers are classes of PySpark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from growing_logs import GrowingLogs
from kraftlog.errors import LogTruncatedError, OffsetOutOfRangeError
from kraftlog.spark import stream
from kraftlog.spark.data_source import KraftlogDataSource
from kraftlog.spark.options import STREAM_OPTIONS, SourceOptions


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[GrowingLogs]:
    growing = GrowingLogs(tmp_path / "logs")
    yield growing
    growing.close()


@pytest.fixture
def reader_of(logs: GrowingLogs) -> Callable[..., Any]:
    def make(columns: tuple[str, ...] = ("offset", "value"), **options: str) -> Any:
        given = {"path": str(logs.path), "startingOffsets": "earliest", **options}
        given = {name.replace("__", "."): value for name, value in given.items()}
        return stream.stream_reader(SourceOptions.parse(given, known=STREAM_OPTIONS, streaming=True), columns)

    return make


def read(reader: Any, partitions: Any) -> list[tuple[Any, ...]]:
    """The rows of a batch, read as another process would."""
    other, tasks = pickle.loads(pickle.dumps((reader, list(partitions))))
    return [
        row for task in tasks for batch in other.read(task) for row in zip(*batch.to_pydict().values(), strict=True)
    ]


def test_rows_of_a_batch_again_and_again(logs: GrowingLogs, reader_of: Callable[..., Any]) -> None:
    logs.add("t", 0)
    logs.append("t", 0, 10)
    reader = reader_of(("topic", "offset", "value"))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(6))
    json.dumps(end)
    logs.append("t", 0, 10, epoch=3)
    expected = [("t", offset, str(offset).encode()) for offset in range(6)]
    for _ in range(2):
        assert read(reader, reader.partitions(start, end)) == expected
    assert reader.partitions(end, end) == []
    assert list(reader.read(None)) == []
    assert list(reader.read(stream.InputPartition(0))) == []


def test_limits_are_those_of_the_options_and_of_spark(logs: GrowingLogs, reader_of: Callable[..., Any]) -> None:
    logs.add("t", 0)
    logs.append("t", 0, 10)
    assert reader_of().getDefaultReadLimit() == ReadAllAvailable()
    assert reader_of(maxOffsetsPerTrigger="7").getDefaultReadLimit() == ReadMaxRows(7)
    assert reader_of(minOffsetsPerTrigger="7").getDefaultReadLimit() == ReadMinRows(7)
    reader = reader_of(maxOffsetsPerTrigger="7", minOffsetsPerTrigger="5")
    assert reader.getDefaultReadLimit() == ReadMaxRows(7)
    start = reader.initialOffset()
    first = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert first["offsets"] == {"t": {"0": 7}}
    assert reader.latestOffset(first, reader.getDefaultReadLimit()) == first  # three are less than five
    assert reader.latestOffset(first, ReadAllAvailable())["offsets"] == {"t": {"0": 10}}
    assert reader.reportLatestOffset()["offsets"] == {"t": {"0": 10}}
    with pytest.raises(ValueError, match="a limit of ReadMaxBytes"):
        reader.latestOffset(first, ReadMaxBytes(7))
    later = reader_of(minOffsetsPerTrigger="5")
    later.latestOffset(start, ReadMinRows(5))
    assert later.latestOffset(first, ReadMinRows(5)) == first


def test_pyspark_4_1_has_no_limits_and_says_so(
    logs: GrowingLogs, reader_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "HAS_LIMITS", False)
    logs.add("t", 0)
    logs.append("t", 0, 10)
    reader = reader_of(startingOffsets="latest")
    logs.append("t", 0, 10)
    # 4.1 asks for the end of the first batch before it asks for its start.
    end = reader.latestOffset()
    logs.append("t", 0, 10)
    start = reader.initialOffset()
    assert len(read(reader, reader.partitions(start, end))) == 0
    second = reader.latestOffset()
    assert [row[0] for row in read(reader, reader.partitions(end, second))] == list(range(20, 30))
    assert reader.latestOffset() == second
    # A process that goes on is asked for the plan of nothing.
    again = reader_of(startingOffsets="latest")
    assert again.partitions(second, second) == []
    assert again.latestOffset() == second
    for name, value in {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "5", "maxTriggerDelay": "5s"}.items():
        with pytest.raises(ValueError, match=r"maxOffsetsPerTrigger.* need PySpark 4.2 or later"):
            reader_of(**{name: value})


def test_options_of_streams(logs: GrowingLogs) -> None:
    source = KraftlogDataSource({"path": str(logs.path), "columns": "offset"})
    assert source.streamReader(source.schema()).partitions is not None
    with pytest.raises(ValueError, match="unknown option endingOffsets"):
        KraftlogDataSource({"path": str(logs.path), "endingOffsets": "latest"}).streamReader(source.schema())
    with pytest.raises(ValueError, match="option columns names value, the schema offset"):
        KraftlogDataSource({"path": str(logs.path), "columns": "value"}).streamReader(source.schema())


def batch_of(reader: Any) -> Any:
    start = reader.initialOffset()
    return reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))


def fill(logs: GrowingLogs, batches: int = 40, *, epoch: int = 0) -> None:
    for _ in range(batches):
        logs.append("t", 0, 1000, epoch=epoch, checkpoint=False)
    logs.checkpoint()


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_log_that_is_truncated_before_the_read(logs: GrowingLogs, reader_of: Callable[..., Any], fail: str) -> None:
    logs.add("t", 0)
    fill(logs)
    reader = reader_of(failOnDataLoss=fail, splitBytes="100000")
    tasks = batch_of(reader)
    assert len(tasks) > 3
    logs.truncate("t", 0, 35_000)
    with pytest.raises(LogTruncatedError, match=r"t-0 .* truncated: offset 40000 .* the log ends at 35000"):
        read(reader, tasks)
    fill(logs, epoch=1)
    # Also a task all of whose records are the planned ones: the others of its batch are not.
    for task in tasks:
        with pytest.raises(LogTruncatedError, match="was of leader epoch 0 and is of leader epoch 1 now"):
            read(reader, [task])


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_log_that_is_truncated_under_the_read(logs: GrowingLogs, reader_of: Callable[..., Any], fail: str) -> None:
    logs.add("t", 0)
    fill(logs, 60)
    reader = reader_of(failOnDataLoss=fail)
    [task] = batch_of(reader)
    batches = reader.read(task)
    next(batches)
    logs.truncate("t", 0, 50_000)
    fill(logs, epoch=1)
    with pytest.raises(LogTruncatedError, match="before offset 60000 was of leader epoch 0 and is of leader epoch 1"):
        for _ in batches:
            pass


def test_records_that_are_deleted_under_the_read(logs: GrowingLogs, reader_of: Callable[..., Any]) -> None:
    logs.segment_bytes = 100_000
    logs.add("t", 0)
    fill(logs, 60)
    strict, lenient = reader_of(), reader_of(failOnDataLoss="false")
    [task] = batch_of(strict)
    logs.delete_records("t", 0, 45_000)
    with pytest.raises(OffsetOutOfRangeError, match=r"t-0 offsets \[0, \d+\) .* deleted since"):
        read(strict, [task])
    rows = read(lenient, [task])
    assert rows[-1][0] == 59_999
    assert 0 < rows[0][0] <= 45_000
    assert [row[0] for row in rows] == list(range(rows[0][0], 60_000))


def test_a_partition_that_is_deleted_under_the_read(logs: GrowingLogs, reader_of: Callable[..., Any]) -> None:
    logs.add("t", 0)
    logs.append("t", 0, 10)
    strict, lenient = reader_of(), reader_of(failOnDataLoss="false")
    [task] = batch_of(strict)
    logs.remove("t", 0)
    with pytest.raises(FileNotFoundError, match=r"t-0 .* is gone"):
        read(strict, [task])
    assert read(lenient, [task]) == []
    logs.add("t", 0, topic_id=b"another topic id")
    logs.append("t", 0, 20)
    for reader in (strict, lenient):
        with pytest.raises(LogTruncatedError, match=r"belongs to a topic with id .* now, planned was one with id"):
            read(reader, [task])


@pytest.mark.parametrize("seed", range(int(os.environ.get("KRAFTLOG_STREAM_SEEDS", "4"))))
def test_a_batch_is_what_was_planned_or_an_error(logs: GrowingLogs, reader_of: Callable[..., Any], seed: int) -> None:
    """The life of a log under a stream: leaders come, cut it and write other records."""
    rng = random.Random(seed)
    log = logs.add("t", 0)
    reader = reader_of()
    records: list[bytes] = []
    epoch = 0
    start = reader.initialOffset()
    outcomes: Counter[str] = Counter()

    def change() -> None:
        nonlocal epoch, records
        what = rng.random()
        if what < 0.25 and records:
            log.truncate_to(rng.randrange(len(records) + 1))
            records = records[: log.log_end_offset]
            epoch += 1
            log.assign_epoch_start(epoch, log.log_end_offset)
        elif what < 0.35:
            epoch += 1
        if rng.random() < 0.8:
            first, mark = len(records), f"{rng.random()} "
            logs.append("t", 0, rng.randrange(1, 8), epoch=epoch, mark=mark, checkpoint=False)
            records += [f"{mark}{offset}".encode() for offset in range(first, log.log_end_offset)]
        logs.checkpoint()

    consumed: list[bytes] = []
    for _ in range(60):
        change()
        try:
            end = reader.latestOffset(start, ReadMaxRows(rng.randrange(1, 12)))
            wanted = records[len(consumed) : end["offsets"]["t"]["0"]]
            assert records[: len(consumed)] == consumed
            tasks = reader.partitions(start, end)
            if rng.random() < 0.4:
                change()
            rows = [row[1] for row in read(reader, tasks)]
        except LogTruncatedError:
            outcomes["truncated"] += 1
            # A new query from what is left; what it has read is forgotten.
            reader, consumed = reader_of(), []
            start = reader.initialOffset()
        else:
            assert rows == wanted
            consumed += rows
            start = end
            outcomes["read"] += bool(rows)
    assert outcomes["read"] > 10
    assert outcomes["truncated"] > 0


def test_read_committed_ends_before_what_is_open(reader_of: Callable[..., Any]) -> None:
    from batch_rows import GOLDEN

    node = GOLDEN / "topics" / "node-1"
    options = {"path": str(node), "kafka.isolation.level": "read_committed", "subscribe": "g-compact-txn"}
    options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "7"}
    reader = stream.stream_reader(
        SourceOptions.parse(options, known=STREAM_OPTIONS, streaming=True), ["partition", "offset"]
    )
    rows = []
    start = reader.initialOffset()
    while (end := reader.latestOffset(start, ReadMaxRows(7))) != start:
        rows += read(reader, reader.partitions(start, end))
        start = end
    import pyarrow as pa

    import kraftlog

    expected = pa.table(
        kraftlog.scan(node, topics="g-compact-txn", isolation_level="read_committed", columns=["partition", "offset"])
    )
    assert sorted(rows) == list(zip(*expected.to_pydict().values(), strict=True))
    assert rows
