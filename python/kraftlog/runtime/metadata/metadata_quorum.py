"""The metadata quorum of a node, put together: replica, active controller, publisher."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from kraftlog.controller import ControllerResult, MetadataImage
from kraftlog.controller.topic_control import Charge
from kraftlog.metrics import Metrics
from kraftlog.runtime.metadata.active_controller import ActiveController
from kraftlog.runtime.metadata.metadata_metrics import MetadataMetrics
from kraftlog.runtime.metadata.operation_queue import Operation
from kraftlog.runtime.metadata.publisher import MetadataListener, MetadataPublisher
from kraftlog.runtime.metadata.replica import MetadataReplica
from kraftlog.runtime.metadata.settings import MetadataSettings
from kraftlog.transport.exchange import PeerLoss
from kraftlog.transport.peer_security import SecurityOf
from kraftlog.types import NodeId
from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftlog.wire.struct import Message

__all__ = ["MetadataQuorum"]

T = TypeVar("T")

_TOPICS_TIMEOUT_S = 5.0


class MetadataQuorum:
    """What a node has of the metadata quorum.

    Made on the running loop; all methods are called there.

    Args:
        settings: Of the quorum.
        metrics: Where its groups are registered.
        wall_ms: Unix clock.
        security: What connections to a listener of that name need; gives None where it is PLAINTEXT.

    Attributes:
        replica: This node's replica of the metadata log.
        controller: Runs operations while this node leads.
        publisher: Has the committed image and tells its listeners.
    """

    def __init__(
        self,
        settings: MetadataSettings,
        metrics: Metrics,
        *,
        wall_ms: Callable[[], int],
        security: SecurityOf = lambda _: None,
    ) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._metrics = MetadataMetrics(settings, metrics, wall_ms=wall_ms)
        self.publisher = MetadataPublisher(self._metrics)
        self.controller = ActiveController(settings, lambda: self.publisher.image, self._metrics, self._loop)
        self.replica = MetadataReplica(
            settings, self.publisher, self.controller, self._metrics, wall_ms=wall_ms, security=security
        )
        self._is_stopping = False

    @property
    def image(self) -> MetadataImage:
        """What is committed."""
        return self.publisher.image

    @property
    def node_id(self) -> NodeId:
        """This node."""
        return self._settings.node_id

    @property
    def cluster_id(self) -> str:
        """As in meta.properties."""
        return self._settings.cluster_id

    @property
    def kraft_version(self) -> int:
        """The level of kraft.version, which the raft layer keeps apart from the image's features."""
        return self.replica.raft.kraft_version

    @property
    def is_leader(self) -> bool:
        """Whether operations can be submitted here."""
        return self.replica.is_leader

    @property
    def failure(self) -> BaseException | None:
        """What made the metadata log unwritable, None while it works; every operation then fails."""
        return self.replica.failure

    @property
    def failed(self) -> asyncio.Event:
        """Set together with ``failure``: the process should end."""
        return self.replica.failed

    async def start(self) -> None:
        """Open the log and take part. A sole voter leads and has committed all when this returns.

        Raises:
            LogError: The directory cannot be read or written.
            CorruptRecordError: A record cannot be replayed.
        """
        self.replica.start()
        if self.replica.is_sole_voter:
            # Nobody has to be waited for: what the log has is committed as soon as this node leads.
            await self.submit(lambda _core, _now_ms: ControllerResult(None, []))

    async def stop(self) -> None:
        """Finish what was proposed, resign, close the log. Operations not begun fail with NodeClosedError."""
        if self.replica.is_opened and not self._is_stopping:
            self._is_stopping = True
            await self.replica.stop()
        self._metrics.close()

    def on_failure(self, error: BaseException) -> None:
        """The node cannot go on for another reason than its metadata log; it ends as if that had failed."""
        self.replica.on_failure(error)

    def submit(self, operation: Operation[T], *, timeout_s: float | None = None) -> asyncio.Future[T]:
        """As ``ActiveController.submit``."""
        return self.controller.submit(operation, timeout_s=timeout_s)

    def submit_request(
        self, request: Message, *, timeout_s: float | None = None, charge: Charge | None = None
    ) -> asyncio.Future[Any]:
        """As ``ActiveController.submit_request``."""
        return self.controller.submit_request(request, timeout_s=timeout_s, charge=charge)

    def note_connection(self, request: BrokerHeartbeatRequest, loss: PeerLoss) -> None:
        """As ``ActiveController.note_connection``."""
        self.controller.note_connection(request, loss)

    def add_listener(self, listener: MetadataListener) -> None:
        """Call ``listener(image, delta)`` after each commit that changed something, before its futures complete."""
        self.publisher.add_listener(listener)

    async def wait_for_offset(self, offset: int) -> None:
        """Wait until the record at ``offset`` is in the image."""
        await self.replica.log.wait_for_offset(offset)

    async def wait_for_topics(self, names: Iterable[str]) -> None:
        """Wait until these topics, which the active controller has created, are in the image, or are gone again."""
        end_s = self._loop.time() + _TOPICS_TIMEOUT_S
        for name in names:
            while self.image.topics.by_name(name) is None and self._loop.time() < end_s:
                await self.wait_for_offset(self.replica.log.applied_end_offset)
