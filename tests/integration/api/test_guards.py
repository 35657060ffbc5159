"""What guards judge beyond one request: sessions, regular expressions, changes of ACLs while a client works."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import kraftlog
from guarded_node import GUARDED, GuardedNode, fetch
from kraftlog._kraftlog import encode_batch
from kraftlog.errors import ErrorCode
from kraftlog.security.operation import Operation, ResourceKind
from kraftlog.types import Uuid
from kraftlog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from kraftlog.wire.messages.metadata import MetadataRequest
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest
from kraftlog.wire.messages.produce import ProduceRequest
from kraftlog.wire.messages.share_fetch import ShareFetchRequest
from kraftlog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")

READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
TOPIC, GROUP = ResourceKind.TOPIC, ResourceKind.GROUP


@pytest.fixture(params=["native", "python"])
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[GuardedNode]:
    settings = {**GUARDED, "auto_create_topics_enable": True, "kraftlog_data_path": request.param}
    with kraftlog.Broker(tmp_path, **settings) as broker:
        made = GuardedNode(broker)
        yield made
        made.close()


def test_a_revoked_acl_ends_what_a_consumer_fetches(node: GuardedNode) -> None:
    """A consumer has no session of the event loop, so that each of its fetches is judged."""
    node.create("a", "b")
    assert node.produce(node.operator, "a") == 0
    node.grant(READ, TOPIC, "a")
    first = node.stranger.call(fetch(node.ids["a"]), 13)
    assert first.session_id == 0
    assert first.responses[0].partitions[0].records
    node.revoke(TOPIC, "a")
    (partition,) = node.stranger.call(fetch(node.ids["a"]), 13).responses[0].partitions
    assert (partition.error_code, bytes(partition.records or b"")) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"")


def test_the_session_of_another_client_gives_nothing(node: GuardedNode) -> None:
    node.create("a")
    assert node.produce(node.operator, "a") == 0
    for session_id in (1, 2, 12345):
        answer = node.stranger.call(fetch(Uuid.ZERO, session_id=session_id, epoch=1, named=False), 13)
        assert (answer.error_code, list(answer.responses)) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])


def test_allowed_and_refused_topics_of_one_request_each_get_their_answer(node: GuardedNode) -> None:
    node.create("a", "b")
    node.grant(WRITE, TOPIC, "a")
    data = ProduceRequest.PartitionProduceData(index=0, records=encode_batch([(1_000, None, b"v", [])]))
    topics = [ProduceRequest.TopicProduceData(name=name, partition_data=[data]) for name in ("b", "a")]
    answer = node.stranger.call(ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=topics), 11)
    codes = {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}
    assert codes == {"a": 0, "b": ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def test_without_acknowledgement_a_refusal_closes_the_connection(node: GuardedNode) -> None:
    node.create("a")
    node.produce(node.stranger, "a", acks=0)
    assert node.stranger.is_closed_by_peer()


def test_topics_that_may_not_be_described_are_not_shown_and_not_created(node: GuardedNode) -> None:
    node.create("a", "b")
    node.grant(DESCRIBE, TOPIC, "a")
    node.grant(DESCRIBE, TOPIC, "new")
    assert [topic.name for topic in node.stranger.call(MetadataRequest(topics=None), 12).topics] == ["a"]
    asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in ("a", "b", "new", "other")]
    answer = node.stranger.call(MetadataRequest(topics=asked, allow_auto_topic_creation=True), 12)
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert {topic.name: topic.error_code for topic in answer.topics} == {
        "a": 0,
        "b": refused,
        "new": refused,
        "other": refused,
    }
    assert {topic.name: topic.topic_id for topic in answer.topics}["b"] == Uuid.ZERO
    everything = node.operator.call(MetadataRequest(topics=None), 12).topics
    assert {"a", "b"} <= {topic.name for topic in everything}
    assert not {"new", "other"} & {topic.name for topic in everything}


def test_a_regular_expression_finds_only_topics_that_its_member_may_describe(node: GuardedNode) -> None:
    """NGRP-31."""
    node.create("ta", "tb")
    node.grant(DESCRIBE, TOPIC, "ta")
    node.grant(READ, GROUP, "g")
    node.operator.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    member = {"group_id": "g", "member_id": "m-1"}
    joining = ConsumerGroupHeartbeatRequest(
        **member, member_epoch=0, rebalance_timeout_ms=5_000, subscribed_topic_regex="t.*", topic_partitions=[]
    )
    deadline = time.monotonic() + 30
    answer = node.stranger.call(joining, 1)
    found: set[Uuid] = set()
    while not found:
        assert time.monotonic() < deadline, answer
        assert answer.error_code in (0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if answer.error_code:
            answer = node.stranger.call(joining, 1)
            continue
        if answer.assignment is not None:
            found = {topic.topic_id for topic in answer.assignment.topic_partitions}
        time.sleep(0.05)
        answer = node.stranger.call(ConsumerGroupHeartbeatRequest(**member, member_epoch=answer.member_epoch), 1)
    assert found == {node.ids["ta"]}


def test_a_share_session_ends_with_the_acl_of_its_topic(node: GuardedNode) -> None:
    node.create("a")
    node.grant(READ, TOPIC, "a")
    node.grant(READ, GROUP, "s")
    node.operator.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["s"]))
    member = str(Uuid(b"a-share-member-x"))
    joining = ShareGroupHeartbeatRequest(group_id="s", member_id=member, subscribed_topic_names=["a"])
    deadline = time.monotonic() + 30
    while (code := node.stranger.call(joining, 1).error_code) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert code == 0
    partition = ShareFetchRequest.FetchPartition(partition_index=0)
    topic = ShareFetchRequest.FetchTopic(topic_id=node.ids["a"], partitions=[partition])
    limits = {"group_id": "s", "member_id": member, "max_bytes": 1 << 20, "max_records": 10, "batch_size": 10}
    first = node.stranger.call(ShareFetchRequest(**limits, topics=[topic]), 1)
    assert first.error_code == 0
    assert first.responses[0].partitions[0].error_code == 0
    assert node.produce(node.operator, "a") == 0
    node.revoke(TOPIC, "a")
    second = node.stranger.call(ShareFetchRequest(**limits, share_session_epoch=1, max_wait_ms=100), 1)
    (found,) = second.responses[0].partitions
    assert (found.error_code, list(found.acquired_records)) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])


def test_a_plain_commit_is_judged_like_others(node: GuardedNode) -> None:
    """CGRP-09: the way that answers plain commits from their bytes is not taken."""
    node.create("a")
    node.operator.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="a", partitions=[partition])
    answer = node.stranger.call(OffsetCommitRequest(group_id="g", topics=[topic]), 9)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    node.grant(READ, GROUP, "g")
    answer = node.stranger.call(OffsetCommitRequest(group_id="g", topics=[topic]), 9)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
