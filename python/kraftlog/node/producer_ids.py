"""Producer ids out of blocks that the controller hands to this broker (KIP-730)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from kraftlog.controller import MetadataImage
    from kraftlog.runtime.metadata.controller_channel import ControllerChannel

__all__ = ["ProducerIds"]


class ProducerIds:
    """One block at a time; what is left of it is lost when the node stops, as with Kafka.

    Args:
        broker_id: Of this broker, which is registered.
        channel: The way to the active controller.
        image: Gives the committed metadata, which has the broker's epoch.
    """

    def __init__(self, broker_id: int, channel: ControllerChannel, image: Callable[[], MetadataImage]) -> None:
        self._broker_id = broker_id
        self._channel = channel
        self._image = image
        self._next = 0
        self._end = 0
        self._allocation: asyncio.Future[None] | None = None

    def take(self) -> int | None:
        """An id, or None when the block is used up: then ``take_soon`` has to be awaited."""
        if self._next >= self._end:
            return None
        self._next += 1
        return self._next - 1

    async def take_soon(self) -> int:
        """An id, from the next block if need be; those who wait at the same time share one request for it.

        Raises:
            KafkaError: The controller refuses a block.
        """
        while (producer_id := self.take()) is None:
            if self._allocation is None or self._allocation.done():
                self._allocation = asyncio.get_running_loop().create_task(self._allocate())
            await asyncio.shield(self._allocation)
        return producer_id

    async def _allocate(self) -> None:
        broker = self._image().cluster.brokers.get(self._broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED)
        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=broker.epoch)
        response = await self._channel.request(request)
        if response.error_code:
            raise KafkaError(response.error_code)
        self._next = response.producer_id_start
        self._end = response.producer_id_start + response.producer_id_len
