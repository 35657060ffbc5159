"""What the reports of spark/ compute, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from interop.spark.jobs import load

log_report = load("log_report")
metadata_report = load("metadata_report")


def segments(*sizes_and_times: tuple[int, int | None]) -> list[Any]:
    return [
        log_report.SegmentFacts(
            base_offset=place, size_bytes=size, records=1, oldest_ms=time, newest_ms=time, codecs=frozenset({"none"})
        )
        for place, (size, time) in enumerate(sizes_and_times)
    ]


@pytest.mark.parametrize(
    ("retention_ms", "retention_bytes", "deleted"),
    [
        (-1, -1, 0),
        (50, -1, 2),  # 30 is exactly 50 before now, and kept
        (49, -1, 3),
        (0, -1, 3),  # a segment without a time ends it
        (-1, 1000, 0),
        (-1, 400, 0),
        (-1, 399, 0),  # the log without its first segment would be too small
        (-1, 300, 1),
        (-1, 150, 2),
        (-1, 0, 4),
        (50, 300, 2),  # by size, and then by time
    ],
)
def test_retention_deletes_from_the_oldest_segment_on(retention_ms: int, retention_bytes: int, deleted: int) -> None:
    found = segments((100, 20), (100, 10), (100, 30), (100, None))
    retention = log_report.Retention(retention_ms=retention_ms, retention_bytes=retention_bytes)
    assert log_report.deletable_segments(found, retention, now_ms=80) == deleted


def test_a_topics_settings_go_before_the_defaults() -> None:
    default = log_report.Retention(retention_ms=7, retention_bytes=8)
    assert log_report.retention_of({}, default) == default
    own = log_report.retention_of({"retention.ms": "-1", "cleanup.policy": "compact"}, default)
    assert own == log_report.Retention(retention_ms=-1, retention_bytes=8, deletes=False)
    assert log_report.retention_of({"cleanup.policy": "compact,delete"}, default) == default
    assert log_report.deletable_segments(segments((1, 0)), own, now_ms=1000) == 0


def row(time_ms: int, kind: str, *, snapshot: bool = False, **fields: Any) -> dict[str, Any]:
    names = "topic partition replicas isr leader broker fenced resource_type resource_name name value".split()
    return {"time_ms": time_ms, "type": kind, "snapshot": snapshot, **dict.fromkeys(names), **fields}


def test_a_history_of_a_partition() -> None:
    change = {"topic": "t", "partition": 0}
    history = metadata_report.fold(
        [
            row(0, "TOPIC_RECORD", topic="t"),
            row(0, "PARTITION_RECORD", **change, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1),
            row(1000, "BROKER_REGISTRATION_CHANGE_RECORD", broker=1, fenced=True),
            row(1000, "PARTITION_CHANGE_RECORD", **change, isr=[2, 3], leader=2),
            row(3000, "PARTITION_CHANGE_RECORD", **change, leader=-1),
            row(4000, "PARTITION_CHANGE_RECORD", **change, leader=2),
            row(9000, "PARTITION_CHANGE_RECORD", **change, isr=[2, 3, 1]),
            row(9500, "PARTITION_CHANGE_RECORD", topic="gone", partition=5, isr=[2]),
            row(10_000, "NO_OP_RECORD"),
        ]
    )
    assert [(one.time_ms, one.kind, one.subject, one.detail) for one in history.events] == [
        (0, "topic", "t", "created"),
        (1000, "broker", "broker 1", "fenced"),
        (1000, "leader", "t-0", "1 -> 2"),
        (1000, "isr shrinks", "t-0", "1 left, 2 of 3 in sync"),
        (3000, "leader", "t-0", "2 -> none"),
        (4000, "leader", "t-0", "none -> 2"),
        (9000, "isr grows", "t-0", "1 joined, 3 of 3 in sync"),
    ]
    (one,) = history.partitions.values()
    assert one.under_replicated_ms(history.end_ms) == 8000
    assert one.leaderless_ms(history.end_ms) == 1000
    assert one.spans(history.end_ms) == [
        (0, 1000, 3, 1),
        (1000, 3000, 2, 2),
        (3000, 4000, 2, -1),
        (4000, 9000, 2, 2),
        (9000, 10_000, 3, 2),
    ]


def test_a_history_of_settings_and_of_what_a_snapshot_says() -> None:
    setting = {"resource_type": 2, "resource_name": "t", "name": "retention.ms"}
    history = metadata_report.fold(
        [
            row(5, "CONFIG_RECORD", snapshot=True, **setting, value="1"),
            row(6, "CONFIG_RECORD", **setting, value="2"),
            row(7, "CONFIG_RECORD", **setting, value="2"),
            row(8, "CONFIG_RECORD", **setting, value=None),
            row(9, "CONFIG_RECORD", resource_type=4, resource_name="", name="log.x", value="y"),
        ]
    )
    assert [(one.time_ms, one.subject, one.detail) for one in history.events] == [
        (6, "t", "retention.ms: 1 -> 2"),
        (8, "t", "retention.ms: 2 -> default"),
        (9, "broker default", "log.x: default -> y"),
    ]
    assert history.configs == {(2, "t"): {}, (4, ""): {"log.x": "y"}}
    assert [one.time_ms for one in metadata_report.chosen(history, 7, ["other"])] == [9]
    assert [one.time_ms for one in metadata_report.chosen(history, 7, None)] == [8, 9]


def test_a_deleted_topic_is_no_longer_under_replicated() -> None:
    history = metadata_report.fold(
        [
            row(0, "PARTITION_RECORD", topic="t", partition=0, replicas=[1, 2], isr=[1], leader=1),
            row(10, "REMOVE_TOPIC_RECORD", topic="t"),
            row(99, "NO_OP_RECORD"),
        ]
    )
    assert history.partitions["t", 0].under_replicated_ms(history.end_ms) == 10


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (3 << 40, "3.0 TiB")]
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert load("job_session").bytes_text(size) == text
