"""Records of compacted partitions: an offset has one record, and the newest of each key stays (RINV-01, RINV-14)."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Hashable
from typing import Final

from kraftlog._kraftlog import read_batches
from kraftlog.testing.log_invariants import InvariantViolationError

__all__ = ["CompactedRecords"]

# Version and type of a marker's key.
_MARKER: Final = struct.Struct(">hh")
_COMMIT: Final = 1
_NO_DIGEST: Final = b""


class _Partition:
    """What was committed of one partition.

    Attributes:
        end_offset: Exclusive.
        digests: Of key and value, by offset.
        newest: Offset and digest of each key's last record that counts; the digest of a tombstone is empty.
        open: Records of transactions without a marker, by producer id.
    """

    __slots__ = ("digests", "end_offset", "newest", "open")

    def __init__(self) -> None:
        self.end_offset = -1
        self.digests: dict[int, bytes] = {}
        self.newest: dict[bytes, tuple[int, bytes]] = {}
        self.open: dict[int, list[tuple[bytes, int, bytes]]] = {}


class CompactedRecords:
    """Keeps every committed record of compacted partitions, and knows which of them a cleaner may drop.

    Attributes:
        record_count: Records compared.
    """

    def __init__(self) -> None:
        self._partitions: dict[Hashable, _Partition] = {}
        self.record_count = 0

    def forget(self, key: Hashable) -> None:
        """Another history of a partition begins."""
        self._partitions.pop(key, None)

    def check(self, key: Hashable, name: str, data: bytes) -> int | None:
        """Compare committed batches of one replica, cleaned or not, with what was committed before.

        Args:
            key: Of the partition.
            name: For messages: which replica of what.
            data: Whole batches.

        Returns:
            The end offset of the last batch, None if there is none.

        Raises:
            InvariantViolationError: An offset has another record, or one where none was.
        """
        found = self._partitions.setdefault(key, _Partition())
        end_offset = None
        for batch in read_batches(data):
            end_offset = batch.last_offset + 1
            is_new = batch.base_offset >= found.end_offset
            for offset, _, record_key, value, _ in batch.records():
                self.record_count += 1
                digest = _digest(record_key, value)
                if not is_new:
                    self._compare(found, name, offset, digest)
                    continue
                found.digests[offset] = digest
                if batch.is_control:
                    _end_transaction(found, batch.producer_id, record_key)
                elif record_key is not None:
                    record = (record_key, offset, _NO_DIGEST if value is None else digest)
                    if batch.is_transactional:
                        found.open.setdefault(batch.producer_id, []).append(record)
                    else:
                        _count(found, record)
            found.end_offset = max(found.end_offset, end_offset)
        return end_offset

    def _compare(self, found: _Partition, name: str, offset: int, digest: bytes) -> None:
        known = found.digests.get(offset)
        if known is None:
            raise InvariantViolationError("RINV-14", f"{name}: a record at offset {offset}, where none was committed")
        if known != digest:
            raise InvariantViolationError("RINV-14", f"{name}: another record at offset {offset} than was committed")

    def check_kept(self, key: Hashable, name: str, log_start_offset: int, data: bytes) -> None:
        """Compare all that a replica has of a partition: the last record of each key is the newest that was committed.

        A tombstone may be gone, with all that it deletes.

        Args:
            key: Of the partition.
            name: For messages: which replica of what.
            log_start_offset: Of the replica: what lies before was deleted.
            data: All committed batches from there on.

        Raises:
            InvariantViolationError: A record is missing.
        """
        found = self._partitions.get(key)
        if found is None:
            return
        counted = {offset for offset, _ in found.newest.values()}
        last = {
            record_key: offset
            for batch in read_batches(data)
            for offset, _, record_key, _, _ in batch.records()
            # One of a transaction that was aborted, or is open, does not count.
            if record_key is not None and not batch.is_control and (not batch.is_transactional or offset in counted)
        }
        for record_key, (offset, digest) in found.newest.items():
            has = last.get(record_key, -1)
            if has == offset or offset < log_start_offset or (has < 0 and digest == _NO_DIGEST):
                continue
            reason = (
                f"{name}: the newest record of key {record_key!r}, at offset {offset}, is gone, the last is at {has}"
            )
            raise InvariantViolationError("RINV-01", reason)


def _end_transaction(found: _Partition, producer_id: int, marker: bytes | None) -> None:
    records = found.open.pop(producer_id, [])
    if marker is not None and _MARKER.unpack_from(marker)[1] == _COMMIT:
        for record in records:
            _count(found, record)


def _count(found: _Partition, record: tuple[bytes, int, bytes]) -> None:
    key, offset, digest = record
    if offset > found.newest.get(key, (-1, _NO_DIGEST))[0]:
        found.newest[key] = (offset, digest)


def _digest(key: bytes | None, value: bytes | None) -> bytes:
    return hashlib.blake2b(repr((key, value)).encode(), digest_size=8).digest()
