"""When a replicated log gets a checkpoint, writing it beside the work, and dropping old ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kraftlog import host
from kraftlog.errors import LogError
from kraftlog.raft.core import RaftCore
from kraftlog.runtime.raft.control_records import to_voters_record
from kraftlog.runtime.raft.log_threads import LogThreads
from kraftlog.storage.disk_failure import is_disk_failure
from kraftlog.storage.metadata_log import MetadataLog
from kraftlog.storage.snapshot_file import SnapshotId
from kraftlog.storage.snapshot_writer import SnapshotWriter
from kraftlog.types import Offset

__all__ = ["CheckpointProgress", "Checkpoints", "StateValues"]

logger = logging.getLogger(__name__)

StateValues = Iterable[bytes] | Callable[[], Iterable[bytes]]
"""Values of a checkpoint's records; what is called, on another thread, has to know a state that nobody changes."""

# Not a setting in Kafka either.
CLEAN_INTERVAL_S = 60.0
RETRY_S = 10.0  # after a checkpoint for whose file no descriptor was left


@dataclass(slots=True)
class CheckpointProgress:
    """How far a checkpoint that is being written is.

    Attributes:
        end_offset: What it stands for ends there (exclusive).
        record_count: Records of the state that were encoded so far.
        size_bytes: What was handed to the disk so far.
    """

    end_offset: int
    record_count: int = 0
    size_bytes: int = 0


class Checkpoints:
    """Writes a checkpoint after so many bytes or so much time; one at a time. Drops old ones then and every minute.

    The state is taken on the loop, at one moment between two commits; encoding into batches, writing and fsyncing are
    done by a thread of their own, so that commits go on meanwhile. What is old is dropped by the log's thread; when
    that fails it is logged and tried again later.

    Args:
        log: Where checkpoints go.
        threads: Of the log.
        max_bytes: metadata.log.max.record.bytes.between.snapshots.
        max_interval_ms: metadata.log.max.snapshot.interval.ms; 0 for no limit.
        outgrows_last: Whether the bytes that make one due are at least those of the newest one: then no more goes into
            checkpoints than into the log, however large the state is. Kafka's controllers do not go by that.
        on_written: Called on the loop with the new checkpoint and its size in bytes.
        on_cleaned: Called on the loop with the oldest checkpoint that is left.
        on_failure: Called on the loop with what kept a checkpoint from being written.
        on_due: Called on the loop where a checkpoint is due while nothing is being committed.

    Attributes:
        bytes_since_last: Bytes of committed batches behind the newest checkpoint.
        high_watermark: What is committed (exclusive): the log is not cleaned beyond it.
        writer: The thread for checkpoints.
        progress: Of the checkpoint that is being written; None while none is. Its writer's thread changes it.
    """

    def __init__(
        self,
        log: MetadataLog,
        threads: LogThreads,
        *,
        max_bytes: int = 20 * 1024 * 1024,
        max_interval_ms: int = 3_600_000,
        outgrows_last: bool = False,
        on_written: Callable[[SnapshotId, int], None],
        on_cleaned: Callable[[SnapshotId], None],
        on_failure: Callable[[BaseException], None],
        on_due: Callable[[], None] = lambda: None,
    ) -> None:
        self.max_bytes = max_bytes
        self.max_interval_ms = max_interval_ms
        self.bytes_since_last = 0
        self.high_watermark = Offset(0)
        self._outgrows_last = outgrows_last
        self._log = log
        self._newest_bytes = self._size_of_newest()
        self._executor, self.writer = threads.log, threads.checkpoints
        self._on_written = on_written
        self._on_cleaned = on_cleaned
        self._on_failure = on_failure
        self._on_due = on_due
        self._last_s = host.monotonic_s()
        self._not_before_s = 0.0
        self._postponed_bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self.progress: CheckpointProgress | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look every minute for what is old."""
        self._timer = asyncio.get_running_loop().call_later(CLEAN_INTERVAL_S, self._on_timer)

    def _on_timer(self) -> None:
        if self.is_due:
            self._on_due()  # nobody may commit for a long time
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(None, ()))
        self.start()

    @property
    def is_due(self) -> bool:
        """Whether enough was committed, or enough time has passed with anything committed."""
        if self.is_busy or not self.bytes_since_last or host.monotonic_s() < self._not_before_s:
            return False
        age_ms = (host.monotonic_s() - self._last_s) * 1000
        due_bytes = max(self.max_bytes, self._newest_bytes) if self._outgrows_last else self.max_bytes
        return self.bytes_since_last >= due_bytes or 0 < self.max_interval_ms <= age_ms

    @property
    def is_working(self) -> bool:
        """Whether one is being written, or old ones are dropped."""
        return self._task is not None

    @property
    def is_busy(self) -> bool:
        """Whether none can be begun: one is being written, old ones are dropped, or the log is about to be closed."""
        return self._task is not None or self._is_closed

    def on_loaded(self) -> None:
        """The log was replaced by a checkpoint of the leader."""
        self.bytes_since_last = 0
        self._newest_bytes = self._size_of_newest()

    def _size_of_newest(self) -> int:
        found = self._log.snapshots
        return found[-1][1] if found else 0

    def begin(self, snapshot_id: SnapshotId, timestamp_ms: int, values: StateValues, raft: RaftCore) -> None:
        """Begin a checkpoint; none may be under way. If no descriptor is left it is due again some seconds later.

        Args:
            snapshot_id: What it stands for: everything applied.
            timestamp_ms: Append time of the last record applied, Unix ms.
            values: The state.
            raft: Knows voters and kraft.version at that offset.

        Raises:
            ValueError: That is not committed, or does not fit the log.
            OSError: No file can be created.
        """
        kraft_version = raft.kraft_version_before(snapshot_id.end_offset)
        voters = raft.voters_before(snapshot_id.end_offset)
        try:
            writer = self._log.create_snapshot(
                snapshot_id,
                epoch=raft.epoch,
                high_watermark=self.high_watermark,
                last_contained_log_timestamp=timestamp_ms,
                kraft_version=kraft_version,
                voters=to_voters_record(voters) if kraft_version and voters is not None else None,
                now_ms=_wall_ms(),
            )
        except OSError as error:
            if is_disk_failure(error):
                raise
            self._postpone(error, 0)
            return
        self._postponed_bytes, self.bytes_since_last = self.bytes_since_last, 0
        self._last_s = host.monotonic_s()
        if writer is not None:
            view = values if callable(values) else list(values)
            self._task = asyncio.get_running_loop().create_task(self._run(writer, view))

    async def _run(self, writer: SnapshotWriter | None, values: StateValues) -> None:
        loop = asyncio.get_running_loop()
        try:
            if writer is not None:
                progress = self.progress = CheckpointProgress(writer.snapshot_id.end_offset)
                try:
                    size_bytes = await loop.run_in_executor(self.writer, _write, writer, values, progress)
                except OSError as error:
                    if is_disk_failure(error):
                        self._on_failure(error)
                    else:
                        self._postpone(error, self._postponed_bytes)
                    return
                except Exception as error:  # noqa: BLE001  whatever the state's own encoding raises ends the replica, too
                    self._on_failure(error)
                    return
                finally:
                    self.progress = None
                self._newest_bytes = size_bytes
                self._on_written(writer.snapshot_id, size_bytes)
            await self._clean(loop)
        finally:
            self._task = None

    def _postpone(self, error: OSError, bytes_behind: int) -> None:
        logger.warning("no file descriptor is left for a checkpoint, which is tried again in %g s: %s", RETRY_S, error)
        self.bytes_since_last += bytes_behind
        self._not_before_s = host.monotonic_s() + RETRY_S

    async def _clean(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._is_closed:
            return
        high_watermark = self.high_watermark
        try:
            oldest = await loop.run_in_executor(
                self._executor, lambda: self._log.clean(now_ms=_wall_ms(), high_watermark=high_watermark)
            )
        except (OSError, LogError):
            logger.exception("old checkpoints and segments cannot be removed; this is tried again in a minute")
            return
        if oldest is not None:
            self._on_cleaned(oldest)

    async def finish(self) -> None:
        """Wait for the checkpoint being written, if any."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def close(self) -> None:
        """Begin no more checkpoints, and drop no more; ``finish`` waits for what has begun."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()


def _write(writer: SnapshotWriter, values: StateValues, progress: CheckpointProgress) -> int:
    def counted() -> Iterator[bytes]:
        for value in values() if callable(values) else values:
            progress.record_count += 1
            progress.size_bytes = writer.size_bytes
            yield value

    with writer:
        writer.append(counted())
        return writer.freeze()


def _wall_ms() -> int:
    return host.wall_ms()
