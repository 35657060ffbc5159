"""Dumps of index files and producer snapshots, checked against the log they belong to."""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kraftlog._kraftlog import RecordBatch, crc32c, read_batches
from kraftlog.cli.dump_records import to_json
from kraftlog.errors import CorruptRecordError, LogError

__all__ = ["dump_offset_index", "dump_producer_snapshot", "dump_time_index", "dump_txn_index"]

_OFFSET_ENTRY = struct.Struct(">II")
_TIME_ENTRY = struct.Struct(">qI")
_TXN_ENTRY = struct.Struct(">hqqqq")
_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_BATCH_HEAD = struct.Struct(">qi")
_NO_TIMESTAMP = -1


def dump_offset_index(path: Path, args: argparse.Namespace) -> int:
    """The entries of an ``.index``; each has to name the last offset of the batch at its position."""
    base_offset = int(path.stem)
    entries = list(_entries(path, _OFFSET_ENTRY))
    if _is_settled(path, entries, _OFFSET_ENTRY, args):
        return 0
    mismatches: list[tuple[int, int]] = []
    log = path.with_suffix(".log")
    for relative_offset, position in entries:
        offset = base_offset + relative_offset
        batch = next(_batches_from(log, position), None)
        if batch is None:
            message = (
                f"{path}: the entry of offset {offset} points to position {position}, where {log.name} has no batch"
            )
            raise LogError(message)
        if batch.last_offset != offset:
            mismatches.append((offset, batch.last_offset))
        _print_entry(args, offset=offset, position=position)
    if mismatches:
        print(f"Mismatches in :{path.absolute()}", file=sys.stderr)
        for index_offset, log_offset in reversed(mismatches):
            print(f"  Index offset: {index_offset}, log offset: {log_offset}", file=sys.stderr)
    return 0


def dump_time_index(path: Path, args: argparse.Namespace) -> int:
    """The entries of a ``.timeindex``; each has to name a batch's last offset and its largest timestamp."""
    base_offset = int(path.stem)
    entries = list(_entries(path, _TIME_ENTRY))
    if _is_settled(path, entries, _TIME_ENTRY, args):
        return 0
    log = path.with_suffix(".log")
    positions = list(_entries(path.with_suffix(".index"), _OFFSET_ENTRY))
    wrong: list[tuple[int, int]] = []
    disordered: list[tuple[int, int]] = []
    lost: list[tuple[int, int]] = []
    previous = _NO_TIMESTAMP
    for timestamp, relative_offset in entries:
        offset = base_offset + relative_offset
        start = max((position for last, position in positions if last <= relative_offset), default=0)
        batch = next((batch for batch in _batches_from(log, start) if batch.last_offset >= offset), None)
        if batch is None or batch.last_offset != offset:
            lost.append((offset, -1 if batch is None else batch.last_offset))
        else:
            largest = max((record[1] for record in batch.records()), default=_NO_TIMESTAMP)
            if largest != timestamp:
                wrong.append((timestamp, largest))
            if previous >= timestamp:
                disordered.append((timestamp, previous))
        _print_entry(args, timestamp=timestamp, offset=offset)
        previous = timestamp
    _print_time_errors(path, wrong, disordered, lost)
    return 0


def dump_txn_index(path: Path, args: argparse.Namespace) -> int:
    """The aborted transactions of a ``.txnindex``."""
    for version, producer_id, first_offset, last_offset, last_stable_offset in _TXN_ENTRY.iter_unpack(_whole(path, 34)):
        _print_entry(
            args,
            version=version,
            producerId=producer_id,
            firstOffset=first_offset,
            lastOffset=last_offset,
            lastStableOffset=last_stable_offset,
        )
    return 0


def dump_producer_snapshot(path: Path, args: argparse.Namespace) -> int:
    """The producers of a ``.snapshot``.

    Raises:
        CorruptRecordError: The checksum or the size is wrong.
    """
    data = path.read_bytes()
    if len(data) < _SNAPSHOT_HEAD.size:
        message = f"{path}: {len(data)} bytes hold no producer snapshot"
        raise CorruptRecordError(message)
    version, stored, count = _SNAPSHOT_HEAD.unpack_from(data)
    computed = crc32c(memoryview(data)[6:])
    if stored != computed:
        message = f"{path}: CRC {stored:#010x} stored, {computed:#010x} computed"
        raise CorruptRecordError(message)
    if version != 1 or len(data) - _SNAPSHOT_HEAD.size != count * _SNAPSHOT_ENTRY.size:
        message = f"{path}: version {version} with {count} producers in {len(data)} bytes is not a producer snapshot"
        raise CorruptRecordError(message)
    for entry in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEAD.size :]):
        _print_producer(args, entry)
    return 0


def _print_producer(args: argparse.Namespace, entry: tuple[int, ...]) -> None:
    producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, first_offset = entry
    fields: dict[str, Any] = {
        "producerId": producer_id,
        "producerEpoch": epoch,
        "coordinatorEpoch": coordinator_epoch,
        "currentTxnFirstOffset": None if first_offset < 0 else first_offset,
        "lastTimestamp": timestamp,
    }
    if last_offset >= 0:
        first_sequence = last_sequence - offset_delta
        fields.update(
            firstSequence=first_sequence if first_sequence >= 0 else first_sequence + 2**31,
            lastSequence=last_sequence,
            lastOffset=last_offset,
            offsetDelta=offset_delta,
            timestamp=timestamp,
        )
    if args.json:
        print(to_json(fields))
        return
    fields["currentTxnFirstOffset"] = "OptionalLong.empty" if first_offset < 0 else f"OptionalLong[{first_offset}]"
    print(" ".join(f"{name}: {value}" for name, value in fields.items()))


def _print_entry(args: argparse.Namespace, **fields: int) -> None:
    if args.verify_index_only:
        return
    print(to_json(fields) if args.json else " ".join(f"{name}: {value}" for name, value in fields.items()))


def _print_time_errors(
    path: Path, wrong: list[tuple[int, int]], disordered: list[tuple[int, int]], lost: list[tuple[int, int]]
) -> None:
    if wrong:
        print(f"Found timestamp mismatch in :{path.absolute()}", file=sys.stderr)
        for index_timestamp, log_timestamp in wrong:
            print(f"  Index timestamp: {index_timestamp}, log timestamp: {log_timestamp}", file=sys.stderr)
    if disordered:
        print(f"Found out of order timestamp in :{path.absolute()}", file=sys.stderr)
        for index_timestamp, before in disordered:
            print(f"  Index timestamp: {index_timestamp}, Previously indexed timestamp: {before}", file=sys.stderr)
    if lost:
        print("The following indexed offsets are not found in the log.", file=sys.stderr)
        for indexed, found in lost:
            print(f"Indexed offset: {indexed}, found log offset: {found}", file=sys.stderr)


def _is_settled(path: Path, entries: list[Any], entry: struct.Struct, args: argparse.Namespace) -> bool:
    """True when there are no entries to print."""
    if not entries:
        print(f"{path} is empty.")
        return True
    if args.index_sanity_check:
        if path.stat().st_size % entry.size:
            message = f"{path}: {path.stat().st_size} bytes are not a multiple of {entry.size}"
            raise LogError(message)
        print(f"{path} passed sanity check.")
        return True
    return False


def _whole(path: Path, entry_size: int) -> bytes:
    data = path.read_bytes()
    return data[: len(data) - len(data) % entry_size]


def _entries(path: Path, entry: struct.Struct) -> Iterator[tuple[int, int]]:
    """Entries up to the zeros that stand where Kafka allocated space in advance."""
    for number, fields in enumerate(entry.iter_unpack(_whole(path, entry.size))):
        if number > 0 and not any(fields):
            return
        if number == 0 and not any(fields) and path.stat().st_size > entry.size:
            return
        yield fields


def _batches_from(log: Path, position: int) -> Iterator[RecordBatch]:
    """The batches of a log file from a byte position on, one read each."""
    with log.open("rb") as file:
        while True:
            file.seek(position)
            head = file.read(_BATCH_HEAD.size)
            if len(head) < _BATCH_HEAD.size:
                return
            length = _BATCH_HEAD.unpack(head)[1]
            if length < 0:
                return
            batches = read_batches(head + file.read(length), check_crc=False)
            if not batches:
                return
            yield batches[0]
            position += batches[0].size_bytes
