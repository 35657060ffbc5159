"""Dumps of index files and producer snapshots, checked against the log they belong to."""

from __future__ import annotations

import argparse
import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kraftlog._kraftlog import RecordBatch, crc32c, read_batches
from kraftlog.cli.dump_report import Report
from kraftlog.errors import CorruptRecordError, LogError, ProtocolError
from kraftlog.wire.messages.storage_records import ProducerSnapshot

__all__ = ["base_offset_in", "dump_offset_index", "dump_producer_snapshot", "dump_time_index", "dump_txn_index"]

# Offsets in them are relative to the base offset in the file's name.
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_TXN_ENTRY = struct.Struct(">hqqqq")
_TXN_VERSION = 0
_BATCH_HEAD = struct.Struct(">qi")
_SNAPSHOT_VERSION = 1
_SNAPSHOT_CRC_START = 6
_NO_TIMESTAMP = -1


def base_offset_in(path: Path) -> int:
    """The offset that a file of a log is named by.

    Raises:
        LogError: It is named otherwise.
    """
    digits = path.name.split(".")[0]
    if not (digits.isascii() and digits.removeprefix("-").isdigit()):
        raise LogError(f"{path} is not named by its offset, as files of a log are")
    return int(digits)


def dump_offset_index(path: Path, args: argparse.Namespace, report: Report) -> None:
    """The entries of an ``.index``; each has to name the last offset of the batch at its position.

    Raises:
        LogError: An entry points to something else than a batch, or the sanity check fails.
    """
    base_offset = base_offset_in(path)
    log = path.with_name(f"{path.name.split('.')[0]}.log")
    log_size = log.stat().st_size
    entries = _entries(path, _OFFSET_ENTRY)
    if not entries:
        _tell(args, path, "is empty.")
        return
    if args.index_sanity_check:
        _check_size(path, _OFFSET_ENTRY)
        _check_last_offset(path, base_offset, base_offset + entries[-1][0])
        _tell(args, path, "passed sanity check.")
        return
    for number, (relative_offset, position) in enumerate(entries):
        if relative_offset == 0 and number > 0:
            # Space that was allocated in advance.
            break
        offset = base_offset + relative_offset
        if not 0 <= position <= log_size:
            raise LogError(f"{path}: the entry of offset {offset} points to position {position}, {log} has {log_size}")
        batch = next(_batches_from(log, position, args.max_message_size), None)
        if batch is None:
            raise LogError(
                f"{path}: the entry of offset {offset} points to position {position}, where {log.name} has no batch"
                f" of at most {args.max_message_size} bytes"
            )
        if batch.last_offset != offset:
            report.index_mismatches.of(path)[offset] = batch.last_offset
        _print_entry(args, offset=offset, position=position)


def dump_time_index(path: Path, args: argparse.Namespace, report: Report) -> None:
    """The entries of a ``.timeindex``; each has to name a batch's last offset and its largest timestamp.

    Raises:
        LogError: The sanity check fails.
    """
    base_offset = base_offset_in(path)
    stem = path.name.split(".")[0]
    log = path.with_name(f"{stem}.log")
    log.stat()
    positions = _entries(path.with_name(f"{stem}.index"), _OFFSET_ENTRY)
    entries = _entries(path, _TIME_ENTRY)
    if args.index_sanity_check:
        _check_size(path, _TIME_ENTRY)
        if entries:
            _check_last_offset(path, base_offset, base_offset + entries[-1][1])
            if entries[-1][0] < entries[0][0]:
                raise LogError(f"{path}: the last timestamp {entries[-1][0]} is before the first, {entries[0][0]}")
        _tell(args, path, "passed sanity check.")
        return
    previous = _NO_TIMESTAMP
    for number, (timestamp, relative_offset) in enumerate(entries):
        if relative_offset == 0 and number > 0:
            break
        offset = base_offset + relative_offset
        start = max((position for last, position in positions if last <= relative_offset), default=0)
        batch = next((batch for batch in _batches_from(log, start) if batch.last_offset >= offset), None)
        if batch is None or batch.last_offset != offset:
            found = -1 if batch is None else batch.last_offset
            report.offsets_not_found.of(path).append((offset, found))
        else:
            largest = max((record[1] for record in batch.records()), default=_NO_TIMESTAMP)
            largest = max(largest, _NO_TIMESTAMP)
            if largest != timestamp:
                report.time_mismatches.of(path).append((timestamp, largest))
            if previous >= timestamp:
                report.time_disorder.of(path).append((timestamp, previous))
        _print_entry(args, timestamp=timestamp, offset=offset)
        previous = timestamp


def dump_txn_index(path: Path, args: argparse.Namespace) -> None:
    """The aborted transactions of a ``.txnindex``; a file that does not exist has none.

    Raises:
        LogError: An entry of a later version.
    """
    base_offset_in(path)
    if not path.exists():
        return
    for number, entry in enumerate(_entries(path, _TXN_ENTRY)):
        version, producer_id, first_offset, last_offset, last_stable_offset = entry
        if version > _TXN_VERSION:
            raise LogError(f"{path} position {number * _TXN_ENTRY.size}: version {version} of an entry is unknown")
        _print(
            args,
            version=version,
            producerId=producer_id,
            firstOffset=first_offset,
            lastOffset=last_offset,
            lastStableOffset=last_stable_offset,
        )


def dump_producer_snapshot(path: Path, args: argparse.Namespace) -> None:
    """The producers of a ``.snapshot``.

    Raises:
        CorruptRecordError: The checksum, the version or the size is wrong.
    """
    data = path.read_bytes()
    version = int.from_bytes(data[:2], "big", signed=True)
    if version != _SNAPSHOT_VERSION:
        raise CorruptRecordError(f"{path} position 0: version {version} of a producer snapshot is unknown")
    try:
        snapshot = ProducerSnapshot.decode(data[2:], version)
    except ProtocolError as error:
        raise CorruptRecordError(f"{path}: not a producer snapshot: {error}") from None
    computed = crc32c(memoryview(data)[_SNAPSHOT_CRC_START:])
    if snapshot.crc != computed:
        raise CorruptRecordError(f"{path} position 2: CRC {snapshot.crc:#010x} stored, {computed:#010x} computed")
    for entry in snapshot.producer_entries:
        _print_producer(args, entry)


def _print_producer(args: argparse.Namespace, entry: ProducerSnapshot.ProducerEntry) -> None:
    first_offset = entry.current_txn_first_offset
    fields: dict[str, Any] = {
        "producerId": entry.producer_id,
        "producerEpoch": entry.epoch,
        "coordinatorEpoch": entry.coordinator_epoch,
        "currentTxnFirstOffset": None if first_offset < 0 else first_offset,
        "lastTimestamp": entry.timestamp,
    }
    if entry.last_offset >= 0:
        first_sequence = entry.last_sequence - entry.offset_delta
        fields.update(
            firstSequence=first_sequence if first_sequence >= 0 else first_sequence + 2**31,
            lastSequence=entry.last_sequence,
            lastOffset=entry.last_offset,
            offsetDelta=entry.offset_delta,
            timestamp=entry.timestamp,
        )
    if not args.json:
        fields["currentTxnFirstOffset"] = "OptionalLong.empty" if first_offset < 0 else f"OptionalLong[{first_offset}]"
    _print(args, **fields)


def _print_entry(args: argparse.Namespace, **fields: int) -> None:
    if not args.verify_index_only:
        _print(args, **fields)


def _print(args: argparse.Namespace, **fields: Any) -> None:
    if args.json:
        print(json.dumps(fields, separators=(",", ":")))
    else:
        print(" ".join(f"{name}: {value}" for name, value in fields.items()))


def _tell(args: argparse.Namespace, path: Path, what: str) -> None:
    # In JSON, stdout has entries and nothing else.
    print(f"{path} {what}", file=sys.stderr if args.json else sys.stdout)


def _check_size(path: Path, entry: struct.Struct) -> None:
    size = path.stat().st_size
    if size % entry.size:
        raise LogError(f"{path}: {size} bytes are not a multiple of {entry.size}")


def _check_last_offset(path: Path, base_offset: int, last_offset: int) -> None:
    if last_offset < base_offset:
        raise LogError(f"{path}: the last offset {last_offset} is before the base offset {base_offset}")


def _entries(path: Path, entry: struct.Struct) -> list[tuple[int, ...]]:
    data = path.read_bytes()
    return list(entry.iter_unpack(data[: len(data) - len(data) % entry.size]))


def _batches_from(log: Path, position: int, max_bytes: int | None = None) -> Iterator[RecordBatch]:
    """The batches of a log file from a byte position on, one read each; none that ends ``max_bytes`` further."""
    limit = log.stat().st_size if max_bytes is None else min(log.stat().st_size, position + max_bytes)
    with log.open("rb") as file:
        while True:
            file.seek(position)
            head = file.read(_BATCH_HEAD.size)
            if len(head) < _BATCH_HEAD.size:
                return
            length = _BATCH_HEAD.unpack(head)[1]
            if length < 0 or position + len(head) + length > limit:
                return
            batches = read_batches(head + file.read(length), check_crc=False)
            if not batches:
                return
            yield batches[0]
            position += batches[0].size_bytes
