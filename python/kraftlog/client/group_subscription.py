"""What a consumer subscribed to, and its membership of the group: begun, followed, and ended."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from kraftlog.client.config import ClientConfig
from kraftlog.client.driver import ConsumerDriver
from kraftlog.client.group_commits import GroupCommits
from kraftlog.client.group_membership import GroupMembership, MembershipHooks, client_pattern
from kraftlog.client.group_offsets import GroupOffsets
from kraftlog.client.group_protocol import membership_kinds
from kraftlog.client.state.consumer_core import ConsumerCore
from kraftlog.client.state.handed_rows import HandedRows
from kraftlog.client.state.topic_selection import PatternInput, TopicSelection
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import TopicPartition

__all__ = ["GroupSubscription", "RebalanceListener", "topic_selection"]

RebalanceListener: TypeAlias = Callable[[Collection[TopicPartition]], None]


def topic_selection(topics: Collection[str] | None, pattern: PatternInput | None) -> TopicSelection:
    """What the arguments of ``subscribe`` select.

    Raises:
        TypeError: ``topics`` is one name instead of several, or neither or both of the arguments are given.
        ValueError: There is no topic, or a pattern among the topics.
    """
    if (topics is None) is (pattern is None):
        message = "subscribe to topics or to a pattern: subscribe(['orders']) or subscribe(pattern='orders-.*')"
        raise TypeError(message)
    if topics is None:
        return TopicSelection(pattern=pattern)
    if isinstance(topics, str):
        message = f"topics are a list of names: subscribe([{topics!r}])"
        raise TypeError(message)
    names = tuple(sorted(set(topics)))
    if not names:
        message = "there is no topic to subscribe to; unsubscribe() ends a subscription"
        raise ValueError(message)
    for name in names:
        if name.startswith("^"):
            message = f"{name!r} is no topic name; a regular expression is given as subscribe(pattern={name!r})"
            raise ValueError(message)
    return TopicSelection(names)


class GroupSubscription:
    """See the module.

    Args:
        config: Settings.
        core: Whose assignment follows the group's.
        driver: Whose loop it runs on.
        group: The coordinator.
        handed: The rows that the application may still be working on.
        on_rebalanced: See :class:`MembershipHooks`.

    Attributes:
        selection: What is subscribed to; None without a subscription.
        member: The membership; None before the group's protocol is known, and without a subscription.
        commits: Commits, made with the membership if there is one.
        last_poll_s: Loop time of the last poll of the application.
    """

    def __init__(
        self,
        config: ClientConfig,
        core: ConsumerCore,
        driver: ConsumerDriver,
        group: GroupOffsets,
        handed: HandedRows,
        on_rebalanced: Callable[[int], None],
    ) -> None:
        self._on_rebalanced = on_rebalanced
        self._config = config
        self._core = core
        self._driver = driver
        self.group = group
        self._handed = handed
        self.selection: TopicSelection | None = None
        self.member: GroupMembership | None = None
        self.commits = GroupCommits(config, core, driver, group, handed, self._joined_member)
        self.last_poll_s = 0.0
        self._listeners: Mapping[str, RebalanceListener | None] = {}
        self._task: asyncio.Task[None] | None = None
        self._metadata_seen = 0
        self._is_closing = False
        self._failure: Exception | None = None
        self._again_s = -math.inf
        self._rows_may_be_done = asyncio.Event()
        handed.on_done = self._rows_may_be_done.set

    @property
    def instance_id(self) -> str | None:
        """``group.instance.id``."""
        name: str | None = self._config["group.instance.id"]
        return name

    @property
    def keeps_rows(self) -> bool:
        """Whether no further rows are handed out: partitions are about to be given up, or may be lost."""
        return self.member is not None and (self.member.is_giving_up or self.member.is_in_doubt)

    @property
    def topics(self) -> tuple[str, ...]:
        """Names of the topics that are subscribed to, or that the client matched with a pattern."""
        if self.selection is None:
            return ()
        return self.selection.topics if self.member is None else self.member.topics

    def subscribe(self, selection: TopicSelection, listeners: Mapping[str, RebalanceListener | None]) -> None:
        """Be a member that reads these topics.

        Args:
            selection: What replaces an earlier subscription.
            listeners: What to call, by ``assign``, ``revoke`` and ``lost``.

        Raises:
            KafkaError: INVALID_REQUEST: partitions were assigned by the application. INVALID_REGULAR_EXPRESSION: the
                pattern does not compile, where it is certain that the client matches it.
        """
        if self.selection is None and self._core.subscription.assigned:
            text = "partitions were chosen with assign(): call unsubscribe() before subscribe()"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        if isinstance(selection.pattern, str) and self._config["group.protocol"] == "classic":
            client_pattern(selection.pattern)
        if self.member is not None:
            self.member.subscribe(selection)
        else:
            self.last_poll_s = asyncio.get_running_loop().time()
        self.selection = selection
        self._listeners = dict(listeners)
        self._forget_failure()
        self._ensure_running()

    def _ensure_running(self) -> None:
        """Start the membership, also where an error ended it that the application has heard of.

        It joins ``retry.backoff.ms`` after that error. An application that polls again at once after each error, as
        while another process holds its instance id, would ask the coordinator thousands of times per second.
        """
        if self.selection is None or self._failure in self._core.errors:
            return
        if self._task is None or self._task.done():
            self._failure = None
            self._task = self._driver.spawn(self._run())

    def _forget_failure(self) -> None:
        """What went wrong with the subscription before this one is not raised."""
        failure, self._failure = self._failure, None
        self._again_s = -math.inf
        if failure is not None and failure in self._core.errors:
            self._core.errors.remove(failure)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            if (wait_s := self._again_s - loop.time()) > 0:
                await asyncio.sleep(wait_s)
            await self._be_member()
        except Exception as error:  # noqa: BLE001  raised to the application, listeners' errors too
            self._failure = error
            self._again_s = loop.time() + self._config["retry.backoff.ms"] / 1000
            self._core.context.raise_later(error)
            self._driver.is_ready.set()

    async def _be_member(self) -> None:
        if self.member is not None:
            await self.member.run()
        hooks = MembershipHooks(
            self._on_revoke,
            lambda partitions: self._tell("lost", partitions),
            self._handed.note_lost,
            lambda partitions: self._tell("assign", partitions),
            self._on_rebalanced,
            lambda: self.last_poll_s,
            self._rows_done,
        )
        kinds = await membership_kinds(self._config, self.group, self._driver)
        for kind in kinds:
            member = kind(self._config, self.group, self._core, self._driver, hooks)
            member.subscribe(self.selection or TopicSelection())
            self.member = member
            try:
                await member.run()
            except KafkaError as error:
                if error.code != ErrorCode.UNSUPPORTED_VERSION or kind is kinds[-1]:
                    raise

    def _tell(self, event: str, partitions: Collection[TopicPartition]) -> None:
        listener = self._listeners.get(event)
        if listener is not None:
            listener(partitions)

    async def _on_revoke(self, partitions: Collection[TopicPartition]) -> None:
        if self.commits.is_automatic and not self._is_closing:
            await self.commits.commit_quietly("commit before partitions are given up", with_handed=False)
        self._tell("revoke", partitions)

    async def _rows_done(self, limit_s: float) -> bool:
        try:
            async with asyncio.timeout(limit_s):
                while self._handed.are_in_use:
                    self._rows_may_be_done.clear()
                    await self._rows_may_be_done.wait()
        except TimeoutError:
            return False
        return True

    async def _joined_member(self) -> GroupMembership | None:
        """The membership, once the coordinator knows it; None for a consumer that is no member.

        Raises:
            KafkaError: REBALANCE_IN_PROGRESS: it is about to join; or why it cannot.
        """
        if self.member is None and self.selection is None:
            return None
        if self.member is not None and self.member.has_joined:
            return self.member
        await self.group.coordinator()  # who may not even find it hears that, as from Kafka's consumer
        if self._failure is not None:
            raise self._failure
        text = f"the consumer is about to join group {self.group.group_id}"
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, text)

    def note_poll(self) -> None:
        """The application polls."""
        self.last_poll_s = asyncio.get_running_loop().time()
        self._ensure_running()

    def before_turn(self, now_ms: int) -> int | None:
        """Begin what is due; the milliseconds until more is, None where nothing is due by the clock."""
        seen = self._core.metadata.update_count
        if self.member is not None and seen != self._metadata_seen:
            self.member.note_metadata()
        self._metadata_seen = seen
        return self.commits.next_due_ms(now_ms)

    def rejoin(self, reason: str) -> None:
        """Have the group assign anew.

        Raises:
            KafkaError: INVALID_REQUEST: nothing is subscribed to.
        """
        if self.selection is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "enforce_rebalance(): the consumer is not subscribed")
        if self.member is not None:
            self.member.rejoin(reason)

    async def close(self, leave_group: bool | None) -> None:
        """End the membership after the last commit: partitions are given up without another one."""
        self._is_closing = True
        await self.leave(leave_group)

    async def leave(self, leave_group: bool | None = None) -> None:
        """Give up all partitions, as before a rebalance, and leave the group; the subscription and positions are gone.

        Args:
            leave_group: See :meth:`GroupMembership.leave`.
        """
        task, self._task = self._task, None
        member, self.selection = self.member, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._forget_failure()
        failure: Exception | None = None
        try:
            if member is not None:
                try:
                    await member.release()
                except Exception as error:  # noqa: BLE001  of a listener, which does not keep the member in the group
                    failure = error
                await member.leave(leave_group)
        finally:
            self.member = None
            self._core.assign(())
            self._core.subscribe(())
            self._core.want_group_topics(())
            self._handed.take_back()
            self._handed.forget_lost()
        if failure is not None:
            raise failure
