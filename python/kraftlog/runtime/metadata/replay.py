"""Committed records into the image: from a checkpoint, or batch by batch."""

from __future__ import annotations

from collections.abc import Iterable

from kraftlog._kraftlog import RecordBatch
from kraftlog.controller.delta import MetadataDelta
from kraftlog.controller.image import MetadataImage
from kraftlog.controller.image_changes import ImageChange, ImageChanges
from kraftlog.controller.steps import STEP_ITEMS, Steps
from kraftlog.errors import CorruptRecordError
from kraftlog.storage.metadata_log import MetadataLog
from kraftlog.storage.snapshot_file import Snapshot
from kraftlog.types import SnapshotId
from kraftlog.wire.records import decode_metadata_record

__all__ = ["load_snapshot", "prepare_batch", "replay_batch"]


def load_snapshot(image: MetadataImage, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
    """Replay a checkpoint into an empty image.

    Raises:
        CorruptRecordError: A record does not decode, or cannot follow those before it.
    """
    changes = ImageChanges()
    for value in snapshot.each_value():
        changes.add(decode_metadata_record(value)[0])
    delta = MetadataDelta()
    for change in changes.changes:
        image.replay(change, delta, offset=snapshot_id.end_offset - 1)
    image.offset, image.epoch = snapshot_id.end_offset - 1, snapshot_id.epoch
    image.timestamp_ms = snapshot.last_contained_log_timestamp


def prepare_batch(batch: RecordBatch, applied_offset: int) -> Steps[list[tuple[int, ImageChange]]]:
    """Decode a committed batch in steps: what it changes in an image, each change with the offset at which it begins.

    Args:
        batch: From the log.
        applied_offset: Records up to this one (inclusive) are in the image already.

    Raises:
        RemoteProtocolError: A record does not decode.
    """
    changes = ImageChanges()
    offsets: list[int] = []
    records = () if batch.is_control else batch.records()
    for number, (offset, _, _, value, _) in enumerate(records):
        if number % STEP_ITEMS == 0:
            yield
        if offset > applied_offset and value is not None and changes.add(decode_metadata_record(value)[0]):
            offsets.append(offset)
    return list(zip(offsets, changes.changes, strict=True))


def replay_batch(
    log: MetadataLog,
    batch: RecordBatch,
    changes: Iterable[tuple[int, ImageChange]],
    image: MetadataImage,
    delta: MetadataDelta,
) -> None:
    """Apply a committed batch that ``prepare_batch`` has decoded.

    Raises:
        CorruptRecordError: A record cannot follow those before it.
    """
    for offset, change in changes:
        try:
            image.replay(change, delta, offset=offset)
        except CorruptRecordError as error:
            raise CorruptRecordError(f"{log.directory}: record {offset}: {error}") from error
    image.offset, image.epoch = batch.last_offset, batch.partition_leader_epoch
    image.timestamp_ms = max(image.timestamp_ms, batch.max_timestamp)
