"""Kafka log directories as a Spark data source, decoded by Rust into Arrow batches.

    import kraftlog.spark

    kraftlog.spark.register(spark)
    spark.read.format("kraftlog").option("path", "kafka-logs").option("topics", "orders").load()

    from kraftlog.spark import decode_batches          # a binary column that holds record batches
    frame.select(inline(decode_batches("batch")))

Needs PySpark 4.1 or later and pyarrow (``pip install 'kraftlog[spark]'``); neither is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kraftlog.extras import require

if TYPE_CHECKING:
    from kraftlog.spark.data_source import KraftlogDataSource, register
    from kraftlog.spark.functions import decode_batches, decode_batches_pandas
    from kraftlog.spark.mapping import MapContext, map_batches, scan
    from kraftlog.spark.parquet import ParquetReport, write_parquet
    from kraftlog.spark.shipment import ship
    from kraftlog.spark.stream_progress import StreamLag, stream_lag
    from kraftlog.spark.write_commit import finish_writes
    from kraftlog.spark.write_prepare import prepare, topic_ids

__all__ = [
    "KraftlogDataSource",
    "MapContext",
    "ParquetReport",
    "StreamLag",
    "decode_batches",
    "decode_batches_pandas",
    "finish_writes",
    "map_batches",
    "prepare",
    "register",
    "scan",
    "ship",
    "stream_lag",
    "topic_ids",
    "write_parquet",
]

_MODULE_OF = {
    "KraftlogDataSource": "kraftlog.spark.data_source",
    "MapContext": "kraftlog.spark.mapping",
    "ParquetReport": "kraftlog.spark.parquet",
    "StreamLag": "kraftlog.spark.stream_progress",
    "decode_batches": "kraftlog.spark.functions",
    "decode_batches_pandas": "kraftlog.spark.functions",
    "finish_writes": "kraftlog.spark.write_commit",
    "map_batches": "kraftlog.spark.mapping",
    "prepare": "kraftlog.spark.write_prepare",
    "register": "kraftlog.spark.data_source",
    "scan": "kraftlog.spark.mapping",
    "ship": "kraftlog.spark.shipment",
    "stream_lag": "kraftlog.spark.stream_progress",
    "topic_ids": "kraftlog.spark.write_prepare",
    "write_parquet": "kraftlog.spark.parquet",
}


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    require("spark", f"kraftlog.spark.{name}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
