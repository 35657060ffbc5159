"""Functions for columns that hold record batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.functions import arrow_udf

from kraftlog._kraftlog import decode_batches_nested

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

__all__ = ["decode_batches"]

_RECORD = "key: binary, value: binary, offset: bigint, timestamp: timestamp, timestampType: int"
_HEADERS = "headers: array<struct<key: string, value: binary>>"
_COLUMNS = ("key", "value", "offset", "timestamp", "timestampType")


def decode_batches(batches: Column | str, *, include_headers: bool = False, verify_crc: bool = True) -> Column:
    """The records of each cell of a binary column of record batches, as an array of structs.

    A cell may hold several batches; a truncated one at its end is left out, a null stays null. Where the bytes are
    files, read the files with the data source instead: it costs a fifth, as no batch crosses from the JVM first.

    Args:
        batches: The column, or its name.
        include_headers: The structs have the headers too.
        verify_crc: Compare the checksum of each batch.

    Example: ``frame.select(inline(decode_batches("batch")))``
    """
    columns = [*_COLUMNS, "headers"] if include_headers else list(_COLUMNS)
    record = f"{_RECORD}, {_HEADERS}" if include_headers else _RECORD

    def decode(cells: pa.Array) -> pa.Array:
        import pyarrow as pa

        buffers = [cell.as_buffer() if cell.is_valid else None for cell in cells]
        records: Any = decode_batches_nested(
            buffers, columns=columns, timestamp_unit="us", empty_headers_null=True, check_crc=verify_crc
        )
        return pa.array(records)

    # Spark reads the annotations of the function to see that it maps arrays to arrays.
    decode.__annotations__ = _array_annotations()
    column: Column = arrow_udf(decode, f"array<struct<{record}>>")(batches)
    return column


def _array_annotations() -> dict[str, type]:
    import pyarrow as pa

    return {"cells": pa.Array, "return": pa.Array}
