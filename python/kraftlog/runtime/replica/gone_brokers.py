"""Leaders whose process has ended, until the metadata says so too.

A broker that follows a leader sees its connection end some tens of milliseconds before the controller has elected
another one. A client that asks this broker for metadata in between would be sent back to the dead leader, and some
clients ask again a second later. So the broker looks at the listeners of a leader whose connection ended. Until it has
seen them, and while all of them refuse, Metadata answers LEADER_NOT_AVAILABLE for the partitions of that leader, as if
it were fenced, and clients ask again soon. Nothing else depends on it: elections are the controller's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from kraftlog.runtime.broker_probe import Finding, probe_broker

if TYPE_CHECKING:
    from kraftlog.controller import MetadataDelta, MetadataImage
    from kraftlog.controller.cluster_image import BrokerImage
    from kraftlog.runtime.replica.leader_link import LeaderLink

__all__ = ["GoneBrokers"]

logger = logging.getLogger(__name__)

# A process that is killed does not close all of its sockets in the same instant.
_PROBES_AFTER_S: Final = (0.0, 0.01, 0.03, 0.1, 0.25)
_PROBED_AGAIN_AFTER_S: Final = 0.25


class GoneBrokers:
    """Brokers that are live in the metadata, and whose listeners refuse. All methods are called on the loop.

    Args:
        loop: Where tasks run.
        image: Gives the committed metadata.
        links: Gives the connections to leaders.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        image: Callable[[], MetadataImage],
        links: Callable[[], Iterable[LeaderLink]],
    ) -> None:
        self._loop = loop
        self._image = image
        self._links = links
        self._looks: dict[int, asyncio.Task[None]] = {}
        self._is_stopped = False
        self._ids: frozenset[int] = frozenset()

    def find(self) -> frozenset[int]:
        """The ids of these brokers, another set if they changed.

        The connections of a process that is killed end one after the other within a millisecond or two, and the loop
        may come to a client's question before it comes to the end of its own connection. So the state of each
        connection is asked of the kernel.
        """
        for link in self._links():
            if link.address.broker_id not in self._looks and link.is_ended:
                self.connection_lost(link.address.broker_id, was_open=True)
        return self._ids

    def connection_lost(self, broker_id: int, *, was_open: bool) -> None:
        """A connection to this broker ended, or could not be made.

        Args:
            broker_id: Which.
            was_open: It ended: the broker counts as gone until its listeners were seen, which takes a millisecond in
                most networks. A client may ask in that millisecond, as its own connection ended, too.
        """
        broker = self._image().cluster.brokers.get(broker_id)
        if self._is_stopped or broker is None or broker.fenced or broker_id in self._looks:
            return
        if was_open:
            self._ids |= {broker_id}
        task = self._looks[broker_id] = self._loop.create_task(self._look_at(broker))
        task.add_done_callback(lambda _: self._end(broker_id, task))

    def apply(self, delta: MetadataDelta) -> None:
        """Brokers may have been fenced, or have come back."""
        for broker_id in [broker_id for broker_id in self._looks if broker_id in delta.changed_brokers]:
            self._looks[broker_id].cancel()
            self._end(broker_id, self._looks[broker_id])

    async def stop(self) -> None:
        """Look at no broker any more."""
        self._is_stopped = True
        looks = list(self._looks.values())
        for task in looks:
            task.cancel()
        await asyncio.gather(*looks, return_exceptions=True)

    async def _look_at(self, broker: BrokerImage) -> None:
        for delay_s in _PROBES_AFTER_S:
            await asyncio.sleep(delay_s)
            finding = await probe_broker(broker.end_points)
            if finding is Finding.ALIVE:
                return
            if finding is Finding.GONE:
                break
            self._ids -= {broker.broker_id}
        else:
            return
        self._ids |= {broker.broker_id}
        logger.info("broker %d does not listen any more: clients are not sent to it", broker.broker_id)
        while finding is Finding.GONE:
            await asyncio.sleep(_PROBED_AGAIN_AFTER_S)
            finding = await probe_broker(broker.end_points)

    def _end(self, broker_id: int, task: asyncio.Task[None]) -> None:
        if self._looks.get(broker_id) is task:
            del self._looks[broker_id]
            self._ids -= {broker_id}
