"""Checkpoints that a state machine takes in on another thread, while the raft side goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from typing import TYPE_CHECKING, TypeAlias

from kraftlog.errors import NodeClosedError

if TYPE_CHECKING:
    from kraftlog.storage.snapshot_file import Snapshot
    from kraftlog.types import SnapshotId

__all__ = ["CheckpointLoad", "CheckpointLoads", "LoadWork"]


class CheckpointLoad:
    """How far a checkpoint is taken in, and whether it still is to be.

    Args:
        snapshot_id: Of the checkpoint.

    Attributes:
        snapshot_id: As given.
        record_count: Records that the state machine has got. The thread that loads changes it.
        is_void: Whether another checkpoint took its place, or the replica ends; set on the loop.
        error: What reading failed with, which is no fault of the state machine.
    """

    def __init__(self, snapshot_id: SnapshotId) -> None:
        self.snapshot_id = snapshot_id
        self.record_count = 0
        self.is_void = False
        self.error: Exception | None = None

    def counted(self, values: Iterable[bytes]) -> Iterator[bytes]:
        """The values, as long as they are wanted.

        Raises:
            NodeClosedError: They are not wanted any more.
            Exception: What reading them raises.
        """
        values = iter(values)
        while True:
            try:
                if self.is_void:
                    raise NodeClosedError("the checkpoint is not wanted any more")
                value = next(values, None)
            except Exception as error:
                self.error = error
                raise
            if value is None:
                return
            self.record_count += 1
            yield value


LoadWork: TypeAlias = Callable[[CheckpointLoad], Callable[[], None]]
"""Called on another thread; what it returns puts the state in place, on the loop."""


class CheckpointLoads:
    """Has one checkpoint taken in at a time; a newer one makes the one before void.

    Args:
        executor: The thread.
        tell: Runs what ends a load among the events of the replica, which fails with what that raises.
        on_loaded: Called once a state is in place.

    Attributes:
        current: The one that is being taken in; None for none.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        tell: Callable[[Callable[[], object]], None],
        on_loaded: Callable[[SnapshotId, Snapshot], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._executor = executor
        self._tell = tell
        self._on_loaded = on_loaded
        self._task: asyncio.Future[Callable[[], None]] | None = None
        self.current: CheckpointLoad | None = None

    def begin(self, snapshot_id: SnapshotId, snapshot: Snapshot, work: LoadWork) -> None:
        """Begin to take a checkpoint in."""
        if self.current is not None:
            self.current.is_void = True
        load = self.current = CheckpointLoad(snapshot_id)
        task = self._task = self._loop.run_in_executor(self._executor, work, load)

        def ended(task: asyncio.Future[Callable[[], None]]) -> None:
            # Retrieved here: a replica that has failed ignores the end of a load, and asyncio would log the error.
            task.exception()
            self._tell(lambda: self._end(load, snapshot, task))

        task.add_done_callback(ended)

    def _end(self, load: CheckpointLoad, snapshot: Snapshot, task: asyncio.Future[Callable[[], None]]) -> None:
        if load.is_void:
            return
        put_in_place = task.result()
        put_in_place()
        self.current = self._task = None
        self._on_loaded(load.snapshot_id, snapshot)

    async def step(self) -> None:
        """Wait for the thread's next end, if it is at work; the state may be in place then."""
        if self._task is not None:
            await asyncio.wait([self._task])
            await asyncio.sleep(0)  # the callback of the task runs first

    async def stop(self) -> None:
        """Take nothing in any more; returns when the thread has ended."""
        if self.current is not None:
            self.current.is_void = True
        await self.step()
