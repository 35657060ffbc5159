"""Fetch (key 1), versions 4-18: read committed batches, waiting up to max_wait_ms for min_bytes of them.

v4: isolation level, aborted transactions (KIP-98). v5: log start offset (KIP-107). v7: sessions (KIP-227). v9: current
leader epoch (KIP-320). v10: zstd (KIP-110). v11: rack, preferred read replica (KIP-392). v12: flexible, last fetched
epoch and diverging epoch (KIP-595). v13: topic ids (KIP-516). v15: replica state (KIP-903). v16: node endpoints of new
leaders (KIP-951). v17: replica directory id (KIP-853). v18: the follower's high watermark (KIP-1166).

Records leave as file slices and go out by sendfile; their bytes are never seen here.
"""

from __future__ import annotations

import asyncio
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from kraftlog._kraftlog import untracked
from kraftlog.api.cluster_view import broker_address
from kraftlog.api.leader_hint import leader_addresses, leader_hint
from kraftlog.api.slices import ENTRIES_PER_SLICE, LARGE_ENTRIES, LOOKUPS_PER_SLICE, Slices, at_once, in_slices
from kraftlog.errors import ErrorCode
from kraftlog.partition.replica_selector import ReplicaView, select_by_rack
from kraftlog.runtime.replica.fetch_reader import (
    FetchLimits,
    PartitionRead,
    is_enough,
    read_all,
)
from kraftlog.runtime.replica.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, FetchSession, SessionPartition
from kraftlog.runtime.replica.follower_reads import FollowerReader
from kraftlog.runtime.replica.long_poll import FetchWait
from kraftlog.types import Uuid
from kraftlog.wire.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kraftlog.api.context import RequestContext
    from kraftlog.api.request_quota import RequestQuota
    from kraftlog.api.services import ClusterService, IsrChangeService, RaftService, ReplicaService
    from kraftlog.api.settings import ApiSettings
    from kraftlog.runtime.replica.fetch_session import FetchSessionCache
    from kraftlog.runtime.replica.partition import Partition
    from kraftlog.wire.struct import Message

__all__ = ["handle", "handle_on_controller"]

ERROR_CODE_FROM = 7  # version of Fetch
DATA_PATH_FROM = 12  # version of Fetch
DATA_PATH_ELEMENTS_MAX = 8 * 1024
"""Partitions of a follower's request that the I/O threads take for sure; with its topics they take twice as many."""
PREFERRED_REPLICA_FROM = 11  # version of Fetch
NAMES_LEADERS_FROM = 16  # version of Fetch (KIP-951); as Kafka, although version 12 has the field of the leader
# What a quota counts of an answer and of each partition in it, beside the records: about their fixed fields.
_ANSWER_BYTES = 20
_PARTITION_BYTES = 40

PartitionData = FetchResponse.PartitionData
_NOT_IN_METADATA = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def handle(
    context: RequestContext,
    request: FetchRequest,
    *,
    cluster: ClusterService,
    settings: ApiSettings,
    replicas: ReplicaService,
    sessions: FetchSessionCache,
    isr_changes: IsrChangeService,
) -> FetchResponse | asyncio.Future[Any] | Slices[FetchResponse]:
    """Answer from the logs, at once or when there is enough."""
    topics = request.topics
    if len(topics) > LARGE_ENTRIES or sum(len(topic.partitions) for topic in topics) > LARGE_ENTRIES:
        return _handle_large(context, request, cluster, settings, replicas, sessions, isr_changes)
    asked = list(_asked(request))
    return _handle(context, request, asked, cluster, settings, replicas, sessions, isr_changes)


def _handle_large(
    context: RequestContext,
    request: FetchRequest,
    cluster: ClusterService,
    settings: ApiSettings,
    replicas: ReplicaService,
    sessions: FetchSessionCache,
    isr_changes: IsrChangeService,
) -> Slices[Any]:
    # So many that each full collection of garbage would take long; they refer to nothing but values.
    asked = yield from in_slices(map(untracked, _asked(request)))
    answer = _handle(context, request, asked, cluster, settings, replicas, sessions, isr_changes)
    return (yield from answer) if isinstance(answer, GeneratorType) else answer


def _asked(request: FetchRequest) -> Iterator[SessionPartition]:
    return (
        SessionPartition(
            topic.topic,
            topic.topic_id,
            partition.partition,
            partition.partition_max_bytes,
            partition.fetch_offset,
            partition.current_leader_epoch,
            partition.last_fetched_epoch,
            partition.log_start_offset,
        )
        for topic in request.topics
        for partition in topic.partitions
    )


def _handle(
    context: RequestContext,
    request: FetchRequest,
    asked: list[SessionPartition],
    cluster: ClusterService,
    settings: ApiSettings,
    replicas: ReplicaService,
    sessions: FetchSessionCache,
    isr_changes: IsrChangeService,
) -> FetchResponse | asyncio.Future[Any] | Slices[FetchResponse]:
    version = context.api_version
    uses_topic_ids = version >= 13
    preferred = _preferred_replica(context, request, cluster, settings, replicas)
    replica_id = request.replica_state.replica_id if version >= 15 else request.replica_id
    is_follower = replica_id >= 0
    quota = context.quota
    if quota is not None and is_follower:
        quota.exempt()
        quota = None
    # The client of a session comes here with every fetch. Without one its next fetch is full again, and the data path
    # answers that as soon as it can.
    offers_session = (
        _keeps_follower(context, replicas, asked, uses_topic_ids=uses_topic_ids)
        if is_follower
        else version < DATA_PATH_FROM or not context.peer.is_on_data_path or preferred is not None
    )
    opened = _open_session(
        replicas,
        sessions,
        request,
        asked,
        uses_topic_ids=uses_topic_ids,
        is_follower=is_follower,
        offers_session=offers_session,
    )
    if isinstance(opened, int):
        return FetchResponse(error_code=opened)
    session, wanted, is_incremental = opened
    is_continued = is_follower and is_incremental and session is not None
    if is_continued and not _keeps_follower(context, replicas, wanted, uses_topic_ids=uses_topic_ids):
        # The throttle is over: the follower's next fetch is full, and the data path opens a session for it.
        sessions.remove(request.session_id)
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    max_wait_ms = request.max_wait_ms
    if is_follower:
        replicas.follower_polls.arrived(replica_id, ((partition.topic_id, partition.index) for partition in asked))
        max_wait_ms = replicas.follower_polls.wait_ms(replica_id, max_wait_ms)
    max_bytes = min(request.max_bytes, settings.fetch_max_bytes)
    min_bytes = min(request.min_bytes, settings.fetch_max_bytes)
    if quota is not None and (most := quota.most_fetched()) is not None:
        # More would be refused in any case.
        max_bytes, min_bytes = min(max_bytes, most), min(min_bytes, most)
    limits = FetchLimits(
        isolation_level=request.isolation_level,
        max_bytes=max_bytes,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        uses_topic_ids=uses_topic_ids,
        needs_leader=version < PREFERRED_REPLICA_FROM,
        preferred_replica=None if is_follower else preferred,
    )

    def respond(reads: list[PartitionRead]) -> Slices[FetchResponse]:
        if follower is not None:
            follower.count(reads)
        answer = _response(cluster, context, session, reads, is_incremental=is_incremental, is_follower=is_follower)
        if quota is None:
            return answer
        return _judged(quota, sessions, session, reads, answer, is_incremental=is_incremental)

    def finish(reads: list[PartitionRead]) -> FetchResponse:
        return at_once(respond(reads))

    follower: FollowerReader | None = None
    if is_follower:
        follower = FollowerReader(
            replicas,
            limits,
            replica_id,
            request.replica_state.replica_epoch if version >= 15 else -1,
            replicas.now_ms(),
            isr_changes.submit,
            replicas.leader_quota,
            cluster.node_id,
            replicas.now_ms,
            replicas.replicated_out,
        )
    if len(wanted) > LARGE_ENTRIES:
        return _read_in_slices(replicas, wanted, limits, respond, follower)
    reads = list(read_all(replicas, wanted, limits) if follower is None else follower.read_all(wanted))
    if limits.max_wait_ms <= 0 or not reads or is_enough(reads, limits):
        return finish(reads)
    return _wait(replicas, wanted, limits, reads, finish, follower).future


def _keeps_follower(
    context: RequestContext, replicas: ReplicaService, wanted: list[SessionPartition], *, uses_topic_ids: bool
) -> bool:
    """Whether a follower's fetches come here for longer: the data path hands them all over."""
    if context.api_version < DATA_PATH_FROM or not context.peer.is_on_data_path or len(wanted) > DATA_PATH_ELEMENTS_MAX:
        return True
    found = (
        replicas.get(asked.topic_id, asked.index) if uses_topic_ids else replicas.get_by_name(asked.topic, asked.index)
        for asked in wanted
    )
    return any(partition is not None and not partition.replica.serves_followers for partition in found)


def _preferred_replica(
    context: RequestContext,
    request: FetchRequest,
    cluster: ClusterService,
    settings: ApiSettings,
    replicas: ReplicaService,
) -> Callable[[Partition, int], int | None] | None:
    """What sends a consumer to a follower in its rack; None where no follower is looked for (KIP-392)."""
    rack = request.rack_id
    if not rack or not settings.selects_replicas_by_rack or context.api_version < PREFERRED_REPLICA_FROM:
        return None
    brokers = cluster.image.cluster.brokers
    own = brokers.get(cluster.node_id)
    own_rack = None if own is None else own.rack

    def preferred(partition: Partition, fetch_offset: int) -> int | None:
        now_ms = replicas.now_ms()
        views = []
        for broker_id, log_end_offset, caught_up_ms in partition.replica.in_sync_followers_with(fetch_offset):
            broker = brokers.get(broker_id)
            if broker is not None and not broker.fenced and broker_address(broker, context.listener_name) is not None:
                views.append(ReplicaView(broker_id, broker.rack, log_end_offset, now_ms - caught_up_ms))
        return select_by_rack(rack, own_rack, views)

    return preferred


def _wait(
    replicas: ReplicaService,
    wanted: list[SessionPartition],
    limits: FetchLimits,
    reads: list[PartitionRead],
    finish: Callable[[list[PartitionRead]], Any],
    follower: FollowerReader | None,
) -> FetchWait:
    wait = FetchWait(replicas, wanted, limits, reads, finish, follower)
    if follower is not None:
        replicas.follower_polls.hold(follower.replica_id, wait)
    return wait


def _read_in_slices(
    replicas: ReplicaService,
    wanted: list[SessionPartition],
    limits: FetchLimits,
    respond: Callable[[list[PartitionRead]], Slices[FetchResponse]],
    follower: FollowerReader | None,
) -> Slices[FetchResponse]:
    all_reads = read_all(replicas, wanted, limits) if follower is None else follower.read_all(wanted)
    reads = yield from in_slices(all_reads)
    if limits.max_wait_ms > 0 and not is_enough(reads, limits):
        wait = _wait(replicas, wanted, limits, reads, lambda reads: reads, follower)
        yield wait.future
        reads = wait.future.result()
    return (yield from respond(reads))


def handle_on_controller(
    context: RequestContext, request: FetchRequest, *, raft: RaftService
) -> FetchResponse | asyncio.Future[Message]:
    """Answer from the metadata log."""
    if context.api_version < ERROR_CODE_FROM:
        return FetchResponse()  # as Kafka: no topic, and no place for the error
    return raft.handle_request(request, version=context.api_version, listener_name=context.listener_name)


def _open_session(
    replicas: ReplicaService,
    sessions: FetchSessionCache,
    request: FetchRequest,
    asked: list[SessionPartition],
    *,
    uses_topic_ids: bool,
    is_follower: bool,
    offers_session: bool,
) -> tuple[FetchSession | None, list[SessionPartition], bool] | int:
    """The session (if any), the partitions to read, and whether only changes are to be answered; or an error code."""
    epoch = request.session_epoch
    if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id:
            sessions.remove(request.session_id)
        if epoch == FINAL_EPOCH or not offers_session:
            return None, asked, False
        session = sessions.create(
            asked, is_privileged=is_follower, uses_topic_ids=uses_topic_ids, now_ms=replicas.now_ms()
        )
        return session, asked, False
    found = sessions.find(request.session_id, epoch, uses_topic_ids=uses_topic_ids, now_ms=replicas.now_ms())
    if isinstance(found, int):
        return found
    forgotten = [
        (topic.topic or topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
    ]
    if asked and not sessions.may_grow(found, asked):
        sessions.remove(found.session_id)
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND  # the client asks for all partitions again, without a session
    found.update(asked, forgotten)
    if not found.partitions:
        sessions.remove(found.session_id)
        return None, [], False
    return found, list(found), True


def _response(
    cluster: ClusterService,
    context: RequestContext,
    session: FetchSession | None,
    reads: list[PartitionRead],
    *,
    is_incremental: bool,
    is_follower: bool,
) -> Slices[FetchResponse]:
    responses: list[FetchResponse.FetchableTopicResponse] = []
    topic_of_last: str | Uuid | None = None
    partitions: list[Any] = []
    leaders: set[int] = set()
    for number, read in enumerate(reads, 1):
        if not number % ENTRIES_PER_SLICE:
            yield None
        if session is not None and not _must_answer(session, read) and is_incremental:
            continue
        wanted = read.wanted
        topic = wanted.topic or wanted.topic_id
        if topic != topic_of_last:
            topic_of_last = topic
            partitions = []
            responses.append(
                FetchResponse.FetchableTopicResponse(
                    topic=wanted.topic, topic_id=wanted.topic_id, partitions=partitions
                )
            )
        partitions.append(_partition_data(cluster, context, read, leaders, is_follower=is_follower))
    end_points: list[FetchResponse.NodeEndpoint] = []
    if leaders:
        end_points = [
            FetchResponse.NodeEndpoint(
                node_id=leader_address.broker_id,
                host=leader_address.host,
                port=leader_address.port,
                rack=leader_address.rack,
            )
            for leader_address in leader_addresses(cluster.image, leaders, context.listener_name)
        ]
    return FetchResponse(
        session_id=session.session_id if session is not None else 0, responses=responses, node_endpoints=end_points
    )


def _judged(
    quota: RequestQuota,
    sessions: FetchSessionCache,
    session: FetchSession | None,
    reads: list[PartitionRead],
    answer: Slices[FetchResponse],
    *,
    is_incremental: bool,
) -> Slices[FetchResponse]:
    """The answer to a consumer; without records, and without any change of its session, if the consumer has to wait."""
    size_bytes = _ANSWER_BYTES
    for number, read in enumerate(reads, 1):
        if not number % LOOKUPS_PER_SLICE:
            yield None
        if session is None or not is_incremental or _has_news(read):
            size_bytes += _PARTITION_BYTES + read.size_bytes
    throttle_ms = quota.judge_fetch(size_bytes)
    if not throttle_ms:
        return (yield from answer)
    answer.close()
    if session is None:
        return FetchResponse(throttle_time_ms=throttle_ms)
    if is_incremental:
        return FetchResponse(throttle_time_ms=throttle_ms, session_id=session.session_id)
    sessions.remove(session.session_id)  # the consumer never learns of it
    return FetchResponse(throttle_time_ms=throttle_ms)


def _has_news(read: PartitionRead) -> bool:
    """Whether a partition has something that its session's client was not told."""
    wanted = read.wanted
    # The session's own entry: an initial request answers from entries the session shares.
    return (
        bool(read.size_bytes)
        or bool(read.error_code)
        or read.diverging_epoch is not None
        or read.preferred_replica >= 0
        or read.high_watermark != wanted.told_high_watermark
        or read.log_start_offset != wanted.told_log_start_offset
    )


def _must_answer(session: FetchSession, read: PartitionRead) -> bool:
    """Whether the answer has to name a partition; notes the values in it, so that the next answer need not.

    A follower whose log diverges truncates it and ignores the other values, so that they are not noted.
    """
    wanted = read.wanted
    news = _has_news(read)
    is_taken = not read.error_code and read.diverging_epoch is None
    wanted.told_high_watermark = read.high_watermark if is_taken else -1
    wanted.told_log_start_offset = read.log_start_offset if is_taken else -1
    if read.size_bytes and wanted.key in session.partitions:
        session.move_to_end(wanted.key)
    return news


def _partition_data(
    cluster: ClusterService, context: RequestContext, read: PartitionRead, leaders: set[int], *, is_follower: bool
) -> Any:
    fields: dict[str, Any] = {}
    if read.diverging_epoch is not None:
        epoch, end_offset = read.diverging_epoch
        fields["diverging_epoch"] = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)
    if read.error_code and context.api_version >= NAMES_LEADERS_FROM:
        # Also of a partition that is not on this broker: these versions name topics by id.
        hint = leader_hint(cluster.image, read.wanted.topic_id, read.wanted.index, read.error_code)
        if hint is not None:
            if not is_follower:  # which knows where the brokers are
                leaders.add(hint.leader_id)
            fields["current_leader"] = FetchResponse.LeaderIdAndEpoch(
                leader_id=hint.leader_id, leader_epoch=hint.leader_epoch
            )
    if read.aborted_transactions is not None:
        fields["aborted_transactions"] = [
            FetchResponse.AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
            for producer_id, first_offset in read.aborted_transactions
        ]
    elif read.error_code not in _NOT_IN_METADATA:  # of those Kafka says that there are none
        fields["aborted_transactions"] = None
    if read.preferred_replica >= 0:
        fields["preferred_read_replica"] = read.preferred_replica
    return PartitionData(
        partition_index=read.wanted.index,
        error_code=read.error_code,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        records=read.records if read.records is not None else b"",
        **fields,
    )
