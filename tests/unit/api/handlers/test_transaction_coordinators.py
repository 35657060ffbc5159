"""What transactional requests are answered by a node that does not coordinate the id, or does not yet."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog.api.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    find_coordinator,
    init_producer_id,
    txn_offset_commit,
)
from kraftlog.controller.image import MetadataImage
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import Uuid
from kraftlog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kraftlog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kraftlog.wire.messages.describe_transactions import DescribeTransactionsRequest
from kraftlog.wire.messages.end_txn import EndTxnRequest
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from kraftlog.wire.messages.init_producer_id import InitProducerIdRequest
from kraftlog.wire.messages.metadata_records import PartitionRecord, RegisterBrokerRecord, TopicRecord
from kraftlog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

_Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction


class Elsewhere:
    """A coordinator whose shards are not here, or not loaded; its topic exists."""

    is_ready = True

    def __init__(self, code: int) -> None:
        self._code = code

    def runner(self, _key: str) -> Any:
        raise KafkaError(self._code)

    def partition_count(self) -> int:
        return 1


def context(version: int) -> Any:
    return SimpleNamespace(api_version=version)


CLUSTER: Any = SimpleNamespace(
    image=SimpleNamespace(topics=SimpleNamespace(by_name=lambda _: SimpleNamespace(partitions={0: None})))
)


async def init(transactions: Any, version: int) -> list[int]:
    request = InitProducerIdRequest(
        transactional_id="x", transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1
    )
    ids: Any = SimpleNamespace(is_empty=False)
    answer: Any = init_producer_id.handle(
        context(version),
        request,
        tasks=None,
        producer_ids=ids,
        transactions=transactions,  # type: ignore[arg-type]
    )
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
    return [answer.error_code]


async def add(transactions: Any, version: int) -> list[int]:
    topics = [_Topic(name="t", partitions=[0])]
    if version < 4:
        request = AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=topics)
    else:
        request = AddPartitionsToTxnRequest(transactions=[_Transaction(transactional_id="x", topics=topics)])
    answer: Any = add_partitions_to_txn.handle(context(version), request, cluster=CLUSTER, transactions=transactions)
    if isinstance(answer, asyncio.Future):
        answer = await answer
    found = answer.results_by_topic_v3_and_below if version < 4 else answer.results_by_transaction[0].topic_results
    return [partition.partition_error_code for topic in found for partition in topic.results_by_partition]


async def add_offsets(transactions: Any, version: int) -> list[int]:
    request = AddOffsetsToTxnRequest(transactional_id="x", group_id="g")
    groups: Any = Elsewhere(0)
    answer: Any = add_offsets_to_txn.handle(
        context(version),
        request,
        groups=groups,
        transactions=transactions,
        tasks=None,  # type: ignore[arg-type]
    )
    return [answer.error_code]


async def end(transactions: Any, version: int) -> list[int]:
    answer: Any = end_txn.handle(context(version), EndTxnRequest(transactional_id="x"), transactions=transactions)
    return [answer.error_code]


async def describe(transactions: Any, version: int) -> list[int]:
    request = DescribeTransactionsRequest(transactional_ids=["x"])
    answer = describe_transactions.handle(context(version), request, transactions=transactions)
    return [state.error_code for state in answer.transaction_states]


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
@pytest.mark.parametrize(
    ("ask", "versions"), [(init, range(6)), (add, range(6)), (add_offsets, range(5)), (end, range(6)), (describe, [0])]
)
def test_requests_to_the_wrong_node_are_refused(ask: Any, versions: Any, code: int) -> None:
    """TXNC-07, TXNC-08: in every version, and no state is touched."""

    async def run() -> None:
        for version in versions:
            assert await ask(Elsewhere(code), version) == [code], version

    asyncio.run(run())


@pytest.mark.spec("TXNC-58")
@pytest.mark.parametrize("version", range(6))
def test_offsets_of_a_transaction_while_the_group_coordinator_loads(version: int) -> None:
    """Clients of versions 0 and 1 do not know the error of loading."""
    partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])
    request = TxnOffsetCommitRequest(transactional_id="x", group_id="g", generation_id=-1, topics=[topic])

    async def run() -> int:
        tasks: Any = SimpleNamespace(spawn=asyncio.get_running_loop().create_task)
        groups: Any = Elsewhere(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        verifier: Any = None
        settings: Any = None
        answer: Any = txn_offset_commit.handle(
            context(version),
            request,
            cluster=CLUSTER,
            groups=groups,
            verifier=verifier,
            settings=settings,
            tasks=tasks,
        )
        code: int = (await answer).topics[0].partitions[0].error_code
        return code

    is_old = version < 2
    loading, unavailable = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert asyncio.run(run()) == (unavailable if is_old else loading)


def image_of(leader: int, *, is_fenced: bool = False, listener: str = "PLAINTEXT") -> Any:
    """Broker 2 is registered; ``leader`` leads the one partition of the transaction topic."""
    image = MetadataImage()
    topic_id = Uuid(b"transaction-id-1")
    end_point = RegisterBrokerRecord.BrokerEndpoint(name=listener, host="localhost", port=9092, security_protocol=0)
    for record in (
        RegisterBrokerRecord(broker_id=2, broker_epoch=1, fenced=is_fenced, end_points=[end_point]),
        TopicRecord(name="__transaction_state", topic_id=topic_id),
        PartitionRecord(topic_id=topic_id, partition_id=0, replicas=[2], isr=[2], leader=leader),
    ):
        image.replay(record)
    return image


@pytest.mark.spec("TXNC-01", "TXNC-04")
@pytest.mark.parametrize(
    ("image", "node_id", "code"),
    [
        (image_of(2), 2, ErrorCode.NONE),
        (image_of(-1), -1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (image_of(2, is_fenced=True), -1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (image_of(2, listener="INTERNAL"), -1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
    ids=["led", "no leader", "leader is fenced", "leader has no such listener"],
)
@pytest.mark.parametrize("version", [1, 3, 4, 5])
def test_coordinator_is_the_leader_if_clients_can_reach_it(image: Any, node_id: int, code: int, version: int) -> None:
    request = FindCoordinatorRequest(key_type=1, key="x", coordinator_keys=["x"])
    cluster: Any = SimpleNamespace(image=image)
    transactions: Any = Elsewhere(0)
    other: Any = None
    asked: Any = SimpleNamespace(api_version=version, listener_name="PLAINTEXT")
    answer: Any = find_coordinator.handle.__wrapped__(  # type: ignore[attr-defined]
        asked, request, cluster=cluster, tasks=other, groups=other, transactions=transactions, shares=other
    )
    while True:
        try:
            next(answer)
        except StopIteration as end:
            found = end.value
            break
    one = found.coordinators[0] if version >= 4 else found
    assert (one.node_id, one.error_code) == (node_id, code)
