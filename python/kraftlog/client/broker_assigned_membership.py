"""Membership by ConsumerGroupHeartbeat: the coordinator assigns (KIP-848)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Sequence
from typing import Any

from kraftlog.client.config import ClientConfig
from kraftlog.client.driver import ConsumerDriver
from kraftlog.client.group_membership import GroupMembership, MembershipHooks, raise_for
from kraftlog.client.group_offsets import GroupOffsets
from kraftlog.client.state.consumer_core import ConsumerCore
from kraftlog.client.state.topic_selection import TopicSelection
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import TopicPartition, Uuid
from kraftlog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kraftlog.wire.messages.metadata import MetadataRequest

__all__ = ["CONSUMER_GROUP_HEARTBEAT_KEY", "BrokerAssignedMembership"]

LEAVING_EPOCH = -1
STATIC_LEAVING_EPOCH = -2
JOINING_EPOCH = 0
CONSUMER_GROUP_HEARTBEAT_KEY = 68
FIRST_VERSION_WITH_REGEX = 1


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
        self._regex: str | None = None
        # What the coordinator assigned last, until this member reads all of it.
        self._assigned: dict[bytes, Sequence[int]] | None = None
        # Of the topics in it and of those whose partitions this member reads.
        self._names: dict[bytes, str] = {}
        self._sent: tuple[object, ...] = ()
        self._is_answered = False

    @property
    def has_joined(self) -> bool:
        """Whether the coordinator knows this member, as far as it has said."""
        return self.generation > JOINING_EPOCH

    async def _step(self) -> None:
        if self.generation > JOINING_EPOCH and not self._is_polled_in_time:
            await self._wait_for_poll()
            self.generation = JOINING_EPOCH
        await self._know_matches()
        self._is_rejoin_wanted.clear()
        await self._heartbeat()
        if not await self._follow_target():
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._is_rejoin_wanted.wait()
            except TimeoutError:
                pass

    async def _keep_alive(self) -> None:
        await self._heartbeat()

    def _follow_selection(self, selection: TopicSelection) -> None:
        if not isinstance(selection.pattern, str):
            self._regex = None
            super()._follow_selection(selection)
            return
        self._regex = selection.pattern
        self.topics = ()
        self._core.subscribe({name.topic for name in self.owned}, may_create=False)

    async def _heartbeat(self) -> None:
        is_joining = self.generation == JOINING_EPOCH
        selection = self.selection
        said = (self.topics, self._regex, self.owned)
        # An answer that is lost may have brought an assignment, which the coordinator repeats only to a full request.
        is_full = is_joining or not self._is_answered
        is_new = is_full or said != self._sent
        partitions = [
            ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in self._owned_by_id().items()
        ]
        has_regex = (await self._group.version(CONSUMER_GROUP_HEARTBEAT_KEY) or 0) >= FIRST_VERSION_WITH_REGEX
        if self._regex is not None and not has_regex:
            text = (
                f"subscribe(pattern={self._regex!r}): the broker has version 0 of ConsumerGroupHeartbeat, without "
                "patterns; give a compiled pattern, which the client matches"
            )
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
        self._is_answered = False
        answer = await self._group.ask(
            ConsumerGroupHeartbeatRequest(
                group_id=self._group.group_id,
                member_id=self.member_id,
                member_epoch=self.generation,
                instance_id=self._instance_id,
                rack_id=self._config["client.rack"] or None if is_full else None,
                rebalance_timeout_ms=self._config["max.poll.interval.ms"] if is_full else -1,
                subscribed_topic_names=self.topics if is_new else None,
                # None: as before; empty: no pattern. librdkafka's mock cluster demands it beside the names.
                subscribed_topic_regex=(self._regex or "") if is_new and has_regex else None,
                server_assignor=self._config["group.remote.assignor"] if is_full else None,
                topic_partitions=partitions if is_new else None,
            )
        )
        if answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION:
            raise_for(answer.error_code, f"subscribe(pattern={selection.pattern!r}): {answer.error_message}")
        reason = "" if answer.error_message is None else f": {answer.error_message}"
        raise_for(answer.error_code, f"heartbeat of group {self._group.group_id}, for {selection}{reason}")
        self._sent, self._is_answered = said, True
        self._settle_doubt()
        self.member_id = answer.member_id or self.member_id
        self.generation = answer.member_epoch
        self._interval_s = max(answer.heartbeat_interval_ms, 1) / 1000
        if answer.assignment is not None:
            self._assigned = {bytes(group.topic_id): group.partitions for group in answer.assignment.topic_partitions}

    async def _follow_target(self) -> bool:
        """Give up and take what the coordinator assigned; True when it is to hear of it at once.

        Topics whose names are not known yet are left out, and looked for until the next heartbeat.
        """
        if self._assigned is None:
            return False
        assigned = self._assigned
        begun_s = asyncio.get_running_loop().time()
        await self._learn_names(assigned)
        target = [
            TopicPartition(self._names[topic_id], number)
            for topic_id, numbers in assigned.items()
            if topic_id in self._names
            for number in numbers
        ]
        is_whole = assigned.keys() <= self._names.keys()
        if self._regex is not None:
            self._core.subscribe({name.topic for name in target}, may_create=False)
        revoked = [name for name in self.owned if name not in target]
        before = set(self.owned)
        await self._give_up(revoked)
        self._take(target, begun_s if is_whole else None)
        # Not before: the coordinator does not repeat it. A heartbeat may have brought another one meanwhile.
        if is_whole and self._assigned is assigned:
            self._assigned = None
        self._names = {topic_id: name for topic_id, name in self._names.items() if topic_id in assigned}
        return before != set(target)

    async def _learn_names(self, assigned: dict[bytes, Sequence[int]]) -> None:
        """Look for the names of assigned topics: in metadata, else, as for the topics of a pattern, by their ids."""
        metadata = self._core.metadata

        async def are_known() -> bool:
            for name, topic in metadata.topics.items():
                topic_id = bytes(topic.topic_id)
                if topic_id in assigned and not topic.error_code:
                    self._names[topic_id] = name
            missing = assigned.keys() - self._names.keys()
            if missing and self._regex is not None:
                self._names.update(await self._names_of(missing))
            elif missing:
                metadata.is_update_wanted = True
            return assigned.keys() <= self._names.keys()

        try:
            await self._driver.ask_until(are_known, "metadata of the assigned topics", self._interval_s)
        except TimeoutError:
            return

    async def _names_of(self, topic_ids: Collection[bytes]) -> dict[bytes, str]:
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(topic_id=Uuid(topic_id), name=None) for topic_id in topic_ids],
            allow_auto_topic_creation=False,
        )
        answer: Any = (await self._driver.connections.ask(await self._driver.any_node(), request))[0]
        return {bytes(topic.topic_id): topic.name for topic in answer.topics if topic.name and not topic.error_code}

    def _owned_by_id(self) -> dict[Uuid, list[int]]:
        topic_ids = {name: Uuid(topic_id) for topic_id, name in self._names.items()}
        found: dict[Uuid, list[int]] = {}
        for name in self.owned:
            found.setdefault(topic_ids[name.topic], []).append(name.partition)
        return found

    def _forget_membership(self, error: KafkaError) -> None:
        self.generation = JOINING_EPOCH
        self._sent = ()
        self._assigned = None
        self._names = {}

    async def _send_leave(self, leave_group: bool | None) -> None:
        is_static = self._instance_id is not None
        if self.generation <= JOINING_EPOCH or (leave_group is False and not is_static):
            return
        epoch = STATIC_LEAVING_EPOCH if is_static and not leave_group else LEAVING_EPOCH
        await self._group.ask(
            ConsumerGroupHeartbeatRequest(
                group_id=self._group.group_id,
                member_id=self.member_id,
                member_epoch=epoch,
                instance_id=self._instance_id,
            )
        )
