"""FindCoordinator, API key 10, versions 0-6.

    1   key type: group or transaction; error text
    4   several keys at once (KIP-699)
    5   TRANSACTION_ABORTABLE may be answered (KIP-890)
    6   share groups (KIP-932)

Where Kafka creates the missing topic of a coordinator and answers COORDINATOR_NOT_AVAILABLE, this waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from kraftlog.api.cluster_view import reachable_brokers, view_partition
from kraftlog.api.slices import Slices, in_slices, in_turns, sliced
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.partitioner import coordinator_partition
from kraftlog.types import Uuid
from kraftlog.vocabulary import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService, GroupService, TaskService, TransactionService
    from kraftlog.runtime.share.share_service import ShareService

__all__ = ["handle"]

GROUP, TRANSACTION, SHARE = 0, 1, 2
BATCHED_VERSION = 4
SHARE_VERSION = 6
_TOPICS = {
    GROUP: CONSUMER_OFFSETS_TOPIC,
    TRANSACTION: TRANSACTION_STATE_TOPIC,
    SHARE: SHARE_GROUP_STATE_TOPIC,
}
_SHARE_KEY_PARTS = 3

_Coordinator = FindCoordinatorResponse.Coordinator


class _Coordinating(Protocol):
    """One kind of coordinator."""

    @property
    def is_ready(self) -> bool:
        """Whether its topic exists, and this node is not just creating it."""
        ...

    async def ensure_topic(self, keys: Sequence[str] = ()) -> None:
        """Create its topic unless it exists; the shards of these keys are loaded afterwards if they are here."""
        ...

    def partition_count(self) -> int:
        """Partitions over which keys are spread."""
        ...


@sliced
def handle(
    context: RequestContext,
    request: FindCoordinatorRequest,
    *,
    cluster: ClusterService,
    tasks: TaskService,
    groups: GroupService,
    transactions: TransactionService,
    shares: ShareService,
) -> Slices[FindCoordinatorResponse | asyncio.Future[FindCoordinatorResponse]]:
    """Name the broker that coordinates each key."""
    keys = request.coordinator_keys if context.api_version >= BATCHED_VERSION else [request.key]
    is_share = request.key_type == SHARE
    if request.key_type not in _TOPICS or (is_share and not _are_share_keys(context, shares, keys)):
        return _response(context, (yield from in_slices(_refused(key, request.key_type) for key in keys)))
    coordinator: _Coordinating = shares.coordinator if is_share else transactions
    if request.key_type == GROUP:
        coordinator = groups
    topic = _TOPICS[request.key_type]
    if coordinator.is_ready:
        found = yield from in_slices(_find(cluster, coordinator, context, topic, key) for key in keys)
        return _response(context, found)
    return tasks.spawn(_create_and_find(cluster, coordinator, context, topic, keys))


def _are_share_keys(context: RequestContext, shares: ShareService, keys: Sequence[str]) -> bool:
    """Whether the keys are ``group:topicId:partition``; a group id may contain colons itself."""
    if context.api_version < SHARE_VERSION or not shares.is_enabled:
        return False
    for key in keys:
        parts = key.rsplit(":", 2)
        if len(parts) < _SHARE_KEY_PARTS or not parts[0]:
            return False
        try:
            Uuid.parse(parts[1])
            int(parts[2])
        except ValueError:
            return False
    return True


async def _create_and_find(
    cluster: ClusterService,
    coordinator: _Coordinating,
    context: RequestContext,
    topic: str,
    keys: Sequence[str],
) -> FindCoordinatorResponse:
    try:
        await coordinator.ensure_topic(keys)
    except KafkaError as error:
        code, text = error.code, error.message
        return _response(context, await in_turns(_failed(key, code, text) for key in keys))
    return _response(context, await in_turns(_find(cluster, coordinator, context, topic, key) for key in keys))


def _response(context: RequestContext, found: Sequence[_Coordinator]) -> FindCoordinatorResponse:
    if context.api_version >= BATCHED_VERSION:
        return FindCoordinatorResponse(coordinators=found)
    one = found[0]
    # Kafka's odd text for a coordinator that was found, in these versions only.
    message = one.error_message if one.error_code else "NONE"
    return FindCoordinatorResponse(
        error_code=one.error_code, error_message=message, node_id=one.node_id, host=one.host, port=one.port
    )


def _failed(key: str, error_code: int, message: str | None) -> _Coordinator:
    return _Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error_code, error_message=message)


def _refused(key: str, key_type: int) -> _Coordinator:
    if key_type == SHARE:
        return _failed(key, ErrorCode.INVALID_REQUEST, "The share coordinator key is invalid.")
    return _failed(key, ErrorCode.INVALID_REQUEST, f"Unknown coordinator type {key_type}.")


def _find(
    cluster: ClusterService, coordinator: _Coordinating, context: RequestContext, topic_name: str, key: str
) -> _Coordinator:
    image = cluster.image
    topic = image.topics.by_name(topic_name)
    count = coordinator.partition_count()
    if topic is not None and count:
        partition = topic.partitions[coordinator_partition(key, count)]
        leader_id = view_partition(image, partition, context.listener_name).leader_id
        for broker in reachable_brokers(image, context.listener_name):
            if broker.broker_id == leader_id:
                return _Coordinator(key=key, node_id=leader_id, host=broker.host, port=broker.port, error_message="")
    return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
