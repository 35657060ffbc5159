"""Requests with thousands of entries: decoded, encoded and freed in slices, and few of them at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from kraftlog.api import large_requests
from kraftlog.api.dispatcher import Dispatcher
from kraftlog.api.slices import in_slices, sliced
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.security.principal import ANONYMOUS
from kraftlog.transport.exchange import CloseConnection, PeerContext, PendingResponse
from kraftlog.transport.scheduler import Scheduler
from kraftlog.wire.frame import decode_response, encode_request
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

PEER = PeerContext("PLAINTEXT", False, ANONYMOUS, "127.0.0.1", "127.0.0.1:1")
KEY = FindCoordinatorRequest.API_KEY
COMMIT_KEY = OffsetCommitRequest.API_KEY
COUNT = 10_000


class Clock:
    """Each look costs more than a slice, so that a slice has one step."""

    def __init__(self):
        self.now_s = 1.0

    def __call__(self):
        self.now_s += 0.001
        return self.now_s


def frame(count=COUNT, keys=None):
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=keys or [str(key) for key in range(count)])
    return b"".join(map(bytes, encode_request(KEY, 4, 7, "test", request)))[4:]


def commit_frame(count=COUNT):
    partition = OffsetCommitRequest.OffsetCommitRequestPartition
    partitions = [partition(partition_index=index, committed_offset=1) for index in range(count)]
    request = OffsetCommitRequest(
        group_id="group", topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name="topic", partitions=partitions)]
    )
    return b"".join(map(bytes, encode_request(COMMIT_KEY, 8, 7, "test", request)))[4:]


def answer(context, request):
    coordinator = FindCoordinatorResponse.Coordinator
    return FindCoordinatorResponse(
        coordinators=[coordinator(key=key, node_id=1, host="h", port=1) for key in request.coordinator_keys]
    )


def run(scenario, handler=answer):
    async def main():
        scheduler = Scheduler(asyncio.get_running_loop(), Clock())
        handlers = {KEY: handler, COMMIT_KEY: handler}
        await scenario(Dispatcher(SimpleNamespace(), "broker", handlers=handlers, scheduler=scheduler), scheduler)
        assert len(scheduler) == 0

    asyncio.run(main())


async def outputs_of(pending):
    outputs, turns = pending, 0
    while isinstance(outputs, PendingResponse):
        while not outputs.future.done():
            turns += 1
            await asyncio.sleep(0)
        outputs = outputs.finish(outputs.future)
    return outputs, turns


async def settle(scheduler):
    await turns_until(lambda: not len(scheduler))


async def turns_until(is_true):
    turns = 0
    while not is_true():
        turns += 1
        await asyncio.sleep(0)
    return turns


def keys_of(outputs):
    _, response = decode_response(KEY, 4, b"".join(map(bytes, outputs))[4:])
    return [coordinator.key for coordinator in response.coordinators]


def test_plain_handler_of_many_entries_leaves_turns_to_others_while_decoding_and_encoding():
    async def scenario(exchange, scheduler):
        pending = exchange.handle(PEER, frame())
        assert isinstance(pending, PendingResponse)
        assert pending.is_exclusive
        outputs, turns = await outputs_of(pending)
        assert keys_of(outputs) == [str(key) for key in range(COUNT)]
        assert turns >= COUNT // 64  # two steps a turn
        await settle(scheduler)

    run(scenario)


def test_large_response_of_a_small_request_is_encoded_in_slices():
    def many(context, request):
        coordinator = FindCoordinatorResponse.Coordinator
        return FindCoordinatorResponse(coordinators=[coordinator(key=str(key), host="h") for key in range(COUNT)])

    async def scenario(exchange, scheduler):
        pending = exchange.handle(PEER, frame(1))
        assert isinstance(pending, PendingResponse)
        outputs, turns = await outputs_of(pending)
        assert len(keys_of(outputs)) == COUNT
        assert turns >= COUNT // 64 // 2
        await settle(scheduler)

    run(scenario, many)


def test_large_response_that_was_waited_for_is_encoded_in_slices():
    async def scenario(exchange, scheduler):
        later = asyncio.get_running_loop().create_future()
        waiting.append(later)
        pending = exchange.handle(PEER, frame(1))
        coordinator = FindCoordinatorResponse.Coordinator
        later.set_result(FindCoordinatorResponse(coordinators=[coordinator(key=str(key)) for key in range(COUNT)]))
        more = pending.finish(pending.future)
        assert isinstance(more, PendingResponse)
        outputs, turns = await outputs_of(more)
        assert len(keys_of(outputs)) == COUNT
        assert turns >= COUNT // 64 // 2
        await settle(scheduler)

    waiting = []
    run(scenario, lambda _context, _request: waiting.pop())


def test_what_was_decoded_is_freed_in_slices():
    async def scenario(exchange, scheduler):
        outputs, _ = await outputs_of(exchange.handle(PEER, frame()))
        assert keys_of(outputs)
        turns = await turns_until(lambda: not len(scheduler))
        assert turns >= COUNT // 256 // 2

    run(scenario)


@pytest.mark.parametrize("keys", [["x"] * COUNT])
def test_frame_that_ends_early_closes_the_connection_and_frees_its_place(keys):
    async def scenario(exchange, scheduler):
        damaged, _ = await outputs_of(exchange.handle(PEER, frame(keys=keys)[:-3]))
        assert isinstance(damaged, CloseConnection)
        assert "does not decode" in damaged.reason
        whole, _ = await outputs_of(exchange.handle(PEER, frame()))
        assert len(keys_of(whole)) == COUNT
        await settle(scheduler)

    run(scenario)


def test_decoded_requests_are_bounded_by_their_frames(monkeypatch):
    monkeypatch.setattr(large_requests, "DECODED_FRAME_BYTES", 2 * len(frame()))
    inside = []

    @sliced
    def noting(context, request):
        inside.append(len(inside))
        yield None
        found = yield from in_slices(FindCoordinatorResponse.Coordinator(key=key) for key in request.coordinator_keys)
        inside.pop()
        return FindCoordinatorResponse(coordinators=found)

    async def scenario(exchange, scheduler):
        pending = [exchange.handle(PEER, frame()) for _ in range(10)]
        most = 0
        while not all(each.future.done() for each in pending):
            most = max(most, len(inside))
            await asyncio.sleep(0)
        assert most == 2
        for each in pending:
            assert len(keys_of(each.finish(each.future))) == COUNT
        await settle(scheduler)

    run(scenario, noting)


def test_request_whose_client_left_gives_its_place_to_the_next(monkeypatch):
    monkeypatch.setattr(large_requests, "DECODED_FRAME_BYTES", 1)

    async def scenario(exchange, scheduler):
        first, second, third = (exchange.handle(PEER, frame()) for _ in range(3))
        await asyncio.sleep(0)
        first.future.cancel()
        second.future.cancel()
        outputs, _ = await outputs_of(third)
        assert len(keys_of(outputs)) == COUNT
        await settle(scheduler)

    run(scenario)


def test_change_is_completed_without_its_client_once_it_was_decoded():
    handled = []

    @sliced
    def changing(context, request):
        for topic in request.topics:
            for number, partition in enumerate(topic.partitions):
                if number % 64 == 0:
                    yield None
                handled.append(partition.partition_index)
        return OffsetCommitResponse()

    async def scenario(exchange, scheduler):
        pending = exchange.handle(PEER, commit_frame())
        await turns_until(lambda: handled)
        pending.future.cancel()
        await settle(scheduler)
        assert len(handled) == COUNT

    run(scenario, changing)


def test_change_is_not_begun_if_its_client_left_before_it_was_decoded():
    handled = []

    async def scenario(exchange, scheduler):
        pending = exchange.handle(PEER, commit_frame())
        await asyncio.sleep(0)
        pending.future.cancel()
        await settle(scheduler)
        assert handled == []

    run(scenario, lambda _context, request: handled.append(request))


def test_request_that_waits_gives_its_place_to_the_next(monkeypatch):
    monkeypatch.setattr(large_requests, "DECODED_FRAME_BYTES", 1)

    async def scenario(exchange, scheduler):
        first = asyncio.get_running_loop().create_future()
        futures.append(first)
        waiting, other = exchange.handle(PEER, frame()), exchange.handle(PEER, frame())
        second = asyncio.get_running_loop().create_future()
        second.set_result(FindCoordinatorResponse())
        futures.append(second)
        outputs, _ = await outputs_of(other)
        assert keys_of(outputs) == []
        assert not waiting.future.done()
        first.set_result(FindCoordinatorResponse())
        await outputs_of(waiting)
        await settle(scheduler)

    futures = []
    run(scenario, lambda _context, _request: futures.pop(0))


def test_too_many_large_requests_that_wait_end_with_an_error_the_largest_first(monkeypatch):
    monkeypatch.setattr(large_requests, "WAITING_FRAME_BYTES", 2 * len(frame()))

    async def scenario(exchange, scheduler):
        small, large = exchange.handle(PEER, frame()), exchange.handle(PEER, frame(2 * COUNT))
        third = exchange.handle(PEER, frame())
        await turns_until(large.future.done)
        error = large.future.exception()
        assert isinstance(error, KafkaError)
        assert error.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert not small.future.done()
        for pending in (small, third):
            pending.future.cancel()
        await settle(scheduler)
        await asyncio.sleep(0)

    run(scenario, lambda _context, _request: asyncio.get_running_loop().create_future())
