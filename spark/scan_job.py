"""Scan a node's data directory with Spark and hold what is found against what was produced.

    python spark/generate_data.py /tmp/kraftlog-data
    python spark/scan_job.py /tmp/kraftlog-data

Prints count, sum of value lengths and an order-free hash for each topic; the exit status is 1 if one differs from
``expected.json``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from job_session import add_session_arguments, make_session, print_table
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark job uses


def row_hash() -> Column:
    """The hash of ``generate_data.row_hash`` in Spark's words."""

    def part(name: str) -> Column:
        absent = F.lit(bytearray(b"\0"))
        return F.coalesce(F.concat(F.lit(bytearray(b"\1")), F.col(name)), absent)

    return F.crc32(F.concat(part("key"), F.lit(bytearray(b"\x1f")), part("value")))


def scan(spark: SparkSession, directory: Path) -> dict[str, dict[str, int]]:
    """Count, sum of value lengths and sum of hashes for each topic of a log directory."""
    frame = spark.read.format("kraftlog").option("path", str(directory)).option("columns", "key,value,topic").load()
    rows = (
        frame.groupBy("topic")
        .agg(
            F.count(F.lit(1)).alias("count"),
            F.coalesce(F.sum(F.length("value")), F.lit(0)).alias("value_bytes"),
            F.sum(row_hash()).alias("hash"),
        )
        .collect()
    )
    return {row["topic"]: {name: int(row[name]) for name in ("count", "value_bytes", "hash")} for row in rows}


def main() -> int:
    """Scans, prints and compares; 1 when something differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, help="what generate_data.py made")
    add_session_arguments(parser)
    args = parser.parse_args()
    expected = json.loads((args.directory / "expected.json").read_text())
    spark = make_session("kraftlog scan", args)
    try:
        started = time.perf_counter()
        found = scan(spark, args.directory / "node")
        seconds = time.perf_counter() - started
    finally:
        spark.stop()
    wrong = [topic for topic in expected if found.get(topic) != expected[topic]]
    print_table(
        ("topic", "rows", "value bytes", "hash", "as produced"),
        [
            (topic, *found.get(topic, dict.fromkeys(expected[topic], 0)).values(), "no" if topic in wrong else "yes")
            for topic in sorted(expected)
        ],
    )
    for topic in wrong:
        print(f"{topic}: expected {expected[topic]}, found {found.get(topic)}")
    print(
        f"{sum(row['count'] for row in found.values())} rows in {seconds:.2f} s, the start of Python workers included"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
