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
    "TRANSACTION_RECORDS",
    "GroupRecordCodec",
    "GroupRecordReader",
    "KeyedRecordCodec",
    "RecordCodec",
    "RecordReader",
    "Replayed",
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


class KeyedRecordCodec:
    """Records of a coordinator that needs nothing but keys and values; it reads as its own reader.

    Args:
        coordinator: ``transaction`` or ``share``.
        log_name: What warnings call the log.
        highest_version: Records whose value has a higher version are passed over with a warning; None: no value may
            have an unknown version.
    """

    def __init__(self, coordinator: str, log_name: str, *, highest_version: int | None = None) -> None:
        self._coordinator = coordinator
        self._log_name = log_name
        self._highest_version = highest_version

    @staticmethod
    def encode(records: Iterable[CoordinatorRecord]) -> list[tuple[bytes, bytes | None]]:
        """Key and value of each as they go into a batch."""
        return encode_records(records)

    def reader(self) -> RecordReader:
        """A reader for one partition; there is nothing to remember between batches."""
        return self

    def read(self, data: bytes) -> tuple[list[Replayed], int | None]:
        """Decode whole batches; a kind of key that is unknown is passed over with a warning.

        Returns:
            Records, and the offset after the last batch; None when there was none.

        Raises:
            RemoteProtocolError: A value does not decode.
        """
        replayed: list[Replayed] = []
        next_offset: int | None = None
        for batch in read_batches(data):
            next_offset = batch.last_offset + 1
            if batch.is_control:
                continue
            for offset, _, key, value, _ in batch.records():
                record = self._decode(key, value, offset)
                if record is None:
                    text = "offset %d of %s has an unknown kind or version of record"
                    logger.warning(text, offset, self._log_name)
                else:
                    replayed.append(record)
        return replayed, next_offset

    def _decode(self, key: bytes | None, value: bytes | None, offset: int) -> CoordinatorRecord | None:
        kind, decoded_key = decode_coordinator_key(self._coordinator, key) if key is not None else (-1, None)
        if decoded_key is None:
            return None
        if value is None:
            return CoordinatorRecord(decoded_key, None, offset=offset)
        highest = self._highest_version
        if highest is not None and int.from_bytes(value[:2], "big", signed=True) > highest:
            return None
        version, decoded_value = decode_coordinator_value(self._coordinator, kind, value)
        return CoordinatorRecord(decoded_key, decoded_value, version, offset=offset)


TRANSACTION_RECORDS = KeyedRecordCodec(
    "transaction", "a transaction log", highest_version=TransactionLogValue.VERSIONS[1]
)
"""The records of ``__transaction_state``."""


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
