"""Committed offsets under any order of commits, deletions, failed appends and restarts, against a plain dictionary."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from group_fixture import make_group_shard
from kraftlog.coordinator.effects import AppendRecords, CoordinatorRecord, Respond
from kraftlog.coordinator.group.group_shard import GroupShard
from kraftlog.errors import ErrorCode
from kraftlog.runtime.coordinator.record_codec import decode_group_record, encode_records
from kraftlog.types import Uuid
from kraftlog.wire.messages.group_coordinator_records import GroupMetadataKey
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest
from kraftlog.wire.messages.offset_delete import OffsetDeleteRequest

GROUPS = st.sampled_from(["a", "b"])
TOPICS = st.sampled_from(["t", "u"])
PARTITIONS = st.integers(0, 2)


class Offsets(RuleBasedStateMachine):
    """The log is a list of encoded records; appends wait until the disk rule says what became of them."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.waiting: list[AppendRecords] = []
        self.answers: dict[int, object] = {}
        self.next_token = 0
        self.now_ms = 1_000
        self.model: dict[str, dict[tuple[str, int], int]] = {"a": {}, "b": {}}
        self.shard = self.new_shard()

    def new_shard(self) -> GroupShard:
        shard = make_group_shard()
        for key, value in self.log:
            for record in decode_group_record(key, value):
                shard.replay(record, now_ms=self.now_ms)
        shard.finish_loading(self.now_ms)
        return shard

    def token(self) -> int:
        self.next_token += 1
        return self.next_token

    def drain(self) -> None:
        for effect in self.shard.take_effects():
            if isinstance(effect, Respond):
                assert effect.token not in self.answers, "answered twice"
                self.answers[effect.token] = effect.response
            else:
                self.waiting.append(effect)

    @rule(group=GROUPS, topic=TOPICS, partition=PARTITIONS, offset=st.integers(0, 2**63 - 1))
    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        one = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[one])]
        self.shard.commit_offsets(self.token(), OffsetCommitRequest(group_id=group, topics=topics), self.now_ms)
        self.drain()

    @rule(group=GROUPS, topic=TOPICS, partition=PARTITIONS)
    def delete(self, group: str, topic: str, partition: int) -> None:
        one = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=partition)
        topics = [OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic, partitions=[one])]
        self.shard.delete_offsets(self.token(), OffsetDeleteRequest(group_id=group, topics=topics))
        self.drain()

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        self.shard.delete_group(self.token(), group, 0)
        self.drain()

    @rule(topic=TOPICS)
    def forget_topic(self, topic: str) -> None:
        self.shard.forget_topics({topic: Uuid.ZERO})
        self.drain()

    @rule(count=st.integers(1, 5))
    def disk_takes(self, count: int) -> None:
        """The oldest appends are committed, in order."""
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        for append in taken:
            self.log += encode_records(append.records)
            for record in append.records:
                self.apply(record)
            self.shard.on_appended(append.append_id, ErrorCode.NONE)
            self.drain()

    @rule()
    def disk_refuses_the_last(self) -> None:
        """The newest append fails; those before it are still on their way."""
        if self.waiting:
            append = self.waiting.pop()
            self.shard.on_appended(append.append_id, ErrorCode.NOT_COORDINATOR)
            self.drain()

    @rule()
    def restart(self) -> None:
        """What was not committed is gone; nobody is answered about it any more."""
        self.waiting.clear()
        self.shard = self.new_shard()

    def apply(self, record: CoordinatorRecord) -> None:
        if isinstance(record.key, GroupMetadataKey):
            return
        offsets = self.model[record.key.group]
        key = (record.key.topic, record.key.partition)
        if record.value is None:
            offsets.pop(key, None)
        else:
            offsets[key] = record.value.offset

    @invariant()
    def what_is_read_is_what_is_committed(self) -> None:
        for group, offsets in self.model.items():
            found = {key: committed.offset for key, committed in self.shard.committed(group).items()}
            assert found == offsets


TestOffsets = Offsets.TestCase
TestOffsets.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
