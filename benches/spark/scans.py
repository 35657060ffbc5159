"""The queries in Spark: its own Kafka source, kraftlog by columns, the channel alone, and work done in the workers."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker_data import topic_bytes
from measuring import Case

from interop.harness import KafkaServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY_VALUE_OFFSET = "key,value,offset"
SUM = ("count(*)", "sum(length(value))")


def make_session(connector: str) -> SparkSession:
    """local[2], warm, without what a test run does not want."""
    from noop_source import NoopSource
    from pyspark.sql import SparkSession

    import kraftlog.spark

    session = (
        SparkSession.builder.master("local[2]")
        .appName("kraftlog-bench")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraClassPath", connector)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    kraftlog.spark.register(session)
    session.dataSource.register(NoopSource)
    return session


@dataclass
class Topic:
    """A topic of the broker and the ways to read it."""

    spark: SparkSession
    server: KafkaServer
    name: str
    rows: int
    value_bytes: int
    scratch: Path

    @property
    def size_bytes(self) -> int:
        return topic_bytes(self.server, self.name)

    def kafka(self, **options: str) -> DataFrame:
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.server.bootstrap)
        return reader.options(subscribe=self.name, **options).load()

    def ours(self, columns: str | None = None, **options: str) -> DataFrame:
        reader = self.spark.read.format("kraftlog").options(path=str(self.server.data_dir), **options)
        if columns is not None:
            reader = reader.option("columns", columns)
        return reader.option("subscribe", self.name).load()

    def noop(self) -> DataFrame:
        reader = self.spark.read.format("noop-values").option("rows", self.rows)
        tasks = self.ours("value").rdd.getNumPartitions()
        return reader.option("tasks", tasks).option("valueBytes", self.value_bytes).load()

    def case(self, group: str, name: str, run: Callable[[], Any]) -> Case:
        return Case(name, run, self.rows, self.size_bytes, f"{self.name}: {group}")

    def queries(self) -> dict[str, Iterator[Case]]:
        """What is measured on this topic; some questions are put to a part of the topics only."""
        # The channel's goal is about records without a codec; it alternates with what it bounds.
        is_plain = self.name.endswith("-none")
        found = {"sum": itertools.chain(self.sums(), self.channel() if is_plain else ()), "group": self.groups()}
        if not self.name.endswith("-zstd"):
            found |= {"count": self.counts(), "parquet": self.parquet(), "reduce": self.reduced()}
        if is_plain:
            found["batches"] = self.headers_only()
        return found

    def sums(self) -> Iterator[Case]:
        """Rows and the sum of the lengths of values; the same answer in every case."""
        yield self.case("sum", "spark-sql-kafka", lambda: collect(self.kafka(), *SUM))
        yield self.case("sum", "all 7 columns", lambda: collect(self.ours(), *SUM))
        yield self.case("sum", KEY_VALUE_OFFSET, lambda: collect(self.ours(KEY_VALUE_OFFSET), *SUM))
        yield self.case("sum", "value", lambda: collect(self.ours("value"), *SUM))
        length = ("count(*)", "sum(valueLength)")
        yield self.case("sum", "valueLength", lambda: collect(self.ours("valueLength"), *length))

    def channel(self) -> Iterator[Case]:
        noop = self.noop()
        yield self.case("channel", "no-op source", lambda: collect(noop, *SUM))

    def counts(self) -> Iterator[Case]:
        yield self.case("count", "spark-sql-kafka", lambda: self.kafka().count())
        yield self.case("count", "offset", lambda: self.ours("offset").count())

    def groups(self) -> Iterator[Case]:
        """Lengths summed by the first 9 bytes of the key, of which there are 10 000."""
        yield self.case("group", "spark-sql-kafka", lambda: grouped(self.kafka()))
        yield self.case("group", "all 7 columns", lambda: grouped(self.ours()))
        yield self.case("group", KEY_VALUE_OFFSET, lambda: grouped(self.ours(KEY_VALUE_OFFSET)))

    def reduced(self) -> Iterator[Case]:
        """The sum again, but made beside the decoder."""
        yield self.case("reduce", "spark-sql-kafka", lambda: collect(self.kafka(), *SUM))
        yield self.case("reduce", "map_batches", self.reduce_in_workers)

    def reduce_in_workers(self) -> tuple[int, ...]:
        from kraftlog.spark import map_batches

        def reduce(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa
            import pyarrow.compute as pc

            rows = total = 0
            for batch in batches:
                rows += batch.num_rows
                total += pc.sum(pc.binary_length(batch["value"])).as_py() or 0
            yield pa.record_batch({"rows": [rows], "total": [total]})

        options = {"columns": ["value"], "subscribe": self.name}
        frame = map_batches(self.spark, self.server.data_dir, reduce, "rows bigint, total bigint", **options)
        return collect(frame, "sum(rows)", "sum(total)")

    def parquet(self) -> Iterator[Case]:
        """Key, value and offset to Parquet files (snappy)."""
        yield self.case("parquet", "spark-sql-kafka", lambda: self.written(self.kafka()))
        yield self.case("parquet", "data source", lambda: self.written(self.ours(KEY_VALUE_OFFSET)))
        yield self.case("parquet", "write_parquet", self.write_in_workers)

    def written(self, frame: DataFrame) -> int:
        target = self.scratch / "by-spark"
        shutil.rmtree(target, ignore_errors=True)
        frame.select("key", "value", "offset").write.parquet(str(target))
        return parquet_rows(target)

    def write_in_workers(self) -> int:
        from kraftlog.spark import write_parquet

        target = self.scratch / "by-workers"
        shutil.rmtree(target, ignore_errors=True)
        columns = KEY_VALUE_OFFSET.split(",")
        write_parquet(self.spark, self.server.data_dir, target, columns=columns, subscribe=self.name)
        return parquet_rows(target)

    def headers_only(self) -> Iterator[Case]:
        """Records counted by the headers of their batches."""
        reader = self.spark.read.format("kraftlog-batches").option("path", str(self.server.data_dir))
        frame = reader.option("subscribe", self.name).load()
        yield self.case("batches", "kraftlog-batches", lambda: collect(frame, "sum(recordCount)"))


def parquet_rows(folder: Path) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))


def collect(frame: DataFrame, *expressions: str) -> tuple[int, ...]:
    return tuple(frame.selectExpr(*expressions).collect()[0])


def grouped(frame: DataFrame) -> int:
    wanted = frame.selectExpr("substring(key, 1, 9) as part", "length(value) as size")
    return int(wanted.groupBy("part").sum("size").count())
