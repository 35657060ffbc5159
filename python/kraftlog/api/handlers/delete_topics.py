"""DeleteTopics, API key 20, versions 1-6.

3   TOPIC_DELETION_DISABLED instead of INVALID_REQUEST where delete.topic.enable=false
5   error texts; THROTTLING_QUOTA_EXCEEDED may be answered (KIP-599)
6   by topic id or name (KIP-516)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.api.slices import Slices, in_slices, sliced
from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ControllerService
    from kraftlog.api.settings import ApiSettings

__all__ = ["handle"]

DELETION_DISABLED_VERSION = 3
STRICT_QUOTA_VERSION = 5
TOPIC_STATES_VERSION = 6


@sliced
def handle(
    context: RequestContext, request: DeleteTopicsRequest, *, controller: ControllerService, settings: ApiSettings
) -> Slices[DeleteTopicsResponse | asyncio.Future[DeleteTopicsResponse]]:
    """Delete topics; answered when that is committed."""
    if context.api_version < TOPIC_STATES_VERSION:
        topics = yield from in_slices(DeleteTopicsRequest.DeleteTopicState(name=name) for name in request.topic_names)
        request = DeleteTopicsRequest(topics=topics, timeout_ms=request.timeout_ms)
    if not settings.delete_topic_enable:
        disabled = context.api_version >= DELETION_DISABLED_VERSION
        responses = yield from in_slices(
            DeleteTopicsResponse.DeletableTopicResult(
                name=topic.name,
                topic_id=topic.topic_id,
                error_code=ErrorCode.TOPIC_DELETION_DISABLED if disabled else ErrorCode.INVALID_REQUEST,
                error_message="Topic deletion is disabled." if disabled else None,
            )
            for topic in request.topics
        )
        return DeleteTopicsResponse(responses=responses)
    return controller.submit_request(request, charge=context.mutation_charge(STRICT_QUOTA_VERSION))
