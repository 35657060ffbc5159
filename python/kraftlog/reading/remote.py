"""Log directories and partitions by URL: what one listing finds, in the layouts of brokers and of tiered storage."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from kraftlog.errors import LogError
from kraftlog.reading.directory import partition_of
from kraftlog.reading.remote_fetch import RetryPolicy, listed
from kraftlog.reading.remote_files import (
    TIERED_DIRECTORY,
    TIERED_FILE,
    FileSystemKind,
    ListedFile,
    RemoteLocation,
    is_tiered_partition,
    location_of,
)
from kraftlog.reading.remote_log import RemoteCheckpoints, RemoteLog
from kraftlog.reading.remote_partition import WINDOW_BYTES, ObjectKind, RemoteObject, RemotePartition
from kraftlog.reading.remote_tiered import tiered_partition
from kraftlog.types import Uuid
from kraftlog.vocabulary import SYSTEM_TOPICS

__all__ = ["RemoteDirectories", "is_tiered_directory", "list_remote", "open_remote_log", "wanted_logs"]

_BROKER_FILE = re.compile(r"(?P<offset>[0-9]{20})\.(?P<suffix>log|index|timeindex|txnindex|snapshot)\Z")
_SWAP_FILE = re.compile(r"[0-9]{20}\.log\.swap\Z")


@dataclass(frozen=True, slots=True)
class RemoteDirectories:
    """What a listing of a URL has found.

    Args:
        location: The URL.
        logs: Its partitions by topic and number, of internal topics too.
        checkpoints: The small files of the log directory.
        is_partition: The URL is that of a single partition.
    """

    location: RemoteLocation
    logs: tuple[RemoteLog, ...]
    checkpoints: RemoteCheckpoints
    is_partition: bool


def list_remote(
    url: str,
    *,
    kind: FileSystemKind = "auto",
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    topics: Collection[str] | None = None,
    retry: RetryPolicy | None = None,
) -> RemoteDirectories:
    """Lists a log directory, the directory of a partition, or a directory of tiered storage, once.

    Args:
        url: Where; a path of this machine too.
        kind: Which library opens the URL, where no file system is given.
        filesystem: One of fsspec or pyarrow.
        storage_options: Arguments of the file system that is opened.
        topics: Only these; all when None.
        retry: After errors that may pass.

    Raises:
        FileNotFoundError: There are no files.
        LogError: Copies of a tiered partition do not join, or a copy of a directory was taken within a compaction.
        RemoteLogError: It cannot be listed, or an object cannot be read.
    """
    retry = retry or RetryPolicy()
    location = location_of(url, kind=kind, filesystem=filesystem, storage_options=storage_options)
    root = location.root
    directories: dict[str, list[ListedFile]] = {}
    for listed_file in listed(location, root, retry):
        directory = listed_file.path.rpartition("/")[0]
        directories.setdefault(directory, []).append(listed_file)
    name = root.rpartition("/")[2]
    # As for paths of this machine: a name that could be a partition's is one when there are segments in it.
    own_files = directories.get(root, [])
    is_partition = _partition_name(name, own_files) is not None and any(
        own_file.path.endswith(".log") for own_file in own_files
    )
    if is_partition:
        parent = root.rpartition("/")[0]
        checkpoints = RemoteCheckpoints(location, parent, None, retry)
        found = [root]
    else:
        files = {
            directory.path.rpartition("/")[2]: _object(location, directory) for directory in directories.get(root, ())
        }
        checkpoints = RemoteCheckpoints(location, root, files, retry)
        found = [path for path in directories if path.rpartition("/")[0] == root]
    logs = []
    for path in found:
        own_name = _partition_name(path.rpartition("/")[2], directories[path])
        if own_name is not None and (topics is None or own_name[0] in topics):
            logs.append(_log(location, path, directories[path], checkpoints, retry))
    logs.sort(key=lambda log: (log.topic, log.partition))
    return RemoteDirectories(location, tuple(logs), checkpoints, is_partition)


def open_remote_log(
    url: str,
    *,
    kind: FileSystemKind = "auto",
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
) -> RemoteLog:
    """One partition by its URL; as :func:`list_remote`.

    Raises:
        ValueError: The URL is not that of a partition's directory.
    """
    found = list_remote(url, kind=kind, filesystem=filesystem, storage_options=storage_options, retry=retry)
    if not found.is_partition:
        message = f"{found.location} is not a partition's directory, such as orders-0"
        raise ValueError(message)
    return found.logs[0]


def is_tiered_directory(directory: Path) -> bool:
    """Whether a directory of this machine is one of tiered storage: of all partitions, or of one of them."""
    return is_tiered_partition(directory) or any(map(is_tiered_partition, directory.iterdir()))


def wanted_logs(found: RemoteDirectories, topics: Collection[str] | None) -> tuple[RemoteLog, ...]:
    """Those of a scan: of the topics, or all but the internal ones; of the URL of a partition that one."""
    if topics is not None:
        return tuple(log for log in found.logs if log.topic in topics)
    if found.is_partition:
        return found.logs
    return tuple(log for log in found.logs if log.topic not in SYSTEM_TOPICS)


def _partition_name(name: str, files: Collection[ListedFile]) -> tuple[str, int] | None:
    """Topic and partition in the name of a directory, whose layout its files tell."""
    tiered = TIERED_DIRECTORY.match(name)
    if tiered is not None and _has_copies(files):
        return tiered["topic"], int(tiered["partition"])
    return partition_of(name)


def _has_copies(files: Collection[ListedFile]) -> bool:
    return any(TIERED_FILE.match(file.path.rpartition("/")[2]) for file in files)


def _log(
    location: RemoteLocation,
    path: str,
    files: list[ListedFile],
    checkpoints: RemoteCheckpoints,
    retry: RetryPolicy,
) -> RemoteLog:
    url = location.url_of(path)
    name = path.rpartition("/")[2]
    tiered = TIERED_DIRECTORY.match(name)
    objects = [_object(location, file) for file in files]
    if tiered is not None and _has_copies(files):
        tiered_objects, epochs = tiered_partition(url, objects, retry)
        return RemoteLog(
            cast("Any", tiered_objects),
            tiered["topic"],
            int(tiered["partition"]),
            tiered_id=Uuid.parse(tiered["topic_id"]),
            tiered_epochs=epochs,
        )
    swapped = next((stored for stored in objects if _SWAP_FILE.match(stored.path.rpartition("/")[2])), None)
    if swapped is not None:
        message = f"{swapped.url}: compaction was replacing segments when this copy was made: copy it again"
        raise LogError(message)
    partition = RemotePartition(
        url, tuple(stored for stored in objects if stored.kind != "other"), None, WINDOW_BYTES, retry
    )
    topic, number = _partition_name(name, files) or (name, 0)
    small = {stored.path.rpartition("/")[2]: stored for stored in objects if stored.kind == "other"}
    return RemoteLog(cast("Any", partition), topic, number, checkpoints=checkpoints, small_files=small)


def _object(location: RemoteLocation, one: ListedFile) -> RemoteObject:
    name = one.path.rpartition("/")[2]
    match = _BROKER_FILE.match(name) or TIERED_FILE.match(name)
    if match is None or match["suffix"] == "leader_epoch_checkpoint":
        return RemoteObject(location, one.path, one.size_bytes, one.tag)
    kind = cast("ObjectKind", match["suffix"])
    return RemoteObject(location, one.path, one.size_bytes, one.tag, kind, int(match["offset"]))
