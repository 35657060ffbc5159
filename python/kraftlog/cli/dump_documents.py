"""What logs of Kafka's own topics come to, as one document: ``--image`` and ``--state``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kraftlog.cli.dump_image import image_document
from kraftlog.cli.dump_state import state_document
from kraftlog.cli.dump_tree import tree_lines
from kraftlog.cli.progress import Progress
from kraftlog.errors import LogError
from kraftlog.reading import partition_of
from kraftlog.vocabulary import COORDINATORS

__all__ = ["dump_image", "dump_state"]


def dump_image(names: Sequence[str], args: argparse.Namespace) -> int:
    """Prints the metadata at an offset.

    Returns:
        1 when some record could not be applied, else 0.

    Raises:
        FileNotFoundError: There is no metadata at the path.
        LogError: More than one path, or what a log lacks.
    """
    if len(names) != 1:
        raise LogError(f"--image takes one path, not {len(names)}")
    with Progress("replaying") as bar:
        document = image_document(Path(names[0]), at_offset=args.at_offset, bar=bar)
    return _print(document, args)


def dump_state(names: Sequence[str], args: argparse.Namespace) -> int:
    """Prints the state of groups, transactions or share groups.

    Returns:
        1 when some record could not be read, else 0.

    Raises:
        FileNotFoundError: A path does not exist.
        LogError: It is not of a coordinator's topic.
    """
    by_coordinator: dict[str, list[Path]] = {}
    for name in names:
        for coordinator, path in _partitions(Path(name), args):
            by_coordinator.setdefault(coordinator, []).append(path)
    document: dict[str, Any] = {}
    problems: list[str] = []
    with Progress("replaying") as bar:
        for coordinator, paths in by_coordinator.items():
            found = state_document(coordinator, paths, at_offset=args.at_offset, bar=bar)
            problems += found.pop("problems", [])
            document.update(found)
    if problems:
        document["problems"] = problems
    return _print(document, args)


def _partitions(path: Path, args: argparse.Namespace) -> Iterator[tuple[str, Path]]:
    asked = {
        "group": args.offsets_decoder,
        "transaction": args.transaction_log_decoder,
        "share": args.share_group_state_decoder,
    }
    coordinator = next((name for name, wanted in asked.items() if wanted), None)
    path.stat()
    directory = path if path.is_dir() else path.parent
    name = partition_of(directory.resolve().name)
    own = coordinator or COORDINATORS.get(name[0] if name else "")
    if own is not None:
        yield own, path
        return
    found = sorted(
        (of, entry)
        for entry in (path.iterdir() if path.is_dir() else ())
        if entry.is_dir() and (of := partition_of(entry.name)) and of[0] in COORDINATORS
    )
    if not found:
        raise LogError(f"{path} is not of {', '.join(COORDINATORS)}; a file needs the flag of its decoder")
    for (topic, _), entry in found:
        yield COORDINATORS[topic], entry


def _print(document: dict[str, Any], args: argparse.Namespace) -> int:
    if args.json:
        json.dump(document, sys.stdout, ensure_ascii=False, indent=2)
        print()
    else:
        for line in tree_lines(document):
            print(line)
    return 1 if document.get("problems") else 0
