"""``kraftlog consume``: records of a live cluster as text, JSON lines or an Arrow file."""

from __future__ import annotations

import argparse
import base64
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from kraftlog.cli.client_options import add_client_arguments, client_properties
from kraftlog.client import Consumer
from kraftlog.errors import KafkaError, KraftlogError
from kraftlog.types import TopicPartition

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_client_arguments(parser)
    parser.add_argument("--topic", required=True, help="the topic")
    parser.add_argument("--partition", type=int, action="append", help="a partition; all of the topic by default")
    parser.add_argument("--group", help="group.id: share the topic with the group's other members, and commit")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--from-beginning", action="store_true", help="begin at the first record where nothing is known")
    where.add_argument("--offset", type=int, help="begin at this offset in each partition")
    parser.add_argument("--max-records", type=int, help="end after so many records")
    parser.add_argument("--idle-ms", type=int, help="end when no record came for so long; never by default")
    parser.add_argument("--json", action="store_true", help="one JSON object per record; bytes in base64")
    parser.add_argument("--output", type=Path, metavar="FILE.parquet", help="write a Parquet file (needs pyarrow)")


def run(args: argparse.Namespace) -> int:
    """Print records until the end that was asked for.

    Raises:
        KraftlogError: The cluster cannot be read, or an argument does not fit.
    """
    if args.group and (args.partition or args.offset is not None):
        raise KraftlogError("--group takes the partitions and offsets of the group: leave out --partition and --offset")
    if args.max_records is not None and args.max_records < 1:
        raise KraftlogError("--max-records must be at least 1")
    properties = {"auto.offset.reset": "earliest" if args.from_beginning else "latest", **client_properties(args)}
    if args.group:
        properties["group.id"] = args.group
    idle_s = None if args.idle_ms is None else args.idle_ms / 1000
    left = args.max_records
    writer = _Writer(args.output, as_json=args.json)
    try:
        with Consumer(properties) as consumer:
            if args.group:
                consumer.subscribe([args.topic])
            else:
                found = consumer.partitions_for(args.topic)
                names = (
                    found if args.partition is None else [name for name in found if name.partition in args.partition]
                )
                if args.partition is not None and len(names) < len(set(args.partition)):
                    raise KraftlogError(f"{args.topic} has {len(found)} partitions, numbered from 0")
                consumer.assign(names)
                if args.offset is not None:
                    for name in names:
                        consumer.seek(name, args.offset)
            for batch in consumer.batches(idle_s=idle_s):
                left, following = writer.write(batch, left)
                if following is not None:
                    with suppress(KafkaError):  # the partition is another member's by now
                        consumer.seek(*following)  # what was not written is not committed either
                if left is not None and left <= 0:
                    break
    except KeyboardInterrupt:
        pass
    finally:
        writer.close()
    return 0


class _Writer:
    """Where records go."""

    def __init__(self, path: Path | None, *, as_json: bool) -> None:
        self._path = path
        self._as_json = as_json
        self._parquet: Any = None

    def write(self, batch: Any, left: int | None) -> tuple[int | None, tuple[TopicPartition, int] | None]:
        """Write a batch, at most ``left`` rows of it.

        Returns:
            How many rows may follow, and partition and offset of the first row that was not written, if there is one.
        """
        from kraftlog.extras import require

        require("arrow", "kraftlog consume")
        import pyarrow as pa

        rows = pa.record_batch(batch)
        following = None
        if left is not None and rows.num_rows > left:
            topic, partition, offset = (rows.column(name)[left].as_py() for name in ("topic", "partition", "offset"))
            following = (TopicPartition(topic, partition), offset)
            rows = rows.slice(0, left)
        if self._path is not None:
            import pyarrow.parquet as pq

            if self._parquet is None:
                self._parquet = pq.ParquetWriter(self._path, rows.schema)
            self._parquet.write_batch(rows)
        else:
            for row in rows.to_pylist():
                self._print(row)
            sys.stdout.flush()  # a pipe shows each record as it comes
        return (None if left is None else left - rows.num_rows), following

    def _print(self, row: dict[str, Any]) -> None:
        if not self._as_json:
            sys.stdout.write((row["value"] or b"").decode("utf-8", "replace") + "\n")
            return
        row["timestamp"] = int(row["timestamp"].timestamp() * 1000 + 0.5)
        for name in ("key", "value"):
            row[name] = None if row[name] is None else base64.b64encode(row[name]).decode()
        row["headers"] = [
            [header["key"], None if header["value"] is None else base64.b64encode(header["value"]).decode()]
            for header in row["headers"]
        ]
        sys.stdout.write(json.dumps(row) + "\n")

    def close(self) -> None:
        """End the file."""
        if self._parquet is not None:
            self._parquet.close()
