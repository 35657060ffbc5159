"""Requests of transactional producers over raw frames: any producer id, epoch and version, in any order."""

from __future__ import annotations

import time
from typing import Any

from kraftlog._kraftlog import encode_batch, read_batches
from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kraftlog.wire.messages.describe_transactions import DescribeTransactionsRequest
from kraftlog.wire.messages.end_txn import EndTxnRequest
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.init_producer_id import InitProducerIdRequest
from kraftlog.wire.messages.produce import ProduceRequest
from raw_client import RawClient

__all__ = [
    "Producer",
    "add",
    "batch",
    "begin",
    "end",
    "init",
    "produce",
    "produce_request",
    "read",
    "wait_until_complete",
]

Producer = tuple[int, int]
"""Producer id and epoch."""
_PRODUCE_WITHOUT_IDS = 12


def init(client: RawClient, key: str, version: int = 5, **fields: Any) -> tuple[int, int, int]:
    request = InitProducerIdRequest(
        transactional_id=key,
        transaction_timeout_ms=60_000,
        **({"producer_id": -1, "producer_epoch": -1} | fields),
    )
    answer = client.call(request, version)
    return answer.error_code, answer.producer_id, answer.producer_epoch


NOT_YET = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,  # Kafka's broker just after it created the coordinators' topic
)


def begin(client: RawClient, key: str) -> Producer:
    code, producer_id, epoch = init(client, key)
    deadline = time.monotonic() + 60
    while code in NOT_YET and time.monotonic() < deadline:
        time.sleep(0.01)
        code, producer_id, epoch = init(client, key)
    assert code == 0, ErrorCode.name_of(code)
    return producer_id, epoch


def add(client: RawClient, key: str, producer: Producer, *partitions: tuple[str, int], version: int = 3) -> list[int]:
    topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=[i]) for name, i in partitions]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=key,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=topics,
    )
    answer = client.call(request, version)
    return [
        p.partition_error_code for found in answer.results_by_topic_v3_and_below for p in found.results_by_partition
    ]


def end(client: RawClient, key: str, producer: Producer, *, commit: bool = True, version: int = 5) -> Any:
    request = EndTxnRequest(transactional_id=key, producer_id=producer[0], producer_epoch=producer[1], committed=commit)
    answer = client.call(request, version)
    return answer.error_code, answer.producer_id, answer.producer_epoch


def wait_until_complete(client: RawClient, key: str) -> None:
    for _ in range(500):
        (state,) = client.call(DescribeTransactionsRequest(transactional_ids=[key])).transaction_states
        if state.transaction_state.startswith("Complete"):
            return
        time.sleep(0.01)
    raise AssertionError(state)


def batch(producer: Producer, sequence: int, value: bytes = b"v", *, transactional: bool = True) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    return encode_batch(
        [(now_ms, b"k", value, ())],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        transactional=transactional,
    )


def produce(
    client: RawClient,
    topic: str,
    records: bytes,
    *,
    key: str | None,
    version: int = _PRODUCE_WITHOUT_IDS,
    index: int = 0,
) -> int:
    answer = client.call(produce_request(topic, records, key=key, index=index), version)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def produce_request(topic: str, records: bytes, *, key: str | None, index: int = 0) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=key,
        acks=-1,
        timeout_ms=5_000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic, partition_data=[ProduceRequest.PartitionProduceData(index=index, records=records)]
            )
        ],
    )


def read(client: RawClient, topic: str, isolation: int = 1, *, index: int = 0) -> tuple[list[bytes | None], Any]:
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=isolation,
        topics=[
            FetchRequest.FetchTopic(
                topic=topic,
                partitions=[FetchRequest.FetchPartition(partition=index, partition_max_bytes=1 << 20)],
            )
        ],
    )
    partition = client.call(request, 12).responses[0].partitions[0]
    values = [
        value
        for found in read_batches(bytes(partition.records or b""))
        if not found.is_control
        for _, _, _, value, _ in found.records()
    ]
    return values, partition
