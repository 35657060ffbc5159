"""Questions of a leader to one transaction coordinator: one request at a time, which takes all that wait.

Source: ``kafka.server.AddPartitionsToTxnManager``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

__all__ = ["VerificationQueue"]

_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_Codes = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class _Question:
    transaction: _Transaction
    answer: asyncio.Future[_Codes]


class VerificationQueue:
    """The questions to one coordinator.

    Args:
        send: Sends a request to it; raises KafkaError if there is no answer.
    """

    def __init__(
        self, send: Callable[[AddPartitionsToTxnRequest], Coroutine[Any, Any, AddPartitionsToTxnResponse]]
    ) -> None:
        self._send = send
        self._waiting: dict[str, _Question] = {}
        self._sending: asyncio.Task[None] | None = None

    def ask(self, transaction: _Transaction) -> asyncio.Future[_Codes]:
        """Ask about a transaction; at most one question about a transactional id waits.

        Returns:
            A future of the error code of each partition. It fails with KafkaError: INVALID_PRODUCER_EPOCH if another
            question about the id that waits has a newer epoch, NETWORK_EXCEPTION if one with the same epoch comes.
        """
        loop = asyncio.get_running_loop()
        question = _Question(transaction, loop.create_future())
        earlier = self._waiting.get(transaction.transactional_id)
        if earlier is not None and transaction.producer_epoch < earlier.transaction.producer_epoch:
            question.answer.set_exception(KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH))
            return question.answer
        if earlier is not None:
            # The same epoch: the client has asked again, and hears of it where it asked last.
            is_same = transaction.producer_epoch == earlier.transaction.producer_epoch
            _fail(earlier, ErrorCode.NETWORK_EXCEPTION if is_same else ErrorCode.INVALID_PRODUCER_EPOCH)
            del self._waiting[transaction.transactional_id]
        self._waiting[transaction.transactional_id] = question
        if self._sending is None:
            self._sending = loop.create_task(self._send_all())
        return question.answer

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, {}
                await self._send_batch(batch)
        finally:
            self._sending = None

    async def _send_batch(self, batch: Mapping[str, _Question]) -> None:
        request = AddPartitionsToTxnRequest(transactions=[question.transaction for question in batch.values()])
        found: dict[str, _Codes] = {}
        code: int = ErrorCode.NETWORK_EXCEPTION
        try:
            response = await self._send(request)
            if response.error_code:
                is_refused = response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                code = ErrorCode.INVALID_TXN_STATE if is_refused else response.error_code
            else:
                found = {answered.transactional_id: _codes(answered) for answered in response.results_by_transaction}
        except KafkaError as error:
            code = error.code
        finally:
            for transactional_id, question in batch.items():
                if transactional_id not in found:
                    _fail(question, code)
                elif not question.answer.done():
                    question.answer.set_result(found[transactional_id])


def _fail(question: _Question, code: int) -> None:
    if not question.answer.done():
        question.answer.set_exception(KafkaError(code))


def _codes(answered: AddPartitionsToTxnResponse.AddPartitionsToTxnResult) -> _Codes:
    return {
        TopicPartition(topic.name, result.partition_index): result.partition_error_code
        for topic in answered.topic_results
        for result in topic.results_by_partition
    }
