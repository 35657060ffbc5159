"""Checkpoints (KIP-630): ``<end offset>-<epoch>.checkpoint`` files of record batches.

A file holds a control batch that begins with SnapshotHeader (at kraft.version 1 followed by KRaftVersion and
Voters), data batches, and a control batch with SnapshotFooter. Offsets inside the file count from 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from pathlib import Path

from kraftlog._kraftlog import RecordBatch, encode_batch, read_batches
from kraftlog.errors import CorruptRecordError
from kraftlog.storage.atomic_file import flush_directory, replace_file
from kraftlog.storage.files import replace
from kraftlog.types import Epoch, Offset, SnapshotId
from kraftlog.wire.messages.control_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from kraftlog.wire.records import decode_control_record, encode_control_record
from kraftlog.wire.struct import Message

__all__ = [
    "BOOTSTRAP_SNAPSHOT_ID",
    "SNAPSHOT_RECORDS_PER_BATCH",
    "Snapshot",
    "SnapshotId",
    "check_snapshot",
    "encode_snapshot",
    "encode_snapshot_footer",
    "encode_snapshot_header",
    "encode_snapshot_values",
    "list_snapshots",
    "mark_deleted",
    "read_snapshot",
    "read_snapshot_timestamp",
    "remove_left_overs",
    "write_snapshot",
]

SNAPSHOT_RECORDS_PER_BATCH = 1024
_BATCH_PREFIX_BYTES = 12  # base offset and length
_HEADER_MAX_BYTES = 1 << 20
_PART_BYTES = 1 << 20
_LEFT_OVER = re.compile(r"\d{20}-\d{10}(-.*)?\.checkpoint\.part|\d{20}-\d{10}\.checkpoint\.deleted")

BOOTSTRAP_SNAPSHOT_ID = SnapshotId(Offset(0), Epoch(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A checkpoint: its control records, and the values of its data records or where they are.

    Args:
        last_contained_log_timestamp: Append time of the last record the snapshot stands for, Unix ms.
        kraft_version: Level of its KRaftVersion record; 0 when it has none.
        voters: Its Voters record, if any.
        values: Values of the data records (framed metadata records), in order.
        path: Where the values are, if they have not been read.
    """

    last_contained_log_timestamp: int = 0
    kraft_version: int = 0
    voters: VotersRecord | None = None
    values: list[bytes] = field(default_factory=list)
    path: Path | None = None

    def each_value(self) -> Iterator[bytes]:
        """The values of the data records, in order; those of a file are read as they are asked for.

        Raises:
            OSError: The file cannot be read, or is gone.
            CorruptRecordError: A batch is damaged.
        """
        if self.path is None:
            yield from self.values
            return
        for batch in _batches_of(self.path):
            if not batch.is_control:
                yield from (value for value in batch.values() if value is not None)


def _control_batch(records: Sequence[Message], *, base_offset: int, epoch: int, now_ms: int) -> bytes:
    pairs = [encode_control_record(record) for record in records]
    return encode_batch(
        [(now_ms, key, value, ()) for key, value in pairs],
        base_offset=base_offset,
        partition_leader_epoch=epoch,
        control=True,
    )


def encode_snapshot_header(
    *, last_contained_log_timestamp: int, kraft_version: int, voters: VotersRecord | None, epoch: Epoch, now_ms: int
) -> tuple[bytes, int]:
    """Return the first batch of a checkpoint, and how many records it has.

    Raises:
        ValueError: A voter set at kraft.version 0, which has none in its log (SNAP-08).
    """
    if kraft_version == 0 and voters is not None:
        msg = "A checkpoint of kraft.version 0 has no Voters record"
        raise ValueError(msg)
    header: list[Message] = [SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_log_timestamp)]
    if kraft_version > 0:
        header.append(KRaftVersionRecord(version=0, kraft_version=kraft_version))
        if voters is not None:
            header.append(voters)
    return _control_batch(header, base_offset=0, epoch=epoch, now_ms=now_ms), len(header)


def encode_snapshot_values(values: Sequence[bytes], *, base_offset: int, epoch: Epoch, now_ms: int) -> bytes:
    """Return one data batch of a checkpoint."""
    return encode_batch(
        [(now_ms, None, value, ()) for value in values], base_offset=base_offset, partition_leader_epoch=epoch
    )


def encode_snapshot_footer(*, base_offset: int, epoch: Epoch, now_ms: int) -> bytes:
    """Return the last batch of a checkpoint."""
    return _control_batch([SnapshotFooterRecord(version=0)], base_offset=base_offset, epoch=epoch, now_ms=now_ms)


def encode_snapshot(snapshot: Snapshot, *, epoch: Epoch, now_ms: int) -> bytes:
    """Return the bytes of a whole checkpoint file.

    Args:
        snapshot: The content.
        epoch: The epoch of the snapshot id; every batch carries it.
        now_ms: Unix time given to all batches.

    Raises:
        ValueError: It has a voter set at kraft.version 0.
    """
    header, offset = encode_snapshot_header(
        last_contained_log_timestamp=snapshot.last_contained_log_timestamp,
        kraft_version=snapshot.kraft_version,
        voters=snapshot.voters,
        epoch=epoch,
        now_ms=now_ms,
    )
    parts = [header]
    for start in range(0, len(snapshot.values), SNAPSHOT_RECORDS_PER_BATCH):
        values = snapshot.values[start : start + SNAPSHOT_RECORDS_PER_BATCH]
        parts.append(encode_snapshot_values(values, base_offset=offset, epoch=epoch, now_ms=now_ms))
        offset += len(values)
    parts.append(encode_snapshot_footer(base_offset=offset, epoch=epoch, now_ms=now_ms))
    return b"".join(parts)


def write_snapshot(directory: Path, snapshot_id: SnapshotId, data: bytes) -> Path:
    """Make a checkpoint durable under its final name; a crash before that leaves no file of that name.

    Raises:
        OSError: It could not be written; nothing is left under the final name.
    """
    path = directory / snapshot_id.file_name
    replace_file(path, data, temporary=path.with_name(path.name + ".part"))
    return path


def list_snapshots(directory: Path) -> list[SnapshotId]:
    """Ids of the finished checkpoints of a metadata log directory, oldest first."""
    found = (SnapshotId.parse(entry.name) for entry in directory.iterdir())
    return sorted(snapshot for snapshot in found if snapshot is not None)


def remove_left_overs(directory: Path) -> list[str]:
    """Remove parts of checkpoints and those that were marked for deletion; other files stay (SNAP-22, SNAP-52).

    Returns:
        The names of the removed files, in order.
    """
    removed = sorted(entry.name for entry in directory.iterdir() if _LEFT_OVER.fullmatch(entry.name))
    for name in removed:
        (directory / name).unlink(missing_ok=True)
    return removed


def mark_deleted(directory: Path, snapshot_id: SnapshotId) -> Path | None:
    """Rename a checkpoint durably so that it counts no more; None when it is gone already.

    A reader goes on reading; the file is removed later (SNAP-49).
    """
    path = directory / snapshot_id.file_name
    marked = path.with_name(path.name + ".deleted")
    try:
        replace(path, marked)
    except FileNotFoundError:
        return None
    flush_directory(directory)
    return marked


def read_snapshot_timestamp(path: Path) -> int:
    """Append time of the last record a checkpoint stands for, Unix ms, from its header alone.

    Raises:
        FileNotFoundError: There is no such file.
        CorruptRecordError: The file does not begin with a snapshot header.
    """
    with path.open("rb") as file:
        start = file.read(_BATCH_PREFIX_BYTES)
        size_bytes = int.from_bytes(start[8:_BATCH_PREFIX_BYTES], "big")
        # Its batch also has the voters; a size that no header has is damage, and not read.
        data = start + file.read(size_bytes) if size_bytes <= _HEADER_MAX_BYTES else b""
    for batch in read_batches(data)[:1]:
        if batch.is_control:
            for record in _control_records(path, batch):
                if isinstance(record, SnapshotHeaderRecord):
                    return record.last_contained_log_timestamp
    msg = f"{path}: does not begin with a snapshot header"
    raise CorruptRecordError(msg)


def read_snapshot(path: Path) -> Snapshot:
    """Read a checkpoint whole, checking every CRC.

    Raises:
        FileNotFoundError: There is no such file.
        CorruptRecordError: A batch is damaged, or header or footer are missing: the file is not a whole snapshot.
    """
    values: list[bytes] = []
    snapshot = _scan(path, read_batches(path.read_bytes()), values)
    return replace_fields(snapshot, values=values)


def check_snapshot(path: Path) -> Snapshot:
    """Read a checkpoint as ``read_snapshot`` does, but keep no values: memory holds a part of the file at a time.

    Raises:
        FileNotFoundError: There is no such file.
        CorruptRecordError: As of ``read_snapshot``.
    """
    return replace_fields(_scan(path, _batches_of(path), None), path=path)


def _batches_of(path: Path) -> Iterator[RecordBatch]:
    """The batches of a checkpoint, read in parts of about a megabyte; each CRC is checked."""
    position = 0
    left_bytes = path.stat().st_size
    with path.open("rb") as file:
        rest = b""
        while True:
            # A batch that is larger than a part is read at once; a length beyond the end of the file is none.
            data = file.read(min(left_bytes, max(_PART_BYTES, _first_batch_bytes(rest) - len(rest))))
            left_bytes -= len(data)
            rest += data
            end = len(rest) if not data else _whole_batches_end(rest)
            if end:
                try:
                    yield from read_batches(rest[:end])
                except CorruptRecordError as error:
                    msg = f"{path}: in the batches from position {position} on: {error}"
                    raise CorruptRecordError(msg) from error
                position, rest = position + end, rest[end:]
            if not data:
                return


def _whole_batches_end(data: bytes) -> int:
    """Where the last batch ends that is whole, by their lengths; a length that none has ends them, too."""
    end = 0
    while True:
        size_bytes = _first_batch_bytes(data, end)
        if not size_bytes or end + size_bytes > len(data):
            return end
        end += size_bytes


def _first_batch_bytes(data: bytes, start: int = 0) -> int:
    """Of the batch that begins at ``start``, by its length, which no checksum covers; 0 if it is not known."""
    if len(data) - start < _BATCH_PREFIX_BYTES:
        return 0
    size_bytes = int.from_bytes(data[start + 8 : start + _BATCH_PREFIX_BYTES], "big", signed=True)
    return _BATCH_PREFIX_BYTES + size_bytes if size_bytes > 0 else 0


def _scan(path: Path, batches: Iterable[RecordBatch], values: list[bytes] | None) -> Snapshot:
    """Look through a checkpoint; the values of its data records are added to ``values``."""
    last_contained_log_timestamp: int | None = None
    kraft_version = 0
    voters: VotersRecord | None = None
    finished = False
    size_bytes = 0
    for batch in batches:
        size_bytes += batch.size_bytes
        if finished:
            msg = f"{path}: position {size_bytes - batch.size_bytes}: a batch follows the snapshot footer"
            raise CorruptRecordError(msg)
        if not batch.is_control:
            if values is not None:
                values.extend(value for value in batch.values() if value is not None)
            continue
        for record in _control_records(path, batch):
            match record:
                case SnapshotHeaderRecord():
                    last_contained_log_timestamp = record.last_contained_log_timestamp
                case KRaftVersionRecord():
                    kraft_version = record.kraft_version
                case VotersRecord():
                    voters = record
                case SnapshotFooterRecord():
                    finished = True
                case _:
                    pass
    if last_contained_log_timestamp is None or not finished:
        missing = "header" if last_contained_log_timestamp is None else "footer"
        msg = f"{path}: the snapshot {missing} is missing in {size_bytes} bytes"
        raise CorruptRecordError(msg)
    return Snapshot(
        last_contained_log_timestamp=last_contained_log_timestamp, kraft_version=kraft_version, voters=voters
    )


def _control_records(path: Path, batch: RecordBatch) -> Iterator[Message]:
    for offset, _, key, value, _ in batch.records():
        if key is None or value is None:
            msg = f"{path}: position {batch.position}: control record {offset} has no key or no value"
            raise CorruptRecordError(msg)
        _, record = decode_control_record(key, value)
        if record is not None:
            yield record
