"""InitProducerId, API key 22, versions 0-5 (KIP-98).

    3   a producer may bring its id and epoch (KIP-360)
    4   PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH
    5   TRANSACTION_ABORTABLE may be answered (KIP-890)

Only idempotent producers are served: there are no transactions here yet, and a producer that asks for them is told so.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ProducerIdService, TaskService

__all__ = ["handle"]


def handle(
    context: RequestContext, request: InitProducerIdRequest, *, tasks: TaskService, producer_ids: ProducerIdService
) -> InitProducerIdResponse | asyncio.Future[InitProducerIdResponse]:
    """Give a producer an id that nobody else has, with epoch 0."""
    if request.transactional_id is not None:
        transactional = bool(request.transactional_id)
        # UNSUPPORTED_VERSION is what clients take for "this broker has no transactions"; an empty id is their mistake.
        error_code = ErrorCode.UNSUPPORTED_VERSION if transactional else ErrorCode.INVALID_REQUEST
        return InitProducerIdResponse(error_code=error_code, producer_id=-1, producer_epoch=-1)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_id=-1, producer_epoch=-1)
    producer_id = producer_ids.take()
    if producer_id is not None:
        return _granted(producer_id)
    return tasks.spawn(_wait(producer_ids))


async def _wait(producer_ids: ProducerIdService) -> InitProducerIdResponse:
    return _granted(await producer_ids.take_soon())


def _granted(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
