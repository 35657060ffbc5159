"""The share coordinator's shard: requests, records and what becomes of failed appends."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from kraftlog.coordinator.effects import AppendRecords, CoordinatorRecord, Emit, Respond
from kraftlog.coordinator.share.share_key import ShareKey
from kraftlog.coordinator.share.state_batches import StateBatch, combine
from kraftlog.coordinator.share.state_shard import PruneLog, ShareStateConfig, ShareStateShard, StateWritten
from kraftlog.errors import ErrorCode
from kraftlog.runtime.coordinator.record_codec import encode_records
from kraftlog.types import Uuid
from kraftlog.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from kraftlog.wire.messages.share_coordinator_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from kraftlog.wire.messages.write_share_group_state import WriteShareGroupStateRequest
from kraftlog.wire.records import decode_coordinator_key, decode_coordinator_value, encode_coordinator_value

TOPIC = Uuid(b"t" * 16)
KEY = ShareKey("g", TOPIC, 0)
_Batch = WriteShareGroupStateRequest.StateBatch


class States:
    """A shard whose appends succeed, and the records they left."""

    def __init__(self, **config: int) -> None:
        self.topics = {TOPIC: 2}
        self.config = ShareStateConfig(**config)
        self.shard = self.make()
        self.shard.finish_loading(0)
        self.log: list[CoordinatorRecord] = []
        self.answers: list[Any] = []
        self.pruned: list[int] = []
        self.written: list[int | None] = []
        self.now_ms = 0
        self.held: list[AppendRecords] | None = None

    def make(self) -> ShareStateShard:
        return ShareStateShard(
            self.config,
            has_partition=lambda topic_id, index: index < self.topics.get(topic_id, 0),
            has_topic=lambda topic_id: topic_id in self.topics,
        )

    def run(self) -> Any:
        while effects := self.shard.take_effects():
            for effect in effects:
                if isinstance(effect, Respond):
                    self.answers.append(effect.response)
                elif isinstance(effect, Emit) and isinstance(effect.event, StateWritten):
                    self.written.append(effect.event.begun_ms)
                elif isinstance(effect, Emit):
                    assert isinstance(effect.event, PruneLog)
                    self.pruned.append(effect.event.offset)
                elif isinstance(effect, AppendRecords) and self.held is not None:
                    self.held.append(effect)
                elif isinstance(effect, AppendRecords):
                    self.finish(effect)
        return self.answers[-1] if self.answers else None

    def finish(self, append: AppendRecords, error_code: int = 0) -> None:
        if not error_code:
            self.log += [replace(record, offset=len(self.log)) for record in append.records]
        self.shard.on_appended(append.append_id, error_code, -1 if error_code else len(self.log) - 1)

    def initialize(self, epoch: int = 0, start: int = -1, key: ShareKey = KEY) -> int:
        request = InitializeShareGroupStateRequest.PartitionData(
            partition=key.partition, state_epoch=epoch, start_offset=start
        )
        self.shard.initialize("t", key, request, self.now_ms)
        code: int = self.run().error_code
        return code

    def write(self, *batches: tuple[int, int, int, int], key: ShareKey = KEY, **fields: int) -> Any:
        values = {"state_epoch": 0, "leader_epoch": 0, "start_offset": 0, "delivery_complete_count": 0} | fields
        request = WriteShareGroupStateRequest.PartitionData(
            partition=key.partition,
            **values,  # type: ignore[arg-type]
            state_batches=[
                _Batch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for first, last, state, count in batches
            ],
        )
        self.shard.write("t", key, request, self.now_ms)
        return self.run()

    def read(self, leader_epoch: int = -1, key: ShareKey = KEY) -> Any:
        self.shard.read("t", key, leader_epoch, self.now_ms)
        return self.run()

    def summary(self, key: ShareKey = KEY) -> Any:
        self.shard.summarize("t", key)
        return self.run()

    def delete(self, key: ShareKey = KEY) -> int:
        self.shard.delete("t", key, self.now_ms)
        code: int = self.run().error_code
        return code

    def reloaded(self) -> ShareStateShard:
        shard = self.make()
        for record in self.log:
            shard.replay(record, now_ms=self.now_ms)
        shard.finish_loading(self.now_ms)
        return shard


def _batches(answer: Any) -> list[tuple[int, int, int, int]]:
    return [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in answer.state_batches]


def test_requests_for_what_was_never_initialized_are_refused_and_the_summary_says_so() -> None:
    """SHGR-67, SHGR-71."""
    s = States()
    answer = s.write()
    assert (answer.error_code, "uninitialized" in answer.error_message) == (ErrorCode.INVALID_REQUEST, True)
    assert s.read().error_code == ErrorCode.INVALID_REQUEST
    assert (s.summary().error_code, s.summary().start_offset) == (0, -1)
    assert (s.delete(), s.log) == (0, [])


def test_partitions_that_do_not_exist_are_refused() -> None:
    """SHGR-70."""
    s = States()
    for key, code in (
        (KEY._replace(partition=-1), ErrorCode.INVALID_REQUEST),
        (KEY._replace(partition=2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (KEY._replace(topic_id=Uuid(b"x" * 16)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        assert s.initialize(key=key) == code
        assert s.write(key=key).error_code == code
        assert s.read(key=key).error_code == code
        assert s.summary(key=key).error_code == code
        assert s.delete(key=key) == code
    assert s.log == []


def test_older_epochs_are_fenced_and_minus_one_is_not_checked() -> None:
    """SHGR-68."""
    s = States()
    s.initialize(epoch=3)
    assert s.write(state_epoch=3, leader_epoch=5).error_code == 0
    assert s.write(state_epoch=3, leader_epoch=4).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert s.write(state_epoch=2, leader_epoch=5).error_code == ErrorCode.FENCED_STATE_EPOCH
    assert s.read(4).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert s.initialize(epoch=2) == ErrorCode.FENCED_STATE_EPOCH
    assert s.write(state_epoch=-1, leader_epoch=-1).error_code == 0
    assert s.read(-1).error_code == 0
    assert (s.summary().state_epoch, s.summary().leader_epoch) == (3, 5)


def test_a_read_with_another_leader_epoch_stores_it() -> None:
    """SHGR-69."""
    s = States()
    s.initialize()
    s.write((0, 4, 2, 1), leader_epoch=1, delivery_complete_count=5)
    written = len(s.log)
    answer = s.read(7)
    assert (answer.error_code, _batches(answer)) == (0, [(0, 4, 2, 1)])
    assert (len(s.log), s.summary().leader_epoch, s.summary().delivery_complete_count) == (written + 1, 7, 5)
    s.read(7)
    assert len(s.log) == written + 1
    assert s.written == [0, None], "the read that changed the epoch counts as a write without a request"


def test_initializing_again_replaces_the_state() -> None:
    """SHGR-72."""
    s = States()
    s.initialize(epoch=1, start=0)
    s.write((3, 4, 2, 1), state_epoch=1, start_offset=3)
    assert s.initialize(epoch=1, start=20) == 0
    answer = s.read()
    assert (answer.start_offset, answer.state_epoch, _batches(answer)) == (20, 1, [])
    assert isinstance(s.log[-1].value, ShareSnapshotValue)
    assert s.log[-1].value.snapshot_epoch == 1


def test_records_have_the_encoding_of_kafka() -> None:
    """SHGR-60."""
    s = States()
    s.initialize()
    s.write((0, 4, 2, 1), delivery_complete_count=5)
    assert s.delete() == 0
    for record, kind in zip(s.log, (0, 1, 0), strict=True):
        ((key, value),) = encode_records([record])
        assert key == kind.to_bytes(2, "big") + b"\0\1g" + TOPIC + bytes(4)
        assert decode_coordinator_key("share", key) == (kind, record.key)
        if value is not None:
            assert value[:2] == b"\0\0"
            assert encode_coordinator_value(decode_coordinator_value("share", kind, value)[1], 0) == value
    assert isinstance(s.log[1].value, ShareUpdateValue)
    ((_, update),) = encode_records([s.log[1]])
    assert update is not None
    assert update[-7:] == b"\1\0\4\0\0\0\5"
    assert s.log[2] == CoordinatorRecord(ShareSnapshotKey(group_id="g", topic_id=TOPIC, partition=0), None)
    assert s.reloaded().states == {}


def test_a_snapshot_follows_the_agreed_number_of_updates() -> None:
    """SHGR-61."""
    s = States(updates_per_snapshot=3)
    s.initialize()
    for offset in range(4):
        s.write((offset, offset, 2, 1))
    assert [type(record.key) for record in s.log] == [ShareSnapshotKey, *[ShareUpdateKey] * 3, ShareSnapshotKey]
    assert (s.log[-1].value.snapshot_epoch, s.reloaded().states) == (1, s.shard.states)  # type: ignore[union-attr]


def test_a_cold_partition_gets_one_snapshot() -> None:
    """SHGR-63."""
    s = States(cold_interval_ms=1_000)
    s.initialize()
    s.write((0, 0, 2, 1))
    for now_ms in (999, 1_000, 2_000, 3_000):
        s.now_ms = now_ms
        s.shard.handle_timeout(now_ms)
        s.run()
    assert [type(record.key) for record in s.log] == [ShareSnapshotKey, ShareUpdateKey, ShareSnapshotKey]
    assert _batches(s.read()) == [(0, 0, 2, 1)]


def test_share_partitions_go_with_their_topic() -> None:
    """SHGR-73."""
    s = States()
    s.initialize()
    s.initialize(key=KEY._replace(partition=1))
    del s.topics[TOPIC]
    s.shard.forget_topics({"t": TOPIC})
    s.run()
    assert [record.value for record in s.log[-2:]] == [None, None]
    assert s.reloaded().states == s.shard.states == {}


def test_what_cannot_be_stored_is_forgotten_and_the_rest_stays() -> None:
    s = States()
    s.initialize()
    s.held = []
    s.write((0, 0, 2, 1))
    s.write((1, 1, 2, 1))
    s.finish(s.held[0], ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert s.run().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    s.finish(s.held[1])
    assert s.run().error_code == 0
    s.held = None
    assert _batches(s.read()) == [(1, 1, 2, 1)]
    assert s.reloaded().states == s.shard.states


# -- merging -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("current", "newer", "start", "merged"),
    [
        ([(0, 9, 0, 1)], [(3, 5, 2, 1)], -1, [(0, 2, 0, 1), (3, 5, 2, 1), (6, 9, 0, 1)]),
        ([(0, 4, 2, 1)], [(5, 9, 2, 1)], -1, [(0, 9, 2, 1)]),
        ([(0, 9, 0, 2)], [(0, 9, 4, 1)], -1, [(0, 9, 0, 2)]),
        ([(0, 9, 2, 1)], [(8, 12, 0, 3)], 5, [(5, 7, 2, 1), (8, 12, 0, 3)]),
        ([(0, 4, 2, 1)], [], 5, []),
    ],
)
def test_the_newer_state_of_each_offset_wins(
    current: list[tuple[int, int, int, int]],
    newer: list[tuple[int, int, int, int]],
    start: int,
    merged: list[tuple[int, int, int, int]],
) -> None:
    """SHGR-64."""
    found = combine([StateBatch(*batch) for batch in current], [StateBatch(*batch) for batch in newer], start)
    assert list(found) == [StateBatch(*batch) for batch in merged]


def test_merging_equals_a_state_for_each_offset() -> None:
    """SHGR-64."""
    rng = random.Random(34)
    for _ in range(300):
        batches = []
        for _ in range(rng.randrange(8)):
            first = rng.randrange(30)
            batches.append(StateBatch(first, first + rng.randrange(10), rng.choice((0, 2, 4)), rng.randrange(1, 4)))
        start = rng.randrange(-1, 20)
        expected: dict[int, tuple[int, int]] = {}
        for batch in batches:
            for offset in range(max(batch.first, start), batch.last + 1):
                expected[offset] = max(expected.get(offset, (0, 0)), (batch.delivery_count, batch.state))
        split = rng.randrange(len(batches) + 1)
        merged = combine(batches[:split], batches[split:], start)
        found = {
            offset: (batch.delivery_count, batch.state)
            for batch in merged
            for offset in range(batch.first, batch.last + 1)
        }
        assert found == expected
        for before, after in pairwise(merged):
            assert before.last < after.first
            assert (before.last + 1, before.state, before.delivery_count) != (
                after.first,
                after.state,
                after.delivery_count,
            )


def test_records_below_the_oldest_last_snapshot_are_pruned() -> None:
    """SHGR-62; a reloaded shard prunes the same, and nothing twice."""
    s = States(prune_interval_ms=1_000, updates_per_snapshot=2)
    other = KEY._replace(partition=1)

    def pruned() -> list[int]:
        again = s.reloaded()
        s.now_ms += 1_000
        s.pruned.clear()
        s.shard.handle_timeout(s.now_ms)
        s.run()
        again.handle_timeout(s.now_ms)
        from_log = [effect.event.offset for effect in again.take_effects() if isinstance(effect, Emit)]
        assert s.pruned in ([], from_log)
        return list(s.pruned)

    assert pruned() == []
    s.initialize()  # offset 0
    s.initialize(key=other)  # 1
    assert pruned() == []
    for _ in range(3):  # 2 and 3 are updates, 4 is a snapshot
        s.write()
    assert [type(record.value) for record in s.log[2:]] == [ShareUpdateValue, ShareUpdateValue, ShareSnapshotValue]
    assert pruned() == [1]
    assert pruned() == []
    s.initialize(key=other)  # 5
    assert pruned() == [4]
    s.held = []
    s.initialize(epoch=1)
    assert pruned() == [], "a snapshot counts when it is committed"
    s.finish(s.held[0], int(ErrorCode.NOT_COORDINATOR))
    s.held = None
    assert pruned() == []
    s.delete()  # 6
    assert pruned() == [5]
    s.delete(other)  # 7
    assert pruned() == [8]


def test_a_prune_interval_of_its_own_is_a_time_out() -> None:
    s = States(prune_interval_ms=70, cold_interval_ms=100)
    assert s.shard.next_timeout_ms() == 70
    s.shard.handle_timeout(70)
    assert s.shard.next_timeout_ms() == 100
