"""Envelope (key 58), version 0: a request that a broker forwards for its client (KIP-590).

The active controller handles the embedded request for the client's principal and address, and sends the answer as the
client would get it. Errors of the envelope itself are those of Kafka's ``EnvelopeUtils``: UNSUPPORTED_VERSION where the
embedded request cannot be parsed, PRINCIPAL_DESERIALIZATION_FAILURE for the principal, INVALID_REQUEST for the rest.

An answer which says that this controller is not the active one any more becomes NOT_CONTROLLER of the envelope, so that
the broker asks the next controller (Kafka's ``RequestChannel.Request.shouldReturnNotController``); for requests to the
raft layer that answer is NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from kraftlog.api.handler_table import FORWARDED_KEYS
from kraftlog.errors import ErrorCode, KafkaError, ProtocolError
from kraftlog.security.principal import Principal
from kraftlog.transport.exchange import PeerContext, PendingResponse
from kraftlog.wire.frame import decode_response
from kraftlog.wire.messages.embedded import DefaultPrincipalData
from kraftlog.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from kraftlog.wire.struct import Struct

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import RaftService, TaskService
    from kraftlog.transport.exchange import Exchange
    from kraftlog.transport.socket import Output

__all__ = ["handle"]

_PRINCIPAL_VERSION = 0
# DescribeQuorum, AddRaftVoter, RemoveRaftVoter: their errors are those of the raft layer.
_RAFT_KEYS = frozenset({55, 80, 81})
# Larger answers are read only when this node does not lead any more.
_READ_BYTES_MAX = 64 * 1024


def handle(
    context: RequestContext, request: EnvelopeRequest, *, raft: RaftService, tasks: TaskService, exchange: Exchange
) -> EnvelopeResponse | asyncio.Future[EnvelopeResponse]:
    """Handle the embedded request."""
    if not raft.is_leader:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    frame = bytes(request.request_data)
    if len(frame) < 8:
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if int.from_bytes(frame[:2], "big", signed=True) not in FORWARDED_KEYS:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    answer = exchange.handle(_client(context, request), frame)
    if isinstance(answer, list):
        return _enclose(answer, frame, is_leader=raft.is_leader)
    if isinstance(answer, PendingResponse):
        return tasks.spawn(_finish(answer, frame, raft))
    # A version that is not served, or bytes that do not decode: the connection belongs to the broker, and stays.
    return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)


def _client(context: RequestContext, request: EnvelopeRequest) -> PeerContext:
    """The client that the broker speaks for.

    Raises:
        KafkaError: The principal or the address cannot be read.
    """
    data = bytes(request.request_principal or b"")
    try:
        if int.from_bytes(data[:2], "big", signed=True) != _PRINCIPAL_VERSION or len(data) < 2:
            raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
        principal = DefaultPrincipalData.decode(data[2:], _PRINCIPAL_VERSION)
    except ProtocolError as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from error
    address = bytes(request.client_host_address)
    try:
        host = socket.inet_ntop(socket.AF_INET6 if len(address) == 16 else socket.AF_INET, address)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{len(address)} bytes are no client address") from None
    return PeerContext(
        listener_name=context.listener_name,
        is_controller_listener=context.is_controller_listener,
        principal=Principal(principal.type, principal.name),
        client_host=host,
        peer=f"{host} through {context.peer.peer}",
        is_forwarded=True,
    )


async def _finish(pending: PendingResponse, frame: bytes, raft: RaftService) -> EnvelopeResponse:
    outputs: Any = pending
    while isinstance(outputs, PendingResponse):
        await _ended(outputs)
        outputs = outputs.finish(outputs.future)
    if isinstance(outputs, list):
        return _enclose(outputs, frame, is_leader=raft.is_leader)
    return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)


async def _ended(pending: PendingResponse) -> None:
    ended = asyncio.Event()
    pending.future.add_done_callback(lambda _: ended.set())
    await ended.wait()


def _enclose(outputs: list[Output], frame: bytes, *, is_leader: bool) -> EnvelopeResponse:
    data = b"".join(bytes(output) for output in outputs)[4:]
    if (len(data) <= _READ_BYTES_MAX or not is_leader) and _is_refused(frame, data):
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    return EnvelopeResponse(response_data=data)


def _is_refused(frame: bytes, data: bytes) -> bool:
    """Whether an answer says that another controller has to be asked."""
    api_key, api_version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
    refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER if api_key in _RAFT_KEYS else ErrorCode.NOT_CONTROLLER
    return refusal in _error_codes(decode_response(api_key, api_version, data)[1])


def _error_codes(value: object) -> Iterator[int]:
    """Every error code in a message, at any depth."""
    if isinstance(value, Struct):
        for field in fields(value):
            inner = getattr(value, field.name)
            if field.name == "error_code":
                yield inner
            elif not isinstance(inner, str | bytes | int):
                yield from _error_codes(inner)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for inner in value:
            yield from _error_codes(inner)
