"""Membership of a group: the classic protocol and the one of KIP-848, each as a task of the driver."""

from __future__ import annotations

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any

from kraftlog.client.config import ClientConfig
from kraftlog.client.driver import ConsumerDriver
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
from kraftlog.errors import ErrorCode, KafkaError, KraftlogError
from kraftlog.types import TopicPartition, Uuid
from kraftlog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kraftlog.wire.messages.heartbeat import HeartbeatRequest
from kraftlog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kraftlog.wire.messages.leave_group import LeaveGroupRequest
from kraftlog.wire.messages.sync_group import SyncGroupRequest

__all__ = ["BrokerAssignedMembership", "ClassicMembership", "GroupMembership", "MembershipHooks"]

LEAVE_TIMEOUT_S = 5.0
LEAVING_EPOCH = -1
STATIC_LEAVING_EPOCH = -2
JOINING_EPOCH = 0
COOPERATIVE = "cooperative-sticky"
CONSUMER_GROUP_HEARTBEAT_KEY = 68
FIRST_VERSION_WITH_REGEX = 1
# These versions differ from those before them in encoding only. librdkafka's mock cluster offers them as its highest,
# but reads and writes arrays as the versions before have them.
_SAME_AS_BEFORE = {JoinGroupRequest.API_KEY: 6, SyncGroupRequest.API_KEY: 4, LeaveGroupRequest.API_KEY: 4}

_LOST = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_MEMBER_EPOCH))


@dataclass(frozen=True, slots=True)
class MembershipHooks:
    """What a membership calls.

    Attributes:
        on_revoke: Awaited before partitions are given up: commits and calls the application.
        on_lost: Called when partitions belong to others already.
        on_assign: Called with the partitions that are new.
        last_poll_s: Loop time of the last poll of the application.
    """

    on_revoke: Callable[[Collection[TopicPartition]], Awaitable[None]]
    on_lost: Callable[[Collection[TopicPartition]], None]
    on_assign: Callable[[Collection[TopicPartition]], None]
    last_poll_s: Callable[[], float]


class GroupMembership(ABC):
    """A member of a group, from joining to leaving.

    Args:
        config: Settings.
        group: The coordinator.
        core: Whose assignment follows the group's.
        driver: Whose loop it runs on.
        hooks: What it calls.

    Attributes:
        topics: What is subscribed to.
        member_id: Empty before the coordinator or the client has given one.
        generation: Generation or member epoch, -1 while the member has none.
    """

    def __init__(
        self,
        config: ClientConfig,
        group: GroupOffsets,
        core: ConsumerCore,
        driver: ConsumerDriver,
        hooks: MembershipHooks,
    ) -> None:
        self._config = config
        self._group = group
        self._core = core
        self._driver = driver
        self._hooks = hooks
        self._instance_id: str | None = config["group.instance.id"]
        self._backoff_s = config["retry.backoff.ms"] / 1000
        self._poll_interval_s = config["max.poll.interval.ms"] / 1000
        self.topics: tuple[str, ...] = ()
        self.member_id = ""
        self.generation = -1
        self._is_rejoin_wanted = asyncio.Event()

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        """The partitions that this member reads."""
        return self._core.subscription.assigned

    def subscribe(self, topics: Collection[str]) -> None:
        """Ask for other topics."""
        self.topics = tuple(sorted(set(topics)))
        self._core.want_topics(set(topics))
        self._is_rejoin_wanted.set()

    async def run(self) -> None:
        """Be a member until cancelled."""
        while True:
            try:
                await self._step()
            except KafkaError as error:
                await self._recover(error)

    async def _recover(self, error: KafkaError) -> None:
        if error.code in _LOST:
            self._lose()
            self._forget_membership(error)
            return
        if error.code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._is_rejoin_wanted.set()
            return
        may_pass = error.retriable or error.code in {ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT}
        if not may_pass:
            raise error
        self._group.forget_coordinator()
        await asyncio.sleep(self._backoff_s)

    def _lose(self) -> None:
        lost = self.owned
        self._core.assign(())
        if lost:
            self._hooks.on_lost(lost)

    async def _give_up(self, partitions: Collection[TopicPartition]) -> None:
        if not partitions:
            return
        await self._hooks.on_revoke(tuple(partitions))
        kept = set(self.owned) - set(partitions)
        self._core.assign([name for name in self.owned if name in kept])

    def _take(self, partitions: Collection[TopicPartition]) -> None:
        new = [name for name in partitions if name not in self.owned]
        self._core.assign(list(partitions))
        if new:
            self._hooks.on_assign(new)
        self._driver.wake()

    @property
    def _is_polled_in_time(self) -> bool:
        silent_s: float = asyncio.get_running_loop().time() - self._hooks.last_poll_s()
        return bool(silent_s <= self._poll_interval_s)

    async def _wait_for_poll(self) -> None:
        """The application stopped polling: leave, and come back when it polls again (``max.poll.interval.ms``)."""
        self._core.warnings.append(f"{self._group.group_id}: leaving, as there was no poll for max.poll.interval.ms")
        await self.leave()
        self._lose()
        while not self._is_polled_in_time:  # noqa: ASYNC110 - polling does not know the membership
            await asyncio.sleep(self._backoff_s)
        self._is_rejoin_wanted.set()

    async def leave(self) -> None:
        """Tell the coordinator that this member is gone."""
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self._send_leave()
        except (KraftlogError, TimeoutError) as error:
            self._core.warnings.append(f"leaving {self._group.group_id}: {error}")
        self.generation = -1

    @abstractmethod
    async def _step(self) -> None: ...

    @abstractmethod
    async def _send_leave(self) -> None: ...

    @abstractmethod
    def _forget_membership(self, error: KafkaError) -> None: ...


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

    async def _step(self) -> None:
        self._is_rejoin_wanted.clear()
        if not self._is_cooperative:
            await self._give_up(self.owned)
        joined = await self._join()
        assignments = await self._assign(joined) if joined.leader == joined.member_id else {}
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
        _raise(answer.error_code, f"SyncGroup of {self._group.group_id}")
        self.generation = joined.generation_id
        target = decode_assignment(answer.assignment)
        revoked = [name for name in self.owned if name not in target]
        if self._is_cooperative and revoked:
            await self._give_up(revoked)
            self._is_rejoin_wanted.set()
        self._take(target)
        await self._stay()

    async def _join(self) -> JoinGroupResponse:
        subscription = MemberSubscription(self.topics, self.owned if self._is_cooperative else (), self.generation)
        metadata = encode_subscription(subscription)
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
                ),
                timeout_s=self._poll_interval_s + 5,
            )
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
                continue
            _raise(answer.error_code, f"JoinGroup of {self._group.group_id}")
            self.member_id = answer.member_id
            return answer

    async def _ask(
        self, message: JoinGroupRequest | SyncGroupRequest | LeaveGroupRequest, timeout_s: float | None = None
    ) -> Any:
        version = await self._group.version(message.API_KEY)
        version_max = version - 1 if version and version == _SAME_AS_BEFORE[message.API_KEY] else None
        return await self._group.ask(message, version_max, timeout_s)

    async def _assign(self, joined: JoinGroupResponse) -> dict[str, bytes]:
        members = {
            member.member_id: decode_subscription(member.metadata, member.group_instance_id)
            for member in joined.members
        }
        topics = {topic for member in members.values() for topic in member.topics}
        self._core.want_topics(topics)
        metadata = self._core.metadata

        async def are_known() -> bool:
            return topics <= metadata.topics.keys()

        await self._driver.ask_until(are_known, "metadata of the group's topics", self._poll_interval_s)
        self._counts = self._partition_counts(topics)
        assign = ASSIGNORS.get(joined.protocol_name or "")
        if assign is None:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"assignor {joined.protocol_name} is not known")
        return {name: encode_assignment(found) for name, found in assign(members, self._counts).items()}

    def _partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        known = self._core.metadata.topics
        return {topic: len(known[topic].partitions) for topic in topics if topic in known}

    async def _stay(self) -> None:
        """Heartbeats until there is a reason to join again."""
        interval_s = self._config["heartbeat.interval.ms"] / 1000
        while not self._is_rejoin_wanted.is_set():
            try:
                async with asyncio.timeout(interval_s):
                    await self._is_rejoin_wanted.wait()
            except TimeoutError:
                pass
            if not self._is_polled_in_time:
                await self._wait_for_poll()
                return
            if self._counts and self._partition_counts(self._counts.keys()) != self._counts:
                return  # the leader's topics have other partitions now
            answer = await self._group.ask(
                HeartbeatRequest(
                    group_id=self._group.group_id,
                    generation_id=self.generation,
                    member_id=self.member_id,
                    group_instance_id=self._instance_id,
                )
            )
            _raise(answer.error_code, f"heartbeat of {self._group.group_id}")

    def _forget_membership(self, error: KafkaError) -> None:
        self.generation = -1
        if error.code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    async def _send_leave(self) -> None:
        if self.member_id and self._instance_id is None:
            member = LeaveGroupRequest.MemberIdentity(member_id=self.member_id)
            version = await self._group.version(LeaveGroupRequest.API_KEY) or 0
            request = (
                LeaveGroupRequest(group_id=self._group.group_id, members=[member])
                if version >= 3
                else LeaveGroupRequest(group_id=self._group.group_id, member_id=self.member_id)
            )
            await self._ask(request)
            self.member_id = ""


class BrokerAssignedMembership(GroupMembership):
    """ConsumerGroupHeartbeat: the coordinator assigns, and each member moves at its own pace (KIP-848)."""

    def __init__(
        self,
        config: ClientConfig,
        group: GroupOffsets,
        core: ConsumerCore,
        driver: ConsumerDriver,
        hooks: MembershipHooks,
    ) -> None:
        super().__init__(config, group, core, driver, hooks)
        self.member_id = str(uuid.uuid4())
        self.generation = JOINING_EPOCH
        self._interval_s = 0.0
        self._target: list[TopicPartition] | None = None
        self._sent: tuple[object, ...] = ()

    async def _step(self) -> None:
        if self.generation > JOINING_EPOCH and not self._is_polled_in_time:
            await self._wait_for_poll()
            self.generation = JOINING_EPOCH
        self._is_rejoin_wanted.clear()
        await self._heartbeat()
        if not await self._follow_target():
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._is_rejoin_wanted.wait()
            except TimeoutError:
                pass

    async def _heartbeat(self) -> None:
        is_joining = self.generation == JOINING_EPOCH
        said = (self.topics, self.owned)
        is_new = is_joining or said != self._sent
        partitions = [
            ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in self._owned_by_id().items()
        ]
        has_regex = (await self._group.version(CONSUMER_GROUP_HEARTBEAT_KEY) or 0) >= FIRST_VERSION_WITH_REGEX
        answer = await self._group.ask(
            ConsumerGroupHeartbeatRequest(
                group_id=self._group.group_id,
                member_id=self.member_id,
                member_epoch=self.generation,
                instance_id=self._instance_id,
                rack_id=self._config["client.rack"] or None if is_joining else None,
                rebalance_timeout_ms=self._config["max.poll.interval.ms"] if is_joining else -1,
                subscribed_topic_names=self.topics if is_new else None,
                # None: as before; empty: no pattern. librdkafka's mock cluster demands it beside the names.
                subscribed_topic_regex="" if is_new and has_regex else None,
                server_assignor=self._config["group.remote.assignor"] if is_joining else None,
                topic_partitions=partitions if is_new else None,
            )
        )
        _raise(answer.error_code, answer.error_message or f"heartbeat of {self._group.group_id}")
        self._sent = said
        self.member_id = answer.member_id or self.member_id
        self.generation = answer.member_epoch
        self._interval_s = max(answer.heartbeat_interval_ms, 1) / 1000
        if answer.assignment is not None:
            await self._resolve(answer.assignment)

    async def _resolve(self, assignment: object) -> None:
        """Names of the assigned topics; metadata may still lack some."""
        metadata = self._core.metadata
        groups = assignment.topic_partitions  # type: ignore[attr-defined]

        def names() -> dict[bytes, str]:
            return {bytes(topic.topic_id): name for name, topic in metadata.topics.items()}

        async def are_known() -> bool:
            return {bytes(group.topic_id) for group in groups} <= names().keys()

        if not await are_known():
            metadata.is_update_wanted = True
            await self._driver.ask_until(are_known, "metadata of the assigned topics", self._poll_interval_s)
        known = names()
        self._target = [
            TopicPartition(known[bytes(group.topic_id)], number) for group in groups for number in group.partitions
        ]

    async def _follow_target(self) -> bool:
        """Give up and take what the target says; True when the coordinator is to hear of it at once."""
        if self._target is None:
            return False
        target, self._target = self._target, None
        revoked = [name for name in self.owned if name not in target]
        before = set(self.owned)
        await self._give_up(revoked)
        self._take(target)
        return before != set(target)

    def _owned_by_id(self) -> dict[Uuid, list[int]]:
        found: dict[Uuid, list[int]] = {}
        for name in self.owned:
            found.setdefault(self._core.metadata.topic_id(name.topic), []).append(name.partition)
        return found

    def _forget_membership(self, error: KafkaError) -> None:
        self.generation = JOINING_EPOCH
        self._sent = ()

    async def _send_leave(self) -> None:
        if self.generation > JOINING_EPOCH:
            await self._group.ask(
                ConsumerGroupHeartbeatRequest(
                    group_id=self._group.group_id,
                    member_id=self.member_id,
                    member_epoch=LEAVING_EPOCH if self._instance_id is None else STATIC_LEAVING_EPOCH,
                    instance_id=self._instance_id,
                )
            )


def _raise(code: int, what: str) -> None:
    if code:
        raise KafkaError(code, what)
