"""A scan as a DuckDB relation: a union of streams, one for each split.

DuckDB pulls every stream on a thread of its own, so that decoding is as parallel as the query. It hands columns and
filters to pyarrow data sets only: of a plain Arrow stream it takes all columns and drops those that it does not need.
Views are left alone: a data set with columns of views would get no filters.
"""

from __future__ import annotations

from typing import Any

import duckdb

from kraftlog.reading.arrow_dataset import LogDataset
from kraftlog.reading.arrow_scan import ArrowScan

__all__ = ["relation"]

# A stream costs DuckDB about a millisecond.
SPLIT_BYTES_MIN = 4 << 20


def relation(
    scan: ArrowScan, connection: duckdb.DuckDBPyConnection, name: str | None, *, splits: int | None
) -> duckdb.DuckDBPyRelation:
    """As :meth:`Scan.duckdb` says."""
    if splits is None:
        threads = connection.execute("SELECT current_setting('threads')").fetchall()[0][0]
        splits = max(min(2 * threads, scan.stored_bytes // SPLIT_BYTES_MIN), 1)
    options: dict[str, Any] = {"threads": 1}
    # DuckDB counts rows by the first column: the offset is told by the headers of record batches.
    options["columns"] = ("offset", *(column for column in scan.column_names if column != "offset"))
    parts = scan.splits(splits) or (scan,)
    streams = [connection.from_arrow(LogDataset(part.narrowed(**options))) for part in parts]
    united = streams[0]
    for stream in streams[1:]:
        united = united.union(stream)
    wanted = united.project(", ".join(f'"{column}"' for column in scan.column_names))
    if name is not None:
        wanted.create_view(name, replace=True)
    return wanted
