"""Paths on disks in memory, for simulations: ``pathlib`` over ``_kraftlog.MemoryDisk``."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Any, Literal

from kraftlog._kraftlog import MemoryDisk, MemoryFile

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["MEMORY_ROOT", "MemoryPath", "add_disk", "remove_disk", "unused_name"]

# No directory of a machine: what lies below it exists in this process only.
MEMORY_ROOT = "/kraftlog-memory-disk"

_disks: dict[str, MemoryDisk] = {}


def unused_name(wanted: str) -> str:
    """A name that no disk has: ``wanted``, or with a number behind it."""
    names = (wanted if number == 1 else f"{wanted}.{number}" for number in count(1))
    return next(name for name in names if name not in _disks)


def add_disk(name: str) -> MemoryDisk:
    """A new, empty disk, whose root is ``MemoryPath(MEMORY_ROOT, name)``; a name within a disk's is mounted there.

    Raises:
        ValueError: There is a disk of this name.
    """
    disk = MemoryDisk(f"{MEMORY_ROOT}/{name}")
    _disks[name] = disk
    return disk


def remove_disk(name: str) -> None:
    """Forget a disk and its files."""
    _disks.pop(name).close()


class _MemoryStream(io.RawIOBase):
    """A position in an open file."""

    def __init__(self, file: MemoryFile, size_bytes: int, *, reads: bool, writes: bool, at_end: bool) -> None:
        super().__init__()
        self._file = file
        self._reads = reads
        self._writes = writes
        self._position = size_bytes if at_end else 0

    def readable(self) -> bool:
        return self._reads

    def writable(self) -> bool:
        return self._writes

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self._file.read_at(self._position, len(view))
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def write(self, data: Buffer, /) -> int:
        written = self._file.write_at(self._position, bytes(data))
        self._position += written
        return written

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        if whence == os.SEEK_END:
            raise io.UnsupportedOperation("seek from the end")
        self._position = offset if whence == os.SEEK_SET else self._position + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def truncate(self, size: int | None = None, /) -> int:
        size = self._position if size is None else size
        self._file.truncate(size)
        return size

    def sync(self) -> None:
        """Make the bytes survive a crash."""
        self._file.sync()

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._file.close()


class MemoryPath(PosixPath):
    """A path on a disk that ``add_disk`` made. Relative paths, links, owners and permissions do not exist there."""

    __slots__ = ()

    @property
    def disk(self) -> MemoryDisk:
        """The disk that this path lies on.

        Raises:
            FileNotFoundError: There is no such disk.
        """
        parts = self.parts
        # A disk may be mounted in the directory of another one.
        disk = _disks.get("/".join(parts[2:4])) or _disks.get("/".join(parts[2:3]))
        if disk is None:
            raise FileNotFoundError(2, "no disk in memory", str(self))
        return disk

    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> Any:
        """As ``Path.open``."""
        kind = mode.replace("b", "").replace("t", "")
        if kind.startswith("x") and self.exists():
            raise FileExistsError(17, "File exists", str(self))
        ways: dict[str, Literal["read", "write", "create", "truncate"]] = {
            "r": "read",
            "r+": "write",
            "w": "truncate",
            "w+": "truncate",
            "a": "create",
            "x": "create",
        }
        if self.is_dir():
            raise IsADirectoryError(21, "Is a directory", str(self))
        file = self.disk.open(self, ways[kind])
        size_bytes = self._found()[0]
        reads, writes = kind[0] == "r" or "+" in kind, kind != "r"
        stream = _MemoryStream(file, size_bytes, reads=reads, writes=writes, at_end=kind == "a")
        if "b" in mode and buffering == 0:
            return stream
        buffered: Any = io.BufferedWriter(stream) if writes and not reads else io.BufferedReader(stream)
        if reads and writes:
            raise io.UnsupportedOperation("a buffered file in memory is read or written, not both")
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline)

    def _found(self) -> tuple[int, int, bool]:
        found = self.disk.metadata(self)
        if found is None:
            raise FileNotFoundError(2, "No such file or directory", str(self))
        return found

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """As ``Path.stat``: kind, size and time of modification."""
        size_bytes, modified_ms, is_directory = self._found()
        mode = 0o040755 if is_directory else 0o100644
        seconds = modified_ms / 1000
        times = {"st_atime_ns": 0, "st_mtime_ns": modified_ms * 1_000_000, "st_ctime_ns": 0}
        return os.stat_result((mode, 0, 0, 1, 0, 0, size_bytes, 0, seconds, 0), times)

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """As ``Path.exists``."""
        return len(self.parts) > 2 and self.parts[2] in _disks and self.disk.metadata(self) is not None

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """As ``Path.is_dir``."""
        return self.exists() and self._found()[2]

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """As ``Path.is_file``."""
        return self.exists() and not self._found()[2]

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """As ``Path.mkdir``."""
        if self.exists():
            if exist_ok and self.is_dir():
                return
            raise FileExistsError(17, "File exists", str(self))
        if not parents and not self.parent.exists():
            raise FileNotFoundError(2, "No such file or directory", str(self))
        self.disk.create_directory(self)

    def iterdir(self) -> Iterator[MemoryPath]:  # type: ignore[override]
        """As ``Path.iterdir``, in the order of names."""
        if not self._found()[2]:
            raise NotADirectoryError(20, "Not a directory", str(self))
        for name in sorted(self.disk.files(self) + self.disk.directories(self)):
            yield self / name

    def glob(self, pattern: str, **_: Any) -> Iterator[MemoryPath]:  # type: ignore[override]
        """As ``Path.glob``, for patterns of one name."""
        return (path for path in self.iterdir() if fnmatchcase(path.name, pattern))

    def rename(self, target: str | os.PathLike[str]) -> MemoryPath:
        """As ``Path.rename``.

        Raises:
            OSError: EXDEV if the target is on another disk.
        """
        new = MemoryPath(target)
        if new.disk is not self.disk:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(self), None, str(target))
        self.disk.rename(self, target)
        return new

    replace = rename

    def unlink(self, missing_ok: bool = False) -> None:
        """As ``Path.unlink``."""
        if missing_ok and not self.exists():
            return
        self.disk.remove(self)

    def rmdir(self) -> None:
        """As ``Path.rmdir``."""
        self.disk.remove_directory(self)

    def chmod(self, mode: int, *, follow_symlinks: bool = True) -> None:
        """Nothing: there are no permissions."""
        self._found()

    def resolve(self, strict: bool = False) -> MemoryPath:
        """The path itself: there are no links."""
        return self

    def sync_directory(self) -> None:
        """Make the names in this directory survive a crash."""
        self.disk.sync_directory(self)

    def remove_tree(self) -> None:
        """Remove a directory and what is in it."""
        for name in self.disk.files(self):
            self.disk.remove(self / name)
        for name in self.disk.directories(self):
            (self / name).remove_tree()
        self.disk.remove_directory(self)

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Path:
        """The path as the class that its place needs: this one below ``MEMORY_ROOT``, else ``Path``."""
        text = os.fspath(path)
        return cls(text) if text.startswith(MEMORY_ROOT) else Path(text)
