"""Membership by JoinGroup, SyncGroup and Heartbeat: the classic protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from kraftlog.client.config import ClientConfig
from kraftlog.client.driver import ConsumerDriver
from kraftlog.client.group_membership import GroupMembership, MembershipHooks, raise_for
from kraftlog.client.group_offsets import GroupOffsets
from kraftlog.client.state.assignors import (
    ASSIGNORS,
    MemberSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kraftlog.client.state.consumer_core import ConsumerCore
from kraftlog.errors import ErrorCode, KafkaError, RemoteProtocolError
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.describe_groups import DescribeGroupsRequest
from kraftlog.wire.messages.heartbeat import HeartbeatRequest
from kraftlog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kraftlog.wire.messages.leave_group import LeaveGroupRequest
from kraftlog.wire.messages.sync_group import SyncGroupRequest

__all__ = ["ClassicMembership"]

COOPERATIVE = "cooperative-sticky"
# From here on members may be named by their instance ids as well, several in one request.
FIRST_VERSION_WITH_MEMBERS = 3
FIRST_VERSION_WITH_REASON = 8
# These versions differ from those before them in encoding only. librdkafka's mock cluster offers them as its highest,
# but reads and writes arrays as the versions before have them.
_SAME_AS_BEFORE = {JoinGroupRequest.API_KEY: 6, SyncGroupRequest.API_KEY: 4, LeaveGroupRequest.API_KEY: 4}


class ClassicMembership(GroupMembership):
    """JoinGroup, SyncGroup and Heartbeat; the group's leader assigns (KIP-429 where all assignors are cooperative)."""

    def __init__(
        self,
        config: ClientConfig,
        group: GroupOffsets,
        core: ConsumerCore,
        driver: ConsumerDriver,
        hooks: MembershipHooks,
    ) -> None:
        super().__init__(config, group, core, driver, hooks)
        self._assignors: tuple[str, ...] = config["partition.assignment.strategy"]
        self._is_cooperative = set(self._assignors) == {COOPERATIVE}
        self._counts: dict[str, int] = {}
        self._reason: str | None = None

    def rejoin(self, reason: str) -> None:
        """Join again, so that the group's leader assigns anew."""
        self._reason = reason
        self._is_rejoin_wanted.set()

    async def _step(self) -> None:
        await self._know_matches()
        self._is_rejoin_wanted.clear()
        begun_s = asyncio.get_running_loop().time()
        if not self._is_cooperative:
            await self._give_up(self.owned)
        joined = await self._join()
        if joined.leader == joined.member_id:
            members = await self._know_members(joined)
            assignments = {} if joined.skip_assignment else self._assign(joined.protocol_name, members)
        else:
            assignments, self._counts = {}, {}
            self._core.want_group_topics(())
        answer = await self._ask(
            SyncGroupRequest(
                group_id=self._group.group_id,
                generation_id=joined.generation_id,
                member_id=self.member_id,
                group_instance_id=self._instance_id,
                protocol_type="consumer",
                protocol_name=joined.protocol_name,
                assignments=[
                    SyncGroupRequest.SyncGroupRequestAssignment(member_id=name, assignment=data)
                    for name, data in assignments.items()
                ],
            ),
            timeout_s=self._poll_interval_s,
        )
        raise_for(answer.error_code, f"SyncGroup of group {self._group.group_id}")
        self.generation = joined.generation_id
        target = decode_assignment(answer.assignment)
        revoked = [name for name in self.owned if name not in target]
        if self._is_cooperative and revoked:
            await self._give_up(revoked)
            self._is_rejoin_wanted.set()
        self._take(target, begun_s)
        if joined.skip_assignment and not await self._is_all_assigned():
            self.rejoin("the topics have other partitions than when the leader of the group left")
        await self._stay()

    async def _join(self) -> JoinGroupResponse:
        subscription = MemberSubscription(self.topics, self.owned if self._is_cooperative else (), self.generation)
        metadata = encode_subscription(subscription)
        has_reason = (await self._group.version(JoinGroupRequest.API_KEY) or 0) >= FIRST_VERSION_WITH_REASON
        while True:
            answer: JoinGroupResponse = await self._ask(
                JoinGroupRequest(
                    group_id=self._group.group_id,
                    session_timeout_ms=self._config["session.timeout.ms"],
                    rebalance_timeout_ms=self._config["max.poll.interval.ms"],
                    member_id=self.member_id,
                    group_instance_id=self._instance_id,
                    protocol_type="consumer",
                    protocols=[
                        JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)
                        for name in self._assignors
                    ],
                    reason=self._reason if has_reason else None,
                ),
                timeout_s=self._poll_interval_s + 5,
            )
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
                continue
            raise_for(answer.error_code, f"JoinGroup of group {self._group.group_id}")
            self.member_id = answer.member_id
            self._reason = None
            return answer

    async def _ask(
        self, message: JoinGroupRequest | SyncGroupRequest | LeaveGroupRequest, timeout_s: float | None = None
    ) -> Any:
        version = await self._group.version(message.API_KEY)
        version_max = version - 1 if version and version == _SAME_AS_BEFORE[message.API_KEY] else None
        return await self._group.ask(message, version_max, timeout_s)

    async def _know_members(self, joined: JoinGroupResponse) -> dict[str, MemberSubscription]:
        """What the members subscribe to, by their ids; returns when the partitions of their topics are known."""
        members = {
            member.member_id: decode_subscription(member.metadata, member.group_instance_id)
            for member in joined.members
        }
        topics = {topic for member in members.values() for topic in member.topics}
        self._core.want_group_topics(topics)
        metadata = self._core.metadata

        async def are_known() -> bool:
            return topics <= metadata.topics.keys()

        await self._driver.ask_until(are_known, "metadata of the group's topics", self._poll_interval_s)
        self._counts = self._partition_counts(topics)
        return members

    def _assign(self, assignor: str | None, members: dict[str, MemberSubscription]) -> dict[str, bytes]:
        assign = ASSIGNORS.get(assignor or "")
        if assign is None:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"assignor {assignor} is not known")
        return {name: encode_assignment(found) for name, found in assign(members, self._counts).items()}

    async def _is_all_assigned(self) -> bool:
        """Whether the group's assignment has exactly the partitions that the topics have now.

        A static leader that comes back keeps the assignment (KIP-814), which may be older than the topics' last change.
        """
        answer = await self._group.ask(DescribeGroupsRequest(groups=(self._group.group_id,)))
        group = next((group for group in answer.groups if group.group_id == self._group.group_id), None)
        if group is None:
            raise RemoteProtocolError(f"DescribeGroups: no answer for group {self._group.group_id}")
        raise_for(group.error_code, f"DescribeGroups of group {self._group.group_id}")
        assigned = {name for member in group.members for name in decode_assignment(member.member_assignment)}
        counts = self._counts.items()
        return assigned == {TopicPartition(topic, number) for topic, count in counts for number in range(count)}

    def _partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        known = self._core.metadata.topics
        return {topic: len(known[topic].partitions) for topic in topics if topic in known}

    async def _stay(self) -> None:
        """Heartbeats until there is a reason to join again."""
        while not self._is_rejoin_wanted.is_set():
            try:
                async with asyncio.timeout(self._heartbeat_s):
                    await self._is_rejoin_wanted.wait()
            except TimeoutError:
                pass
            if not self._is_polled_in_time:
                await self._wait_for_poll()
                return
            if self._counts and self._partition_counts(self._counts.keys()) != self._counts:
                return  # the leader's topics have other partitions now
            raise_for(await self._heartbeat(), f"heartbeat of group {self._group.group_id}")

    async def _heartbeat(self) -> int:
        """The error code of the answer."""
        answer = await self._group.ask(
            HeartbeatRequest(
                group_id=self._group.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self._instance_id,
            )
        )
        return int(answer.error_code)

    async def _keep_alive(self) -> None:
        code = await self._heartbeat()
        if code != ErrorCode.REBALANCE_IN_PROGRESS:  # for which partitions are given up
            raise_for(code, f"heartbeat of group {self._group.group_id}")

    def _forget_membership(self, error: KafkaError) -> None:
        self.generation = -1
        if error.code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    async def _send_leave(self, leave_group: bool | None) -> None:
        is_leaving = self._instance_id is None if leave_group is None else leave_group
        if not self.member_id or not is_leaving:
            return
        version = await self._group.version(LeaveGroupRequest.API_KEY) or 0
        if version >= FIRST_VERSION_WITH_MEMBERS:
            member = LeaveGroupRequest.MemberIdentity(member_id=self.member_id, group_instance_id=self._instance_id)
            request = LeaveGroupRequest(group_id=self._group.group_id, members=[member])
        else:
            request = LeaveGroupRequest(group_id=self._group.group_id, member_id=self.member_id)
        await self._ask(request)
        self.member_id = ""
