"""What the jobs of this folder share: the Spark session, times, and small tables."""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
from collections.abc import Iterable, Sequence

from pyspark.sql import SparkSession

import kraftlog.spark


def add_session_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that say where a job runs."""
    parser.add_argument("--master", help="Spark master (default: what spark-submit says, else local[*])")
    parser.add_argument("--ship", action="store_true", help="send kraftlog to executors that do not have it")


def make_session(name: str, args: argparse.Namespace) -> SparkSession:
    """A session with the settings that we recommend; spark-submit's and those of spark-defaults.conf are kept."""
    builder = SparkSession.builder.appName(name)
    under_spark_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    if args.master or not under_spark_submit:
        builder = builder.master(args.master or "local[*]")
    if not under_spark_submit:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
        if (args.master or "local").startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    # Dates in paths and tables are UTC's; and less CPU for each row than TCP between the JVM and Python (Spark 4.1+).
    spark = (
        builder.config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    if args.ship:
        kraftlog.spark.ship(spark)
    else:
        kraftlog.spark.register(spark)
    return spark


def instant(text: str) -> dt.datetime:
    """A point in time from ISO 8601 text, UTC where it names no zone."""
    moment = dt.datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


def bytes_text(count: float) -> str:
    """A size for people: 1536 is 1.5 KiB."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def time_text(milliseconds: int | None) -> str:
    """A timestamp in UTC to the second; empty for none."""
    if milliseconds is None or milliseconds < 0:
        return ""
    return f"{dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC):%Y-%m-%d %H:%M:%S}"


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]], *, more: int = 0) -> None:
    """Columns as wide as they need; numbers to the right. ``more`` is how many rows there are, shown or not."""
    lines = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]
    to_right = [
        all(line[place][:1].isdigit() or not line[place] for line in lines) and bool(lines)
        for place in range(len(header))
    ]
    for line in ([*header], *lines):
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, to_right, strict=True)
        )
        print("  ".join(cells).rstrip())
    if more > len(lines):
        print(f"... {more - len(lines)} more; --rows 0 prints all")
