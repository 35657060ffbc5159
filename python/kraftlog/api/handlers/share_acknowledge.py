"""ShareAcknowledge, API key 79, versions 1-2 (KIP-932).

2   renewal of locks (KIP-1222)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kraftlog.api.share_acknowledgements import (
    Place,
    acknowledge,
    leader_fields,
    member_problem,
    node_end_points,
    settled,
)
from kraftlog.api.slices import Pauses, Slices, sliced
from kraftlog.coordinator.share.share_session import FINAL_EPOCH, INITIAL_EPOCH
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import Uuid
from kraftlog.wire.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService, TaskService
    from kraftlog.runtime.share.share_service import ShareService

__all__ = ["handle"]

_RENEW_VERSION = 2


@sliced
def handle(
    context: RequestContext,
    request: ShareAcknowledgeRequest,
    *,
    cluster: ClusterService,
    shares: ShareService,
    tasks: TaskService,
) -> Slices[ShareAcknowledgeResponse | asyncio.Future[ShareAcknowledgeResponse]]:
    """Take acknowledgements; answered once they are stored."""
    response = ShareAcknowledgeResponse
    if not shares.is_enabled:
        return response(error_code=ErrorCode.UNSUPPORTED_VERSION)
    problem = member_problem(request.group_id, request.member_id)
    if problem is not None:
        return response(error_code=ErrorCode.INVALID_REQUEST, error_message=problem)
    group_id, member_id = request.group_id or "", request.member_id or ""
    epoch = request.share_session_epoch
    try:
        if epoch == INITIAL_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        if epoch == FINAL_EPOCH:
            session = shares.sessions.find(group_id, member_id)
        else:
            session = shares.sessions.continue_with(group_id, member_id, epoch)
    except KafkaError as error:
        return response(error_code=error.code, error_message=error.message)
    is_renewable = context.api_version >= _RENEW_VERSION
    acknowledged = yield from acknowledge(
        shares,
        group_id,
        member_id,
        request.topics,
        type_max=4 if is_renewable else 3,
        is_renew=request.is_renew_ack,
    )
    released = shares.end_session(session) if epoch == FINAL_EPOCH else []
    lock_ms = shares.lock_ms(group_id) if is_renewable else 0
    return tasks.spawn(_finish(context, cluster, acknowledged, released, lock_ms))


async def _finish(
    context: RequestContext,
    cluster: ClusterService,
    acknowledged: dict[Place, asyncio.Future[int] | int],
    released: Sequence[asyncio.Future[int]],
    lock_ms: int,
) -> ShareAcknowledgeResponse:
    response = ShareAcknowledgeResponse
    codes = await settled(acknowledged)
    for future in released:
        await future
    leaders: set[int] = set()
    topics: dict[Uuid, list[Any]] = {}
    pauses = Pauses()
    for place, code in codes.items():
        if pauses.is_due():
            await asyncio.sleep(0)
        topics.setdefault(place[0], []).append(
            response.PartitionData(
                partition_index=place[1],
                error_code=code,
                **leader_fields(cluster, place, code, leaders, response.LeaderIdAndEpoch),
            )
        )
    return response(
        acquisition_lock_timeout_ms=lock_ms,
        responses=[
            response.ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
        node_endpoints=node_end_points(cluster, context, leaders, response.NodeEndpoint),
    )
