"""The requests of transactional producers against a node, over raw frames."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest

import kraftlog
from kraftlog.errors import ErrorCode
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kraftlog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kraftlog.wire.messages.api_versions import ApiVersionsRequest
from kraftlog.wire.messages.delete_records import DeleteRecordsRequest
from kraftlog.wire.messages.describe_configs import DescribeConfigsRequest
from kraftlog.wire.messages.describe_producers import DescribeProducersRequest
from kraftlog.wire.messages.describe_transactions import DescribeTransactionsRequest
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from kraftlog.wire.messages.init_producer_id import InitProducerIdRequest
from kraftlog.wire.messages.list_offsets import ListOffsetsRequest
from kraftlog.wire.messages.list_transactions import ListTransactionsRequest
from kraftlog.wire.messages.offset_fetch import OffsetFetchRequest
from kraftlog.wire.messages.produce import ProduceRequest
from kraftlog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from kraftlog.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from raw_client import RawClient
from transaction_requests import (
    Producer,
    add,
    batch,
    begin,
    end,
    init,
    produce,
    produce_request,
    read,
    wait_until_complete,
)

CONFIG = {
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.min.isr": "2",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with kraftlog.Broker(tmp_path_factory.mktemp("data"), config=CONFIG) as started:
        with RawClient(started.bootstrap_servers) as client:
            client.call(FindCoordinatorRequest(coordinator_keys=["any"]))
            found = client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["any", "x"])).coordinators
            # TXNC-02: this node waits for the topic that Kafka creates beside the answer.
            assert [entry.error_code for entry in found] == [0, 0]
        yield started


@pytest.fixture
def client(broker: Any) -> Any:
    with RawClient(broker.bootstrap_servers) as one:
        yield one


@pytest.fixture
def topic(broker: Any, request: pytest.FixtureRequest) -> str:
    name = f"topic-{abs(hash(request.node.name))}"
    broker.create_topic(name, partitions=2)
    return name


def test_topic_has_the_settings_of_kafka(client: RawClient) -> None:
    """TXNC-03."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name="__transaction_state", configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource])
    (result,) = client.call(request).results
    found = {config.name: config.value for config in result.configs}
    wanted = {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "unclean.leader.election.enable": "false",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
    }
    assert {name: found[name] for name in wanted} == wanted


@pytest.mark.spec("TXNC-35", "TXNC-92")
def test_versions_that_clients_are_offered(client: RawClient) -> None:
    """The next InitProducerId is unstable; WriteTxnMarkers 0 was removed, and its connection closes."""
    offered = {
        found.api_key: (found.min_version, found.max_version) for found in client.call(ApiVersionsRequest(), 2).api_keys
    }
    assert (offered[InitProducerIdRequest.API_KEY], offered[WriteTxnMarkersRequest.API_KEY]) == ((0, 5), (1, 2))
    no_markers = struct.pack(">hhihi", WriteTxnMarkersRequest.API_KEY, 0, 1, -1, 0)
    client.sock.sendall(len(no_markers).to_bytes(4) + no_markers)
    assert client.is_closed_by_peer()


@pytest.mark.parametrize("version", range(6))
def test_idempotent_producers_get_different_ids(client: RawClient, version: int) -> None:
    """TXNC-09."""
    given = [client.call(InitProducerIdRequest(transactional_id=None), version) for _ in range(2)]
    assert [entry.producer_epoch for entry in given] == [0, 0]
    assert given[0].producer_id != given[1].producer_id


@pytest.mark.parametrize("fields", [{"producer_id": 5}, {"producer_epoch": 5}])
def test_producer_id_without_epoch_is_refused(client: RawClient, fields: dict[str, int]) -> None:
    """TXNC-11."""
    assert init(client, "half", **fields)[0] == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("version", "code"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)])
def test_stale_epoch_by_version(client: RawClient, version: int, code: int) -> None:
    """TXNC-17."""
    producer_id, epoch = begin(client, "stale")
    begin(client, "stale")
    assert init(client, "stale", version, producer_id=producer_id, producer_epoch=epoch)[0] == code


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)])
def test_fenced_producer_by_version(client: RawClient, topic: str, version: int, code: int) -> None:
    """TXNC-22, TXNC-37, TXNC-61."""
    producer_id, epoch = begin(client, f"fenced-{version}")
    begin(client, f"fenced-{version}")
    assert add(client, f"fenced-{version}", (producer_id, epoch), (topic, 0), version=version) == [code]
    assert end(client, f"fenced-{version}", (producer_id, epoch), version=version)[0] == code


def test_one_bad_partition_refuses_all(client: RawClient, topic: str) -> None:
    """TXNC-41, TXNC-43."""
    producer = begin(client, "bad")
    not_tried = ErrorCode.OPERATION_NOT_ATTEMPTED
    found = add(client, "bad", producer, (topic, 0), ("nowhere", 0))
    assert found == [not_tried, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    found = add(client, "bad", producer, (topic, 0), ("__consumer_offsets", 0))
    assert found == [not_tried, ErrorCode.TOPIC_AUTHORIZATION_FAILED]


def test_several_transactions_in_one_request(client: RawClient, topic: str) -> None:
    """TXNC-45: one result per id."""
    producer = begin(client, "several")
    topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])]
    request = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                transactional_id=key, producer_id=producer[0], producer_epoch=producer[1], topics=topics
            )
            for key in ("several", "unknown")
        ]
    )
    results = client.call(request, 5).results_by_transaction
    codes = [entry.topic_results[0].results_by_partition[0].partition_error_code for entry in results]
    assert codes == [0, ErrorCode.INVALID_PRODUCER_ID_MAPPING]


def test_committed_and_aborted_transactions(client: RawClient, topic: str) -> None:
    """PSTA-28, PSTA-36, PSTA-40, PSTA-41, PSTA-44, PSTA-45, PSTA-46, PSTA-52, PSTA-59: transaction version 2."""
    producer = begin(client, "v2")
    assert produce(client, topic, batch(producer, 0, b"a"), key="v2") == 0
    values, partition = read(client, topic)
    assert (values, partition.last_stable_offset, partition.high_watermark) == ([], 0, 1)
    assert read(client, topic, 0)[0] == [b"a"]
    assert read(client, topic, 0)[1].aborted_transactions is None
    assert _latest(client, topic, 1) == 0
    code, *following = end(client, "v2", producer)
    assert (code, following) == (0, [producer[0], producer[1] + 1])
    wait_until_complete(client, "v2")
    assert read(client, topic)[0] == [b"a"]
    assert produce(client, topic, batch(producer, 1), key="v2") == ErrorCode.INVALID_PRODUCER_EPOCH
    producer = following[0], following[1]
    assert produce(client, topic, batch(producer, 1), key="v2") == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(client, topic, batch(producer, 0, b"b"), key="v2") == 0
    assert end(client, "v2", producer, commit=False)[0] == 0
    wait_until_complete(client, "v2")
    values, partition = read(client, topic)
    assert values == [b"a", b"b"]
    assert [(entry.producer_id, entry.first_offset) for entry in partition.aborted_transactions] == [(producer[0], 2)]
    assert _latest(client, topic, 1) == partition.high_watermark == 4


def _latest(client: RawClient, topic: str, isolation: int) -> int:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=topic, partitions=[ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)]
            )
        ],
    )
    offset: int = client.call(request, 7).topics[0].partitions[0].offset
    return offset


@pytest.mark.parametrize(
    ("version", "code"), [(9, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE), (12, 0)]
)
def test_partition_that_is_not_in_the_transaction(client: RawClient, topic: str, version: int, code: int) -> None:
    """PSTA-57, PSTA-58, PSTA-59, TXNC-53."""
    key = f"verify-{version}"
    producer = begin(client, key)
    assert produce(client, topic, batch(producer, 0), key=key, version=version) == code
    assert len(read(client, topic, 0)[0]) == (1 if code == 0 else 0)


def test_producer_of_version_1_adds_partitions_itself(client: RawClient, topic: str) -> None:
    """PSTA-27, PSTA-64, TXNC-62: the epoch stays and sequences go on."""
    producer = begin(client, "v1")
    for sequence in (0, 2):
        assert add(client, "v1", producer, (topic, 0)) == [0]
        assert produce(client, topic, batch(producer, sequence), key="v1", version=11) == 0
        assert produce(client, topic, batch(producer, sequence + 1), key="v1", version=11) == 0
        assert end(client, "v1", producer, version=4) == (0, -1, -1)
        wait_until_complete(client, "v1")
    assert len(read(client, topic)[0]) == 4


def test_batches_that_belong_to_no_transaction(client: RawClient, topic: str) -> None:
    """PSTA-23, PSTA-25, PSTA-61, PSTA-68."""
    producer = begin(client, "none")
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert produce(client, topic, batch(producer, 0), key=None) == refused
    unknown = produce(client, topic, batch((99_999, 0), 0), key="none")
    assert unknown == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert produce(client, topic, batch(producer, 0), key="none") == 0
    plain = batch(producer, 1, transactional=False)
    assert produce(client, topic, plain, key="none") == ErrorCode.INVALID_TXN_STATE
    lower = producer[0], producer[1] - 1
    assert produce(client, topic, batch(lower, 0), key="none") == ErrorCode.INVALID_PRODUCER_EPOCH


def test_two_producers_in_one_request(client: RawClient, topic: str) -> None:
    """PSTA-24."""
    data = [ProduceRequest.PartitionProduceData(index=index, records=batch((index + 1, 0), 0)) for index in range(2)]
    request = ProduceRequest(
        transactional_id="two",
        acks=-1,
        timeout_ms=5_000,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=data)],
    )
    (found,) = client.call(request, 12).responses
    assert [entry.error_code for entry in found.partition_responses] == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2


def _commit_offset(client: RawClient, key: str, producer: Producer, topic: str, offset: int, version: int = 5) -> int:
    request = TxnOffsetCommitRequest(
        transactional_id=key,
        group_id=f"group-of-{key}",
        producer_id=producer[0],
        producer_epoch=producer[1],
        generation_id=-1,
        topics=[
            TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
                ],
            )
        ],
    )
    code: int = client.call(request, version).topics[0].partitions[0].error_code
    return code


def _offset(client: RawClient, key: str, topic: str, *, require_stable: bool) -> tuple[int, int]:
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id=f"group-of-{key}",
        topics=[OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])],
    )
    (group,) = client.call(OffsetFetchRequest(groups=[asked], require_stable=require_stable), 9).groups
    found = group.topics[0].partitions[0]
    return found.error_code, found.committed_offset


def test_offsets_take_effect_with_the_transaction(client: RawClient, topic: str) -> None:
    """TXNC-56, TXNC-59, TXNC-60: committed, then aborted."""
    producer = begin(client, "offsets")
    assert _commit_offset(client, "offsets", producer, "nowhere", 5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert _commit_offset(client, "offsets", producer, topic, 5) == 0
    assert _offset(client, "offsets", topic, require_stable=False) == (0, -1)
    assert _offset(client, "offsets", topic, require_stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    _, *following = end(client, "offsets", producer)
    wait_until_complete(client, "offsets")
    assert _offset(client, "offsets", topic, require_stable=True) == (0, 5)
    producer = following[0], following[1]
    assert _commit_offset(client, "offsets", producer, topic, 9) == 0
    assert end(client, "offsets", producer, commit=False)[0] == 0
    wait_until_complete(client, "offsets")
    assert _offset(client, "offsets", topic, require_stable=True) == (0, 5)


@pytest.mark.parametrize(("version", "code"), [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)])
def test_older_producers_add_the_group_first(client: RawClient, topic: str, version: int, code: int) -> None:
    """TXNC-54, TXNC-56."""
    key = f"older-{version}"
    producer = begin(client, key)
    assert _commit_offset(client, key, producer, topic, 5, version) == code
    request = AddOffsetsToTxnRequest(
        transactional_id=key, producer_id=producer[0], producer_epoch=producer[1], group_id=f"group-of-{key}"
    )
    assert client.call(request).error_code == 0
    assert _commit_offset(client, key, producer, topic, 5, version) == 0
    assert end(client, key, producer, version=4)[0] == 0


def _write_marker(client: RawClient, topic: str, producer: Producer, **fields: Any) -> int:
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=producer[0],
        producer_epoch=producer[1],
        topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
        **fields,
    )
    answer = client.call(WriteTxnMarkersRequest(markers=[marker]), 2)
    code: int = answer.markers[0].topics[0].partitions[0].error_code
    return code


def test_markers_of_administrators(client: RawClient, topic: str) -> None:
    """TXNC-88, TXNC-89, TXNC-91, PSTA-31, PSTA-32, PSTA-33, PSTA-34, PSTA-35, PSTA-87."""
    assert not client.call(WriteTxnMarkersRequest(), 2).markers
    assert _write_marker(client, "nowhere", (5, 0)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert _write_marker(client, topic, (70_000, 3), coordinator_epoch=7) == 0
    assert _write_marker(client, topic, (70_000, 2), coordinator_epoch=7) == ErrorCode.INVALID_PRODUCER_EPOCH
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert _write_marker(client, topic, (70_000, 3), coordinator_epoch=6) == fenced
    producer = begin(client, "markers")
    assert produce(client, topic, batch(producer, 0), key="markers") == 0
    same = {"transaction_version": 2}
    assert _write_marker(client, topic, producer, **same) == ErrorCode.INVALID_PRODUCER_EPOCH
    following = producer[0], producer[1] + 1
    assert [_write_marker(client, topic, following, **same) for _ in range(2)] == [0, 0]
    request = DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])]
    )
    (partition,) = client.call(request).topics[0].partitions
    found = {entry.producer_id: entry for entry in partition.active_producers}
    shown = found[producer[0]]
    assert (shown.producer_epoch, shown.last_sequence, shown.current_txn_start_offset) == (following[1], -1, -1)


def test_describe_and_list(client: RawClient, topic: str) -> None:
    """TXNC-112, TXNC-117."""
    producer = begin(client, "seen")
    add(client, "seen", producer, (topic, 0), (topic, 1))
    request = DescribeTransactionsRequest(transactional_ids=["seen", "unseen", ""])
    seen, unseen, empty = client.call(request).transaction_states
    found = seen.error_code, seen.transaction_state, seen.transaction_timeout_ms, seen.producer_id, seen.producer_epoch
    assert found == (0, "Ongoing", 60_000, *producer)
    assert [(entry.topic, list(entry.partitions)) for entry in seen.topics] == [(topic, [0, 1])]
    assert (unseen.error_code, empty.error_code) == (
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
    )
    listed = client.call(ListTransactionsRequest(producer_id_filters=[producer[0]], duration_filter=-1))
    assert [(entry.transactional_id, entry.transaction_state) for entry in listed.transaction_states] == [
        ("seen", "Ongoing")
    ]
    bad = client.call(ListTransactionsRequest(transactional_id_pattern="("))
    assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def _fetch(client: RawClient, topic: str, offset: int, max_wait_ms: int) -> Any:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=1,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])],
    )
    return client.call(request, 12).responses[0].partitions[0]


@pytest.mark.spec("PSTA-43", "PSTA-51", "PSTA-53")
def test_readers_of_committed_records_behind_an_open_transaction(broker: Any, client: RawClient, topic: str) -> None:
    producer = begin(client, "stable")
    assert produce(client, topic, batch((-1, -1), -1, transactional=False), key=None) == 0
    for sequence in range(2):
        assert produce(client, topic, batch(producer, sequence), key="stable") == 0
    for offset in (1, 2, 3):
        began_s = time.monotonic()
        found = _fetch(client, topic, offset, max_wait_ms=150)
        assert (found.error_code, bytes(found.records or b""), found.last_stable_offset) == (0, b"", 1)
        assert time.monotonic() - began_s >= 0.14
    assert _fetch(client, topic, 4, max_wait_ms=0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    with kraftlog.Consumer(bootstrap_servers=broker.bootstrap_servers, isolation_level="read_committed") as consumer:
        assert consumer.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 1}
    removed = DeleteRecordsRequest.DeleteRecordsTopic(
        name=topic, partitions=[DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=2)]
    )
    answer = client.call(DeleteRecordsRequest(topics=[removed], timeout_ms=5_000))
    assert answer.topics[0].partitions[0].low_watermark == 2
    assert _fetch(client, topic, 2, max_wait_ms=0).last_stable_offset == 2
    assert end(client, "stable", producer)[0] == 0


@pytest.mark.spec("PSTA-60")
def test_without_verification_old_clients_are_not_checked_and_new_ones_are_added(tmp_path: Any) -> None:
    config = CONFIG | {"transaction.partition.verification.enable": "false"}
    with kraftlog.Broker(tmp_path, config=config) as broker, RawClient(broker.bootstrap_servers) as client:
        broker.create_topic("t")
        client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]))
        producer = begin(client, "x")
        request = DescribeTransactionsRequest(transactional_ids=["x"])
        for sequence, version in enumerate((3, 11)):
            assert produce(client, "t", batch(producer, sequence), key="x", version=version) == 0
            assert not client.call(request).transaction_states[0].topics
        assert _write_marker(client, "t", producer) == 0
        assert produce(client, "t", batch(producer, 2), key="x", version=12) == 0
        assert client.call(request).transaction_states[0].topics[0].topic == "t"


def test_batches_of_a_transaction_are_appended_in_the_order_they_were_sent(broker: Any, topic: str) -> None:
    """The first batches wait for the coordinator, while the I/O threads may append to an open transaction."""
    count, values = 60, []
    with RawClient(broker.bootstrap_servers) as coordinator, RawClient(broker.bootstrap_servers) as client:
        for number in range(5):
            producer = begin(coordinator, topic)
            sent = [b"%d-%d" % (number, sequence) for sequence in range(count)]
            for sequence, value in enumerate(sent):
                request = produce_request(topic, batch(producer, sequence, value), key=topic)
                client.send(request, 12)
            answers = [client.receive(request.API_KEY, 12)[1] for _ in sent]
            found = [answer.responses[0].partition_responses[0] for answer in answers]
            assert [partition.error_code for partition in found] == [0] * count
            assert end(coordinator, topic, producer)[0] == 0
            wait_until_complete(coordinator, topic)
            values += sent
        assert read(coordinator, topic)[0] == values
