"""The scan that users get: Arrow batches, and the forms in which query engines read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.extras import require
from kraftlog.reading.arrow_scan import ArrowScan

if TYPE_CHECKING:
    import datafusion
    import duckdb
    import polars as pl

    from kraftlog.reading.arrow_dataset import LogDataset

__all__ = ["Scan"]


class Scan(ArrowScan):
    """Records of partitions as Arrow batches: iterate it, or hand it to an Arrow library, as often as you like.

    Each consumer gets a pass of its own, which sees what the files hold when it begins. A scan can be pickled; its
    schema is known without reading anything.

    Args:
        sources: Which offsets of which directories, read one after the other.
        options: How.

    Raises:
        ValueError: A column that does not exist, or a bound below 1.
    """

    __slots__ = ()

    def dataset(self, *, splits: int | None = None) -> LogDataset:
        """The scan as a :class:`pyarrow.dataset.Dataset`, to which engines hand down columns and filters.

        Args:
            splits: How many fragments there are at most; one for each core when None.

        Raises:
            ModuleNotFoundError: pyarrow is not installed; the text names the pip command.
        """
        require("arrow", "Scan.dataset()")
        from kraftlog.reading.arrow_dataset import LogDataset

        return LogDataset(self, splits=splits)

    def polars(self, *, threads: int | None = None) -> pl.LazyFrame:
        """The scan as a Polars LazyFrame, which reads what a query needs.

        Columns, the row limit, and what a filter says of offset, timestamp, topic and partition are handed down.

        Args:
            threads: How many decode; those of the scan if more than one, else as many as Polars has, when None.

        Raises:
            ModuleNotFoundError: polars is not installed; the text names the pip command.
        """
        require("polars", "Scan.polars()")
        from kraftlog.reading.polars_frame import lazy_frame

        return lazy_frame(self, threads=threads)

    def duckdb(
        self, connection: duckdb.DuckDBPyConnection, name: str | None = None, *, splits: int | None = None
    ) -> duckdb.DuckDBPyRelation:
        """The scan as a DuckDB relation that DuckDB's own threads read; it holds what is in the logs now.

        Args:
            connection: Where it can be queried.
            name: Of a temporary view to make of it, in place of one with that name.
            splits: How many streams at most; two for each thread of DuckDB, of no less than 4 MiB, when None.

        Raises:
            ModuleNotFoundError: duckdb or pyarrow is not installed; the text names the pip command.
        """
        require("duckdb", "Scan.duckdb()")
        from kraftlog.reading.duckdb_relation import relation

        return relation(self, connection, name, splits=splits)

    def datafusion(
        self, context: datafusion.SessionContext, name: str, *, splits: int | None = None
    ) -> datafusion.DataFrame:
        """The scan as a table of a DataFusion context, read by a stream for each partition of a plan.

        Args:
            context: Where it can be queried.
            name: Of the table, in place of one with that name.
            splits: How many streams at most; one for each core when None.

        Raises:
            ModuleNotFoundError: datafusion or pyarrow is not installed; the text names the pip command.
        """
        require("datafusion", "Scan.datafusion()")
        from kraftlog.reading.datafusion_table import table

        return table(self, context, name, splits=splits)
