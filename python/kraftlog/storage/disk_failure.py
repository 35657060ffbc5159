"""Which failed file operations say that a disk failed."""

from __future__ import annotations

import errno

__all__ = ["is_disk_failure"]

_OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


def is_disk_failure(error: BaseException) -> bool:
    """Whether a failed file operation takes its directory offline.

    A file that could not be opened because the process (EMFILE) or the system (ENFILE) has no descriptor left says
    nothing about the disk: the operation was not begun and may succeed later.
    """
    return not (isinstance(error, OSError) and error.errno in _OUT_OF_DESCRIPTORS)
