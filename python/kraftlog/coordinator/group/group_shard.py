"""One shard of the group coordinator: the groups whose records live in one ``__consumer_offsets`` partition.

A sans-IO state machine. Requests come in with a token; answers and records to append come out of ``take_effects``.
A committed offset becomes visible once its record is committed, in the order of appends.

Source: ``org.apache.kafka.coordinator.group.GroupCoordinatorShard``.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from kraftlog.coordinator.effects import CoordinatorRecord, Effect, TransactionEnd
from kraftlog.coordinator.group.classic_group import ClassicGroup, GroupState
from kraftlog.coordinator.group.config import ClientInfo, GroupConfig
from kraftlog.coordinator.group.consumer_groups import ConsumerGroups
from kraftlog.coordinator.group.consumer_membership import GroupSettings
from kraftlog.coordinator.group.consumer_records import CONSUMER_GROUP_KEYS
from kraftlog.coordinator.group.events import GroupEvents
from kraftlog.coordinator.group.group_offsets import GROUP_ERROR_VERSION, EncodedCommit, GroupOffsets
from kraftlog.coordinator.group.membership import Membership
from kraftlog.coordinator.group.share_groups import ShareGroups
from kraftlog.coordinator.group.share_records import SHARE_GROUP_KEYS
from kraftlog.coordinator.group.topics import Topics
from kraftlog.coordinator.offsets import CommittedOffset
from kraftlog.coordinator.write_log import WriteLog
from kraftlog.errors import ErrorCode
from kraftlog.types import Uuid
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
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest
from kraftlog.wire.messages.offset_delete import OffsetDeleteRequest
from kraftlog.wire.messages.sync_group import SyncGroupRequest
from kraftlog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

__all__ = ["GroupShard"]


class GroupShard:
    """Groups and offsets of one partition.

    Args:
        config: Limits and times.
        rng: Where member ids come from.
        topics: The committed topics.
        group_settings: Settings of single groups.
        events: Counters that the shards of a node share.
    """

    def __init__(
        self,
        config: GroupConfig,
        *,
        rng: random.Random,
        topics: Topics,
        group_settings: GroupSettings,
        events: GroupEvents,
    ) -> None:
        self._config = config
        self._writes = WriteLog()
        self._membership = Membership(config, rng, self._writes, events)
        self._groups = self._membership.groups
        self._consumers = ConsumerGroups(config, group_settings, topics, rng, self._writes, self._membership, events)
        self._offsets = GroupOffsets(config, self._writes, self._groups, self._consumers, events)
        self.shares = ShareGroups(
            config, group_settings, topics, self._writes, events, is_other_type=self._has_other_group
        )
        self._next_expiry_ms: int | None = None

    # -- loading ------------------------------------------------------------------------------------------------

    def replay(self, record: CoordinatorRecord | TransactionEnd, *, now_ms: int) -> None:
        """Take in one record of the partition, in offset order; other kinds of key are passed over."""
        if isinstance(record, TransactionEnd):
            for group_id in self._offsets.store.end(record):
                self._offsets.ensure_group(group_id, now_ms)
            return
        key = record.key
        if isinstance(key, OffsetCommitKey) and (record.value is None or isinstance(record.value, OffsetCommitValue)):
            self._offsets.apply((record,))
        elif isinstance(key, GroupMetadataKey):
            if isinstance(record.value, GroupMetadataValue):
                group = self._groups.setdefault(key.group, ClassicGroup(key.group, now_ms=now_ms))
                group.load(record.value, now_ms=now_ms)
            else:
                self._groups.pop(key.group, None)
        elif isinstance(key, CONSUMER_GROUP_KEYS):
            self._consumers.apply(record)
        elif isinstance(key, SHARE_GROUP_KEYS):
            self.shares.apply(record)

    def finish_loading(self, now_ms: int) -> None:
        """Start the clocks: sessions of loaded members begin now, and every group with offsets exists."""
        for group_id in (*self._offsets.store, *self._offsets.store.pending_groups()):
            self._offsets.ensure_group(group_id, now_ms)
        self._membership.finish_loading(now_ms)
        self._consumers.finish_loading(now_ms)
        self.shares.finish_loading(now_ms)
        self._next_expiry_ms = now_ms + self._config.offsets_retention_check_interval_ms

    # -- effects and time ---------------------------------------------------------------------------------------

    def take_effects(self) -> list[Effect]:
        """Drain answers and appends, in order."""
        return self._writes.take_effects()

    def on_appended(self, append_id: int, error_code: int, _last_offset: int = -1) -> None:
        """Hear what became of an ``AppendRecords``: 0 once committed, else the error for the client."""
        self._writes.on_appended(append_id, error_code)

    def next_timeout_ms(self) -> int | None:
        """When ``handle_timeout`` is wanted; may change after every call but pure reads."""
        earliest_ms = self._next_expiry_ms
        # Asked after every request.
        for timers in (self._membership.timers, self._consumers.timers, self.shares.timers):
            at_ms = timers.next_ms()
            if at_ms is not None and (earliest_ms is None or at_ms < earliest_ms):
                earliest_ms = at_ms
        return earliest_ms

    def handle_timeout(self, now_ms: int) -> None:
        """End what is overdue; harmless when called early or twice."""
        self._membership.timers.run(now_ms)
        self._consumers.timers.run(now_ms)
        self.shares.timers.run(now_ms)
        if self._next_expiry_ms is not None and self._next_expiry_ms <= now_ms:
            self._next_expiry_ms = now_ms + self._config.offsets_retention_check_interval_ms
            self._offsets.expire(now_ms)

    # -- members ------------------------------------------------------------------------------------------------

    def _has_other_group(self, group_id: str) -> bool:
        return group_id in self._groups or group_id in self._consumers.groups

    def join_group(self, token: object, request: JoinGroupRequest, client: ClientInfo, now_ms: int) -> None:
        """Answered by an effect with a ``JoinGroupResponse``."""
        if self.shares.refuse_classic(token, request.group_id):
            return None
        if not self._membership.request_error(request):
            self._consumers.make_way(request.group_id, now_ms)
            if request.group_id in self._consumers.groups:
                return self._consumers.join(token, request, client, now_ms)
        return self._membership.join_group(token, request, client, now_ms)

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
        if self.shares.refuse_consumer(token, request.group_id):
            return
        self._consumers.heartbeat(token, request, client, now_ms)

    # -- offsets ------------------------------------------------------------------------------------------------

    def commit_offsets(
        self,
        token: object,
        request: OffsetCommitRequest,
        now_ms: int,
        *,
        api_version: int = GROUP_ERROR_VERSION - 1,
    ) -> None:
        """Answered by an effect with an ``OffsetCommitResponse``; see ``GroupOffsets.commit``."""
        refusal = int(ErrorCode.GROUP_ID_NOT_FOUND) if request.group_id in self.shares.groups else 0
        self._offsets.commit(token, request, now_ms, api_version=api_version, refusal=refusal)

    def takes_metadata(self, units: int) -> bool:
        """Whether metadata of a position may have so many UTF-16 code units."""
        return units <= self._config.offset_metadata_max_bytes

    def commit_encoded_offsets(
        self,
        token: object,
        commit: EncodedCommit,
        topics: list[tuple[str, Uuid]],
        now_ms: int,
        *,
        partitions: Iterable[tuple[Uuid, int]],
        api_version: int,
    ) -> None:
        """Answered by an effect with an error code for all partitions; see ``GroupOffsets.commit_encoded``."""
        refusal = int(ErrorCode.GROUP_ID_NOT_FOUND) if commit.group_id in self.shares.groups else 0
        self._offsets.commit_encoded(
            token, commit, topics, now_ms, partitions=partitions, api_version=api_version, refusal=refusal
        )

    def commit_transactional_offsets(self, token: object, request: TxnOffsetCommitRequest, now_ms: int) -> None:
        """Answered by an effect with a ``TxnOffsetCommitResponse``; see ``GroupOffsets.commit_transactional``."""
        self._offsets.commit_transactional(token, request, now_ms)

    def fetch_error(self, group_id: str, member_id: str | None, member_epoch: int) -> int:
        """Whether the offsets of a group may be read with this member id and epoch; classic groups take any."""
        consumers = self._consumers.groups.get(group_id)
        return int(ErrorCode.NONE) if consumers is None else consumers.fetch_error(member_id, member_epoch)

    def pending(self, group_id: str) -> frozenset[tuple[str, int]]:
        """The partitions whose offsets an open transaction may change."""
        return self._offsets.store.pending_of(group_id)

    def committed(self, group_id: str) -> Mapping[tuple[str, int], CommittedOffset]:
        """Committed offsets of a group by (topic, partition); empty when the group has none or does not exist."""
        return self._offsets.store.of(group_id)

    def offset_count(self) -> int:
        """Committed offsets of all groups; any thread may ask."""
        return self._offsets.store.count()

    def delete_offsets(self, token: object, request: OffsetDeleteRequest) -> None:
        """Answered by an effect with an ``OffsetDeleteResponse`` (KIP-496)."""
        self._offsets.delete(token, request)

    def forget_topics(self, topics: Mapping[str, Uuid]) -> None:
        """Drop the offsets of deleted topics, as Kafka does when a topic goes."""
        self.shares.forget_topics()
        self._offsets.forget_topics(topics)

    # -- groups -------------------------------------------------------------------------------------------------

    def list_groups(self) -> Iterator[ListGroupsResponse.ListedGroup]:
        """Every group that the shard has now, unfiltered; each is described when the iterator comes to it.

        Any thread may iterate.
        """
        classic = (
            ListGroupsResponse.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type="classic",
            )
            for group in tuple(self._groups.values())
        )
        return chain(classic, self._consumers.list_groups(), self.shares.list_groups())

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
            return self._offsets.delete_consumer_group(
                group_id,
                lambda code: self._writes.respond(token, result(group_id=group_id, error_code=code)),
                now_ms,
            )
        group = self._groups.get(group_id)
        if group is None:
            return self._writes.respond(token, result(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND))
        if group.state is not GroupState.EMPTY:
            return self._writes.respond(token, result(group_id=group_id, error_code=ErrorCode.NON_EMPTY_GROUP))
        return self._offsets.delete_classic_group(
            group, lambda code: self._writes.respond(token, result(group_id=group_id, error_code=code))
        )
