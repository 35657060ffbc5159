"""Records of logs as tables: Arrow IPC files and streams, and Parquet."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from kraftlog._kraftlog import ArrowBatch, ArrowFileWriter, list_segments
from kraftlog.cli.dump_indexes import base_offset_in
from kraftlog.cli.dump_sources import Selection, Source
from kraftlog.cli.progress import Progress
from kraftlog.errors import LogError
from kraftlog.extras import require
from kraftlog.reading import Scan, ScanOptions, ScanSource, partition_of

__all__ = ["dump_table"]

STDOUT = "-"
# A batch of this becomes a row group of Parquet: large enough to compress, small enough to be held.
_PARQUET_ROWS = 1 << 17
_PARQUET_BYTES = 32 << 20
_ARROW_ROWS = 1 << 16
_ARROW_BYTES = 8 << 20
# The most records have few different values in these.
_DICTIONARY_COLUMNS = ("topic", "timestamp_type", "compression")
_DELTA_COLUMNS = ("offset", "timestamp", "batch_base_offset", "batch_position")


class _Writer(Protocol):
    def write(self, batch: ArrowBatch) -> None: ...
    def close(self) -> None: ...


def dump_table(sources: Sequence[Source], args: argparse.Namespace, selection: Selection) -> int:
    """Writes the records of log files to one table, partition after partition.

    Returns:
        How many rows. After an error the table is whole up to the rows before it.

    Raises:
        LogError: A file is no log, or pyarrow is wanted and missing.
        CorruptRecordError: Bytes that are no batch or no record.
        OSError: The table cannot be written.
    """
    rows, size = (_PARQUET_ROWS, _PARQUET_BYTES) if args.parquet else (_ARROW_ROWS, _ARROW_BYTES)
    options: dict[str, Any] = {}
    if args.columns:
        options["columns"] = tuple(args.columns)
    scan = Scan(
        list(_scan_sources(sources, selection)),
        ScanOptions(
            from_timestamp=selection.from_timestamp,
            to_timestamp=selection.to_timestamp,
            isolation_level=args.isolation_level,
            batch_rows=rows,
            batch_bytes=size,
            threads=args.threads,
            **options,
        ),
    )
    total = sum(source.path.stat().st_size for source in sources)
    writer = _open_writer(scan, args)
    written = 0
    try:
        # stdout is the table, so that the bar on a terminal's stderr disturbs nothing.
        with Progress("writing", total) as bar:
            for batch in scan:
                writer.write(batch)
                written += batch.num_rows
                bar.update(scan.report().bytes_read)
    finally:
        writer.close()
    return written


def _scan_sources(sources: Sequence[Source], selection: Selection) -> Iterator[ScanSource]:
    """One range of offsets for each run of segments that follow each other."""
    merged: list[tuple[Path, int, int | None]] = []
    for source in sources:
        directory, first, end = _offsets_of(source.path)
        if merged and merged[-1][0] == directory and merged[-1][2] == first:
            merged[-1] = (directory, merged[-1][1], end)
        else:
            merged.append((directory, first, end))
    for directory, first, next_base in merged:
        topic, partition = partition_of(directory.resolve().name) or ("", -1)
        start_offset = first if selection.start_offset is None else max(first, selection.start_offset)
        ends = [end for end in (next_base, selection.end_offset) if end is not None]
        end = min(ends, default=None)
        if end is None or start_offset < end:
            yield ScanSource(str(directory), topic, partition, start_offset, end)


def _offsets_of(path: Path) -> tuple[Path, int, int | None]:
    """The directory of a segment, its first offset and the next segment's."""
    if path.suffix != ".log":
        raise LogError(f"{path} is not a .log file, and only .log files become tables")
    path.stat()
    first = base_offset_in(path)
    later = [base_offset for base_offset, _, _ in list_segments(path.parent) if base_offset > first]
    return path.parent, first, min(later, default=None)


def _open_writer(scan: Scan, args: argparse.Namespace) -> _Writer:
    if args.parquet:
        return _ParquetWriter(args.parquet, scan, args.compression)
    path = None if args.arrow == STDOUT else args.arrow
    return ArrowFileWriter(path, scan.stream, stream=path is None or path.endswith(".arrows"))


class _ParquetWriter:
    """A Parquet file, through pyarrow; each batch is a row group."""

    def __init__(self, path: str, scan: Scan, compression: str) -> None:
        try:
            require("arrow", "--parquet")
        except ModuleNotFoundError as error:
            message = f"{error}; --arrow needs nothing"
            raise LogError(message) from None
        import pyarrow as pa
        from pyarrow import parquet

        self._record_batch = pa.record_batch
        self._sink = sys.stdout.buffer if path == STDOUT else path
        names = scan.column_names
        self._writer = parquet.ParquetWriter(
            self._sink,
            pa.schema(scan),
            compression=compression,
            use_dictionary=[name for name in names if name in _DICTIONARY_COLUMNS],
            column_encoding={name: "DELTA_BINARY_PACKED" for name in names if name in _DELTA_COLUMNS},
            write_statistics=[name for name in names if name not in {"key", "value", "headers"}],
        )

    def write(self, batch: ArrowBatch) -> None:
        """Append a row group."""
        self._writer.write_batch(self._record_batch(batch), row_group_size=batch.num_rows)

    def close(self) -> None:
        """Write the end."""
        self._writer.close()
