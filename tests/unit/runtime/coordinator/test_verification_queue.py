"""Questions to one transaction coordinator: what waits is asked in one request, and once per transactional id."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.runtime.coordinator.verification_queue import VerificationQueue
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from waiting import settle

_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
_Response = AddPartitionsToTxnResponse


def transaction(key: str, epoch: int = 0) -> _Transaction:
    return _Transaction(
        transactional_id=key, producer_id=7, producer_epoch=epoch, topics=[_Topic(name="t", partitions=[0])]
    )


class Coordinator:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.requests: list[list[tuple[str, int]]] = []
        self._answers: list[asyncio.Future[Any]] = []

    async def send(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        self.requests.append([(asked.transactional_id, asked.producer_epoch) for asked in request.transactions])
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers.append(future)
        error = await future
        if error is not None:
            raise error
        return _Response(
            results_by_transaction=[
                _Response.AddPartitionsToTxnResult(
                    transactional_id=asked.transactional_id,
                    topic_results=[
                        _Response.AddPartitionsToTxnTopicResult(
                            name="t",
                            results_by_partition=[
                                _Response.AddPartitionsToTxnPartitionResult(
                                    partition_index=0, partition_error_code=asked.producer_epoch
                                )
                            ],
                        )
                    ],
                )
                for asked in request.transactions
            ]
        )

    async def answer(self, error: KafkaError | None = None) -> None:
        self._answers.pop(0).set_result(error)
        await settle()


def code_of(future: asyncio.Future[Any]) -> int:
    error = future.exception()
    assert isinstance(error, KafkaError)
    return error.code


@pytest.mark.spec("TXNC-52")
def test_questions_that_wait_for_a_request_share_the_next() -> None:
    async def run() -> None:
        coordinator = Coordinator()
        queue = VerificationQueue(coordinator.send)
        first = queue.ask(transaction("a"))
        await settle()
        others = [queue.ask(transaction(key, epoch)) for key, epoch in (("b", 1), ("c", 2), ("a", 3))]
        await settle()
        assert coordinator.requests == [[("a", 0)]]
        await coordinator.answer()
        assert first.result() == {TopicPartition("t", 0): 0}
        assert coordinator.requests[1:] == [[("b", 1), ("c", 2), ("a", 3)]]
        await coordinator.answer()
        assert [found.result()[TopicPartition("t", 0)] for found in others] == [1, 2, 3]

    asyncio.run(run())


@pytest.mark.spec("TXNC-50")
@pytest.mark.parametrize(
    ("epochs", "failed", "code", "sent"),
    [
        ((4, 4), 0, ErrorCode.NETWORK_EXCEPTION, 4),
        ((4, 5), 0, ErrorCode.INVALID_PRODUCER_EPOCH, 5),
        ((5, 4), 1, ErrorCode.INVALID_PRODUCER_EPOCH, 5),
    ],
)
def test_a_second_question_about_an_id_before_the_first_is_sent(
    epochs: tuple[int, int], failed: int, code: int, sent: int
) -> None:
    async def run() -> None:
        coordinator = Coordinator()
        queue = VerificationQueue(coordinator.send)
        busy = queue.ask(transaction("other"))
        await settle()
        asked = [queue.ask(transaction("x", epoch)) for epoch in epochs]
        assert code_of(asked[failed]) == code
        await coordinator.answer()
        assert coordinator.requests[1:] == [[("x", sent)]]
        await coordinator.answer()
        assert asked[1 - failed].result() == {TopicPartition("t", 0): sent}
        assert busy.done()

    asyncio.run(run())


def test_a_request_without_an_answer_fails_its_questions_and_the_next_are_asked() -> None:
    async def run() -> None:
        coordinator = Coordinator()
        queue = VerificationQueue(coordinator.send)
        first = queue.ask(transaction("a"))
        await settle()
        second = queue.ask(transaction("b"))
        await coordinator.answer(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE))
        assert code_of(first) == ErrorCode.BROKER_NOT_AVAILABLE
        await coordinator.answer()
        assert second.result() == {TopicPartition("t", 0): 0}

    asyncio.run(run())
