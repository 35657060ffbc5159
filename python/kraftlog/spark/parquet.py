"""Log directories to Parquet, written by the workers that decode: no record crosses to the JVM."""

from __future__ import annotations

import os
import posixpath
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kraftlog._kraftlog import scan_stream
from kraftlog.spark.columns import KAFKA_COLUMNS, find_columns
from kraftlog.spark.mapping import Paths, Ranges, map_tasks, option_texts, plan_ranges, run_on_driver
from kraftlog.spark.options import SourceOptions
from kraftlog.spark.range_reader import read_range

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["ParquetFile", "ParquetReport", "write_parquet"]

Mode = Literal["error", "append", "overwrite"]

_TEMPORARY = "_temporary"
_SUCCESS = "_SUCCESS"
_RESULT = "task int, temporary string, name string, rows bigint, bytes bigint"
# Bytes of Arrow batches that become a row group.
_GROUP_BYTES = 64 << 20
# Few values, many rows; dictionaries of keys and values cost more than they save.
_DICTIONARIES = ("topic", "partition", "timestampType", "compression")


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """A file that was written: its path, rows and bytes."""

    path: str
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ParquetReport:
    """What :func:`write_parquet` wrote, in the order of the tasks."""

    files: tuple[ParquetFile, ...]

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(file.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)


def write_parquet(
    spark: SparkSession,
    path: Paths,
    target: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    mode: Mode = "error",
    compression: str = "snappy",
    **options: Any,
) -> ParquetReport:
    """Writes records to Parquet files, one for each task that has rows, which Spark reads like its own.

    Tasks write under temporary names, in a directory of this call; when all are done, the files of the runs that
    counted get their names, and ``_SUCCESS`` is written. A task that is run twice gives its rows once, a job that fails
    none; if the renaming itself fails, files without ``_SUCCESS`` may be left.

    Args:
        spark: The session, as for :func:`kraftlog.spark.map_batches`.
        path: A log directory, the directory of a partition, or several of either.
        target: The directory: a path that all workers see, or a URL that ``pyarrow.fs`` knows (``s3://``,
            ``hdfs://``).
        columns: Columns of the files, in order; Spark's Kafka columns when None.
        mode: ``error`` refuses a directory that has files, ``append`` adds to them, ``overwrite`` replaces Parquet
            files, and refuses a directory that has anything else.
        compression: Codec of the Parquet pages: ``snappy``, ``zstd``, ``lz4``, ``gzip`` or ``none``.
        options: Options of ``format("kraftlog")`` by name.

    Raises:
        FileExistsError: The directory has files, and ``mode`` does not allow it.
        ValueError: A column, mode or option that does not exist.
        OSError: The files cannot be written.
    """
    names = [column.name for column in KAFKA_COLUMNS] if columns is None else list(columns)
    if not names:
        raise ValueError("columns names no value: a Parquet file has one column at least")
    find_columns(names)
    if mode not in {"error", "append", "overwrite"}:
        message = f"mode must be error, append or overwrite, not {mode!r}"
        raise ValueError(message)
    texts = option_texts(path, options)
    parsed = SourceOptions.parse(texts)
    place = os.fspath(target)
    if "://" not in place:
        place = os.path.abspath(place)
    job = uuid.uuid4().hex

    run_on_driver(spark, _begun(place, job, mode))

    def run(task: int, ranges: Ranges) -> Iterator[pa.RecordBatch]:
        yield from _write_task(place, job, task, read_range(ranges, parsed, names), compression)

    try:
        tasks = plan_ranges(spark, texts)
        # Sorted here: Spark would run every task twice, the first time for a sample of the order.
        results = sorted(map_tasks(spark, tasks, run, _RESULT).collect(), key=lambda row: int(row.task))
        moves = [(row.temporary, row.name) for row in results]
        run_on_driver(spark, _committed(place, job, mode, moves, names))
    except BaseException:
        run_on_driver(spark, _cleared(place, job))
        raise
    return ParquetReport(tuple(ParquetFile(posixpath.join(place, row.name), row.rows, row.bytes) for row in results))


def _write_task(
    place: str, job: str, task: int, batches: Iterator[pa.RecordBatch], compression: str
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    filesystem, base = _open(place)
    directory = posixpath.join(base, _TEMPORARY, job)
    name = f"part-{task:05d}-{job}.parquet"
    # Another attempt at the task may be writing at the same moment.
    temporary = posixpath.join(directory, f"{name}.{uuid.uuid4().hex}")
    rows = size = 0
    writer = None
    try:
        for group in _groups(batches):
            if writer is None:
                _check_wanted(filesystem, directory)
                writer = _writer(filesystem, temporary, group.schema, compression)
            writer.write_table(group, row_group_size=max(group.num_rows, 1))
            rows += group.num_rows
        if writer is None:
            return
        writer.close()
        writer = None
        _check_wanted(filesystem, directory)
        size = filesystem.get_file_info(temporary).size
    except BaseException:
        if writer is not None:
            # If the job has ended the file is gone; one that cannot be closed is removed all the same.
            with suppress(OSError):
                writer.close()
            with suppress(OSError):
                filesystem.delete_file(temporary)
        raise
    columns = {
        "task": pa.array([task], pa.int32()),
        "temporary": [temporary],
        "name": [name],
        "rows": [rows],
        "bytes": [size],
    }
    yield pa.record_batch(columns)


def _check_wanted(filesystem: Any, directory: str) -> None:
    """A task may begin, or go on, after its job has failed: what it wrote then nobody would remove."""
    from pyarrow import fs

    if filesystem.get_file_info(directory).type != fs.FileType.Directory:
        message = f"the job has ended, or its nodes do not share their files: there is no {directory}"
        raise FileNotFoundError(message)


def _writer(filesystem: Any, path: str, schema: pa.Schema, compression: str) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetWriter(
        path,
        schema,
        filesystem=filesystem,
        compression=compression,
        use_dictionary=[name for name in schema.names if name in _DICTIONARIES],
        # Least and largest payloads are of no use to a query; offsets and times are.
        write_statistics=[name for name in schema.names if name not in {"key", "value", "headers"}],
    )


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Row groups of about the bytes that readers like."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= _GROUP_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _open(place: str) -> tuple[Any, str]:
    """The file system of a path or URL, and the path on it."""
    from pyarrow import fs

    if "://" not in place:
        return fs.LocalFileSystem(), place
    filesystem, base = fs.FileSystem.from_uri(place)
    return filesystem, base


def _entries(filesystem: Any, base: str) -> list[Any]:
    from pyarrow import fs

    found = filesystem.get_file_info(fs.FileSelector(base, allow_not_found=True))
    return [info for info in found if info.base_name != _TEMPORARY]


def _begun(place: str, job: str, mode: Mode) -> Callable[[], list[str]]:
    def begin() -> list[str]:
        from pyarrow import fs

        filesystem, base = _open(place)
        if filesystem.get_file_info(base).type == fs.FileType.File:
            message = f"{place} is a file, not a directory"
            raise FileExistsError(message)
        entries = _entries(filesystem, base)
        if mode == "error" and entries:
            message = f"{place} has files, such as {entries[0].base_name}; mode append or overwrite allows that"
            raise FileExistsError(message)
        foreign = [info.base_name for info in entries if not _is_replaceable(info)]
        if mode == "overwrite" and foreign:
            message = f"{place} has {foreign[0]}, which is no Parquet file: overwrite replaces nothing else"
            raise FileExistsError(message)
        filesystem.create_dir(posixpath.join(base, _TEMPORARY, job), recursive=True)
        return []

    return begin


def _is_replaceable(info: Any) -> bool:
    from pyarrow import fs

    name: str = info.base_name
    return info.type == fs.FileType.File and (name.endswith(".parquet") or name == _SUCCESS)


def _committed(
    place: str, job: str, mode: Mode, moves: Sequence[tuple[str, str]], names: Sequence[str]
) -> Callable[[], list[str]]:
    def commit() -> list[str]:
        filesystem, base = _open(place)
        filesystem.create_dir(base, recursive=True)
        if mode == "overwrite":
            for info in _entries(filesystem, base):
                if _is_replaceable(info):
                    filesystem.delete_file(info.path)
        for temporary, name in moves:
            filesystem.move(temporary, posixpath.join(base, name))
        if not moves and mode != "append":
            # Who reads the directory finds the columns, and no rows.
            schema = _schema_of(names)
            _writer(filesystem, posixpath.join(base, f"part-00000-{job}.parquet"), schema, "none").close()
        with filesystem.open_output_stream(posixpath.join(base, _SUCCESS)):
            pass
        _remove_temporary(filesystem, base, job)
        return []

    return commit


def _schema_of(names: Sequence[str]) -> pa.Schema:
    import pyarrow as pa

    columns = [column.scan_name for column in find_columns(names)]
    found = pa.schema(scan_stream([], columns=columns, timestamp_unit="us"))
    return pa.schema([field.with_name(name) for field, name in zip(found, names, strict=True)])


def _cleared(place: str, job: str) -> Callable[[], list[str]]:
    def clear() -> list[str]:
        filesystem, base = _open(place)
        _remove_temporary(filesystem, base, job)
        return []

    return clear


def _remove_temporary(filesystem: Any, base: str, job: str) -> None:
    from pyarrow import fs

    above = posixpath.join(base, _TEMPORARY)
    for directory in (posixpath.join(above, job), above):
        if filesystem.get_file_info(directory).type != fs.FileType.Directory:
            continue
        # Another job may be writing beside this one.
        if directory == above and filesystem.get_file_info(fs.FileSelector(above)):
            continue
        try:
            filesystem.delete_dir(directory)
        except OSError:  # a task of this job has made a file meanwhile; none can from now on
            filesystem.delete_dir(directory)
