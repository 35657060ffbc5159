"""DeleteShareGroupOffsets, API key 92, version 0 (KIP-932)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.api.slices import Pauses
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import Uuid
from kraftlog.vocabulary import NOT_HOSTED
from kraftlog.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService, GroupService, TaskService
    from kraftlog.runtime.share.share_admin import ShareAdmin
    from kraftlog.runtime.share.share_service import ShareService

__all__ = ["handle"]

_Response = DeleteShareGroupOffsetsResponse
# Tools print it as it is.
_NO_OFFSETS = "There is no offset information to delete."


def handle(
    context: RequestContext,
    request: DeleteShareGroupOffsetsRequest,
    *,
    cluster: ClusterService,
    groups: GroupService,
    shares: ShareService,
    share_admin: ShareAdmin,
    tasks: TaskService,
) -> DeleteShareGroupOffsetsResponse | asyncio.Future[DeleteShareGroupOffsetsResponse]:
    """Forget what an empty share group has read of topics."""
    if not shares.is_enabled:
        return _Response(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not request.group_id:
        return _Response(error_code=ErrorCode.INVALID_GROUP_ID)
    return tasks.spawn(_delete(request, cluster, groups, share_admin))


async def _delete(
    request: DeleteShareGroupOffsetsRequest, cluster: ClusterService, groups: GroupService, admin: ShareAdmin
) -> DeleteShareGroupOffsetsResponse:
    group_id = request.group_id
    ids: dict[str, Uuid] = {}
    pauses = Pauses()
    for asked in request.topics:
        if pauses.is_due():
            await asyncio.sleep(0)
        topic = cluster.image.topics.by_name(asked.topic_name)
        if topic is not None:
            ids[asked.topic_name] = topic.topic_id
    try:
        runner = groups.runner(group_id)
        found = await runner.ask(
            lambda shard, future, now_ms: shard.shares.begin_deletion(future, group_id, ids.values(), now_ms)
        )
        if isinstance(found, int):
            is_missing = found == ErrorCode.GROUP_ID_NOT_FOUND
            raise KafkaError(found, f"Group {group_id} not found." if is_missing else None)
        codes = await admin.delete(group_id, found)
        gone = [topic_id for topic_id, code in codes.items() if not code]
        if gone:
            stored = await runner.ask(
                lambda shard, future, now_ms: shard.shares.finish_deletion(
                    future, group_id, gone, now_ms, is_whole_group=False
                )
            )
            codes.update(dict.fromkeys(gone, stored))
    except KafkaError as error:
        return _Response(error_code=error.code, error_message=error.message)
    answers = []
    for asked in request.topics:
        if pauses.is_due():
            await asyncio.sleep(0)
        topic_id = ids.get(asked.topic_name, Uuid.ZERO)
        code = codes.get(topic_id, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        answers.append(
            _Response.DeleteShareGroupOffsetsResponseTopic(
                topic_name=asked.topic_name,
                topic_id=topic_id,
                error_code=code,
                error_message=_message(code, is_known=topic_id != Uuid.ZERO),
            )
        )
    return _Response(responses=answers)


def _message(code: int, *, is_known: bool) -> str | None:
    """What Kafka says of a topic; clients have a text for each other code."""
    if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    return _NO_OFFSETS if is_known else NOT_HOSTED
