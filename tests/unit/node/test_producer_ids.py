"""Blocks of producer ids: when the next one is asked for, and when it is asked for again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.node.producer_ids import ProducerIds
from kraftlog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from waiting import settle, until

IMAGE: Any = SimpleNamespace(cluster=SimpleNamespace(brokers={1: SimpleNamespace(epoch=5)}))


class Controller:
    """Hands out blocks of 1000, or fails."""

    def __init__(self) -> None:
        self.is_away = False
        self.requests: list[AllocateProducerIdsRequest] = []
        self._next = 0

    async def request(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        self.requests.append(request)
        if self.is_away:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        self._next += 1000
        return AllocateProducerIdsResponse(producer_id_start=self._next - 1000, producer_id_len=1000)


@pytest.mark.spec("TXNC-30")
def test_the_next_block_is_asked_for_when_nine_tenths_are_used() -> None:
    async def run() -> None:
        controller = Controller()
        ids = ProducerIds(1, controller, lambda: IMAGE)  # type: ignore[arg-type]
        assert ids.take_or_request() is None
        await ids.wait_until_some()
        assert [ids.take_or_request() for _ in range(899)] == list(range(899))
        await settle()
        assert len(controller.requests) == 1
        assert ids.take_or_request() == 899
        await settle()
        assert len(controller.requests) == 2
        assert [ids.take_or_request() for _ in range(150)] == list(range(900, 1050))
        assert {(request.broker_id, request.broker_epoch) for request in controller.requests} == {(1, 5)}

    asyncio.run(run())


@pytest.mark.spec("TXNC-30")
def test_a_request_that_failed_is_repeated_after_50_ms_and_not_before() -> None:
    async def run() -> None:
        controller = Controller()
        controller.is_away = True
        ids = ProducerIds(1, controller, lambda: IMAGE)  # type: ignore[arg-type]
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while len(controller.requests) < 2:
            assert ids.take_or_request() is None
            await asyncio.sleep(0)
        assert loop.time() - began_s >= 0.05
        controller.is_away = False
        await until(lambda: ids.take_or_request() == 0)

    asyncio.run(run())


@pytest.mark.spec("TXNC-30")
def test_a_restarted_broker_goes_on_in_the_next_block() -> None:
    async def run() -> None:
        controller = Controller()
        first, second = (ProducerIds(1, controller, lambda: IMAGE) for _ in range(2))  # type: ignore[arg-type]
        assert [await first.take_soon(), await second.take_soon()] == [0, 1000]

    asyncio.run(run())
