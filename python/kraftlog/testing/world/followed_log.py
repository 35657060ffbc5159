"""A log as a checker reads it: each batch once, when it appears, and compared with what other replicas wrote."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from kraftlog.testing.log_invariants import InvariantViolationError

__all__ = ["BatchLog", "FollowedLog", "LogRules", "ScannedBatch", "Written", "batches_in", "scan"]

# base offset, length, partition leader epoch, magic, CRC-32C, attributes, last offset delta
_HEADER = struct.Struct(">qiibIhi")
_LENGTH_END = 12
_IS_CONTROL = 0x20
_READ_BYTES = 1024 * 1024


class _Slice(Protocol):
    def read(self) -> bytes: ...


class BatchLog(Protocol):
    """A log, as far as its batches are read."""

    def read(self, offset: int, *, max_bytes: int, end_offset: int) -> _Slice:
        """Whole batches from the one that holds ``offset`` on."""
        ...


class ScannedBatch(NamedTuple):
    """What the header of a batch says, and a digest of all its bytes; ``end_offset`` is exclusive."""

    base_offset: int
    end_offset: int
    leader_epoch: int
    is_control: bool
    digest: bytes


Written: TypeAlias = dict[tuple[Hashable, int, int], tuple[bytes, int | None]]
"""Digest, and epoch of the batch before (None if unknown), by the log's key, base offset and epoch."""


@dataclass(frozen=True, slots=True)
class LogRules:
    """Which rules of ``docs/behaviours`` a log breaks.

    Attributes:
        order: Offsets or epochs are out of order, or the leader epochs differ from those of the batches.
        matching: Two replicas have different bytes at the same offset and epoch.
    """

    order: str
    matching: str


def batches_in(data: bytes) -> Iterator[ScannedBatch]:
    """The whole batches of a part of a log."""
    position = 0
    while position + _HEADER.size <= len(data):
        base_offset, length, epoch, _, _, attributes, last_delta = _HEADER.unpack_from(data, position)
        end = position + _LENGTH_END + length
        if end > len(data):
            return
        digest = hashlib.blake2b(data[position:end], digest_size=8).digest()
        yield ScannedBatch(base_offset, base_offset + last_delta + 1, epoch, bool(attributes & _IS_CONTROL), digest)
        position = end


def scan(log: BatchLog, start_offset: int, end_offset: int) -> Iterator[ScannedBatch]:
    """Batches in ``[start_offset, end_offset)``, the first one from the batch that holds ``start_offset``.

    It ends early if there is nothing to read.
    """
    offset = start_offset
    while offset < end_offset:
        before = offset
        for batch in batches_in(log.read(offset, max_bytes=_READ_BYTES, end_offset=end_offset).read()):
            offset = batch.end_offset
            yield batch
        if offset <= before:
            return


class FollowedLog:
    """What one process had in a log, batch by batch.

    Args:
        name: For messages: which replica of what.
        key: The same for all replicas of the log.
        log: It is read from.
        rules: That may be broken.
        written: What any replica of any log wrote; shared.

    Attributes:
        start_offset, end_offset: Of what was read; the end is exclusive.
    """

    def __init__(self, name: str, key: Hashable, log: BatchLog, rules: LogRules, written: Written) -> None:
        self._name = name
        self._key = key
        self._log = log
        self._rules = rules
        self._written = written
        self._epochs: list[tuple[int, int]] = []
        self._is_first = True
        self.start_offset = self.end_offset = 0

    @property
    def last_epoch(self) -> int:
        """Of the last batch; -1 if there is none."""
        return self._epochs[-1][0] if self._epochs else -1

    def begin(self, start_offset: int) -> None:
        """Read anew from an offset on."""
        self._epochs.clear()
        self._is_first = True
        self.start_offset = self.end_offset = start_offset

    def cut(self, end_offset: int) -> None:
        """Forget what lies at or behind an offset: it was cut off, or may have been, and is read again."""
        if end_offset >= self.end_offset:
            return
        if end_offset <= self.start_offset:
            self.begin(self.start_offset)
            return
        self.end_offset = end_offset
        while self._epochs and self._epochs[-1][1] >= end_offset:
            self._epochs.pop()

    def follow(self, log_start_offset: int, log_end_offset: int) -> Iterator[ScannedBatch]:
        """Read what is new in a log that begins and ends at these offsets now.

        If reading fails, what was yielded before counts as read.

        Raises:
            InvariantViolationError: Offsets are missing, epochs fall, or another replica has other bytes there.
        """
        # Nothing of what was read is left. Before its log start a replica may have had other records than its leader.
        is_begun_anew = log_start_offset >= log_end_offset or log_start_offset >= self.end_offset
        if is_begun_anew or (self._is_first and log_start_offset != self.start_offset):
            self.begin(log_start_offset)
        self.cut(log_end_offset)
        if self.end_offset >= log_end_offset:
            return
        offset = self.end_offset
        for batch in scan(self._log, offset, log_end_offset):
            self._note(batch, offset)
            self.end_offset = offset = batch.end_offset
            yield batch
        if offset != log_end_offset:
            self._fail(self._rules.order, f"the batches end at offset {offset}, the log at {log_end_offset}")

    def _note(self, batch: ScannedBatch, offset: int) -> None:
        # The log may start within its first batch (DeleteRecords).
        if batch.base_offset != offset and not (self._is_first and batch.base_offset < offset < batch.end_offset):
            self._fail(self._rules.order, f"a batch at offset {batch.base_offset}, expected at {offset}")
        before = self._epochs[-1][0] if self._epochs else None
        if before is not None and batch.leader_epoch < before:
            reason = f"epoch {batch.leader_epoch} at offset {batch.base_offset} behind epoch {before}"
            self._fail(self._rules.order, reason)
        if before != batch.leader_epoch:
            self._epochs.append((batch.leader_epoch, offset))
        self._is_first = False
        place = (self._key, batch.base_offset, batch.leader_epoch)
        known = self._written.get(place)
        if known is None:
            self._written[place] = (batch.digest, before)
            return
        digest, before_there = known
        where = f"the batch at offset {batch.base_offset} in epoch {batch.leader_epoch}"
        if digest != batch.digest:
            self._fail(self._rules.matching, f"{where} differs from that of another replica")
        if before is None or before_there is None:
            self._written[place] = (digest, before if before_there is None else before_there)
        elif before != before_there:
            reason = f"{where} is behind epoch {before}, on another replica behind epoch {before_there}"
            self._fail(self._rules.matching, reason)

    def check_epochs(self, entries: Sequence[tuple[int, int]], log_start_offset: int) -> None:
        """Compare the log's leader epochs with those of its batches.

        Args:
            entries: Epochs with their first offsets. One that begins at the end of the log has no batch yet.
            log_start_offset: Of the log.

        Raises:
            InvariantViolationError: They differ.
        """
        found = _from(log_start_offset, [entry for entry in entries if entry[1] < self.end_offset])
        scanned = _from(log_start_offset, self._epochs)
        if found != scanned:
            self._fail(self._rules.order, f"the leader epochs are {found}, those of the batches {scanned}")

    def _fail(self, identifier: str, reason: str) -> None:
        raise InvariantViolationError(identifier, f"{self._name}: {reason}")


def _from(start_offset: int, entries: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The entries that count from an offset on, the first one as if it began there."""
    kept = [(epoch, max(first, start_offset)) for epoch, first in entries]
    while len(kept) > 1 and kept[1][1] <= start_offset:
        del kept[0]
    return kept
