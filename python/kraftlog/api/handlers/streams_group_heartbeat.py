"""StreamsGroupHeartbeat, API key 88, version 0 (KIP-1071): there are no streams groups.

Kafka answers so when ``streams.version`` is 0 or the protocol is not enabled.

Source: ``KafkaApis.isStreamsGroupProtocolEnabled``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext

__all__ = ["handle"]


def handle(_context: RequestContext, _request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
    """Answer UNSUPPORTED_VERSION; the client then falls back or says that the cluster lacks the protocol."""
    return StreamsGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
