"""Long work in steps: between two of them the caller may serve others, or give the work up."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeVar

__all__ = ["STEP_ITEMS", "Steps", "finish_steps"]

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work that returns its result at the end and yields after each step of at most ``STEP_ITEMS`` small items."""

STEP_ITEMS: Final = 32


def finish_steps(steps: Steps[T]) -> T:
    """Run all steps at once; returns the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
