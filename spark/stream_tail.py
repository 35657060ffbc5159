"""Count the records that arrive in log directories: for each topic in windows of time.

    python spark/stream_tail.py /tmp/kraftlog-data/node --window "1 day" --plot tail.png    # what is there, then end
    python spark/stream_tail.py /var/lib/kafka/data --starting latest --seconds 60          # what comes in a minute

A checkpoint (--checkpoint) makes the next run go on where this one ended. Windows are those of the records' timestamps
in UTC.
"""

from __future__ import annotations

import argparse
import datetime as dt
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from job_session import add_session_arguments, make_session, print_table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark job uses

LINES = 8  # of the plot: the topics with the most records


class Window(NamedTuple):
    """What came in a window of a topic."""

    topic: str
    start: dt.datetime
    records: int
    value_bytes: int


def windowed(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    """Records and bytes of values for each topic and window, as a stream."""
    reader = spark.readStream.format("kraftlog").option("path", args.source)
    if args.topics:
        reader = reader.option("subscribe", args.topics)
    if args.max_offsets:
        reader = reader.option("maxOffsetsPerTrigger", args.max_offsets)
    # Lengths instead of values: the bytes stay on the side of the decoder.
    frame = reader.option("startingOffsets", args.starting).option("columns", "topic,timestamp,valueLength").load()
    return frame.groupBy("topic", F.window("timestamp", args.window).alias("window")).agg(
        F.count(F.lit(1)).alias("records"), F.coalesce(F.sum("valueLength"), F.lit(0)).alias("value_bytes")
    )


def tail(spark: SparkSession, args: argparse.Namespace) -> list[Window]:
    """Runs the query to what is there now, or for some seconds; the windows, by topic and time."""
    checkpoint = args.checkpoint or tempfile.mkdtemp(prefix="stream-tail-")
    newest: list[Window] = []

    def keep(frame: DataFrame, _batch_id: int) -> None:
        # Seconds, as PySpark would give a timestamp in the time zone of this process.
        starts = frame.select("topic", F.unix_seconds("window.start").alias("start"), "records", "value_bytes")
        newest[:] = [
            Window(row.topic, dt.datetime.fromtimestamp(row.start, dt.UTC), row.records, row.value_bytes)
            for row in starts.orderBy("topic", "start").collect()
        ]

    writer = windowed(spark, args).writeStream.outputMode("complete").foreachBatch(keep)
    writer = writer.option("checkpointLocation", str(checkpoint))
    try:
        if args.seconds:
            query = writer.trigger(processingTime="1 second").start()
            ends = time.monotonic() + args.seconds
            while time.monotonic() < ends and query.isActive:
                query.awaitTermination(min(1, args.seconds))
            query.processAllAvailable()
            query.stop()
        else:
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
        if query.exception() is not None:
            raise query.exception()
    finally:
        if not args.checkpoint:
            shutil.rmtree(checkpoint, ignore_errors=True)
    return newest


def plot(rows: Sequence[Window], file: Path, window: str) -> None:
    """A line for each topic: records in each window."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    totals = Counter[str]()
    for row in rows:
        totals[row.topic] += row.records
    highest = max(row.records for row in rows)
    ends = []
    for topic, _ in totals.most_common(LINES):
        points = [(row.start, row.records) for row in rows if row.topic == topic]
        (line,) = axes.plot(*zip(*points, strict=True), marker=".", markersize=4, linewidth=1.3)
        ends.append((points[-1], topic, line.get_color()))
    label_at = float("-inf")  # names at the ends of the lines, one above the other where these meet
    for (last, count), topic, color in sorted(ends, key=lambda end: end[0][1]):
        label_at = max(count, label_at + 0.05 * highest)
        axes.annotate(
            topic, (last, label_at), xytext=(8, 0), textcoords="offset points", va="center", color=color, fontsize=9
        )
    locator = AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.set_xlabel("record timestamp (UTC)")
    axes.set_ylabel(f"records per {window}")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.02)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=150)
    plt.close(figure)


def report(rows: Sequence[Window]) -> None:
    """A line for each topic."""
    lines = []
    for topic in sorted({row.topic for row in rows}):
        windows = [row for row in rows if row.topic == topic]
        busiest = max(windows, key=lambda row: row.records)
        lines.append(
            (
                topic,
                f"{sum(row.records for row in windows):,}",
                f"{sum(row.value_bytes for row in windows):,}",
                len(windows),
                f"{busiest.records:,}",
                f"{busiest.start:%Y-%m-%d %H:%M}",
            )
        )
    print_table(("topic", "records", "value bytes", "windows", "in the busiest", "which began at (UTC)"), lines)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", help="a log directory, of a running node or not")
    parser.add_argument("--topics", help="separated by commas (default: all but the internal ones)")
    parser.add_argument("--starting", choices=["earliest", "latest"], default="earliest")
    parser.add_argument("--window", default="1 hour", help="length of a window, as Spark writes it (default 1 hour)")
    parser.add_argument("--seconds", type=float, help="run so long (default: to the end of what is there)")
    parser.add_argument("--max-offsets", type=int, help="at most so many records in a micro-batch")
    parser.add_argument("--checkpoint", help="directory of the query's state (default: one that is removed)")
    parser.add_argument("--plot", type=Path, help="write a PNG here (needs matplotlib)")
    add_session_arguments(parser)
    args = parser.parse_args()
    spark = make_session("kraftlog tail", args)
    try:
        rows = tail(spark, args)
    finally:
        spark.stop()
    report(rows)
    if args.plot and rows:
        plot(rows, args.plot, args.window)
        print(f"plot: {args.plot}")


if __name__ == "__main__":
    main()
