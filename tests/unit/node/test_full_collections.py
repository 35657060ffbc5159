"""Full collections of garbage wait for large requests, but not without end."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from kraftlog.api.slices import SlicedRequest, Slices, discard
from kraftlog.node import full_collections
from kraftlog.node.full_collections import FullCollections
from kraftlog.transport.scheduler import Scheduler


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


async def _end_of(future: asyncio.Future[object]) -> None:
    await asyncio.gather(future, return_exceptions=True)
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.mark.parametrize("outcome", ["result", "error", "awaited", "abandoned"])
def test_full_collections_wait_as_long_as_a_large_request_is_in_memory(
    thresholds: tuple[int, int, int], outcome: str
) -> None:
    during: list[int] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        scheduler = Scheduler(loop)
        collections = FullCollections(loop)
        collections.begin([scheduler])
        awaited: asyncio.Future[None] = loop.create_future()

        def work() -> Slices[None]:
            during.append(gc.get_threshold()[2])
            if outcome == "awaited":
                loop.call_soon(awaited.set_result, None)
                yield awaited
            yield None
            during.append(gc.get_threshold()[2])
            if outcome == "error":
                raise ValueError(outcome)

        request = SlicedRequest(loop, scheduler, work())
        if outcome == "abandoned":
            request.future.cancel()
        await _end_of(request.future)
        assert gc.get_threshold() == thresholds
        discard(scheduler, [[object()]])
        assert gc.get_threshold()[2] > thresholds[2]
        for _ in range(10):
            await asyncio.sleep(0)
        assert gc.get_threshold() == thresholds
        collections.end()

    asyncio.run(run())
    assert all(threshold > thresholds[2] for threshold in during)
    assert during or outcome == "abandoned"


def test_large_requests_without_end_do_not_postpone_full_collections_for_ever(
    thresholds: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_collections, "POSTPONED_MAX_S", 0.001)

    async def run() -> None:
        collected: asyncio.Queue[None] = asyncio.Queue()
        monkeypatch.setattr(gc, "collect", lambda: collected.put_nowait(None))
        collections = FullCollections(asyncio.get_running_loop())
        collections.follow(1)
        for _ in range(2):
            await collected.get()
        collections.end()

    asyncio.run(run())
    assert gc.get_threshold() == thresholds
