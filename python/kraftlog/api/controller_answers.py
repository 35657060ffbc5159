"""What a controller that is not the active one answers, in the form that each API has for it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from kraftlog.api.combined_answer import transform
from kraftlog.controller.operations import operation_of

if TYPE_CHECKING:
    from kraftlog.api.services import ControllerService
    from kraftlog.controller.topic_control import Charge
    from kraftlog.transport.exchange import PeerLoss
    from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
    from kraftlog.wire.struct import Message

__all__ = ["ControllerAnswers"]


class ControllerAnswers:
    """A ``ControllerService`` whose refusals are responses if an API has errors only at each topic or resource.

    The response of any other API has an error code of its own, which the dispatcher fills in. Kafka's
    ``AbstractRequest.getErrorResponse`` makes both.

    Args:
        controller: Its operations fail with NOT_CONTROLLER unless it is the active one.
    """

    def __init__(self, controller: ControllerService) -> None:
        self._controller = controller

    def submit_request(
        self, request: Message, *, timeout_s: float | None = None, charge: Charge | None = None
    ) -> asyncio.Future[Any]:
        """As ``ControllerService.submit_request``."""
        submitted = self._controller.submit_request(request, timeout_s=timeout_s, charge=charge)
        refuse = operation_of(request).refuse
        if refuse is None:
            return submitted
        answer = transform(submitted, lambda response: response, partial(refuse, request))
        # An operation that nobody waits for is not begun.
        answer.add_done_callback(lambda done: submitted.cancel() if done.cancelled() else None)
        return answer

    def note_connection(self, request: BrokerHeartbeatRequest, loss: PeerLoss) -> None:
        """As ``ControllerService.note_connection``."""
        self._controller.note_connection(request, loss)
