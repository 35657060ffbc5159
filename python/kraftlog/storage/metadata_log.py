"""``__cluster_metadata-0``: the metadata log with its checkpoints; fits ``raft.log.Log`` by shape."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from pathlib import Path

from kraftlog._kraftlog import (
    FileSlice,
    Log,
    LogConfig,
    RecordBatch,
    encode_batch,
    encode_values,
    flush_logs,
    read_batches,
)
from kraftlog.errors import CorruptRecordError, LogError
from kraftlog.storage.atomic_file import flush_directory, move_durably
from kraftlog.storage.files import make_directory
from kraftlog.storage.recovery_report import log_recovery_events
from kraftlog.storage.snapshot_file import (
    BOOTSTRAP_SNAPSHOT_ID,
    Snapshot,
    SnapshotId,
    check_snapshot,
    list_snapshots,
    mark_deleted,
    read_snapshot,
    read_snapshot_timestamp,
    remove_left_overs,
)
from kraftlog.storage.snapshot_writer import READ_ONLY, SnapshotWriter, new_part_path
from kraftlog.types import METADATA_LOG, Epoch, LogTopic, Offset
from kraftlog.wire.messages.control_records import VotersRecord
from kraftlog.wire.records import encode_control_record
from kraftlog.wire.struct import Buffer, Message

__all__ = ["MetadataLog", "MetadataLogConfig", "flush_together"]

logger = logging.getLogger(__name__)

_READ_BYTES = 8 * 1024 * 1024
_FOREVER_MS = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataLogConfig:
    """Settings of the metadata log, under Kafka's names without ``metadata.log`` and ``internal``.

    Args:
        segment_bytes: metadata.log.segment.bytes.
        segment_ms: metadata.log.segment.ms.
        max_batch_bytes: Largest batch, header included.
        retention_bytes: metadata.max.retention.bytes: segments and checkpoints together; -1 keeps all.
        retention_ms: metadata.max.retention.ms: checkpoints older than this go once a newer one is there; -1 keeps all.
        delete_delay_ms: internal.metadata.delete.delay.millis: from a file's last name to its end.
        topic: Whose partition 0 the log is; other than the metadata topic in tests beside Kafka's raft-only peers.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    max_batch_bytes: int = 8 * 1024 * 1024
    retention_bytes: int = 104_857_600
    retention_ms: int = 604_800_000
    delete_delay_ms: int = 60_000
    topic: LogTopic = METADATA_LOG


class MetadataLog:
    """One replica's copy of the metadata log.

    Args:
        directory: ``<metadata.log.dir>/__cluster_metadata-0``; created when absent.
        config: Settings.
        now_ms: Unix clock.
        clean_shutdown: Whether the last run closed the log; if not it is recovered from its first segment.

    Raises:
        LogError: The directory cannot be opened, or log and checkpoints do not meet.
    """

    def __init__(self, directory: Path, config: MetadataLogConfig, *, now_ms: int, clean_shutdown: bool) -> None:
        self.directory = directory
        self.config = config
        # Checkpoints are written and dropped on one thread and installed on another.
        self._checkpoint_lock = threading.Lock()
        make_directory(directory)
        self._deleted: list[tuple[int, Path]] = []
        self._parts: dict[SnapshotId, Path] = {}
        first_segment = min((int(path.stem) for path in directory.glob("*.log") if path.stem.isdigit()), default=0)
        # Older ones are left-overs of a deletion that a crash interrupted.
        self._snapshots = [snapshot for snapshot in list_snapshots(directory) if snapshot.end_offset >= first_segment]
        if first_segment > 0 and not self._snapshots:
            # Nothing was changed yet: a reader finds everything (SNAP-23).
            raise LogError(f"{directory}: the log starts at {first_segment}, but no checkpoint leads there")
        start_offset = next(
            (snapshot.end_offset for snapshot in self._snapshots if snapshot != BOOTSTRAP_SNAPSHOT_ID), 0
        )
        log_config = LogConfig(
            segment_bytes=config.segment_bytes,
            segment_ms=config.segment_ms,
            max_message_bytes=config.max_batch_bytes,
            retention_ms=-1,
            retention_bytes=-1,
            timestamp_after_max_ms=_FOREVER_MS,
            file_delete_delay_ms=config.delete_delay_ms,
        )
        self._log = Log.open(
            str(directory),
            config=log_config,
            recovery_point=0,
            log_start_offset=start_offset if first_segment > 0 else 0,
            clean_shutdown=clean_shutdown,
            now_ms=now_ms,
        )
        log_recovery_events(directory, self._log.recovery_events)
        if self._log.topic_id is None:
            self._log.write_partition_metadata(config.topic.topic_id)
        latest = self.latest_snapshot_id
        if latest is not None and self._log.log_end_offset < latest.end_offset:
            # The snapshot stands for everything the log has and more: go on behind it.
            logger.warning(
                "%s: the log ends at offset %d, before %s: its segments are removed, and the log begins at offset %d",
                directory,
                self._log.log_end_offset,
                latest.file_name,
                latest.end_offset,
            )
            self._log.truncate_fully_and_start_at(latest.end_offset)
        self._snapshots = [snapshot for snapshot in self._snapshots if snapshot.end_offset >= self.log_start_offset]
        removed = remove_left_overs(directory)
        for old in sorted(set(list_snapshots(directory)) - set(self._snapshots)):
            (directory / old.file_name).unlink(missing_ok=True)
            removed.append(old.file_name)
        for name in removed:
            logger.info("%s: removed, a stop came before its end or its deletion", directory / name)

    @property
    def log_start_offset(self) -> int:
        """First offset that can be read."""
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Offset the next record gets (exclusive end)."""
        return self._log.log_end_offset

    @property
    def leader_epochs(self) -> Sequence[tuple[int, int]]:
        """Each epoch in the log with its first offset."""
        return self._log.epoch_entries()

    @property
    def snapshots(self) -> Sequence[tuple[SnapshotId, int]]:
        """The finished checkpoints with their sizes in bytes, oldest first, 0-0 included."""
        found: list[tuple[SnapshotId, int]] = []
        for snapshot in self._snapshots:
            with contextlib.suppress(FileNotFoundError):
                found.append((snapshot, (self.directory / snapshot.file_name).stat().st_size))
        return found

    @property
    def latest_snapshot_id(self) -> SnapshotId | None:
        """The newest checkpoint that stands for records; the 0-0 one does not count."""
        return self._snapshots[-1] if self._snapshots and self._snapshots[-1] != BOOTSTRAP_SNAPSHOT_ID else None

    def append_values(self, values: list[bytes], *, base_offset: Offset, epoch: Epoch, now_ms: int) -> int:
        """Append one data batch; return its size in bytes. Durable only after ``flush``.

        Raises:
            LogError: The write failed, the log does not end at ``base_offset``, or has a later epoch.
        """
        data = encode_values(values, timestamps=now_ms, base_offset=base_offset, partition_leader_epoch=epoch)
        return self._append(data, base_offset=base_offset, epoch=epoch, now_ms=now_ms)

    def append_control_records(
        self, records: Sequence[Message], *, base_offset: Offset, epoch: Epoch, now_ms: int
    ) -> int:
        """Append one control batch; return its size in bytes. Durable only after ``flush``.

        Raises:
            LogError: The write failed, the log does not end at ``base_offset``, or has a later epoch.
        """
        pairs = [encode_control_record(record) for record in records]
        data = encode_batch(
            [(now_ms, key, value, ()) for key, value in pairs],
            base_offset=base_offset,
            partition_leader_epoch=epoch,
            control=True,
        )
        return self._append(data, base_offset=base_offset, epoch=epoch, now_ms=now_ms)

    def _append(self, data: bytes, *, base_offset: Offset, epoch: Epoch, now_ms: int) -> int:
        if self._log.log_end_offset != base_offset:
            raise LogError(f"{self.directory}: the log ends at {self._log.log_end_offset}, not at {base_offset}")
        latest_epoch = self._log.latest_epoch
        if latest_epoch is not None and epoch < latest_epoch:
            raise LogError(f"{self.directory}: epoch {epoch} cannot follow epoch {latest_epoch}")
        self._log.append_as_leader(data, leader_epoch=epoch, now_ms=now_ms, origin="raft")
        return len(data)

    def append_fetched(self, batches: Sequence[Buffer], *, epoch: Epoch) -> None:
        """Append batches as the leader wrote them. Durable only after ``flush``.

        Args:
            batches: Bytes of whole batches, in order.
            epoch: The current epoch, which no batch is above.

        Raises:
            LogError: The write failed, or the batches do not continue the log.
        """
        self._log.append_as_follower(batches[0] if len(batches) == 1 else b"".join(batches), leader_epoch=epoch)

    def truncate_to(self, end_offset: Offset) -> None:
        """Cut the log at ``end_offset`` (exclusive), durably."""
        self._log.truncate_to(end_offset)

    def read(self, offset: int, *, max_bytes: int, end_offset: int) -> FileSlice:
        """Whole batches from ``offset`` up to ``end_offset`` (exclusive), at least one, as a slice of the file."""
        return self._log.read(offset, max_bytes=max_bytes, end_offset=end_offset)

    def flush(self) -> int:
        """Fsync; return the durable end (exclusive). May run on any thread.

        Raises:
            PoisonedLogError: The fsync failed, now or before; nothing of this log may be promised any more.
        """
        return self._log.flush()

    def batches(
        self, start_offset: int, end_offset: int | None = None, *, read_bytes: int = _READ_BYTES
    ) -> Iterator[RecordBatch]:
        """Batches from the one that holds ``start_offset`` up to ``end_offset`` (exclusive), or the end of the log.

        Args:
            start_offset: Inclusive.
            end_offset: Exclusive; None for the end of the log.
            read_bytes: Read from the file at once; a larger batch is read whole.

        Raises:
            CorruptRecordError: A batch is damaged.
        """
        offset = start_offset
        end_offset = self._log.log_end_offset if end_offset is None else end_offset
        while offset < end_offset:
            data = self._log.read(offset, max_bytes=read_bytes, end_offset=end_offset).read()
            batches = read_batches(data)
            if not batches:
                raise CorruptRecordError(f"{self.directory}: no batch at {offset}, the log ends at {end_offset}")
            yield from batches
            offset = batches[-1].last_offset + 1

    def read_bootstrap_snapshot(self) -> Snapshot | None:
        """The 0-0 checkpoint a format wrote, if any."""
        if BOOTSTRAP_SNAPSHOT_ID not in self._snapshots:
            return None
        return read_snapshot(self.directory / BOOTSTRAP_SNAPSHOT_ID.file_name)

    def read_latest_snapshot(self) -> tuple[SnapshotId, Snapshot] | None:
        """The newest readable checkpoint that the log continues.

        Raises:
            CorruptRecordError: None is readable, and the log does not reach back to its beginning.
        """
        for snapshot_id in reversed(self._snapshots):
            if snapshot_id == BOOTSTRAP_SNAPSHOT_ID or snapshot_id.end_offset < self.log_start_offset:
                continue
            try:
                return snapshot_id, check_snapshot(self.directory / snapshot_id.file_name)
            except CorruptRecordError as error:
                logger.error("checkpoint %s is damaged and left out: %s", snapshot_id, error)
        if self.log_start_offset > 0:
            raise CorruptRecordError(
                f"{self.directory}: the log starts at {self.log_start_offset}, but no readable checkpoint leads there"
            )
        return None

    def create_snapshot(
        self,
        snapshot_id: SnapshotId,
        *,
        epoch: Epoch,
        high_watermark: Offset | None,
        last_contained_log_timestamp: int = 0,
        kraft_version: int = 0,
        voters: VotersRecord | None = None,
        now_ms: int,
        on_frozen: Callable[[SnapshotId], None] = lambda _: None,
    ) -> SnapshotWriter | None:
        """Begin a checkpoint; None where one of this id is there, or the log begins behind it (SNAP-04, SNAP-05).

        Args:
            snapshot_id: What it stands for.
            epoch: The current epoch of the quorum.
            high_watermark: What is committed (exclusive); None while unknown.
            last_contained_log_timestamp: Append time of the last record it stands for, Unix ms.
            kraft_version: Level at its end.
            voters: Voter set at its end, if one is known.
            now_ms: Unix time given to its batches.
            on_frozen: Called with the id when the checkpoint is durable.

        Raises:
            ValueError: It would stand for what is not committed (SNAP-01), its epoch is not that of the record before
                its end (SNAP-02), or a batch goes across its end (SNAP-03).
            OSError: The file cannot be created.
        """
        end_offset = snapshot_id.end_offset
        if high_watermark is None or end_offset > high_watermark or snapshot_id.epoch > epoch:
            msg = f"checkpoint {snapshot_id} is beyond the high watermark {high_watermark} or the epoch {epoch}"
            raise ValueError(msg)
        if end_offset < self.log_start_offset or snapshot_id in self._snapshots:
            return None
        self._check_end(snapshot_id)

        def is_named(frozen: SnapshotId) -> None:
            if end_offset < self.log_start_offset:
                (self.directory / frozen.file_name).unlink(missing_ok=True)  # the log was begun anew meanwhile
                return
            self._snapshots = sorted({*self._snapshots, frozen})
            on_frozen(frozen)

        return SnapshotWriter(
            self.directory,
            snapshot_id,
            last_contained_log_timestamp=last_contained_log_timestamp,
            kraft_version=kraft_version,
            voters=voters,
            now_ms=now_ms,
            on_frozen=is_named,
            naming=self._checkpoint_lock,
        )

    def _check_end(self, snapshot_id: SnapshotId) -> None:
        end_offset = snapshot_id.end_offset
        if end_offset > self.log_end_offset:
            msg = f"checkpoint {snapshot_id} is beyond the end of the log at {self.log_end_offset}"
            raise ValueError(msg)
        if self.log_start_offset < end_offset:
            last_epoch = max((epoch for epoch, start in self.leader_epochs if start < end_offset), default=0)
            if last_epoch != snapshot_id.epoch:
                msg = f"checkpoint {snapshot_id} does not fit the log, whose record {end_offset - 1} is of {last_epoch}"
                raise ValueError(msg)
        if self.log_start_offset < end_offset < self.log_end_offset:
            data = self._log.read(end_offset, max_bytes=1, end_offset=self.log_end_offset).read()
            if (base_offset := read_batches(data)[0].base_offset) != end_offset:
                msg = f"checkpoint {snapshot_id} would end within the batch at {base_offset}"
                raise ValueError(msg)

    # Checkpoints of others (KIP-630)

    def read_snapshot_chunk(self, snapshot_id: SnapshotId, position: int, size_bytes: int) -> bytes | None:
        """Up to ``size_bytes`` of a checkpoint from byte ``position`` on; None when there is no such checkpoint."""
        try:
            with (self.directory / snapshot_id.file_name).open("rb", buffering=0) as file:
                file.seek(position)
                return file.read(size_bytes)
        except FileNotFoundError:
            # Somebody removed it: it counts no more (SNAP-26).
            self._snapshots = [snapshot for snapshot in self._snapshots if snapshot != snapshot_id]
            return None

    def write_snapshot_chunk(self, snapshot_id: SnapshotId, position: int, data: Buffer) -> None:
        """Write a piece of a checkpoint that is being fetched; position 0 begins anew. Durable once installed."""
        if position == 0:
            self.abandon_snapshot(snapshot_id)
            self._parts[snapshot_id] = new_part_path(self.directory, snapshot_id)
        mode = "xb" if position == 0 else "r+b"
        with self._parts[snapshot_id].open(mode, buffering=0) as file:
            file.seek(position)
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]

    def abandon_snapshot(self, snapshot_id: SnapshotId) -> None:
        """Throw away what was fetched of a checkpoint."""
        part = self._parts.pop(snapshot_id, None)
        if part is not None:
            part.unlink(missing_ok=True)

    def install_snapshot(self, snapshot_id: SnapshotId) -> tuple[Snapshot, int]:
        """Make a fetched checkpoint durable, and begin the log anew at its end.

        A crash after the checkpoint has its name and before the log is empty is made good when the log is opened. A
        call that ran out of descriptors can be made again, at whichever step it ended.

        Returns:
            The checkpoint and its size in bytes.

        Raises:
            CorruptRecordError: What was fetched is no whole checkpoint; the log is as it was.
        """
        part = self._parts[snapshot_id]
        target = self.directory / snapshot_id.file_name
        source = part if part.exists() else target
        snapshot = check_snapshot(source)
        size_bytes = source.stat().st_size
        source.chmod(READ_ONLY)
        with self._checkpoint_lock:
            move_durably(source, target)
            self._log.truncate_fully_and_start_at(snapshot_id.end_offset)
            for old in self._snapshots:
                if old != snapshot_id:
                    (self.directory / old.file_name).unlink(missing_ok=True)
            flush_directory(self.directory)
            self._snapshots = [snapshot_id]
        del self._parts[snapshot_id]
        return replace_fields(snapshot, path=target), size_bytes

    def clean(self, *, now_ms: int, high_watermark: int) -> SnapshotId | None:
        """Drop old checkpoints and the segments before the oldest one that stays, by size and age (KIP-630).

        The newest checkpoint always stays, and the log always starts where one ends, at or below the high watermark.
        Files get another name first and are removed ``delete_delay_ms`` later, by a later call.

        Returns:
            The oldest checkpoint that is left; None when there is none.
        """
        with self._checkpoint_lock:
            while len(self._snapshots) > 1 and self._is_expendable(self._snapshots[0], now_ms):
                oldest, following = self._snapshots[:2]
                if following.end_offset > high_watermark:
                    break
                self._log.advance_log_start_offset(following.end_offset)
                # At once: what goes counts no more when the next one is looked at.
                self._log.delete_old_segments(now_ms, high_watermark)
                marked = mark_deleted(self.directory, oldest)
                if marked is not None:
                    self._deleted.append((now_ms + self.config.delete_delay_ms, marked))
                self._snapshots = self._snapshots[1:]
            self._log.remove_deleted(now_ms)
            due = [path for due_ms, path in self._deleted if due_ms <= now_ms]
            self._deleted = [entry for entry in self._deleted if entry[0] > now_ms]
            for path in due:
                path.unlink(missing_ok=True)
            return self._snapshots[0] if self._snapshots else None

    def _is_expendable(self, oldest: SnapshotId, now_ms: int) -> bool:
        if self.config.retention_bytes >= 0:
            size_bytes = self._log.size_bytes + sum(size for _, size in self.snapshots)
            if size_bytes > self.config.retention_bytes:
                return True
        if self.config.retention_ms < 0:
            return False
        path = self.directory / oldest.file_name
        try:
            timestamp_ms = read_snapshot_timestamp(path)
            if timestamp_ms <= 0:  # none was stored
                timestamp_ms = path.stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return True
        return now_ms - timestamp_ms > self.config.retention_ms

    def close(self) -> None:
        """Flush and close."""
        self._log.close()


def flush_together(logs: Sequence[MetadataLog]) -> list[int | BaseException]:
    """Flush several logs, one after the other; returns for each what ``flush`` returns, or the error it raises.

    May run on any thread, and leaves the interpreter to the others until the last one is flushed.
    """
    return flush_logs([log._log for log in logs])
