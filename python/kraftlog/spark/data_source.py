"""``spark.read.format("kraftlog")``: the Python Data Source over log directories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kraftlog._kraftlog import scan_stream
from kraftlog.spark.options import SourceOptions
from kraftlog.spark.plan import OffsetRange, plan_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["KraftlogDataSource", "KraftlogReader", "register"]

# Rows of an Arrow batch: 1024 cost Spark 45 % more CPU than 4096, from there on it is flat.
BATCH_ROWS = 16384
BATCH_BYTES = 8 << 20

HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
KAFKA_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
}
# Columns that have to be asked for by a schema or by the option columns.
FURTHER_TYPES: dict[str, DataType] = {
    "headers": HEADERS_TYPE,
    "leader_epoch": IntegerType(),
    "producer_id": LongType(),
    "producer_epoch": ShortType(),
    "is_transactional": BooleanType(),
    "is_control": BooleanType(),
}


class TaskPartition(InputPartition):  # type: ignore[misc]  # pyspark is not typed
    """What one task reads."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class KraftlogDataSource(DataSource):  # type: ignore[misc]  # pyspark is not typed
    """Rows of Kafka log directories with the columns of Spark's own Kafka source; batch reads.

    Spark hands every column of the schema from Python to the JVM, needed or not: name the few that a job needs with
    ``.schema("value binary, offset bigint")`` or ``.option("columns", "value,offset")``.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format()``."""
        return "kraftlog"

    def schema(self) -> StructType:
        """Spark's Kafka columns, the headers with ``includeHeaders``, or those of the option ``columns``."""
        options = SourceOptions.parse(self.options)
        names = options.columns
        if names is None:
            names = (*KAFKA_TYPES, "headers") if options.include_headers else tuple(KAFKA_TYPES)
        return StructType([StructField(name, _type_of(name)) for name in names])

    def reader(self, schema: StructType) -> KraftlogReader:
        """A reader of the columns of ``schema``, which may be any of ours in any order.

        Raises:
            ValueError: A column that does not exist, or one of another type.
        """
        if isinstance(schema, StructType):
            for field in schema.fields:
                wanted = _type_of(field.name)
                if field.dataType != wanted:
                    message = f"column {field.name} is {wanted.simpleString()}, not {field.dataType.simpleString()}"
                    raise ValueError(message)
        return KraftlogReader(schema, SourceOptions.parse(self.options))


class KraftlogReader(DataSourceReader):  # type: ignore[misc]  # pyspark is not typed
    """Plans tasks on the driver and decodes batches on the executors."""

    def __init__(self, schema: Any, options: SourceOptions) -> None:
        # Sail gives a pyarrow.Schema with types of its own; Spark a StructType, whose Arrow form is what we decode to.
        self._arrow_schema = None if isinstance(schema, StructType) else schema
        self._columns: Sequence[str] = list(schema.names)
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """One for each task; runs on the driver."""
        return [TaskPartition(ranges) for ranges in plan_tasks(self._options)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The Arrow batches of a task. An empty log has no task, for which Spark asks with None."""
        import pyarrow as pa

        ranges = partition.ranges if isinstance(partition, TaskPartition) else ()
        stream = scan_stream(
            [(one.path, one.topic, one.partition, one.start_offset, one.end_offset, None) for one in ranges],
            columns=self._columns,
            timestamp_unit="us",
            empty_headers_null=True,
            batch_rows=BATCH_ROWS,
            batch_bytes=BATCH_BYTES,
            check_crc=self._options.verify_crc,
            trust_headers=not self._options.verify_crc,
            include_control=self._options.control_records,
            from_timestamp=self._options.from_timestamp,
            to_timestamp=self._options.to_timestamp,
        )
        for batch in stream:
            rows = pa.record_batch(batch)
            yield rows if self._arrow_schema is None else rows.cast(self._arrow_schema)


def register(spark: SparkSession) -> None:
    """Makes ``kraftlog`` a format of this session."""
    spark.dataSource.register(KraftlogDataSource)


def _type_of(name: str) -> DataType:
    found = KAFKA_TYPES.get(name) or FURTHER_TYPES.get(name)
    if found is None:
        message = f"no column {name!r}: there are {', '.join([*KAFKA_TYPES, *FURTHER_TYPES])}"
        raise ValueError(message)
    return found
