"""InitProducerId, API key 22, versions 0-5 (KIP-98).

    3   a producer may bring its id and epoch (KIP-360)
    4   PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH
    5   TRANSACTION_ABORTABLE may be answered (KIP-890)

Version 6 (KIP-939) is not released.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.api.combined_answer import transform
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ProducerIdService, TaskService, TransactionService

__all__ = ["handle"]

FENCED_VERSION = 4


def handle(
    context: RequestContext,
    request: InitProducerIdRequest,
    *,
    tasks: TaskService,
    producer_ids: ProducerIdService,
    transactions: TransactionService,
) -> InitProducerIdResponse | asyncio.Future[InitProducerIdResponse]:
    """Give a producer an id: one that nobody else has, or the one of its transactional id with a new epoch."""
    is_idempotent = request.transactional_id is None
    if not is_idempotent and not request.transactional_id:
        return _refused(ErrorCode.INVALID_REQUEST)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _refused(ErrorCode.INVALID_REQUEST)
    if producer_ids.is_empty:
        return tasks.spawn(_wait(context, request, producer_ids, transactions))
    return _grant(context, request, producer_ids, transactions)


async def _wait(
    context: RequestContext,
    request: InitProducerIdRequest,
    producer_ids: ProducerIdService,
    transactions: TransactionService,
) -> InitProducerIdResponse:
    await producer_ids.wait_until_some()
    if request.transactional_id is None:
        return _granted(await producer_ids.take_soon())
    answer = _initialize(context, request, transactions)
    return await answer if isinstance(answer, asyncio.Future) else answer


def _grant(
    context: RequestContext,
    request: InitProducerIdRequest,
    producer_ids: ProducerIdService,
    transactions: TransactionService,
) -> InitProducerIdResponse | asyncio.Future[InitProducerIdResponse]:
    if request.transactional_id is not None:
        return _initialize(context, request, transactions)
    producer_id = producer_ids.take_or_request()
    return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) if producer_id is None else _granted(producer_id)


def _initialize(
    context: RequestContext, request: InitProducerIdRequest, transactions: TransactionService
) -> InitProducerIdResponse | asyncio.Future[InitProducerIdResponse]:
    try:
        runner = transactions.runner(request.transactional_id or "")
    except KafkaError as error:
        return _refused(error.code)
    asked = runner.ask(lambda shard, future, now_ms: shard.init_producer_id(future, request, now_ms))

    def response(answer: InitProducerIdResponse) -> InitProducerIdResponse:
        if answer.error_code == ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_VERSION:
            return _refused(ErrorCode.INVALID_PRODUCER_EPOCH)
        return answer

    return transform(asked, response, lambda error: _refused(error.code))


def _granted(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(error_code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error_code, producer_id=-1, producer_epoch=-1)
