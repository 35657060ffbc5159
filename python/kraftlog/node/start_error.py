"""Why a node cannot start, in one line with file and reason."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kraftlog.errors import KraftlogError

__all__ = ["StartError", "check_directory", "named_failures", "os_error_text"]


class StartError(KraftlogError):
    """The data directories do not fit the configuration, or a file of them cannot be used; the text says what to do."""


def os_error_text(error: OSError) -> str:
    """File and reason of an error of the operating system, such as ``/data/.lock: No space left on device``."""
    reason = error.strerror or str(error) or type(error).__name__
    return reason if error.filename is None else f"{os.fsdecode(error.filename)}: {reason}"


@contextmanager
def named_failures() -> Iterator[None]:
    """Errors of the operating system in the block as :class:`StartError`.

    Raises:
        StartError: One was raised.
    """
    try:
        yield
    except TimeoutError:  # an OSError since Python 3.10, of a caller that waited
        raise
    except OSError as error:
        raise StartError(os_error_text(error)) from error


def check_directory(path: Path) -> None:
    """Refuse a file where a data directory should be.

    Raises:
        StartError: It is there and is no directory.
    """
    if path.exists() and not path.is_dir():
        message = f"{path} is a file, but must be a directory: move it away, or correct log.dirs"
        raise StartError(message)
