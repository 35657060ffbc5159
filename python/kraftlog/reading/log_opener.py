"""One partition by its path or URL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kraftlog.reading.directory import StrPath, check_directory, partition_of
from kraftlog.reading.log import Log
from kraftlog.reading.remote import open_remote_log
from kraftlog.reading.remote_files import is_tiered_partition, is_url

__all__ = ["open_log"]


def open_log(path: StrPath, *, filesystem: Any = None, storage_options: Mapping[str, Any] | None = None) -> Log:
    """A partition's directory of Kafka or kraftlog, for reading.

    Args:
        path: The directory; its name ends in the partition's number, as in ``orders-0``. A URL such as
            ``s3://bucket/kafka-logs/orders-0`` is listed now, and gives a :class:`RemoteLog`.
        filesystem: For URLs, and paths of it: a file system of fsspec or ``pyarrow.fs``.
        storage_options: For URLs: arguments of the file system that is opened.

    Raises:
        FileNotFoundError: There is no such directory.
        NotADirectoryError: The path is a file.
        ValueError: The name is not that of a partition's directory.
        RemoteLogError: The URL cannot be listed.
    """
    if is_url(path) or filesystem is not None or storage_options is not None:
        return open_remote_log(str(path), filesystem=filesystem, storage_options=storage_options)
    directory = Path(path)
    check_directory(directory)
    if is_tiered_partition(directory):
        return open_remote_log(str(directory))
    name = partition_of(directory.resolve().name)
    if name is None:
        message = f"{directory} is not named as a partition's directory, such as orders-0"
        raise ValueError(message)
    return Log(directory, *name)
