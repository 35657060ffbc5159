"""Log and checkpoint files as lines: in the words of Kafka's tool, or as JSON."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from kraftlog._kraftlog import LogDump, read_transactions
from kraftlog.cli.dump_decoders import decoder_named, describe_json, describe_text
from kraftlog.cli.dump_indexes import base_offset_in
from kraftlog.cli.dump_report import Report
from kraftlog.cli.dump_sources import Selection, Source
from kraftlog.cli.progress import Progress
from kraftlog.errors import LogError

__all__ = ["dump_log_json", "dump_log_text"]

MAX_BYTES = 2**31 - 1


def dump_log_text(
    source: Source, args: argparse.Namespace, selection: Selection, report: Report, bar: Progress
) -> None:
    """Batches, and records where they are asked for, as Kafka's DumpLogSegments prints them.

    Raises:
        LogError: The file's name says no offset.
        CorruptRecordError: Bytes that are no batch or no record, after the lines before them.
    """
    path = source.path
    decoder = decoder_named(args, source.topic)
    end_offset, aborted = _committed(path, args, selection)
    data = prints_data(args) or (decoder is not None and source.topic is not None)
    print(_first_line(path))
    dump = LogDump(
        path,
        form="text",
        records=args.deep_iteration or data,
        data=data,
        record_metadata=not args.skip_record_metadata,
        max_bytes=None if args.max_bytes == MAX_BYTES else args.max_bytes,
        start_offset=selection.start_offset,
        end_offset=end_offset,
        aborted=aborted,
        from_timestamp=selection.from_timestamp,
        to_timestamp=selection.to_timestamp,
        describe=describe_text(decoder),
        describes_data=decoder is not None,
    )
    try:
        _write(dump, bar)
    finally:
        if selection.is_whole:
            # Kafka's tool compares the first record of any file with offset -1, which in a directory says nothing.
            report.add_gaps(path, (gap for gap in dump.gaps if source.topic is None or gap[0] >= 0))
    rest = dump.size_bytes - dump.position
    if rest > 0 and args.max_bytes == MAX_BYTES and end_offset is None:
        print(f"Found {rest} invalid bytes at the end of {path.name}")


def dump_log_json(source: Source, args: argparse.Namespace, selection: Selection, bar: Progress) -> None:
    """Batches or records, one JSON object per line.

    Raises:
        CorruptRecordError: Bytes that are no batch or no record, after the lines before them.
    """
    decoder = decoder_named(args, source.topic)
    end_offset, aborted = _committed(source.path, args, selection)
    data = prints_data(args)
    members = ""
    if source.topic is not None:
        members = f'"topic":{json.dumps(source.topic)},"partition":{source.partition},'
    dump = LogDump(
        source.path,
        form="json",
        records=args.deep_iteration or data,
        data=data,
        max_bytes=None if args.max_bytes == MAX_BYTES else args.max_bytes,
        start_offset=selection.start_offset,
        end_offset=end_offset,
        aborted=aborted,
        from_timestamp=selection.from_timestamp,
        to_timestamp=selection.to_timestamp,
        first_members=members,
        describe=describe_json(decoder),
        describes_data=decoder is not None,
    )
    _write(dump, bar)


def _committed(
    path: Path, args: argparse.Namespace, selection: Selection
) -> tuple[int | None, list[tuple[int, int, int]] | None]:
    """Where to end, and which transactions to leave out, when only committed records are wanted."""
    if args.isolation_level == "read_uncommitted" or path.suffix != ".log":
        return selection.end_offset, None
    transactions = read_transactions(path.parent, start_offset=selection.start_offset, end_offset=selection.end_offset)
    end_offset = transactions.last_stable_offset
    if selection.end_offset is not None:
        end_offset = min(end_offset, selection.end_offset)
    return end_offset, transactions.aborted


def prints_data(args: argparse.Namespace) -> bool:
    """Whether keys and values are asked for: by name, or by naming how to decode them."""
    return bool(
        args.print_data_log
        or args.offsets_decoder
        or args.transaction_log_decoder
        or args.cluster_metadata_decoder
        or args.remote_log_metadata_decoder
        or args.share_group_state_decoder
    )


def _write(dump: LogDump, bar: Progress) -> None:
    sys.stdout.flush()
    out = sys.stdout.buffer
    before = bar.done
    for lines in dump:
        out.write(lines)
        bar.update(before + dump.position)
    bar.update(before + dump.size_bytes)


def _first_line(path: Path) -> str:
    if path.suffix == ".log":
        return f"Log starting offset: {base_offset_in(path)}"
    if path.name == "bootstrap.checkpoint":
        return "KRaft bootstrap snapshot"
    name = re.fullmatch(r"(\d{20})-(\d{10})\.checkpoint", path.name)
    if name is None:
        raise LogError(f"{path} is not named by its offset and epoch, as snapshots of the metadata are")
    return f"Snapshot end offset: {int(name[1])}, epoch: {int(name[2])}"
