"""Producer ids out of blocks that the controller hands to this broker (KIP-730)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from kraftlog.controller import MetadataImage
    from kraftlog.runtime.metadata.controller_channel import ControllerChannel

__all__ = ["ProducerIds"]

logger = logging.getLogger(__name__)

# A tenth of a block, as in Kafka.
_LEFT_AT_REQUEST = 100
_RETRY_S = 0.05


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
        self._prefetched: tuple[int, int] | None = None
        self._allocation: asyncio.Future[None] | None = None
        self._retry_at_s = 0.0

    @property
    def is_empty(self) -> bool:
        """Whether the next id has to wait for a block."""
        return self._next >= self._end and self._prefetched is None

    def take(self) -> int | None:
        """An id, or None when the block is used up: then ``take_soon`` has to be awaited."""
        if self._next >= self._end and self._prefetched is not None:
            (self._next, self._end), self._prefetched = self._prefetched, None
        if self._next >= self._end:
            return None
        self._next += 1
        return self._next - 1

    def take_or_request(self) -> int | None:
        """As ``take``, and ask for the next block when most of this one is used; there may be an id soon."""
        producer_id = self.take()
        left = self._end - self._next
        is_requested = self._allocation is not None and not self._allocation.done()
        loop = asyncio.get_running_loop()
        if (
            left <= _LEFT_AT_REQUEST
            and self._prefetched is None
            and not is_requested
            and loop.time() >= self._retry_at_s
        ):
            self._allocation = loop.create_task(self._request_block())
        return producer_id

    async def _request_block(self) -> None:
        try:
            await self._allocate()
        except KafkaError as error:
            self._retry_at_s = asyncio.get_running_loop().time() + _RETRY_S
            logger.warning("the controller gives no producer ids: %s", error)

    async def wait_until_some(self) -> None:
        """Wait until there is an id.

        Raises:
            KafkaError: The controller refuses a block.
        """
        while self.is_empty:
            if self._allocation is None or self._allocation.done():
                self._allocation = asyncio.get_running_loop().create_task(self._allocate())
            await asyncio.shield(self._allocation)

    async def take_soon(self) -> int:
        """An id, from the next block if need be; those who wait at the same time share one request for it.

        Raises:
            KafkaError: The controller refuses a block.
        """
        while (producer_id := self.take()) is None:
            await self.wait_until_some()
        return producer_id

    async def _allocate(self) -> None:
        broker = self._image().cluster.brokers.get(self._broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED)
        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=broker.epoch)
        response = await self._channel.request(request)
        if response.error_code:
            raise KafkaError(response.error_code)
        self._prefetched = (response.producer_id_start, response.producer_id_start + response.producer_id_len)
