"""A group shard with classic groups, under a clock and a log that a test drives by hand."""

from __future__ import annotations

from typing import Any

from group_fixture import make_group_shard
from kraftlog._kraftlog import PlainOffsetCommit
from kraftlog.coordinator.effects import AppendRecords, CoordinatorRecord, Respond
from kraftlog.coordinator.group.config import ClientInfo, GroupConfig
from kraftlog.coordinator.group.events import GroupEvents
from kraftlog.runtime.coordinator.record_codec import decode_group_record
from kraftlog.types import Uuid
from kraftlog.wire.frame import encode_request
from kraftlog.wire.messages.heartbeat import HeartbeatRequest
from kraftlog.wire.messages.join_group import JoinGroupRequest
from kraftlog.wire.messages.leave_group import LeaveGroupRequest
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest
from kraftlog.wire.messages.offset_delete import OffsetDeleteRequest
from kraftlog.wire.messages.sync_group import SyncGroupRequest
from kraftlog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

__all__ = ["ORDERS_ID", "SUBSCRIPTION", "ClassicShard", "protocols", "two_classic_members"]

ORDERS_ID = Uuid(bytes(range(16)))
FIRST_ENCODED_VERSION = 8
SUBSCRIPTION = b"\x00\x03\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff"


def protocols(*pairs: tuple[str, bytes]) -> dict[str, Any]:
    """The fields of a join that offers these names and subscriptions."""
    offered = JoinGroupRequest.JoinGroupRequestProtocol
    return {"protocols": tuple(offered(name=name, metadata=metadata) for name, metadata in pairs)}


class ClassicShard:
    """A shard, a clock, and everything it answered or wrote.

    Attributes:
        commits_encoded: Whether plain commits take the way of requests that stay bytes.
    """

    commits_encoded = False

    def __init__(self, events: GroupEvents | None = None, **config: Any) -> None:
        settings: dict[str, Any] = {"group_initial_rebalance_delay_ms": 0, **config}
        self.config = GroupConfig(**settings)
        self.shard = make_group_shard(self.config, events=events)
        self.shard.finish_loading(0)
        self.now_ms = 0
        self.answers: dict[str, Any] = {}
        self.log: list[CoordinatorRecord] = []
        self.append_error = 0
        self.held: list[AppendRecords] | None = None

    def run(self) -> None:
        while effects := self.shard.take_effects():
            for effect in effects:
                if isinstance(effect, Respond):
                    assert effect.token not in self.answers, "answered twice"
                    self.answers[str(effect.token)] = effect.response
                elif self.held is not None:
                    self.held.append(effect)
                else:
                    if not self.append_error:
                        self.log.extend(effect.records)
                        for key, value in effect.encoded:
                            self.log.extend(decode_group_record(key, value))
                    self.shard.on_appended(effect.append_id, self.append_error)

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        self.shard.handle_timeout(self.now_ms)
        self.run()

    def join(self, token: str, member_id: str = "", *, version: int = 9, **fields: Any) -> Any:
        defaults: dict[str, Any] = {
            "group_id": "g",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 30_000,
            "protocol_type": "consumer",
            "protocols": (JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION),),
        }
        request = JoinGroupRequest(member_id=member_id, **(defaults | fields))
        self.shard.join_group(token, request, ClientInfo("client", "/127.0.0.1", version), self.now_ms)
        self.run()
        return self.answers.get(token)

    def sync(
        self,
        token: str,
        member_id: str,
        generation_id: int,
        assignments: dict[str, bytes] | None = None,
        **fields: Any,
    ) -> Any:
        items = tuple(
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=m, assignment=a)
            for m, a in (assignments or {}).items()
        )
        request = SyncGroupRequest(
            group_id="g", generation_id=generation_id, member_id=member_id, assignments=items, **fields
        )
        self.shard.sync_group(token, request, self.now_ms)
        self.run()
        return self.answers.get(token)

    def heartbeat(self, member_id: str, generation_id: int, **fields: Any) -> int:
        request = HeartbeatRequest(group_id="g", generation_id=generation_id, member_id=member_id, **fields)
        response = self.shard.heartbeat(request, self.now_ms)
        self.run()
        return response.error_code

    def leave(self, *members: tuple[str, str | None], version: int = 5, group_id: str = "g") -> Any:
        """Leave with (member id, instance id) of each."""
        request = LeaveGroupRequest(
            group_id=group_id,
            member_id=members[0][0],
            members=tuple(
                LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance_id)
                for member_id, instance_id in members
            ),
        )
        response = self.shard.leave_group(request, version, self.now_ms)
        self.run()
        return response

    def described(self, version: int = 6) -> Any:
        return self.shard.describe_group("g", version)

    @property
    def state(self) -> str:
        return str(self.described(5).group_state)

    def delete_group(self, token: str) -> int:
        self.shard.delete_group(token, "g", self.now_ms)
        self.run()
        return int(self.answers[token].error_code)

    def delete_offsets(self, token: str, *topics: str, partition: int = 0) -> Any:
        request = OffsetDeleteRequest(
            group_id="g",
            topics=tuple(
                OffsetDeleteRequest.OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=(OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=partition),),
                )
                for topic in topics
            ),
        )
        self.shard.delete_offsets(token, request)
        self.run()
        return self.answers[token]

    def commit_in_transaction(self, token: str, offset: int = 9, *, producer_id: int = 77, **fields: Any) -> int:
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=fields.pop("partition", 0),
            committed_offset=offset,
            committed_metadata=fields.pop("metadata", ""),
        )
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="orders", partitions=(partition,))
        request = TxnOffsetCommitRequest(
            transactional_id="t", group_id="g", producer_id=producer_id, producer_epoch=0, topics=(topic,), **fields
        )
        self.shard.commit_transactional_offsets(token, request, self.now_ms)
        self.run()
        return int(self.answers[token].topics[0].partitions[0].error_code)

    def reloaded(self, **config: Any) -> ClassicShard:
        """Another shard that replayed what this one wrote."""
        other = ClassicShard(**config)
        other.shard = make_group_shard(other.config)
        other.now_ms = self.now_ms
        for record in self.log:
            other.shard.replay(record, now_ms=self.now_ms)
        other.shard.finish_loading(self.now_ms)
        other.run()
        return other

    def new_member(self, token: str) -> str:
        """Ask for a member id, then join with it (the join may wait)."""
        member_id: str = self.join(f"{token}-id").member_id
        self.join(token, member_id)
        return member_id

    def stable(self) -> str:
        """A group of one, stable in generation 1."""
        member_id = self.new_member("a")
        self.sync("a-sync", member_id, 1, {member_id: b"A"})
        return member_id

    def commit(self, token: str, offset: int = 5, **fields: Any) -> Any:
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=fields.pop("partition", 0),
            committed_offset=offset,
            committed_leader_epoch=fields.pop("leader_epoch", 3),
            committed_metadata=fields.pop("metadata", "m"),
        )
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(
            name=fields.pop("topic", "orders"), topic_id=fields.pop("topic_id", ORDERS_ID), partitions=(partition,)
        )
        version = fields.pop("version", 8)
        request = OffsetCommitRequest(group_id=fields.pop("group_id", "g"), topics=(topic,), **fields)
        if not self._commit_encoded(token, request, version):
            self.shard.commit_offsets(token, request, self.now_ms, api_version=version)
        self.run()
        return self.commit_code(token)

    def commit_code(self, token: str) -> Any:
        """The error code that a commit was answered with; None while it waits."""
        answer = self.answers.get(token)
        return answer if answer is None or isinstance(answer, int) else answer.topics[0].partitions[0].error_code

    def _commit_encoded(self, token: str, request: OffsetCommitRequest, version: int) -> bool:
        """Commit as the node does with a plain request, if this is one."""
        if not self.commits_encoded or version < FIRST_ENCODED_VERSION or request.retention_time_ms >= 0:
            return False
        frame = b"".join(map(bytes, encode_request(8, version, 1, "c", request)))[4:]
        commit = PlainOffsetCommit.parse(frame, partitions_max=16)
        assert commit is not None
        if not self.shard.takes_metadata(commit.metadata_units_max):
            return False
        topics = [(topic.name, topic.topic_id) for topic in request.topics]
        each = ((topic.topic_id, part.partition_index) for topic in request.topics for part in topic.partitions)
        self.shard.commit_encoded_offsets(token, commit, topics, self.now_ms, partitions=each, api_version=version)
        return True


def two_classic_members(**config: Any) -> tuple[ClassicShard, str, str]:
    """A leader and a follower in a stable group of generation 2, with the assignments A and B."""
    h = ClassicShard(**config)
    a = h.stable()
    b = h.new_member("b")
    h.join("a2", a)
    h.sync("b2-sync", b, 2)
    h.sync("a2-sync", a, 2, {a: b"A", b: b"B"})
    assert (h.state, h.answers["a2"].leader) == ("Stable", a)
    return h, a, b
