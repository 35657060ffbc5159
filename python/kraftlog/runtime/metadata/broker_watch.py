"""Brokers whose process has ended are fenced at once, without waiting for the end of their sessions.

The active controller knows the connection that brought a broker's last heartbeat. If it ends, the controller connects
to the listeners that the broker registered. A broker whose listeners refuse the connection, or accept it and end it
without an answer, is fenced. Anything else leaves it to its session: no answer, an unreachable host, a listener that
answers.
``docs/design/0026-dead-brokers.md`` says why this is safe and where it does not help.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from kraftlog.errors import KafkaError, NodeClosedError
from kraftlog.ordered_set import OrderedSet
from kraftlog.runtime.broker_probe import Finding, probe_broker

if TYPE_CHECKING:
    from kraftlog.controller import MetadataImage
    from kraftlog.controller.cluster_image import BrokerImage
    from kraftlog.transport.exchange import PeerLoss

__all__ = ["BrokerWatch"]

logger = logging.getLogger(__name__)

# A process that is killed does not close all of its sockets in the same instant.
_PROBES_AFTER_S: Final = (0.0, 0.03, 0.1, 0.25)
_REFUSALS_NEEDED: Final = 2
_CONCURRENT_PROBES: Final = 16

Fence = Callable[[int, int], "asyncio.Future[bool]"]


class BrokerWatch:
    """Looks after the connections of brokers while this node is the active controller.

    Args:
        node_id: Of this node, whose own broker is not looked at.
        loop: The running loop.
        image: Gives what is committed.
        fence: Fences the broker with that id and epoch; the future says whether it was not fenced before.
    """

    def __init__(
        self, node_id: int, loop: asyncio.AbstractEventLoop, image: Callable[[], MetadataImage], fence: Fence
    ) -> None:
        self._node_id = node_id
        self._loop = loop
        self._image = image
        self._fence = fence
        self._losses: dict[int, PeerLoss] = {}
        # How often a probe of a broker was answered: one that two probes look at is not gone if one of them is.
        self._answers: Counter[int] = Counter()
        self._tasks: OrderedSet[asyncio.Task[None]] = OrderedSet()
        self._is_active = False
        self._limit = asyncio.Semaphore(_CONCURRENT_PROBES)

    def begin(self) -> None:
        """This node is the active controller now: brokers may have ended before anybody watched."""
        self._is_active = True
        self._start(self._look_at_all())

    def end(self) -> None:
        """It no longer is."""
        self._is_active = False
        self._losses.clear()
        self._answers.clear()
        for task in self._tasks:
            task.cancel()

    def heard(self, broker_id: int, loss: PeerLoss) -> None:
        """A heartbeat of a broker came over a connection.

        Args:
            broker_id: Whose.
            loss: Of that connection.
        """
        if self._is_active and self._losses.get(broker_id) is not loss:
            self._losses[broker_id] = loss
            loss.add(lambda: self._on_lost(broker_id, loss))

    def _on_lost(self, broker_id: int, loss: PeerLoss) -> None:
        # A later heartbeat may have come over another connection.
        if self._is_active and self._losses.get(broker_id) is loss:
            self._start(self._look_at(broker_id, loss))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_at(self, broker_id: int, loss: PeerLoss) -> None:
        broker = self._image().cluster.brokers.get(broker_id)
        if broker is None or broker.fenced:
            return
        is_gone = await self._is_gone(broker, lambda: self._losses.get(broker_id) is loss)
        if is_gone and self._losses.get(broker_id) is loss:
            del self._losses[broker_id]
            await self._fence_broker(broker, "closed its connection and does not listen any more")

    async def _look_at_all(self) -> None:
        """Fence brokers that are gone, if another one answers: else the whole cluster may be about to start."""
        brokers = [
            broker
            for broker in self._image().cluster.brokers.values()
            if not broker.fenced and broker.broker_id != self._node_id
        ]
        found = await asyncio.gather(*(self._find(broker) for broker in brokers))
        if Finding.ALIVE not in found:
            return
        for broker, finding in zip(brokers, found, strict=True):
            if finding is Finding.GONE and await self._is_gone_unheard(broker):
                await self._fence_broker(broker, "does not listen any more")

    async def _is_gone_unheard(self, broker: BrokerImage) -> bool:
        def is_unheard() -> bool:
            return broker.broker_id not in self._losses

        return is_unheard() and await self._is_gone(broker, is_unheard) and is_unheard()

    async def _is_gone(self, broker: BrokerImage, is_silent: Callable[[], bool]) -> bool:
        refusals, answers = 0, self._answers[broker.broker_id]
        for delay_s in _PROBES_AFTER_S:
            await asyncio.sleep(delay_s)
            if not is_silent():
                return False
            finding = await self._find(broker)
            if self._answers[broker.broker_id] != answers:
                return False
            match finding:
                case Finding.GONE:
                    refusals += 1
                    if refusals == _REFUSALS_NEEDED:
                        return True
                case Finding.UNKNOWN:
                    refusals = 0
        return False

    async def _fence_broker(self, broker: BrokerImage, why: str) -> None:
        try:
            is_fenced = await self._fence(broker.broker_id, broker.epoch)
        except (KafkaError, NodeClosedError) as error:
            # The next active controller looks again, and the session goes on.
            logger.debug("broker %d, which %s, is not fenced: %s", broker.broker_id, why, error)
            return
        if is_fenced:
            logger.warning("broker %d %s and is fenced before the end of its session", broker.broker_id, why)

    async def _find(self, broker: BrokerImage) -> Finding:
        async with self._limit:
            finding = await probe_broker(broker.end_points)
        self._answers[broker.broker_id] += finding is Finding.ALIVE
        return finding
