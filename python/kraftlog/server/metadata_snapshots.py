"""When the metadata log gets a checkpoint, and writing it beside the work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor

from kraftlog.controller.image import MetadataImage
from kraftlog.raft.core import RaftCore
from kraftlog.server.raft.records import to_voters_record
from kraftlog.storage.metadata_log import MetadataLog
from kraftlog.storage.snapshot_file import Snapshot, SnapshotId
from kraftlog.types import Epoch, Offset
from kraftlog.wire.records import encode_metadata_record

__all__ = ["MetadataSnapshots"]


class MetadataSnapshots:
    """Writes a checkpoint after so many bytes or so much time; one at a time.

    The records are gathered on the loop, at one moment between two commits; encoding into batches, writing and
    fsyncing happen on the log's thread, and so does dropping what the new checkpoint makes old.

    Args:
        log: Where checkpoints go.
        executor: The log's thread.
        bytes_since_last: Bytes of committed batches behind the newest checkpoint.
        on_written: Called on the loop with the new checkpoint, its size in bytes, and the oldest that is left.
        on_failure: Called on the loop with what went wrong.

    Attributes:
        max_bytes: metadata.log.max.record.bytes.between.snapshots.
        max_interval_ms: metadata.log.max.snapshot.interval.ms; 0 for no limit.
    """

    def __init__(
        self,
        log: MetadataLog,
        executor: Executor,
        bytes_since_last: int,
        *,
        on_written: Callable[[SnapshotId, int, SnapshotId], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.max_bytes = 20 * 1024 * 1024
        self.max_interval_ms = 3_600_000
        self.bytes_since_last = bytes_since_last
        self._log = log
        self._executor = executor
        self._on_written = on_written
        self._on_failure = on_failure
        self._last_s = time.monotonic()
        self._task: asyncio.Future[tuple[SnapshotId, int, SnapshotId]] | None = None

    def maybe_begin(self, image: MetadataImage, raft: RaftCore, high_watermark: int) -> None:
        """Begin a checkpoint of the committed image if one is due."""
        if self._task is not None or image.is_in_transaction or not self.bytes_since_last:
            return
        age_ms = (time.monotonic() - self._last_s) * 1000
        if self.bytes_since_last < self.max_bytes and not 0 < self.max_interval_ms <= age_ms:
            return
        self.bytes_since_last = 0
        self._last_s = time.monotonic()
        snapshot_id = SnapshotId(Offset(image.offset + 1), Epoch(image.epoch))
        kraft_version = raft.kraft_version_before(snapshot_id.end_offset)
        snapshot = Snapshot(
            last_contained_log_timestamp=image.timestamp_ms,
            kraft_version=kraft_version,
            voters=to_voters_record(raft.voters_before(snapshot_id.end_offset)) if kraft_version else None,
            values=[encode_metadata_record(record, version) for record, version in image.to_records()],
        )
        loop = asyncio.get_running_loop()
        self._task = loop.run_in_executor(self._executor, self._write, snapshot_id, snapshot, high_watermark)
        self._task.add_done_callback(self._written)

    def _write(
        self, snapshot_id: SnapshotId, snapshot: Snapshot, high_watermark: int
    ) -> tuple[SnapshotId, int, SnapshotId]:
        now_ms = time.time_ns() // 1_000_000
        size_bytes = self._log.write_snapshot(snapshot_id, snapshot, now_ms=now_ms)
        return snapshot_id, size_bytes, self._log.clean(now_ms=now_ms, high_watermark=high_watermark)

    def _written(self, task: asyncio.Future[tuple[SnapshotId, int, SnapshotId]]) -> None:
        self._task = None
        error = task.exception()
        if error is not None:
            self._on_failure(error)
        else:
            self._on_written(*task.result())

    async def finish(self) -> None:
        """Wait for the checkpoint being written, if any."""
        if self._task is not None:
            await asyncio.wait([self._task])
