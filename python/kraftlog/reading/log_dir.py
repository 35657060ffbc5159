"""A log directory: its partitions, what the broker has noted about them, and scans over many of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from kraftlog._kraftlog import ArrowStream
from kraftlog.errors import LogError
from kraftlog.reading.arrow_scan import ending_at
from kraftlog.reading.directory import (
    CLEANER_OFFSET_CHECKPOINT,
    MARKED_DIRECTORY,
    StrPath,
    check_directory,
    directory_bytes,
    entries_text,
    partition_of,
    read_checkpoint,
)
from kraftlog.reading.engine_scan import Scan
from kraftlog.reading.facts import Checkpoints, MarkedDirectory, Topic
from kraftlog.reading.log import Log, batches_of, columns_of
from kraftlog.reading.remote import RemoteDirectories, is_tiered_directory, list_remote, wanted_logs
from kraftlog.reading.remote_files import FileSystemKind, RemoteLocation, display_url, is_url
from kraftlog.reading.remote_log import RemoteLog
from kraftlog.reading.scan_options import (
    BinaryType,
    End,
    IsolationLevel,
    OnCorrupt,
    ScanOptions,
    ScanSource,
    Timestamp,
    TimestampUnit,
    milliseconds,
)
from kraftlog.storage.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from kraftlog.storage.log_dir import CLEAN_SHUTDOWN_NAME
from kraftlog.storage.meta_properties import (
    META_PROPERTIES_NAME,
    MetaProperties,
    parse_meta_properties,
    read_meta_properties,
)
from kraftlog.types import TopicPartition, Uuid
from kraftlog.vocabulary import SYSTEM_TOPICS

__all__ = ["LogDir", "partition_directories", "scan", "scan_batches"]

# Files that a broker keeps beside its partitions: a directory with one of them is a log directory, also without topics.
_LOG_DIRECTORY_FILES = (
    META_PROPERTIES_NAME,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)

Offsets: TypeAlias = int | Mapping[int, int] | Mapping[tuple[str, int], int]


class LogDir:
    """One of the ``log.dirs`` of a broker of Kafka or kraftlog, read only. Each property looks at the files anew.

    Nothing is locked and nothing is written: it works beside a running node, and on a copy.

    A URL is listed once, now, and shows what was there then; a directory of tiered storage has partitions and nothing
    else.

    Args:
        path: The directory, or a URL such as ``s3://bucket/kafka-logs``, or a directory of tiered storage.
        filesystem: For URLs, and paths of it: a file system of fsspec or ``pyarrow.fs``.
        storage_options: For URLs: arguments of the file system that is opened.

    Raises:
        FileNotFoundError: There is no such directory.
        NotADirectoryError: The path is a file.
        RemoteLogError: The URL cannot be listed.
    """

    __slots__ = ("_remote", "path")

    def __init__(
        self, path: StrPath, *, filesystem: Any = None, storage_options: Mapping[str, Any] | None = None
    ) -> None:
        self._remote: RemoteDirectories | None = None
        self.path: Path | RemoteLocation
        if is_url(path) or filesystem is not None:
            self._remote = list_remote(os.fspath(path), filesystem=filesystem, storage_options=storage_options)
            self.path = self._remote.location
            return
        if storage_options is not None:
            message = f"storage options are for URLs, and {os.fspath(path)} is not a URL"
            raise ValueError(message)
        self.path = Path(path)
        if self.path.is_dir() and is_tiered_directory(self.path):
            self._remote = list_remote(str(path))
            return
        check_directory(self.path)

    @property
    def topics(self) -> tuple[Topic, ...]:
        """Topics by name, internal ones too; of each the partitions that are here."""
        by_name: dict[str, list[Log]] = {}
        for log in self.partitions():
            by_name.setdefault(log.topic, []).append(log)
        return tuple(
            Topic(
                name=name,
                topic_id=next((log.topic_id for log in logs if log.topic_id is not None), None),
                partitions=tuple(log.partition for log in logs),
                size_bytes=sum(log.size_bytes for log in logs),
                is_internal=name in SYSTEM_TOPICS,
            )
            for name, logs in sorted(by_name.items())
        )

    def partitions(self, topic: str | None = None) -> tuple[Log, ...]:
        """Partitions by topic and number, of internal topics too; those of one topic when it is named."""
        logs: Iterable[Log] = (
            (Log(path, *name) for path, name in _partitions_in(self._directory))
            if self._remote is None
            else self._remote.logs
        )
        return tuple(
            sorted(
                (log for log in logs if topic is None or log.topic == topic), key=lambda log: (log.topic, log.partition)
            )
        )

    def partition(self, topic: str, partition: int) -> Log:
        """One partition.

        Raises:
            FileNotFoundError: It is not here.
        """
        if self._remote is not None:
            for log in self._remote.logs:
                if (log.topic, log.partition) == (topic, partition):
                    return log
            message = f"no partition {partition} of topic {topic} in {self.path}"
            raise FileNotFoundError(message)
        path = self._directory / f"{topic}-{partition}"
        if not path.is_dir():
            message = f"no partition {partition} of topic {topic} in {self.path}"
            raise FileNotFoundError(message)
        return Log(path, topic, partition)

    @property
    def marked_directories(self) -> tuple[MarkedDirectory, ...]:
        """Directories of partitions that Kafka is deleting, moving here or has found astray, by name.

        Of a URL none: they are not part of its listing.
        """
        if self._remote is not None:
            return ()
        return tuple(
            MarkedDirectory(
                path=path,
                topic=match["topic"],
                partition=int(match["partition"]),
                mark=cast("Literal['delete', 'future', 'stray']", match["mark"]),
                size_bytes=directory_bytes(path),
            )
            for path in sorted(self._directory.iterdir())
            if (match := MARKED_DIRECTORY.match(path.name)) and path.is_dir()
        )

    @property
    def size_bytes(self) -> int:
        """Bytes of the ``.log`` files of all partitions that are not marked."""
        return sum(log.size_bytes for log in self.partitions())

    @property
    def meta_properties(self) -> MetaProperties | None:
        """``meta.properties``: cluster id, node id, directory id; None without the file.

        Raises:
            LogError: The file is not of version 0 or 1.
        """
        try:
            if self._remote is not None:
                data = self._remote.checkpoints.read(META_PROPERTIES_NAME)
                origin = f"{self.path}/{META_PROPERTIES_NAME}"
                return None if data is None else parse_meta_properties(data.decode("latin-1"), origin=origin)
            return read_meta_properties(self._directory)
        except ValueError as error:
            message = f"{self.path}: meta.properties: {error}"
            raise LogError(message) from error

    @property
    def cluster_id(self) -> str | None:
        """Id of the cluster, by ``meta.properties``."""
        properties = self.meta_properties
        return None if properties is None else properties.cluster_id

    @property
    def node_id(self) -> int | None:
        """Id of the node, by ``meta.properties``."""
        properties = self.meta_properties
        return None if properties is None else properties.node_id

    @property
    def directory_id(self) -> Uuid | None:
        """Id of this directory, by ``meta.properties``; None before Kafka 3.7."""
        properties = self.meta_properties
        return None if properties is None else properties.directory_id

    @property
    def checkpoints(self) -> Checkpoints:
        """The four checkpoint files of the broker.

        Raises:
            LogError: One of them is not a checkpoint.
        """
        return Checkpoints(
            recovery_points=self._checkpoint(RECOVERY_POINT_CHECKPOINT),
            high_watermarks=self._checkpoint(REPLICATION_OFFSET_CHECKPOINT),
            log_start_offsets=self._checkpoint(LOG_START_OFFSET_CHECKPOINT),
            cleaner_offsets=self._checkpoint(CLEANER_OFFSET_CHECKPOINT),
        )

    def _checkpoint(self, name: str) -> dict[TopicPartition, int]:
        if self._remote is not None:
            return self._remote.checkpoints.offsets(name) or {}
        return read_checkpoint(self._directory / name)

    @property
    def was_clean_shutdown(self) -> bool:
        """The node that used the directory last has stopped, and flushed all logs before."""
        if self._remote is not None:
            return self._remote.checkpoints.read(CLEAN_SHUTDOWN_NAME) is not None
        return (self._directory / CLEAN_SHUTDOWN_NAME).exists()

    @property
    def _directory(self) -> Path:
        assert isinstance(self.path, Path)
        return self.path

    def __repr__(self) -> str:
        return f"LogDir({str(self.path)!r})"


def scan(
    paths: StrPath | Sequence[StrPath],
    *,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    topics: str | Sequence[str] | None = None,
    partitions: Sequence[int | tuple[str, int]] | None = None,
    start_offsets: Offsets | None = None,
    end_offsets: Offsets | None = None,
    end: End = "log_end",
    from_timestamp: Timestamp | None = None,
    to_timestamp: Timestamp | None = None,
    columns: Sequence[str] | None = None,
    headers: bool = True,
    isolation_level: IsolationLevel = "read_uncommitted",
    binary_type: BinaryType = "binary",
    timestamp_unit: TimestampUnit = "ms",
    topic_dictionary: bool = False,
    batch_rows: int = 16384,
    batch_bytes: int = 8 << 20,
    threads: int = 1,
    memory_map: bool = False,
    drop_behind: bool = False,
    check_crc: bool = True,
    include_control: bool = False,
    on_corrupt: OnCorrupt = "raise",
) -> Scan:
    """The records of many partitions as one stream of Arrow batches, partition after partition.

    Args:
        paths: Log directories (``log.dirs``) or directories of partitions, or a list of them. A URL, such as
            ``s3://bucket/kafka-logs``, is listed once, now, and read by ranges; so is a directory of tiered storage.
        filesystem: A file system of fsspec or ``pyarrow.fs`` for all paths; by default each URL says which.
        storage_options: Arguments of the file systems that are opened for URLs.
        topics: Only these topics; all but the internal ones when None.
        partitions: Only these: numbers, which hold for each topic, or pairs of topic and number.
        start_offsets: First offset, inclusive: one for all partitions, where one that starts later is read from its
            start; or a mapping from number, or pair of topic and number, to an offset that has to be there.
        end_offsets: End offsets, exclusive: one for all partitions, or a mapping as for ``start_offsets``.
        end: ``log_end`` reads what is in the files; ``high_watermark`` ends each partition at its checkpointed high
            watermark. :meth:`Log.scan` describes this option and those below in full.
        from_timestamp: Least record timestamp, inclusive: milliseconds since 1970 UTC, or a datetime with a time zone.
        to_timestamp: End of record timestamps, exclusive, in the same units.
        columns: Names of the columns, in order; the first eight when None.
        headers: Whether the headers are a column when ``columns`` is None.
        isolation_level: ``read_committed`` leaves out aborted transactions and all from the first open one on.
        binary_type: Arrow type of key and value: ``binary``, ``large_binary`` or ``binary_view``.
        timestamp_unit: Unit of the timestamp column: ``ms`` or ``us``.
        topic_dictionary: Whether the topic is a dictionary; the batches of each partition have their own.
        batch_rows: Most rows of an Arrow batch, at least 1.
        batch_bytes: Most bytes of keys, values and headers in an Arrow batch; a larger record gets its own batch.
        threads: Number of decoding threads, at least 1; the order of the rows does not depend on it.
        memory_map: Whether segments that are no longer written to are mapped instead of read.
        drop_behind: Whether the page cache is left as it was.
        check_crc: Whether the CRC-32C of every batch is verified; False trusts the headers.
        include_control: Whether control records, such as transaction markers, are rows too.
        on_corrupt: ``raise`` at a damaged batch, or ``skip`` it and count it in :meth:`Scan.report`.

    Raises:
        FileNotFoundError: A path does not exist, has no logs, has no partition of one of ``topics``, or not one of
            ``partitions``.
        NotADirectoryError: A path is a file.
        OffsetOutOfRangeError: A mapping names an offset before the log start offset.
        ValueError: A mapping names a partition that is not scanned.
        RemoteLogError: A URL cannot be listed, or a small file there cannot be read.
    """
    options = ScanOptions(
        columns=columns_of(columns, headers=headers),
        from_timestamp=milliseconds(from_timestamp),
        to_timestamp=milliseconds(to_timestamp),
        isolation_level=isolation_level,
        binary_type=binary_type,
        timestamp_unit=timestamp_unit,
        topic_dictionary=topic_dictionary,
        batch_rows=batch_rows,
        batch_bytes=batch_bytes,
        threads=threads,
        memory_map=memory_map,
        drop_behind=drop_behind,
        check_crc=check_crc,
        include_control=include_control,
        on_corrupt=on_corrupt,
    )
    found = partition_directories(paths, topics=topics, filesystem=filesystem, storage_options=storage_options)
    _check_found(paths, found, is_local=filesystem is None)
    logs = _chosen(found, partitions)
    for offsets in (start_offsets, end_offsets):
        _check_names(offsets, logs)
    sources = (ending_at(_source(log, start_offsets, end), _offset_of(end_offsets, log), options) for log in logs)
    return Scan(list(sources), options)


def scan_batches(
    paths: StrPath | Sequence[StrPath],
    *,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    topics: str | Sequence[str] | None = None,
    partitions: Sequence[int | tuple[str, int]] | None = None,
    check_crc: bool = False,
    batch_rows: int = 16384,
) -> ArrowStream:
    """A row for each record batch of many partitions, as :meth:`Log.batches` gives them.

    Args:
        paths: As in :func:`scan`, like all up to ``partitions``.
        filesystem: File system of all paths.
        storage_options: Arguments of the file systems that are opened for URLs.
        topics: Only these topics; all but the internal ones when None.
        partitions: Only these partitions: numbers, or pairs of topic and number.
        check_crc: Fill ``crc_ok``, which reads every byte.
        batch_rows: Most rows of an Arrow batch.

    Raises:
        FileNotFoundError: As :func:`scan`.
    """
    found = partition_directories(paths, topics=topics, filesystem=filesystem, storage_options=storage_options)
    _check_found(paths, found, is_local=filesystem is None)
    logs = _chosen(found, partitions)
    sources = [log.source(None, None, "log_end") for log in logs]
    return batches_of(sources, check_crc=check_crc, batch_rows=batch_rows)


def partition_directories(
    paths: StrPath | Sequence[StrPath],
    *,
    topics: str | Sequence[str] | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    kind: FileSystemKind = "auto",
) -> tuple[Log, ...]:
    """The partitions in log directories, by topic and number; a path may itself be a partition's directory.

    Args:
        paths: Directories of this machine, or URLs.
        topics: Only these; all but the internal ones when None.
        filesystem: A file system of fsspec or pyarrow for all paths.
        storage_options: Arguments of the file systems that are opened for URLs.
        kind: Which library opens URLs.

    Raises:
        FileNotFoundError: A path does not exist, or none has a partition of one of ``topics``.
        RemoteLogError: A URL cannot be listed, or a small file there cannot be read.
        ValueError: Storage options without a URL that they could be for.
    """
    if isinstance(topics, str):
        topics = (topics,)
    found: dict[str, Log] = {}
    for path in [paths] if isinstance(paths, str | os.PathLike) else paths:
        if is_url(path) or filesystem is not None:
            listed = list_remote(
                os.fspath(path), kind=kind, filesystem=filesystem, storage_options=storage_options, topics=topics
            )
            found.update((str(log.path), log) for log in wanted_logs(listed, topics))
            continue
        if storage_options is not None:
            message = f"storage options are for URLs, and {os.fspath(path)} is not a URL"
            raise ValueError(message)
        directory = Path(path)
        check_directory(directory)
        if is_tiered_directory(directory):
            logs: Iterable[Log] = wanted_logs(list_remote(str(directory), topics=topics), topics)
        else:
            logs = _logs_in(directory, topics)
        found.update((str(log.path), log) for log in logs)
    missing = sorted(set(topics or ()) - {log.topic for log in found.values()})
    if missing:
        message = f"no partition of topic {', '.join(missing)} in {_shown(paths)}"
        raise FileNotFoundError(message)
    return tuple(sorted(found.values(), key=lambda log: (log.topic, log.partition, str(log.path))))


def _check_found(paths: StrPath | Sequence[StrPath], found: Iterable[Log], *, is_local: bool) -> None:
    """Raise for a directory that has no segments and is no log directory either: a wrong path reads as no rows.

    Raises:
        FileNotFoundError: Its text says what is there.
    """
    logs = [log.path.resolve() for log in found if not isinstance(log, RemoteLog)]
    for path in [paths] if isinstance(paths, str | os.PathLike) else paths:
        directory = Path(path)
        if is_url(path) or not is_local or is_tiered_directory(directory) or _is_log_directory(directory):
            continue
        below = directory.resolve()
        inside = [log for log in logs if below in {log, log.parent}]
        if any(entry.name.endswith(".log") for log in inside for entry in log.iterdir()):
            continue
        what = entries_text(directory)
        if any(partition_of(entry.name) is not None for entry in directory.iterdir()):
            what += "; no directory of a partition there has segments that are scanned without naming the topic"
        message = f"{directory} is neither a log directory nor the directory of a partition: {what}"
        raise FileNotFoundError(message)


def _is_log_directory(directory: Path) -> bool:
    return any((directory / name).exists() for name in _LOG_DIRECTORY_FILES)


def _shown(paths: StrPath | Sequence[StrPath]) -> str:
    return ", ".join(display_url(str(path)) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths))


def _logs_in(directory: Path, topics: Sequence[str] | None) -> Iterator[Log]:
    own_name = partition_of(directory.resolve().name)
    if own_name is not None and any(entry.suffix == ".log" for entry in directory.iterdir()):
        if topics is None or own_name[0] in topics:
            yield Log(directory, *own_name)
        return
    for path, name in _partitions_in(directory):
        if name[0] in topics if topics is not None else name[0] not in SYSTEM_TOPICS:
            yield Log(path, *name)


def _partitions_in(directory: Path) -> Iterator[tuple[Path, tuple[str, int]]]:
    for entry in directory.iterdir():
        name = partition_of(entry.name)
        if name is not None and entry.is_dir():
            yield entry, name


def _chosen(logs: tuple[Log, ...], partitions: Sequence[int | tuple[str, int]] | None) -> tuple[Log, ...]:
    if partitions is None:
        return logs
    wanted = set(partitions)
    chosen = tuple(log for log in logs if log.partition in wanted or (log.topic, log.partition) in wanted)
    missing = wanted - {log.partition for log in chosen} - {(log.topic, log.partition) for log in chosen}
    if missing:
        message = f"no partition {', '.join(sorted(map(str, missing)))} among those of the topics"
        raise FileNotFoundError(message)
    return chosen


def _check_names(offsets: Offsets | None, logs: tuple[Log, ...]) -> None:
    if not isinstance(offsets, Mapping):
        return
    known: set[int | tuple[str, int]] = {log.partition for log in logs}
    known |= {(log.topic, log.partition) for log in logs}
    unknown = set(offsets) - known
    if unknown:
        message = f"offsets are given for {', '.join(sorted(map(str, unknown)))}, which is not scanned"
        raise ValueError(message)


def _source(log: Log, start_offsets: Offsets | None, end: End) -> ScanSource:
    start_offset = _offset_of(start_offsets, log)
    if start_offset is not None and not isinstance(start_offsets, Mapping):
        start_offset = max(start_offset, log.log_start_offset)
    return log.source(start_offset, None, end)


def _offset_of(offsets: Offsets | None, log: Log) -> int | None:
    if not isinstance(offsets, Mapping):
        return offsets
    by_name = cast("Mapping[int | tuple[str, int], int]", offsets)
    return by_name.get((log.topic, log.partition), by_name.get(log.partition))
