"""``kraftlog dump-log``: print batches and records of log files and the entries of their indexes.

The text is that of Kafka's ``DumpLogSegments``, line for line. With ``--json`` each batch, or each record where records
are asked for, is one JSON object a line: bytes are text where they are UTF-8, and base64 under a name that says so
(``valueBase64``) where they are not.
"""

from __future__ import annotations

import argparse
import errno
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from kraftlog._kraftlog import JsonDump, RecordBatch, read_batches
from kraftlog.cli.dump_decoders import Decoder, control_text, decoder_of, plain_decoder
from kraftlog.cli.dump_indexes import dump_offset_index, dump_producer_snapshot, dump_time_index, dump_txn_index
from kraftlog.cli.dump_records import batch_json, record_json, to_json
from kraftlog.errors import CorruptRecordError, LogError

__all__ = ["add_arguments", "run"]

MAX_BYTES = 2**31 - 1
WINDOW_BYTES = 16 << 20

Record = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of Kafka's tool, and ``--json``."""
    parser.add_argument("--files", required=True, help="the files to dump, separated by commas")
    parser.add_argument("--print-data-log", action="store_true", help="print keys and values too")
    parser.add_argument("--deep-iteration", action="store_true", help="print each record, not only batches")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument(
        "--index-sanity-check", action="store_true", help="only check that index files have a sound shape"
    )
    parser.add_argument(
        "--verify-index-only", action="store_true", help="check index files against the log, print nothing"
    )
    parser.add_argument("--max-bytes", type=int, default=MAX_BYTES, help="how much of each log file to read")
    parser.add_argument("--max-message-size", type=int, default=5 << 20, help=argparse.SUPPRESS)
    parser.add_argument("--skip-record-metadata", action="store_true", help="print keys and values of records only")
    decoders = parser.add_mutually_exclusive_group()
    decoders.add_argument(
        "--cluster-metadata-decoder", action="store_true", help="decode records of __cluster_metadata"
    )
    decoders.add_argument("--offsets-decoder", action="store_true", help="decode records of __consumer_offsets")
    decoders.add_argument(
        "--transaction-log-decoder", action="store_true", help="decode records of __transaction_state"
    )
    decoders.add_argument(
        "--share-group-state-decoder", action="store_true", help="decode records of __share_group_state"
    )


def run(args: argparse.Namespace) -> int:
    """Dumps every file; 1 when one of them is not sound."""
    status = 0
    for name in args.files.split(","):
        path = Path(name)
        if not args.json:
            print(f"Dumping {name}")
        try:
            status |= _dump(path, args)
        except FileNotFoundError as error:
            print(f"kraftlog dump-log: no such file: {error.filename or path}", file=sys.stderr)
            status = 1
        except LogError as error:
            sys.stdout.flush()
            print(f"kraftlog dump-log: {error}", file=sys.stderr)
            status = 1
    return status


def _dump(path: Path, args: argparse.Namespace) -> int:
    match path.suffix:
        case ".log" | ".checkpoint":
            return _dump_log(path, args)
        case ".index":
            return dump_offset_index(path, args)
        case ".timeindex":
            return dump_time_index(path, args)
        case ".snapshot":
            return dump_producer_snapshot(path, args)
        case ".txnindex":
            return dump_txn_index(path, args)
        case _:
            print(f"Ignoring unknown file {path}", file=sys.stderr)
            return 0


def _dump_log(path: Path, args: argparse.Namespace) -> int:
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    decoder = decoder_of(args)
    print_data = args.print_data_log or decoder is not None
    deep = args.deep_iteration or print_data
    if args.json and decoder is None:
        size = path.stat().st_size
        for chunk in JsonDump(path, records=deep, data=print_data, max_bytes=min(size, args.max_bytes)):
            sys.stdout.buffer.write(chunk)
        sys.stdout.flush()
        return 0
    if not args.json:
        _print_start(path)
    gaps: list[tuple[int, int]] = []
    last_offset = -1
    for position, batch in _batches(path, args):
        if args.json and not deep:
            print(to_json(batch_json(batch, position)))
        elif not args.json:
            print(_batch_text(batch, position))
        if not deep:
            continue
        for record in batch.records():
            offset = record[0]
            if last_offset not in {-1, offset - 1}:
                gaps.append((last_offset, offset))
            last_offset = offset
            if args.json:
                print(to_json(record_json(batch, record, decoder or plain_decoder)))
            else:
                _print_record(batch, record, decoder or plain_decoder, print_data=print_data, args=args)
    if gaps and not args.json:
        print(f"Non-consecutive offsets in {path.absolute()}", file=sys.stderr)
        for before, after in gaps:
            print(f"  {before} is followed by {after}", file=sys.stderr)
    return 0


def _batches(path: Path, args: argparse.Namespace) -> Iterator[tuple[int, RecordBatch]]:
    """The batches with their positions in the file, read a window at a time."""
    size = min(path.stat().st_size, args.max_bytes)
    position, window = 0, WINDOW_BYTES
    with path.open("rb") as file:
        while position < size:
            file.seek(position)
            data = file.read(min(window, size - position))
            try:
                batches = read_batches(data, check_crc=False)
            except CorruptRecordError as error:
                batches = _sound_batches(data)
                if not batches:
                    if any(data):
                        message = f"{path} after position {position}: {error}"
                        raise CorruptRecordError(message) from None
                    break
            for batch in batches:
                yield position + batch.position, batch
            if batches:
                position += batches[-1].position + batches[-1].size_bytes
                window = WINDOW_BYTES
            elif position + len(data) >= size:
                break
            else:
                window *= 2
    rest = size - position
    if rest > 0 and args.max_bytes == MAX_BYTES and not args.json:
        print(f"Found {rest} invalid bytes at the end of {path.name}")


def _sound_batches(data: bytes) -> list[RecordBatch]:
    """The batches before one that is not sound."""
    end = 0
    batches: list[RecordBatch] = []
    while end + 12 <= len(data):
        size = 12 + int.from_bytes(data[end + 8 : end + 12], "big", signed=True)
        try:
            found = read_batches(memoryview(data)[: end + size], check_crc=False) if size > 12 else []
        except CorruptRecordError:
            break
        if len(found) <= len(batches):
            break
        batches, end = found, end + size
    return batches


def _print_start(path: Path) -> None:
    if path.name == "bootstrap.checkpoint":
        print("KRaft bootstrap snapshot")
        return
    pattern = r"(\d+)\.log" if path.suffix == ".log" else r"(\d+)-(\d+)\.checkpoint"
    name = re.fullmatch(pattern, path.name)
    if name is None:
        message = f"{path} is not named by its offset, as files of a log are"
        raise LogError(message)
    if path.suffix == ".log":
        print(f"Log starting offset: {int(name[1])}")
    else:
        print(f"Snapshot end offset: {int(name[1])}, epoch: {int(name[2])}")


def _batch_text(batch: RecordBatch, position: int) -> str:
    horizon = "OptionalLong.empty" if batch.delete_horizon_ms is None else f"OptionalLong[{batch.delete_horizon_ms}]"
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.record_count}"
        f" baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} producerId: {batch.producer_id}"
        f" producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.partition_leader_epoch}"
        f" isTransactional: {_java(batch.is_transactional)} isControl: {_java(batch.is_control)}"
        f" deleteHorizonMs: {horizon} position: {position} {batch.timestamp_type}: {batch.max_timestamp}"
        f" size: {batch.size_bytes} magic: {batch.magic} compresscodec: {batch.compression} crc: {batch.crc}"
        f" isvalid: {_java(batch.is_crc_valid())}"
    )


def _java(flag: bool) -> str:
    return "true" if flag else "false"


def _print_record(
    batch: RecordBatch, record: Record, decoder: Decoder, *, print_data: bool, args: argparse.Namespace
) -> None:
    offset, timestamp, key, value, headers = record
    parts = ["|"]
    if not args.skip_record_metadata:
        sequence = -1 if batch.base_sequence < 0 else (batch.base_sequence + offset - batch.base_offset) & 0x7FFFFFFF
        parts.append(
            f"offset: {offset} {batch.timestamp_type}: {timestamp}"
            f" keySize: {-1 if key is None else len(key)} valueSize: {-1 if value is None else len(value)}"
            f" sequence: {sequence} headerKeys: [{','.join(name for name, _ in headers)}]"
        )
        if batch.is_control:
            parts.append(control_text(key or b"", value or b""))
    if print_data and not batch.is_control:
        decoded_key, payload = decoder(offset, key, value)
        if decoded_key is not None:
            parts.append(f"key: {to_json(decoded_key)}")
        if payload is not None:
            parts.append(f"payload: {to_json(payload)}")
    print(" ".join(parts))
