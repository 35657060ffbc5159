"""ShareFetch, API key 78, versions 1-2 (KIP-932): acquire records, waiting for them, and acknowledge others.

2   strict number of records (KIP-1206), renewal of locks (KIP-1222)

Records leave as file slices and go out by sendfile; their bytes are never seen here.
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
from kraftlog.api.slices import LOOKUPS_PER_SLICE, Pauses, Slices, sliced
from kraftlog.coordinator.share.share_partition import AcquireLimits
from kraftlog.coordinator.share.share_session import FINAL_EPOCH, INITIAL_EPOCH, ShareSession
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.runtime.share.share_service import SharedPartition, ShareFetchLimits
from kraftlog.security.operation import Operation, ResourceKind
from kraftlog.types import Uuid
from kraftlog.wire.messages.share_fetch import ShareFetchRequest, ShareFetchResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService, TaskService
    from kraftlog.api.settings import ApiSettings
    from kraftlog.runtime.share.share_service import ShareService

__all__ = ["handle"]

_RENEW_VERSION = 2
_STRICT = 1  # ShareAcquireMode


@sliced
def handle(
    context: RequestContext,
    request: ShareFetchRequest,
    *,
    cluster: ClusterService,
    settings: ApiSettings,
    shares: ShareService,
    tasks: TaskService,
) -> Slices[ShareFetchResponse | asyncio.Future[ShareFetchResponse]]:
    """Acknowledge, then acquire what the session's partitions have, at once or when there is something."""
    if not shares.is_enabled:
        return ShareFetchResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    problem = yield from _problem(request)
    if problem is not None:
        return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=problem)
    group_id, member_id = request.group_id or "", request.member_id or ""
    epoch = request.share_session_epoch
    try:
        if epoch == INITIAL_EPOCH:
            session = shares.open_session(group_id, member_id, context.peer, context.peer.loss)
        elif epoch == FINAL_EPOCH:
            session = shares.sessions.find(group_id, member_id)
        else:
            session = shares.sessions.continue_with(group_id, member_id, epoch)
    except KafkaError as error:
        if error.code == ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            return tasks.spawn(_refuse_late(error, request.max_wait_ms))
        return ShareFetchResponse(error_code=error.code, error_message=error.message)
    if epoch != FINAL_EPOCH and not shares.sessions.has_room(session, (yield from _new_count(session, request))):
        if epoch == INITIAL_EPOCH:
            shares.end_session(session)
        return ShareFetchResponse(
            error_code=ErrorCode.SHARE_SESSION_LIMIT_REACHED, error_message="The session has too many partitions."
        )
    acknowledged = yield from acknowledge(
        shares,
        group_id,
        member_id,
        request.topics,
        type_max=4 if context.api_version >= _RENEW_VERSION else 3,
        is_renew=request.is_renew_ack,
    )
    answer = _Answer(context, request, cluster, shares, session)
    if epoch == FINAL_EPOCH:
        released = shares.end_session(session)
        return tasks.spawn(answer.finish([], None, acknowledged, released))
    yield from _update(session, request)
    if request.is_renew_ack:
        return tasks.spawn(answer.finish([], None, acknowledged, []))
    limits = ShareFetchLimits(
        acquire=AcquireLimits(
            max_records=max(0, request.max_records),
            batch_size=max(1, request.batch_size),
            is_strict=request.share_acquire_mode == _STRICT,
        ),
        max_wait_ms=max(0, request.max_wait_ms),
        min_bytes=min(request.min_bytes, settings.fetch_max_bytes),
        max_bytes=min(request.max_bytes, settings.fetch_max_bytes),
    )
    return tasks.spawn(answer.finish(list(session.partitions), limits, acknowledged, []))


def _new_count(session: ShareSession, request: ShareFetchRequest) -> Slices[int]:
    """How many partitions a request adds to its session."""
    pauses = Pauses(LOOKUPS_PER_SLICE)
    count = 0
    for topic in request.topics:
        if pauses.is_due():
            yield None
        for partition in topic.partitions:
            if pauses.is_due():
                yield None
            count += (topic.topic_id, partition.partition_index) not in session.partitions
    return count


def _update(session: ShareSession, request: ShareFetchRequest) -> Slices[None]:
    """Add and remove the partitions that a request names."""
    pauses = Pauses(LOOKUPS_PER_SLICE)
    for topic in request.topics:
        if pauses.is_due():
            yield None
        for partition in topic.partitions:
            if pauses.is_due():
                yield None
            session.add(topic.topic_id, partition.partition_index)
    for forgotten in request.forgotten_topics_data:
        if pauses.is_due():
            yield None
        for index in forgotten.partitions:
            if pauses.is_due():
                yield None
            session.forget(forgotten.topic_id, index)


def _has_acknowledgements(request: ShareFetchRequest) -> Slices[bool]:
    pauses = Pauses(LOOKUPS_PER_SLICE)
    for topic in request.topics:
        if pauses.is_due():
            yield None
        for partition in topic.partitions:
            if pauses.is_due():
                yield None
            if partition.acknowledgement_batches:
                return True
    return False


def _problem(request: ShareFetchRequest) -> Slices[str | None]:
    problem = member_problem(request.group_id, request.member_id)
    if problem is not None:
        return problem
    if request.share_session_epoch == INITIAL_EPOCH and (yield from _has_acknowledgements(request)):
        return "The first request of a share session cannot acknowledge anything."
    if request.is_renew_ack and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
        return "A request that renews locks fetches nothing: its limits must be 0."
    return None


async def _refuse_late(error: KafkaError, max_wait_ms: int) -> ShareFetchResponse:
    """As Kafka: a client that opens one session after another does so at its own pace."""
    await asyncio.sleep(max(0, max_wait_ms) / 1000)
    return ShareFetchResponse(error_code=error.code, error_message=error.message)


class _Answer:
    """Makes the response of one request."""

    def __init__(
        self,
        context: RequestContext,
        request: ShareFetchRequest,
        cluster: ClusterService,
        shares: ShareService,
        session: ShareSession,
    ) -> None:
        self._context = context
        self._request = request
        self._cluster = cluster
        self._shares = shares
        self._session = session
        self._leaders: set[int] = set()

    async def finish(
        self,
        places: Sequence[Place],
        limits: ShareFetchLimits | None,
        acknowledged: dict[Place, asyncio.Future[int] | int],
        released: Sequence[asyncio.Future[int]],
    ) -> ShareFetchResponse:
        """Wait for records and for what has to be stored."""
        found: dict[Place, SharedPartition] = {}
        if limits is not None and places:
            refused = [] if self._context.access is None else [place for place in places if not self._may_read(place)]
            hidden = set(refused)
            readable = [place for place in places if place not in hidden] if refused else places
            if readable:
                found = await self._shares.fetch(self._session, readable, limits)
            found.update((place, SharedPartition(ErrorCode.TOPIC_AUTHORIZATION_FAILED)) for place in refused)
        codes = await settled(acknowledged)
        for future in released:
            await future
        is_initial = self._request.share_session_epoch == INITIAL_EPOCH
        topics: dict[Uuid, list[Any]] = {}
        pauses = Pauses()
        # Acknowledged partitions that are not fetched come last.
        for place in dict.fromkeys((*places, *codes)):
            if pauses.is_due():
                await asyncio.sleep(0)
            if not (place in found or place in codes or is_initial):
                continue
            shared = found.get(place, SharedPartition())
            topics.setdefault(place[0], []).append(self._partition(place, shared, codes.get(place, 0)))
        response = ShareFetchResponse
        return response(
            acquisition_lock_timeout_ms=self._shares.lock_ms(self._session.group_id),
            responses=[
                response.ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
            node_endpoints=node_end_points(self._cluster, self._context, self._leaders, response.NodeEndpoint),
        )

    def _may_read(self, place: Place) -> bool:
        """Whether the client still may: ACLs change while a session lasts."""
        access = self._context.access
        name = None if access is None else access.topic_name(place[0])
        return access is None or name is None or access.may(Operation.READ, ResourceKind.TOPIC, name)

    def _partition(self, place: Place, shared: SharedPartition, acknowledge_code: int) -> Any:
        response = ShareFetchResponse
        code = shared.error_code or acknowledge_code
        return response.PartitionData(
            partition_index=place[1],
            error_code=shared.error_code,
            acknowledge_error_code=acknowledge_code,
            records=b"" if shared.records is None else shared.records,
            acquired_records=[
                response.AcquiredRecords(
                    first_offset=part.first, last_offset=part.last, delivery_count=part.delivery_count
                )
                for part in shared.acquired
            ],
            **leader_fields(self._cluster, place, code, self._leaders, response.LeaderIdAndEpoch),
        )
