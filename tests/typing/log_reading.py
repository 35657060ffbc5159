"""Types that readers of log directories see; read by mypy (``.ci/dev type``), never run."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import assert_type

import kraftlog
from kraftlog import Log, LogDir
from kraftlog.reading import ArrowBatch, ArrowStream, Checkpoints, OffsetAndTimestamp, Scan, ScanReport, Segment, Topic
from kraftlog.types import TopicPartition, Uuid

HOUR = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def one_partition() -> None:
    log = kraftlog.open_log("kafka-logs/orders-0")
    assert_type(log, Log)
    assert_type(log.topic, str)
    assert_type(log.partition, int)
    assert_type(log.topic_id, Uuid | None)
    assert_type(log.segments, tuple[Segment, ...])
    assert_type(log.log_start_offset, int)
    assert_type(log.high_watermark, int | None)
    assert_type(log.offset_for_timestamp(HOUR), OffsetAndTimestamp | None)
    assert_type(log.batches(), ArrowStream)
    kraftlog.open_log(Path("kafka-logs/orders-0"))
    kraftlog.open_log(0)  # type: ignore[arg-type]


def scans() -> None:
    log = kraftlog.open_log("kafka-logs/orders-0")
    scan = log.scan(start_offset=100, from_timestamp=HOUR, columns=["key", "offset"], isolation_level="read_committed")
    assert_type(scan, Scan)
    for batch in scan:
        assert_type(batch, ArrowBatch)
    assert_type(scan.column_names, list[str])
    assert_type(scan.report(), ScanReport)
    assert_type(scan.splits(4), tuple[Scan, ...])
    assert_type(scan.narrowed(threads=2), Scan)
    log.scan(isolation_level="committed")  # type: ignore[arg-type]
    log.scan(on_corrupt="ignore")  # type: ignore[arg-type]
    log.scan(start="0")  # type: ignore[call-arg]
    log.scan(100)  # type: ignore[call-arg]
    assert_type(kraftlog.scan("kafka-logs", topics=["orders"], end_offsets={("orders", 0): 7}), Scan)
    kraftlog.scan(["a", Path("b")], topics="orders", partitions=[0, ("orders", 1)], to_timestamp=7)
    kraftlog.scan(["a"], partitions=["0"])  # type: ignore[list-item]


def directories() -> None:
    directory = LogDir("kafka-logs")
    assert_type(directory.topics, tuple[Topic, ...])
    assert_type(directory.partitions("orders"), tuple[Log, ...])
    assert_type(directory.partition("orders", 0), Log)
    assert_type(directory.cluster_id, str | None)
    assert_type(directory.node_id, int | None)
    assert_type(directory.checkpoints, Checkpoints)
    assert_type(directory.checkpoints.high_watermarks, dict[TopicPartition, int])
    assert_type(directory.was_clean_shutdown, bool)
    directory.partition("orders")  # type: ignore[call-arg]
