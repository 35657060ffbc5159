"""Which files a dump reads: files by name, and those of partition and log directories; and which records of them."""

from __future__ import annotations

import argparse
import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kraftlog._kraftlog import list_segments
from kraftlog.reading import partition_directories
from kraftlog.reading.directory import entries_text

__all__ = ["Selection", "Source", "find_sources", "milliseconds", "selection_of"]

_INDEX_SUFFIXES = (".index", ".timeindex")


@dataclass(frozen=True, slots=True)
class Source:
    """One file to dump.

    Args:
        path: The file, as it was named.
        topic: Of its directory; None for a file that was named itself.
        partition: Likewise.
    """

    path: Path
    topic: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records are meant. Timestamps are milliseconds; starts are inclusive, ends exclusive, None is no bound."""

    start_offset: int | None = None
    end_offset: int | None = None
    from_timestamp: int | None = None
    to_timestamp: int | None = None

    @property
    def is_whole(self) -> bool:
        """True when nothing is left out."""
        return self == Selection()


def selection_of(args: argparse.Namespace) -> Selection:
    """What the arguments leave in."""
    return Selection(args.start_offset, args.end_offset, args.from_time, args.to_time)


def milliseconds(text: str) -> int:
    """A time as milliseconds since the epoch: a whole number is that already, else ISO 8601, in UTC unless it says.

    Raises:
        ArgumentTypeError: Neither.
    """
    try:
        return int(text)
    except ValueError:
        pass
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is neither milliseconds nor an ISO 8601 time: {error}") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=dt.UTC)
    return (time - dt.datetime.fromtimestamp(0, dt.UTC)) // dt.timedelta(milliseconds=1)


def find_sources(
    names: Iterable[str],
    *,
    topics: Sequence[str] | None = None,
    partitions: Sequence[int] | None = None,
    indexes: bool = False,
) -> list[Source]:
    """The files that are named, and for each directory its segments by topic, partition and offset.

    Args:
        names: Files, directories of partitions, or log directories, whose internal topics are left out unless asked
            for by name.
        topics: Of directories, only these topics.
        partitions: Of directories, only these partitions.
        indexes: Of directories, the index files instead of the segments.

    Raises:
        FileNotFoundError: A directory has no such file, or no partition of one of the topics.
    """
    return [source for name in names for source in _sources(name, topics, partitions, indexes=indexes)]


def _sources(
    name: str, topics: Sequence[str] | None, partitions: Sequence[int] | None, *, indexes: bool
) -> Iterator[Source]:
    if not Path(name).is_dir():
        yield Source(Path(name))
        return
    is_found = False
    for log in partition_directories(name, topics=topics):
        if partitions is not None and log.partition not in partitions:
            continue
        for _, path, _ in list_segments(log.path):
            if not indexes:
                is_found = True
                yield Source(path, log.topic, log.partition)
                continue
            for suffix in _INDEX_SUFFIXES:
                if path.with_suffix(suffix).exists():
                    is_found = True
                    yield Source(path.with_suffix(suffix), log.topic, log.partition)
    if not is_found:
        wanted = "index files" if indexes else "log files"
        message = f"no {wanted} in {name}: {entries_text(Path(name))}"
        if topics is None and partitions is None:
            message += "; partitions of internal topics are dumped if --topics names them"
        raise FileNotFoundError(message)
