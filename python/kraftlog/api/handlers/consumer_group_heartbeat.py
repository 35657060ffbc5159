"""ConsumerGroupHeartbeat, API key 68, versions 0-1 (KIP-848): groups follow the classic protocol here.

Kafka, too, serves the API while the protocol is switched off and answers UNSUPPORTED_VERSION. Clients that ask for
``group.protocol=consumer`` then end with that error; where the API is missing, librdkafka tries again without end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext

__all__ = ["handle"]


def handle(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    """Refuse the member as Kafka does with the consumer protocol switched off."""
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        error_message="This node serves groups of the classic protocol only: set group.protocol=classic.",
    )
