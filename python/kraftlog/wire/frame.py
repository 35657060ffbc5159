"""Requests and responses as they stand on a connection: size, header, body."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from kraftlog.errors import LocalProtocolError, RemoteProtocolError, UnsupportedVersionError
from kraftlog.wire.codec import decode_message, decode_prefix, encode_parts
from kraftlog.wire.messages.headers import RequestHeader, ResponseHeader
from kraftlog.wire.registry import API_BY_KEY, Api

if TYPE_CHECKING:
    from kraftlog.wire.struct import Buffer, Message

__all__ = ["decode_request", "decode_response", "encode_request", "encode_response"]

_SIZE = struct.Struct(">i")
_KEY_AND_VERSION = struct.Struct(">hh")


def _api(api_key: int) -> Api:
    try:
        return API_BY_KEY[api_key]
    except KeyError:
        raise LocalProtocolError(f"there is no API key {api_key}") from None


def decode_request(frame: Buffer) -> tuple[RequestHeader, Message]:
    """Read one request.

    Args:
        frame: Header and body without the size before them; fields of type records become memoryviews of it.

    Returns:
        The header and the request.

    Raises:
        UnsupportedVersionError: The API or its version is not served; for ApiVersions the header was read, so
            that the caller can answer UNSUPPORTED_VERSION in version 0 (KIP-511).
        RemoteProtocolError: The bytes do not decode.
    """
    view = memoryview(frame)
    if len(view) < _KEY_AND_VERSION.size:
        raise RemoteProtocolError(f"a request of {len(view)} bytes has no header")
    api_key, version = _KEY_AND_VERSION.unpack_from(view)
    api = API_BY_KEY.get(api_key)
    if api is None:
        raise UnsupportedVersionError(f"API key {api_key} is not known", api_key=api_key, api_version=version)
    header: RequestHeader
    header, position = decode_prefix(RequestHeader, view, api.request_header_version(version))
    if not api.serves(version):
        text = f"{api.name} version {version} is not served ({api.min_version} to {api.max_version} are)"
        raise UnsupportedVersionError(text, api_key=api_key, api_version=version, correlation_id=header.correlation_id)
    return header, decode_message(api.request, view[position:], version)


def encode_response(api_key: int, version: int, correlation_id: int, response: Message) -> list[Buffer]:
    """Write one response.

    Returns:
        Buffers to send one after the other. The first begins with the frame's size; values of type records
        stay items of their own, as they were given.

    Raises:
        LocalProtocolError: A value does not fit the version.
    """
    header_version = _api(api_key).response_header_version(version)
    return _frame(ResponseHeader(correlation_id=correlation_id), header_version, response, version)


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, request: Message
) -> list[Buffer]:
    """Write one request; the result is as that of ``encode_response``."""
    header = RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    return _frame(header, _api(api_key).request_header_version(version), request, version)


def decode_response(api_key: int, version: int, frame: Buffer) -> tuple[int, Message]:
    """Read one response.

    Args:
        api_key: Of the request it answers.
        version: Of the request it answers.
        frame: Header and body without the size before them.

    Returns:
        The correlation id and the response.

    Raises:
        RemoteProtocolError: The bytes do not decode.
    """
    api = _api(api_key)
    view = memoryview(frame)
    header: ResponseHeader
    header, position = decode_prefix(ResponseHeader, view, api.response_header_version(version))
    return header.correlation_id, decode_message(api.response, view[position:], version)


def _frame(header: Message, header_version: int, body: Message, version: int) -> list[Buffer]:
    parts = [*encode_parts(header, header_version), *encode_parts(body, version)]
    size = sum(memoryview(part).nbytes for part in parts)
    return [_SIZE.pack(size), *parts]
