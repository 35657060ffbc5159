"""Functions that run beside the decoder: record bytes stay in the worker, and only what they give goes to the JVM."""

from __future__ import annotations

import base64
import inspect
import json
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from kraftlog.spark.columns import KAFKA_COLUMNS, find_columns
from kraftlog.spark.data_source import KraftlogDataSource
from kraftlog.spark.options import BATCH_OPTIONS, SourceOptions
from kraftlog.spark.partition_log import OffsetRange
from kraftlog.spark.plan import plan_tasks
from kraftlog.spark.range_reader import read_range
from kraftlog.spark.worker_python import use_driver_python

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["MapContext", "map_batches", "map_tasks", "option_texts", "plan_ranges", "run_on_driver", "scan"]

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
Ranges: TypeAlias = tuple[OffsetRange, ...]
# Task number and what it reads to Arrow batches of the schema asked for.
TaskFunction: TypeAlias = "Callable[[int, Ranges], Iterable[pa.RecordBatch]]"

# Column pruning is what columns= is for here, and no filters are handed down.
_OPTIONS = tuple(
    name for name in BATCH_OPTIONS if name not in {"path", "paths", "columns", "pushdown"} and "Trigger" not in name
)


@dataclass(frozen=True, slots=True)
class MapContext:
    """Which records a function gets.

    Args:
        task: Number of the task, from 0.
        topic: Their topic.
        partition: Its partition.
        start_offset: First offset, inclusive.
        end_offset: Exclusive end. Not every offset in between need have a record.
        path: Directory of the partition.
    """

    task: int
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    path: str


def scan(
    spark: SparkSession,
    path: Paths,
    *,
    columns: Sequence[str] | None = None,
    include_headers: bool = False,
    **options: Any,
) -> DataFrame:
    """``spark.read.format("kraftlog")`` as a function.

    Args:
        spark: The session, classic or Connect; the format is registered with it.
        path: A log directory, the directory of a partition, or several of either.
        columns: Only these columns, which spares decoding and the way to the JVM.
        include_headers: The headers too, when ``columns`` is None.
        options: Options of the format by name, such as ``subscribe="orders"``, ``startingTimestamp=1700000000000``; for
            names with a dot, ``**{"kafka.isolation.level": "read_committed"}``. Mappings become JSON.

    Raises:
        ValueError: An option or column that does not exist.
    """
    texts = option_texts(path, options)
    if columns is not None:
        find_columns(columns)
        texts["columns"] = ",".join(columns)
    elif include_headers:
        texts["includeHeaders"] = "true"
    SourceOptions.parse(texts)
    use_driver_python(spark)
    spark.dataSource.register(KraftlogDataSource)
    return spark.read.format("kraftlog").options(**texts).load()


def map_batches(
    spark: SparkSession,
    path: Paths,
    fn: Callable[..., Iterable[pa.RecordBatch]],
    schema: StructType | str,
    *,
    columns: Sequence[str] | None = None,
    **options: Any,
) -> DataFrame:
    """What ``fn`` gives for the records of log directories, in tasks of about ``splitBytes``.

    ``fn`` is called in the Python worker that decodes, so that only its results cross to the JVM: reduce there, or
    write files there. It is called once in each task with an iterator of Arrow batches. A function with a parameter
    named ``context`` is called once for each range of offsets of a partition instead, with a :class:`MapContext` of it.
    Spark may run a task more than once, and uses the results of one run.

    Args:
        spark: The session. With Spark Connect the planning runs in a task of the cluster, where the directories are;
            else in this process.
        path: A log directory, the directory of a partition, or several of either.
        fn: Iterator of ``pyarrow.RecordBatch`` to an iterable of such, or of ``pyarrow.Table``, with the columns of
            ``schema`` in any order. Pickled, as for ``mapInArrow``.
        schema: Of the results: Spark's type, or text such as ``"topic string, bytes bigint"``.
        columns: Columns of the batches, in order; Spark's Kafka columns when None. Those that are left out are not
            decoded; with ``[]`` batches only have a number of rows.
        options: Options of ``format("kraftlog")`` by name.

    Returns:
        The results, when a query asks for them. The plan is made now: what is appended later is not in it.

    Raises:
        ValueError: An option or column that does not exist.
        FileNotFoundError: A path or topic does not exist.
        OffsetOutOfRangeError: An offset option is outside what a log has.

    Example: ``map_batches(spark, "kafka-logs", count, "rows bigint", columns=["offset"], subscribe="orders")``
    """
    names = [column.name for column in KAFKA_COLUMNS] if columns is None else list(columns)
    find_columns(names)
    texts = option_texts(path, options)
    parsed = SourceOptions.parse(texts)
    wants_context = "context" in inspect.signature(fn).parameters

    def run(task: int, ranges: Ranges) -> Iterator[pa.RecordBatch]:
        if not wants_context:
            yield from fn(read_range(ranges, parsed, names))
            return
        for range_ in ranges:
            context = MapContext(
                task, range_.topic, range_.partition, range_.start_offset, range_.end_offset, range_.path
            )
            yield from fn(read_range([range_], parsed, names), context=context)

    return map_tasks(spark, plan_ranges(spark, texts), run, schema)


def map_tasks(spark: SparkSession, tasks: Sequence[Ranges], run: TaskFunction, schema: StructType | str) -> DataFrame:
    """What ``run`` gives for each task, with a Spark task for each."""
    found = _struct_of(schema)
    if not tasks:
        return spark.createDataFrame([], found)
    arrow_schema = _arrow_schema(found)
    use_driver_python(spark)

    def run_numbers(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for task in batch.column(0).to_pylist():
                for rows in run(task, tasks[task]):
                    yield from _conform(rows, arrow_schema)

    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run_numbers, found)


def plan_ranges(spark: SparkSession, texts: Mapping[str, str]) -> list[Ranges]:
    """The ranges of each task.

    Raises:
        ValueError, FileNotFoundError, LogError: As :func:`kraftlog.spark.plan.plan_tasks`; through Spark Connect as the
            error of a failed query with that text.
    """
    options = dict(texts)
    if not _is_connect(spark):
        return plan_tasks(SourceOptions.parse(options))

    def plan() -> list[str]:
        tasks = plan_tasks(SourceOptions.parse(options))
        return [base64.b64encode(pickle.dumps(task)).decode() for task in tasks]

    # From a task of our own on the cluster that this client commands.
    return [pickle.loads(base64.b64decode(text)) for text in run_on_driver(spark, plan)]  # noqa: S301


def run_on_driver(spark: SparkSession, work: Callable[[], Sequence[str]]) -> list[str]:
    """Texts that ``work`` gives: here, or with Spark Connect, whose client may see no files, in a task."""
    if not _is_connect(spark):
        return list(work())

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for _ in numbers:
            yield pa.record_batch({"text": pa.array(work(), pa.string())})

    return [row.text for row in spark.range(0, 1, 1, 1).mapInArrow(run, "text string").collect()]


def option_texts(path: Paths, options: Mapping[str, Any]) -> dict[str, str]:
    """Options as Spark passes them on: text.

    Raises:
        ValueError: An option that does not exist.
    """
    known = {name.lower() for name in _OPTIONS}
    unknown = sorted(name for name in options if name.lower() not in known)
    if unknown:
        message = f"unknown option {', '.join(unknown)}: there are {', '.join(_OPTIONS)}"
        raise ValueError(message)
    texts = {name: _text(name, value) for name, value in options.items() if value is not None}
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    texts["paths"] = json.dumps([os.fspath(path) for path in paths])
    return texts


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, str | int):
        return str(value)
    if isinstance(value, Sequence) and all(isinstance(entry, str) for entry in value):
        return ",".join(value)
    message = f"option {name} is text, a number, true or false, a list of names or a mapping, not {value!r}"
    raise ValueError(message)


def _is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _struct_of(schema: StructType | str) -> StructType:
    from pyspark.sql.types import StructType

    return StructType.fromDDL(schema) if isinstance(schema, str) else schema


def _arrow_schema(schema: StructType) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def _conform(rows: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows with exactly the columns and types of the schema, as the JVM has to have them."""
    import pyarrow as pa

    if not isinstance(rows, pa.RecordBatch | pa.Table):
        message = f"fn must return pyarrow.RecordBatch or pyarrow.Table, not {type(rows).__name__}"
        raise TypeError(message)
    if sorted(rows.schema.names) != sorted(schema.names):
        message = f"fn returned the columns {', '.join(rows.schema.names)}, the schema has {', '.join(schema.names)}"
        raise ValueError(message)
    found = rows.select(schema.names).cast(schema)
    yield from found.to_batches() if isinstance(found, pa.Table) else [found]
