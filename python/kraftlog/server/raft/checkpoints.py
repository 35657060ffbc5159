"""When a replicated log gets a checkpoint, and writing it beside the work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace

from kraftlog.raft.core import RaftCore
from kraftlog.server.raft.records import to_voters_record
from kraftlog.storage.metadata_log import MetadataLog
from kraftlog.storage.snapshot_file import Snapshot, SnapshotId

__all__ = ["Checkpoints", "StateValues"]

StateValues = Iterable[bytes] | Callable[[], Iterable[bytes]]
"""Values of a checkpoint's records; what is called, on another thread, has to know a state that nobody changes."""


class Checkpoints:
    """Writes a checkpoint after so many bytes or so much time; one at a time.

    The state is taken on the loop, at one moment between two commits; encoding into batches, writing and fsyncing are
    done by a thread of their own, so that commits go on meanwhile. What the new checkpoint makes old is dropped by the
    log's thread.

    Args:
        log: Where checkpoints go.
        executor: The log's thread.
        on_written: Called on the loop with the new checkpoint, its size in bytes, and the oldest that is left.
        on_failure: Called on the loop with what went wrong.

    Attributes:
        max_bytes: metadata.log.max.record.bytes.between.snapshots.
        max_interval_ms: metadata.log.max.snapshot.interval.ms; 0 for no limit.
        bytes_since_last: Bytes of committed batches behind the newest checkpoint.
    """

    def __init__(
        self,
        log: MetadataLog,
        executor: Executor,
        *,
        max_bytes: int = 20 * 1024 * 1024,
        max_interval_ms: int = 3_600_000,
        on_written: Callable[[SnapshotId, int, SnapshotId], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.max_bytes = max_bytes
        self.max_interval_ms = max_interval_ms
        self.bytes_since_last = 0
        self._log = log
        self._executor = executor
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kraftlog-checkpoint")
        self._on_written = on_written
        self._on_failure = on_failure
        self._last_s = time.monotonic()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_due(self) -> bool:
        """Whether enough was committed, or enough time has passed with anything committed."""
        if self._task is not None or not self.bytes_since_last:
            return False
        age_ms = (time.monotonic() - self._last_s) * 1000
        return self.bytes_since_last >= self.max_bytes or 0 < self.max_interval_ms <= age_ms

    def begin(
        self, snapshot_id: SnapshotId, timestamp_ms: int, values: StateValues, raft: RaftCore, high_watermark: int
    ) -> None:
        """Begin a checkpoint; none may be under way.

        Args:
            snapshot_id: What it stands for: everything applied.
            timestamp_ms: Append time of the last record applied, Unix ms.
            values: The state.
            raft: Knows voters and kraft.version at that offset.
            high_watermark: The log is not cleaned beyond it.
        """
        self.bytes_since_last = 0
        self._last_s = time.monotonic()
        kraft_version = raft.kraft_version_before(snapshot_id.end_offset)
        snapshot = Snapshot(
            last_contained_log_timestamp=timestamp_ms,
            kraft_version=kraft_version,
            voters=to_voters_record(raft.voters_before(snapshot_id.end_offset)) if kraft_version else None,
        )
        view = values if callable(values) else list(values)
        self._task = asyncio.get_running_loop().create_task(self._run(snapshot_id, snapshot, view, high_watermark))

    async def _run(self, snapshot_id: SnapshotId, snapshot: Snapshot, values: StateValues, high_watermark: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            size_bytes = await loop.run_in_executor(self._writer, self._write, snapshot_id, snapshot, values)
            oldest = await loop.run_in_executor(self._executor, self._clean, high_watermark)
        except Exception as error:  # noqa: BLE001  whatever the state's own encoding raises ends the replica, too
            self._task = None
            self._on_failure(error)
            return
        self._task = None
        self._on_written(snapshot_id, size_bytes, oldest)

    def _write(self, snapshot_id: SnapshotId, snapshot: Snapshot, values: StateValues) -> int:
        whole = replace(snapshot, values=list(values() if callable(values) else values))
        return self._log.write_snapshot(snapshot_id, whole, now_ms=time.time_ns() // 1_000_000)

    def _clean(self, high_watermark: int) -> SnapshotId:
        return self._log.clean(now_ms=time.time_ns() // 1_000_000, high_watermark=high_watermark)

    async def finish(self) -> None:
        """Wait for the checkpoint being written, if any."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def close(self) -> None:
        """Take no more checkpoints."""
        self._writer.shutdown(wait=True)
