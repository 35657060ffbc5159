"""ConsumerGroupDescribe of a group.

Source: ``ConsumerGroup.asDescribedGroup`` and ``ConsumerGroupMember.asConsumerGroupDescribeMember`` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kraftlog.coordinator.group.consumer_group import ConsumerGroup
from kraftlog.coordinator.group.consumer_member import ConsumerMember
from kraftlog.coordinator.group.topics import Topics
from kraftlog.types import Uuid
from kraftlog.wire.messages.consumer_group_describe import ConsumerGroupDescribeResponse

__all__ = ["describe"]

_Described = ConsumerGroupDescribeResponse
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


def describe(group: ConsumerGroup, topics: Topics, default_assignor: str) -> _Described.DescribedGroup:
    """One group with all its members."""
    return _Described.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.preferred_assignor() or default_assignor,
        members=[_member(group, member, topics) for member in group.members.values()],
    )


def _member(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> _Described.Member:
    current: dict[Uuid, list[int]] = {}
    for part in (member.assigned, member.pending_revocation):
        for topic_id, partitions in part.items():
            current.setdefault(topic_id, []).extend(partitions)
    return _Described.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topics,
        subscribed_topic_regex=member.regex,
        assignment=_assignment(current, topics),
        target_assignment=_assignment(group.targets.get(member.member_id, {}), topics),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _assignment(partitions: Mapping[Uuid, Iterable[int]], topics: Topics) -> _Described.Assignment:
    listed = []
    for topic_id, part in partitions.items():
        topic = topics.by_id(topic_id)
        if topic is not None:
            listed.append(_Described.TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(part)))
    return _Described.Assignment(topic_partitions=listed)
