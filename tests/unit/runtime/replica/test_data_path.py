"""Produce, Fetch and the offset APIs against a whole node, with raw frames."""

from __future__ import annotations

import random
import time

import pytest

import kraftlog
from kraftlog._kraftlog import encode_batch, read_batches
from kraftlog.errors import ErrorCode
from kraftlog.types import Uuid
from kraftlog.wire.messages.delete_records import DeleteRecordsRequest
from kraftlog.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.list_offsets import ListOffsetsRequest
from kraftlog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kraftlog.wire.messages.produce import ProduceRequest
from raw_client import RawClient
from waiting import until_true

TOPIC = "t"


@pytest.fixture(scope="module", params=["page cache", "flush on ack"])
def broker(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    with kraftlog.Broker(directory, log_flush_on_ack=request.param == "flush on ack") as one:
        yield one


@pytest.fixture
def topic(broker, request):
    """A topic of its own for each test."""
    name = f"t-{abs(hash(request.node.nodeid)):x}"
    broker.create_topic(name, partitions=2)
    return name


@pytest.fixture
def client(broker):
    with RawClient(broker.bootstrap_servers) as one:
        yield one


def topic_id_of(broker, topic):
    return broker._embedded.running.metadata.image.topics.by_name(topic).topic_id


def batch(*values, timestamp=1_700_000_000_000, **settings):
    return encode_batch([(timestamp + index, None, value, []) for index, value in enumerate(values)], **settings)


def produce_request(topic, records, *, acks=-1, index=0, topic_id=Uuid.ZERO, timeout_ms=5000, transactional_id=None):
    data = ProduceRequest.PartitionProduceData(index=index, records=records)
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        transactional_id=transactional_id,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])],
    )


def produce(client, topic, records, *, version=11, **settings):
    client_id = settings.pop("client_id", "raw")
    response = client.call(produce_request(topic, records, **settings), version, client_id)
    return response.responses[0].partition_responses[0]


def fetch_request(topic, offset, *, index=0, topic_id=Uuid.ZERO, partition=None, **settings):
    values = {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20, **(partition or {})}
    topics = [
        FetchRequest.FetchTopic(topic=topic, topic_id=topic_id, partitions=[FetchRequest.FetchPartition(**values)])
    ]
    return FetchRequest(**{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 26, "topics": topics, **settings})


def fetch(client, topic, offset, *, version=12, **settings):
    response = client.call(fetch_request(topic, offset, **settings), version)
    return response.responses[0].partitions[0]


def values_of(data):
    return [value for batch in read_batches(data.records) for _, _, _, value, _ in batch.records()]


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [-1, 1])
def test_produce_answers_offsets_in_every_version(broker, client, topic, version, acks):
    topic_id = topic_id_of(broker, topic) if version >= 13 else Uuid.ZERO
    name = topic if version < 13 else ""
    first = produce(client, name, batch(b"a", b"b"), version=version, acks=acks, topic_id=topic_id)
    second = produce(client, name, batch(b"c"), version=version, acks=acks, topic_id=topic_id)
    assert (first.error_code, first.base_offset) == (0, 0)
    assert (second.error_code, second.base_offset) == (0, 2)
    assert values_of(fetch(client, topic, 0, max_wait_ms=1000, min_bytes=130)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_reads_back_in_every_version(broker, client, topic, version):
    produce(client, topic, batch(b"a", b"b"))
    produce(client, topic, batch(b"c"))
    topic_id = topic_id_of(broker, topic) if version >= 13 else Uuid.ZERO
    data = fetch(client, topic if version < 13 else "", 1, version=version, topic_id=topic_id)
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 3, 3)
    assert values_of(data) == [b"a", b"b", b"c"], "whole batches, from the one that holds the offset"


def test_pipelined_produces_keep_their_order(client, topic):
    for number in range(50):
        client.send(produce_request(topic, batch(b"%d" % number)), 11)
    offsets = [client.receive(0, 11)[1].responses[0].partition_responses[0].base_offset for _ in range(50)]
    assert offsets == list(range(50))
    assert values_of(fetch(client, topic, 0)) == [b"%d" % number for number in range(50)]


def test_produce_acks_0_is_not_answered(client, topic):
    client.send(produce_request(topic, batch(b"a"), acks=0), 11)
    assert produce(client, topic, batch(b"b")).base_offset == 1


def test_produce_acks_0_with_an_error_closes_the_connection(client, broker):
    client.send(produce_request("absent", batch(b"a"), acks=0), 11)
    assert client.is_closed_by_peer()


@pytest.mark.parametrize("acks", [-1, 1])
def test_minimum_above_the_replica_count_commits(broker, client, acks):
    topic = f"min-isr-{acks}"
    broker.create_topic(topic, config={"min.insync.replicas": "2"})
    assert produce(client, topic, batch(b"a"), acks=acks).error_code == 0
    data = fetch(client, topic, 0, max_wait_ms=5000)
    assert (data.error_code, data.high_watermark, values_of(data)) == (0, 1, [b"a"])


def test_produce_refusals(broker, client, topic):
    good = batch(b"a")
    corrupt = bytearray(good)
    corrupt[-1] ^= 1
    old_magic = bytearray(good)
    old_magic[16] = 1
    no_magic = bytearray(good)
    no_magic[16] = 9
    assert produce(client, "absent", good).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(client, topic, good, index=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    unknown = produce(client, "", good, version=13, topic_id=Uuid(b"x" * 16))
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert produce(client, topic, good, acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert produce(client, topic, bytes(corrupt)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert produce(client, topic, good[:-3]).error_code == ErrorCode.INVALID_RECORD
    assert produce(client, topic, bytes(old_magic)).error_code == ErrorCode.INVALID_RECORD
    assert produce(client, topic, bytes(no_magic)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert produce(client, topic, good + good).error_code == ErrorCode.INVALID_RECORD
    assert produce(client, topic, b"").error_code == ErrorCode.INVALID_RECORD
    assert produce(client, topic, None).error_code == ErrorCode.INVALID_RECORD
    zstd = batch(b"a" * 100, compression="zstd")
    assert produce(client, topic, zstd, version=6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    future = produce(client, topic, batch(b"a", timestamp=9_000_000_000_000))
    assert future.error_code == ErrorCode.INVALID_TIMESTAMP
    loose = batch(b"a", transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
    assert produce(client, topic, loose).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert produce(client, topic, batch(b"a" * 1_100_000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert fetch(client, topic, 0).high_watermark == 0, "nothing was appended"


def test_idempotent_producer_duplicate_and_gap(client, topic):
    def send(sequence, epoch=0):
        return produce(
            client, topic, batch(b"a", producer_id=1000, producer_epoch=epoch, base_sequence=sequence), acks=-1
        )

    assert (send(0).error_code, send(1).base_offset) == (0, 1)
    assert (send(1).error_code, send(1).base_offset) == (0, 1)
    assert send(5).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(0, epoch=1).base_offset == 2
    assert send(2, epoch=0).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_fetch_waits_for_records(client, topic, broker):
    begin = time.monotonic()
    client.send(fetch_request(topic, 0, max_wait_ms=60_000), 12)
    with RawClient(broker.bootstrap_servers) as other:
        for _ in range(2):  # after two round trips the loop has seen what was sent before them
            assert fetch(other, topic, 0).high_watermark == 0
        produce(other, topic, batch(b"late"))
    _, response = client.receive(1, 12)
    assert values_of(response.responses[0].partitions[0]) == [b"late"]
    assert time.monotonic() - begin < 30, "the record ends the wait, not its time"


def test_fetch_wait_ends_empty_after_its_time(client, topic):
    begin = time.monotonic()
    data = fetch(client, topic, 0, max_wait_ms=200)
    assert 0.19 < time.monotonic() - begin < 30
    assert (data.error_code, bytes(data.records)) == (0, b"")


def test_fetch_limits_keep_at_least_the_first_batch(client, topic):
    for _ in range(3):
        produce(client, topic, batch(b"x" * 10000))
    assert len(values_of(fetch(client, topic, 0, partition={"partition_max_bytes": 100}))) == 1
    assert len(values_of(fetch(client, topic, 0, max_bytes=1))) == 1
    assert len(values_of(fetch(client, topic, 0, partition={"partition_max_bytes": 25000}))) == 2
    assert len(values_of(fetch(client, topic, 0))) == 3


def test_fetch_total_limit_holds_across_partitions(client, topic):
    for index in (0, 1):
        produce(client, topic, batch(b"x" * 10000), index=index)
    partitions = [FetchRequest.FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in (0, 1)]
    request = FetchRequest(max_bytes=5000, topics=[FetchRequest.FetchTopic(topic=topic, partitions=partitions)])
    sizes = [len(partition.records) for partition in client.call(request, 12).responses[0].partitions]
    assert sizes[0] > 10000
    assert sizes[1] == 0


def test_fetch_errors(broker, client, topic):
    produce(client, topic, batch(b"a"))
    assert fetch(client, "absent", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    unknown = fetch(client, "", 0, version=15, topic_id=Uuid(b"x" * 16))
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    beyond = fetch(client, topic, 2)
    assert (beyond.error_code, beyond.high_watermark, beyond.log_start_offset) == (
        ErrorCode.OFFSET_OUT_OF_RANGE,
        -1,
        -1,
    )
    assert fetch(client, topic, 0, partition={"current_leader_epoch": 99}).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert fetch(client, topic, 0, partition={"current_leader_epoch": 0}).error_code == 0
    follower = fetch(client, topic, 0, replica_id=7)
    assert follower.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_fetch_session_answers_only_what_changed(client, topic):
    produce(client, topic, batch(b"a"), index=0)
    partitions = [
        FetchRequest.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in (0, 1)
    ]
    full = client.call(
        FetchRequest(session_epoch=0, topics=[FetchRequest.FetchTopic(topic=topic, partitions=partitions)]), 12
    )
    assert full.session_id > 0
    assert [partition.partition_index for partition in full.responses[0].partitions] == [0, 1]
    moved = FetchRequest.FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
    empty = client.call(
        FetchRequest(
            session_id=full.session_id,
            session_epoch=1,
            topics=[FetchRequest.FetchTopic(topic=topic, partitions=[moved])],
        ),
        12,
    )
    assert (empty.session_id, len(empty.responses)) == (full.session_id, 0)
    produce(client, topic, batch(b"b"), index=1)
    news = client.call(FetchRequest(session_id=full.session_id, session_epoch=2), 12)
    assert [partition.partition_index for partition in news.responses[0].partitions] == [1]
    assert values_of(news.responses[0].partitions[0]) == [b"b"]
    stale = client.call(FetchRequest(session_id=full.session_id, session_epoch=2), 12)
    assert stale.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    client.call(FetchRequest(session_id=full.session_id, session_epoch=-1), 12)
    gone = client.call(FetchRequest(session_id=full.session_id, session_epoch=3), 12)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def list_offset(client, topic, timestamp, *, version=11, isolation_level=0, **settings):
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp, **settings)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])],
    )
    found = client.call(request, version).topics[0].partitions[0]
    return found.error_code, found.timestamp, found.offset


def test_list_offsets_named_places_and_times(client, topic):
    produce(client, topic, batch(b"a", b"b", timestamp=1000))
    produce(client, topic, batch(b"c", timestamp=5000))
    produce(client, topic, batch(b"d", timestamp=3000))
    assert list_offset(client, topic, -1) == (0, -1, 4)
    assert list_offset(client, topic, -2) == (0, -1, 0)
    assert list_offset(client, topic, -3) == (0, 5000, 2)
    assert list_offset(client, topic, -4) == (0, -1, 0)
    assert list_offset(client, topic, -5) == (0, -1, -1)
    assert list_offset(client, topic, 1001) == (0, 1001, 1)
    assert list_offset(client, topic, 1002) == (0, 5000, 2)
    assert list_offset(client, topic, 9999) == (0, -1, -1)
    for version in range(1, 12):
        assert list_offset(client, topic, -1, version=version) == (0, -1, 4)
    assert list_offset(client, topic, -3, version=6)[0] == ErrorCode.UNSUPPORTED_VERSION
    assert list_offset(client, topic, -1, current_leader_epoch=50)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_offset_for_leader_epoch(client, topic):
    produce(client, topic, batch(b"a", b"b"))
    for version in (2, 3, 4):

        def ask(epoch, current=-1, version=version):
            partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                partition=0, leader_epoch=epoch, current_leader_epoch=current
            )
            topics = [OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[partition])]
            request = OffsetForLeaderEpochRequest(replica_id=-1 if version >= 3 else -2, topics=topics)
            return client.call(request, version).topics[0].partitions[0]

        found = ask(0)
        assert (found.error_code, found.leader_epoch, found.end_offset) == (0, 0, 2)
        assert (ask(5).leader_epoch, ask(5).end_offset) == (-1, -1)
        assert ask(0, current=7).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_delete_records_moves_the_start(client, topic):
    produce(client, topic, batch(b"a", b"b", b"c"))

    def delete(offset, index=0):
        partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=offset)
        topics = [DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[partition])]
        return client.call(DeleteRecordsRequest(topics=topics, timeout_ms=1000)).topics[0].partitions[0]

    assert (delete(2).error_code, delete(2).low_watermark) == (0, 2)
    assert delete(9).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(client, topic, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert list_offset(client, topic, -2) == (0, -1, 2)
    assert delete(-1).low_watermark == 3
    assert delete(0, index=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_describe_log_dirs_sizes(broker, client, topic):
    produce(client, topic, batch(b"a" * 1000))
    for version in range(1, 6):
        (result,) = client.call(DescribeLogDirsRequest(topics=None), version).results
        assert result.log_dir == str(broker.data_dir)
        sizes = {
            partition.partition_index: partition.partition_size
            for described in result.topics
            if described.name == topic
            for partition in described.partitions
        }
        assert sizes[0] > 1000
        assert sizes[1] == 0
        if version >= 4:
            assert result.total_bytes >= result.usable_bytes > 0


def test_deleted_topic_is_gone_at_once(broker, client, topic):
    produce(client, topic, batch(b"a"))
    broker.delete_topic(topic)
    assert produce(client, topic, batch(b"a")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def marked() -> list[bool]:
        return [path.name.endswith("-delete") for path in broker.data_dir.iterdir() if path.name.startswith(topic)]

    until_true(lambda: marked() == [True, True])
    broker.create_topic(topic)
    assert produce(client, topic, batch(b"new")).base_offset == 0


def test_internal_topic_is_written_by_the_broker_only(broker, client):
    broker.create_topic("__consumer_offsets", partitions=1)
    assert produce(client, "__consumer_offsets", batch(b"a")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("acks", [-1, 1])
def test_large_compressed_batches_are_appended_in_order_with_the_small_ones_between(client, topic, acks):
    rng = random.Random(7)
    sent = []
    for number in range(12):
        value = rng.randbytes(150_000) if number % 3 == 0 else b"small %d" % number
        sent.append(value)
        records = batch(value, compression="gzip" if number % 3 == 0 else "none")
        client.send(produce_request(topic, records, acks=acks), 11)
    offsets = [client.receive(0, 11)[1].responses[0].partition_responses[0].base_offset for _ in sent]
    assert offsets == list(range(12))
    received = []
    while len(received) < 12:
        received += values_of(fetch(client, topic, len(received), max_wait_ms=2000))
    assert received == sent


def test_large_compressed_batch_that_is_damaged_is_refused(client, topic):
    records = bytearray(batch(random.Random(1).randbytes(150_000), compression="lz4"))
    records[-1] ^= 1
    assert produce(client, topic, bytes(records)).error_code == ErrorCode.CORRUPT_MESSAGE
    client.send(produce_request(topic, bytes(records), acks=0), 11)
    assert client.is_closed_by_peer()
