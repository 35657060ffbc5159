"""One shard of the group coordinator: the groups whose records live in one ``__consumer_offsets`` partition.

A sans-IO state machine. Requests come in with a token; answers and records to append come out of ``take_effects``.
A committed offset becomes visible once its record is committed, in the order of appends.

Source: ``org.apache.kafka.coordinator.group.GroupCoordinatorShard``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from kraftlog.coordinator.effects import CoordinatorRecord, Effect, TransactionEnd
from kraftlog.coordinator.group.classic_group import ClassicGroup, GroupState
from kraftlog.coordinator.group.config import ClientInfo, GroupConfig
from kraftlog.coordinator.group.consumer_group import ConsumerGroup
from kraftlog.coordinator.group.consumer_groups import ConsumerGroups
from kraftlog.coordinator.group.consumer_membership import GroupSettings
from kraftlog.coordinator.group.consumer_records import CONSUMER_GROUP_KEYS
from kraftlog.coordinator.group.membership import Membership
from kraftlog.coordinator.group.topics import Topics
from kraftlog.coordinator.offsets import CommittedOffset, OffsetStore
from kraftlog.coordinator.write_log import WriteLog
from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kraftlog.wire.messages.delete_groups import DeleteGroupsResponse
from kraftlog.wire.messages.describe_groups import DescribeGroupsResponse
from kraftlog.wire.messages.group_coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kraftlog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kraftlog.wire.messages.join_group import JoinGroupRequest
from kraftlog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kraftlog.wire.messages.list_groups import ListGroupsResponse
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kraftlog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kraftlog.wire.messages.sync_group import SyncGroupRequest
from kraftlog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

__all__ = ["GroupShard"]

_DEFAULT_RETENTION = -1
_GROUP_ERROR_VERSION = 9  # of OffsetCommit (KIP-848)
_PartitionCode = Callable[[OffsetCommitRequest.OffsetCommitRequestPartition], int]
_CommitPartition = (
    OffsetCommitRequest.OffsetCommitRequestPartition | TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
)


class GroupShard:
    """Groups and offsets of one partition.

    Args:
        config: Limits and times.
        rng: Where member ids come from.
        topics: The committed topics.
        group_settings: Settings of single groups.
    """

    def __init__(
        self, config: GroupConfig, *, rng: random.Random, topics: Topics, group_settings: GroupSettings
    ) -> None:
        self._config = config
        self._writes = WriteLog()
        self._membership = Membership(config, rng, self._writes)
        self._groups = self._membership.groups
        self._consumers = ConsumerGroups(config, group_settings, topics, rng, self._writes, self._membership)
        self._offsets = OffsetStore()
        self._next_expiry_ms: int | None = None

    # -- loading ------------------------------------------------------------------------------------------------

    def replay(self, record: CoordinatorRecord | TransactionEnd, *, now_ms: int) -> None:
        """Take in one record of the partition, in offset order; other kinds of key are passed over."""
        if isinstance(record, TransactionEnd):
            for group_id in self._offsets.end(record):
                if group_id not in self._consumers.groups:
                    self._groups.setdefault(group_id, ClassicGroup(group_id, now_ms=now_ms))
            return
        key = record.key
        if isinstance(key, OffsetCommitKey) and (record.value is None or isinstance(record.value, OffsetCommitValue)):
            self._offsets.apply(record)
        elif isinstance(key, GroupMetadataKey):
            if isinstance(record.value, GroupMetadataValue):
                group = self._groups.setdefault(key.group, ClassicGroup(key.group, now_ms=now_ms))
                group.load(record.value, now_ms=now_ms)
            else:
                self._groups.pop(key.group, None)
        elif isinstance(key, CONSUMER_GROUP_KEYS):
            self._consumers.apply(record)

    def finish_loading(self, now_ms: int) -> None:
        """Start the clocks: sessions of loaded members begin now, and every group with offsets exists."""
        for group_id in (*self._offsets, *self._offsets.pending_groups()):
            if group_id in self._consumers.groups:
                continue
            self._groups.setdefault(group_id, ClassicGroup(group_id, now_ms=now_ms))
        for group in self._groups.values():
            for member in group.members.values():
                member.deadline_ms = now_ms + member.session_timeout_ms
        self._consumers.finish_loading(now_ms)
        self._next_expiry_ms = now_ms + self._config.offsets_retention_check_interval_ms

    # -- effects and time ---------------------------------------------------------------------------------------

    def take_effects(self) -> list[Effect]:
        """Drain answers and appends, in order."""
        return self._writes.take_effects()

    def on_appended(self, append_id: int, error_code: int) -> None:
        """Hear what became of an ``AppendRecords``: 0 once committed, else the error for the client."""
        self._writes.on_appended(append_id, error_code)

    def next_timeout_ms(self) -> int | None:
        """When ``handle_timeout`` is wanted; may change after every call but pure reads."""
        candidates = (self._membership.next_timeout_ms(), self._consumers.timers.next_ms(), self._next_expiry_ms)
        return min((candidate for candidate in candidates if candidate is not None), default=None)

    def handle_timeout(self, now_ms: int) -> None:
        """End what is overdue; harmless when called early or twice."""
        self._membership.handle_timeout(now_ms)
        self._consumers.timers.run(now_ms)
        if self._next_expiry_ms is not None and self._next_expiry_ms <= now_ms:
            self._next_expiry_ms = now_ms + self._config.offsets_retention_check_interval_ms
            self._expire_offsets(now_ms)

    # -- members ------------------------------------------------------------------------------------------------

    def join_group(self, token: object, request: JoinGroupRequest, client: ClientInfo, now_ms: int) -> None:
        """Answered by an effect with a ``JoinGroupResponse``."""
        self._consumers.make_way(request.group_id, now_ms)
        if request.group_id in self._consumers.groups and not self._membership.join_error(request):
            self._consumers.join(token, request, client, now_ms)
        else:
            self._membership.join_group(token, request, client, now_ms)

    def sync_group(self, token: object, request: SyncGroupRequest, now_ms: int) -> None:
        """Answered by an effect with a ``SyncGroupResponse``."""
        if request.group_id in self._consumers.groups:
            self._consumers.sync(token, request, now_ms)
        else:
            self._membership.sync_group(token, request, now_ms)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> HeartbeatResponse:
        """Answered at once."""
        if request.group_id in self._consumers.groups:
            return self._consumers.classic_heartbeat(request, now_ms)
        return self._membership.heartbeat(request, now_ms)

    def leave_group(self, request: LeaveGroupRequest, api_version: int, now_ms: int) -> LeaveGroupResponse:
        """Answered at once; effects may follow for those who wait."""
        if request.group_id in self._consumers.groups:
            return self._consumers.leave_group(request, api_version, now_ms)
        return self._membership.leave_group(request, api_version, now_ms)

    def consumer_group_heartbeat(
        self, token: object, request: ConsumerGroupHeartbeatRequest, client: ClientInfo, now_ms: int
    ) -> None:
        """Answered by an effect with a ``ConsumerGroupHeartbeatResponse`` (KIP-848)."""
        self._consumers.heartbeat(token, request, client, now_ms)

    # -- offsets ------------------------------------------------------------------------------------------------

    def commit_offsets(
        self,
        token: object,
        request: OffsetCommitRequest,
        now_ms: int,
        *,
        api_version: int = _GROUP_ERROR_VERSION - 1,
    ) -> None:
        """Store offsets; answered by an effect once they are committed.

        Args:
            token: Comes back with the answer.
            request: Topics carry both name and topic id (the shell resolves whichever the version lacks).
            now_ms: Becomes the commit timestamp.
            api_version: Of the request; some answers depend on it.
        """
        consumers = self._consumers.groups.get(request.group_id)
        if consumers is not None:
            code = _consumer_commit_error(consumers, request, api_version)
        else:
            code = self._commit_error(self._groups.get(request.group_id), request, api_version)
        if code:
            return self._answer_commit(token, request, lambda _partition: code)
        if consumers is None:
            group = self._groups.setdefault(request.group_id, ClassicGroup(request.group_id, now_ms=now_ms))
            member = group.members.get(request.member_id)
            if member is not None:
                member.deadline_ms = now_ms + member.session_timeout_ms
        expires_ms = -1 if request.retention_time_ms == _DEFAULT_RETENTION else now_ms + request.retention_time_ms
        records = tuple(
            CommittedOffset(
                offset=partition.committed_offset,
                leader_epoch=partition.committed_leader_epoch,
                metadata=partition.committed_metadata or "",
                commit_timestamp_ms=now_ms,
                expire_timestamp_ms=expires_ms,
                topic_id=topic.topic_id,
            ).to_record(request.group_id, topic.name, partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
            if not self._metadata_error(partition)
        )
        if not records:
            return self._answer_commit(token, request, self._metadata_error)

        def then(error_code: int) -> None:
            if not error_code:
                for record in records:
                    self._offsets.apply(record)
            self._answer_commit(token, request, lambda partition: self._metadata_error(partition) or error_code)

        self._writes.append(records, then)
        return None

    def _commit_error(self, group: ClassicGroup | None, request: OffsetCommitRequest, api_version: int) -> int:
        generation_id = request.generation_id_or_member_epoch
        if group is None:
            if generation_id < 0:
                return int(ErrorCode.NONE)
            has_code = api_version >= _GROUP_ERROR_VERSION
            return int(ErrorCode.GROUP_ID_NOT_FOUND if has_code else ErrorCode.ILLEGAL_GENERATION)
        if generation_id < 0 and group.state is GroupState.EMPTY:
            return int(ErrorCode.NONE)
        if generation_id >= 0 or request.member_id or request.group_instance_id is not None:
            code = group.membership_error(request.member_id, request.group_instance_id)
            if code:
                return code
            if generation_id != group.generation_id:
                return int(ErrorCode.ILLEGAL_GENERATION)
        elif group.state is not GroupState.EMPTY:
            return int(ErrorCode.UNKNOWN_MEMBER_ID)
        if group.state is GroupState.COMPLETING_REBALANCE:
            return int(ErrorCode.REBALANCE_IN_PROGRESS)
        return int(ErrorCode.NONE)

    def _metadata_error(self, partition: _CommitPartition) -> int:
        # Kafka measures this limit "in bytes" in UTF-16 code units, Java's String.length().
        size = len((partition.committed_metadata or "").encode("utf-16-le", "surrogatepass")) // 2
        too_large = size > self._config.offset_metadata_max_bytes
        return int(ErrorCode.OFFSET_METADATA_TOO_LARGE if too_large else ErrorCode.NONE)

    def _answer_commit(self, token: object, request: OffsetCommitRequest, code_of: _PartitionCode) -> None:
        response = OffsetCommitResponse(
            topics=tuple(
                OffsetCommitResponse.OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        OffsetCommitResponse.OffsetCommitResponsePartition(
                            partition_index=partition.partition_index, error_code=code_of(partition)
                        )
                        for partition in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )
        self._writes.respond(token, response)

    def fetch_error(self, group_id: str, member_id: str | None, member_epoch: int) -> int:
        """Whether the offsets of a group may be read with this member id and epoch; classic groups take any."""
        consumers = self._consumers.groups.get(group_id)
        return int(ErrorCode.NONE) if consumers is None else consumers.fetch_error(member_id, member_epoch)

    def commit_transactional_offsets(self, token: object, request: TxnOffsetCommitRequest, now_ms: int) -> None:
        """Store offsets that take effect with the transaction; answered with a ``TxnOffsetCommitResponse`` (KIP-447).

        Args:
            token: Comes back with the answer.
            request: The transaction is verified, and its topics exist.
            now_ms: Becomes the commit timestamp.
        """
        group = self._groups.get(request.group_id)
        consumers = self._consumers.groups.get(request.group_id)
        if consumers is None:
            code = _transactional_commit_error(group, request)
        else:
            code = consumers.commit_error(
                request.member_id, request.generation_id, api_version=-1, is_transactional=True
            )
        if code:
            return self._writes.respond(token, _transactional_response(request, lambda _partition: code))
        if group is None and consumers is None:
            self._groups[request.group_id] = ClassicGroup(request.group_id, now_ms=now_ms)
        records = tuple(
            CommittedOffset(
                offset=partition.committed_offset,
                leader_epoch=partition.committed_leader_epoch,
                metadata=partition.committed_metadata or "",
                commit_timestamp_ms=now_ms,
            ).to_record(request.group_id, topic.name, partition.partition_index, request.producer_id)
            for topic in request.topics
            for partition in topic.partitions
            if not self._metadata_error(partition)
        )
        if not records:
            return self._writes.respond(token, _transactional_response(request, self._metadata_error))

        def then(error_code: int) -> None:
            if not error_code:
                for record in records:
                    self._offsets.apply(record)
            response = _transactional_response(request, lambda found: self._metadata_error(found) or error_code)
            self._writes.respond(token, response)

        self._writes.append(records, then, producer=(request.producer_id, request.producer_epoch))
        return None

    def pending(self, group_id: str) -> frozenset[tuple[str, int]]:
        """The partitions whose offsets an open transaction may change."""
        return self._offsets.pending_of(group_id)

    def committed(self, group_id: str) -> Mapping[tuple[str, int], CommittedOffset]:
        """Committed offsets of a group by (topic, partition); empty when the group has none or does not exist."""
        return self._offsets.of(group_id)

    def delete_offsets(self, token: object, request: OffsetDeleteRequest) -> None:
        """Forget offsets of topics the group is not subscribed to; answered by an effect (KIP-496)."""
        group = self._groups.get(request.group_id)
        consumers = self._consumers.groups.get(request.group_id)
        subscribed: frozenset[str] | None
        if consumers is not None:
            subscribed = consumers.subscribed_names()
        elif group is not None:
            subscribed = group.topics() if group.members else frozenset()
        else:
            response = OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
            return self._writes.respond(token, response)
        if subscribed is None:
            response = OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP)
            return self._writes.respond(token, response)
        held = self._offsets.of(request.group_id)
        records = tuple(
            CoordinatorRecord(OffsetCommitKey(group=request.group_id, topic=t.name, partition=p.partition_index), None)
            for t in request.topics
            for p in t.partitions
            if t.name not in subscribed and (t.name, p.partition_index) in held
        )

        def then(error_code: int) -> None:
            if not error_code:
                for record in records:
                    self._offsets.apply(record)
            topics = tuple(
                OffsetDeleteResponse.OffsetDeleteResponseTopic(
                    name=t.name,
                    partitions=tuple(
                        OffsetDeleteResponse.OffsetDeleteResponsePartition(
                            partition_index=p.partition_index,
                            error_code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if t.name in subscribed else error_code,
                        )
                        for p in t.partitions
                    ),
                )
                for t in request.topics
            )
            self._writes.respond(token, OffsetDeleteResponse(topics=topics))

        if records:
            self._writes.append(records, then)
        else:
            then(int(ErrorCode.NONE))
        return None

    def forget_topics(self, names: Iterable[str]) -> None:
        """Drop the offsets of deleted topics, as Kafka does when a topic goes."""
        gone = frozenset(names)
        for group_id in list(self._offsets):
            keep = frozenset(key for key in self._offsets.of(group_id) if key[0] not in gone)
            self._append_tombstones(self._offsets.tombstones(group_id, keep))

    def _append_tombstones(self, records: tuple[CoordinatorRecord, ...], forget_group: str | None = None) -> None:
        def then(error_code: int) -> None:
            if error_code:
                return
            for record in records:
                if isinstance(record.key, OffsetCommitKey):
                    self._offsets.apply(record)
            group = self._groups.get(forget_group or "")
            if group is not None and not group.members and not self._offsets.of(group.group_id):
                del self._groups[group.group_id]

        if records:
            self._writes.append(records, then)

    def _expire_offsets(self, now_ms: int) -> None:
        retention_ms = self._config.offsets_retention_ms
        for group_id, group in list(self._groups.items()):
            topics = group.topics() if group.members else frozenset()
            if topics is None:
                continue
            keep = frozenset(
                key
                for key, committed in self._offsets.of(group_id).items()
                if key[0] in topics or not _is_expired(committed, group, retention_ms, now_ms)
            ) | self._offsets.pending_of(group_id)
            records = self._offsets.tombstones(group_id, keep)
            if group.state is GroupState.EMPTY and not keep and not group.pending_members:
                if records or group.generation_id > 0:
                    self._append_tombstones((*records, group.tombstone()), forget_group=group_id)
                else:
                    del self._groups[group_id]
            else:
                self._append_tombstones(records)

        for group_id, consumers in list(self._consumers.groups.items()):
            self._expire_consumer_offsets(group_id, consumers, now_ms)

    def _expire_consumer_offsets(self, group_id: str, group: ConsumerGroup, now_ms: int) -> None:
        subscribed = group.subscribed_names()
        retention_ms = self._config.offsets_retention_ms
        keep = frozenset(
            key
            for key, committed in self._offsets.of(group_id).items()
            if key[0] in subscribed or now_ms - committed.commit_timestamp_ms < retention_ms
        )
        if group.members or keep:
            self._append_tombstones(self._offsets.tombstones(group_id, keep))
        else:
            self._delete_consumer_group(group_id, lambda _code: None, now_ms)

    def _delete_consumer_group(self, group_id: str, then: Callable[[int], None], now_ms: int) -> None:
        offsets = self._offsets.tombstones(group_id)

        def on_deleted(error_code: int) -> None:
            if not error_code:
                for record in offsets:
                    self._offsets.apply(record)
            then(error_code)

        self._consumers.delete(group_id, offsets, on_deleted, now_ms)

    # -- groups -------------------------------------------------------------------------------------------------

    def list_groups(self) -> Iterator[ListGroupsResponse.ListedGroup]:
        """Every group that the shard has now, unfiltered; each is described when the iterator comes to it."""
        classic = (
            ListGroupsResponse.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type="classic",
            )
            for group in tuple(self._groups.values())
        )
        return chain(classic, self._consumers.list_groups())

    def describe_consumer_group(self, token: object, group_id: str) -> None:
        """Answered by an effect with a ``DescribedGroup`` of ConsumerGroupDescribe."""
        self._consumers.describe(token, group_id)

    def describe_group(self, group_id: str, api_version: int) -> DescribeGroupsResponse.DescribedGroup:
        """One group; an unknown one is Dead (GROUP_ID_NOT_FOUND from version 6 on)."""
        described = DescribeGroupsResponse
        group = self._groups.get(group_id)
        if group is None:
            code = ErrorCode.GROUP_ID_NOT_FOUND if api_version >= 6 else ErrorCode.NONE
            kind = "is not a classic group" if group_id in self._consumers.groups else "not found"
            text = f"Group {group_id} {kind}." if api_version >= 6 else None
            return described.DescribedGroup(
                error_code=code, error_message=text, group_id=group_id, group_state=GroupState.DEAD.value
            )
        is_stable = group.state is GroupState.STABLE
        protocol = (group.protocol_name or "") if is_stable else ""
        return described.DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol,
            members=tuple(
                described.DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata_for(protocol) if is_stable else b"",
                    member_assignment=member.assignment if is_stable else b"",
                )
                for member in group.members.values()
            ),
        )

    def delete_group(self, token: object, group_id: str, now_ms: int) -> None:
        """Delete an empty group and its offsets; answered with a ``DeletableGroupResult``."""
        result = DeleteGroupsResponse.DeletableGroupResult
        if group_id in self._consumers.groups:
            return self._delete_consumer_group(
                group_id,
                lambda code: self._writes.respond(token, result(group_id=group_id, error_code=code)),
                now_ms,
            )
        group = self._groups.get(group_id)
        if group is None:
            return self._writes.respond(token, result(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND))
        if group.state is not GroupState.EMPTY:
            return self._writes.respond(token, result(group_id=group_id, error_code=ErrorCode.NON_EMPTY_GROUP))
        records = (*self._offsets.tombstones(group_id), group.tombstone())

        def then(error_code: int) -> None:
            if not error_code:
                for record in records[:-1]:
                    self._offsets.apply(record)
                group.transition_to(GroupState.DEAD, now_ms=group.current_state_timestamp_ms)
                self._groups.pop(group_id, None)
            self._writes.respond(token, result(group_id=group_id, error_code=error_code))

        self._writes.append(records, then)
        return None


def _consumer_commit_error(group: ConsumerGroup, request: OffsetCommitRequest, api_version: int) -> int:
    return group.commit_error(
        request.member_id,
        request.generation_id_or_member_epoch,
        api_version=api_version,
        partitions=[(topic.topic_id, part.partition_index) for topic in request.topics for part in topic.partitions],
    )


def _transactional_commit_error(group: ClassicGroup | None, request: TxnOffsetCommitRequest) -> int:
    """As for a plain commit, but a rebalance refuses nothing, and a producer need not name a member."""
    if group is None:
        return int(ErrorCode.ILLEGAL_GENERATION if request.generation_id >= 0 else ErrorCode.NONE)
    if request.generation_id < 0 and group.state is GroupState.EMPTY:
        return int(ErrorCode.NONE)
    if request.generation_id >= 0 or request.member_id or request.group_instance_id is not None:
        code = group.membership_error(request.member_id, request.group_instance_id)
        if code:
            return code
        if request.generation_id != group.generation_id:
            return int(ErrorCode.ILLEGAL_GENERATION)
    return int(ErrorCode.NONE)


def _transactional_response(
    request: TxnOffsetCommitRequest, code_of: Callable[[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition], int]
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code_of(partition)
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _is_expired(committed: CommittedOffset, group: ClassicGroup, retention_ms: int, now_ms: int) -> bool:
    if committed.expire_timestamp_ms >= 0:
        return now_ms >= committed.expire_timestamp_ms
    if group.protocol_type is None:
        since_ms = committed.commit_timestamp_ms
    elif group.state is GroupState.EMPTY:
        since_ms = max(group.current_state_timestamp_ms, committed.commit_timestamp_ms)
    else:
        since_ms = committed.commit_timestamp_ms
    return now_ms - since_ms >= retention_ms
