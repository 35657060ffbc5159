"""Committed records into the image: from a checkpoint, or batch by batch."""

from __future__ import annotations

from kraftlog._kraftlog import RecordBatch
from kraftlog.controller.delta import MetadataDelta
from kraftlog.controller.image import MetadataImage
from kraftlog.controller.image_changes import ImageChanges
from kraftlog.errors import CorruptRecordError
from kraftlog.storage.metadata_log import MetadataLog
from kraftlog.storage.snapshot_file import Snapshot
from kraftlog.types import SnapshotId
from kraftlog.wire.records import decode_metadata_record

__all__ = ["load_snapshot", "replay_batch"]


def load_snapshot(image: MetadataImage, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
    """Replay a checkpoint into an empty image.

    Raises:
        CorruptRecordError: A record does not decode, or cannot follow those before it.
    """
    changes = ImageChanges()
    for value in snapshot.values:
        changes.add(decode_metadata_record(value)[0])
    delta = MetadataDelta()
    for change in changes.changes:
        image.replay(change, delta)
    image.offset, image.epoch = snapshot_id.end_offset - 1, snapshot_id.epoch
    image.timestamp_ms = snapshot.last_contained_log_timestamp


def replay_batch(log: MetadataLog, batch: RecordBatch, image: MetadataImage, delta: MetadataDelta) -> None:
    """Apply a committed batch.

    Raises:
        CorruptRecordError: A record does not decode, or cannot follow those before it.
    """
    if not batch.is_control:
        changes = ImageChanges()
        offsets: list[int] = []
        for offset, _, _, value, _ in batch.records():
            if offset > image.offset and value is not None and changes.add(decode_metadata_record(value)[0]):
                offsets.append(offset)
        for offset, change in zip(offsets, changes.changes, strict=True):
            try:
                image.replay(change, delta)
            except CorruptRecordError as error:
                raise CorruptRecordError(f"{log.directory}: record {offset}: {error}") from error
    image.offset, image.epoch = batch.last_offset, batch.partition_leader_epoch
    image.timestamp_ms = max(image.timestamp_ms, batch.max_timestamp)
