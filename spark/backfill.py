"""Write the records of a log directory to Parquet files, by topic and day; run again, it goes on where it ended.

    python spark/backfill.py /tmp/kraftlog-data/node /tmp/kraftlog-parquet
    spark-submit --master yarn spark/backfill.py hdfs-mount/kafka-logs /lake/raw --ship

The workers write the files themselves, beside the decoder, so that no row crosses into the JVM. The files are
OUT/topic=NAME/date=YYYY-MM-DD/PARTITION-FIRST-END.parquet, with the date of each record's timestamp in UTC; Spark,
DuckDB and pyarrow read such folders as one table. OUT/_offsets has what was planned and what is done:

    run-000001.json       ranges of offsets that the run has planned, written before anything else
    run-000001/           a file for each range whose Parquet files are there, written by the worker behind them
    run-000001.done.json  all of those in one, when the run is complete

A run that was killed is finished first, with the same ranges and so with the same file names: no record is missing and
none is there twice. Then what has been appended since is planned as a new run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from job_session import add_session_arguments, bytes_text, make_session, print_table
from pyspark.sql import SparkSession

import kraftlog
from kraftlog.reading import Scan, ScanOptions, ScanSource

COLUMNS = ("key", "value", "partition", "offset", "timestamp", "headers")
Range = dict[str, Any]


def plan(source: str, topics: Sequence[str] | None, ended: dict[str, int], args: argparse.Namespace) -> list[Range]:
    """Ranges of offsets that no run has planned, each of about ``split_bytes`` of one segment."""
    logs = kraftlog.LogDir(source).partitions()
    known = {log.topic for log in logs}
    if unknown := sorted(set(topics or ()) - known):
        message = f"{source} has no topic {', '.join(unknown)}: there are {', '.join(sorted(known))}"
        raise SystemExit(message)
    ranges = []
    for log in logs:
        if log.topic not in topics if topics else log.is_internal:
            continue
        first = log.log_start_offset
        start = ended.get(f"{log.topic}-{log.partition}", first)
        if start < first:
            message = (
                f"{log.topic}-{log.partition}: offsets {start} to {first - 1} were deleted before they were written"
            )
            if not args.skip_deleted:
                raise SystemExit(f"{message}; --skip-deleted goes on behind them")
            print(message)
            start = first
        end = "log_end" if log.high_watermark is None or args.log_end else "high_watermark"
        scan = log.scan(start_offset=start, end=end, isolation_level=args.isolation_level)
        for part in scan.splits(split_bytes=args.split_bytes):
            ranges += [
                {
                    "path": os.path.abspath(source.path),
                    "topic": source.topic,
                    "partition": source.partition,
                    "start": source.start_offset,
                    "end": source.end_offset,
                    "aborted": source.aborted,
                }
                for source in part.sources
                if source.end_offset is not None and source.end_offset > source.start_offset
            ]
    return ranges


def write_range(one: Range, out: str, isolation_level: str) -> Range:
    """A range's files, one per day; runs in a worker, any number of times, as the offsets give the names."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    started = time.perf_counter()
    # As of the planning: a transaction of the range that is not one of these is committed, if behind the range.
    aborted = one["aborted"] if one["aborted"] is None else tuple(map(tuple, one["aborted"]))
    source = ScanSource(one["path"], one["topic"], one["partition"], one["start"], one["end"], aborted)
    options = ScanOptions(
        columns=COLUMNS,
        isolation_level=isolation_level,
        timestamp_unit="us",
        batch_rows=65536,
        batch_bytes=32 << 20,
    )
    stream = Scan([source], options)
    name = f"{one['partition']}-{one['start']:020}-{one['end']:020}.parquet"
    writers: dict[str, tuple[Path, pq.ParquetWriter]] = {}
    rows = 0
    try:
        for arrow_batch in stream:
            batch = pa.record_batch(arrow_batch)
            rows += len(batch)
            dates = pc.strftime(batch["timestamp"], "%Y-%m-%d").dictionary_encode()
            for number, date in enumerate(dates.dictionary.to_pylist()):
                of_date = batch.filter(pc.equal(dates.indices, number)) if len(dates.dictionary) > 1 else batch
                if date not in writers:
                    folder = Path(out) / f"topic={one['topic']}" / f"date={date or 'none'}"
                    folder.mkdir(parents=True, exist_ok=True)
                    # Of this attempt: Spark may run two of one task at once. A leading dot hides it from readers.
                    unfinished = folder / f".{name}.{uuid4().hex}"
                    writers[date] = (unfinished, pq.ParquetWriter(unfinished, batch.schema, compression="zstd"))
                writers[date][1].write_batch(of_date)
        size = 0
        for unfinished, writer in writers.values():
            writer.close()
            size += unfinished.stat().st_size
            unfinished.replace(unfinished.with_name(name))
    finally:
        for unfinished, writer in writers.values():
            writer.close()
            unfinished.unlink(missing_ok=True)
    done = {key: one[key] for key in ("topic", "partition", "start", "end")}
    return done | {"rows": rows, "files": len(writers), "bytes": size, "seconds": time.perf_counter() - started}


def write(spark: SparkSession, ranges: list[Range], run: Path, out: str, isolation_level: str) -> list[Range]:
    """Writes ranges on the workers, a task for each."""
    marks = run.with_suffix("")
    marks.mkdir(exist_ok=True)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                done = write_range(ranges[number], out, isolation_level)
                mark = marks / f"{done['topic']}-{done['partition']}-{done['start']}.json"
                unfinished = mark.with_name(f".{mark.name}.{uuid4().hex}")
                unfinished.write_text(json.dumps(done))
                unfinished.replace(mark)
                yield pa.RecordBatch.from_pydict({"range": [number]}, schema=pa.schema([("range", pa.int64())]))

    spark.range(0, len(ranges), numPartitions=len(ranges)).mapInArrow(task, "range long").collect()
    return _read_all(marks)


def finish(spark: SparkSession, file: Path, out: str) -> list[Range]:
    """Brings a planned run to its end; the ranges that it wrote, those of earlier attempts included."""
    complete = file.with_suffix(".done.json")
    if complete.exists():
        return []
    run = json.loads(file.read_text())
    marks = file.with_suffix("")
    done = {(mark["topic"], mark["partition"], mark["start"]) for mark in _read_all(marks)}
    left = [
        offset_range
        for offset_range in run["ranges"]
        if (offset_range["topic"], offset_range["partition"], offset_range["start"]) not in done
    ]
    if done:
        print(f"{file.name}: {len(left)} of {len(run['ranges'])} ranges are left")
    written = write(spark, left, file, out, run["isolation_level"]) if left else _read_all(marks)
    unfinished = complete.with_suffix(".tmp")
    unfinished.write_text(json.dumps(written, indent=1))
    unfinished.replace(complete)
    shutil.rmtree(marks)
    return written


def backfill(spark: SparkSession, args: argparse.Namespace) -> list[Range]:
    """Finishes the run before, where it was cut short, and makes a new one of what is new; the ranges written."""
    state = Path(args.out) / "_offsets"
    state.mkdir(parents=True, exist_ok=True)
    written: list[Range] = []
    ended: dict[str, int] = {}
    runs = sorted(state.glob("run-??????.json"))
    for file in runs:
        written += finish(spark, file, args.out)
        for offset_range in json.loads(file.read_text())["ranges"]:
            key = f"{offset_range['topic']}-{offset_range['partition']}"
            ended[key] = max(ended.get(key, 0), offset_range["end"])
    ranges = plan(args.source, args.topics.split(",") if args.topics else None, ended, args)
    if ranges:
        file = state / f"run-{int(runs[-1].stem.split('-')[1]) + 1 if runs else 1:06}.json"
        unfinished = file.with_suffix(".tmp")
        unfinished.write_text(json.dumps({"isolation_level": args.isolation_level, "ranges": ranges}, indent=1))
        unfinished.replace(file)
        written += finish(spark, file, args.out)
    return written


def _read_all(marks: Path) -> list[Range]:
    return [json.loads(mark.read_text()) for mark in sorted(marks.glob("*.json"))]


def report(written: list[Range]) -> None:
    """A line for each topic."""
    topics: dict[str, list[Range]] = {}
    for written_range in written:
        topics.setdefault(written_range["topic"], []).append(written_range)
    lines = [
        (
            topic,
            len({part["partition"] for part in parts}),
            f"{sum(part['rows'] for part in parts):,}",
            sum(part["files"] for part in parts),
            bytes_text(sum(part["bytes"] for part in parts)),
            f"{sum(part['seconds'] for part in parts):.1f}",
        )
        for topic, parts in sorted(topics.items())
    ]
    print_table(("topic", "partitions", "rows", "files", "Parquet", "task s"), lines)
    if not lines:
        print("nothing new")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", help="a log directory that driver and workers see under this path")
    parser.add_argument("out", help="directory that driver and workers see under this path")
    parser.add_argument("--topics", help="separated by commas (default: all but the internal ones)")
    parser.add_argument(
        "--split-bytes", type=int, default=64 << 20, help="of a segment, for each task (default 64 MiB)"
    )
    parser.add_argument("--isolation-level", choices=["read_uncommitted", "read_committed"], default="read_committed")
    parser.add_argument("--log-end", action="store_true", help="read beyond the checkpointed high watermark")
    parser.add_argument(
        "--skip-deleted", action="store_true", help="go on where records were deleted before their turn"
    )
    add_session_arguments(parser)
    args = parser.parse_args()
    spark = make_session("kraftlog backfill", args)
    try:
        report(backfill(spark, args))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
