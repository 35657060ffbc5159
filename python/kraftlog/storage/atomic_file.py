"""Replace a small file so that a crash leaves the old content or the new one, never a mixture."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["flush_directory", "move_durably", "replace_file"]


def flush_directory(path: Path) -> None:
    """Make the names in a directory durable.

    Raises:
        OSError: The directory cannot be opened or fsync failed.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes, *, temporary: Path | None = None, sync_directory: bool = True) -> None:
    """Write ``data`` beside ``path``, fsync it, rename it over ``path`` and fsync the directory.

    Args:
        path: The file to replace or create.
        data: Its whole new content.
        temporary: Where the content is written first; ``<path>.tmp`` when absent.
        sync_directory: False when the caller fsyncs the directory itself after several files.

    Raises:
        OSError: Any step failed; ``path`` holds its old or its new content and the temporary file is gone.
    """
    temporary = temporary or path.with_name(path.name + ".tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if error.filename is None:  # of a call that was given a descriptor
            error.filename = str(path)
        raise
    if sync_directory:
        flush_directory(path.parent)


def move_durably(source: Path, target: Path) -> None:
    """Fsync a file that was written under another name, give it its name, and fsync the directory.

    Raises:
        OSError: Any step failed; ``target`` holds its old or its new content.
    """
    descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(source, target)
    flush_directory(target.parent)
