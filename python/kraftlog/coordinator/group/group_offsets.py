"""Committed offsets of the groups of one shard: commit, delete, expire.

A committed offset becomes visible once its record is committed, in the order of appends.

Source: ``org.apache.kafka.coordinator.group.OffsetMetadataManager``; KIP-211 (expiration), KIP-447 (transactions),
KIP-496 (OffsetDelete).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from kraftlog.coordinator.effects import CoordinatorRecord
from kraftlog.coordinator.group.classic_group import ClassicGroup, GroupState
from kraftlog.coordinator.group.config import GroupConfig
from kraftlog.coordinator.group.consumer_groups import ConsumerGroups
from kraftlog.coordinator.group.events import GroupEvents
from kraftlog.coordinator.offsets import CommittedOffset, OffsetStore
from kraftlog.coordinator.write_log import WriteLog
from kraftlog.errors import ErrorCode
from kraftlog.types import Uuid
from kraftlog.wire.messages.group_coordinator_records import OffsetCommitKey
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kraftlog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kraftlog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

__all__ = ["GROUP_ERROR_VERSION", "EncodedCommit", "GroupOffsets"]

GROUP_ERROR_VERSION = 9  # of OffsetCommit (KIP-848)
_DEFAULT_RETENTION = -1
_PartitionCode = Callable[[OffsetCommitRequest.OffsetCommitRequestPartition], int]
_CommitPartition = (
    OffsetCommitRequest.OffsetCommitRequestPartition | TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
)


class Committer(Protocol):
    """Who commits, as an OffsetCommit request says."""

    @property
    def group_id(self) -> str:
        """The group."""
        ...

    @property
    def generation_id_or_member_epoch(self) -> int:
        """Generation of a classic group, epoch of a member; -1 for a commit of no member."""
        ...

    @property
    def member_id(self) -> str:
        """The member; empty for none."""
        ...

    @property
    def group_instance_id(self) -> str | None:
        """The static member."""
        ...


class EncodedCommit(Committer, Protocol):
    """An OffsetCommit request that stays bytes; its topics and partitions are named once each."""

    @property
    def metadata_units_max(self) -> int:
        """The most UTF-16 code units in the metadata of a partition."""
        ...

    def records(
        self, topics: list[tuple[str, Uuid]], commit_timestamp_ms: int
    ) -> tuple[list[tuple[bytes, bytes | None]], list[tuple[tuple[str, int], int, int, str, Uuid]]]:
        """The records, and (topic and partition, offset, leader epoch, metadata, topic id) of each.

        Args:
            topics: Name and id of each topic, in the request's order.
            commit_timestamp_ms: When the commit was received.
        """
        ...


class GroupOffsets:
    """Requests about offsets, and the time after which offsets and empty groups are forgotten.

    Args:
        config: Limits and times.
        writes: The shard's queue of answers and appends.
        classic: The shard's classic groups by id.
        consumers: The shard's consumer groups.
        events: Counts offsets.
    """

    def __init__(
        self,
        config: GroupConfig,
        writes: WriteLog,
        classic: dict[str, ClassicGroup],
        consumers: ConsumerGroups,
        events: GroupEvents,
    ) -> None:
        self._config = config
        self._writes = writes
        self._classic = classic
        self._consumers = consumers
        self._events = events
        self._committing: Counter[str] = Counter()
        self.store = OffsetStore()

    # -- commit -------------------------------------------------------------------------------------------------

    def commit(
        self, token: object, request: OffsetCommitRequest, now_ms: int, *, api_version: int, refusal: int = 0
    ) -> None:
        """Store offsets; answered by an effect once they are committed.

        Args:
            token: Comes back with the answer.
            request: Topics carry both name and topic id (the shell resolves whichever the version lacks).
            now_ms: Becomes the commit timestamp.
            api_version: Of the request; some answers depend on it.
            refusal: The error code for a group that has no offsets at all, such as a share group.
        """
        partitions = ((topic.topic_id, part.partition_index) for topic in request.topics for part in topic.partitions)
        code = refusal or self._begin_commit(request, partitions, now_ms, api_version)
        if code:
            return self._answer_commit(token, request, lambda _partition: code)
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

        def respond(error_code: int) -> None:
            self._answer_commit(token, request, lambda partition: self._metadata_error(partition) or error_code)

        return self._append(request.group_id, records, respond, now_ms)

    def commit_encoded(
        self,
        token: object,
        commit: EncodedCommit,
        topics: list[tuple[str, Uuid]],
        now_ms: int,
        *,
        partitions: Iterable[tuple[Uuid, int]],
        api_version: int,
        refusal: int = 0,
    ) -> None:
        """As ``commit``, for a request that stays bytes; answered with one error code for all of its partitions.

        Args:
            token: Comes back with the code.
            commit: The request; its metadata are within ``offset_metadata_max_bytes``.
            topics: Name and id of each topic, in the request's order.
            now_ms: Becomes the commit timestamp.
            partitions: Topic id and index of each partition.
            api_version: Of the request.
            refusal: The error code for a group that has no offsets at all.
        """
        code = refusal or self._begin_commit(commit, partitions, now_ms, api_version)
        if code:
            return self._writes.respond(token, code)
        group_id = commit.group_id
        encoded, positions = commit.records(topics, now_ms)

        def then(error_code: int) -> None:
            self._appended(group_id, now_ms, is_stored=not error_code)
            if not error_code:
                self.store.put(group_id, positions, now_ms)
            self._writes.respond(token, error_code)

        self._committing[group_id] += 1
        self._events.offset_commits += len(positions)
        self._writes.append((), then, encoded=encoded)
        return None

    def _begin_commit(
        self, request: Committer, partitions: Iterable[tuple[Uuid, int]], now_ms: int, api_version: int
    ) -> int:
        """Whether the member may commit these partitions; if so, its session goes on."""
        consumers = self._consumers.groups.get(request.group_id)
        if consumers is not None:
            return consumers.commit_error(
                request.member_id,
                request.generation_id_or_member_epoch,
                api_version=api_version,
                partitions=partitions,
            )
        group = self._classic.get(request.group_id)
        code = _commit_error(group, request, api_version)
        if not code and group is not None:
            member = group.members.get(request.member_id)
            if member is not None:
                member.deadline_ms = now_ms + member.session_timeout_ms
        return code

    def commit_transactional(self, token: object, request: TxnOffsetCommitRequest, now_ms: int) -> None:
        """Store offsets that take effect with the transaction; answered with a ``TxnOffsetCommitResponse`` (KIP-447).

        Args:
            token: Comes back with the answer.
            request: The transaction is verified, and its topics exist.
            now_ms: Becomes the commit timestamp.
        """
        consumers = self._consumers.groups.get(request.group_id)
        if consumers is None:
            code = _transactional_commit_error(self._classic.get(request.group_id), request)
        else:
            code = consumers.commit_error(
                request.member_id, request.generation_id, api_version=-1, is_transactional=True
            )
        if code:
            return self._writes.respond(token, _transactional_response(request, lambda _partition: code))
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

        def respond(error_code: int) -> None:
            response = _transactional_response(request, lambda found: self._metadata_error(found) or error_code)
            self._writes.respond(token, response)

        producer = (request.producer_id, request.producer_epoch)
        return self._append(request.group_id, records, respond, now_ms, producer=producer)

    def _append(
        self,
        group_id: str,
        records: tuple[CoordinatorRecord, ...],
        respond: Callable[[int], None],
        now_ms: int,
        *,
        producer: tuple[int, int] | None = None,
    ) -> None:
        """Append offsets of a group, which comes to be with its first offset."""
        self._committing[group_id] += 1
        self._events.offset_commits += len(records)

        def then(error_code: int) -> None:
            if not error_code:
                self.apply(records)
            self._appended(group_id, now_ms, is_stored=not error_code)
            respond(error_code)

        self._writes.append(records, then, producer=producer)

    def _appended(self, group_id: str, now_ms: int, *, is_stored: bool) -> None:
        left = self._committing[group_id] - 1
        if left:
            self._committing[group_id] = left
        else:
            del self._committing[group_id]
        if is_stored:
            self.ensure_group(group_id, now_ms)

    def apply(self, records: tuple[CoordinatorRecord, ...]) -> None:
        """Take in committed records of offsets, and tombstones."""
        for record in records:
            self.store.apply(record)

    def ensure_group(self, group_id: str, now_ms: int) -> None:
        """A group that has offsets exists: a simple one, unless it is known already."""
        if group_id not in self._consumers.groups and group_id not in self._classic:
            self._classic[group_id] = ClassicGroup(group_id, now_ms=now_ms)

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

    # -- delete -------------------------------------------------------------------------------------------------

    def delete(self, token: object, request: OffsetDeleteRequest) -> None:
        """Forget offsets of topics the group is not subscribed to; answered by an effect (KIP-496)."""
        group = self._classic.get(request.group_id)
        consumers = self._consumers.groups.get(request.group_id)
        if consumers is not None:
            subscribed = consumers.subscribed_names()
            is_subscribed: Callable[[str], bool] = subscribed.__contains__
        elif group is None:
            response = OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
            return self._writes.respond(token, response)
        elif group.state is not GroupState.EMPTY and not group.uses_consumer_protocol:
            response = OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP)
            return self._writes.respond(token, response)
        else:
            is_subscribed = group.subscription_check()
        known = self.store.of(request.group_id).keys() | self.store.pending_of(request.group_id)
        records = tuple(
            CoordinatorRecord(OffsetCommitKey(group=request.group_id, topic=t.name, partition=p.partition_index), None)
            for t in request.topics
            if not is_subscribed(t.name)
            for p in t.partitions
            if (t.name, p.partition_index) in known
        )

        def then(error_code: int) -> None:
            if not error_code:
                self.apply(records)
            topics = tuple(
                OffsetDeleteResponse.OffsetDeleteResponseTopic(
                    name=t.name,
                    partitions=tuple(
                        OffsetDeleteResponse.OffsetDeleteResponsePartition(
                            partition_index=p.partition_index,
                            error_code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed(t.name) else error_code,
                        )
                        for p in t.partitions
                    ),
                )
                for t in request.topics
            )
            self._writes.respond(token, OffsetDeleteResponse(topics=topics))

        self._events.offset_deletions += len(records)
        if records:
            self._writes.append(records, then)
        else:
            then(int(ErrorCode.NONE))
        return None

    def forget_topics(self, topics: Mapping[str, Uuid]) -> None:
        """Drop the offsets of deleted topics: those with the topic's id and those without an id, pending ones too."""
        records = self.store.tombstones_of_topics(topics)
        if records:
            self._writes.append(records, lambda code: None if code else self.apply(records))

    def delete_classic_group(self, group: ClassicGroup, then: Callable[[int], None]) -> None:
        """Delete a classic group without members, and its offsets.

        The group is gone at once, so that a member that joins meanwhile makes a new one; it is back if the append
        fails.
        """
        group_id = group.group_id
        offsets = self.store.tombstones(group_id)
        del self._classic[group_id]

        def on_deleted(error_code: int) -> None:
            if not error_code:
                self.apply(offsets)
                self._drop_left_over(group_id)
            elif group_id not in self._consumers.groups:
                self._classic.setdefault(group_id, group)
            then(error_code)

        self._writes.append((*offsets, group.tombstone()), on_deleted)

    def _drop_left_over(self, group_id: str) -> None:
        """Forget a simple group whose offsets were deleted with it.

        It came back for a commit that was on its way when the group was deleted. One that is on its way now brings it
        back again, if it is stored.
        """
        group = self._classic.get(group_id)
        if group is None or group.protocol_type is not None or group.members or group.pending_members:
            return
        if not self.store.of(group_id) and not self.store.pending_of(group_id):
            del self._classic[group_id]

    def delete_consumer_group(self, group_id: str, then: Callable[[int], None], now_ms: int) -> None:
        """Delete a consumer group and its offsets; ``then`` gets NON_EMPTY_GROUP if it has members."""
        offsets = self.store.tombstones(group_id)

        def on_deleted(error_code: int) -> None:
            if not error_code:
                self.apply(offsets)
            then(error_code)

        self._consumers.delete(group_id, offsets, on_deleted, now_ms)

    # -- expire -------------------------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> None:
        """Forget offsets whose retention is over, and groups without members and offsets (KIP-211).

        A group whose offsets are on their way to the log waits for the next check.
        """
        for group in list(self._classic.values()):
            if group.group_id not in self._committing:
                self._expire_classic(group, now_ms)
        for group_id, consumers in list(self._consumers.groups.items()):
            if group_id in self._committing:
                continue
            subscribed = consumers.subscribed_names()
            expired = self._expired(group_id, subscribed.__contains__, None, now_ms)
            if consumers.members or not self._is_all(group_id, expired):
                self._forget(group_id, expired)
            else:
                self.delete_consumer_group(group_id, lambda _code: None, now_ms)

    def _expire_classic(self, group: ClassicGroup, now_ms: int) -> None:
        is_empty = group.state is GroupState.EMPTY
        base_ms: int | None = None
        if group.protocol_type is not None:
            if is_empty and group.current_state_timestamp_ms >= 0:
                base_ms = group.current_state_timestamp_ms
            elif not is_empty and (group.state is not GroupState.STABLE or group.topics() is None):
                return
        expired = self._expired(group.group_id, group.subscription_check(), base_ms, now_ms)
        # An id that was handed out and has not joined yet keeps the group.
        if is_empty and not group.pending_members and self._is_all(group.group_id, expired):
            self.delete_classic_group(group, lambda _code: None)
        else:
            self._forget(group.group_id, expired)

    def _expired(
        self, group_id: str, is_subscribed: Callable[[str], bool], base_ms: int | None, now_ms: int
    ) -> list[tuple[str, int]]:
        """Topics and partitions of the group's expired offsets.

        Args:
            group_id: Whose.
            is_subscribed: Whether a member consumes the topic.
            base_ms: When the retention of all offsets began; None for the time of each commit.
            now_ms: The time.
        """
        pending = self.store.pending_of(group_id)
        expired = [
            (topic, partition)
            for (topic, partition), committed in self.store.of(group_id).items()
            if not is_subscribed(topic)
            and (topic, partition) not in pending
            and _is_expired(committed, base_ms, self._config.offsets_retention_ms, now_ms)
        ]
        self._events.offset_expirations += len(expired)
        return expired

    def _is_all(self, group_id: str, expired: Collection[tuple[str, int]]) -> bool:
        return len(expired) == len(self.store.of(group_id)) and not self.store.pending_of(group_id)

    def _forget(self, group_id: str, expired: Collection[tuple[str, int]]) -> None:
        records = tuple(
            CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
            for topic, partition in expired
        )
        if records:
            self._writes.append(records, lambda code: None if code else self.apply(records))


def _is_expired(committed: CommittedOffset, base_ms: int | None, retention_ms: int, now_ms: int) -> bool:
    if committed.expire_timestamp_ms >= 0:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - (committed.commit_timestamp_ms if base_ms is None else base_ms) >= retention_ms


def _commit_error(group: ClassicGroup | None, request: Committer, api_version: int) -> int:
    generation_id = request.generation_id_or_member_epoch
    if group is None:
        if generation_id < 0:
            return int(ErrorCode.NONE)
        has_code = api_version >= GROUP_ERROR_VERSION
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
