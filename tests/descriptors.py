"""A process that has used up its file descriptors."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def soft_limit(limit: int) -> Iterator[None]:
    """At most ``limit`` files are open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def all_descriptors_taken(*, left: int = 0) -> Iterator[None]:
    """Only ``left`` more files can be opened."""
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(left):
            os.close(taken.pop())
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)


@contextlib.contextmanager
def no_descriptors(left: int) -> Iterator[None]:
    """Only ``left`` more files can be opened, with a limit that is soon reached."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    with soft_limit(min(soft, 1024)), all_descriptors_taken(left=left):
        yield
