"""Client quotas of a running node: throttled clients wait, others do not, and native answers return after them."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from typing import Any

import pytest

import kraftlog
from kraftlog._kraftlog import encode_batch, read_batches
from kraftlog.errors import ErrorCode
from kraftlog.transport.native_connection import NativeConnection
from kraftlog.types import Uuid
from kraftlog.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftlog.wire.messages.api_versions import ApiVersionsRequest
from kraftlog.wire.messages.create_partitions import CreatePartitionsRequest
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from kraftlog.wire.messages.delete_topics import DeleteTopicsRequest
from kraftlog.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.metadata import MetadataRequest
from kraftlog.wire.messages.produce import ProduceRequest
from raw_client import RawClient

PRODUCE, FETCH = 0, 1
VALUE = bytes(20_000)


def alter(client: RawClient, entity: dict[str, str | None], **limits: float | None) -> None:
    alteration = AlterClientQuotasRequest
    entry = alteration.EntryData(
        entity=[alteration.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[alteration.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in limits.items()],
    )
    (answered,) = client.call(alteration(entries=[entry]), client_id="operator").entries
    assert answered.error_code == 0, answered.error_message


def described(client: RawClient) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    response = client.call(DescribeClientQuotasRequest(components=[], strict=False))
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries
    }


def produce_request(*values: bytes, acks: int = -1) -> ProduceRequest:
    records = encode_batch([(1_700_000_000_000, None, value, []) for value in values])
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    topic = ProduceRequest.TopicProduceData(name="t", topic_id=Uuid.ZERO, partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=[topic])


def fetch_request(**settings: Any) -> FetchRequest:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchRequest.FetchTopic(topic="t", partitions=[partition])]
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 26, topics=topics, **settings)


def count(response: Any) -> int:
    return sum(
        len(list(batch.records()))
        for topic in response.responses
        for partition in topic.partitions
        for batch in read_batches(partition.records)
    )


@pytest.fixture
def handed_over(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """API keys of the requests that came to Python."""
    keys: list[int] = []
    frame_received = NativeConnection.frame_received

    def counted(connection: NativeConnection, number: int, frame: bytes | memoryview) -> None:
        keys.append(int.from_bytes(frame[:2], "big"))
        frame_received(connection, number, frame)

    monkeypatch.setattr(NativeConnection, "frame_received", counted)
    return keys


@pytest.mark.spec("CERR-36")
@pytest.mark.parametrize("path", ["native", "python"])
def test_a_producer_above_its_quota_is_answered_and_then_not_read_for_that_time(tmp_path, path):
    with (
        kraftlog.Broker(tmp_path, kraftlog_data_path=path, log_flush_on_ack=False) as broker,
        RawClient(broker.bootstrap_servers) as operator,
        RawClient(broker.bootstrap_servers) as throttled,
        RawClient(broker.bootstrap_servers) as other,
    ):
        broker.create_topic("t")
        alter(operator, {"client-id": "slow"}, producer_byte_rate=1_000)
        response = throttled.call(produce_request(VALUE), 11, client_id="slow")
        assert response.responses[0].partition_responses[0].error_code == 0, "it is appended"
        # 20 000 bytes and some in ten seconds, of 10 000.
        assert 10_000 < response.throttle_time_ms < 11_000
        # The next one would wait for ten seconds: with a larger quota nobody waits that long for the test to end.
        alter(operator, {"client-id": "slow"}, producer_byte_rate=15_000)
        with RawClient(broker.bootstrap_servers) as again:
            response = again.call(produce_request(VALUE * 7, acks=1), 11, client_id="slow")
            assert 400 < response.throttle_time_ms < 3_000
            began_s = time.monotonic()
            again.send(ApiVersionsRequest(), 3, client_id="slow")
            assert other.call(produce_request(VALUE), 11, client_id="fast").throttle_time_ms == 0
            again.receive(ApiVersionsRequest.API_KEY, 3)
            # The mute began a little before the client read the answer.
            assert time.monotonic() - began_s >= response.throttle_time_ms / 1000 - 0.2


@pytest.mark.parametrize("version", [11, 12])
def test_a_consumer_above_its_quota_gets_no_records_first_and_then_all(tmp_path, version):
    with (
        kraftlog.Broker(tmp_path, kraftlog_data_path="native", log_flush_on_ack=False) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        broker.create_topic("t")
        for _ in range(3):
            client.call(produce_request(VALUE), 11)
        alter(client, {"user": None, "client-id": "reader"}, consumer_byte_rate=7_000)
        # No answer has more than ten seconds of the quota.
        assert count(client.call(fetch_request(), version, client_id="reader")) == 3
        with RawClient(broker.bootstrap_servers) as again:
            response = again.call(fetch_request(session_epoch=0), version, client_id="reader")
            assert response.throttle_time_ms > 1_000
            assert (response.error_code, response.session_id, count(response)) == (0, 0, 0)
        assert count(client.call(fetch_request(), version, client_id="other")) == 3
        alter(client, {"user": None, "client-id": "reader"}, consumer_byte_rate=14_000)
        with RawClient(broker.bootstrap_servers) as again:
            response = again.call(fetch_request(), version, client_id="reader")
            assert (response.throttle_time_ms, count(response)) == (0, 3), "what was not sent was not counted"


def test_only_while_a_quota_may_apply_do_requests_of_data_come_to_python(handed_over, tmp_path):
    with (
        kraftlog.Broker(tmp_path, kraftlog_data_path="native", log_flush_on_ack=False) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        broker.create_topic("t")

        def passed_on() -> set[int]:
            del handed_over[:]
            assert client.call(produce_request(b"v"), 11).responses[0].partition_responses[0].error_code == 0
            assert count(client.call(fetch_request(), 12)) > 0
            return set(handed_over)

        assert passed_on() == set()
        session = client.call(fetch_request(session_epoch=0), 12).session_id
        assert session > 0
        for entity, key in (
            ({"user": "somebody"}, "request_percentage"),
            ({"client-id": "somebody"}, "producer_byte_rate"),
            ({"client-id": None, "user": None}, "consumer_byte_rate"),
        ):
            alter(client, entity, **{key: 1e9})
            assert passed_on() == {PRODUCE, FETCH}, key
            alter(client, entity, **{key: None})
            assert passed_on() == set()
        alter(client, {"user": None}, controller_mutation_rate=100.0)
        assert passed_on() == set()
        request = fetch_request(session_id=session, session_epoch=1)
        response = client.call(request, 12)
        assert (response.error_code, count(response) > 0) == (0, True), "its session was not used meanwhile"
        alter(client, {"user": None}, consumer_byte_rate=1e9)
        lost = client.call(fetch_request(session_id=session, session_epoch=2), 12)
        assert lost.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        alter(client, {"user": None}, consumer_byte_rate=None)
        assert client.call(fetch_request(session_epoch=0), 12).session_id > 0


def test_time_of_processing_is_throttled_for_a_window_at_most(tmp_path):
    with (
        kraftlog.Broker(tmp_path) as broker,
        RawClient(broker.bootstrap_servers) as operator,
        RawClient(broker.bootstrap_servers) as client,
    ):
        broker.create_topic("t")
        alter(operator, {"client-id": "busy"}, request_percentage=0.000_1)
        response = client.call(MetadataRequest(), 12, client_id="busy")
        assert 0 < response.throttle_time_ms <= 1_000
        assert operator.call(MetadataRequest(), 12, client_id="operator").throttle_time_ms == 0
        with RawClient(broker.bootstrap_servers) as again:
            fetched = again.call(fetch_request(), 12, client_id="busy")
            assert (0 < fetched.throttle_time_ms <= 1_000, count(fetched)) == (True, 0)


@pytest.mark.spec("CERR-36")
def test_changes_above_the_quota_are_refused_or_have_to_wait(tmp_path):
    topic = CreateTopicsRequest.CreatableTopic
    grown = CreatePartitionsRequest.CreatePartitionsTopic

    def create(client: RawClient, name: str, partitions: int, version: int = 7) -> tuple[int, int]:
        request = CreateTopicsRequest(
            topics=[topic(name=name, num_partitions=partitions, replication_factor=1)], timeout_ms=30_000
        )
        response = client.call(request, version, client_id="maker")
        return response.topics[0].error_code, response.throttle_time_ms

    with kraftlog.Broker(tmp_path) as broker, ExitStack() as stack:

        def connect() -> RawClient:
            """Each throttled connection waits: the next request needs another one."""
            return stack.enter_context(RawClient(broker.bootstrap_servers))

        operator = connect()
        alter(operator, {"client-id": "maker"}, controller_mutation_rate=0.01)
        client = connect()
        assert create(client, "a", 3) == (0, 0), "the bucket had 0.11 tokens and is overdrawn from here on"
        error_code, throttle_ms = create(client, "b", 1)
        assert error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert 200_000 < throttle_ms < 290_000
        growth = CreatePartitionsRequest(topics=[grown(name="a", count=4, assignments=None)], timeout_ms=30_000)
        deletion = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="a")], timeout_ms=30_000)
        for request, version, results in ((growth, 3, "results"), (deletion, 6, "responses")):
            response = connect().call(request, version, client_id="maker")
            assert getattr(response, results)[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert response.throttle_time_ms > 200_000
        assert connect().call(growth, 2, client_id="maker").results[0].error_code == 0, "older clients only wait"
        error_code, throttle_ms = create(connect(), "c", 1, version=5)
        assert (error_code, throttle_ms > 400_000) == (0, True)
        assert {"a", "c"} <= {each.name for each in operator.call(MetadataRequest(topics=None), 12).topics}


def test_quotas_outlive_a_restart(tmp_path):
    with kraftlog.Broker(tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        alter(client, {"user": "u", "client-id": None}, producer_byte_rate=1024, request_percentage=2.5)
        alter(client, {"ip": "192.0.2.1"}, connection_creation_rate=3)
        expected = described(client)
        assert expected == {
            (("client-id", None), ("user", "u")): {"producer_byte_rate": 1024, "request_percentage": 2.5},
            (("ip", "192.0.2.1"),): {"connection_creation_rate": 3},
        }
    with kraftlog.Broker(tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        assert described(client) == expected
        alter(client, {"user": None}, producer_byte_rate=10)
        response = client.call(produce_request(bytes(1_000)), 11, client_id="x")
        assert response.throttle_time_ms > 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
@pytest.mark.parametrize("data_path", ["native", "python"])
def test_connections_above_the_quota_of_their_address_are_closed_until_it_is_removed(tmp_path, data_path):
    with (
        kraftlog.Broker(tmp_path, kraftlog_data_path=data_path) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        alter(client, {"ip": None}, connection_creation_rate=1)
        # Of the default each address has a rate of its own.
        for address in ("127.0.0.2", "127.0.0.3"):
            assert [connects(broker, address) for _ in range(12)] == [True] * 10 + [False] * 2
        alter(client, {"ip": "127.0.0.2"}, connection_creation_rate=100)
        assert connects(broker, "127.0.0.2")
        assert not connects(broker, "127.0.0.3")
        alter(client, {"ip": None}, connection_creation_rate=None)
        assert connects(broker, "127.0.0.3")
    with (
        kraftlog.Broker(tmp_path, kraftlog_data_path=data_path) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        alter(client, {"ip": "127.0.0.2"}, connection_creation_rate=1)
    with kraftlog.Broker(tmp_path, kraftlog_data_path=data_path) as broker:
        assert [connects(broker, "127.0.0.2") for _ in range(11)] == [True] * 10 + [False]


def connects(broker: kraftlog.Broker, address: str) -> bool:
    with RawClient(broker.bootstrap_servers, source=address) as client:
        try:
            return client.call(ApiVersionsRequest(), 0).error_code == 0
        except ConnectionError:
            return False
