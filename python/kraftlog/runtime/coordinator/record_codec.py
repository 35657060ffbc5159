"""Records of a coordinator to and from the log of its topic."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Protocol

from kraftlog._kraftlog import read_batches
from kraftlog.coordinator.effects import CoordinatorRecord, TransactionEnd
from kraftlog.wire.messages.control_records import EndTxnMarker
from kraftlog.wire.messages.group_coordinator_records import LegacyOffsetCommitKey, OffsetCommitKey
from kraftlog.wire.messages.transaction_coordinator_records import TransactionLogValue
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
    "Replayed",
    "TransactionRecordCodec",
    "TransactionRecordReader",
    "decode_group_record",
    "encode_records",
    "read_records",
]

logger = logging.getLogger(__name__)

READ_BYTES = 1024 * 1024
COMMIT_MARKER = 1

Replayed = CoordinatorRecord | TransactionEnd
"""What a shard replays."""


class RecordReader(Protocol):
    """Decodes the batches of one partition in order."""

    def read(self, data: bytes) -> tuple[list[Replayed], int | None]:
        """Decode whole batches: what is to be replayed, and the offset after the last batch, if any."""
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
        return encode_records(records)

    @staticmethod
    def reader() -> RecordReader:
        """A new reader for one partition."""
        return GroupRecordReader()


def encode_records(records: Iterable[CoordinatorRecord]) -> list[tuple[bytes, bytes | None]]:
    """Key and value of each as they go into a batch."""
    return [
        (
            encode_coordinator_key(record.key),
            None if record.value is None else encode_coordinator_value(record.value, record.value_version),
        )
        for record in records
    ]


class GroupRecordReader:
    """Decodes batches in order; those of a transaction carry its producer's id, and its marker ends it."""

    @staticmethod
    def read(data: bytes) -> tuple[list[Replayed], int | None]:
        """Decode whole batches.

        Returns:
            Records and ends of transactions, and the offset after the last batch; None when there was none.
        """
        replayed: list[Replayed] = []
        next_offset: int | None = None
        for batch in read_batches(data):
            next_offset = batch.last_offset + 1
            if batch.is_control:
                for _, _, key, value, _ in batch.records():
                    kind, message = decode_control_record(key or b"", value or b"")
                    if isinstance(message, EndTxnMarker):
                        replayed.append(TransactionEnd(batch.producer_id, kind == COMMIT_MARKER))
                continue
            producer_id = batch.producer_id if batch.is_transactional else -1
            for offset, _, key, value, _ in batch.records():
                decoded = decode_group_record(key, value, producer_id)
                if not decoded:
                    logger.warning("offset %d of the groups' log has an unknown kind of record", offset)
                replayed.extend(decoded)
        return replayed, next_offset


class TransactionRecordCodec:
    """Records of ``__transaction_state``."""

    @staticmethod
    def encode(records: Iterable[CoordinatorRecord]) -> list[tuple[bytes, bytes | None]]:
        """Key and value of each as they go into a batch."""
        return encode_records(records)

    @staticmethod
    def reader() -> RecordReader:
        """A new reader for one partition."""
        return TransactionRecordReader()


class TransactionRecordReader:
    """Decodes batches in order; a kind of key or a version that is unknown is passed over with a warning."""

    @staticmethod
    def read(data: bytes) -> tuple[list[Replayed], int | None]:
        """Decode whole batches.

        Returns:
            Records, and the offset after the last batch; None when there was none.
        """
        replayed: list[Replayed] = []
        next_offset: int | None = None
        for batch in read_batches(data):
            next_offset = batch.last_offset + 1
            if batch.is_control:
                continue
            for offset, _, key, value, _ in batch.records():
                record = _decode_transaction_record(key, value)
                if record is None:
                    logger.warning("offset %d of a transaction log has an unknown kind or version of record", offset)
                else:
                    replayed.append(record)
        return replayed, next_offset


def _decode_transaction_record(key: bytes | None, value: bytes | None) -> CoordinatorRecord | None:
    kind, decoded_key = decode_coordinator_key("transaction", key) if key is not None else (-1, None)
    if decoded_key is None:
        return None
    if value is None:
        return CoordinatorRecord(decoded_key, None)
    if int.from_bytes(value[:2], "big", signed=True) > TransactionLogValue.VERSIONS[1]:
        return None
    version, decoded_value = decode_coordinator_value("transaction", kind, value)
    return CoordinatorRecord(decoded_key, decoded_value, version)


def decode_group_record(key: bytes | None, value: bytes | None, producer_id: int = -1) -> list[CoordinatorRecord]:
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
        return [CoordinatorRecord(decoded_key, None, producer_id=producer_id)]
    version, decoded_value = decode_coordinator_value("group", kind, value)
    return [CoordinatorRecord(decoded_key, decoded_value, version, producer_id)]


async def read_records(loop: asyncio.AbstractEventLoop, log: Log, codec: RecordCodec) -> AsyncIterator[list[Replayed]]:
    """Everything from the log's start to its end, a stretch at a time; reading and decoding leave the loop free."""
    reader = codec.reader()
    offset, end_offset = log.log_start_offset, log.log_end_offset

    def read_stretch(start_offset: int) -> tuple[list[Replayed], int | None]:
        return reader.read(log.read(start_offset, max_bytes=READ_BYTES, end_offset=end_offset).read())

    while offset < end_offset:
        records, next_offset = await loop.run_in_executor(None, read_stretch, offset)
        if next_offset is None or next_offset <= offset:
            return
        offset = next_offset
        yield records
