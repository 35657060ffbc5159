"""From a frame to its handler and back to bytes; versions are checked, errors become what the protocol has for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from kraftlog.api.context import RequestContext
from kraftlog.api.handler_table import APIS, UNREAD_KEYS, Handler, LazyHandler
from kraftlog.api.slices import SlicedRequest
from kraftlog.errors import ErrorCode, KafkaError, ProtocolError
from kraftlog.security.operation import Operation
from kraftlog.transport.exchange import CloseConnection, PeerContext, PendingResponse
from kraftlog.transport.scheduler import Scheduler
from kraftlog.wire.frame import decode_request, encode_response
from kraftlog.wire.registry import API_BY_KEY

if TYPE_CHECKING:
    from kraftlog.api.slices import Slices
    from kraftlog.transport.frame_reader import Frame
    from kraftlog.transport.socket import Output

__all__ = ["Dispatcher", "Forward"]

logger = logging.getLogger(__name__)

FETCH_KEY = 1
API_VERSIONS_KEY = 18
PRODUCE_KEY = 0
_READING = frozenset({Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS})

Forward = Callable[[RequestContext, "Frame"], "asyncio.Future[Any] | None"]
"""Sends a request to the active controller; None when this node is the active controller and handles it itself."""


class Dispatcher:
    """The ``Exchange`` of one kind of listener: finds the handler of a frame and encodes its response.

    Args:
        services: Has an attribute for each service that the handlers name; one more, ``exchange``, is this dispatcher.
        listener: "broker" or "controller": which APIs are served.
        forward: Where requests go that only the active controller handles; None handles them here.
        keys: Serve these APIs of the table instead of those of the listener.
        handlers: Serve these APIs with these handlers instead of the table's.
        scheduler: Runs requests with many entries in slices; None makes one at the first of them.

    Attributes:
        advertised: API key to its lowest and highest version, as ApiVersions answers.
    """

    def __init__(
        self,
        services: object,
        listener: str,
        *,
        forward: Forward | None = None,
        keys: Iterable[int] | None = None,
        handlers: Mapping[int, Handler] | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        self._services = services
        self._scheduler = scheduler
        self._forward = forward
        if keys is None:
            keys = [key for key in APIS if listener in API_BY_KEY[key].listeners]
        chosen: dict[int, Handler] = {key: LazyHandler(APIS[key], listener, self._service) for key in keys}
        chosen.update(handlers or {})
        self._handlers: dict[int, tuple[int, int, Handler]] = {}
        self.advertised: dict[int, tuple[int, int]] = {}
        for key in sorted(chosen):
            api = API_BY_KEY[key]
            self._handlers[key] = (api.min_version, api.max_version, chosen[key])
            # Kafka accepts Produce from version 3 on but says 0, for librdkafka before 2.3 (KAFKA-18659).
            self.advertised[key] = (0 if key == PRODUCE_KEY else api.min_version, api.max_version)

    def _service(self, name: str) -> object:
        return self if name == "exchange" else getattr(self._services, name)

    def handle(self, peer: PeerContext, frame: Frame) -> list[Output] | PendingResponse | CloseConnection | None:
        """Handle one frame, as ``Exchange.handle`` says."""
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
        context = RequestContext(api_key, api_version, header.correlation_id, header.client_id, peer)
        try:
            response: Any = None
            if self._forward is not None and api_key in UNREAD_KEYS:
                response = self._forward(context, frame)
            if response is None:
                response = handler(context, request)
        except KafkaError as error:
            return _error_response(context, error)
        except Exception as error:  # noqa: BLE001  a defect ends the request it is in, see _defect
            return _defect(context, error)
        if response is None or type(response) is CloseConnection:
            return response
        if isinstance(response, asyncio.Future):
            return PendingResponse(response, partial(_finish, context), is_long_poll=api_key == FETCH_KEY)
        if type(response) is GeneratorType:
            return self._handle_in_slices(context, response)
        return _encode(context, response)

    def _handle_in_slices(self, context: RequestContext, slices: Slices[Any]) -> PendingResponse:
        loop = asyncio.get_running_loop()
        if self._scheduler is None:
            self._scheduler = Scheduler(loop)
        request = SlicedRequest(loop, self._scheduler, slices)
        # If the client leaves, what only it would read is not looked up any further; changes are made as a whole.
        is_read = APIS[context.api_key].operation in _READING
        return PendingResponse(request.future, partial(_finish, context), is_long_poll=is_read, is_exclusive=True)

    def _refuse_api_versions(self, correlation_id: int) -> list[Output]:
        """KIP-511: an unknown version is answered in the v0 form, with the range of ApiVersions only."""
        from kraftlog.wire.messages.api_versions import ApiVersionsResponse

        min_version, max_version = self.advertised[API_VERSIONS_KEY]
        response = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[
                ApiVersionsResponse.ApiVersion(
                    api_key=API_VERSIONS_KEY, min_version=min_version, max_version=max_version
                )
            ],
        )
        return encode_response(API_VERSIONS_KEY, 0, correlation_id, response)


def _finish(context: RequestContext, future: asyncio.Future[Any]) -> list[Output] | CloseConnection:
    """Encode the response that a future ended with."""
    name = API_BY_KEY[context.api_key].name
    if future.cancelled():
        return CloseConnection(f"{name} was abandoned: the node is stopping")
    error = future.exception()
    if isinstance(error, KafkaError):
        return _error_response(context, error)
    if error is not None:
        return _defect(context, error)
    response = future.result()
    if type(response) is CloseConnection or type(response) is list:
        return response  # a list is what the active controller wants sent
    return [] if response is None else _encode(context, response)


def _encode(context: RequestContext, response: Any) -> list[Output] | CloseConnection:
    try:
        return encode_response(context.api_key, context.api_version, context.correlation_id, response)
    except Exception:
        # The handler made a message that the version cannot carry: only this connection ends.
        name = API_BY_KEY[context.api_key].name
        logger.exception("the %s response for %s does not encode", name, context.peer.peer)
        return CloseConnection(f"internal error while answering {name}")


def _defect(context: RequestContext, error: BaseException) -> list[Output] | CloseConnection:
    """End one request that a defect of this package ended, as Kafka's ``RequestHandlerHelper.handleError`` does.

    The log has the traceback. The core's own broken invariants do not come here: they end the node.
    """
    name = API_BY_KEY[context.api_key].name
    logger.error("%s version %d from %s failed", name, context.api_version, context.peer.peer, exc_info=error)
    return _error_response(context, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))


def _error_response(context: RequestContext, error: KafkaError) -> list[Output] | CloseConnection:
    """The response with nothing but the error, for APIs that have a place for it."""
    api = API_BY_KEY[context.api_key]
    fields = api.response.__dataclass_fields__
    if "error_code" not in fields:
        return CloseConnection(f"{api.name} ended with error {error.code}: {error.message}")
    values: dict[str, Any] = {"error_code": error.code}
    if "error_message" in fields:
        values["error_message"] = error.message
    return _encode(context, api.response(**values))
