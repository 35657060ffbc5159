"""EndTxn, API key 26, versions 0-5 (KIP-98).

2   PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)
4   TRANSACTION_ABORTABLE may be answered (KIP-890)
5   the answer has the producer's id and epoch for its next transaction (KIP-890)
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from kraftlog.api.combined_answer import transform
from kraftlog.coordinator.transaction.end_rules import EndRequest
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import TransactionService

__all__ = ["handle"]

FENCED_VERSION = 2
EPOCH_BUMP_VERSION = 5


def handle(
    context: RequestContext, request: EndTxnRequest, *, transactions: TransactionService
) -> EndTxnResponse | asyncio.Future[EndTxnResponse]:
    """Commit or abort; answered once that is decided for good, before the markers are written."""
    ended = EndRequest(
        request.producer_id,
        request.producer_epoch,
        request.committed,
        2 if context.api_version >= EPOCH_BUMP_VERSION else 0,
    )

    def response(answer: EndTxnResponse) -> EndTxnResponse:
        if answer.error_code == ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_VERSION:
            return replace(answer, error_code=ErrorCode.INVALID_PRODUCER_EPOCH)
        return answer

    def failed(error: KafkaError) -> EndTxnResponse:
        return EndTxnResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)

    if not request.transactional_id:
        return failed(KafkaError(ErrorCode.INVALID_REQUEST))
    try:
        runner = transactions.runner(request.transactional_id)
    except KafkaError as error:
        return failed(error)
    asked = runner.ask(
        lambda shard, future, now_ms: shard.end_transaction(future, request.transactional_id, ended, now_ms)
    )
    return transform(asked, response, failed)
