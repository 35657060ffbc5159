"""ConsumerGroupHeartbeat as the coordinator reads it, and its answers.

Source: ``GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid`` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kraftlog.coordinator.group.config import OWNED_TOPICS_MAX, SUBSCRIBED_NAMES_MAX
from kraftlog.coordinator.group.consumer_member import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH, ConsumerMember
from kraftlog.coordinator.group.reconciliation import OwnedPartitions
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

__all__ = ["Heartbeat", "check_heartbeat", "heartbeat_response", "size_problem"]

_CLIENT_ID_VERSION = 1  # clients choose their member ids (KIP-1082)
_Response = ConsumerGroupHeartbeatResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A heartbeat whose fields have been checked; None and a timeout of -1 leave what the member gave before."""

    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: OwnedPartitions | None = None

    @classmethod
    def from_request(cls, request: ConsumerGroupHeartbeatRequest) -> Heartbeat:
        """Read a request."""
        names = request.subscribed_topic_names
        owned = request.topic_partitions
        return cls(
            group_id=request.group_id,
            member_id=request.member_id,
            epoch=request.member_epoch,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topics=None if names is None else tuple(sorted(set(names))),
            regex=request.subscribed_topic_regex,
            assignor=request.server_assignor,
            owned=None if owned is None else {part.topic_id: frozenset(part.partitions) for part in owned},
        )

    @property
    def is_leaving(self) -> bool:
        """Whether the member leaves, for good or for a while."""
        return self.epoch in {LEAVE_EPOCH, STATIC_LEAVE_EPOCH}

    @property
    def is_full(self) -> bool:
        """Whether the member gave everything it has, as it does when it does not know what the coordinator knows."""
        has_subscription = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != -1 and has_subscription and self.owned is not None


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Sequence[str]) -> None:
    """Refuse a request whose fields contradict each other.

    Raises:
        KafkaError: INVALID_REQUEST or UNSUPPORTED_ASSIGNOR.
    """
    epoch = request.member_epoch
    problem = None
    if (api_version >= _CLIENT_ID_VERSION or epoch > 0 or epoch == LEAVE_EPOCH) and not request.member_id.strip():
        problem = "MemberId can't be empty."
    elif not request.group_id.strip():
        problem = "GroupId can't be empty."
    elif _is_blank(request.instance_id):
        problem = "InstanceId can't be empty."
    elif _is_blank(request.rack_id):
        problem = "RackId can't be empty."
    elif epoch == JOIN_EPOCH:
        problem = _joining_problem(request)
    elif epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        problem = "InstanceId can't be null."
    elif epoch < STATIC_LEAVE_EPOCH:
        problem = f"MemberEpoch is invalid: {epoch}."
    problem = problem or size_problem(request.subscribed_topic_names, request.topic_partitions)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def size_problem(names: Sequence[str] | None, owned: Sequence[object] | None = None) -> str | None:
    """Why a heartbeat is too large for one event of a shard; None if it is not."""
    if names is not None and len(names) > SUBSCRIBED_NAMES_MAX:
        return f"SubscribedTopicNames has {len(names)} names, more than {SUBSCRIBED_NAMES_MAX}."
    if owned is not None and len(owned) > OWNED_TOPICS_MAX:
        return f"TopicPartitions has {len(owned)} topics, more than {OWNED_TOPICS_MAX}."
    return None


def _is_blank(text: str | None) -> bool:
    return text is not None and not text.strip()


def _joining_problem(request: ConsumerGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None


def heartbeat_response(
    member: ConsumerMember, heartbeat_interval_ms: int, *, has_assignment: bool
) -> ConsumerGroupHeartbeatResponse:
    """The answer for a member that stays."""
    assignment = None
    if has_assignment:
        assignment = _Response.Assignment(
            topic_partitions=[
                _Response.TopicPartitions(topic_id=topic_id, partitions=list(partitions))
                for topic_id, partitions in member.assigned.items()
            ]
        )
    return _Response(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=heartbeat_interval_ms,
        assignment=assignment,
    )
