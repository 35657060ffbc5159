"""Which partition something belongs to: Kafka's hash for keys of records and its hash for names of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog import _kraftlog

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["coordinator_partition", "java_string_hash", "key_partition"]

_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def key_partition(key: Buffer, partition_count: int) -> int:
    """The partition Kafka's default partitioner gives a record with this key."""
    return (_kraftlog.murmur2(key) & _POSITIVE) % partition_count


def java_string_hash(text: str) -> int:
    """``String.hashCode``: over UTF-16 units, as a signed number."""
    try:
        return _kraftlog.java_string_hash(text)
    except UnicodeEncodeError:  # a surrogate without its other half
        pass
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    value = 0
    for unit in units:
        value = (value * 31 + unit) & _MASK
    return value - (1 << 32) if value > _POSITIVE else value


def coordinator_partition(name: str, partition_count: int) -> int:
    """The partition of the coordinator's topic that keeps a group or transactional id (``Utils.abs`` of its hash)."""
    value = java_string_hash(name)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count
