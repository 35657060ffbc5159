"""ConsumerGroupHeartbeat, API key 68, versions 0-1 (KIP-848).

1   regular expressions; clients choose their member ids (KIP-1082)
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from kraftlog.api.combined_answer import transform
from kraftlog.coordinator.group.config import ClientInfo
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.features import GROUP_VERSION
from kraftlog.security.operation import Operation, ResourceKind
from kraftlog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService, GroupService
    from kraftlog.api.settings import ApiSettings

__all__ = ["handle"]


def handle(
    context: RequestContext,
    request: ConsumerGroupHeartbeatRequest,
    *,
    cluster: ClusterService,
    groups: GroupService,
    settings: ApiSettings,
) -> ConsumerGroupHeartbeatResponse | asyncio.Future[ConsumerGroupHeartbeatResponse]:
    """Join a consumer group, stay in it, or leave it; answered once what changed is committed."""
    if not cluster.image.features.get(GROUP_VERSION) or "consumer" not in settings.group_protocols:
        # Clients end with this error; where the API is missing, librdkafka tries again without end.
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        runner = groups.runner(request.group_id)
    except KafkaError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code)
    access = context.access
    may_describe = None if access is None else partial(access.may, Operation.DESCRIBE, ResourceKind.TOPIC)
    client = ClientInfo(context.client_id or "", f"/{context.client_host}", context.api_version, may_describe)
    asked = runner.ask(lambda shard, future, now_ms: shard.consumer_group_heartbeat(future, request, client, now_ms))
    return transform(
        asked, lambda response: response, lambda error: ConsumerGroupHeartbeatResponse(error_code=error.code)
    )
