"""A scan as a pyarrow data set, which is the form to which DuckDB and DataFusion hand down columns and filters."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from kraftlog.reading.arrow_filter import columns_of_filter, narrowed_by
from kraftlog.reading.arrow_scan import ArrowScan

__all__ = ["LogDataset", "LogFragment", "LogScanner"]


class LogScanner:
    """A query over a scan: some columns of the rows for which a filter holds. Each reading is a pass of its own.

    It has what :class:`pyarrow.dataset.Scanner` has and engines ask for.

    Args:
        scan: What to read.
        schema: Of all its columns.
        columns: Names in the order wanted, or expressions by name; all when None.
        expression: The filter, None for none.
        batch_rows: Most rows of a batch; no more than the scan gives anyhow.

    Raises:
        pyarrow.ArrowInvalid: The filter or a column cannot be bound to the schema.
    """

    def __init__(
        self,
        scan: ArrowScan,
        schema: pa.Schema,
        columns: list[str] | Mapping[str, ds.Expression] | None,
        expression: ds.Expression | None,
        batch_rows: int | None,
    ) -> None:
        self.dataset_schema = schema
        self._columns = schema.names if columns is None else columns
        self._filter = expression
        if isinstance(self._columns, Mapping):
            needed = {name for column in self._columns.values() for name in columns_of_filter(column, schema)}
        else:
            needed = set(self._columns)
            unknown = needed - set(schema.names)
            if unknown:
                message = f"no column {', '.join(sorted(unknown))}; there are {', '.join(schema.names)}"
                raise pa.ArrowInvalid(message)
        if expression is not None:
            needed.update(columns_of_filter(expression, schema))
        rows = min(scan.options.batch_rows, batch_rows or scan.options.batch_rows)
        # Where nothing is computed, the order is the one that was asked for.
        self._is_plain = expression is None and not isinstance(self._columns, Mapping)
        names = self._columns if self._is_plain else [name for name in schema.names if name in needed]
        self._scan = narrowed_by(scan, expression, schema, columns=tuple(names), batch_rows=rows)

    @property
    def scan(self) -> ArrowScan:
        """What is read for it: bounds and columns, and the filter not applied."""
        return self._scan

    @property
    def projected_schema(self) -> pa.Schema:
        """Of the rows that it gives."""
        return (
            pa.schema(self._scan)
            if self._is_plain
            else self._arrow_scanner(
                pa.RecordBatchReader.from_stream(ArrowScan((), self._scan.options))
            ).projected_schema
        )

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream."""
        reader = pa.RecordBatchReader.from_stream(self._scan)
        return reader if self._is_plain else self._arrow_scanner(reader).to_reader()

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, batch by batch."""
        return iter(self.to_reader())

    def to_table(self) -> pa.Table:
        """All rows."""
        return self.to_reader().read_all()

    def head(self, num_rows: int) -> pa.Table:
        """The first rows; no more is read than they need."""
        batches, missing = [], num_rows
        with self.to_reader() as reader:
            while missing > 0:
                try:
                    batches.append(reader.read_next_batch().slice(0, missing))
                except StopIteration:
                    break
                missing -= batches[-1].num_rows
            return pa.Table.from_batches(batches, reader.schema)

    def take(self, indices: Any) -> pa.Table:
        """The rows with these numbers, of all that are read."""
        return self.to_table().take(indices)

    def count_rows(self) -> int:
        """How many rows there are: by the headers of record batches where there is no filter."""
        if self._filter is None:
            return sum(len(batch) for batch in self._scan.narrowed(columns=()))
        return sum(batch.num_rows for batch in self.to_batches())

    def _arrow_scanner(self, rows: pa.RecordBatchReader) -> ds.Scanner:
        return ds.Scanner.from_batches(rows, columns=self._columns, filter=self._filter)


class _Readable:
    """What a data set and its fragments have in common: everything goes through ``scanner``."""

    _scan: ArrowScan
    _schema: pa.Schema
    _filter: ds.Expression | None = None

    def scanner(
        self,
        schema: pa.Schema | None = None,
        *,
        columns: list[str] | Mapping[str, ds.Expression] | None = None,
        filter: ds.Expression | None = None,  # noqa: A002  # pyarrow's name
        batch_size: int | None = None,
        **_hints: Any,
    ) -> LogScanner:
        """A query. What else pyarrow's method takes are hints for files, which have no meaning here.

        Args:
            schema: Of the data set, for fragments; it is known.
            columns: Names, or expressions by name; all when None.
            filter: Of rows; it also bounds what is read by offset, timestamp, topic and partition.
            batch_size: Most rows of a batch.
        """
        if self._filter is not None:
            filter = self._filter if filter is None else self._filter & filter  # noqa: A001
        return LogScanner(self._scan, self._schema, columns, filter, batch_size)

    @property
    def partition_expression(self) -> ds.Expression:
        """Nothing is promised."""
        return ds.scalar(True)

    def to_batches(self, **query: Any) -> Iterator[pa.RecordBatch]:
        """The rows of ``scanner(**query)``."""
        return self.scanner(**query).to_batches()

    def to_table(self, **query: Any) -> pa.Table:
        """The rows of ``scanner(**query)``."""
        return self.scanner(**query).to_table()

    def head(self, num_rows: int, **query: Any) -> pa.Table:
        """The first rows of ``scanner(**query)``."""
        return self.scanner(**query).head(num_rows)

    def take(self, indices: Any, **query: Any) -> pa.Table:
        """Some rows of ``scanner(**query)``, by their number."""
        return self.scanner(**query).take(indices)

    def count_rows(self, filter: ds.Expression | None = None, **query: Any) -> int:  # noqa: A002
        """How many rows ``scanner(filter=..., **query)`` has."""
        return self.scanner(filter=filter, **query).count_rows()


class LogFragment(_Readable):
    """A split of a scan: what one thread of an engine reads."""

    def __init__(self, scan: ArrowScan, schema: pa.Schema, expression: ds.Expression | None) -> None:
        self._scan = scan
        self._schema = schema
        self._filter = expression

    @property
    def physical_schema(self) -> pa.Schema:
        """As that of the data set."""
        return self._schema


class LogDataset(_Readable, ds.Dataset):  # type: ignore[misc]  # pyarrow is not typed
    """A scan as a data set: columns that a query does not name are not decoded, and filters bound what is read.

    Each query, and each listing of fragments, sees what the logs hold then.

    Args:
        scan: What to read.
        splits: How many fragments there are at most; one for each core when None.
    """

    def __init__(self, scan: ArrowScan, *, splits: int | None = None) -> None:
        if splits is not None and splits < 1:
            raise ValueError("splits is at least 1")
        self._scan = scan
        self._schema = pa.schema(scan)
        self._splits = splits

    @property
    def schema(self) -> pa.Schema:
        """Of all columns of the scan."""
        return self._schema

    def get_fragments(self, filter: ds.Expression | None = None) -> Iterator[LogFragment]:  # noqa: A002
        """Splits of about equal bytes; with a filter, of what it leaves to read. It has to be given to each again."""
        if self._filter is not None:
            filter = self._filter if filter is None else self._filter & filter  # noqa: A001
        splits = self._splits or len(os.sched_getaffinity(0))
        scan = narrowed_by(self._scan, filter, self._schema, threads=1)
        return iter([LogFragment(split, self._schema, self._filter) for split in scan.splits(splits)])

    def filter(self, expression: ds.Expression) -> LogDataset:
        """The same with a further filter."""
        filtered = LogDataset(self._scan, splits=self._splits)
        filtered._filter = expression if self._filter is None else self._filter & expression
        return filtered

    def replace_schema(self, schema: pa.Schema) -> LogDataset:
        """Not for a log, whose columns are fixed."""
        raise NotImplementedError("the columns of a log are fixed: name those you want in scanner(columns=...)")

    def sort_by(self, sorting: Any, **options: Any) -> ds.InMemoryDataset:
        """All rows in memory, sorted."""
        return ds.InMemoryDataset(self.to_table().sort_by(sorting, **options))

    def join(self, right_dataset: Any, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        """All rows in memory, joined."""
        return ds.InMemoryDataset(self.to_table()).join(right_dataset, *arguments, **options)

    def join_asof(self, right_dataset: Any, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        """All rows in memory, joined by nearness."""
        return ds.InMemoryDataset(self.to_table()).join_asof(right_dataset, *arguments, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        return _dataset, (self._scan, self._splits, self._filter)

    def __repr__(self) -> str:
        return f"<LogDataset of {self._scan!r}>"


def _dataset(scan: ArrowScan, splits: int | None, expression: ds.Expression | None) -> LogDataset:
    dataset = LogDataset(scan, splits=splits)
    return dataset if expression is None else dataset.filter(expression)
