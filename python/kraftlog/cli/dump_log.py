"""``kraftlog dump-log``: print batches and records of log files and the entries of their indexes.

The text is that of Kafka's ``DumpLogSegments``, line for line. With ``--json`` each batch, or each record where records
are asked for, is one JSON object per line; ``--arrow`` and ``--parquet`` write the records as a table.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from kraftlog.cli.dump_indexes import dump_offset_index, dump_producer_snapshot, dump_time_index, dump_txn_index
from kraftlog.cli.dump_report import Report
from kraftlog.cli.dump_sources import Selection, Source, find_sources, milliseconds, selection_of
from kraftlog.cli.dump_tables import dump_table
from kraftlog.cli.dump_text import MAX_BYTES, dump_log_json, dump_log_text
from kraftlog.cli.progress import Progress
from kraftlog.errors import CorruptRecordError, LogError
from kraftlog.version import VERSION
from kraftlog.vocabulary import (
    CLUSTER_METADATA_TOPIC,
    CONSUMER_OFFSETS_TOPIC,
    REMOTE_LOG_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)

__all__ = ["add_arguments", "run"]

_JAVA_DECODERS = ("key_decoder_class", "value_decoder_class")
_STRING_DECODER = "org.apache.kafka.tools.api.StringDecoder"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of Kafka's tool, and those of kraftlog."""
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files, partition directories or log directories")
    kafka = parser.add_argument_group("as in Kafka's tool")
    kafka.add_argument("--files", help="files or directories to dump, separated by commas")
    kafka.add_argument("--print-data-log", action="store_true", help="print keys and values too")
    kafka.add_argument("--deep-iteration", action="store_true", help="print each record, not only batches")
    kafka.add_argument("--index-sanity-check", action="store_true", help="only check that indexes have a sound shape")
    kafka.add_argument("--verify-index-only", action="store_true", help="check indexes against the log, print nothing")
    kafka.add_argument("--max-bytes", type=int, default=MAX_BYTES, help="how much of each log file to read")
    kafka.add_argument("--max-message-size", type=int, default=5 << 20, help="largest batch that an index may name")
    kafka.add_argument("--skip-record-metadata", action="store_true", help="print keys and values of records only")
    for name, topic in (
        ("offsets", CONSUMER_OFFSETS_TOPIC),
        ("transaction-log", TRANSACTION_STATE_TOPIC),
        ("cluster-metadata", CLUSTER_METADATA_TOPIC),
        ("remote-log-metadata", REMOTE_LOG_METADATA_TOPIC),
        ("share-group-state", SHARE_GROUP_STATE_TOPIC),
    ):
        kafka.add_argument(f"--{name}-decoder", action="store_true", help=f"decode records of {topic}")
    for name in ("key", "value"):
        kafka.add_argument(
            f"--{name}-decoder-class",
            nargs="?",
            const=_STRING_DECODER,
            metavar="CLASS",
            help="as --print-data-log; only Kafka's StringDecoder is supported",
        )
    kafka.add_argument("--version", action="store_true", help="print the version and end")
    select = parser.add_argument_group("which records")
    select.add_argument("--topics", type=_names, metavar="A,B", help="of directories: only these topics")
    select.add_argument("--partitions", type=_numbers, metavar="0,1", help="of directories: only these partitions")
    select.add_argument("--start-offset", type=int, metavar="N", help="first offset, inclusive")
    select.add_argument("--end-offset", type=int, metavar="N", help="end, exclusive")
    select.add_argument("--from-time", type=milliseconds, metavar="TIME", help="milliseconds or ISO 8601, inclusive")
    select.add_argument("--to-time", type=milliseconds, metavar="TIME", help="exclusive")
    select.add_argument(
        "--isolation-level",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="read_committed leaves out what its consumers do not get",
    )
    output = parser.add_argument_group("what is written")
    form = output.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object per line, to stdout")
    form.add_argument(
        "--arrow", metavar="FILE", help="records as an Arrow IPC file; a stream to stdout (-) or *.arrows"
    )
    form.add_argument("--parquet", metavar="FILE", help="records as a Parquet file (needs pyarrow)")
    whole = output.add_mutually_exclusive_group()
    whole.add_argument("--image", action="store_true", help="the metadata that a log or snapshot comes to, as a tree")
    whole.add_argument("--state", action="store_true", help="groups, offsets and transactions that logs come to")
    output.add_argument("--at-offset", type=int, metavar="N", help="of --image and --state: last offset, inclusive")
    output.add_argument("--columns", type=_names, metavar="A,B", help="of tables: which columns")
    output.add_argument("--compression", default="zstd", metavar="CODEC", help="of Parquet: zstd, snappy, lz4 or none")
    output.add_argument("--threads", type=int, default=1, metavar="N", help="of tables: how many decode at once")


def run(args: argparse.Namespace) -> int:
    """Dumps every file.

    Returns:
        0; 1 when a file is missing or not sound. The text form then ends there, as Kafka's tool does; the other forms
        go on with the next file.
    """
    if args.version:
        print(f"kraftlog {VERSION} (text form of Kafka 4.3.1)")
        return 0
    for name in _JAVA_DECODERS:
        if getattr(args, name) not in {None, _STRING_DECODER}:
            flag = name.replace("_", "-")
            return _fail(
                f"--{flag} names a Java class, which only a JVM can run; use --json or --arrow and decode there"
            )
    args.print_data_log = args.print_data_log or any(getattr(args, name) is not None for name in _JAVA_DECODERS)
    names = [name for name in (args.files or "").split(",") if name] + args.paths
    if not names:
        return _fail('Missing required argument "[files]"')
    if args.image or args.state:
        return _run_document(names, args)
    try:
        sources = find_sources(
            names,
            topics=args.topics,
            partitions=args.partitions,
            indexes=args.index_sanity_check or args.verify_index_only,
        )
    except FileNotFoundError as error:
        return _fail(str(error))
    selection = selection_of(args)
    if args.arrow or args.parquet:
        return _run_table(sources, args, selection)
    return _run_files(sources, args, selection)


def _run_document(names: Sequence[str], args: argparse.Namespace) -> int:
    # They need most of the message classes, which nothing else here does.
    from kraftlog.cli.dump_documents import dump_image, dump_state

    try:
        return dump_image(names, args) if args.image else dump_state(names, args)
    except FileNotFoundError as error:
        return _fail(f"no such file: {error.filename or error}")
    except LogError as error:
        return _fail(str(error))


def _run_table(sources: Sequence[Source], args: argparse.Namespace, selection: Selection) -> int:
    try:
        dump_table(sources, args, selection)
    except FileNotFoundError as error:
        return _fail(f"no such file: {error.filename or error}")
    except (LogError, OSError, ValueError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        return _fail(str(error))
    return 0


def _run_files(sources: Sequence[Source], args: argparse.Namespace, selection: Selection) -> int:
    report = Report()
    status = 0
    total = sum(_size(source.path) for source in sources)
    # A person who reads the lines on a terminal sees the progress in them.
    with Progress("dumping", total, enabled=False if sys.stdout.isatty() else None) as bar:
        for source in sources:
            if not args.json:
                print(f"Dumping {source.path}")
            failure = _dump(source, args, selection, report, bar)
            if failure is not None:
                sys.stdout.flush()
                bar.hide()
                status = _fail(failure)
                if not args.json:
                    # Kafka's tool ends at the first exception, without telling what it found before.
                    return status
    sys.stdout.flush()
    report.print()
    return status


def _dump(source: Source, args: argparse.Namespace, selection: Selection, report: Report, bar: Progress) -> str | None:
    """Dumps a file; gives what is wrong with it."""
    path = source.path
    try:
        match path.suffix:
            case ".log" | ".checkpoint":
                if args.json:
                    dump_log_json(source, args, selection, bar)
                else:
                    dump_log_text(source, args, selection, report, bar)
            case ".index":
                dump_offset_index(path, args, report)
            case ".timeindex":
                dump_time_index(path, args, report)
            case ".snapshot":
                _dump_snapshot(path, args)
            case ".txnindex":
                dump_txn_index(path, args)
            case _:
                print(f"Ignoring unknown file {path}", file=sys.stderr)
    except FileNotFoundError as error:
        return f"no such file: {error.filename or path}"
    except (LogError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        return str(error)
    return None


def _dump_snapshot(path: Path, args: argparse.Namespace) -> None:
    try:
        dump_producer_snapshot(path, args)
    except CorruptRecordError as error:
        if args.json:
            raise
        # The one defect after which Kafka's tool goes on, and ends with status 0.
        print(error, file=sys.stderr)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.suffix in {".log", ".checkpoint"} else 0
    except OSError:
        return 0


def _fail(message: str) -> int:
    print(f"kraftlog dump-log: {message}", file=sys.stderr)
    return 1


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]
