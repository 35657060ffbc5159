"""A node whose I/O threads answer plain Produce and Fetch requests, and which of them Python sees."""

from __future__ import annotations

import threading

import pytest

import kraftlog
from kraftlog._kraftlog import encode_batch, read_batches
from kraftlog.errors import ErrorCode
from kraftlog.transport.listener import ConfigError
from kraftlog.transport.native_connection import NativeConnection
from kraftlog.transport.native_sockets import NativeSockets
from kraftlog.types import Uuid
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.metadata import MetadataRequest
from kraftlog.wire.messages.produce import ProduceRequest
from raw_client import RawClient
from waiting import until_true

PRODUCE, FETCH, METADATA = 0, 1, 3


@pytest.fixture
def handed_over(monkeypatch):
    """API keys of the requests that came to Python."""
    keys = []
    frame_received = NativeConnection.frame_received

    def counted(connection, number, frame):
        keys.append(int.from_bytes(frame[:2], "big"))
        frame_received(connection, number, frame)

    monkeypatch.setattr(NativeConnection, "frame_received", counted)
    return keys


def produce_request(topic, *values, acks=-1, transactional_id=None):
    records = encode_batch([(1_700_000_000_000, None, value, []) for value in values])
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=acks,
        timeout_ms=5000,
        transactional_id=transactional_id,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, topic_id=Uuid.ZERO, partition_data=[data])],
    )


def fetch_request(topic, offset, *, max_wait_ms=0, **settings):
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchRequest.FetchTopic(topic=topic, partitions=[partition])]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 26, topics=topics, **settings)


def values_of(response):
    data = response.responses[0].partitions[0]
    assert data.error_code == 0
    return [value for batch in read_batches(data.records) for _, _, _, value, _ in batch.records()]


@pytest.mark.parametrize("flush_on_ack", [False, True])
def test_plain_requests_do_not_come_to_python(handed_over, tmp_path, flush_on_ack):
    with kraftlog.Broker(tmp_path, kraftlog_data_path="native", log_flush_on_ack=flush_on_ack) as broker:
        broker.create_topic("t")
        with RawClient(broker.bootstrap_servers) as client:
            del handed_over[:]
            for acks in (-1, 1):
                response = client.call(produce_request("t", b"%d" % acks, acks=acks), 11)
                assert response.responses[0].partition_responses[0].error_code == 0
            client.send(produce_request("t", b"0", acks=0), 11)
            until_true(lambda: len(values_of(client.call(fetch_request("t", 0), 12))) == 3)
            assert values_of(client.call(fetch_request("t", 0), 12)) == [b"-1", b"1", b"0"]
            assert not handed_over
            client.call(MetadataRequest(), 12)
            assert handed_over == [METADATA]
    with (
        kraftlog.Broker(tmp_path, kraftlog_data_path="python") as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        assert values_of(client.call(fetch_request("t", 0), 12)) == [b"-1", b"1", b"0"]


def test_requests_that_are_not_plain_come_to_python(handed_over, tmp_path):
    with kraftlog.Broker(tmp_path, kraftlog_data_path="native", log_flush_on_ack=False) as broker:
        broker.create_topic("t")
        with RawClient(broker.bootstrap_servers) as client:
            del handed_over[:]
            response = client.call(produce_request("nowhere", b"x"), 11)
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            client.call(produce_request("t", b"old"), 8)
            assert values_of(client.call(fetch_request("t", 0), 11)) == [b"old"]
            assert handed_over == [PRODUCE, PRODUCE, FETCH]


def test_a_long_poll_in_a_thread_hears_of_an_append_by_python_and_the_other_way_round(handed_over, tmp_path):
    with kraftlog.Broker(tmp_path, kraftlog_data_path="native", log_flush_on_ack=False) as broker:
        broker.create_topic("t")
        with RawClient(broker.bootstrap_servers) as reader, RawClient(broker.bootstrap_servers) as writer:
            for offset, (fetch_version, produce_version) in enumerate([(12, 8), (11, 11)]):
                del handed_over[:]
                reader.send(fetch_request("t", offset, max_wait_ms=20_000), fetch_version)
                if fetch_version == 11:
                    until_true(lambda: FETCH in handed_over)
                writer.call(produce_request("t", b"%d" % offset), produce_version)
                _, response = reader.receive(FETCH, fetch_version)
                assert values_of(response) == [b"%d" % offset]


def test_pipelined_appends_keep_their_order_although_python_makes_some_of_them(tmp_path):
    with kraftlog.Broker(tmp_path, kraftlog_data_path="native", log_flush_on_ack=False) as broker:
        broker.create_topic("t")
        versions = [8 if number % 7 == 0 else 11 for number in range(300)]
        with RawClient(broker.bootstrap_servers) as client:

            def send():
                for number, version in enumerate(versions):
                    client.send(produce_request("t", b"%d" % number), version)

            sender = threading.Thread(target=send)
            sender.start()
            offsets = []
            for version in versions:
                _, response = client.receive(PRODUCE, version)
                offsets.append(response.responses[0].partition_responses[0].base_offset)
            sender.join()
            assert offsets == list(range(300))
            assert values_of(client.call(fetch_request("t", 0), 12)) == [b"%d" % number for number in range(300)]


def test_a_long_poll_in_a_thread_ends_when_the_topic_is_deleted(handed_over, tmp_path):
    with kraftlog.Broker(tmp_path, kraftlog_data_path="native", log_flush_on_ack=False) as broker:
        broker.create_topic("t")
        with RawClient(broker.bootstrap_servers) as reader, RawClient(broker.bootstrap_servers) as other:
            del handed_over[:]
            assert values_of(reader.call(fetch_request("t", 0), 12)) == []
            reader.send(fetch_request("t", 0, max_wait_ms=20_000), 12)
            # The one thread has taken the long poll when it answers what another connection asked behind it.
            assert values_of(other.call(fetch_request("t", 0), 12)) == []
            broker.delete_topic("t")
            _, response = reader.receive(FETCH, 12)
            assert response.responses[0].partitions[0].error_code != 0
        assert FETCH not in handed_over


def test_the_threads_know_where_clients_reach_brokers(monkeypatch, tmp_path):
    """They name a new leader to clients whose acknowledgement is lost with the old one."""
    published = []
    monkeypatch.setattr(NativeSockets, "publish_brokers", lambda _, by_listener: published.append(by_listener))
    with kraftlog.Broker(tmp_path, kraftlog_data_path="native") as broker:
        host, port = broker.bootstrap_servers.rsplit(":", 1)
        brokers = [listener for listener in published[0] if listener]
        assert brokers == [[(broker._embedded.running.config.node_id, host, int(port), None)]]
        before = len(published)
        broker.create_topic("t")
        assert len(published) == before, "no broker changed"


def test_a_data_path_that_is_none_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"kraftlog\.data\.path=rust: it is one of native, python"):
        kraftlog.Broker(tmp_path, kraftlog_data_path="rust").start()
