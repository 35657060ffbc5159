"""DescribeProducers through a live node, beside what the log of the partition knows."""

from __future__ import annotations

import pytest

import kraftlog
from kraftlog._kraftlog import encode_batch
from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.describe_producers import DescribeProducersRequest
from kraftlog.wire.messages.produce import ProduceRequest
from raw_client import RawClient


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with kraftlog.Broker(tmp_path_factory.mktemp("data")) as broker:
        broker.create_topic("t", partitions=2)
        with RawClient(broker.bootstrap_servers) as client:
            for producer_id, sequence in ((7, 0), (7, 2), (9, 0)):
                produce(client, producer_id, sequence)
            yield client


def produce(client, producer_id, sequence):
    records = [(1_700_000_000_000 + sequence + i, None, b"v", ()) for i in range(2)]
    batch = encode_batch(records, producer_id=producer_id, producer_epoch=3, base_sequence=sequence)
    partition = ProduceRequest.PartitionProduceData
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[partition(index=0, records=batch)])
    answer = client.call(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic]), 12)
    assert answer.responses[0].partition_responses[0].error_code == 0


def describe(client, topic, *indexes):
    request = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=indexes)
    (answer,) = client.call(DescribeProducersRequest(topics=[request])).topics
    assert answer.name == topic
    return answer.partitions


def test_producers_of_a_partition_are_described(client):
    found, empty = describe(client, "t", 0, 1)
    assert (found.partition_index, found.error_code, found.error_message) == (0, 0, None)
    states = sorted(found.active_producers, key=lambda state: state.producer_id)
    assert [(state.producer_id, state.producer_epoch, state.last_sequence) for state in states] == [
        (7, 3, 3),
        (9, 3, 1),
    ]
    assert [state.last_timestamp for state in states] == [1_700_000_000_003, 1_700_000_000_001]
    assert {(state.coordinator_epoch, state.current_txn_start_offset) for state in states} == {(-1, -1)}
    assert (empty.partition_index, empty.error_code, empty.active_producers) == (1, 0, ())


@pytest.mark.parametrize(
    ("topic", "error_code"),
    [("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION)],
)
def test_unknown_topic_is_refused(client, topic, error_code):
    assert describe(client, topic, 0)[0].error_code == error_code


def test_unknown_partition_is_refused(client):
    assert describe(client, "t", 2)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
