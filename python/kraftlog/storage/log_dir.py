"""One directory of ``log.dirs``: its lock, its partition directories, its clean-shutdown file, its checkpoints."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from kraftlog import host
from kraftlog._kraftlog import DirectoryLock, lock_directory
from kraftlog.errors import LogError
from kraftlog.storage.atomic_file import flush_directory, replace_file
from kraftlog.storage.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    format_offset_checkpoint,
    read_offset_checkpoint,
)
from kraftlog.types import TopicPartition, Uuid
from kraftlog.vocabulary import CLUSTER_METADATA_DIRECTORY

__all__ = ["CLEAN_SHUTDOWN_NAME", "STAGING_DIRECTORY", "LogDir", "PartitionDirectory"]

logger = logging.getLogger(__name__)

CLEAN_SHUTDOWN_NAME = ".kafka_cleanshutdown"
# What a writer of segments keeps here until its commit is done. Kafka starts on no directory that has one.
STAGING_DIRECTORY = "_temporary"
_MAX_FILE_NAME_BYTES = 255

_PARTITION_DIRECTORY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>[0-9]+)\Z")
_MARKED_DIRECTORY = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>[0-9]+)\.[0-9a-f]{32}-(?P<mark>delete|future|stray)\Z"
)


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    """A directory named ``<topic>-<partition>``, perhaps with a mark."""

    path: Path
    topic_partition: TopicPartition


def _suffix(mark: str) -> str:
    return f".{host.random_bits(128):032x}-{mark}"


class LogDir:
    """A locked data directory.

    Args:
        path: Must exist.

    Raises:
        LogError: Another process, or another node of this one, holds the lock.

    Attributes:
        directory_id: From meta.properties; set by the node once it has checked that file.
        failure: Why nothing is written here any more, None while the directory works.
        is_cordoned: Whether ``cordoned.log.dirs`` names it: it gets no new replicas (KIP-1066).
        recovery_points, high_watermarks, log_start_offsets: What the checkpoints say of logs that are not open yet.
        unopened: Partitions whose log is here and cannot be opened: what the checkpoints say of them is kept.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.directory_id = Uuid.ZERO
        self.failure: str | None = None
        self.is_cordoned = False
        self._lock: DirectoryLock | None = lock_directory(str(path))
        self.recovery_points: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.log_start_offsets: dict[TopicPartition, int] = {}
        self.unopened: set[TopicPartition] = set()
        self.was_clean_shutdown = False
        self.previous_broker_epoch = -1

    def read_state(self) -> None:
        """Read the checkpoints and take the clean-shutdown file away: from here on a crash is a crash.

        Raises:
            LogError: A checkpoint is damaged.
        """
        self.recovery_points = read_offset_checkpoint(self.path / RECOVERY_POINT_CHECKPOINT)
        self.high_watermarks = read_offset_checkpoint(self.path / REPLICATION_OFFSET_CHECKPOINT)
        self.log_start_offsets = read_offset_checkpoint(self.path / LOG_START_OFFSET_CHECKPOINT)
        marker = self.path / CLEAN_SHUTDOWN_NAME
        try:
            text = marker.read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        self.was_clean_shutdown = True
        try:
            self.previous_broker_epoch = int(json.loads(text)["brokerEpoch"])
        except (ValueError, KeyError, TypeError):
            # Older releases leave the file empty.
            self.previous_broker_epoch = -1
        marker.unlink()
        flush_directory(self.path)

    def unopened_offsets(self, checkpoint: str) -> dict[TopicPartition, int]:
        """What a checkpoint file said of the logs that cannot be opened, to be written again into the next one."""
        offsets = {
            RECOVERY_POINT_CHECKPOINT: self.recovery_points,
            REPLICATION_OFFSET_CHECKPOINT: self.high_watermarks,
            LOG_START_OFFSET_CHECKPOINT: self.log_start_offsets,
        }[checkpoint]
        # Copies: a log may be opened on a thread meanwhile.
        unopened = set(self.unopened)
        return {key: offset for key, offset in list(offsets.items()) if key in unopened}

    def forget(self, key: TopicPartition) -> None:
        """What the checkpoints say of a partition no longer holds: its log is open, or is not here any more."""
        self.recovery_points.pop(key, None)
        self.high_watermarks.pop(key, None)
        self.log_start_offsets.pop(key, None)
        self.unopened.discard(key)

    def erase_checkpoints(self, keys: Collection[TopicPartition]) -> dict[str, str]:
        """Take partitions out of the checkpoint files, durably, before their directories get another name.

        What the files say of them would hold for the next log of the same name: one of another topic, whose high
        watermark is lower, and whose records are not durable up to the same offset.

        Returns:
            The texts of the files by their names.

        Raises:
            LogError: A checkpoint is damaged.
            OSError: One cannot be read or written.
        """
        texts: dict[str, str] = {}
        for name in (RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT):
            offsets = read_offset_checkpoint(self.path / name)
            kept = {key: offset for key, offset in offsets.items() if key not in keys}
            texts[name] = format_offset_checkpoint(kept)
            if len(kept) < len(offsets):
                replace_file(self.path / name, texts[name].encode("utf-8"))
        return texts

    @property
    def is_online(self) -> bool:
        """No write or fsync has failed in this directory."""
        return self.failure is None

    def write_clean_shutdown(self, broker_epoch: int) -> None:
        """Say that every log here was flushed and closed.

        When the file cannot be written, as on a full disk, that is a warning, as with Kafka's ``LogManager``: the logs
        are whole, and the next start only takes longer, as it recovers them.
        """
        text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        path = self.path / CLEAN_SHUTDOWN_NAME
        try:
            replace_file(path, text.encode("utf-8"))
        except OSError as error:
            logger.warning(
                "%s could not be written, without which the next start recovers the logs beside it: %s", path, error
            )

    def partition_directories(self) -> list[PartitionDirectory]:
        """Directories of topic partitions, sorted by name; the metadata log and marked ones are left out."""
        found: list[PartitionDirectory] = []
        for path in sorted(self.path.iterdir()):
            match = _PARTITION_DIRECTORY.match(path.name)
            if match and path.name != CLUSTER_METADATA_DIRECTORY and path.is_dir():
                found.append(PartitionDirectory(path, TopicPartition(match["topic"], int(match["partition"]))))
        return found

    def deleted_directories(self) -> list[Path]:
        """Directories marked ``-delete`` that an earlier run did not get to remove."""
        return [
            path
            for path in sorted(self.path.iterdir())
            if (match := _MARKED_DIRECTORY.match(path.name)) and match["mark"] == "delete" and path.is_dir()
        ]

    def future_directories(self) -> list[PartitionDirectory]:
        """Directories marked ``-future``, sorted by name: copies of logs that are to move here."""
        return [
            PartitionDirectory(path, TopicPartition(match["topic"], int(match["partition"])))
            for path in sorted(self.path.iterdir())
            if (match := _MARKED_DIRECTORY.match(path.name)) and match["mark"] == "future" and path.is_dir()
        ]

    def new_future(self, key: TopicPartition) -> Path:
        """The name of a new copy of a partition's log, which is not there yet.

        Raises:
            ValueError: The name would be longer than a file system takes.
        """
        name = f"{key}{_suffix('future')}"
        if len(name) > _MAX_FILE_NAME_BYTES:
            raise ValueError(f"{name} has more than {_MAX_FILE_NAME_BYTES} bytes")
        return self.path / name

    def make_current(self, path: Path) -> Path:
        """Give a ``-future`` directory the name of its partition, durably.

        Raises:
            LogError: The rename failed.
        """
        current = path.with_name(path.name.rpartition(".")[0])
        try:
            path.rename(current)
            flush_directory(self.path)
        except OSError as error:
            raise LogError(f"cannot rename {path} to {current.name}: {error.strerror}") from error
        return current

    def mark_future(self, path: Path, mark: str) -> Path:
        """Like ``mark_directory`` for a ``-future`` directory."""
        marked = self.marked_path(path.with_name(path.name.rpartition(".")[0]), mark)
        try:
            path.rename(marked)
            flush_directory(self.path)
        except OSError as error:
            raise LogError(f"cannot rename {path} to one marked -{mark}: {error.strerror}") from error
        return marked

    def mark_directory(self, path: Path, mark: str) -> Path:
        """Rename ``<topic>-<partition>`` to ``<topic>-<partition>.<uuid>-<mark>``, durably.

        Args:
            path: A partition directory of this log directory.
            mark: "delete" or "stray".

        Returns:
            The new path.

        Raises:
            LogError: The rename failed.
        """
        return self.mark_directories([path], mark)[path]

    def mark_directories(self, paths: Sequence[Path], mark: str) -> dict[Path, Path]:
        """Like ``mark_directory`` for several, with one fsync for all.

        Returns:
            The new path of each that could be renamed; the failure of one is logged if others were renamed.

        Raises:
            LogError: No rename succeeded, or the fsync failed.
        """
        marked: dict[Path, Path] = {}
        failure: LogError | None = None
        for path in paths:
            try:
                marked[path] = self._rename(path, mark)
            except OSError as error:
                failure = LogError(f"cannot rename {path} to one marked -{mark}: {error.strerror}")
                failure.__cause__ = error
        if failure is not None:
            if not marked:
                raise failure
            logger.error("%s", failure)
        try:
            flush_directory(self.path)
        except OSError as error:
            msg = f"cannot make the new names in {self.path} durable: {error.strerror}"
            raise LogError(msg) from error
        return marked

    @classmethod
    def _rename(cls, path: Path, mark: str) -> Path:
        marked = cls.marked_path(path, mark)
        path.rename(marked)
        return marked

    @staticmethod
    def marked_path(path: Path, mark: str) -> Path:
        """A name for a partition's directory under which nobody serves it."""
        suffix = _suffix(mark)
        topic, _, partition = path.name.rpartition("-")
        # Kafka cuts the topic's name, not the suffix, where the file system would refuse the whole.
        tail = f"-{partition}{suffix}"
        return path.with_name(topic[: _MAX_FILE_NAME_BYTES - len(tail)] + tail)

    def release(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
