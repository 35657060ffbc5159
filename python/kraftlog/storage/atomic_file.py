"""Replace a small file so that a crash leaves the old content or the new one, never a mixture."""

from __future__ import annotations

from pathlib import Path

from kraftlog.storage.files import replace, sync_directory, sync_file, truncate_file

__all__ = ["flush_directory", "move_durably", "replace_file"]


def flush_directory(path: Path) -> None:
    """Make the names in a directory durable.

    Raises:
        OSError: The directory cannot be opened or fsync failed.
    """
    sync_directory(path)


def replace_file(path: Path, data: bytes, *, temporary: Path | None = None, syncs_directory: bool = True) -> None:
    """Write ``data`` beside ``path``, fsync it, rename it over ``path`` and fsync the directory.

    Args:
        path: The file to replace or create.
        data: Its whole new content.
        temporary: Where the content is written first; ``<path>.tmp`` when absent.
        syncs_directory: False when the caller fsyncs the directory itself after several files.

    Raises:
        OSError: Any step failed; ``path`` holds its old or its new content and the temporary file is gone.
    """
    temporary = temporary or path.with_name(path.name + ".tmp")
    try:
        file = truncate_file(temporary)
        try:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            file.sync()
        finally:
            file.close()
        replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if error.filename is None:  # of a call that was given a descriptor
            error.filename = str(path)
        raise
    if syncs_directory:
        flush_directory(path.parent)


def move_durably(source: Path, target: Path) -> None:
    """Fsync a file that was written under another name, give it its name, and fsync the directory.

    Raises:
        OSError: Any step failed; ``target`` holds its old or its new content.
    """
    sync_file(source)
    replace(source, target)
    flush_directory(target.parent)
