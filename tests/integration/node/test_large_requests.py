"""Requests with more entries than one slice: the same answers as in one piece, from a real node."""

from __future__ import annotations

from pathlib import Path

import pytest

import kraftlog
from kraftlog._kraftlog import encode_batch
from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.produce import ProduceRequest
from raw_client import RawClient
from waiting import until_true

PARTITIONS = 600
ABSENT = 400


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory):
    data_dir: Path = tmp_path_factory.mktemp("node")
    with kraftlog.Broker(data_dir=data_dir, config={"log.flush.on.ack": "false"}) as broker:
        with RawClient(broker.bootstrap_servers, timeout_s=120) as client:
            create(client)
        yield broker.bootstrap_servers


def create(client: RawClient) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)
    response = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=100_000), 5)
    assert response.topics[0].error_code == 0

    def is_led() -> bool:
        partitions = client.call(fetch_request(0, partitions=PARTITIONS, max_wait_ms=0), 12).responses[0].partitions
        return all(partition.error_code == 0 for partition in partitions)

    until_true(is_led, 60)


def produce_request(acks: int) -> ProduceRequest:
    data = [
        ProduceRequest.PartitionProduceData(index=index, records=encode_batch([(1000, None, b"%d" % index, [])]))
        for index in range(PARTITIONS + ABSENT)
    ]
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=data)
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic])


def fetch_request(offset: int, *, partitions: int, max_wait_ms: int) -> FetchRequest:
    wanted = [
        FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index in range(partitions)
    ]
    topics = [FetchRequest.FetchTopic(topic="t", partitions=wanted)]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 26, topics=topics, session_epoch=-1)


@pytest.mark.parametrize("acks", [1, -1])
def test_large_produce_answers_for_each_partition(bootstrap: str, acks: int) -> None:
    with RawClient(bootstrap, timeout_s=60) as client:
        response = client.call(produce_request(acks), 9)
    partitions = response.responses[0].partition_responses
    assert [partition.index for partition in partitions] == list(range(PARTITIONS + ABSENT))
    assert {partition.error_code for partition in partitions[:PARTITIONS]} == {0}
    assert {partition.error_code for partition in partitions[PARTITIONS:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_large_produce_with_acks_0_of_a_client_that_left_is_appended_as_a_whole(bootstrap: str) -> None:
    with RawClient(bootstrap, timeout_s=60) as client:
        before = client.call(fetch_request(0, partitions=PARTITIONS, max_wait_ms=0), 12)
    ends = [partition.high_watermark for partition in before.responses[0].partitions]
    data = [
        ProduceRequest.PartitionProduceData(index=index, records=encode_batch([(1000, None, b"%d" % index, [])]))
        for index in range(PARTITIONS)
    ]
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=data)
    with RawClient(bootstrap, timeout_s=60) as client:
        client.send(ProduceRequest(acks=0, timeout_ms=30_000, topic_data=[topic]), 9)
    with RawClient(bootstrap, timeout_s=60) as client:
        last = FetchRequest.FetchPartition(partition=PARTITIONS - 1, fetch_offset=ends[-1], partition_max_bytes=1 << 20)
        topics = [FetchRequest.FetchTopic(topic="t", partitions=[last])]
        request = FetchRequest(max_wait_ms=30_000, min_bytes=1, max_bytes=1 << 20, topics=topics, session_epoch=-1)
        client.call(request, 12)
        after = client.call(fetch_request(0, partitions=PARTITIONS, max_wait_ms=0), 12)
    assert [partition.high_watermark for partition in after.responses[0].partitions] == [end + 1 for end in ends]


def test_large_fetch_has_each_partition_and_its_records(bootstrap: str) -> None:
    with RawClient(bootstrap, timeout_s=60) as client:
        client.call(produce_request(1), 9)
        response = client.call(fetch_request(0, partitions=PARTITIONS + ABSENT, max_wait_ms=0), 12)
    partitions = response.responses[0].partitions
    assert [partition.partition_index for partition in partitions] == list(range(PARTITIONS + ABSENT))
    assert all(b"%d" % index in bytes(partitions[index].records) for index in range(PARTITIONS))
    assert {partition.error_code for partition in partitions[PARTITIONS:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_large_fetch_waits_for_records(bootstrap: str) -> None:
    with RawClient(bootstrap, timeout_s=60) as client, RawClient(bootstrap, timeout_s=60) as producer:
        ends = client.call(fetch_request(0, partitions=PARTITIONS, max_wait_ms=0), 12).responses[0].partitions
        wanted = [
            FetchRequest.FetchPartition(
                partition=index, fetch_offset=ends[index].high_watermark, partition_max_bytes=1 << 20
            )
            for index in range(PARTITIONS)
        ]
        topics = [FetchRequest.FetchTopic(topic="t", partitions=wanted)]
        request = FetchRequest(max_wait_ms=50_000, min_bytes=1, max_bytes=1 << 26, topics=topics, session_epoch=-1)
        client.send(request, 12)
        producer.call(produce_request(1), 9)
        _, response = client.receive(FetchRequest.API_KEY, 12)
    assert any(bytes(partition.records or b"") for partition in response.responses[0].partitions)
