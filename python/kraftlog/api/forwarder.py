"""Admin requests that came to a broker go to the active controller in an Envelope, and their answers back (KIP-590).

The request travels as the client sent it, header and all, and so does the answer: neither is read on the way, unless
the broker checks a part of the request itself.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Protocol

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.frame import decode_response, encode_request
from kraftlog.wire.messages.embedded import DefaultPrincipalData
from kraftlog.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import RaftService, TaskService
    from kraftlog.transport.frame_reader import Frame
    from kraftlog.wire.struct import Message

__all__ = ["ControllerClient", "Forwarder"]


class ControllerClient(Protocol):
    """Asks the active controller, wherever it is."""

    async def request(self, message: Message, *, timeout_s: float | None = None) -> Any:
        """Ask until an active controller answers.

        Raises:
            TimeoutError: No active controller answered in ``timeout_s`` seconds.
            KafkaError: The controller refuses with an error that the answer has no place for.
        """
        ...


class Forwarder:
    """Sends requests on for the clients of a broker.

    Args:
        raft: Knows whether this node is the active controller.
        client: The way to the active controller.
        tasks: Run the exchange with it.
        request_timeout_ms: request.timeout.ms, how long a client waits.
    """

    def __init__(
        self, raft: RaftService, client: ControllerClient, tasks: TaskService, *, request_timeout_ms: int
    ) -> None:
        self._raft = raft
        self._client = client
        self._tasks = tasks
        self._timeout_s = request_timeout_ms / 1000

    def __call__(self, context: RequestContext, frame: Frame) -> asyncio.Future[list[bytes]] | None:
        """Ask the active controller; None when that is this node.

        The future has the buffers of the answer, ready to be sent. It fails with KafkaError: REQUEST_TIMED_OUT when no
        controller answered within request.timeout.ms, or what the controller says of the envelope itself.
        """
        return None if self._raft.is_leader else self._tasks.spawn(self._forward(context, bytes(frame)))

    def send(self, context: RequestContext, request: Message) -> asyncio.Future[Any] | None:
        """Ask the active controller for what is left of a client's request; None when that is this node.

        The future has the response; it fails as that of a whole frame does.
        """
        return None if self._raft.is_leader else self._tasks.spawn(self._send(context, request))

    async def _send(self, context: RequestContext, request: Message) -> Message:
        parts = encode_request(context.api_key, context.api_version, context.correlation_id, context.client_id, request)
        # The frame in an envelope has no length prefix, and neither has what is decoded.
        _, answer = await self._forward(context, b"".join(map(bytes, parts))[4:])
        return decode_response(context.api_key, context.api_version, bytes(answer))[1]

    async def _forward(self, context: RequestContext, frame: bytes) -> list[bytes]:
        principal = DefaultPrincipalData(
            type=context.principal.type, name=context.principal.name, token_authenticated=False
        )
        family = socket.AF_INET6 if ":" in context.client_host else socket.AF_INET
        request = EnvelopeRequest(
            request_data=frame,
            request_principal=b"\0\0" + principal.encode(0),
            client_host_address=socket.inet_pton(family, context.client_host),
        )
        try:
            response: EnvelopeResponse = await self._client.request(request, timeout_s=self._timeout_s)
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no active controller answered in time") from None
        if response.error_code or response.response_data is None:
            raise KafkaError(response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR)
        return [len(response.response_data).to_bytes(4, "big"), response.response_data]
