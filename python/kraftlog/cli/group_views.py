"""Groups of a cluster as ``kraftlog groups`` shows them: members, state and offsets, whatever the protocol."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kraftlog.cli.broker_client import LATEST, BrokerClient, check
from kraftlog.client.state.assignors import decode_assignment
from kraftlog.errors import ErrorCode, KraftlogError
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kraftlog.wire.messages.describe_groups import DescribeGroupsRequest
from kraftlog.wire.messages.list_groups import ListGroupsRequest
from kraftlog.wire.messages.offset_fetch import OffsetFetchRequest

__all__ = [
    "GroupView",
    "ListedGroup",
    "MemberView",
    "OffsetRow",
    "committed_offsets",
    "describe_group",
    "list_groups",
    "offset_rows",
]

OFFSETS_BY_NAME_VERSION = 9  # of OffsetFetch and OffsetCommit; 10 has topic ids
_NOT_THIS_KIND = frozenset((ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION))


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A line of the list."""

    group_id: str
    type: str
    state: str
    protocol: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """A member; ``epoch`` is None in a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    epoch: int | None
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRow:
    """A partition of a group; -1 and None stand for what is unknown."""

    partition: TopicPartition
    current: int | None
    end: int | None
    member: MemberView | None

    @property
    def lag(self) -> int | None:
        """Records between the committed offset and the end."""
        return None if self.current is None or self.end is None else max(0, self.end - self.current)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A described group."""

    group_id: str
    type: str
    state: str
    assignor: str
    coordinator: int
    epoch: int | None = None
    members: tuple[MemberView, ...] = field(default=())


async def list_groups(
    client: BrokerClient, *, states: Collection[str] = (), types: Collection[str] = ()
) -> list[ListedGroup]:
    """Groups of all brokers, by id.

    Raises:
        KafkaError: A broker refuses.
    """
    found: dict[str, ListedGroup] = {}
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    for node_id, answer in (await client.ask_all(request)).items():
        check(answer.error_code, f"groups of broker {node_id}")
        for group in answer.groups:
            found[group.group_id] = ListedGroup(
                group.group_id, group.group_type or "classic", group.group_state, group.protocol_type
            )
    return [found[group_id] for group_id in sorted(found)]


async def describe_group(client: BrokerClient, group_id: str) -> GroupView:
    """State and members of a group of consumers, of the new protocol or the classic one.

    Raises:
        KafkaError: There is no such group, or it is refused.
    """
    try:
        answer = await client.ask_coordinator(
            group_id, ConsumerGroupDescribeRequest(group_ids=[group_id]), lambda found: found.groups[0].error_code
        )
        group, code = answer.groups[0], answer.groups[0].error_code
    except KraftlogError as error:
        code, group = getattr(error, "code", None), None
        if code not in _NOT_THIS_KIND:
            raise
    if code in _NOT_THIS_KIND or group is None:
        return await _describe_classic(client, group_id)
    check(code, f"group {group_id}", group.error_message)
    return GroupView(
        group_id=group_id,
        type="consumer",
        state=group.group_state,
        assignor=group.assignor_name,
        coordinator=await client.coordinator(group_id),
        epoch=group.group_epoch,
        members=tuple(
            MemberView(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                host=member.client_host,
                epoch=member.member_epoch,
                assignment=tuple(
                    TopicPartition(topic.topic_name, index)
                    for topic in member.assignment.topic_partitions
                    for index in topic.partitions
                ),
            )
            for member in group.members
        ),
    )


async def _describe_classic(client: BrokerClient, group_id: str) -> GroupView:
    answer = await client.ask_coordinator(
        group_id, DescribeGroupsRequest(groups=[group_id]), lambda found: found.groups[0].error_code
    )
    group = answer.groups[0]
    check(group.error_code, f"group {group_id}", group.error_message)
    if group.group_state == "Dead":
        check(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id}", f"Group {group_id} not found.")
    is_consumer = group.protocol_type in {"consumer", ""}
    return GroupView(
        group_id=group_id,
        type="classic",
        state=group.group_state,
        assignor=group.protocol_data,
        coordinator=await client.coordinator(group_id),
        members=tuple(
            MemberView(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                host=member.client_host,
                epoch=None,
                assignment=decode_assignment(bytes(member.member_assignment)) if is_consumer else (),
            )
            for member in group.members
        ),
    )


async def committed_offsets(client: BrokerClient, group_id: str) -> dict[TopicPartition, int]:
    """The committed offsets of a group; partitions without one are left out.

    Raises:
        KafkaError: The coordinator refuses.
    """
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group_id, topics=None)
    answer = await client.ask_coordinator(
        group_id,
        OffsetFetchRequest(groups=[asked]),
        lambda found: found.groups[0].error_code,
        max_version=OFFSETS_BY_NAME_VERSION,
    )
    group = answer.groups[0]
    check(group.error_code, f"offsets of group {group_id}")
    return {
        TopicPartition(topic.name, partition.partition_index): partition.committed_offset
        for topic in group.topics
        for partition in topic.partitions
        if not partition.error_code and partition.committed_offset >= 0
    }


async def offset_rows(client: BrokerClient, group: GroupView) -> list[OffsetRow]:
    """What the group has committed and what its members own, with the ends of the partitions."""
    committed = await committed_offsets(client, group.group_id)
    owners = _owners(group.members)
    partitions = sorted({*committed, *owners}, key=lambda found: (found.topic, found.partition))
    topics = await client.topics({partition.topic for partition in partitions})
    ends = await client.offsets(topics, partitions, LATEST)
    return [
        OffsetRow(
            partition=partition,
            current=committed.get(partition),
            end=ends.get(partition),
            member=owners.get(partition),
        )
        for partition in partitions
    ]


def _owners(members: Iterable[MemberView]) -> Mapping[TopicPartition, MemberView]:
    return {partition: member for member in members for partition in member.assignment}
