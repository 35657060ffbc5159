"""Kafka log directories read as Arrow, without a broker.

    log = kraftlog.open_log("kafka-logs/orders-0")
    for batch in log.scan(start_offset=100):
        ...                                                    # each one an Arrow record batch

    polars.from_arrow(kraftlog.scan("kafka-logs", topics=["orders"]))

    kraftlog.LogDir("kafka-logs").topics                       # what is there, without reading any record

Everything here reads by position and takes no lock, so that it works beside a running node of either product. What a
running node has not yet replicated, or may still truncate, is read too, unless ``end="high_watermark"`` says otherwise.
"""

from __future__ import annotations

from kraftlog._kraftlog import ArrowBatch, ArrowStream
from kraftlog.reading.directory import partition_of
from kraftlog.reading.engine_scan import Scan
from kraftlog.reading.facts import (
    AbortedTransaction,
    Checkpoints,
    IndexFile,
    LeaderEpoch,
    MarkedDirectory,
    OffsetAndTimestamp,
    Producer,
    RemoteSegment,
    ScanReport,
    Segment,
    SkippedRange,
    Topic,
)
from kraftlog.reading.log import Log
from kraftlog.reading.log_dir import LogDir, partition_directories, scan, scan_batches
from kraftlog.reading.log_opener import open_log
from kraftlog.reading.remote_fetch import FetchCounts, RetryPolicy, fetch_counts
from kraftlog.reading.remote_log import RemoteLog
from kraftlog.reading.remote_partition import RemotePartition
from kraftlog.reading.scan_options import ScanOptions, ScanSource
from kraftlog.vocabulary import SYSTEM_TOPICS

__all__ = [
    "SYSTEM_TOPICS",
    "AbortedTransaction",
    "ArrowBatch",
    "ArrowStream",
    "Checkpoints",
    "FetchCounts",
    "IndexFile",
    "LeaderEpoch",
    "Log",
    "LogDir",
    "MarkedDirectory",
    "OffsetAndTimestamp",
    "Producer",
    "RemoteLog",
    "RemotePartition",
    "RemoteSegment",
    "RetryPolicy",
    "Scan",
    "ScanOptions",
    "ScanReport",
    "ScanSource",
    "Segment",
    "SkippedRange",
    "Topic",
    "fetch_counts",
    "open_log",
    "partition_directories",
    "partition_of",
    "scan",
    "scan_batches",
]
