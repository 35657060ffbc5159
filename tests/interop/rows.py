"""Rows of ``kraftlog.Consumer`` and of confluent-kafka in one form, so that they can be compared."""

from __future__ import annotations

import time

import confluent_kafka
import pyarrow as pa

__all__ = ["Row", "confluent_rows", "plain_rows", "rows_of"]

# Partition, offset, key, value, timestamp in ms, 0 or 1 for CreateTime and LogAppendTime, headers.
Row = tuple[int, int, bytes | None, bytes | None, int, int, list[tuple[str, bytes | None]]]


def confluent_rows(
    bootstrap: str, topic: str, partitions: int, isolation: str, count: int, *, timeout_s: float = 60
) -> list[Row]:
    """What confluent-kafka reads from the beginning until ``count`` rows are there; one more row is a failure."""
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "x", "isolation.level": isolation, "check.crcs": True}
    )
    reader.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)])
    rows = []
    deadline = time.monotonic() + timeout_s
    while len(rows) < count and time.monotonic() < deadline:
        for found in reader.consume(1000, 1):
            assert found.error() is None, str(found.error())
            kind, timestamp = found.timestamp()
            rows.append(
                (
                    found.partition(),
                    found.offset(),
                    found.key(),
                    found.value(),
                    timestamp,
                    kind - 1,
                    found.headers() or [],
                )
            )
    assert not reader.consume(10, 0.5)
    reader.close()
    return sorted(rows, key=lambda row: row[:2])


def plain_rows(batch: pa.RecordBatch | pa.Table) -> list[dict[str, object]]:
    """Its rows, with timestamps in ms: some of them are no datetime."""
    index = batch.schema.get_field_index("timestamp")
    return batch.set_column(index, "timestamp", batch.column(index).cast(pa.int64())).to_pylist()


def rows_of(batch: object) -> list[tuple[str, Row]]:
    """Topic and row of each record of a batch that ``poll`` returned, in its order."""
    return [
        (
            row["topic"],
            (
                row["partition"],
                row["offset"],
                row["key"],
                row["value"],
                row["timestamp"],
                row["timestamp_type"],
                [(header["key"], header["value"]) for header in row["headers"]],
            ),
        )
        for row in plain_rows(pa.record_batch(batch))
    ]
