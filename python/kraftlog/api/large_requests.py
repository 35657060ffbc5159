"""Requests and responses with many entries: they are decoded, handled, encoded and freed in slices."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final

from kraftlog.api.slices import SlicedRequest, Slices, discard
from kraftlog.errors import ErrorCode, KafkaError, ProtocolError
from kraftlog.transport.exchange import CloseConnection
from kraftlog.transport.scheduler import Scheduler
from kraftlog.wire.frame import begin_request, begin_response

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.transport.frame_reader import Frame
    from kraftlog.transport.socket import Output
    from kraftlog.wire.messages.headers import RequestHeader

__all__ = ["ELEMENTS_AT_ONCE", "LargeRequests"]

# Array elements of a message that is decoded or encoded without a pause: a fraction of a millisecond.
ELEMENTS_AT_ONCE: Final = 512
# Elements between two looks at the clock.
_ELEMENTS_PER_STEP: Final = 64
# Frames of the requests that are in memory as objects, which takes ten to fifty times as much. A larger one is alone.
DECODED_FRAME_BYTES: Final = 16 * 1024 * 1024
# Frames up to this size have the same room for themselves.
MODERATE_FRAME_BYTES: Final = 256 * 1024
# Frames of the requests that were looked at and wait for something: long polls.
WAITING_FRAME_BYTES: Final = 32 * 1024 * 1024


class LargeRequests:
    """Runs requests with many entries; the frames of those that are decoded at once are bounded.

    Args:
        scheduler: Grants slices.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        # A follower's request does not wait behind hostile ones that are a hundred times as large.
        self._moderate, self._largest = _Gate(), _Gate()
        self._waiting: dict[SlicedRequest, int] = {}

    def run(
        self,
        frame: Frame,
        call: Callable[[RequestHeader, Any], tuple[RequestContext, Any]],
        refuse: Callable[[ProtocolError], CloseConnection],
        *,
        is_change: bool,
        is_held: bool,
    ) -> SlicedRequest:
        """Decode, handle and encode in slices.

        Args:
            frame: The request without its size.
            call: Handles the request; also gives its context.
            refuse: The answer if the request does not decode.
            is_change: Whether the request is completed once it was decoded, even if the client leaves.
            is_held: Whether it stays in memory while the handler waits. What works on it meanwhile would otherwise
                be the last to have it, and free it at once.

        Returns:
            Its future ends with buffers or with the reason to close.
        """
        held: list[SlicedRequest] = []
        request = SlicedRequest(
            asyncio.get_running_loop(),
            self._scheduler,
            self._slices(held, frame, call, refuse, is_change=is_change, is_held=is_held),
        )
        held.append(request)
        return request

    def encode(self, context: RequestContext, response: Any) -> SlicedRequest:
        """Encode a response in slices; the future of the result ends with buffers."""
        return SlicedRequest(asyncio.get_running_loop(), self._scheduler, self._encode_and_discard(context, response))

    def _slices(
        self,
        held: list[SlicedRequest],
        frame: Frame,
        call: Callable[[RequestHeader, Any], tuple[RequestContext, Any]],
        refuse: Callable[[ProtocolError], CloseConnection],
        *,
        is_change: bool,
        is_held: bool,
    ) -> Slices[list[Output] | CloseConnection]:
        work, frame_bytes = held[0], len(frame)
        gate = self._moderate if frame_bytes <= MODERATE_FRAME_BYTES else self._largest
        turn = gate.enter(frame_bytes)
        remains: list[Any] = []
        has_left = False
        try:
            if turn is not None:
                yield turn
            try:
                header, decoder = begin_request(frame)
                remains.append(decoder)
                request = None
                while request is None:
                    yield None
                    request = decoder.step(_ELEMENTS_PER_STEP)
            except ProtocolError as error:
                return refuse(error)
            remains.append(request)
            work.is_kept = is_change
            if work.on_decoded is not None:
                work.on_decoded()
            context, response = call(header, request)
            del request
            if type(response) is GeneratorType:
                for_result: list[Any] = []
                for awaited in _driven(response, for_result):
                    if awaited is not None and not has_left:
                        has_left = True
                        gate.leave(frame_bytes)
                        self._begin_wait(work, frame_bytes)
                    yield awaited
                response = for_result.pop()
            if isinstance(response, asyncio.Future):
                if not has_left:
                    has_left = True
                    gate.leave(frame_bytes)
                    self._begin_wait(work, frame_bytes)
                if remains and not is_held:
                    self._discard(remains)
                if not response.done():
                    yield response
                response = response.result()
            remains.append(response)
            if response is None or type(response) in (CloseConnection, list):
                return [] if response is None else response
            return (yield from _encode(context, response))
        finally:
            if not has_left and (turn is None or (turn.done() and not turn.cancelled())):
                gate.leave(frame_bytes)
            self._waiting.pop(work, None)
            response = None
            self._discard(remains)

    def _encode_and_discard(self, context: RequestContext, response: Any) -> Slices[list[Output]]:
        remains = [response]
        try:
            return (yield from _encode(context, response))
        finally:
            del response
            self._discard(remains)

    def _discard(self, remains: list[Any]) -> None:
        if remains and hasattr(remains[0], "abandon"):
            remains[:1] = remains[0].abandon()
        discard(self._scheduler, remains)

    def _begin_wait(self, work: SlicedRequest, frame_bytes: int) -> None:
        """The request waits for something, for as long as its client asked for; too many end early."""
        if work.is_kept:
            return
        self._waiting[work] = frame_bytes
        while len(self._waiting) > 1 and sum(self._waiting.values()) > WAITING_FRAME_BYTES:
            largest = max(self._waiting, key=self._waiting.__getitem__)
            del self._waiting[largest]
            if not largest.future.done():
                largest.future.set_exception(KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED))


class _Gate:
    """Bounds the frames of requests that are decoded at once."""

    def __init__(self) -> None:
        self._bytes = 0
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    def enter(self, frame_bytes: int) -> asyncio.Future[None] | None:
        """None if the request may be decoded now, else what it has to wait for."""
        if not self._queue and self._has_room(frame_bytes):
            self._bytes += frame_bytes
            return None
        turn = asyncio.get_running_loop().create_future()
        self._queue.append((frame_bytes, turn))
        return turn

    def leave(self, frame_bytes: int) -> None:
        """A request that entered needs its place no more."""
        self._bytes -= frame_bytes
        while self._queue and (self._queue[0][1].cancelled() or self._has_room(self._queue[0][0])):
            next_bytes, turn = self._queue.popleft()
            if not turn.cancelled():
                self._bytes += next_bytes
                turn.set_result(None)

    def _has_room(self, frame_bytes: int) -> bool:
        return not self._bytes or self._bytes + frame_bytes <= DECODED_FRAME_BYTES


def _encode(context: RequestContext, response: Any) -> Slices[list[Output]]:
    encoder = begin_response(context.api_key, context.api_version, context.correlation_id, response)
    while True:
        outputs = encoder.step(_ELEMENTS_PER_STEP)
        if outputs is not None:
            return outputs
        yield None


def _driven(slices: Slices[Any], results: list[Any]) -> Slices[None]:
    """The places where a handler may be left; its result is put into ``results``."""
    results.append((yield from slices))
