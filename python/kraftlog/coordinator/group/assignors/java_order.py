"""The order in which Java's hash collections give their elements.

Kafka's uniform assignor visits members, topics and kept partitions in the order of ``java.util.HashMap`` and
``HashSet``; the same order is what makes the same result. Elements of one bucket come in the order of insertion, and a
table keeps that order when it grows, so that the order depends on the final capacity alone. The tree form of a bucket
with eight or more elements is not modelled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeVar

from kraftlog.partitioner import java_string_hash
from kraftlog.types import Uuid

__all__ = ["copied_capacity", "grown_capacity", "int_order", "string_order", "uuid_hash", "uuid_order", "uuid_sort_key"]

T = TypeVar("T")
_MASK = 0xFFFFFFFF
_DEFAULT_CAPACITY = 16


def grown_capacity(size: int) -> int:
    """Capacity of a table made empty and filled one by one."""
    capacity = _DEFAULT_CAPACITY
    while size > capacity * 3 // 4:
        capacity *= 2
    return capacity


def copied_capacity(size: int) -> int:
    """Capacity of ``new HashSet<>(collection)``."""
    wanted = max(int(size / 0.75) + 1, _DEFAULT_CAPACITY)
    return 1 << (wanted - 1).bit_length()


def _bucket(hash_code: int, capacity: int) -> int:
    unsigned = hash_code & _MASK
    return (unsigned ^ unsigned >> 16) & (capacity - 1)


def uuid_hash(value: Uuid) -> int:
    """``org.apache.kafka.common.Uuid.hashCode``, unsigned."""
    mixed = int.from_bytes(value[:8], "big") ^ int.from_bytes(value[8:], "big")
    return (mixed >> 32 ^ mixed) & _MASK


def uuid_sort_key(value: Uuid) -> tuple[int, int]:
    """Sorts ids as ``Uuid.compareTo`` does: by two signed numbers."""
    return int.from_bytes(value[:8], "big", signed=True), int.from_bytes(value[8:], "big", signed=True)


def uuid_order(values: Collection[Uuid], capacity: int) -> list[Uuid]:
    """Ids in the order of a table of ``capacity``."""
    return sorted(values, key=lambda value: _bucket(uuid_hash(value), capacity))


def string_order(values: Iterable[str]) -> list[str]:
    """Strings in the order of a ``HashMap`` that was filled one by one."""
    strings = list(values)
    capacity = grown_capacity(len(strings))
    return sorted(strings, key=lambda value: _bucket(java_string_hash(value), capacity))


def int_order(values: Collection[int]) -> list[int]:
    """Partitions in the order of ``new HashSet<>(collection)``."""
    capacity = copied_capacity(len(values))
    return sorted(values, key=lambda value: _bucket(value, capacity))
