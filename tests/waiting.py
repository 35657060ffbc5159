"""Waiting in tests: for a condition, with a deadline. No test waits for a fixed time and hopes that it was enough."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["settle", "until", "until_true"]

# Long, because it only passes in a test that fails, or on a machine with much else to do.
TIMEOUT_S = 30.0


async def until(is_so: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
    """Let the loop run until a condition holds.

    Raises:
        TimeoutError: It still does not hold after ``timeout_s`` seconds.
    """
    async with asyncio.timeout(timeout_s):
        while not is_so():  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0.002)


def until_true(is_so: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
    """Let other threads and processes run until a condition holds.

    Raises:
        TimeoutError: It still does not hold after ``timeout_s`` seconds.
    """
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so after {timeout_s} s: {is_so}")
        time.sleep(0.002)


async def settle(turns: int = 50) -> None:
    """Let the loop turn so often that everything that is ready happens: for checks that something does not follow.

    Bytes on a local socket are ready as soon as they are written; work of other threads is not waited for.
    """
    for _ in range(turns):
        await asyncio.sleep(0)
