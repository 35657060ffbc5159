"""Compares the segments of two replicas of the same partitions, batch by batch, below what both know to be committed.

Replicas roll their segments at different times, and a follower may be behind: only batches below the smaller high
watermark are compared, from the later log start on. The cleaner works on each replica alone, so that compacted topics
differ without being damaged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from kraftlog.errors import LogError
from kraftlog.reading.directory import check_directory, partition_of, read_checkpoint
from kraftlog.storage.checkpoints import REPLICATION_OFFSET_CHECKPOINT
from kraftlog.types import TopicPartition

__all__ = ["Comparison", "Difference", "compare_replicas", "replica_directories"]

_PREFIX: Final = struct.Struct(">qi")  # base offset and length
_LAST_OFFSET_DELTA: Final = struct.Struct(">i")
_MAGIC_AT: Final = 16
_LAST_OFFSET_DELTA_AT: Final = 23
_OLD_HEADER_BYTES: Final = 18
_HEADER_BYTES: Final = 61
_PARTITION_METADATA: Final = "partition.metadata"


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a segment file, in bytes."""

    file: Path
    position: int

    def __str__(self) -> str:
        return f"{self.file} position {self.position}"


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where two replicas differ.

    Attributes:
        here: In the replica that is verified.
        there: In the replica that it is compared with.
        offset: Base offset of the first batch that differs; -1 if no batch was compared.
        what: What differs.
    """

    here: Place
    there: Place
    offset: int
    what: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """What became of one partition.

    Attributes:
        partition: Topic and number.
        start_offset: First offset that both replicas have (inclusive).
        end_offset: What was compared ends here (exclusive).
        size_bytes: Size of the batches that are equal.
        is_high_watermark_known: False if a replica has no high watermark in a checkpoint: the shorter log was the end.
        difference: The first difference; None if there is none.
    """

    partition: TopicPartition
    start_offset: int
    end_offset: int
    size_bytes: int
    is_high_watermark_known: bool
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class _Batch:
    place: Place
    base_offset: int
    last_offset: int
    data: bytes


def replica_directories(paths: Sequence[Path]) -> dict[TopicPartition, Path]:
    """The directories of partitions in log directories; a path may itself be one.

    Raises:
        FileNotFoundError: A path does not exist.
        LogError: Two paths have the same partition.
    """
    found: dict[TopicPartition, Path] = {}
    for path in paths:
        check_directory(path)
        own_name = partition_of(path.resolve().name)
        is_partition = own_name is not None and any(path.glob("*.log"))
        for directory in [path] if is_partition else sorted(path.iterdir()):
            name = partition_of(directory.resolve().name)
            if name is None or not directory.is_dir():
                continue
            key = TopicPartition(*name)
            if key in found:
                message = f"{found[key]} and {directory} are the same partition"
                raise LogError(message)
            found[key] = directory
    return found


def compare_replicas(partition: TopicPartition, here: Path, there: Path) -> Comparison:
    """Compare two directories of one partition.

    Raises:
        LogError: A checkpoint cannot be read.
        OSError: A file cannot be read.
    """
    # The checkpoints come first: a log that grows meanwhile only becomes longer than they say.
    known = [_high_watermark(partition, directory) for directory in (here, there)]
    high_watermarks = [offset for offset in known if offset is not None]
    is_known = len(high_watermarks) == len(known)
    segments = [_segments(directory) for directory in (here, there)]
    starts = [int(found[0].stem) if found else 0 for found in segments]
    walk = _Walk(max(starts), min(high_watermarks) if is_known else None)
    topic_ids = [_topic_id(directory) for directory in (here, there)]
    if None not in topic_ids and topic_ids[0] != topic_ids[1]:
        places = [Place(directory / _PARTITION_METADATA, 0) for directory in (here, there)]
        difference: Difference | None = Difference(places[0], places[1], -1, "the topic ids differ")
    else:
        difference = walk.run(_Batches(here, segments[0]), _Batches(there, segments[1]))
    return Comparison(partition, walk.start, walk.end, walk.size_bytes, is_known, difference)


def _high_watermark(partition: TopicPartition, directory: Path) -> int | None:
    return read_checkpoint(directory.resolve().parent / REPLICATION_OFFSET_CHECKPOINT).get(partition)


def _segments(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("*.log") if path.stem.isdigit())


def _topic_id(directory: Path) -> bytes | None:
    try:
        return (directory / _PARTITION_METADATA).read_bytes()
    except FileNotFoundError:
        return None


class _Batches:
    """The batches of one replica in order, and where the last one ends."""

    def __init__(self, directory: Path, segments: Sequence[Path]) -> None:
        self._segments = segments
        self.end = Place(directory, 0)
        self.damage: str | None = None

    def __iter__(self) -> Iterator[_Batch]:
        for path in self._segments:
            self.end = Place(path, 0)
            with path.open("rb") as file:
                yield from self._batches_of(path, file)
            if self.damage is not None:
                return

    def _batches_of(self, path: Path, file: BinaryIO) -> Iterator[_Batch]:
        # Read, not mapped: the node that owns the file may truncate it meanwhile.
        size_bytes = path.stat().st_size
        while self.end.position < size_bytes:
            batch = _next_batch(self.end, file, size_bytes)
            if batch is None:
                self.damage = "no whole batch"
                return
            yield batch
            self.end = Place(path, self.end.position + len(batch.data))


def _next_batch(place: Place, file: BinaryIO, file_bytes: int) -> _Batch | None:
    """The batch at a place, where the file stands; None if none lies there whole."""
    header = file.read(_OLD_HEADER_BYTES)
    if len(header) < _OLD_HEADER_BYTES:
        return None
    base_offset, length = _PREFIX.unpack_from(header)
    magic = header[_MAGIC_AT]
    size_bytes = _PREFIX.size + length
    least = _HEADER_BYTES if magic >= 2 else _OLD_HEADER_BYTES
    if not least <= size_bytes <= file_bytes - place.position:
        return None
    data = header + file.read(size_bytes - len(header))
    if len(data) < size_bytes:
        return None
    delta = _LAST_OFFSET_DELTA.unpack_from(data, _LAST_OFFSET_DELTA_AT)[0] if magic >= 2 else 0
    return _Batch(place, base_offset, base_offset + delta, data)


class _Walk:
    """Two replicas side by side.

    Attributes:
        start: First offset that both have (inclusive).
        end: Offset behind the last batch that is equal on both.
        size_bytes: Size of the batches that are equal.
    """

    def __init__(self, start: int, limit: int | None) -> None:
        self._limit = limit
        self.start = start
        self.end = start
        self.size_bytes = 0

    def run(self, here: _Batches, there: _Batches) -> Difference | None:
        """Compare until something differs, a log ends, or the limit is reached."""
        left, right = self._from_start(here), self._from_start(there)
        for first in left:
            second = next(right, None)
            if second is None:
                return self._ended(there, first, first.place, there.end)
            if first.data != second.data:
                return _difference(first, second)
            self.end = first.last_offset + 1
            self.size_bytes += len(first.data)
        second = next(right, None)
        if second is not None:
            return self._ended(here, second, here.end, second.place)
        damage = here.damage or there.damage
        return None if damage is None else Difference(here.end, there.end, self.end, damage)

    def _from_start(self, batches: _Batches) -> Iterator[_Batch]:
        for batch in batches:
            if self._limit is not None and batch.last_offset >= self._limit:
                return
            if batch.last_offset >= self.start:
                yield batch

    def _ended(self, ended: _Batches, other: _Batch, here: Place, there: Place) -> Difference | None:
        """One replica has a batch that the other has not: a difference if it is committed, or the end is damaged."""
        if self._limit is None and ended.damage is None:
            return None
        what = "one replica ends here, below the high watermark of both"
        return Difference(here, there, other.base_offset, what if ended.damage is None else f"{what}: {ended.damage}")


def _difference(first: _Batch, second: _Batch) -> Difference:
    common = min(len(first.data), len(second.data))
    at = next((index for index in range(common) if first.data[index] != second.data[index]), common)
    here = Place(first.place.file, first.place.position + at)
    there = Place(second.place.file, second.place.position + at)
    return Difference(here, there, first.base_offset, "the bytes differ")
