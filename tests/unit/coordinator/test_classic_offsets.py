"""Offsets of classic and simple groups: commit, expiration, deletion, records and loading, with plain values."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from classic_fixture import ORDERS_ID, SUBSCRIPTION, ClassicShard, protocols, two_classic_members
from kraftlog._kraftlog import encode_batch
from kraftlog.coordinator.effects import CoordinatorRecord, TransactionEnd
from kraftlog.errors import ErrorCode, KafkaError, KraftlogError
from kraftlog.runtime.coordinator.record_codec import GroupRecordReader, encode_records
from kraftlog.runtime.coordinator.shard_runner import _append_error
from kraftlog.types import Uuid
from kraftlog.wire.messages.group_coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kraftlog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from kraftlog.wire.records import encode_coordinator_key, encode_coordinator_value

DAY_MS = 24 * 3_600_000


@pytest.fixture(params=[False, True], ids=["decoded", "encoded"], autouse=True)
def _way_of_commits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that stay bytes are answered as those that are decoded."""
    monkeypatch.setattr(ClassicShard, "commits_encoded", request.param)


def groups(h: ClassicShard) -> list[str]:
    return [group.group_id for group in h.shard.list_groups()]


def held(h: ClassicShard) -> dict[tuple[str, int], int]:
    return {key: committed.offset for key, committed in h.shard.committed("g").items()}


@pytest.mark.spec("CGRP-07")
def test_append_errors_as_clients_hear_them() -> None:
    heard = {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
        ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
    assert {code: _append_error(KafkaError(code)) for code in heard} == heard


@pytest.mark.spec("CGRP-60", "CGRP-61")
def test_a_commit_without_group() -> None:
    h = ClassicShard()
    fields = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    assert h.commit("c1", version=8, **fields) == ErrorCode.ILLEGAL_GENERATION
    assert h.commit("c2", version=9, **fields) == ErrorCode.GROUP_ID_NOT_FOUND
    assert groups(h) == []
    assert h.commit("c3") == 0
    (group,) = h.shard.list_groups()
    assert (group.group_id, group.protocol_type, group.group_state) == ("g", "", "Empty")


def test_a_commit_that_cannot_be_stored_makes_no_group() -> None:
    h = ClassicShard()
    h.append_error = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert h.commit("c") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert groups(h) == []
    assert held(h) == {}


@pytest.mark.spec("CGRP-62", "CGRP-63")
def test_who_may_commit_in_which_state() -> None:
    h, a, b = two_classic_members()
    assert h.commit("c1") == ErrorCode.UNKNOWN_MEMBER_ID, "neither member id nor generation"
    assert h.commit("c2", generation_id_or_member_epoch=2, member_id="x") == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.commit("c3", generation_id_or_member_epoch=1, member_id=a) == ErrorCode.ILLEGAL_GENERATION
    fields = {"generation_id_or_member_epoch": 2, "group_instance_id": "i"}
    assert h.commit("c4", member_id=a, **fields) == ErrorCode.UNKNOWN_MEMBER_ID
    h.join("a3", a)
    assert h.commit("c5", generation_id_or_member_epoch=2, member_id=b) == 0, "in PreparingRebalance"
    h.join("b3", b)
    assert h.state == "CompletingRebalance"
    assert h.commit("c6", generation_id_or_member_epoch=3, member_id=b) == ErrorCode.REBALANCE_IN_PROGRESS
    h.leave((a, None), (b, None))
    assert (h.state, h.commit("c7")) == ("Empty", 0)


@pytest.mark.spec("TXNC-57")
def test_who_may_commit_in_a_transaction() -> None:
    h = ClassicShard()
    assert h.commit_in_transaction("none", generation_id=0, member_id="x") == ErrorCode.ILLEGAL_GENERATION
    h, a, b = two_classic_members()
    assert h.commit_in_transaction("t1", generation_id=2, member_id="x") == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.commit_in_transaction("t2", generation_id=1, member_id=a) == ErrorCode.ILLEGAL_GENERATION
    assert h.commit_in_transaction("t3", generation_id=-1) == 0, "no member is named, and none is checked"
    h.join("a3", a)
    assert h.commit_in_transaction("t4", generation_id=2, member_id=b) == 0, "in PreparingRebalance"
    h.join("b3", b)
    assert h.state == "CompletingRebalance"
    assert h.commit_in_transaction("t5", generation_id=3, member_id=b) == 0, "never REBALANCE_IN_PROGRESS"
    h = ClassicShard()
    member_id = h.join("a", group_instance_id="i").member_id
    h.sync("s", member_id, 1, {})
    fields = {"generation_id": 1, "group_instance_id": "i"}
    assert h.commit_in_transaction("i1", member_id="other", **fields) == ErrorCode.FENCED_INSTANCE_ID
    assert h.commit_in_transaction("i2", member_id=member_id, **fields) == 0


@pytest.mark.spec("CGRP-63")
def test_a_commit_of_an_instance_that_another_member_holds_is_fenced() -> None:
    h = ClassicShard()
    member_id = h.join("a", group_instance_id="i").member_id
    h.sync("s", member_id, 1, {})
    fields = {"generation_id_or_member_epoch": 1, "group_instance_id": "i"}
    assert h.commit("c1", member_id="other", **fields) == ErrorCode.FENCED_INSTANCE_ID
    assert h.commit("c2", member_id=member_id, **fields) == 0


@pytest.mark.spec("CGRP-67", "CGRP-93")
def test_an_offset_with_its_own_retention_expires_by_it() -> None:
    h = ClassicShard(offsets_retention_ms=DAY_MS, offsets_retention_check_interval_ms=1_000)
    assert h.commit("c1", retention_time_ms=5_000, version=4) == 0
    assert h.commit("c2", partition=1) == 0
    assert [(record.value_version, record.value.expire_timestamp) for record in h.log] == [(1, 5_000), (4, -1)]
    assert h.log[1].value.topic_id == ORDERS_ID
    h.advance(4_999)
    assert held(h).keys() == {("orders", 0), ("orders", 1)}
    h.advance(1_000)
    assert held(h).keys() == {("orders", 1)}
    h.advance(DAY_MS)
    assert held(h) == {}


@pytest.mark.spec("CGRP-77")
def test_offsets_of_a_group_expire_after_the_time_that_it_was_empty() -> None:
    h = ClassicShard(offsets_retention_ms=DAY_MS, offsets_retention_check_interval_ms=1_000)
    a = h.stable()
    member = {"generation_id_or_member_epoch": 1, "member_id": a}
    h.commit("c1", **member)
    for _ in range(DAY_MS // 9_000 + 1):
        h.advance(9_000)
        h.heartbeat(a, 1)
    assert held(h) == {("orders", 0): 5}, "the group has members"
    h.leave((a, None))
    h.advance(DAY_MS - 1)
    assert held(h) == {("orders", 0): 5}
    h.commit("c2", partition=1)
    h.advance(1_000)
    assert held(h) == {}, "counted from the time when the group became empty, not from the commit"


@pytest.mark.spec("CGRP-78")
def test_a_stable_group_of_consumers_keeps_the_offsets_of_its_topics() -> None:
    h = ClassicShard(
        offsets_retention_ms=1_000, offsets_retention_check_interval_ms=100, group_max_session_timeout_ms=10**9
    )
    fields: dict[str, Any] = {"session_timeout_ms": 10**9, "rebalance_timeout_ms": 10**9}
    a = h.join("a-id", **fields).member_id
    h.join("a", a, **fields)
    h.sync("s", a, 1, {})
    member = {"generation_id_or_member_epoch": 1, "member_id": a}
    h.commit("c1", **member)
    h.commit("c2", topic="other", **member)
    h.advance(999)
    assert len(held(h)) == 2
    h.join("a2", a, **fields)
    assert h.state == "CompletingRebalance"
    h.advance(5_000)
    assert len(held(h)) == 2, "nothing expires in a rebalance"
    h.sync("s2", a, 2, {})
    h.advance(100)
    assert held(h).keys() == {("orders", 0)}


@pytest.mark.spec("CGRP-79", "CGRP-81")
def test_a_simple_group_expires_by_the_time_of_its_commits_and_goes_with_the_last() -> None:
    h = ClassicShard(offsets_retention_ms=DAY_MS, offsets_retention_check_interval_ms=1_000)
    h.commit("c1")
    h.advance(DAY_MS // 2)
    h.commit("c2", partition=1)
    h.advance(DAY_MS // 2)
    assert held(h).keys() == {("orders", 1)}
    assert groups(h) == ["g"]
    h.advance(DAY_MS // 2)
    assert (held(h), groups(h)) == ({}, [])
    assert [(type(record.key), record.value) for record in h.log[-2:]] == [
        (OffsetCommitKey, None),
        (GroupMetadataKey, None),
    ]


@pytest.mark.spec("CGRP-80")
def test_a_pending_offset_keeps_the_offset_and_the_group() -> None:
    h = ClassicShard(offsets_retention_ms=DAY_MS, offsets_retention_check_interval_ms=1_000)
    h.commit("c1")
    h.commit("c2", partition=1)
    assert h.commit_in_transaction("t") == 0
    h.advance(DAY_MS + 1_000)
    assert held(h).keys() == {("orders", 0)}
    h.shard.replay(TransactionEnd(77, is_commit=False), now_ms=h.now_ms)
    h.advance(1_000)
    assert (held(h), groups(h)) == ({}, [])


def test_an_offset_on_its_way_to_the_log_is_not_expired_with_the_one_before() -> None:
    # The check saw only what was committed, and its tombstone came after the new offset.
    h = ClassicShard(offsets_retention_ms=DAY_MS, offsets_retention_check_interval_ms=1_000)
    h.commit("c1")
    h.advance(DAY_MS - 500)
    h.held = []
    h.commit("c2", offset=6)
    h.advance(2_000)
    (append,) = h.held
    h.held = None
    h.shard.on_appended(append.append_id, 0)
    h.run()
    assert h.commit_code("c2") == 0
    assert held(h) == {("orders", 0): 6}


@pytest.mark.parametrize("error_code", [0, int(ErrorCode.NOT_LEADER_OR_FOLLOWER)])
def test_a_deleted_group_does_not_stay_for_a_commit_before_its_deletion(error_code: int) -> None:
    h = ClassicShard()
    h.commit("c1")
    h.held = []
    h.commit("c2", offset=6)
    h.shard.delete_group("d", "g", h.now_ms)
    h.run()
    h.commit("c3", offset=7)
    before, deletion, behind = h.held
    h.held = None
    h.shard.on_appended(before.append_id, 0)
    h.shard.on_appended(deletion.append_id, 0)
    h.run()
    assert groups(h) == [], "the commit behind the deletion is not stored yet"
    h.shard.on_appended(behind.append_id, error_code)
    h.run()
    assert groups(h) == ([] if error_code else ["g"])
    assert held(h) == ({} if error_code else {("orders", 0): 7})


@pytest.mark.spec("CGRP-82")
def test_a_deleted_topic_takes_offsets_of_its_id_or_of_none_with_it() -> None:
    h = ClassicShard()
    other_id = Uuid(b"\x07" * 16)
    h.commit("c1")
    h.commit("c2", partition=1, topic_id=Uuid.ZERO)
    h.commit("c3", partition=2, topic_id=other_id)
    h.commit("c4", topic="kept")
    h.commit_in_transaction("t", partition=3)
    h.shard.forget_topics({"orders": ORDERS_ID})
    h.run()
    assert held(h).keys() == {("orders", 2), ("kept", 0)}
    assert h.shard.pending("g") == frozenset()
    h.shard.replay(TransactionEnd(77, is_commit=True), now_ms=0)
    assert held(h).keys() == {("orders", 2), ("kept", 0)}


@pytest.mark.spec("CGRP-83")
def test_only_an_empty_group_is_deleted() -> None:
    h, a, b = two_classic_members()
    h.commit("c", generation_id_or_member_epoch=2, member_id=a)
    assert h.delete_group("d1") == ErrorCode.NON_EMPTY_GROUP
    h.join("a3", a)
    assert h.delete_group("d2") == ErrorCode.NON_EMPTY_GROUP
    h.leave((a, None), (b, None))
    assert h.delete_group("d3") == 0
    assert (held(h), groups(h)) == ({}, [])
    assert h.delete_group("d4") == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_member_that_joins_while_its_group_is_deleted_starts_a_new_one() -> None:
    h = ClassicShard()
    h.commit("c")
    h.held = []
    h.shard.delete_group("d", "g", h.now_ms)
    member_id = h.join("t").member_id
    for append in h.held:
        h.shard.on_appended(append.append_id, 0)
    h.held = None
    h.run()
    assert h.answers["d"].error_code == 0
    assert h.join("t2", member_id).error_code == 0


def test_a_group_whose_deletion_cannot_be_stored_is_back() -> None:
    h = ClassicShard()
    h.commit("c")
    h.append_error = int(ErrorCode.NOT_COORDINATOR)
    assert h.delete_group("d") == ErrorCode.NOT_COORDINATOR
    assert (groups(h), held(h)) == (["g"], {("orders", 0): 5})


@pytest.mark.spec("CGRP-84")
def test_offsets_of_an_empty_group_are_deleted_also_where_none_was() -> None:
    h = ClassicShard()
    assert h.delete_offsets("d1", "orders").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    h.commit("c")
    h.commit_in_transaction("t", partition=0)
    answer = h.delete_offsets("d2", "orders", "never")
    assert (answer.error_code, [t.partitions[0].error_code for t in answer.topics]) == (0, [0, 0])
    assert (held(h), h.shard.pending("g")) == ({}, frozenset())


@pytest.mark.spec("CGRP-85")
@pytest.mark.parametrize(
    ("protocol_type", "metadata", "top", "codes"),
    [
        ("consumer", SUBSCRIPTION, 0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0]),
        ("consumer", b"?", 0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * 2),
        ("connect", b"?", ErrorCode.NON_EMPTY_GROUP, []),
    ],
)
def test_offsets_that_an_active_group_may_need_stay(
    protocol_type: str, metadata: bytes, top: int, codes: list[int]
) -> None:
    h = ClassicShard()
    a = h.join("a", version=3, protocol_type=protocol_type, **protocols(("range", metadata))).member_id
    h.sync("s", a, 1, {})
    for number, topic in enumerate(("orders", "other")):
        h.commit(f"c{number}", topic=topic, generation_id_or_member_epoch=1, member_id=a)
    answer = h.delete_offsets("d", "orders", "other")
    assert (answer.error_code, [t.partitions[0].error_code for t in answer.topics]) == (top, codes)
    kept = [topic for topic, code in zip(("orders", "other"), codes or [1, 1], strict=True) if code]
    assert [topic for topic, _ in held(h)] == kept


@pytest.mark.spec("CGRP-92")
def test_the_record_of_a_group() -> None:
    h, a, b = two_classic_members()
    record = h.log[-1]
    (encoded,) = encode_records([record])
    assert encoded[0] == b"\x00\x02\x00\x01g"
    assert (record.value_version, encoded[1][:2]) == (3, b"\x00\x03")
    value = record.value
    assert (value.protocol_type, value.generation, value.protocol, value.leader) == ("consumer", 2, "range", a)
    assert value.current_state_timestamp == 0
    member = value.members[1]
    assert (member.member_id, member.group_instance_id, member.rebalance_timeout, member.session_timeout) == (
        *(b, None),
        *(30_000, 10_000),
    )
    assert (member.subscription, member.assignment) == (SUBSCRIPTION, b"B")


def batch(*records: tuple[bytes | None, bytes | None]) -> bytes:
    return bytes(encode_batch([(0, key, value, ()) for key, value in records]))


@pytest.mark.spec("CGRP-92", "CGRP-93")
def test_newer_values_and_the_oldest_keys_are_read() -> None:
    group = GroupMetadataValue(
        protocol_type="consumer", generation=4, protocol="range", leader=None, current_state_timestamp=7, members=()
    )
    old_key = LegacyOffsetCommitKey(group="g", topic="orders", partition=2)
    offset = OffsetCommitValue(offset=8, metadata="", commit_timestamp=1)
    data = batch(
        (encode_coordinator_key(GroupMetadataKey(group="g")), encode_coordinator_value(group, 4)),
        (encode_coordinator_key(old_key), encode_coordinator_value(offset, 0)),
    )
    records, next_offset = GroupRecordReader.read(data)
    assert next_offset == 2
    h = ClassicShard()
    for record in records:
        h.shard.replay(record, now_ms=0)
    assert held(h) == {("orders", 2): 8}
    assert h.described().protocol_type == "consumer"


@pytest.mark.spec("CGRP-95")
@pytest.mark.parametrize("is_commit", [True, False])
def test_loaded_offsets_of_a_transaction_wait_for_their_marker(is_commit: bool) -> None:
    h = ClassicShard()
    h.commit("c1", offset=1)
    h.commit_in_transaction("t1", 2)
    h.commit_in_transaction("t2", 3, partition=1)
    h.commit("c2", offset=4, partition=1)
    other = h.reloaded()
    assert held(other) == {("orders", 0): 1, ("orders", 1): 4}
    assert other.shard.pending("g") == {("orders", 0), ("orders", 1)}
    other.shard.replay(TransactionEnd(77, is_commit=is_commit), now_ms=0)
    assert held(other) == {("orders", 0): 2 if is_commit else 1, ("orders", 1): 4}
    assert other.shard.pending("g") == frozenset()


@pytest.mark.spec("CGRP-96")
def test_unknown_records_are_skipped_with_a_warning_and_broken_ones_end_the_load(
    caplog: pytest.LogCaptureFixture,
) -> None:
    known = CoordinatorRecord(OffsetCommitKey(group="g", topic="t", partition=0), None)
    with caplog.at_level(logging.WARNING):
        records, _ = GroupRecordReader.read(batch((b"\x7f\xff?", b"?"), *encode_records([known])))
    assert records == [known]
    assert "offset 0" in caplog.text
    with pytest.raises(KraftlogError):
        GroupRecordReader.read(batch((encode_records([known])[0][0], b"\x00\x04\x00")))


@pytest.mark.spec("CGRP-97")
def test_a_loaded_group_is_stable_and_every_session_starts_anew() -> None:
    h, a, b = two_classic_members()
    h.advance(9_000)
    other = h.reloaded()
    assert other.state == "Stable"
    other.advance(9_999)
    assert (other.heartbeat(a, 2), len(other.described().members)) == (0, 2)
    other.advance(1)
    assert [m.member_id for m in other.described().members] == [a]
    assert other.heartbeat(b, 2) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.spec("LEPO-63")
@pytest.mark.parametrize("leader_epoch", [4, 0, -1])
def test_leader_epoch_of_a_commit_is_stored_and_read_again(leader_epoch: int) -> None:
    h = ClassicShard()
    assert h.commit("c", leader_epoch=leader_epoch) == 0
    record = h.log[-1]
    ((_, value),) = encode_records([record])
    assert (record.value_version >= 3, value[:2]) == (True, record.value_version.to_bytes(2, "big"))
    assert record.value.leader_epoch == leader_epoch
    for shard in (h.shard, h.reloaded().shard):
        committed = shard.committed("g")["orders", 0]
        assert (committed.offset, committed.leader_epoch) == (5, leader_epoch)


@pytest.mark.spec("TXNC-59")
def test_offset_of_a_transaction_with_too_much_metadata_fails_alone() -> None:
    h = ClassicShard()
    assert h.commit_in_transaction("long", metadata="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert h.shard.pending("g") == frozenset()
    parts = [
        TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=9, committed_metadata="x" * size
        )
        for index, size in enumerate((4097, 4096))
    ]
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="orders", partitions=parts)
    request = TxnOffsetCommitRequest(
        transactional_id="t", group_id="g", producer_id=77, producer_epoch=0, topics=[topic]
    )
    h.shard.commit_transactional_offsets("both", request, h.now_ms)
    h.run()
    codes = [part.error_code for part in h.answers["both"].topics[0].partitions]
    assert codes == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert h.shard.pending("g") == {("orders", 1)}
