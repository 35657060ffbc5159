"""Tasks that belong to a node and end with it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from kraftlog.ordered_set import OrderedSet

__all__ = ["NodeTasks"]

T = TypeVar("T")


class NodeTasks:
    """A group of tasks whose failures belong to those who await them.

    Unlike ``asyncio.TaskGroup``, a task that fails ends no other: each answers one request.
    """

    def __init__(self) -> None:
        self._tasks: OrderedSet[asyncio.Task[Any]] = OrderedSet()

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run ``coroutine`` on the running loop, until it ends or ``cancel_all`` is called."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def cancel_all(self) -> None:
        """Cancel what is left and wait until it has ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
