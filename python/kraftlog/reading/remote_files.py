"""Files elsewhere behind one small interface: directories of this machine, fsspec and pyarrow.fs.

Neither fsspec nor pyarrow is imported before a URL needs it.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
import os
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from kraftlog.extras import pip_command

__all__ = [
    "FILE_SYSTEM_KINDS",
    "TIERED_DIRECTORY",
    "TIERED_FILE",
    "FileSystemKind",
    "ListedFile",
    "RemoteFiles",
    "RemoteLocation",
    "display_url",
    "is_tiered_partition",
    "is_url",
    "location_of",
]

FileSystemKind: TypeAlias = Literal["auto", "pyarrow", "fsspec"]
FILE_SYSTEM_KINDS: tuple[FileSystemKind, ...] = ("auto", "pyarrow", "fsspec")

_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
# Schemes that pyarrow has a class of its own for, which takes storage options as its arguments.
_ARROW_CLASSES = {
    "s3": "S3FileSystem",
    "s3a": "S3FileSystem",
    "gs": "GcsFileSystem",
    "gcs": "GcsFileSystem",
    "abfs": "AzureFileSystem",
    "abfss": "AzureFileSystem",
    "hdfs": "HadoopFileSystem",
    "viewfs": "HadoopFileSystem",
}
_FSSPEC_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs"}
# Names of Kafka's LocalTieredStorage.
TIERED_DIRECTORY = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>[0-9]{1,10})-(?P<topic_id>[A-Za-z0-9_-]{22})\Z"
)
TIERED_FILE = re.compile(
    r"(?P<offset>[0-9]{20})-(?P<id>[A-Za-z0-9_-]{22})"
    r"\.(?P<suffix>log|index|timeindex|txnindex|snapshot|leader_epoch_checkpoint)\Z"
)
# Open handles of pyarrow's files: opening one asks for its size first.
_HANDLES_MAX = 16


class FileVersion(NamedTuple):
    """What tells one content of a file from the next: its size, and an ETag or the time of its last change."""

    size_bytes: int
    tag: str


class ListedFile(NamedTuple):
    """A file as a listing has it."""

    path: str
    size_bytes: int
    tag: str


class RemoteFiles(Protocol):
    """What reading needs of a file system. Paths are those of the file system, without scheme."""

    def find(self, path: str) -> list[ListedFile]:
        """All files below ``path``, in one listing that is not taken from a cache.

        Raises:
            FileNotFoundError: There is nothing; some file systems give no files instead.
        """

    def read(self, path: str, start: int, end: int) -> Any:
        """The bytes from ``start`` up to, without, ``end``, as an object with the buffer protocol; fewer at the end.

        Raises:
            FileNotFoundError: There is no such file.
        """

    def version(self, path: str) -> FileVersion:
        """What the file is now, not taken from a cache.

        Raises:
            FileNotFoundError: There is no such file.
        """


class LocalFiles:
    """Directories of this machine, for ``file://`` and layouts that are no log directories."""

    def find(self, path: str) -> list[ListedFile]:
        if not os.path.isdir(path):
            message = f"no directory {path}"
            raise FileNotFoundError(message)
        found = []
        for directory, _, names in os.walk(path):
            for name in names:
                full = os.path.join(directory, name)
                try:
                    version = self.version(full)
                except FileNotFoundError:  # deleted since it was listed
                    continue
                found.append(ListedFile(full, *version))
        return found

    def read(self, path: str, start: int, end: int) -> bytes:
        with open(path, "rb", buffering=0) as file:
            return os.pread(file.fileno(), end - start, start)

    def version(self, path: str) -> FileVersion:
        facts = os.stat(path)
        return FileVersion(facts.st_size, f"{facts.st_ino}/{facts.st_mtime_ns}")


class FsspecFiles:
    """Any file system of fsspec."""

    def __init__(self, filesystem: Any) -> None:
        self._fs = filesystem

    def find(self, path: str) -> list[ListedFile]:
        self._fs.invalidate_cache()
        found: dict[str, dict[str, Any]] = self._fs.find(path, detail=True)
        return [ListedFile(name, *_fsspec_version(facts)) for name, facts in found.items()]

    def read(self, path: str, start: int, end: int) -> Any:
        return self._fs.cat_file(path, start=start, end=end)

    def version(self, path: str) -> FileVersion:
        self._fs.invalidate_cache()
        return _fsspec_version(self._fs.info(path))


class ArrowFiles:
    """Any file system of pyarrow."""

    def __init__(self, filesystem: Any) -> None:
        self._fs = filesystem
        self._handles: OrderedDict[str, Any] = OrderedDict()
        self._lock = Lock()

    def find(self, path: str) -> list[ListedFile]:
        from pyarrow.fs import FileSelector, FileType

        found = self._fs.get_file_info(FileSelector(path, recursive=True))
        return [ListedFile(entry.path, *_arrow_version(entry)) for entry in found if entry.type == FileType.File]

    def read(self, path: str, start: int, end: int) -> Any:
        with self._lock:
            handle = self._handles.get(path)
        if handle is None:
            handle = self._fs.open_input_file(path)
            with self._lock:
                self._handles[path] = handle
                if len(self._handles) > _HANDLES_MAX:
                    self._handles.popitem(last=False)
        try:
            return handle.read_at(end - start, start)
        except OSError:
            with self._lock:
                self._handles.pop(path, None)
            raise

    def version(self, path: str) -> FileVersion:
        from pyarrow.fs import FileType

        facts = self._fs.get_file_info(path)
        if facts.type != FileType.File:
            message = f"no file {path}"
            raise FileNotFoundError(message)
        return _arrow_version(facts)


@dataclass(slots=True)
class _Opened:
    """A file system that was opened in this process; it is not sent to others."""

    files: RemoteFiles | None = None
    root: str = ""

    def __reduce__(self) -> tuple[type[_Opened], tuple[()]]:
        return _Opened, ()


@dataclass(frozen=True, slots=True)
class RemoteLocation:
    """A URL and how to reach it. It can be pickled; who unpickles it opens the file system for itself.

    Its text is the URL alone: options and file systems, which may hold credentials, are not shown.

    Args:
        url: Such as ``s3://bucket/kafka-logs``; credentials in it are not shown either.
        kind: Which library, where no file system is given.
        storage_options: Arguments of the file system.
        filesystem: A file system of fsspec or pyarrow to use as it is.
    """

    url: str = field(repr=False)
    kind: FileSystemKind = "auto"
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    filesystem: Any = field(default=None, repr=False)
    _opened: _Opened = field(default_factory=_Opened, repr=False, compare=False)

    @property
    def scheme(self) -> str:
        """The scheme of the URL in small letters; empty for a path."""
        return urlsplit(self.url).scheme.lower() if is_url(self.url) else ""

    @property
    def files(self) -> RemoteFiles:
        """The file system, opened when it is first asked for.

        Raises:
            ImportError: The library or its driver for the scheme is not there.
            ValueError: No library knows the scheme, or an option is none.
        """
        return self._open().files  # type: ignore[return-value]  # _open has opened it

    @property
    def root(self) -> str:
        """The path of the URL in its file system, without a slash at the end."""
        return self._open().root

    def url_of(self, path: str) -> str:
        """The URL of a path of the file system, for people."""
        shown = display_url(self.url).rstrip("/")
        root = self.root
        return shown + path[len(root) :] if path.startswith(root) else path

    def hide(self, text: str) -> str:
        """A text without the values of storage options that may be secret, or credentials in the URL."""
        for secret in _secrets(self.storage_options):
            text = text.replace(secret, "***")
        user_info = urlsplit(self.url).netloc.rpartition("@")[0]
        return text.replace(user_info, "***") if user_info else text

    def _open(self) -> _Opened:
        if self._opened.files is None:
            self._opened.files, root = _open_files(self)
            self._opened.root = root.rstrip("/")
        return self._opened

    def __str__(self) -> str:
        return display_url(self.url)


def is_url(path: object) -> bool:
    """Whether a path is a URL such as ``s3://bucket/kafka-logs``."""
    return isinstance(path, str) and _URL.match(path) is not None


def is_tiered_partition(directory: Path) -> bool:
    """Whether a directory of this machine is that of a partition in tiered storage."""
    if TIERED_DIRECTORY.match(directory.name) is None or not directory.is_dir():
        return False
    return any(TIERED_FILE.match(file.name) for file in directory.iterdir())


def display_url(url: str) -> str:
    """A URL without user, password and query, which may hold credentials."""
    if not is_url(url):
        return url
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def location_of(
    url: str,
    *,
    kind: FileSystemKind = "auto",
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> RemoteLocation:
    """Where and how to read.

    Raises:
        ValueError: ``kind`` is none of auto, pyarrow and fsspec, or options are given beside a file system.
        TypeError: ``filesystem`` is not one of fsspec or pyarrow.
    """
    if kind not in FILE_SYSTEM_KINDS:
        message = f"the file system must be one of {', '.join(FILE_SYSTEM_KINDS)}, not {kind!r}"
        raise ValueError(message)
    if filesystem is not None:
        if storage_options is not None:
            raise ValueError("storage options are for a file system that is opened here: give one of both")
        if not (hasattr(filesystem, "cat_file") or hasattr(filesystem, "get_file_info")):
            message = f"the file system must be of fsspec or pyarrow.fs, not {type(filesystem).__name__}"
            raise TypeError(message)
    return RemoteLocation(url, kind, None if storage_options is None else dict(storage_options), filesystem)


def _open_files(location: RemoteLocation) -> tuple[RemoteFiles, str]:
    filesystem = location.filesystem
    scheme = location.scheme
    if filesystem is not None:
        if hasattr(filesystem, "get_file_info"):
            return ArrowFiles(filesystem), _plain_path(location.url)
        return FsspecFiles(filesystem), str(filesystem._strip_protocol(location.url))
    if scheme in {"", "file"} and location.kind == "auto":
        if location.storage_options:
            raise ValueError("local directories have no storage options")
        return LocalFiles(), _plain_path(location.url)
    if _chosen_kind(location, scheme) == "fsspec":
        return _open_fsspec(location)
    return _open_arrow(location, scheme)


def _chosen_kind(location: RemoteLocation, scheme: str) -> FileSystemKind:
    if location.kind != "auto":
        return location.kind
    if scheme in {"hdfs", "viewfs"} or importlib.util.find_spec("fsspec") is None:
        return "pyarrow"
    package = _FSSPEC_PACKAGES.get(scheme)
    if package is not None and location.storage_options is None and importlib.util.find_spec(package) is None:
        return "pyarrow"
    return "fsspec"


def _open_fsspec(location: RemoteLocation) -> tuple[RemoteFiles, str]:
    try:
        from fsspec.core import url_to_fs

        filesystem, root = url_to_fs(location.url, **dict(location.storage_options or {}))
    except ImportError as error:  # fsspec, or its driver for the scheme
        if importlib.util.find_spec("fsspec") is not None and location.scheme not in _FSSPEC_PACKAGES:
            raise
        raise _missing_library(location) from error
    return FsspecFiles(filesystem), str(root)


def _open_arrow(location: RemoteLocation, scheme: str) -> tuple[RemoteFiles, str]:
    if importlib.util.find_spec("pyarrow") is None:
        raise _missing_library(location)
    from pyarrow import fs

    options = dict(location.storage_options or {})
    if not options and scheme not in {"s3a", "viewfs"}:
        filesystem, root = fs.FileSystem.from_uri(location.url)
        return ArrowFiles(filesystem), str(root)
    name = _ARROW_CLASSES.get(scheme)
    if name is None:
        message = f"pyarrow takes no storage options for {scheme}://"
        raise ValueError(message)
    parts = urlsplit(location.url)
    if name == "HadoopFileSystem":
        options = {"host": parts.hostname or "default", "port": parts.port or 8020} | options
        return ArrowFiles(fs.HadoopFileSystem(**options)), parts.path
    return ArrowFiles(getattr(fs, name)(**options)), parts.netloc.rpartition("@")[2] + parts.path


def _missing_library(location: RemoteLocation) -> ModuleNotFoundError:
    """No library that reads the URL is installed: names those that would do, and how to install one."""
    scheme = location.scheme
    commands = {}
    if location.kind != "pyarrow" and scheme not in {"hdfs", "viewfs"}:
        package = _FSSPEC_PACKAGES.get(scheme)
        commands[package or "fsspec"] = f"{pip_command('remote')} {package or ''}".rstrip()
    if location.kind != "fsspec" and scheme in _ARROW_CLASSES:
        commands["pyarrow"] = pip_command("arrow")
    verb = "is" if len(commands) == 1 else "are"
    how = ", or ".join(commands.values())
    message = f"reading {scheme}:// needs {' or '.join(commands)}, which {verb} not installed: {how}"
    return ModuleNotFoundError(message, name=next(iter(commands)))


def _plain_path(url: str) -> str:
    """The path of a URL where the bucket is its first part."""
    if not is_url(url):
        return os.path.abspath(url)
    parts = urlsplit(url)
    return parts.path if parts.scheme in {"file", "hdfs", "viewfs"} else parts.netloc.rpartition("@")[2] + parts.path


def _fsspec_version(facts: Mapping[str, Any]) -> FileVersion:
    tag = ""
    for name in ("ETag", "etag", "md5Hash", "generation", "LastModified", "last_modified", "mtime", "created"):
        if facts.get(name) is not None:
            tag = _tag(facts[name])
            break
    return FileVersion(int(facts.get("size") or 0), tag)


def _tag(value: object) -> str:
    """The same text for the same value: listings give some times as numbers that single looks give as dates."""
    if isinstance(value, dt.datetime):
        value = value.timestamp()
    return f"{value:.6f}" if isinstance(value, float) else str(value).strip('"')


def _arrow_version(facts: Any) -> FileVersion:
    return FileVersion(int(facts.size or 0), str(facts.mtime_ns))


def _secrets(options: object) -> list[str]:
    """The texts in storage options, the longest first; short ones such as regions are left readable."""
    if isinstance(options, Mapping):
        found = [text for value in options.values() for text in _secrets(value)]
    elif isinstance(options, list | tuple):
        found = [text for value in options for text in _secrets(value)]
    elif isinstance(options, str) and len(options) >= 6 and not is_url(options):
        found = [options]
    else:
        found = []
    return sorted(found, key=len, reverse=True)
