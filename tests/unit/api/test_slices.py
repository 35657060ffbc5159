"""Handlers in slices: plain for few entries, in pieces for many, with the order and the end of their connection."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from kraftlog.api.dispatcher import Dispatcher
from kraftlog.api.slices import ENTRIES_PER_SLICE, in_slices, in_turns, sliced
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.security.principal import ANONYMOUS
from kraftlog.transport.exchange import CloseConnection, PeerContext, PendingResponse
from kraftlog.transport.scheduler import Scheduler
from kraftlog.wire.frame import decode_response, encode_request
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

PEER = PeerContext("PLAINTEXT", False, ANONYMOUS, "127.0.0.1", "127.0.0.1:1")
KEY = FindCoordinatorRequest.API_KEY


@sliced
def handle(context, request):
    found = yield from in_slices(
        FindCoordinatorResponse.Coordinator(key=key, node_id=1, host="h", port=1) for key in request.coordinator_keys
    )
    return FindCoordinatorResponse(coordinators=found)


def frame(count, correlation_id=7):
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[str(key) for key in range(count)])
    return b"".join(map(bytes, encode_request(KEY, 4, correlation_id, "test", request)))[4:]


class Clock:
    def __init__(self):
        self.now_s = 1.0

    def __call__(self):
        self.now_s += 0.001  # every look costs more than a slice
        return self.now_s


def dispatcher(handler=handle):
    loop = asyncio.get_running_loop()
    scheduler = Scheduler(loop, Clock())
    return Dispatcher(SimpleNamespace(), "broker", handlers={KEY: handler}, scheduler=scheduler), scheduler


def keys_of(outputs):
    _, response = decode_response(KEY, 4, b"".join(map(bytes, outputs))[4:])
    return [coordinator.key for coordinator in response.coordinators]


@pytest.mark.parametrize("count", [0, 1, ENTRIES_PER_SLICE - 1])
def test_request_of_few_entries_is_answered_at_once(count):
    async def main():
        exchange, _ = dispatcher()
        assert len(keys_of(exchange.handle(PEER, frame(count)))) == count

    asyncio.run(main())


def test_request_of_many_entries_leaves_the_loop_to_others_between_pieces():
    async def main():
        exchange, _ = dispatcher()
        pending = exchange.handle(PEER, frame(10_000))
        assert isinstance(pending, PendingResponse)
        assert pending.is_exclusive
        turns = 0
        while not pending.future.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns > 10_000 // ENTRIES_PER_SLICE // 4
        assert keys_of(pending.finish(pending.future)) == [str(key) for key in range(10_000)]

    asyncio.run(main())


def test_cancelled_request_is_not_handled_any_further():
    handled = []

    @sliced
    def noting(context, request):
        yield from in_slices(handled.append(key) for key in request.coordinator_keys)
        return FindCoordinatorResponse()

    async def main():
        exchange, scheduler = dispatcher(noting)
        pending = exchange.handle(PEER, frame(10_000))
        await asyncio.sleep(0)
        pending.future.cancel()
        before = len(handled)
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(handled) == before < 10_000
        assert len(scheduler) == 0

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "error_code"),
    [
        (KafkaError(ErrorCode.INVALID_REQUEST), ErrorCode.INVALID_REQUEST),
        (ValueError("a defect"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_error_in_a_later_piece_is_answered(error, error_code):
    @sliced
    def failing(context, request):
        yield None
        raise error

    async def main():
        exchange, _ = dispatcher(failing)
        request = b"".join(map(bytes, encode_request(KEY, 3, 7, "test", FindCoordinatorRequest(key="group"))))[4:]
        pending = exchange.handle(PEER, request)
        await asyncio.wait([pending.future])
        _, response = decode_response(KEY, 3, b"".join(map(bytes, pending.finish(pending.future)))[4:])
        assert response.error_code == error_code

    asyncio.run(main())


def test_error_that_the_version_has_no_place_for_closes_the_connection():
    async def main():
        def failing(context, request):
            raise KafkaError(ErrorCode.INVALID_REQUEST)

        exchange, _ = dispatcher(failing)
        assert isinstance(exchange.handle(PEER, frame(1)), CloseConnection)

    asyncio.run(main())


def test_handler_that_ends_with_a_future_is_answered_with_its_result():
    async def main():
        later = asyncio.get_running_loop().create_future()

        @sliced
        def waiting(context, request):
            yield None
            return later

        exchange, _ = dispatcher(waiting)
        pending = exchange.handle(PEER, frame(1))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not pending.future.done()
        later.set_result(FindCoordinatorResponse())
        await asyncio.wait([pending.future])
        assert keys_of(pending.finish(pending.future)) == []

    asyncio.run(main())


def test_coroutines_give_the_loop_turns():
    async def main():
        task = asyncio.create_task(in_turns(range(1000), 10))
        turns = 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns >= 100
        assert task.result() == list(range(1000))

    asyncio.run(main())


def test_work_that_waits_goes_on_with_the_future_and_ends_with_its_request():
    async def main():
        first, second = (asyncio.get_running_loop().create_future() for _ in range(2))
        seen = []

        def waiting(context, request):
            yield first
            seen.append(first.result())
            yield second
            seen.append("too late")

        exchange, scheduler = dispatcher(waiting)
        pending = exchange.handle(PEER, frame(1))
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(scheduler) == 0
        first.set_result("first")
        for _ in range(5):
            await asyncio.sleep(0)
        pending.future.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert second.cancelled()
        assert seen == ["first"]

    asyncio.run(main())
