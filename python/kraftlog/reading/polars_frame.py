"""A scan as a Polars LazyFrame, through ``polars.io.plugins.register_io_source``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from kraftlog.reading.arrow_scan import ArrowScan
from kraftlog.reading.polars_filter import allowed_by

__all__ = ["lazy_frame"]

# Rows of a data frame: each costs Polars some 100 microseconds under the interpreter lock.
BATCH_ROWS = 65536


def lazy_frame(scan: ArrowScan, *, threads: int | None) -> pl.LazyFrame:
    """As :meth:`Scan.polars` says.

    Raises:
        ValueError: ``threads`` is below 1.
    """
    if threads is None:
        threads = scan.options.threads if scan.options.threads > 1 else pl.thread_pool_size()
    options: dict[str, Any] = {"threads": threads}
    if scan.options.binary_type == "binary":
        options["binary_type"] = "binary_view"  # what Polars has inside: nothing is copied
    scan = scan.narrowed(**options)

    def read(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        return _frames(scan, with_columns, predicate, n_rows, batch_size)

    # Where it stands twice in a query, both have the same rows: those of one pass.
    return register_io_source(read, schema=_empty(scan).schema, is_pure=True)


def _empty(scan: ArrowScan) -> pl.DataFrame:
    return pl.DataFrame(ArrowScan((), scan.options))


def _frames(
    scan: ArrowScan,
    with_columns: list[str] | None,
    predicate: pl.Expr | None,
    n_rows: int | None,
    batch_size: int | None,
) -> Iterator[pl.DataFrame]:
    """The rows that a query asks for, each frame of ``batch_size`` rows at most."""
    columns = scan.column_names if with_columns is None else with_columns
    needed = dict.fromkeys([*columns, *(predicate.meta.root_names() if predicate is not None else ())])
    # Polars hands down a limit with a predicate only where the limit comes first: rows have to be counted before they
    # are filtered, so that nothing may be left out.
    if predicate is not None and n_rows is None:
        allowed = allowed_by(predicate)
        scan = scan.narrowed(allowed.bounds(scan.options.timestamp_unit), partitions=allowed.partitions)
    rows = min(rows for rows in (batch_size or BATCH_ROWS, BATCH_ROWS, n_rows or BATCH_ROWS))
    options = replace(scan.options, columns=tuple(needed), batch_rows=rows)
    if n_rows is not None and n_rows <= rows:
        options = replace(options, threads=1)  # one batch will do: no reading ahead
    missing = n_rows
    for batch in scan.replaced(scan.sources, options) if missing != 0 else ():
        frame = pl.DataFrame(batch)
        if missing is not None:
            frame = frame.head(missing)
            missing -= frame.height
        if predicate is not None:
            frame = frame.filter(predicate)
        yield frame.select(columns)
        if missing == 0:
            return
