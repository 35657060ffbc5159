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


def partition(time_ms: int, isr: list[int], leader: int | None, *, event: str = "changed", topic: str = "t") -> Any:
    return {
        "table": "partitions",
        "time_ms": time_ms,
        "source": "log",
        "event": event,
        "topic": topic,
        "topicId": f"id of {topic}",
        "partition": 0,
        "replicas": [1, 2, 3],
        "isr": isr,
        "leader": leader,
    }


def config(time_ms: int, value: str | None, *, source: str = "log", **changes: Any) -> Any:
    row = {"table": "configs", "time_ms": time_ms, "source": source, "event": "set"}
    return {**row, "resourceType": "TOPIC", "resourceName": "t", "name": "retention.ms", "value": value, **changes}


def broker(time_ms: int, number: int, event: str, *, fenced: bool, role: str = "broker") -> Any:
    row = {"table": "brokers", "time_ms": time_ms, "source": "log", "event": event}
    return {**row, "role": role, "id": number, "fenced": fenced}


def test_a_history_of_a_partition() -> None:
    history = metadata_report.fold(
        [
            {"table": "topics", "time_ms": 0, "source": "log", "event": "created", "topic": "t"},
            partition(0, [1, 2, 3], 1, event="created"),
            broker(0, 1, "registered", fenced=False),
            broker(0, 7, "registered", fenced=False, role="controller"),
            broker(1000, 1, "changed", fenced=True),
            partition(1000, [2, 3], 2),
            broker(2000, 1, "changed", fenced=True),  # its directories, for one
            partition(3000, [2, 3], None),
            partition(4000, [2, 3], 2),
            partition(9000, [2, 3, 1], 2),
            partition(9500, [2, 3, 1], 2),
            broker(9600, 1, "unregistered", fenced=True),
        ]
    )
    assert [(event.time_ms, event.kind, event.subject, event.detail) for event in history.events] == [
        (0, "topic", "t", "created"),
        (0, "broker", "broker 1", "unfenced"),
        (1000, "broker", "broker 1", "fenced"),
        (1000, "leader", "t-0", "1 -> 2"),
        (1000, "isr shrinks", "t-0", "1 left, 2 of 3 in sync"),
        (3000, "leader", "t-0", "2 -> none"),
        (4000, "leader", "t-0", "none -> 2"),
        (9000, "isr grows", "t-0", "1 joined, 3 of 3 in sync"),
        (9600, "broker", "broker 1", "unregistered"),
    ]
    (one,) = history.partitions.values()
    assert one.under_replicated_ms(10_000) == 8000
    assert one.leaderless_ms(10_000) == 1000
    assert one.spans(10_000) == [
        (0, 1000, 3, 1),
        (1000, 3000, 2, 2),
        (3000, 4000, 2, -1),
        (4000, 9000, 2, 2),
        (9000, 10_000, 3, 2),
    ]


def test_a_history_of_settings_and_of_what_a_snapshot_says() -> None:
    history = metadata_report.fold(
        [
            config(5, "1", source="snapshot"),
            config(6, "2"),
            config(7, "2"),
            config(8, None),
            config(9, "y", resourceType="BROKER", resourceName="", name="log.x"),
        ]
    )
    assert [(event.time_ms, event.subject, event.detail) for event in history.events] == [
        (6, "t", "retention.ms: 1 -> 2"),
        (8, "t", "retention.ms: 2 -> default"),
        (9, "broker default", "log.x: default -> y"),
    ]
    assert history.configs == {("TOPIC", "t"): {}, ("BROKER", ""): {"log.x": "y"}}
    assert [change.time_ms for change in metadata_report.chosen(history, 7, ["other"])] == [9]
    assert [change.time_ms for change in metadata_report.chosen(history, 7, None)] == [8, 9]


def test_a_deleted_topic_is_no_longer_under_replicated() -> None:
    gone = [partition(0, [1], 1, event="created"), partition(10, [1], 1, event="deleted")]
    again = {**partition(50, [1, 2], 1, event="created"), "topicId": "another"}
    history = metadata_report.fold([*gone, again])
    assert [partition.under_replicated_ms(99) for partition in history.partitions.values()] == [10, 49]


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (3 << 40, "3.0 TiB")]
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert load("job_session").bytes_text(size) == text
