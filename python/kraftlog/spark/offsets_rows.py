"""Records of the coordinators' topics as rows: committed offsets, groups, transactions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from kraftlog.errors import CorruptRecordError, ProtocolError
from kraftlog.vocabulary import CONSUMER_OFFSETS_TOPIC, COORDINATORS, TRANSACTION_STATE_TOPIC, TRANSACTION_STATES
from kraftlog.wire.json import message_to_json
from kraftlog.wire.messages.embedded import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kraftlog.wire.messages.group_coordinator_records import (
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
)
from kraftlog.wire.records import decode_coordinator_key, decode_coordinator_value
from kraftlog.wire.struct import Message

__all__ = ["TABLES", "CoordinatorRecord", "Table", "rows_of"]

Row: TypeAlias = dict[str, Any]

_PLACE = {"logPartition": "int", "logOffset": "bigint", "logTimestamp": "timestamp"}
_TOPIC_PARTITIONS = "array<struct<topic:string,partitions:array<int>>>"
_MEMBERS = (
    "array<struct<memberId:string,groupInstanceId:string,clientId:string,clientHost:string,rebalanceTimeoutMs:int,"
    f"sessionTimeoutMs:int,subscribedTopics:array<string>,assignment:{_TOPIC_PARTITIONS}>>"
)


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """A record with its place.

    Args:
        topic: One of ``COORDINATORS``.
        partition: Of that topic.
        offset: Its offset.
        timestamp_us: Microseconds; Kafka's milliseconds in Spark's unit.
        key: Its key.
        value: None for a tombstone.
        transaction: None outside of transactions, else ``committed``, ``aborted`` or ``open``.
    """

    topic: str
    partition: int
    offset: int
    timestamp_us: int
    key: bytes | None
    value: bytes | None
    transaction: Literal["committed", "aborted", "open"] | None = None

    @property
    def place(self) -> str:
        """For errors."""
        return f"{self.topic}-{self.partition} offset {self.offset}"


@dataclass(frozen=True, slots=True)
class _Decoded:
    record: CoordinatorRecord
    kind: int
    key: Message
    value: Message | None
    version: int | None

    @property
    def name(self) -> str:
        return type(self.key).__name__.removesuffix("Key")

    @property
    def place(self) -> Row:
        record = self.record
        return {"logPartition": record.partition, "logOffset": record.offset, "logTimestamp": record.timestamp_us}

    def value_json(self) -> str | None:
        if self.value is None or self.version is None:
            return None
        return _json(message_to_json(self.value, self.version))


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one kind of records.

    Args:
        topics: Whose records they are.
        types: Columns with Spark's words for their types.
        row: The row of a record; None for one that is not of the table.
        identity: What a later record replaces; tombstones remove it.
    """

    topics: tuple[str, ...]
    types: dict[str, str]
    row: Callable[[_Decoded], Row | None]
    identity: Callable[[_Decoded], tuple[Any, ...]]


def rows_of(
    table: Table,
    records: Iterable[CoordinatorRecord],
    *,
    latest: bool,
    on_bad: Callable[[CoordinatorRecord, str], None] | None = None,
) -> Iterator[Row]:
    """A row for each record of a partition, in order; or what the records come to.

    Args:
        table: Which.
        records: Of one partition, by offset.
        latest: Only the last record of each key, and none where that is a tombstone. Records of aborted and of open
            transactions count for nothing then, as when a broker loads the partition.
        on_bad: Told of records that do not decode, which are left out then.

    Raises:
        CorruptRecordError: A key or value does not decode; names partition and offset.
    """
    last: dict[tuple[Any, ...], Row | None] = {}
    for record in records:
        if latest and record.transaction in {"aborted", "open"}:
            continue
        try:
            decoded = _decode(record)
        except CorruptRecordError as error:
            if on_bad is None:
                raise
            on_bad(record, str(error))
            continue
        row = None if decoded is None else table.row(decoded)
        if decoded is None or row is None:
            continue
        if not latest:
            yield row
            continue
        # The last record of a key counts, in the order of the log.
        identity = table.identity(decoded)
        last.pop(identity, None)
        if decoded.value is not None:
            last[identity] = row
    yield from (row for row in last.values() if row is not None)


def _decode(record: CoordinatorRecord) -> _Decoded | None:
    """None for a record type that Kafka 4.3.1 does not know, which it skips too."""
    if record.key is None:
        message = f"{record.place}: a record of a coordinator without a key"
        raise CorruptRecordError(message)
    coordinator = COORDINATORS[record.topic]
    try:
        kind, key = decode_coordinator_key(coordinator, record.key)
        if key is None:
            return None
        if record.value is None:
            return _Decoded(record, kind, key, None, None)
        version, value = decode_coordinator_value(coordinator, kind, record.value)
    except ProtocolError as error:
        message = f"{record.place}: {error}"
        raise CorruptRecordError(message) from error
    return _Decoded(record, kind, key, value, version)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _micros(milliseconds: int | None) -> int | None:
    """Microseconds; None for Kafka's -1, which says that there is none."""
    return None if milliseconds is None or milliseconds < 0 else min(milliseconds, 2**63 // 1000 - 1) * 1000


def _offset_row(decoded: _Decoded) -> Row | None:
    key, value = decoded.key, decoded.value
    if not isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
        return None
    leader_epoch = getattr(value, "leader_epoch", -1)
    topic_id = getattr(value, "topic_id", None)
    return {
        "group": key.group,
        "topic": key.topic,
        "partition": key.partition,
        "committedOffset": getattr(value, "offset", None),
        "leaderEpoch": None if leader_epoch < 0 else leader_epoch,
        "metadata": getattr(value, "metadata", None),
        "commitTimestamp": _micros(getattr(value, "commit_timestamp", None)),
        "expireTimestamp": _micros(getattr(value, "expire_timestamp", None)),
        "topicId": None if topic_id is None or not any(topic_id) else str(topic_id),
        "tombstone": value is None,
        "transaction": decoded.record.transaction,
        **decoded.place,
    }


def _group_row(decoded: _Decoded) -> Row | None:
    key, value = decoded.key, decoded.value
    if isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
        return None
    name = decoded.name
    classic = value if isinstance(value, GroupMetadataValue) else None
    kind = next(
        (kind for kind in ("Consumer", "Share", "Streams") if name.startswith(f"{kind}Group")), "Classic"
    ).lower()
    return {
        "group": getattr(key, "group", None) if name == "GroupMetadata" else getattr(key, "group_id", None),
        "groupType": kind,
        "recordType": name,
        "memberId": getattr(key, "member_id", None),
        "protocolType": None if classic is None else classic.protocol_type,
        "protocol": None if classic is None else classic.protocol,
        "generation": None if classic is None else classic.generation,
        "leader": None if classic is None else classic.leader,
        "currentStateTimestamp": None if classic is None else _micros(classic.current_state_timestamp),
        "members": None if classic is None else _members(classic),
        "epoch": getattr(value, "epoch", getattr(value, "member_epoch", getattr(value, "assignment_epoch", None))),
        "key": _json(message_to_json(key, 0)),
        "value": decoded.value_json(),
        "tombstone": value is None,
        **decoded.place,
    }


def _members(group: GroupMetadataValue) -> list[Row]:
    members = []
    for member in group.members:
        subscription = assignment = None
        if group.protocol_type == "consumer":
            subscription = _embedded(ConsumerProtocolSubscription, member.subscription)
            assignment = _embedded(ConsumerProtocolAssignment, member.assignment)
        members.append(
            {
                "memberId": member.member_id,
                "groupInstanceId": member.group_instance_id,
                "clientId": member.client_id,
                "clientHost": member.client_host,
                "rebalanceTimeoutMs": member.rebalance_timeout,
                "sessionTimeoutMs": member.session_timeout,
                "subscribedTopics": None if subscription is None else list(subscription.topics),
                "assignment": None
                if assignment is None
                else [
                    {"topic": assigned_partition.topic, "partitions": list(assigned_partition.partitions)}
                    for assigned_partition in assignment.assigned_partitions
                ],
            }
        )
    return members


def _embedded(cls: Any, data: bytes) -> Any:
    """What a consumer put into a member's bytes; None where it does not decode, as they are the client's own affair."""
    try:
        version = min(int.from_bytes(data[:2], "big", signed=True), cls.VERSIONS[1])
        return cls.decode(data[2:], version)
    except ProtocolError:
        return None


def _transaction_row(decoded: _Decoded) -> Row:
    value: Any = decoded.value
    status = -1 if value is None else value.transaction_status
    known = 0 <= status < len(TRANSACTION_STATES)
    partitions = None
    if value is not None and value.transaction_partitions is not None:
        partitions = [
            {"topic": transaction_partition.topic, "partitions": list(transaction_partition.partition_ids)}
            for transaction_partition in value.transaction_partitions
        ]
    row: Row = {
        "transactionalId": getattr(decoded.key, "transactional_id", None),
        "producerId": None,
        "producerEpoch": None,
        "previousProducerId": None,
        "nextProducerId": None,
        "nextProducerEpoch": None,
        "transactionTimeoutMs": None,
        "state": None if value is None else TRANSACTION_STATES[status] if known else f"Unknown({status})",
        "partitions": partitions,
        "lastUpdateTimestamp": None,
        "startTimestamp": None,
        "clientTransactionVersion": None,
        "tombstone": value is None,
        **decoded.place,
    }
    if value is not None:
        row |= {
            "producerId": value.producer_id,
            "producerEpoch": value.producer_epoch,
            "previousProducerId": _or_none(value.previous_producer_id),
            "nextProducerId": _or_none(value.next_producer_id),
            "nextProducerEpoch": _or_none(value.next_producer_epoch),
            "transactionTimeoutMs": value.transaction_timeout_ms,
            "lastUpdateTimestamp": _micros(value.transaction_last_update_timestamp_ms),
            "startTimestamp": _micros(value.transaction_start_timestamp_ms),
            "clientTransactionVersion": value.client_transaction_version,
        }
    return row


def _or_none(number: int) -> int | None:
    return None if number < 0 else number


def _record_row(decoded: _Decoded) -> Row:
    return {
        "logTopic": decoded.record.topic,
        "recordType": decoded.name,
        "type": decoded.kind,
        "version": decoded.version,
        "key": _json(message_to_json(decoded.key, 0)),
        "value": decoded.value_json(),
        "tombstone": decoded.value is None,
        "transaction": decoded.record.transaction,
        **decoded.place,
    }


def _by_key(decoded: _Decoded) -> tuple[Any, ...]:
    return (decoded.kind, decoded.record.key)


def _by_partition(decoded: _Decoded) -> tuple[Any, ...]:
    # Keys of version 0 and 1 name the same thing.
    key: Any = decoded.key
    return (key.group, key.topic, key.partition)


TABLES: dict[str, Table] = {
    "offsets": Table(
        topics=(CONSUMER_OFFSETS_TOPIC,),
        types={
            "group": "string",
            "topic": "string",
            "partition": "int",
            "committedOffset": "bigint",
            "leaderEpoch": "int",
            "metadata": "string",
            "commitTimestamp": "timestamp",
            "expireTimestamp": "timestamp",
            "topicId": "string",
            "tombstone": "boolean",
            "transaction": "string",
            **_PLACE,
        },
        row=_offset_row,
        identity=_by_partition,
    ),
    "groups": Table(
        topics=(CONSUMER_OFFSETS_TOPIC,),
        types={
            "group": "string",
            "groupType": "string",
            "recordType": "string",
            "memberId": "string",
            "protocolType": "string",
            "protocol": "string",
            "generation": "int",
            "leader": "string",
            "currentStateTimestamp": "timestamp",
            "members": _MEMBERS,
            "epoch": "int",
            "key": "string",
            "value": "string",
            "tombstone": "boolean",
            **_PLACE,
        },
        row=_group_row,
        identity=_by_key,
    ),
    "transactions": Table(
        topics=(TRANSACTION_STATE_TOPIC,),
        types={
            "transactionalId": "string",
            "producerId": "bigint",
            "producerEpoch": "smallint",
            "previousProducerId": "bigint",
            "nextProducerId": "bigint",
            "nextProducerEpoch": "smallint",
            "transactionTimeoutMs": "int",
            "state": "string",
            "partitions": _TOPIC_PARTITIONS,
            "lastUpdateTimestamp": "timestamp",
            "startTimestamp": "timestamp",
            "clientTransactionVersion": "smallint",
            "tombstone": "boolean",
            **_PLACE,
        },
        row=_transaction_row,
        identity=_by_key,
    ),
    "records": Table(
        topics=tuple(COORDINATORS),
        types={
            "logTopic": "string",
            "recordType": "string",
            "type": "smallint",
            "version": "smallint",
            "key": "string",
            "value": "string",
            "tombstone": "boolean",
            "transaction": "string",
            **_PLACE,
        },
        row=_record_row,
        identity=_by_key,
    ),
}
