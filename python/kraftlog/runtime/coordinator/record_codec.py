"""Records of a coordinator to and from the log of its topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Protocol

from kraftlog._kraftlog import read_batches
from kraftlog.coordinator.effects import CoordinatorRecord
from kraftlog.wire.messages.control_records import EndTxnMarker
from kraftlog.wire.messages.group_coordinator_records import LegacyOffsetCommitKey, OffsetCommitKey
from kraftlog.wire.records import (
    decode_control_record,
    decode_coordinator_key,
    decode_coordinator_value,
    encode_coordinator_key,
    encode_coordinator_value,
)

if TYPE_CHECKING:
    from kraftlog._kraftlog import Log

__all__ = [
    "GroupRecordCodec",
    "GroupRecordReader",
    "RecordCodec",
    "RecordReader",
    "decode_group_record",
    "encode_group_records",
    "read_records",
]

READ_BYTES = 1024 * 1024
COMMIT_MARKER = 1


class RecordReader(Protocol):
    """Decodes the batches of one partition in order."""

    def read(self, data: bytes) -> tuple[list[CoordinatorRecord], int | None]:
        """Decode whole batches: the records that take effect, and the offset after the last batch, if any."""
        ...


class RecordCodec(Protocol):
    """The records of one kind of coordinator as bytes."""

    def encode(self, records: Iterable[CoordinatorRecord]) -> list[tuple[bytes, bytes | None]]:
        """Key and value of each as they go into a batch."""
        ...

    def reader(self) -> RecordReader:
        """A new reader for one partition."""
        ...


class GroupRecordCodec:
    """Records of ``__consumer_offsets``."""

    @staticmethod
    def encode(records: Iterable[CoordinatorRecord]) -> list[tuple[bytes, bytes | None]]:
        """Key and value of each as they go into a batch."""
        return encode_group_records(records)

    @staticmethod
    def reader() -> RecordReader:
        """A new reader for one partition."""
        return GroupRecordReader()


def encode_group_records(records: Iterable[CoordinatorRecord]) -> list[tuple[bytes, bytes | None]]:
    """Key and value of each as they go into a batch."""
    return [
        (
            encode_coordinator_key(record.key),
            None if record.value is None else encode_coordinator_value(record.value, record.value_version),
        )
        for record in records
    ]


class GroupRecordReader:
    """Decodes batches in order; offsets committed in a transaction come out with its commit marker, or never."""

    def __init__(self) -> None:
        self._transactions: dict[int, list[CoordinatorRecord]] = {}

    def read(self, data: bytes) -> tuple[list[CoordinatorRecord], int | None]:
        """Decode whole batches.

        Returns:
            The records that take effect, and the offset after the last batch; None when there was none.
        """
        records: list[CoordinatorRecord] = []
        next_offset: int | None = None
        for batch in read_batches(data):
            next_offset = batch.last_offset + 1
            if batch.is_control:
                for _, _, key, value, _ in batch.records():
                    kind, message = decode_control_record(key or b"", value or b"")
                    if isinstance(message, EndTxnMarker):
                        pending = self._transactions.pop(batch.producer_id, [])
                        records.extend(pending if kind == COMMIT_MARKER else ())
                continue
            target = self._transactions.setdefault(batch.producer_id, []) if batch.is_transactional else records
            for _, _, key, value, _ in batch.records():
                target.extend(decode_group_record(key, value))
        return records, next_offset


def decode_group_record(key: bytes | None, value: bytes | None) -> list[CoordinatorRecord]:
    """One record in a list; nothing for a kind of key that is unknown."""
    if key is None:
        return []
    kind, decoded_key = decode_coordinator_key("group", key)
    if isinstance(decoded_key, LegacyOffsetCommitKey):
        # Key version 0, of Kafka 0.8: the same fields, and values in the versions that those of key version 1 have.
        kind = OffsetCommitKey.API_KEY
        decoded_key = OffsetCommitKey(group=decoded_key.group, topic=decoded_key.topic, partition=decoded_key.partition)
    if decoded_key is None:
        return []
    if value is None:
        return [CoordinatorRecord(decoded_key, None)]
    version, decoded_value = decode_coordinator_value("group", kind, value)
    return [CoordinatorRecord(decoded_key, decoded_value, version)]


async def read_records(
    loop: asyncio.AbstractEventLoop, log: Log, codec: RecordCodec
) -> AsyncIterator[list[CoordinatorRecord]]:
    """Everything from the log's start to its end, a stretch at a time; reading and decoding leave the loop free."""
    reader = codec.reader()
    offset, end_offset = log.log_start_offset, log.log_end_offset

    def read_stretch(start_offset: int) -> tuple[list[CoordinatorRecord], int | None]:
        return reader.read(log.read(start_offset, max_bytes=READ_BYTES, end_offset=end_offset).read())

    while offset < end_offset:
        records, next_offset = await loop.run_in_executor(None, read_stretch, offset)
        if next_offset is None or next_offset <= offset:
            return
        offset = next_offset
        yield records
