"""Which writer a ``df.write`` or ``df.writeStream`` gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["batch_writer", "stream_writer"]

BOOTSTRAP_SERVERS = "kafka.bootstrap.servers"


def batch_writer(schema: StructType, options: Mapping[str, str], *, overwrite: bool) -> DataSourceWriter:
    """The writer of ``df.write``: to a broker with ``kafka.bootstrap.servers``, else to segment files.

    Raises:
        ValueError: A column or an option is wrong; names it.
    """
    if BOOTSTRAP_SERVERS in {name.lower() for name in options}:
        from kraftlog.spark.write_produce import ProduceOptions, ProduceWriter

        if overwrite:
            raise ValueError("mode overwrite is not supported when rows are produced to a broker: use mode append")
        return ProduceWriter(schema, ProduceOptions.parse(options))
    from kraftlog.spark.write_segments import SegmentOptions, SegmentWriter

    return SegmentWriter(schema, SegmentOptions.parse(options), overwrite=overwrite)


def stream_writer(schema: StructType, options: Mapping[str, str], *, overwrite: bool) -> DataSourceStreamWriter:
    """The writer of ``df.writeStream``, which produces to a broker.

    Raises:
        ValueError: A column or an option is wrong, or segment files are asked for.
    """
    if BOOTSTRAP_SERVERS not in {name.lower() for name in options}:
        raise ValueError(
            f"a stream is written to a broker, with option {BOOTSTRAP_SERVERS}; segment files are written by df.write "
            "only, for example of each batch in foreachBatch"
        )
    if overwrite:
        raise ValueError("output mode complete is not supported: records that were produced stay")
    from kraftlog.spark.write_produce import ProduceOptions, ProduceStreamWriter

    return ProduceStreamWriter(schema, ProduceOptions.parse(options))
