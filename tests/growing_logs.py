"""A log directory that tests append to as a broker does, its checkpoints included."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from kraftlog._kraftlog import Log, LogConfig, encode_values
from kraftlog.storage.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    format_offset_checkpoint,
)
from kraftlog.types import TopicPartition, Uuid

TOPIC_ID = bytes(range(16))


class GrowingLogs:
    """Partitions that are written here and read elsewhere.

    Args:
        path: The log directory; made when it is not there.
        segment_bytes: Small, so that there are several.
    """

    def __init__(self, path: Path, *, segment_bytes: int = 1 << 20) -> None:
        self.path = path
        self.segment_bytes = segment_bytes
        self.logs: dict[tuple[str, int], Log] = {}
        self.log_starts: dict[tuple[str, int], int] = {}
        path.mkdir(parents=True, exist_ok=True)

    def add(self, topic: str, partition: int = 0, *, topic_id: bytes = TOPIC_ID, epoch: int = 0) -> Log:
        """A new partition, empty and led since ``epoch``."""
        config = LogConfig(segment_bytes=self.segment_bytes, retention_ms=-1, file_delete_delay_ms=0)
        log = Log.open(self.path / f"{topic}-{partition}", config=config, now_ms=0)
        log.write_partition_metadata(topic_id)
        log.assign_epoch_start(epoch, log.log_end_offset)
        self.logs[topic, partition] = log
        self.checkpoint()
        return log

    def append(
        self, topic: str, partition: int = 0, count: int = 1, *, epoch: int = 0, mark: str = "", checkpoint: bool = True
    ) -> int:
        """Appends so many records, values ``<mark><offset>``; returns the log end offset."""
        log = self.logs[topic, partition]
        first = log.log_end_offset
        values = [f"{mark}{offset}".encode() for offset in range(first, first + count)]
        now_ms = time.time_ns() // 1_000_000
        log.append_as_leader(encode_values(values, timestamps=now_ms), leader_epoch=epoch, now_ms=now_ms)
        if checkpoint:
            self.checkpoint()
        return log.log_end_offset

    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """Cuts the log as a follower does, the high watermark with it."""
        self.logs[topic, partition].truncate_to(offset)
        self.checkpoint()

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        """Lets the log begin at ``offset``; segments wholly before it are removed."""
        log = self.logs[topic, partition]
        log.advance_log_start_offset(offset)
        log.delete_old_segments(time.time_ns() // 1_000_000, log.log_end_offset)
        log.remove_deleted(time.time_ns() // 1_000_000 + 1)
        self.log_starts[topic, partition] = offset
        self.checkpoint()

    def remove(self, topic: str, partition: int = 0) -> None:
        """Deletes the partition."""
        log = self.logs.pop((topic, partition))
        log.close()
        shutil.rmtree(log.path)
        self.log_starts.pop((topic, partition), None)
        self.checkpoint()

    def checkpoint(self, **high_watermarks: int) -> None:
        """Writes the checkpoints: high watermarks at the log ends, unless given by ``topic_partition=offset``."""
        high = {
            TopicPartition(*key): high_watermarks.get(f"{key[0]}_{key[1]}", log.log_end_offset)
            for key, log in self.logs.items()
        }
        starts = {TopicPartition(*key): offset for key, offset in self.log_starts.items()}
        for name, offsets in ((REPLICATION_OFFSET_CHECKPOINT, high), (LOG_START_OFFSET_CHECKPOINT, starts)):
            # Without the fsyncs of a broker: no test pulls the plug.
            temporary = self.path / f"{name}.tmp"
            temporary.write_text(format_offset_checkpoint(offsets), encoding="utf-8")
            temporary.replace(self.path / name)

    def close(self) -> None:
        """Closes all logs."""
        for log in self.logs.values():
            log.close()


def topic_id_text(topic_id: bytes = TOPIC_ID) -> str:
    """The id as offsets have it."""
    return str(Uuid(topic_id))
