"""Leaders of partitions ask transaction coordinators (KIP-890): what a producer hears of each answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.runtime.coordinator.transaction_verifier import ProducerTransaction, TransactionVerifier, Verifying
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PRODUCER = ProducerTransaction(transactional_id="x", producer_id=7, producer_epoch=1)
_PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult


class Coordinator:
    """Node 2 coordinates everything; ``answers`` are a KafkaError, a top-level code, or codes of partitions."""

    def __init__(self, *answers: KafkaError | int | dict[TopicPartition, int], leader: int = 2) -> None:
        self.answers = list(answers)
        self.requests: list[AddPartitionsToTxnRequest] = []
        self._leader = leader

    @property
    def image(self) -> Any:
        topic = SimpleNamespace(partitions={0: SimpleNamespace(leader=self._leader)})
        topics = SimpleNamespace(by_name=lambda _: topic if self._leader >= 0 else None)
        return SimpleNamespace(
            topics=topics, cluster=SimpleNamespace(brokers={2: SimpleNamespace(fenced=False, broker_id=2)})
        )

    async def request(self, broker_id: int, message: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        assert broker_id == 2
        self.requests.append(message)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, KafkaError):
            raise answer
        if isinstance(answer, int):
            return AddPartitionsToTxnResponse(error_code=answer)
        topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
            name="t",
            results_by_partition=[
                _PartitionResult(partition_index=partition.partition, partition_error_code=code)
                for partition, code in answer.items()
            ],
        )
        result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult(transactional_id="x", topic_results=[topic])
        return AddPartitionsToTxnResponse(results_by_transaction=[result])

    def verify(
        self, verifying: Verifying, *partitions: TopicPartition, retry_max_s: float = 0.02
    ) -> dict[TopicPartition, int]:
        async def run() -> dict[TopicPartition, int]:
            verifier = TransactionVerifier(
                1,
                SimpleNamespace(partition_count=lambda: 1),  # type: ignore[arg-type]
                self,  # type: ignore[arg-type]
                self,  # type: ignore[arg-type]
                retry_s=0.001,
                retry_max_s=retry_max_s,
            )
            return dict(await verifier.verify(PRODUCER, partitions, verifying))

        return asyncio.run(run())


def test_without_a_coordinator_each_partition_is_refused_at_once() -> None:
    """TXNC-51."""
    coordinator = Coordinator({}, leader=-1)
    codes = coordinator.verify(Verifying.ADD, T0, T1)
    assert codes == dict.fromkeys((T0, T1), ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert coordinator.requests == []


@pytest.mark.parametrize(
    ("answer", "verifying", "expected"),
    [
        ({T0: 0}, Verifying.ADD, ErrorCode.NONE),
        ({T0: ErrorCode.PRODUCER_FENCED}, Verifying.ADD, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({T0: ErrorCode.TRANSACTION_ABORTABLE}, Verifying.ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        ({T0: ErrorCode.TRANSACTION_ABORTABLE}, Verifying.OLD, ErrorCode.INVALID_TXN_STATE),
        ({T0: ErrorCode.CONCURRENT_TRANSACTIONS}, Verifying.OLD, ErrorCode.CONCURRENT_TRANSACTIONS),
        ({}, Verifying.ADD, ErrorCode.NETWORK_EXCEPTION),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, Verifying.ADD, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.NOT_COORDINATOR, Verifying.ADD, ErrorCode.NOT_COORDINATOR),
        (KafkaError(ErrorCode.BROKER_NOT_AVAILABLE), Verifying.ADD, ErrorCode.NETWORK_EXCEPTION),
        (KafkaError(ErrorCode.UNSUPPORTED_VERSION), Verifying.OLD, ErrorCode.NONE),
    ],
)
def test_answers_of_the_coordinator(answer: Any, verifying: Verifying, expected: int) -> None:
    coordinator = Coordinator(answer)
    assert coordinator.verify(verifying, T0) == {T0: expected}
    assert len(coordinator.requests) == 1
    (sent,) = coordinator.requests[0].transactions
    assert sent.verify_only is (verifying is not Verifying.ADD)


def test_adding_waits_a_little_for_the_transaction_before() -> None:
    """PSTA-63: it is tried again until it succeeds or the time is over."""
    busy: dict[TopicPartition, int] = {T0: ErrorCode.CONCURRENT_TRANSACTIONS}
    soon = Coordinator(busy, busy, {T0: 0})
    assert soon.verify(Verifying.ADD, T0, retry_max_s=60) == {T0: 0}
    assert len(soon.requests) == 3
    late = Coordinator(busy)
    assert late.verify(Verifying.ADD, T0) == busy
    assert len(late.requests) > 1


def test_an_error_of_one_partition_is_its_own() -> None:
    """PSTA-69."""
    codes: dict[TopicPartition, int] = {T0: ErrorCode.INVALID_TXN_STATE, T1: 0}
    assert Coordinator(codes).verify(Verifying.ABORTABLE, T0, T1) == codes


def test_requests_of_a_producer_have_one_turn_each_until_none_waits() -> None:
    async def run() -> None:
        coordinator: Any = Coordinator({})
        verifier = TransactionVerifier(1, coordinator, coordinator, coordinator, retry_s=0.001, retry_max_s=0.01)
        served: list[int] = []

        async def serve(number: int) -> None:
            async with verifier.turn(7):
                served.append(number)
                await asyncio.sleep(0)
            # The next request may not have noticed yet that the lock is free.
            async with verifier.turn(8):
                assert verifier.is_in_turn(7) is (number < 2)

        await asyncio.gather(*map(serve, range(3)))
        assert served == [0, 1, 2]
        assert not verifier.is_in_turn(7)
        assert not verifier.is_in_turn(8)

    asyncio.run(run())
