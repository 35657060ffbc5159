"""Rows brought into the order that the segment writer needs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kraftlog._kraftlog import key_partitions
from kraftlog.reading import LogDir
from kraftlog.spark.worker_python import use_driver_python

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

__all__ = ["prepare", "topic_ids"]


def prepare(
    df: DataFrame,
    *,
    partitions: int | None = None,
    order_by: Sequence[str] = (),
    tasks: int | None = None,
) -> DataFrame:
    """The rows with a column ``partition``, all of a partition in one task and in order.

    Args:
        df: Rows with the writer's columns.
        partitions: How many partitions the topic has: each row gets the partition that Kafka's default partitioner
            gives its key (murmur2), or its value where the key is null. Left out when there is a column ``partition``.
        order_by: Columns by which the rows of a partition are sorted. When empty: ``offset`` if there is one, else
            ``timestamp`` if there is one, else in no promised order.
        tasks: How many tasks write, ``spark.sql.shuffle.partitions`` when None. A partition is written by one task.

    Returns:
        What ``df.write.format("kraftlog")`` takes.

    Raises:
        ValueError: The partition is to come from a column and from a count, or from neither.
    """
    from pyspark.sql import functions

    has_column = "partition" in df.columns
    if has_column == (partitions is not None):
        raise ValueError("prepare takes the partition from the column partition, or from partitions=n and the key")
    use_driver_python(df.sparkSession)
    if partitions is not None:
        if partitions < 1:
            message = f"partitions must be at least 1, not {partitions}"
            raise ValueError(message)
        key = functions.col("key") if "key" in df.columns else functions.lit(None).cast("binary")
        df = df.withColumn("partition", _partition_of(key, functions.col("value"), partitions))
    where = [name for name in ("topic", "partition") if name in df.columns]
    order = list(order_by) or [name for name in ("offset", "timestamp") if name in df.columns][:1]
    count = (tasks,) if tasks is not None else ()
    return df.repartition(*count, *where).sortWithinPartitions(*where, *order)


def topic_ids(directory: str | os.PathLike[str]) -> dict[str, str]:
    """The ids of the topics in a log directory, for ``json.dumps`` and the option ``topicIds``.

    Args:
        directory: A log directory of a broker or of a backup; its broker may run.
    """
    return {topic.name: str(topic.topic_id) for topic in LogDir(directory).topics if topic.topic_id is not None}


def _partition_of(key: Column, value: Column, partitions: int) -> Column:
    from pyspark.sql.functions import arrow_udf

    def partition_of(keys: pa.Array, values: pa.Array) -> pa.Array:
        import pyarrow as pa

        found: Any = key_partitions(keys, values, partitions)
        return pa.array(found)

    import pyarrow as pa

    # Spark reads the annotations of the function to see that it maps arrays to an array.
    partition_of.__annotations__ = {"keys": pa.Array, "values": pa.Array, "return": pa.Array}
    column: Column = arrow_udf(partition_of, "int")(key, value)
    return column
