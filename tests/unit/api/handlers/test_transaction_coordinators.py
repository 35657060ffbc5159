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
    init_producer_id,
)
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kraftlog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kraftlog.wire.messages.describe_transactions import DescribeTransactionsRequest
from kraftlog.wire.messages.end_txn import EndTxnRequest
from kraftlog.wire.messages.init_producer_id import InitProducerIdRequest

_Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction


class Elsewhere:
    """A coordinator whose shards are not here, or not loaded."""

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
