"""Envelope (key 58), version 0: a request that a broker forwards for its client (KIP-590).

The active controller handles what is inside as if the client had asked it, and sends the answer as it would go to the
client. Everybody is allowed everything so far: the principal is not looked at.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.api.dispatcher import PendingResponse
from kraftlog.api.forwarding import FORWARDED_KEYS
from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

if TYPE_CHECKING:
    from kraftlog.node.node import Node
    from kraftlog.transport.context import RequestContext
    from kraftlog.transport.socket import Output

__all__ = ["handle"]


def handle(
    node: Node, context: RequestContext, request: EnvelopeRequest
) -> EnvelopeResponse | asyncio.Future[EnvelopeResponse]:
    """Handle what is inside."""
    if not node.metadata.is_leader:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    frame = bytes(request.request_data)
    if int.from_bytes(frame[:2], "big", signed=True) not in FORWARDED_KEYS:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    connection = context.connection
    answer = connection.dispatcher.dispatch(connection, frame)
    if isinstance(answer, list):
        return _enclose(answer)
    if not isinstance(answer, PendingResponse):
        # A version that is not served, or bytes that do not decode: the connection belongs to the broker, and stays.
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    return node.loop.create_task(_finish(context, answer))


async def _finish(context: RequestContext, pending: PendingResponse) -> EnvelopeResponse:
    await asyncio.wait([pending.future])
    outputs = context.connection.dispatcher.finish(context.connection, pending)
    return _enclose(outputs) if isinstance(outputs, list) else EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)


def _enclose(outputs: list[Output]) -> EnvelopeResponse:
    return EnvelopeResponse(response_data=b"".join(bytes(one) for one in outputs)[4:])
