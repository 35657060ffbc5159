"""From a frame to its handler and back to bytes; versions are checked, errors become what the protocol has for them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from kraftlog.api.forwarding import FORWARDED_KEYS, forward
from kraftlog.api.handlers import HANDLERS
from kraftlog.errors import KafkaError, ProtocolError
from kraftlog.transport.context import RequestContext
from kraftlog.wire.frame import decode_request, encode_response
from kraftlog.wire.registry import API_BY_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kraftlog.api.handlers import Handler
    from kraftlog.node.node import Node
    from kraftlog.transport.connection import Connection
    from kraftlog.transport.frame_reader import Frame
    from kraftlog.transport.socket import Output

__all__ = ["CloseConnection", "Dispatcher", "PendingResponse"]

logger = logging.getLogger(__name__)

API_VERSIONS_KEY = 18
PRODUCE_KEY = 0
UNSUPPORTED_VERSION = 35


class CloseConnection:
    """The answer to what the protocol has no answer for."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


class PendingResponse:
    """A request whose response is still to come, in the connection's order of responses."""

    __slots__ = ("api_key", "api_version", "correlation_id", "frame_bytes", "future", "outputs")

    def __init__(self, future: asyncio.Future[Any], context: RequestContext) -> None:
        self.future = future
        self.api_key = context.api_key
        self.api_version = context.api_version
        self.correlation_id = context.correlation_id
        self.frame_bytes = 0
        self.outputs: list[Output] | None = None

    @classmethod
    def ready(cls, outputs: list[Output]) -> PendingResponse:
        """A response that is known but has to wait for its turn."""
        pending = cls.__new__(cls)
        pending.api_key = -1
        pending.frame_bytes = 0
        pending.outputs = outputs
        return pending


class Dispatcher:
    """Finds the handler of a frame for one kind of listener.

    Args:
        node: Handed to every handler.
        listener: "broker" or "controller": which APIs the listener serves.
        handlers: These by API key, instead of those of the listener.
    """

    def __init__(self, node: Node, listener: str, *, handlers: Mapping[int, Handler] | None = None) -> None:
        self._node = node
        self.listener = listener
        self._handlers: dict[int, tuple[int, int, Handler]] = {}
        self.advertised: dict[int, tuple[int, int]] = {}
        if handlers is None:
            handlers = {key: one for key, one in HANDLERS.items() if listener in API_BY_KEY[key].listeners}
        for key in sorted(handlers):
            api = API_BY_KEY[key]
            self._handlers[key] = (api.min_version, api.max_version, handlers[key])
            # Kafka accepts Produce from version 3 on but says 0, for librdkafka before 2.3 (KAFKA-18659).
            self.advertised[key] = (0 if key == PRODUCE_KEY else api.min_version, api.max_version)

    def dispatch(self, connection: Connection, frame: Frame) -> list[Output] | PendingResponse | CloseConnection | None:
        """Handle one frame.

        Returns:
            The response's buffers, a pending response, None when there is to be no response, or that and why the
            connection has to be closed.
        """
        if len(frame) < 8:
            return CloseConnection(f"a request of {len(frame)} bytes is too short for a header")
        api_key = int.from_bytes(frame[:2], "big", signed=True)
        api_version = int.from_bytes(frame[2:4], "big", signed=True)
        known = self._handlers.get(api_key)
        if known is None:
            return CloseConnection(f"unknown or unsupported API key {api_key} (version {api_version})")
        min_version, max_version, handler = known
        if not min_version <= api_version <= max_version:
            if api_key == API_VERSIONS_KEY:
                return self._refuse_api_versions(int.from_bytes(frame[4:8], "big", signed=True))
            name = API_BY_KEY[api_key].name
            return CloseConnection(f"{name} version {api_version} is outside {min_version}..{max_version}")
        try:
            header, request = decode_request(frame)
        except ProtocolError as error:
            return CloseConnection(f"{API_BY_KEY[api_key].name} version {api_version} does not decode: {error}")
        context = RequestContext(
            api_key,
            api_version,
            header.correlation_id,
            header.client_id,
            connection.listener_name,
            connection.principal,
            connection.client_host,
            connection,
            connection.is_controller_listener,
        )
        try:
            if api_key in FORWARDED_KEYS and self.listener == "broker" and not self._node.metadata.is_leader:
                return PendingResponse(forward(self._node, context, frame), context)
            response = handler(self._node, context, request)
        except KafkaError as error:
            return self._error_response(api_key, api_version, header.correlation_id, error)
        except Exception:
            # A defect of ours in one request: the peer must not wait for an answer, the others go on.
            logger.exception("%s version %d from %s failed", API_BY_KEY[api_key].name, api_version, connection.peer)
            return CloseConnection(f"internal error while handling {API_BY_KEY[api_key].name}")
        if response is None or type(response) is CloseConnection:
            return response
        if isinstance(response, asyncio.Future):
            return PendingResponse(response, context)
        return self._encode(connection, api_key, api_version, header.correlation_id, response)

    def finish(self, connection: Connection, pending: PendingResponse) -> list[Output] | CloseConnection:
        """Encode the response a pending request ended with."""
        future = pending.future
        name = API_BY_KEY[pending.api_key].name
        if future.cancelled():
            return CloseConnection(f"{name} was abandoned: the node is stopping")
        error = future.exception()
        if isinstance(error, KafkaError):
            return self._error_response(pending.api_key, pending.api_version, pending.correlation_id, error)
        if error is not None:
            logger.error("%s from %s failed", name, connection.peer, exc_info=error)
            return CloseConnection(f"internal error while handling {name}")
        response = future.result()
        if type(response) is CloseConnection or type(response) is list:
            return response  # a list is what the active controller wants sent
        return self._encode(connection, pending.api_key, pending.api_version, pending.correlation_id, response)

    def _encode(
        self, connection: Connection, api_key: int, api_version: int, correlation_id: int, response: Any
    ) -> list[Output] | CloseConnection:
        try:
            return encode_response(api_key, api_version, correlation_id, response)
        except Exception:
            # Our handler made a message that the version cannot carry; only this connection is lost for it.
            logger.exception("the %s response for %s does not encode", API_BY_KEY[api_key].name, connection.peer)
            return CloseConnection(f"internal error while answering {API_BY_KEY[api_key].name}")

    def _refuse_api_versions(self, correlation_id: int) -> list[Output]:
        """KIP-511: a version we do not have is answered in the v0 form, with our range of ApiVersions only."""
        from kraftlog.wire.messages.api_versions import ApiVersionsResponse

        min_version, max_version = self.advertised[API_VERSIONS_KEY]
        response = ApiVersionsResponse(
            error_code=UNSUPPORTED_VERSION,
            api_keys=[
                ApiVersionsResponse.ApiVersion(
                    api_key=API_VERSIONS_KEY, min_version=min_version, max_version=max_version
                )
            ],
        )
        return encode_response(API_VERSIONS_KEY, 0, correlation_id, response)

    def _error_response(
        self, api_key: int, api_version: int, correlation_id: int, error: KafkaError
    ) -> list[Output] | CloseConnection:
        """The response with nothing but the error, for APIs that have a place for it."""
        response_class = API_BY_KEY[api_key].response
        fields = response_class.__dataclass_fields__
        if "error_code" not in fields:
            return CloseConnection(f"{API_BY_KEY[api_key].name} ended with error {error.code}: {error.message}")
        values: dict[str, Any] = {"error_code": error.code}
        if "error_message" in fields:
            values["error_message"] = error.message
        return encode_response(api_key, api_version, correlation_id, response_class(**values))
