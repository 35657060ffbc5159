"""Admin requests that came to a broker go to the active controller in an Envelope, and their answers back (KIP-590).

The request travels as the client sent it, header and all, and so does the answer: neither is read on the way.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.embedded import DefaultPrincipalData
from kraftlog.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

if TYPE_CHECKING:
    from kraftlog.node.node import Node
    from kraftlog.transport.context import RequestContext
    from kraftlog.transport.frame_reader import Frame

__all__ = ["FORWARDED_KEYS", "forward"]

# What brokers of Kafka forward (ApiKeys.forwardable) among what this node serves.
FORWARDED_KEYS = frozenset({19, 20, 33, 37, 43, 44, 46, 55, 57, 64, 80, 81})


def forward(node: Node, context: RequestContext, frame: Frame) -> asyncio.Future[list[bytes]]:
    """Ask the active controller; the future has the buffers of the answer, ready to be sent.

    It fails with KafkaError: REQUEST_TIMED_OUT when no controller answered within request.timeout.ms, or what the
    controller says of the envelope itself.
    """
    return node.loop.create_task(_forward(node, context, bytes(frame)))


async def _forward(node: Node, context: RequestContext, frame: bytes) -> list[bytes]:
    kind, _, name = context.principal.partition(":")
    principal = DefaultPrincipalData(type=kind, name=name, token_authenticated=False)
    family = socket.AF_INET6 if ":" in context.client_host else socket.AF_INET
    request = EnvelopeRequest(
        request_data=frame,
        request_principal=b"\0\0" + principal.encode(0),
        client_host_address=socket.inet_pton(family, context.client_host),
    )
    try:
        response: EnvelopeResponse = await node.controllers.request(
            request, timeout_s=node.config.get_int("request.timeout.ms") / 1000
        )
    except TimeoutError:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no active controller answered in time") from None
    if response.error_code or response.response_data is None:
        raise KafkaError(response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR)
    return [len(response.response_data).to_bytes(4, "big"), response.response_data]
