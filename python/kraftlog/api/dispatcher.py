"""From a frame to its handler and back to bytes; versions are checked, errors become what the protocol has for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from kraftlog.api.context import RequestContext
from kraftlog.api.handler_table import APIS, UNREAD_KEYS, FrameHandler, Handler, LazyHandler
from kraftlog.api.large_requests import ELEMENTS_AT_ONCE, LargeRequests
from kraftlog.api.request_quota import forwarded_throttle_ms
from kraftlog.api.slices import SlicedRequest
from kraftlog.errors import ErrorCode, KafkaError, NodeClosedError, ProtocolError
from kraftlog.security.operation import Operation, ResourceKind
from kraftlog.transport.exchange import CloseConnection, PeerContext, PendingResponse
from kraftlog.transport.scheduler import Scheduler
from kraftlog.wire.frame import decode_small_request, encode_response, encode_small_response
from kraftlog.wire.registry import API_BY_KEY

if TYPE_CHECKING:
    from kraftlog.api.request_quota import ClientQuotas, RequestQuota
    from kraftlog.api.slices import Slices
    from kraftlog.security.authorizer import Authorizer
    from kraftlog.security.grants import Grants
    from kraftlog.transport.frame_reader import Frame
    from kraftlog.transport.socket import Output
    from kraftlog.wire.messages.headers import RequestHeader

__all__ = ["Dispatcher", "Forward"]

logger = logging.getLogger(__name__)

LONG_POLL_KEYS = frozenset({1, 78})  # Fetch, ShareFetch
API_VERSIONS_KEY = 18
PRODUCE_KEY = 0
# What nodes ask of each other: no client's quota applies.
_EXEMPT_KEYS = frozenset(key for key, api in APIS.items() if api.operation is Operation.CLUSTER_ACTION)
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
        removed_keys: APIs that Kafka 4.x removed, to be served as well, in each version they had.
        handlers: Serve these APIs with these handlers instead of the table's.
        scheduler: Runs requests with many entries in slices; None makes one at the first of them.
        authorizer: Each request is handled behind the guard of its API; None lets everybody do everything.
        grants: Learns what the guards allow to clients whose sockets I/O threads own.
        quotas: Judge each request while there are any; None never does.

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
        removed_keys: Iterable[int] = (),
        handlers: Mapping[int, Handler] | None = None,
        scheduler: Scheduler | None = None,
        authorizer: Authorizer | None = None,
        grants: Grants | None = None,
        quotas: ClientQuotas | None = None,
    ) -> None:
        self._services = services
        self._quotas = quotas
        self._scheduler = scheduler
        self._forward = forward
        if keys is None:
            keys = [key for key in APIS if listener in API_BY_KEY[key].listeners]
        chosen: dict[int, Handler] = {
            key: LazyHandler(APIS[key], listener, self._service) for key in (*keys, *removed_keys)
        }
        chosen.update(handlers or {})
        if authorizer is not None:
            from kraftlog.api.guards.guard_table import guarded

            cluster = services.cluster  # type: ignore[attr-defined]  # as every service, by its name
            chosen = {key: guarded(key, handler, authorizer, cluster, grants) for key, handler in chosen.items()}
        self._handlers: dict[int, tuple[int, int, Handler]] = {}
        self._large: LargeRequests | None = None
        self._frame_handlers: dict[int, FrameHandler | None] = {
            key: None
            for key in chosen
            # No guard reads frames.
            if authorizer is None and key in APIS and APIS[key].takes_frames and key not in (handlers or {})
        }
        self.advertised: dict[int, tuple[int, int]] = {}
        for key in sorted(chosen):
            api = API_BY_KEY[key]
            low, high = api.request.VERSIONS if api.is_removed else (api.min_version, api.max_version)
            self._handlers[key] = (low, high, chosen[key])
            # Kafka accepts Produce from version 3 on but says 0, for librdkafka before 2.3 (KAFKA-18659).
            self.advertised[key] = (0 if key == PRODUCE_KEY else low, high)

    def _service(self, name: str) -> object:
        return self if name == "exchange" else getattr(self._services, name)

    def handle(self, peer: PeerContext, frame: Frame) -> list[Output] | PendingResponse | CloseConnection | None:
        """Handle one frame, as ``Exchange.handle`` says."""
        quotas = self._quotas if self._quotas is not None and self._quotas.is_active else None
        began_ns = 0 if quotas is None else quotas.clock_ns()
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
        if api_key in self._frame_handlers and quotas is None:
            answer = self._handle_frame(peer, frame, api_key, api_version)
            if answer is not None:
                return answer
        try:
            decoded = decode_small_request(frame, ELEMENTS_AT_ONCE)
        except ProtocolError as error:
            return _undecodable(api_key, api_version, error)
        if decoded is None:
            return self._handle_large(peer, frame, api_key, api_version, handler)
        header, request = decoded
        context = RequestContext(api_key, api_version, header.correlation_id, header.client_id, peer)
        if quotas is not None and api_key not in _EXEMPT_KEYS:
            quota = quotas.begin(peer, api_key, header.client_id, len(frame), began_ns)
            return self._handle_judged(context._replace(quota=quota), frame, handler, request, quota)
        return self._answer(context, self._call(context, frame, handler, request))

    def _handle_judged(
        self, context: RequestContext, frame: Frame, handler: Handler, request: Any, quota: RequestQuota
    ) -> list[Output] | PendingResponse | CloseConnection | None:
        """Handle a request that client quotas may apply to."""
        response = self._call(context, frame, handler, request)
        if response is None:
            quota.judge(None)
        elif isinstance(response, asyncio.Future):
            quota.pause()
        elif type(response) is GeneratorType:
            quota.pause()
            response = quota.timed(response)
        return self._answer(context, response)

    def _answer(
        self, context: RequestContext, response: Any
    ) -> list[Output] | PendingResponse | CloseConnection | None:
        """What the connection gets for the response of a handler."""
        if response is None or type(response) is CloseConnection or type(response) is list:
            return response
        if isinstance(response, asyncio.Future):
            is_long_poll = context.api_key in LONG_POLL_KEYS
            return PendingResponse(response, partial(self._finish, context), is_long_poll=is_long_poll)
        if type(response) is GeneratorType:
            return self._handle_in_slices(context, response)
        return self._encode(context, response)

    def _call(self, context: RequestContext, frame: Frame, handler: Handler, request: Any) -> Any:
        """What the handler, or the active controller, answers; buffers or the reason to close if there is an error."""
        try:
            response: Any = None
            if self._forward is not None and context.api_key in UNREAD_KEYS:
                response = self._forward(context, frame)
            return handler(context, request) if response is None else response
        except KafkaError as error:
            return _error_response(context, error)
        except Exception as error:  # noqa: BLE001  a defect ends the request it is in, see _defect
            return _defect(context, error)

    def _handle_frame(
        self, peer: PeerContext, frame: Frame, api_key: int, api_version: int
    ) -> list[Output] | PendingResponse | CloseConnection | None:
        """What the handler of frames answers, if it does."""
        try:
            handle = self._frame_handlers[api_key]
            if handle is None:
                handle = self._frame_handlers[api_key] = LazyHandler(
                    APIS[api_key], "broker", self._service
                ).load_for_frames()
            return handle(api_version, frame)
        except Exception as error:  # noqa: BLE001  a defect ends the request it is in, see _defect
            correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
            return _defect(RequestContext(api_key, api_version, correlation_id, None, peer), error)

    def _handle_large(
        self, peer: PeerContext, frame: Frame, api_key: int, api_version: int, handler: Handler
    ) -> PendingResponse:
        known: list[RequestContext] = []

        def call(header: RequestHeader, request: Any) -> tuple[RequestContext, Any]:
            context = RequestContext(api_key, api_version, header.correlation_id, header.client_id, peer)
            quota = None
            if self._quotas is not None and self._quotas.is_active and api_key not in _EXEMPT_KEYS:
                # The time that decoding took does not count.
                quota = self._quotas.begin(peer, api_key, header.client_id, len(frame), self._quotas.clock_ns())
                context = context._replace(quota=quota)
            known.append(context)
            response = self._call(context, frame, handler, request)
            if quota is None:
                return context, response
            quota.pause()
            return context, _judged(quota, response)

        def finish(future: asyncio.Future[Any]) -> list[Output] | CloseConnection | PendingResponse:
            correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
            context = RequestContext(api_key, api_version, correlation_id, None, peer)
            return self._finish(known[0] if known else context, future)

        is_change = not _is_read(api_key)
        work = self._large_requests().run(
            frame,
            call,
            partial(_undecodable, api_key, api_version),
            is_change=is_change,
            # Members wait for each other, for minutes.
            is_held=is_change and APIS[api_key].resource is not ResourceKind.GROUP,
        )
        return PendingResponse(
            work.future,
            finish,
            is_long_poll=api_key in LONG_POLL_KEYS,
            ends_with_peer=True,
            is_exclusive=True,
            undecoded=work,
        )

    def _large_requests(self) -> LargeRequests:
        if self._large is None:
            if self._scheduler is None:
                self._scheduler = Scheduler(asyncio.get_running_loop())
            self._large = LargeRequests(self._scheduler)
        return self._large

    def _handle_in_slices(self, context: RequestContext, slices: Slices[Any]) -> PendingResponse:
        loop = asyncio.get_running_loop()
        if self._scheduler is None:
            self._scheduler = Scheduler(loop)
        request = SlicedRequest(loop, self._scheduler, slices)
        # If the client leaves, what only it would read is not looked up any further; changes are made as a whole.
        is_read = _is_read(context.api_key)
        return PendingResponse(request.future, partial(self._finish, context), is_long_poll=is_read, is_exclusive=True)

    def _finish(
        self, context: RequestContext, future: asyncio.Future[Any]
    ) -> list[Output] | CloseConnection | PendingResponse:
        """Encode the response that a future ended with, or begin to."""
        name = API_BY_KEY[context.api_key].name
        quota = context.quota
        if quota is not None:
            quota.resume()
        if future.cancelled():
            return CloseConnection(f"{name} was abandoned: the node is stopping")
        error = future.exception()
        if isinstance(error, KafkaError):
            return _error_response(context, error)
        if error is not None:
            return _defect(context, error)
        response = future.result()
        if type(response) is CloseConnection:
            return response
        if type(response) is list:  # what the active controller wants sent, or a large response
            if context.api_key in UNREAD_KEYS and context.peer.throttle is not None:
                # This node may not know the quota yet.
                context.peer.throttle.mute(forwarded_throttle_ms(context.api_key, context.api_version, response))
            return response
        if response is not None:
            return self._encode(context, response)
        if quota is not None:
            quota.judge(None)
        return []

    def _encode(self, context: RequestContext, response: Any) -> list[Output] | CloseConnection | PendingResponse:
        if context.quota is not None:
            response = context.quota.judge(response)
        try:
            outputs = encode_small_response(
                context.api_key, context.api_version, context.correlation_id, response, ELEMENTS_AT_ONCE
            )
        except Exception as error:  # noqa: BLE001  only this connection ends
            return _unencodable(context, error)
        if outputs is not None:
            return outputs
        work = self._large_requests().encode(context, response)
        return PendingResponse(work.future, partial(_finish_encoded, context), ends_with_peer=True, is_exclusive=True)

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


def _judged(quota: RequestQuota, response: Any) -> Slices[Any]:
    """The response to a large request, judged."""
    if type(response) is GeneratorType:
        response = yield from quota.timed(response)
    if isinstance(response, asyncio.Future):
        if not response.done():
            yield response
        response = response.result()
    quota.resume()
    return response if type(response) is CloseConnection or type(response) is list else quota.judge(response)


def _is_read(api_key: int) -> bool:
    """Whether nobody but the client needs the answer. What it reads of a group changes the group: members, offsets."""
    api = APIS.get(api_key)
    return api is None or (
        api.operation in _READING and not (api.operation is Operation.READ and api.resource is ResourceKind.GROUP)
    )


def _undecodable(api_key: int, api_version: int, error: ProtocolError) -> CloseConnection:
    return CloseConnection(f"{API_BY_KEY[api_key].name} version {api_version} does not decode: {error}")


def _unencodable(context: RequestContext, error: BaseException) -> CloseConnection:
    """The handler made a message that the version cannot carry: only this connection ends."""
    name = API_BY_KEY[context.api_key].name
    logger.error("the %s response for %s does not encode", name, context.peer.peer, exc_info=error)
    return CloseConnection(f"internal error while answering {name}")


def _finish_encoded(context: RequestContext, future: asyncio.Future[Any]) -> list[Output] | CloseConnection:
    """The buffers of a response that was encoded in slices."""
    if future.cancelled():
        return CloseConnection("the node is stopping")
    error = future.exception()
    if error is not None:
        return _unencodable(context, error)
    outputs: list[Output] = future.result()
    return outputs


def _defect(context: RequestContext, error: BaseException) -> list[Output] | CloseConnection:
    """End one request that a defect of this package ended, as Kafka's ``RequestHandlerHelper.handleError`` does.

    The log has the traceback. The core's own broken invariants do not come here: they end the node. A request to a
    node that stops is no defect: it gets the answer of Kafka's controller (``EventHandlerExceptionInfo``), to retry.
    """
    if isinstance(error, NodeClosedError):
        return _error_response(context, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The controller is shutting down."))
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
    response = api.response(**values)
    if context.quota is not None:
        response = context.quota.judge(response)
    try:
        return encode_response(context.api_key, context.api_version, context.correlation_id, response)
    except Exception as failure:  # noqa: BLE001  only this connection ends
        return _unencodable(context, failure)
