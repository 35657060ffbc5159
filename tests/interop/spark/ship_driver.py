"""A driver that has kraftlog while its executors have not; prints what it found as one line of JSON.

ship_driver.py PACKAGES URL NODE KRAFT: the directory of our packages, the master or Connect server, a log directory of
a broker and one of a controller.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, sys.argv[1])  # what an installed wheel is to this process, and to no child of it

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import kraftlog.spark

URL, NODE, KRAFT = sys.argv[2:5]
TOPICS = "g-none,g-zstd"


def session() -> SparkSession:
    if URL.startswith("sc://"):
        return SparkSession.builder.remote(URL).create()
    sys.path.insert(1, str(Path(__file__).parents[2]))
    from interop.spark.clusters import SETTINGS

    builder = SparkSession.builder.master(URL).appName("ship")
    for setting in SETTINGS:
        builder = builder.config(*setting.split("=", 1))
    return builder.getOrCreate()


def origin(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import kraftlog._kraftlog

    for _ in batches:
        files = {
            "package": kraftlog.__file__,
            "library": kraftlog._kraftlog.__file__,
            "python": sys.executable,
        }
        yield pa.RecordBatch.from_pylist([{name: os.path.abspath(file) for name, file in files.items()}])


def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"rows": [sum(len(batch) for batch in batches)]})


def failure(action: Callable[[], Any]) -> str:
    try:
        return f"no error, but {action()!r}"
    except Exception as error:  # noqa: BLE001 - what it is, is the question
        return str(error)


def read(spark: SparkSession) -> Any:
    reader = spark.read.format("kraftlog").option("path", NODE).option("subscribe", TOPICS)
    return reader.schema("topic string, offset bigint, value binary").load()


def stream(spark: SparkSession, directory: Path) -> int:
    """Rows of a streaming query that ends with what is there."""
    reader = spark.readStream.format("kraftlog").option("path", NODE).option("subscribe", TOPICS)
    frame = reader.option("startingOffsets", "earliest").schema("topic string, offset bigint").load()
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(directory / "rows"))
    query.awaitTermination(120)
    return spark.read.parquet(str(directory / "rows")).count()


def main() -> None:
    spark = session()
    found: dict[str, Any] = {}
    kraftlog.spark.register(spark)
    found["before"] = failure(lambda: read(spark).count())
    shipped = kraftlog.spark.ship(spark)
    found["shipped"] = dataclasses.asdict(shipped)
    found["again"] = kraftlog.spark.ship(spark) == shipped
    sums = read(spark).groupBy("topic").agg(F.count("*"), F.sum("offset"), F.sum(F.length("value")))
    found["rows"] = sorted(map(list, sums.collect()))
    files = spark.range(4).repartition(2).mapInArrow(origin, "package string, library string, python string")
    for row in files.collect():
        for name, file in row.asDict().items():
            found[name] = sorted({*found.get(name, ()), file})
    cells = [(bytearray(path.read_bytes()),) for path in Path(NODE, "g-zstd-0").glob("*.log")]
    raw = spark.createDataFrame(cells, "batches binary")
    found["decoded"] = raw.select(F.inline(kraftlog.spark.decode_batches("batches"))).count()
    mapped = kraftlog.spark.map_batches(spark, NODE, count, "rows bigint", columns=["offset"], subscribe=TOPICS)
    found["mapped"] = sum(row.rows for row in mapped.collect())
    headers = spark.read.format("kraftlog-batches").option("path", NODE).option("subscribe", TOPICS).load()
    found["frame"] = headers.where("not isControl").agg(F.sum("recordCount")).first()[0]
    metadata = spark.read.format("kraftlog-metadata").option("table", "topics").option("latest", "true")
    found["metadata"] = sorted(row.topic for row in metadata.load(KRAFT).collect())
    groups = spark.read.format("kraftlog-offsets").option("endOffset", "logEnd").option("path", NODE).load()
    found["offsets"] = groups.count()
    folder = str(Path.cwd() / "parquet")
    report = kraftlog.spark.write_parquet(spark, NODE, folder, columns=["offset", "value"], subscribe=TOPICS)
    found["parquet"] = [report.rows, spark.read.parquet(folder).count()]
    if URL.startswith("sc://"):
        found["stream"] = failure(lambda: stream(spark, Path.cwd() / "stream"))
    else:
        found["stream"] = stream(spark, Path.cwd() / "stream")
    spark.stop()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
