"""``kraftlog log``: check log directories, and copy what is sound of damaged ones.

``verify`` reads everything and changes nothing: exit status 0 when all is sound, 1 when there are errors or replicas
differ, 2 when a path cannot be read or the usage is wrong. ``salvage`` writes into a new directory only: 0 when every
byte was kept, 1 when something was lost, 2 when it could not do its work.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kraftlog._kraftlog import salvage_files, verify_files
from kraftlog.cli.progress import human_bytes, progress
from kraftlog.errors import LogError
from kraftlog.reading.replica_comparison import Comparison, compare_replicas, replica_directories

__all__ = ["add_arguments", "run"]

_SOUND, _PROBLEMS, _FAILED = 0, 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The subcommands ``verify`` and ``salvage``."""
    commands = parser.add_subparsers(dest="log_command", metavar="verify | salvage", required=True)
    verify = commands.add_parser(
        "verify",
        help="check every batch, index and checkpoint; changes nothing",
        description="Check log directories, partition directories or single files. Nothing is changed. "
        "Exit status: 0 sound, 1 errors (with --strict also warnings) or replicas that differ, 2 not readable or wrong "
        "usage.",
    )
    verify.add_argument("path", nargs="+", type=Path, help="log directory, partition directory or .log file")
    verify.add_argument(
        "--shallow", action="store_true", help="frames and checksums only: records are not decompressed"
    )
    verify.add_argument(
        "--against",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="log directory or partition directory of another replica; compare the batches of all partitions that are "
        "in both, below the smaller high watermark (repeat it for each log directory of the other broker)",
    )
    verify.add_argument("--strict", action="store_true", help="exit with 1 for warnings too")
    verify.add_argument("--quiet", action="store_true", help="print errors and the repair plan only")
    salvage = commands.add_parser(
        "salvage",
        help="copy what is sound of damaged logs into a new directory",
        description="Copy every sound batch, also those behind damage, and rebuild what goes with them. Writes only "
        "below the new directory. Exit status: 0 all kept, 1 something lost, 2 failed.",
    )
    salvage.add_argument("path", type=Path, help="log directory, partition directory or .log file")
    salvage.add_argument("--output", required=True, type=Path, metavar="NEWDIR", help="a new or empty directory")
    salvage.add_argument(
        "--partial-batches",
        action="store_true",
        help="keep the readable first records of uncompressed batches with a wrong checksum too",
    )
    for command in (verify, salvage):
        command.add_argument("--json", action="store_true", help="print one JSON object")
        command.add_argument("--threads", type=int, default=0, help="threads (default: one per processor)")


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand."""
    try:
        return _verify(args) if args.log_command == "verify" else _salvage(args)
    except (LogError, OSError) as error:
        print(f"kraftlog log {args.log_command}: {error}", file=sys.stderr)
        return _FAILED


def _verify(args: argparse.Namespace) -> int:
    started = time.perf_counter()
    with progress("verifying") as bar:

        def advance(done: int, total: int) -> None:
            bar.total = total
            bar.update(done)

        text = verify_files(args.path, deep=not args.shallow, threads=args.threads, progress=advance)
    report = json.loads(text)
    comparisons = _compare(args.path, args.against) if args.against else []
    if args.json:
        print(
            json.dumps(report | {"comparisons": [_comparison_row(found) for found in comparisons]})
            if args.against
            else text
        )
    else:
        _print_comparisons(comparisons, is_quiet=args.quiet)
        _print_verify(report, time.perf_counter() - started, is_quiet=args.quiet)
    severities = {finding["severity"] for finding in report["findings"]}
    bad = {"error", "warning"} if args.strict else {"error"}
    return _PROBLEMS if severities & bad or any(found.difference for found in comparisons) else _SOUND


def _compare(paths: Sequence[Path], others: Sequence[Path]) -> list[Comparison]:
    here, there = replica_directories(paths), replica_directories(others)
    both = sorted(here.keys() & there.keys(), key=lambda key: (key.topic, key.partition))
    if not both:
        raise LogError(
            "no partition is in both: --against names a log directory or the directory of the same partition"
        )
    return [compare_replicas(key, here[key], there[key]) for key in both]


def _comparison_row(found: Comparison) -> dict[str, Any]:
    row: dict[str, Any] = {
        "topic": found.partition.topic,
        "partition": found.partition.partition,
        "startOffset": found.start_offset,
        "endOffset": found.end_offset,
        "bytes": found.size_bytes,
        "highWatermarkKnown": found.is_high_watermark_known,
    }
    if found.difference is not None:
        here, there = found.difference.here, found.difference.there
        row["difference"] = {
            "file": str(here.file),
            "position": here.position,
            "againstFile": str(there.file),
            "againstPosition": there.position,
            "offset": found.difference.offset,
            "what": found.difference.what,
        }
    return row


def _print_comparisons(comparisons: Sequence[Comparison], *, is_quiet: bool) -> None:
    for found in comparisons:
        difference = found.difference
        if difference is not None:
            where = f" in the batch at offset {difference.offset}" if difference.offset >= 0 else ""
            print(f"difference: {difference.here}, against {difference.there}: {difference.what}{where}")
        if not is_quiet:
            limit = (
                ""
                if found.is_high_watermark_known
                else "; high watermark unknown, compared to the end of the shorter log"
            )
            offsets = (
                f"offsets {found.start_offset} to {found.end_offset - 1}"
                if found.end_offset > found.start_offset
                else "no offset"
            )
            print(f"{found.partition}: {offsets} equal, {human_bytes(found.size_bytes)}{limit}")


def _print_verify(report: dict[str, Any], seconds: float, *, is_quiet: bool) -> None:
    for finding in report["findings"]:
        if not is_quiet or finding["severity"] == "error":
            print(_finding_text(finding))
    partitions = report["partitions"]
    counts = {name: sum(partition[name] for partition in partitions) for name in ("bytes", "batches", "records")}
    if not is_quiet:
        rate = human_bytes(int(counts["bytes"] / max(seconds, 1e-9)))
        print(
            f"{len(partitions)} logs, {human_bytes(counts['bytes'])}, {counts['batches']} batches, "
            f"{counts['records']} records in {seconds:.2f} s ({rate}/s)"
        )
        if report["live"]:
            print("A running node holds the directory: the ends of active segments were still being written.")
        print(f"Status: {report['status']}")
    if report["plan"]:
        print("Repair plan (nothing of it was done):")
        for number, step in enumerate(report["plan"], 1):
            print(f"  {number}. {_step_text(step)}")


def _finding_text(finding: dict[str, Any]) -> str:
    place = finding["file"]
    if "position" in finding:
        place += f" position {finding['position']}"
    if "offset" in finding:
        place += f" {_offsets(finding['offset'], finding.get('lastOffset', finding['offset']))}"
    effect = f" ({finding['effect']})" if finding["effect"] else ""
    return f"{finding['severity']} {finding['kind']}: {place}: {finding['what']}{effect}"


def _offsets(first: int, last: int) -> str:
    return f"offset {first}" if first == last else f"offsets {first} to {last}"


def _step_text(step: dict[str, Any]) -> str:
    what = {
        "stop-node": "Stop the node",
        "restore-from-replica": "Restore from a replica",
        "salvage": "Or salvage",
        "truncate": "Or truncate" if "choice" in step else "Truncate",
        "delete": "Delete",
        "edit": "Correct",
        "start-node": "Start the node",
    }[step["action"]]
    text = f"{what} {step['path']}".rstrip()
    if "position" in step:
        text += f" at position {step['position']}"
    if "losesFrom" in step:
        end = f"to {step['losesTo']}" if "losesTo" in step else "on"
        text += f" (loses offsets from {step['losesFrom']} {end})"
    return f"{text}: {step['why']}"


def _salvage(args: argparse.Namespace) -> int:
    with progress("salvaging") as bar:

        def advance(done: int, total: int) -> None:
            bar.total = total
            bar.update(done)

        text = salvage_files(
            args.path,
            args.output,
            partial_batches=args.partial_batches,
            threads=args.threads,
            progress=advance,
        )
    report = json.loads(text)
    if args.json:
        print(text)
    else:
        for line in _salvage_lines(report):
            print(line)
    return _SOUND if report["status"] == "complete" else _PROBLEMS


def _salvage_lines(report: dict[str, Any]) -> Iterable[str]:
    lost_bytes = 0
    for partition in report["partitions"]:
        yield (
            f"{partition['source']} -> {partition['output']}: {partition['batches']} batches, "
            f"{human_bytes(partition['bytes'])}, {partition['segments']} segments, "
            f"offsets {partition['firstOffset']} to {partition['nextOffset'] - 1}"
        )
        for loss in partition["losses"]:
            lost_bytes += loss["bytes"]
            yield f"  lost: {_loss_text(loss)}"
        for transaction in partition["openTransactions"]:
            yield (
                f"  open transaction of producer {transaction['producerId']} from offset "
                f"{transaction['firstOffset']} on: consumers with read_committed stop there"
            )
        for remark in partition["remarks"]:
            yield f"  remark: {remark}"
    if report["status"] == "complete":
        yield "Everything was kept."
    else:
        yield f"{human_bytes(lost_bytes)} could not be kept."


def _loss_text(loss: dict[str, Any]) -> str:
    text = f"{loss['bytes']} bytes at position {loss['position']} of {loss['file']}: {loss['reason']}"
    if "firstOffset" in loss:
        last = loss.get("lastOffset")
        where = f"offsets {loss['firstOffset']} on" if last is None else _offsets(loss["firstOffset"], last)
        text += f"; {where}"
    if loss["keptRecords"]:
        text += f"; {loss['keptRecords']} records of it were kept one by one"
    return text
