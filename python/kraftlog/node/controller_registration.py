"""A controller tells the active one who it is: its listeners and the features it can run (KIP-919)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kraftlog.errors import ErrorCode, KafkaError, KraftlogError
from kraftlog.features import supported_ranges
from kraftlog.storage.meta_properties import random_uuid
from kraftlog.wire.messages.controller_registration import ControllerRegistrationRequest

if TYPE_CHECKING:
    from kraftlog.node.identity import NodeIdentity
    from kraftlog.runtime.metadata.controller_channel import ControllerChannel

__all__ = ["ControllerRegistration"]

logger = logging.getLogger(__name__)

RETRY_S = 0.5


class ControllerRegistration:
    """Registers once in each run of the process, as soon as there is an active controller.

    Args:
        identity: With the listeners of the controller.
        channel: The way to the active controller.
    """

    def __init__(self, identity: NodeIdentity, channel: ControllerChannel) -> None:
        self._identity = identity
        self._channel = channel
        self._task: asyncio.Task[None] | None = None
        self.incarnation_id = random_uuid()

    async def register(self) -> None:
        """Register; again if the active controller could not store it in time, as after an election.

        Raises:
            KafkaError: The active controller refuses.
        """
        while True:
            try:
                response = await self._channel.request(self._request())
                if response.error_code != ErrorCode.REQUEST_TIMED_OUT:
                    return
            except KafkaError as error:  # raised by the channel where the controller is in this process
                if error.code != ErrorCode.REQUEST_TIMED_OUT:
                    raise
            await asyncio.sleep(RETRY_S)

    def begin(self) -> None:
        """Register as soon as it can be done; a refusal is logged."""
        self._task = asyncio.get_running_loop().create_task(self._register_and_log())

    async def _register_and_log(self) -> None:
        try:
            await self.register()
        except KraftlogError as error:
            logger.error("controller %d cannot be registered: %s", self._identity.node_id, error)

    def stop(self) -> None:
        """Wait no longer."""
        if self._task is not None:
            self._task.cancel()

    def _request(self) -> ControllerRegistrationRequest:
        return ControllerRegistrationRequest(
            controller_id=self._identity.node_id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=False,
            listeners=tuple(
                ControllerRegistrationRequest.Listener(
                    name=listener.name,
                    host=listener.host,
                    port=listener.port,
                    security_protocol=listener.security_protocol,
                )
                for listener in self._identity.listeners
            ),
            features=tuple(
                ControllerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in supported_ranges().items()
            ),
        )
