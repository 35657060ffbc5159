"""What a dump found wrong with files, told at its end on stderr in the order and the words of Kafka's tool."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from kraftlog.partitioner import java_string_hash

__all__ = ["Report"]

_V = TypeVar("_V", bound="dict[int, int] | list[tuple[int, int]]")
_BUCKETS_FIRST = 16
# A small map grows when a bucket gets one more than this; a large one makes a tree of the bucket.
_CROWDED = 7
_BUCKETS_LAST = 64


class _ByPath(Generic[_V]):
    """Findings by absolute path, which come out in the order of a java.util.HashMap used by computeIfAbsent."""

    def __init__(self, make: Callable[[], _V]) -> None:
        self._make = make
        self._values: dict[str, _V] = {}
        self._buckets: list[list[str]] = [[] for _ in range(_BUCKETS_FIRST)]

    def of(self, path: Path) -> _V:
        """The findings of a file, to add to."""
        name = str(path.absolute())
        if len(self._values) > len(self._buckets) * 3 // 4:
            self._grow()
        if name not in self._values:
            self._values[name] = self._make()
            bucket = self._bucket(name)
            bucket.insert(0, name)
            if len(bucket) > _CROWDED and len(self._buckets) < _BUCKETS_LAST:
                self._grow()
        return self._values[name]

    def items(self) -> Iterator[tuple[str, _V]]:
        """Every path that was asked for, with its findings."""
        return ((name, self._values[name]) for bucket in self._buckets for name in bucket)

    def _grow(self) -> None:
        names = [name for bucket in self._buckets for name in bucket]
        self._buckets = [[] for _ in range(2 * len(self._buckets))]
        for name in names:
            self._bucket(name).append(name)

    def _bucket(self, name: str) -> list[str]:
        value = java_string_hash(name) & 0xFFFFFFFF
        return self._buckets[(value ^ value >> 16) & (len(self._buckets) - 1)]


class Report:
    """Findings by file.

    ``index_mismatches``: offset in an index, and last offset of the batch where it points to; the last one wins.
    ``time_mismatches``: timestamp in a time index, and the largest one of the batch.
    ``time_disorder``: timestamp in a time index, and the one before it, which is not less.
    ``offsets_not_found``: offset in a time index, and last offset of the batch that was found instead, or -1.
    ``gaps``: offset of a record, and of the one after it; the last one wins.
    """

    def __init__(self) -> None:
        self.index_mismatches: _ByPath[dict[int, int]] = _ByPath(dict)
        self.time_mismatches: _ByPath[list[tuple[int, int]]] = _ByPath(list)
        self.time_disorder: _ByPath[list[tuple[int, int]]] = _ByPath(list)
        self.offsets_not_found: _ByPath[list[tuple[int, int]]] = _ByPath(list)
        self.gaps: _ByPath[dict[int, int]] = _ByPath(dict)

    def add_gaps(self, path: Path, gaps: Iterable[tuple[int, int]]) -> None:
        """Pairs of offsets of a log file that are not consecutive."""
        for before, after in gaps:
            self.gaps.of(path)[before] = after

    def print(self) -> None:
        """Tell all of it."""
        for name, mismatches in self.index_mismatches.items():
            _say(f"Mismatches in :{name}")
            for index_offset in sorted(mismatches, reverse=True):
                _say(f"  Index offset: {index_offset}, log offset: {mismatches[index_offset]}")
        for name, pairs in self.time_mismatches.items():
            _say(f"Found timestamp mismatch in :{name}")
            for index_timestamp, log_timestamp in pairs:
                _say(f"  Index timestamp: {index_timestamp}, log timestamp: {log_timestamp}")
        for name, pairs in self.time_disorder.items():
            _say(f"Found out of order timestamp in :{name}")
            for index_timestamp, before in pairs:
                _say(f"  Index timestamp: {index_timestamp}, Previously indexed timestamp: {before}")
        for name, pairs in self.offsets_not_found.items():
            _say(f"The following indexed offsets are not found in :{name}")
            for indexed, found in pairs:
                _say(f"Indexed offset: {indexed}, found log offset: {found}")
        for name, gaps in self.gaps.items():
            _say(f"Non-consecutive offsets in {name}")
            for before in sorted(gaps):
                _say(f"  {before} is followed by {gaps[before]}")


def _say(line: str) -> None:
    print(line, file=sys.stderr)
