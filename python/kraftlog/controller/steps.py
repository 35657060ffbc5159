"""Long work in steps: between two of them the caller may serve others, or give the work up."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, TypeVar

__all__ = ["STEP_ITEMS", "Steps", "drop_in_steps", "finish_steps"]

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work that returns its result at the end and yields after each step of at most ``STEP_ITEMS`` small items."""

STEP_ITEMS: Final = 32
_FREED_PER_STEP: Final = 1024


def drop_in_steps(items: list[Any]) -> Steps[None]:
    """Empty a list of objects that nobody else has; to free hundred thousands of them takes a while."""
    while items:
        del items[-_FREED_PER_STEP:]
        yield


def finish_steps(steps: Steps[T]) -> T:
    """Run all steps at once; returns the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
