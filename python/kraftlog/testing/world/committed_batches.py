"""Everything that was ever committed in a run: one sequence of batches per partition, the same on all replicas."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Protocol

from kraftlog.testing.log_invariants import InvariantViolationError

__all__ = ["BatchLog", "CommittedBatches"]

# base offset, length, partition leader epoch, magic, CRC-32C, attributes, last offset delta
_HEADER = struct.Struct(">qiibIhi")
_LENGTH_END = 12
_READ_BYTES = 1024 * 1024


class _Slice(Protocol):
    def read(self) -> bytes: ...


class BatchLog(Protocol):
    """A log, as far as its batches are read."""

    def read(self, offset: int, *, max_bytes: int, end_offset: int, min_one_batch: bool = True) -> _Slice:
        """Whole batches from the one that holds ``offset`` on."""
        ...


@dataclass(frozen=True, slots=True)
class _Batch:
    end_offset: int
    leader_epoch: int
    digest: bytes


def _batches(data: bytes) -> Iterator[tuple[int, _Batch]]:
    position = 0
    while position + _HEADER.size <= len(data):
        base_offset, length, leader_epoch, _, _, _, last_offset_delta = _HEADER.unpack_from(data, position)
        end = position + _LENGTH_END + length
        digest = hashlib.blake2b(data[position:end], digest_size=8).digest()
        yield base_offset, _Batch(base_offset + last_offset_delta + 1, leader_epoch, digest)
        position = end


class CommittedBatches:
    """Compares what replicas say is committed with what any replica said before (RINV-14, RINV-15, RINV-16).

    Attributes:
        batch_count: Batches compared.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, dict[int, _Batch]] = {}
        self._end_offsets: dict[Hashable, int] = {}
        self.batch_count = 0

    def check(self, key: Hashable, name: str, log: BatchLog, start_offset: int, end_offset: int) -> None:
        """Read a log's batches in ``[start_offset, end_offset)``, which one replica says are committed.

        Args:
            key: Of the partition.
            name: For messages: which replica of what.
            log: Of the replica.
            start_offset: Inclusive; of a batch.
            end_offset: Exclusive; of a batch.

        Raises:
            InvariantViolationError: Another replica had another batch there, or epochs fall, or offsets are missing.
        """
        known = self._known.setdefault(key, {})
        offset, last_epoch = start_offset, -1
        while offset < end_offset:
            data = log.read(offset, max_bytes=_READ_BYTES, end_offset=end_offset).read()
            before = offset
            for base_offset, batch in _batches(data):
                if base_offset != offset and not base_offset < offset < batch.end_offset:
                    reason = f"{name}: a batch at offset {base_offset}, expected at {offset}"
                    raise InvariantViolationError("RINV-14", reason)
                if batch.leader_epoch < last_epoch:
                    reason = f"{name}: epoch {batch.leader_epoch} at offset {base_offset} behind epoch {last_epoch}"
                    raise InvariantViolationError("RINV-16", reason)
                self._compare(known, key, name, base_offset, batch)
                offset, last_epoch = batch.end_offset, batch.leader_epoch
            if offset == before:
                reason = f"{name}: nothing to read at offset {offset}, committed up to {end_offset}"
                raise InvariantViolationError("RINV-14", reason)

    def _compare(self, known: dict[int, _Batch], key: Hashable, name: str, base_offset: int, batch: _Batch) -> None:
        self.batch_count += 1
        found = known.get(base_offset)
        if found is None:
            end_offset = self._end_offsets.get(key, 0)
            if base_offset < end_offset and known and base_offset >= min(known):
                reason = f"{name}: a batch begins at offset {base_offset}, where none began before"
                raise InvariantViolationError("RINV-14", reason)
            known[base_offset] = batch
            self._end_offsets[key] = max(end_offset, batch.end_offset)
        elif found != batch:
            what = "the same epoch" if found.leader_epoch == batch.leader_epoch else "another epoch"
            reason = (
                f"{name}: the batch at offset {base_offset} (epoch {batch.leader_epoch}) differs from the one that was"
                f" committed there before (epoch {found.leader_epoch}, {what})"
            )
            raise InvariantViolationError("RINV-15" if what == "the same epoch" else "RINV-14", reason)
