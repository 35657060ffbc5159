"""Requests and responses as they stand on a connection: size, header, body.

A connection's bytes are cut into frames by ``FrameReader``; its ``get_buffer`` and ``buffer_updated`` are those of
an ``asyncio.BufferedProtocol``.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from kraftlog._kraftlog import FrameCodec, FrameReader
from kraftlog.wire.messages.headers import RequestHeader, ResponseHeader
from kraftlog.wire.registry import API_BY_KEY

if TYPE_CHECKING:
    from kraftlog._kraftlog import RequestDecoder, ResponseEncoder
    from kraftlog.wire.struct import Buffer, Message

__all__ = [
    "FrameReader",
    "begin_request",
    "begin_response",
    "decode_request",
    "decode_response",
    "decode_small_request",
    "encode_request",
    "encode_response",
    "encode_small_response",
]

# Kafka 4.x removed StopReplica; the dispatchers decide who is served it.
_STOP_REPLICA_KEY = 5
_STOP_REPLICA = replace(API_BY_KEY[_STOP_REPLICA_KEY], min_version=0, max_version=4)
_logger = logging.getLogger("kraftlog.wire")
# API keys whose answers were seen with bytes behind them: one warning each, as every answer of such a peer has them.
_LEFTOVER_KEYS: set[int] = set()
_CODEC = FrameCodec(RequestHeader, ResponseHeader, {**API_BY_KEY, _STOP_REPLICA_KEY: _STOP_REPLICA})


def decode_request(frame: Buffer) -> tuple[RequestHeader, Message]:
    """Read one request.

    Args:
        frame: Header and body without the size before them; fields of type records become memoryviews of it.

    Returns:
        The header and the request.

    Raises:
        UnsupportedVersionError: The API or its version is not served. The header was read unless the key is
            unknown, so that ApiVersions can be answered with UNSUPPORTED_VERSION in version 0 (KIP-511).
        RemoteProtocolError: The bytes do not decode.
    """
    return _CODEC.decode_request(frame)


def decode_small_request(frame: Buffer, max_elements: int) -> tuple[RequestHeader, Message] | None:
    """As ``decode_request``; None when the request has more array elements, or more than 256 KiB of copied bytes."""
    return _CODEC.decode_small_request(frame, max_elements)


def begin_request(frame: Buffer) -> tuple[RequestHeader, RequestDecoder]:
    """As ``decode_request``, for a request that is decoded in steps."""
    return _CODEC.begin_request(frame)


def encode_response(api_key: int, version: int, correlation_id: int, response: Message) -> list[Buffer]:
    """Write one response.

    Returns:
        Buffers to send one after the other. The first begins with the frame's size; values of type records
        stay items of their own, as they were given.

    Raises:
        LocalProtocolError: A value does not fit the version.
    """
    return _CODEC.encode_response(api_key, version, correlation_id, response)


def encode_small_response(
    api_key: int, version: int, correlation_id: int, response: Message, max_elements: int
) -> list[Buffer] | None:
    """As ``encode_response``; None when the response has more array elements."""
    return _CODEC.encode_small_response(api_key, version, correlation_id, response, max_elements)


def begin_response(api_key: int, version: int, correlation_id: int, response: Message) -> ResponseEncoder:
    """As ``encode_response``, for a response that is encoded in steps."""
    return _CODEC.begin_response(api_key, version, correlation_id, response)


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, request: Message
) -> list[Buffer]:
    """Write one request; the result is as that of ``encode_response``."""
    return _CODEC.encode_request(api_key, version, correlation_id, client_id, request)


def decode_response(api_key: int, version: int, frame: Buffer) -> tuple[int, Message]:
    """Read one response. Bytes behind it are ignored with a warning, as Kafka's ``AbstractResponse`` ignores them.

    Args:
        api_key: Of the request it answers.
        version: Of the request it answers.
        frame: Header and body without the size before them.

    Returns:
        The correlation id and the response.

    Raises:
        RemoteProtocolError: The bytes do not decode.
    """
    correlation_id, response, leftover = _CODEC.decode_response(api_key, version, frame)
    if leftover and api_key not in _LEFTOVER_KEYS:
        _LEFTOVER_KEYS.add(api_key)
        name, size = type(response).__name__, memoryview(frame).nbytes
        _logger.warning("%s v%d: %d of its %d bytes are not part of it and are ignored", name, version, leftover, size)
    return correlation_id, response
