"""Functions for columns that hold record batches."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql.functions import arrow_udf, pandas_udf

from kraftlog._kraftlog import decode_cells
from kraftlog.errors import CorruptRecordError, LogError
from kraftlog.spark.columns import SourceColumn, find_columns
from kraftlog.spark.worker_python import use_driver_python

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import Column, SparkSession

__all__ = ["decode_batches", "decode_batches_pandas"]

logger = logging.getLogger("kraftlog.spark")

OnError = Literal["fail", "null"]

_COLUMNS = ("key", "value", "offset", "timestamp", "timestampType")
# Bytes of keys and values in one Arrow array for the JVM, unless one cell alone has more: Arrow's end at 2 GiB.
_PIECE_BYTES = 64 << 20


def decode_batches(
    batches: Column | str,
    *,
    columns: Sequence[str] = _COLUMNS,
    include_headers: bool = False,
    include_control: bool = False,
    verify_crc: bool = True,
    on_error: OnError = "fail",
    keep_truncated: bool = False,
) -> Column:
    """The records of each cell of a binary column of record batches, as an array of structs.

    A cell may hold several batches, of any format that Kafka ever had; a null stays null. Where the bytes are files,
    read the files with the data source instead: it costs a fifth, as no batch crosses from the JVM first.

    Args:
        batches: The column, or its name.
        columns: Fields of the structs in order: those of ``format("kraftlog")`` but topic and partition.
            ``batchPosition`` counts from the start of the cell.
        include_headers: The structs have the headers too, last.
        include_control: Give records of control batches, such as transaction markers, too.
        verify_crc: Compare the checksum of each batch.
        on_error: What becomes of a cell that is not whole record batches: ``fail`` ends the query with an error that
            names the task, the row in it and the byte position, ``null`` gives null and warns with a count.
        keep_truncated: Leave out the beginning of a batch at the end of a cell, which answers to a fetch may have; else
            such a cell is bad.

    Raises:
        ValueError: A field that does not exist, or another ``on_error``.

    Example: ``frame.select(inline(decode_batches("batch")))``
    """
    decoder = _CellDecoder(columns, include_headers, include_control, verify_crc, on_error, keep_truncated)

    def decode(pieces: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return decoder.run(pieces)

    # Spark reads the annotations of the function to see that it maps pieces of a column to pieces of a column.
    decode.__name__ = "decode_batches"
    decode.__annotations__ = _annotations(_arrow_array())
    use_driver_python(_active_session())
    column: Column = arrow_udf(decode, decoder.type_name)(batches)
    return column


def decode_batches_pandas(
    batches: Column | str,
    *,
    columns: Sequence[str] = _COLUMNS,
    include_headers: bool = False,
    include_control: bool = False,
    verify_crc: bool = True,
    on_error: OnError = "fail",
    keep_truncated: bool = False,
) -> Column:
    """As :func:`decode_batches`, as a pandas function, for Spark plans and clusters that have no Arrow functions.

    Each key and value becomes a Python object on its way, which takes several times as long. Needs pandas.
    """
    decoder = _CellDecoder(columns, include_headers, include_control, verify_crc, on_error, keep_truncated)

    def decode(pieces: Iterator[pd.Series]) -> Iterator[pd.Series]:
        import pandas as pd
        import pyarrow as pa

        # An object for each cell: pandas would take lists of equal length for a second dimension.
        for lists in decoder.run(pa.array(piece, pa.binary()) for piece in pieces):
            yield pd.Series(lists.to_pylist(), dtype=object)

    decode.__name__ = "decode_batches_pandas"
    decode.__annotations__ = _annotations(_pandas_series())
    use_driver_python(_active_session())
    column: Column = pandas_udf(decode, decoder.type_name)(batches)
    return column


def _active_session() -> SparkSession | None:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


class _CellDecoder:
    """What is asked of the cells; pickled into the tasks."""

    def __init__(
        self,
        columns: Sequence[str],
        include_headers: bool,
        include_control: bool,
        verify_crc: bool,
        on_error: OnError,
        keep_truncated: bool,
    ) -> None:
        names = [*columns, *(["headers"] if include_headers and "headers" not in columns else [])]
        found = find_columns(names)
        for column in found:
            if column.name in {"topic", "partition"}:
                message = f"a record batch does not say its {column.name}: take it from another column of the table"
                raise ValueError(message)
        if not found:
            raise ValueError("decode_batches needs at least one column")
        if on_error not in {"fail", "null"}:
            message = f"on_error must be fail or null, not {on_error!r}"
            raise ValueError(message)
        self.type_name = f"array<struct<{', '.join(map(_field, names, found))}>>"
        self._on_error: OnError = on_error
        self._keep_truncated = keep_truncated
        self._options: dict[str, Any] = {
            "columns": [column.scan_name for column in found],
            "check_crc": verify_crc,
            "include_control": include_control,
        }
        self._names = names

    def run(self, pieces: Iterator[pa.Array]) -> Iterator[pa.Array]:
        """Lists of structs for all cells of a task, in pieces of bounded size."""
        rows = bad = 0
        for cells in pieces:
            start = 0
            while start < len(cells):
                lists, start, bad_here = self._decode(cells, start, rows)
                bad += bad_here
                yield lists
            rows += len(cells)
        if bad:
            logger.warning("on_error=null: %d of %d cells of %s are no record batches", bad, rows, _task_name())

    def _decode(self, cells: pa.Array, start: int, first_row: int) -> tuple[pa.Array, int, int]:
        import pyarrow as pa

        try:
            found, after, bad = decode_cells(
                cells,
                start=start,
                first_row=first_row,
                on_error=self._on_error,
                keep_truncated=self._keep_truncated,
                timestamp_unit="us",
                empty_headers_null=True,
                batch_bytes=_PIECE_BYTES,
                **self._options,
            )
        except CorruptRecordError as error:
            message = f"decode_batches, {_task_name()}: {error}"
            raise CorruptRecordError(message) from error
        except LogError as error:
            message = f"decode_batches, {_task_name()}: {error}"
            raise LogError(message) from error
        lists = pa.array(found)
        structs = lists.values  # noqa: PD011 - of Arrow, not of pandas
        renamed = pa.StructArray.from_arrays(structs.flatten(), names=self._names)
        return pa.ListArray.from_arrays(lists.offsets, renamed, mask=lists.is_null()), after, bad


def _field(name: str, column: SourceColumn) -> str:
    return f"{name}: {column.type_name}"


def _task_name() -> str:
    from pyspark import TaskContext

    context = TaskContext.get()
    return "the driver" if context is None else f"task {context.partitionId()} of stage {context.stageId()}"


def _annotations(kind: type) -> dict[str, Any]:
    return {"pieces": Iterator[kind], "return": Iterator[kind]}  # type: ignore[valid-type]


def _arrow_array() -> type:
    import pyarrow as pa

    kind: type = pa.Array
    return kind


def _pandas_series() -> type:
    import pandas as pd

    kind: type = pd.Series
    return kind
