"""Which partition something belongs to: Kafka's hash for keys of records and its hash for names of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog import _kraftlog

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["coordinator_partition", "java_string_hash", "key_partition", "murmur2"]

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_M = 0x5BD1E995
_POSITIVE = 0x7FFFFFFF


def murmur2(data: Buffer) -> int:
    """The 32-bit MurmurHash2 that Kafka's producers take of a key, as a signed number (``Utils.murmur2``)."""
    view = memoryview(data).cast("B")
    length = len(view)
    whole = length & ~3
    value = _SEED ^ length
    for position in range(0, whole, 4):
        k = int.from_bytes(view[position : position + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        value = (value * _M & _MASK) ^ k
    if length > whole:
        value = (value ^ int.from_bytes(view[whole:], "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    value ^= value >> 15
    return value - (1 << 32) if value > _POSITIVE else value


def key_partition(key: Buffer, partition_count: int) -> int:
    """The partition Kafka's default partitioner gives a record with this key."""
    return (murmur2(key) & _POSITIVE) % partition_count


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
