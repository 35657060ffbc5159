"""Answers made of other answers that come in their own time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from kraftlog.api.slices import ENTRIES_PER_SLICE, Slices
from kraftlog.errors import KafkaError

__all__ = ["gather", "gather_in_slices", "transform"]

Part = TypeVar("Part")
Whole = TypeVar("Whole")


def transform(
    source: asyncio.Future[Part],
    on_result: Callable[[Part], Whole],
    on_error: Callable[[KafkaError], Whole] | None = None,
) -> asyncio.Future[Whole]:
    """A future of ``on_result(source's result)``.

    Args:
        source: Something awaited.
        on_result: Makes the answer of it.
        on_error: Makes the answer of a KafkaError; without it the answer ends with that error, as with every other.
    """
    target: asyncio.Future[Whole] = asyncio.get_running_loop().create_future()

    def on_done(done: asyncio.Future[Part]) -> None:
        if target.done():
            return
        if done.cancelled():
            target.cancel()
            return
        error = done.exception()
        if error is None:
            target.set_result(on_result(done.result()))
        elif isinstance(error, KafkaError) and on_error is not None:
            target.set_result(on_error(error))
        else:
            target.set_exception(error)

    source.add_done_callback(on_done)
    return target


def gather(
    parts: Sequence[Part | asyncio.Future[Part]],
    on_error: Callable[[KafkaError, int], Part],
    combine: Callable[[list[Part]], Whole],
) -> asyncio.Future[Whole]:
    """Combine parts, in their order, once all are there.

    Args:
        parts: What is known already, or futures of it.
        on_error: What stands for the part with that index when its future ends with a KafkaError.
        combine: Makes the whole.
    """
    whole: asyncio.Future[Whole] = asyncio.get_running_loop().create_future()
    missing = sum(1 for part in parts if isinstance(part, asyncio.Future))

    def finish() -> None:
        if whole.done():
            return
        results: list[Part] = []
        for index, part in enumerate(parts):
            if not isinstance(part, asyncio.Future):
                results.append(part)
                continue
            error = asyncio.CancelledError() if part.cancelled() else part.exception()
            if error is None:
                results.append(part.result())
            elif isinstance(error, KafkaError):
                results.append(on_error(error, index))
            elif isinstance(error, asyncio.CancelledError):
                whole.cancel()
                return
            else:
                whole.set_exception(error)
                return
        whole.set_result(combine(results))

    def on_part(_part: asyncio.Future[Part]) -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            finish()

    for part in parts:
        if isinstance(part, asyncio.Future):
            part.add_done_callback(on_part)
    if not missing:
        finish()
    return whole


def gather_in_slices(
    parts: Sequence[Part | asyncio.Future[Part]], on_error: Callable[[KafkaError, int], Part]
) -> Slices[list[Part]]:
    """Wait for parts one after the other, letting other requests have their turns in between.

    Args:
        parts: What is known already, or futures of it.
        on_error: What stands for the part with that index when its future ends with a KafkaError.

    Returns:
        The parts in their order.
    """
    results: list[Part] = []
    for index, part in enumerate(parts):
        if not index % ENTRIES_PER_SLICE:
            yield None
        if not isinstance(part, asyncio.Future):
            results.append(part)
            continue
        if not part.done():
            yield part
        try:
            results.append(part.result())
        except KafkaError as error:
            results.append(on_error(error, index))
    return results
