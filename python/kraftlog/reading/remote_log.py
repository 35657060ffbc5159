"""One partition elsewhere, with the interface of a :class:`kraftlog.Log`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kraftlog._kraftlog import log_end_offset, read_transactions
from kraftlog.errors import LogError
from kraftlog.reading.directory import parse_leader_epochs
from kraftlog.reading.facts import LeaderEpoch, RemoteSegment
from kraftlog.reading.log import Log, topic_id_of
from kraftlog.reading.remote_fetch import RetryPolicy, small_file
from kraftlog.reading.remote_files import RemoteLocation
from kraftlog.reading.remote_partition import RemoteObject, RemotePartition
from kraftlog.storage.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    parse_offset_checkpoint,
)
from kraftlog.types import TopicPartition, Uuid

__all__ = ["RemoteCheckpoints", "RemoteLog"]

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"


@dataclass(slots=True)
class RemoteCheckpoints:
    """Small files of a log directory elsewhere, each fetched once, when it is first asked for.

    Args:
        location: Where the directory is.
        directory: Its path there.
        files: What the listing has of it; None when it was not listed, so that each file is asked for by its name.
        retry: After errors that may pass.
    """

    location: RemoteLocation
    directory: str
    files: Mapping[str, RemoteObject] | None
    retry: RetryPolicy
    _texts: dict[str, bytes | None] = field(default_factory=dict, repr=False)

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; None without it.

        Raises:
            RemoteLogError: It cannot be read; names it.
        """
        if name not in self._texts:
            one = self._find(name)
            try:
                self._texts[name] = None if one is None else small_file(one, self.retry)
            except FileNotFoundError:  # deleted since it was listed
                self._texts[name] = None
        return self._texts[name]

    def offsets(self, name: str) -> dict[TopicPartition, int] | None:
        """The offsets of a checkpoint; None without the file.

        Raises:
            LogError: It is no checkpoint; names it.
        """
        data = self.read(name)
        if data is None:
            return None
        origin = self.location.url_of(f"{self.directory}/{name}")
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            message = f"{origin}: not a checkpoint: {error}"
            raise LogError(message) from error
        return parse_offset_checkpoint(text, origin=origin) if text else {}

    def _find(self, name: str) -> RemoteObject | None:
        if self.files is not None:
            return self.files.get(name)
        path = f"{self.directory}/{name}"
        try:
            version = self.location.files.version(path)
        except FileNotFoundError:
            return None
        return RemoteObject(self.location, path, version.size_bytes, version.tag)


@dataclass(frozen=True, slots=True)
class RemoteLog(Log):
    """The objects of one partition, read only, as they were when they were listed.

    ``path`` is a :class:`RemotePartition`, whose text is its URL.

    Args:
        path: The objects.
        topic: Name of the topic.
        partition: Number of the partition.
        checkpoints: The small files of the log directory; None for tiered storage, which has none.
        small_files: Those of the partition itself, by name.
        tiered_id: The topic id in the name of a directory of tiered storage.
        tiered_epochs: The leader epochs of tiered storage.
    """

    checkpoints: RemoteCheckpoints | None = None
    small_files: Mapping[str, RemoteObject] = field(default_factory=dict, repr=False)
    tiered_id: Uuid | None = None
    tiered_epochs: tuple[LeaderEpoch, ...] | None = None

    @property
    def remote(self) -> RemotePartition:
        """The objects."""
        objects: Any = self.path
        assert isinstance(objects, RemotePartition)
        return objects

    @property
    def topic_id(self) -> Uuid | None:
        """The id in the name of the directory, or in ``partition.metadata``; None without either.

        Raises:
            LogError: The file holds no id.
        """
        if self.tiered_id is not None:
            return self.tiered_id
        one = self.small_files.get(PARTITION_METADATA)
        if one is None:
            return None
        return topic_id_of(small_file(one, self.remote.retry).decode("utf-8", "replace"), origin=one.url)

    @property
    def segments(self) -> tuple[RemoteSegment, ...]:  # type: ignore[override]  # a URL where a file has a path
        """The segments by rising base offset."""
        return tuple(
            RemoteSegment(segment.offset, segment.url, segment.size_bytes, segment.end_offset)
            for segment in self.remote.segments
        )

    @property
    def size_bytes(self) -> int:
        """Bytes of the ``.log`` objects."""
        return sum(segment.size_bytes for segment in self.remote.segments)

    @property
    def log_start_offset(self) -> int:
        """The first readable offset: of the first segment, or what a DeleteRecords request left."""
        segments = self.remote.segments
        first = segments[0].offset if segments else 0
        if self.checkpoints is None:
            return first
        checkpoint = self.checkpoints.offsets(LOG_START_OFFSET_CHECKPOINT) or {}
        return max(first, checkpoint.get(self._topic_partition, 0))

    @property
    def log_end_offset(self) -> int:
        """The offset after the last whole batch."""
        return _log_end(self.remote)

    @property
    def high_watermark(self) -> int | None:
        """The checkpointed high watermark, as of a directory of this machine.

        Of tiered storage the log end offset: what a broker copies there is replicated and decided.
        """
        if self.checkpoints is None:
            return self.log_end_offset
        offsets = self.checkpoints.offsets(REPLICATION_OFFSET_CHECKPOINT)
        if offsets is None:
            return None
        start_offset = self.log_start_offset
        return max(offsets.get(self._topic_partition, start_offset), start_offset)

    @property
    def leader_epochs(self) -> tuple[LeaderEpoch, ...]:
        """Each leader epoch with its first offset; empty without a checkpoint of them."""
        if self.tiered_epochs is not None:
            return self.tiered_epochs
        one = self.small_files.get(LEADER_EPOCH_CHECKPOINT)
        return () if one is None else parse_leader_epochs(small_file(one, self.remote.retry), origin=one.url)

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed ends: the first offset of an open transaction, else the log end offset."""
        return min(read_transactions(self.remote).last_stable_offset, self.log_end_offset)

    def with_window(self, window_bytes: int) -> RemoteLog:
        """The same, fetched in ranges of at most so many bytes."""
        path: Any = replace(self.remote, window_bytes=window_bytes)
        return replace(self, path=path)

    def _scan_path(self) -> Any:
        return self.remote

    def __str__(self) -> str:
        return str(self.path)


def _log_end(partition: RemotePartition) -> int:
    segments = partition.segments
    end = log_end_offset(partition)
    last_end = segments[-1].end_offset if segments else None
    return end if last_end is None else min(end, last_end)
