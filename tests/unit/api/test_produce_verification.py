"""What a producer hears when the coordinator of its transaction does not confirm it, and who is asked at all."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog._kraftlog import encode_batch
from kraftlog.api.produce_verification import ProduceVerification, read_transaction
from kraftlog.api.slices import at_once
from kraftlog.errors import ErrorCode
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.produce import ProduceRequest

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, ABORTABLE, ADDING = 9, 11, 12


class Node:
    """Partitions of a topic, of which the leader of 0 is here; a coordinator that answers one code."""

    def __init__(self, code: int, *, leads: bool = True) -> None:
        self.code = code
        self.asked: list[set[TopicPartition]] = []
        self._leads = leads

    def now_ms(self) -> int:
        return 5

    def get_by_name(self, topic: str, index: int) -> Any:
        return SimpleNamespace(
            topic=topic,
            topic_partition=TopicPartition(topic, index),
            is_leader=self._leads and index == 0,
            log=SimpleNamespace(begin_verification=lambda _producer_id, **_: 77),
        )

    async def verify(self, _producer: object, partitions: Any, _verifying: object) -> dict[TopicPartition, int]:
        self.asked.append(set(partitions))
        return dict.fromkeys(partitions, self.code)

    def is_in_turn(self, _producer_id: int) -> bool:
        return False


def run(node: Node, version: int) -> ProduceVerification:
    batch = encode_batch([(5, None, b"v", ())], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    data = [ProduceRequest.PartitionProduceData(index=index, records=batch) for index in (0, 1)]
    request = ProduceRequest(
        transactional_id="x", acks=-1, topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=data)]
    )
    transaction = at_once(read_transaction(version, request))
    assert transaction is not None
    settings: Any = SimpleNamespace(transaction_partition_verification_enable=True)
    replicas: Any = node
    verifier: Any = node
    verification = ProduceVerification(transaction, replicas, verifier, settings)
    asyncio.run(verification.run(request))
    return verification


@pytest.mark.spec("PSTA-62")
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    ],
)
@pytest.mark.parametrize("version", [OLD, ABORTABLE, ADDING])
def test_coordinator_that_cannot_be_asked_is_not_enough_replicas(code: int, version: int) -> None:
    node = Node(code)
    verification = run(node, version)
    assert verification.result_of(node.get_by_name("t", 0)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.spec("PSTA-63")
def test_transaction_before_is_not_over_by_version() -> None:
    for version, code in ((ABORTABLE, ErrorCode.NOT_ENOUGH_REPLICAS), (ADDING, ErrorCode.CONCURRENT_TRANSACTIONS)):
        node = Node(ErrorCode.CONCURRENT_TRANSACTIONS)
        assert run(node, version).result_of(node.get_by_name("t", 0)).error_code == code


@pytest.mark.spec("PSTA-70")
def test_only_partitions_that_are_led_here_are_asked_about() -> None:
    node = Node(0)
    run(node, ADDING)
    assert node.asked == [{T0}]
    elsewhere = Node(0, leads=False)
    run(elsewhere, ADDING)
    assert elsewhere.asked == []
