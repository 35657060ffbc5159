"""A controller tells the active one who it is: its listeners and the features it can run (KIP-919)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kraftlog.errors import KraftlogError
from kraftlog.features import supported_ranges
from kraftlog.storage.meta_properties import random_uuid
from kraftlog.wire.messages.controller_registration import ControllerRegistrationRequest

if TYPE_CHECKING:
    from kraftlog.node.node import Node

__all__ = ["ControllerRegistration"]

logger = logging.getLogger(__name__)


class ControllerRegistration:
    """Registers once in each run of the process, as soon as there is an active controller."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._task: asyncio.Task[None] | None = None
        self.incarnation_id = random_uuid()

    async def register(self) -> None:
        """Register.

        Raises:
            KafkaError: The active controller refuses.
        """
        await self._node.controllers.request(self._request())

    def begin(self) -> None:
        """Register as soon as it can be done; a refusal is logged."""
        self._task = self._node.loop.create_task(self._register_and_log())

    async def _register_and_log(self) -> None:
        try:
            await self.register()
        except KraftlogError as error:
            logger.error("controller %d cannot be registered: %s", self._node.config.node_id, error)

    def stop(self) -> None:
        """Wait no longer."""
        if self._task is not None:
            self._task.cancel()

    def _request(self) -> ControllerRegistrationRequest:
        node = self._node
        names = node.config.controller_listener_names
        return ControllerRegistrationRequest(
            controller_id=node.config.node_id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=False,
            listeners=tuple(
                ControllerRegistrationRequest.Listener(
                    name=one.listener_name,
                    host=one.host,
                    port=one.port,
                    security_protocol=node.config.security_protocol(one.listener_name),
                )
                for one in node.advertised_end_points()
                if one.listener_name in names
            ),
            features=tuple(
                ControllerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in supported_ranges().items()
            ),
        )
