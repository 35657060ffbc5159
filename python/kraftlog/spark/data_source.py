"""``spark.read.format("kraftlog")``: the Python Data Source over log directories."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
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
from kraftlog.spark.cluster_options import ClusterOptions, is_cluster_read
from kraftlog.spark.columns import COLUMNS, HEADERS_TYPE, KAFKA_COLUMNS, SourceColumn, find_column, find_columns
from kraftlog.spark.options import BATCH_OPTIONS, STREAM_OPTIONS, SourceOptions
from kraftlog.spark.partition_log import OffsetRange
from kraftlog.spark.plan import Narrowing, plan_tasks
from kraftlog.spark.range_reader import read_range
from kraftlog.spark.worker_python import use_driver_python

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, Filter

    from kraftlog.spark.stream import KraftlogStreamReader

__all__ = ["KraftlogDataSource", "KraftlogReader", "PushdownReader", "TaskPartition", "register", "schema_of"]

logger = logging.getLogger("kraftlog.spark")

_SPARK_TYPES: dict[str, DataType] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "smallint": ShortType(),
    "boolean": BooleanType(),
    "timestamp": TimestampType(),
    HEADERS_TYPE: ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}


class TaskPartition(InputPartition):  # type: ignore[misc]  # pyspark is not typed
    """What one task reads."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class KraftlogDataSource(DataSource):  # type: ignore[misc]  # pyspark is not typed
    """Rows of Kafka log directories with the columns of Spark's own Kafka source.

    Spark hands every column of the schema from Python to the JVM, needed or not: name the few that a job needs with
    ``.schema("value binary, offset bigint")`` or ``.option("columns", "value,offset")``.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format()``."""
        return "kraftlog"

    def schema(self) -> StructType | pa.Schema:
        """Spark's Kafka columns, the headers with ``includeHeaders``, or those of the option ``columns``."""
        if is_cluster_read(self.options):
            found = schema_of(ClusterOptions.parse(self.options, streaming=True).source)
        else:
            known = (*BATCH_OPTIONS, *STREAM_OPTIONS)
            found = schema_of(SourceOptions.parse(self.options, known=known, streaming=True))
        return _arrow_schema(found) if "pysail" in sys.modules else found

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns of ``schema``, which may be any column of the format in any order.

        Raises:
            ValueError: A column that does not exist, one of another type, or other columns than the option names.
        """
        if is_cluster_read(self.options):
            from kraftlog.spark.cluster_source import ClusterReader

            cluster = ClusterOptions.parse(self.options)
            _check_schema(schema, cluster.source)
            return ClusterReader(cluster, list(schema.names))
        options = SourceOptions.parse(self.options)
        _check_schema(schema, options)
        if options.trigger_options_given():
            logger.warning(
                "maxOffsetsPerTrigger, minOffsetsPerTrigger and maxTriggerDelay mean nothing to a batch query"
            )
        return PushdownReader(schema, options) if options.pushdown else KraftlogReader(schema, options)

    def streamReader(self, schema: StructType) -> KraftlogStreamReader:  # noqa: N802 - Spark's name
        """A reader of micro-batches of these columns.

        Raises:
            ValueError: As :meth:`reader`, and a limit where PySpark 4.1 knows none.
        """
        if is_cluster_read(self.options):
            from kraftlog.spark.cluster_source import ClusterStreamReader

            cluster = ClusterOptions.parse(self.options, streaming=True)
            _check_schema(schema, cluster.source)
            return ClusterStreamReader(cluster, list(schema.names))
        from kraftlog.spark.stream import stream_reader

        options = SourceOptions.parse(self.options, known=STREAM_OPTIONS, streaming=True)
        _check_schema(schema, options)
        return stream_reader(options, list(schema.names))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """To a broker with ``kafka.bootstrap.servers``, else to segment files.

        Raises:
            ValueError: A column or an option is wrong.
        """
        from kraftlog.spark.write import batch_writer

        return batch_writer(schema, self.options, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's
        """To a broker.

        Raises:
            ValueError: A column or an option is wrong, or there is no ``kafka.bootstrap.servers``.
        """
        from kraftlog.spark.write import stream_writer

        return stream_writer(schema, self.options, overwrite=overwrite)


class KraftlogReader(DataSourceReader):  # type: ignore[misc]  # pyspark is not typed
    """Plans tasks on the driver and decodes batches on the executors."""

    def __init__(self, schema: Any, options: SourceOptions) -> None:
        # Sail gives a pyarrow.Schema with types of its own; Spark a StructType, whose Arrow form is what we decode to.
        self._arrow_schema = None if isinstance(schema, StructType) else schema
        self._columns: Sequence[str] = list(schema.names)
        self._options = options
        self._narrowing = Narrowing()

    def pruneColumns(self, schema: pa.Schema) -> None:  # noqa: N802 - Sail's name
        """Reads only the columns of ``schema``: what Sail calls before it plans, with what a query needs."""
        self._arrow_schema = schema
        self._columns = list(schema.names)

    def partitions(self) -> Sequence[InputPartition]:
        """One for each task; runs on the driver."""
        return [TaskPartition(ranges) for ranges in plan_tasks(self._options, self._narrowing)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The Arrow batches of a task. An empty log has no task, for which Spark asks with None."""
        ranges = partition.ranges if isinstance(partition, TaskPartition) else ()
        for batch in read_range(ranges, self._options, self._columns, keys=self._narrowing.keys):
            yield batch if self._arrow_schema is None or not self._columns else batch.cast(self._arrow_schema)


class PushdownReader(KraftlogReader):
    """Takes filters from Spark; a class of its own, as Spark refuses readers that do unless it is configured to."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Plans and reads by the filters; gives back those that Spark has to apply itself."""
        from kraftlog.spark.pushdown import take_filters

        self._narrowing, self._options, left = take_filters(filters, self._options)
        return left


def schema_of(options: SourceOptions) -> StructType:
    """The schema when the user gives none: the option ``columns``, else Kafka's."""
    if options.columns is not None:
        columns: Sequence[SourceColumn] = find_columns(options.columns)
        return StructType([_field(name, column) for name, column in zip(options.columns, columns, strict=True)])
    columns = COLUMNS[: len(KAFKA_COLUMNS) + 1] if options.include_headers else KAFKA_COLUMNS
    return StructType([_field(column.name, column) for column in columns])


def _arrow_schema(schema: StructType) -> pa.Schema:
    """As Arrow's schema, for Sail: it turns Spark's into one without a zone, at which PySpark 4.2 fails."""
    import pyarrow as pa

    names = [column.scan_name for column in find_columns(schema.names)]
    found = pa.schema(scan_stream([], columns=names, timestamp_unit="us"))
    return pa.schema([field.with_name(name) for field, name in zip(found, schema.names, strict=True)])


def register(spark: SparkSession) -> None:
    """Makes ``kraftlog`` and its siblings ``-batches``, ``-metadata`` and ``-offsets`` formats of this session.

    The Python workers of a local session are the driver's interpreter from then on, unless ``PYSPARK_PYTHON`` or
    ``spark.pyspark.python`` names another one.
    """
    from kraftlog.spark.batches import KraftlogBatchesDataSource
    from kraftlog.spark.metadata import KraftlogMetadataDataSource
    from kraftlog.spark.offsets import KraftlogOffsetsDataSource

    use_driver_python(spark)
    for source in (
        KraftlogDataSource,
        KraftlogBatchesDataSource,
        KraftlogMetadataDataSource,
        KraftlogOffsetsDataSource,
    ):
        spark.dataSource.register(source)


def _field(name: str, column: SourceColumn) -> StructField:
    return StructField(name, _SPARK_TYPES[column.type_name])


def _check_schema(schema: Any, options: SourceOptions) -> None:
    names = list(schema.names)
    find_columns(names)
    if options.columns is not None and list(options.columns) != names:
        message = f"option columns names {', '.join(options.columns)}, the schema {', '.join(names)}: give one of them"
        raise ValueError(message)
    if options.include_headers and all(find_column(name).name != "headers" for name in names):
        message = f"option includeHeaders asks for headers, which are not among the columns {', '.join(names)}"
        raise ValueError(message)
    if not isinstance(schema, StructType):
        return
    for field in schema.fields:
        column = find_column(field.name)
        if field.dataType != _SPARK_TYPES[column.type_name]:
            message = f"column {field.name} is {column.type_name}, not {field.dataType.simpleString()}"
            raise ValueError(message)
        if not field.nullable:
            message = f"column {field.name} can be null as far as Spark is concerned: leave NOT NULL out"
            raise ValueError(message)
