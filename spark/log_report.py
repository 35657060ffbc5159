"""Report sizes, skew, times and what retention would delete over a whole log directory, from batch headers alone.

    python spark/log_report.py /tmp/kraftlog-data/node --at 2026-01-15 --plot sizes.png
    python spark/log_report.py /var/lib/kafka/data --retention-ms 259200000 --retention-bytes 1073741824 --partitions

No record is decoded, and without --sample nothing is decompressed. Settings of topics are those of the metadata log,
where the directory has it (--metadata names another); the options are for topics without a setting of their own.
Retention deletes whole segments from the oldest on, as Kafka does: while the log without the segment still has
retention.bytes, and then while the newest timestamp of the segment is more than retention.ms ago. With
cleanup.policy=compact it deletes nothing.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from job_session import add_session_arguments, bytes_text, instant, make_session, print_table, time_text
from metadata_report import topic_configs
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark job uses

from kraftlog._kraftlog import decompressed_size

HEADER_BYTES = 61  # of a record batch
WEEK_MS = 7 * 86_400_000
LARGEST_TOPICS = 12  # of the plot


@dataclass(frozen=True, kw_only=True)
class SegmentFacts:
    """What the headers of a segment's batches add up to.

    Args:
        base_offset: In the name of the file.
        size_bytes: Of its batches.
        records: Control records included.
        oldest_ms: Least base timestamp of its batches; None where no batch has one.
        newest_ms: Largest timestamp.
        codecs: Names of the codecs.
    """

    base_offset: int
    size_bytes: int
    records: int
    oldest_ms: int | None
    newest_ms: int | None
    codecs: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How long segments are kept; -1 is without end.

    Args:
        retention_ms: ``retention.ms``.
        retention_bytes: ``retention.bytes``.
        deletes: ``cleanup.policy`` names ``delete``.
    """

    retention_ms: int
    retention_bytes: int
    deletes: bool = True


@dataclass(frozen=True, kw_only=True)
class PartitionFacts:
    """A partition by its segments, and how many of them retention would delete."""

    topic: str
    partition: int
    segments: tuple[SegmentFacts, ...]
    deletable: int

    @property
    def size_bytes(self) -> int:
        """Of all batches."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def deletable_bytes(self) -> int:
        """Of the segments that retention would delete."""
        return sum(segment.size_bytes for segment in self.segments[: self.deletable])

    @property
    def records(self) -> int:
        """Of all segments."""
        return sum(segment.records for segment in self.segments)


def deletable_segments(segments: Sequence[SegmentFacts], retention: Retention, now_ms: int) -> int:
    """How many segments, from the oldest on, retention would delete (Kafka's UnifiedLog.deleteOldSegments)."""
    if not retention.deletes:
        return 0
    count = 0
    if retention.retention_bytes >= 0:
        beyond = sum(segment.size_bytes for segment in segments) - retention.retention_bytes
        while count < len(segments) and beyond - segments[count].size_bytes >= 0:
            beyond -= segments[count].size_bytes
            count += 1
    if retention.retention_ms >= 0:
        while count < len(segments):
            newest_ms = segments[count].newest_ms
            if newest_ms is None or now_ms - newest_ms <= retention.retention_ms:
                break
            count += 1
    return count


def retention_of(config: Mapping[str, str], default: Retention) -> Retention:
    """A topic's own settings before the defaults."""
    return Retention(
        retention_ms=int(config.get("retention.ms", default.retention_ms)),
        retention_bytes=int(config.get("retention.bytes", default.retention_bytes)),
        deletes="delete" in config.get("cleanup.policy", "delete"),
    )


def survey(
    spark: SparkSession, source: str, configs: Mapping[str, Mapping[str, str]], default: Retention, now_ms: int
) -> list[PartitionFacts]:
    """All partitions of a log directory but the internal ones; a row for each segment crosses into this process."""
    rows = (
        spark.read.format("kraftlog-batches")
        .option("path", source)
        .option("columns", "topic,partition,file,sizeInBytes,recordCount,baseTimestamp,maxTimestamp,compression")
        .load()
        .groupBy("topic", "partition", "file")
        .agg(
            F.sum("sizeInBytes").alias("size_bytes"),
            F.sum("recordCount").alias("records"),
            F.min(F.when(F.unix_millis("baseTimestamp") >= 0, F.unix_millis("baseTimestamp"))).alias("oldest_ms"),
            F.max(F.when(F.unix_millis("maxTimestamp") >= 0, F.unix_millis("maxTimestamp"))).alias("newest_ms"),
            F.collect_set("compression").alias("codecs"),
        )
        .orderBy("topic", "partition", "file")
        .collect()
    )
    segments: dict[tuple[str, int], list[SegmentFacts]] = {}
    for row in rows:
        segments.setdefault((row.topic, row.partition), []).append(
            SegmentFacts(
                base_offset=int(Path(row.file).name.split(".")[0]),
                size_bytes=row.size_bytes,
                records=row.records,
                oldest_ms=row.oldest_ms,
                newest_ms=row.newest_ms,
                codecs=frozenset(row.codecs),
            )
        )
    return [
        PartitionFacts(
            topic=topic,
            partition=partition,
            segments=tuple(found),
            deletable=deletable_segments(found, retention_of(configs.get(topic, {}), default), now_ms),
        )
        for (topic, partition), found in segments.items()
    ]


def compression_ratios(spark: SparkSession, source: str, sample: int) -> dict[str, float]:
    """Bytes of records for each byte of their batches, by topic; from some batches of each file, decompressed."""
    columns = ("topic", "file", "position", "sizeInBytes")
    batches = spark.read.format("kraftlog-batches").option("path", source).option("columns", ",".join(columns)).load()
    # Spread over the file by an order that has nothing to do with the offsets.
    place = F.row_number().over(Window.partitionBy("file").orderBy(F.hash("position")))
    chosen = batches.withColumn("place", place).where(F.col("place") <= sample).drop("place")

    def measure(arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in arrow_batches:
            sizes = []
            for row in rows.to_pylist():
                with open(row["file"], "rb") as file:
                    data = os.pread(file.fileno(), row["sizeInBytes"], row["position"])
                sizes.append(HEADER_BYTES + decompressed_size(data))
            yield pa.RecordBatch.from_pydict(
                {"topic": rows["topic"], "stored": rows["sizeInBytes"].cast(pa.int64()), "plain": sizes}
            )

    sums = chosen.mapInArrow(measure, "topic string, stored long, plain long").groupBy("topic")
    rows = sums.agg(F.sum("stored").alias("stored"), F.sum("plain").alias("plain")).collect()
    return {row.topic: row.plain / row.stored for row in rows if row.stored}


def report(
    partitions: Iterable[PartitionFacts], ratios: Mapping[str, float], *, by_partition: bool, rows: int = 0
) -> None:
    """A line for each topic, or for each partition, the largest first; at most ``rows`` unless that is 0."""
    groups: dict[str, list[PartitionFacts]] = {}
    for status in partitions:
        groups.setdefault(f"{status.topic}-{status.partition}" if by_partition else status.topic, []).append(status)
    lines = []
    for name, parts in sorted(groups.items(), key=lambda item: -sum(partition.size_bytes for partition in item[1])):
        segments = [segment for part in parts for segment in part.segments]
        size, records = sum(part.size_bytes for part in parts), sum(part.records for part in parts)
        largest = max(part.size_bytes for part in parts)
        oldest = min((segment.oldest_ms for segment in segments if segment.oldest_ms is not None), default=None)
        newest = max((segment.newest_ms for segment in segments if segment.newest_ms is not None), default=None)
        lines.append(
            (
                name,
                len(segments),
                f"{records:,}",
                bytes_text(size),
                f"{size / records:.0f}" if records else "",
                *(() if by_partition else (f"{largest * len(parts) / size:.1f}" if size else "",)),
                "+".join(sorted({codec for segment in segments for codec in segment.codecs})),
                *((f"{ratios[parts[0].topic]:.1f}",) if parts[0].topic in ratios else ("",) if ratios else ()),
                time_text(oldest),
                time_text(newest),
                bytes_text(sum(part.deletable_bytes for part in parts)),
            )
        )
    skew = () if by_partition else ("largest/mean",)
    print_table(
        (
            "partition" if by_partition else "topic",
            "segments",
            "records",
            "size",
            "B/record",
            *skew,
            "codecs",
            *(("ratio",) if ratios else ()),
            "oldest (UTC)",
            "newest (UTC)",
            "retention deletes",
        ),
        lines[: rows or None],
        more=len(lines),
    )


def plot(partitions: Sequence[PartitionFacts], file: Path, now_ms: int) -> None:
    """A bar for each partition, by topic; what retention would delete is the lighter part."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    topics: dict[str, list[PartitionFacts]] = {}
    for status in partitions:
        topics.setdefault(status.topic, []).append(status)
    largest = sorted(topics, key=lambda topic: -sum(status.size_bytes for status in topics[topic]))[:LARGEST_TOPICS]
    bars: list[tuple[float, PartitionFacts]] = []
    ticks: list[tuple[float, str]] = []
    place = 0.0
    for topic in largest:
        first = place
        for status in topics[topic]:
            bars.append((place, status))
            place += 1
        ticks.append(((first + place - 1) / 2, topic))
        place += 1.2
    figure, axes = plt.subplots(figsize=(max(6.5, 0.26 * place), 4.2), layout="constrained")
    places = [place for place, _ in bars]
    deleted = [partition.deletable_bytes / 2**20 for _, partition in bars]
    kept = [partition.size_bytes / 2**20 - gone for (_, partition), gone in zip(bars, deleted, strict=True)]
    axes.bar(places, kept, width=0.85, color="#30638e", label="kept")
    if any(deleted):
        at = dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC)
        label = f"deleted by retention at {at:%Y-%m-%d %H:%M} UTC"
        axes.bar(places, deleted, width=0.85, bottom=kept, color="#c9d6e2", label=label)
        axes.legend(frameon=False)
    axes.set_xticks([at for at, _ in ticks], [topic for _, topic in ticks], rotation=30, ha="right")
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("bytes of batches (MiB)")
    axes.set_xlabel("partitions by number within each topic, the largest topics first")
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.01)
    figure.savefig(file, dpi=150)
    plt.close(figure)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", help="a log directory")
    parser.add_argument("--metadata", help="a directory with __cluster_metadata-0 (default: the source, if it has it)")
    parser.add_argument("--retention-ms", type=int, default=WEEK_MS, help="of topics without a setting; -1: no end")
    parser.add_argument("--retention-bytes", type=int, default=-1, help="of topics without a setting; -1: no end")
    parser.add_argument("--at", type=instant, help="when retention runs, ISO 8601, UTC (default: now)")
    parser.add_argument(
        "--sample", type=int, default=0, help="decompress so many batches a file, for compression ratios"
    )
    parser.add_argument("--partitions", action="store_true", help="a line for each partition, not for each topic")
    parser.add_argument("--rows", type=int, default=30, help="lines of the table, the largest first; 0: all")
    parser.add_argument("--plot", type=Path, help="write a PNG of partition sizes here (needs matplotlib)")
    add_session_arguments(parser)
    args = parser.parse_args()
    now_ms = round((args.at or dt.datetime.now(dt.UTC)).timestamp() * 1000)
    default = Retention(retention_ms=args.retention_ms, retention_bytes=args.retention_bytes)
    metadata = args.metadata or (args.source if Path(args.source, "__cluster_metadata-0").is_dir() else None)
    spark = make_session("kraftlog report", args)
    try:
        configs = topic_configs(spark, metadata) if metadata else {}
        partitions = survey(spark, args.source, configs, default, now_ms)
        ratios = compression_ratios(spark, args.source, args.sample) if args.sample else {}
    finally:
        spark.stop()
    report(partitions, ratios, by_partition=args.partitions, rows=args.rows)
    if args.plot and partitions:
        plot(partitions, args.plot, now_ms)
        print(f"plot: {args.plot}")


if __name__ == "__main__":
    main()
