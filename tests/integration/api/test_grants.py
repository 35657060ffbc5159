"""A node with an authorizer whose I/O threads own the sockets: what they answer, and when they stop to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kraftlog
from guarded_node import GUARDED, STRANGER, GuardedNode, fetch
from kraftlog._kraftlog import encode_batch
from kraftlog.errors import ErrorCode
from kraftlog.security.operation import Operation, Permission, ResourceKind
from kraftlog.security.principal import ANONYMOUS
from kraftlog.transport.native_connection import NativeConnection
from kraftlog.types import Uuid
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.produce import ProduceRequest
from raw_client import RawClient

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")

READ, WRITE, TOPIC = Operation.READ, Operation.WRITE, ResourceKind.TOPIC
PRODUCE, FETCH = 0, 1
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def handed_over(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """API keys of the Produce and Fetch requests that came to the event loop."""
    keys: list[int] = []
    frame_received: Callable[..., None] = NativeConnection.frame_received

    def counted(connection: NativeConnection, number: int, frame: bytes | memoryview) -> None:
        key = int.from_bytes(frame[:2], "big")
        if key in {PRODUCE, FETCH}:
            keys.append(key)
        frame_received(connection, number, frame)

    monkeypatch.setattr(NativeConnection, "frame_received", counted)
    return keys


@pytest.fixture
def node(tmp_path: Path, handed_over: list[int]) -> Iterator[GuardedNode]:
    settings = {**GUARDED, "kraftlog_data_path": "native", "kraftlog_follower_fetches": "native"}
    with kraftlog.Broker(tmp_path, log_flush_on_ack=False, **settings) as broker:
        made = GuardedNode(broker)
        made.create("a", "b")
        del handed_over[:]
        yield made
        made.close()


def read(client: RawClient, topic_id: Uuid, **session: Any) -> tuple[int, int, int, bytes]:
    """Error code and session id of a fetch, then error code and records of its partition if it is answered."""
    answer = client.call(fetch(topic_id, **session), 13)
    if not answer.responses:
        return answer.error_code, answer.session_id, 0, b""
    partition = answer.responses[0].partitions[0]
    return answer.error_code, answer.session_id, partition.error_code, bytes(partition.records or b"")


def test_what_was_allowed_once_does_not_come_to_the_event_loop_again(node: GuardedNode, handed_over: list[int]) -> None:
    node.grant(READ, TOPIC, "a")
    node.grant(WRITE, TOPIC, "a")
    assert [node.produce(node.stranger, "a") for _ in range(3)] == [0, 0, 0]
    assert handed_over == [PRODUCE]
    answers = [read(node.stranger, node.ids["a"], epoch=-1) for _ in range(3)]
    assert len({records for *_, records in answers}) == 1
    assert answers[0][3]
    assert handed_over == [PRODUCE, FETCH]
    # Another connection from there has the same grants, and the same principal elsewhere has its own.
    with (
        RawClient(node.bootstrap_servers, source=STRANGER) as again,
        RawClient(node.bootstrap_servers, source="127.0.0.3") as other,
    ):
        assert node.produce(again, "a") == 0
        assert handed_over == [PRODUCE, FETCH]
        assert node.produce(other, "a") == REFUSED
        assert read(other, node.ids["a"])[2] == REFUSED
    assert handed_over == [PRODUCE, FETCH, PRODUCE, FETCH]


def test_the_next_produce_after_an_acl_was_deleted_is_refused(node: GuardedNode) -> None:
    for _ in range(50):
        node.grant(WRITE, TOPIC, "a")
        assert [node.produce(node.stranger, "a") for _ in range(2)] == [0, 0]
        node.revoke(TOPIC, "a")
        assert node.produce(node.stranger, "a") == REFUSED


def test_the_next_produce_after_an_acl_denies_it_is_refused(node: GuardedNode) -> None:
    node.grant(WRITE, TOPIC, "*")
    assert [node.produce(node.stranger, "a") for _ in range(2)] == [0, 0]
    node.grant(WRITE, TOPIC, "a", permission=Permission.DENY)
    assert node.produce(node.stranger, "a") == REFUSED
    assert node.produce(node.stranger, "b") == 0


def test_a_request_with_one_refused_topic_is_never_answered_by_a_thread(
    node: GuardedNode, handed_over: list[int]
) -> None:
    node.grant(WRITE, TOPIC, "a")
    data = ProduceRequest.PartitionProduceData(index=0, records=encode_batch([(1_000, None, b"v", [])]))
    topics = [ProduceRequest.TopicProduceData(name=name, partition_data=[data]) for name in ("a", "b")]
    for _ in range(2):
        answer = node.stranger.call(ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=topics), 11)
        codes = {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}
        assert codes == {"a": 0, "b": REFUSED}
    assert handed_over == [PRODUCE, PRODUCE]


def test_a_session_ends_when_an_acl_changes_and_its_client_is_judged_again(
    node: GuardedNode, handed_over: list[int]
) -> None:
    assert node.produce(node.operator, "a") == 0
    node.grant(READ, TOPIC, "a")
    assert read(node.stranger, node.ids["a"])[:3] == (0, 0, 0)
    _, session, code, records = read(node.stranger, node.ids["a"])
    assert session > 0
    assert code == 0
    assert records
    assert read(node.stranger, Uuid.ZERO, session_id=session, epoch=1, named=False)[0] == 0
    with RawClient(node.bootstrap_servers, source="127.0.0.3") as other:
        ended = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, 0, b"")
        assert read(other, Uuid.ZERO, session_id=session, epoch=2, named=False) == ended
    assert read(node.stranger, Uuid.ZERO, session_id=session, epoch=2, named=False)[0] == 0
    del handed_over[:]
    # One that does not concern the client, too.
    node.grant(READ, TOPIC, "b", host="127.0.0.9")
    assert read(node.stranger, Uuid.ZERO, session_id=session, epoch=3, named=False) == ended
    assert handed_over == []
    assert read(node.stranger, node.ids["a"]) == (0, 0, 0, records)
    assert handed_over == [FETCH]
    _, session, *_ = read(node.stranger, node.ids["a"])
    assert session > 0
    node.revoke(TOPIC, "a")
    assert read(node.stranger, Uuid.ZERO, session_id=session, epoch=1, named=False) == ended
    assert read(node.stranger, node.ids["a"])[2:] == (REFUSED, b"")


def test_an_id_that_no_topic_has_yet_grants_nothing_for_a_later_topic(node: GuardedNode) -> None:
    """It counts as allowed for its guard: the handler says that there is no such topic."""
    unknown = Uuid(b"no-topic-has-it!")
    assert read(node.stranger, unknown, epoch=-1)[2] == ErrorCode.UNKNOWN_TOPIC_ID
    assert read(node.stranger, node.ids["a"], epoch=-1)[2] == REFUSED


def test_a_topic_of_the_same_name_is_judged_as_a_new_one(node: GuardedNode, handed_over: list[int]) -> None:
    node.grant(READ, TOPIC, "c")
    node.create("c")
    assert [read(node.stranger, node.ids["c"], epoch=-1)[2] for _ in range(2)] == [0, 0]
    assert handed_over.count(FETCH) >= 1
    before = node.ids["c"]
    node.delete("c")
    node.create("c")
    assert node.ids["c"] != before
    del handed_over[:]
    assert [read(node.stranger, node.ids["c"], epoch=-1)[2] for _ in range(2)] == [0, 0]
    assert handed_over == [FETCH]


def replica_fetch(topic_id: Uuid, **session: Any) -> FetchRequest:
    request = fetch(topic_id, **session)
    return FetchRequest(
        replica_id=7,
        max_bytes=1 << 20,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        topics=request.topics,
    )


def test_a_replica_needs_cluster_action_and_keeps_its_session_while_it_has_it(
    node: GuardedNode, handed_over: list[int]
) -> None:
    cluster = (ResourceKind.CLUSTER, "kafka-cluster")
    node.grant(READ, TOPIC, "*")
    answer = node.stranger.call(replica_fetch(node.ids["a"]), 13)
    assert answer.responses[0].partitions[0].error_code == REFUSED
    node.grant(Operation.CLUSTER_ACTION, *cluster)
    assert node.stranger.call(replica_fetch(node.ids["a"]), 13).session_id == 0
    session = node.stranger.call(replica_fetch(node.ids["a"]), 13).session_id
    assert session > 0
    assert session % 2 == 0
    del handed_over[:]
    goes_on = [replica_fetch(Uuid.ZERO, session_id=session, epoch=epoch, named=False) for epoch in (1, 2, 3)]
    assert node.stranger.call(goes_on[0], 13).error_code == 0
    node.revoke(TOPIC, "*")
    assert node.stranger.call(goes_on[1], 13).error_code == 0
    node.revoke(*cluster)
    assert node.stranger.call(goes_on[2], 13).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert handed_over == []
    answer = node.stranger.call(replica_fetch(node.ids["a"]), 13)
    assert answer.responses[0].partitions[0].error_code == REFUSED


def test_a_super_user_is_served_by_the_threads(tmp_path: Path, handed_over: list[int]) -> None:
    settings = {**GUARDED, "allow_everyone_if_no_acl_found": False, "super_users": str(ANONYMOUS)}
    with kraftlog.Broker(tmp_path, kraftlog_data_path="native", **settings) as broker:
        broker.create_topic("t")
        with RawClient(broker.bootstrap_servers) as client:
            data = ProduceRequest.PartitionProduceData(index=0, records=encode_batch([(1_000, None, b"v", [])]))
            topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
            for _ in range(3):
                response = client.call(ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic]), 11)
                assert response.responses[0].partition_responses[0].error_code == 0
    assert handed_over == [PRODUCE]
