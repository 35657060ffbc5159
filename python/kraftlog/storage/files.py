"""What is done with files beyond ``pathlib``: fsync, whole directories, files that must be new.

A path of the operating system and one on a disk in memory (``memory_path``) are served alike, so that a simulation runs
the code of this room unchanged.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from kraftlog.storage.memory_path import MemoryPath

__all__ = [
    "NewFile",
    "as_path",
    "create_file",
    "make_directory",
    "remove_tree",
    "replace",
    "sync_directory",
    "sync_file",
    "truncate_file",
]

as_path = MemoryPath.of


class NewFile(Protocol):
    """An unbuffered file that is being written."""

    def write(self, data: memoryview, /) -> int:
        """Write, and return how many bytes were taken."""
        ...

    def sync(self) -> None:
        """Make the bytes survive a crash."""

    def close(self) -> None:
        """Close; harmless when called again."""


class _DescriptorFile:
    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: memoryview, /) -> int:
        return os.write(self._descriptor, data)

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def create_file(path: Path) -> NewFile:
    """Create a file.

    Raises:
        FileExistsError: There is one of this name.
        OSError: It cannot be created.
    """
    if isinstance(path, MemoryPath):
        return path.open("xb", buffering=0)  # type: ignore[no-any-return]
    return _DescriptorFile(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))


def truncate_file(path: Path) -> NewFile:
    """Open a file for writing, empty whether it was there or not.

    Raises:
        OSError: It cannot be opened.
    """
    if isinstance(path, MemoryPath):
        return path.open("wb", buffering=0)  # type: ignore[no-any-return]
    return _DescriptorFile(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))


def replace(source: Path, target: Path) -> None:
    """Rename a file; one that has the name already is gone.

    Raises:
        OSError: It cannot be renamed.
    """
    if isinstance(source, MemoryPath):
        source.rename(target)
    else:
        os.replace(source, target)


def sync_file(path: Path) -> None:
    """Make the bytes of a file that another call wrote survive a crash.

    Raises:
        OSError: It cannot be opened, or fsync failed.
    """
    if isinstance(path, MemoryPath):
        with path.open("rb", buffering=0) as stream:
            stream.sync()
        return
    file = _DescriptorFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    try:
        file.sync()
    finally:
        file.close()


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive a crash.

    Raises:
        OSError: The directory cannot be opened, or fsync failed.
    """
    if isinstance(path, MemoryPath):
        path.sync_directory()
        return
    directory = _DescriptorFile(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    try:
        directory.sync()
    finally:
        directory.close()


def make_directory(path: Path) -> None:
    """Make a directory that survives a crash, and those above it that are missing.

    The directory above is flushed even if ``path`` is there already: the process that made it may have crashed first.
    If this process may not read that directory, somebody else made ``path``, and nothing is flushed.

    Raises:
        FileExistsError: A file has this name.
        OSError: A directory cannot be made or opened, or fsync failed.
    """
    if path.is_dir():
        with suppress(PermissionError):
            sync_directory(path.parent)
        return
    made = [path]
    while not made[-1].parent.exists():
        made.append(made[-1].parent)
    path.mkdir(parents=True, exist_ok=True)
    for directory in made:
        sync_directory(directory.parent)


def remove_tree(path: Path) -> None:
    """Remove a directory and what is in it; what cannot be removed stays."""
    if not isinstance(path, MemoryPath):
        shutil.rmtree(path, ignore_errors=True)
        return
    try:
        path.remove_tree()
    except OSError:
        return
