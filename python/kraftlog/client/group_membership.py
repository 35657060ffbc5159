"""Membership of a group, as a task of the driver: what both protocols have in common."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from kraftlog.client.config import ClientConfig
from kraftlog.client.driver import ConsumerDriver
from kraftlog.client.group_offsets import GroupOffsets
from kraftlog.client.state.consumer_core import ConsumerCore
from kraftlog.client.state.topic_selection import TopicPattern, TopicSelection
from kraftlog.errors import ErrorCode, KafkaError, KraftlogError
from kraftlog.types import TopicPartition

__all__ = ["GroupMembership", "MembershipHooks", "client_pattern", "raise_for"]

LEAVE_TIMEOUT_S = 5.0
_LOST = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_MEMBER_EPOCH))


@dataclass(frozen=True, slots=True)
class MembershipHooks:
    """What a membership calls.

    Attributes:
        on_revoke: Awaited before partitions are given up: commits and calls the application.
        on_lost: Called when partitions belong to others already.
        note_lost: Called before it, and when partitions are given up while the application works on their rows; with
            the reason.
        on_assign: Called with the partitions that are new.
        on_rebalanced: Called with the milliseconds that it took to get an assignment, or to follow it.
        last_poll_s: Loop time of the last poll of the application.
        rows_done: Awaited with seconds: whether the application is done with the rows of its last poll within them.
    """

    on_revoke: Callable[[Collection[TopicPartition]], Awaitable[None]]
    on_lost: Callable[[Collection[TopicPartition]], None]
    note_lost: Callable[[Collection[TopicPartition], KafkaError], None]
    on_assign: Callable[[Collection[TopicPartition]], None]
    on_rebalanced: Callable[[int], None]
    last_poll_s: Callable[[], float]
    rows_done: Callable[[float], Awaitable[bool]]


class GroupMembership(ABC):
    """A member of a group, from joining to leaving.

    Args:
        config: Settings.
        group: The coordinator.
        core: Whose assignment follows the group's.
        driver: Whose loop it runs on.
        hooks: What it calls.

    Attributes:
        selection: What the application subscribed to.
        topics: Names that are subscribed to; with a pattern that the client matches, those that match.
        member_id: Empty before the coordinator or the client has given one.
        generation: Generation or member epoch, -1 while the member has none.
        is_giving_up: Whether partitions are about to be given up: no further rows are handed to the application.
        is_in_doubt: Whether the coordinator refused this member, and the member has not asked it about that yet.
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
        self.selection = TopicSelection()
        self.topics: tuple[str, ...] = ()
        self.member_id = ""
        self.generation = -1
        self.is_giving_up = False
        self.is_in_doubt = False
        self._heartbeat_s: float = config["heartbeat.interval.ms"] / 1000
        self._is_rejoin_wanted = asyncio.Event()

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        """The partitions that this member reads."""
        return self._core.subscription.assigned

    @property
    def has_joined(self) -> bool:
        """Whether the coordinator knows this member, as far as it has said."""
        return self.generation >= 0

    def subscribe(self, selection: TopicSelection) -> None:
        """Ask for other topics.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION: a pattern that the client has to match does not compile.
        """
        self.selection = selection
        self._follow_selection(selection)
        self._is_rejoin_wanted.set()

    def _follow_selection(self, selection: TopicSelection) -> None:
        """Match a pattern with the names that metadata has."""
        if selection.pattern is None:
            self.topics = selection.topics
            self._core.subscribe(selection.topics)
            return
        pattern = client_pattern(selection.pattern)
        self._core.subscribe((), TopicPattern(pattern, self._config["exclude.internal.topics"]))
        self.topics = self._core.matched_topics or ()

    def note_metadata(self) -> None:
        """There may be newer metadata: match the pattern again, and ask for other topics if others match."""
        found = self._core.matched_topics
        if found is not None and found != self.topics:
            self.topics = found
            self._is_rejoin_wanted.set()

    async def _know_matches(self) -> None:
        """Return when the names of all topics were seen, where the client matches a pattern."""

        async def are_known() -> bool:
            return self._core.wanted.pattern is None or self._core.matched_topics is not None

        if not await are_known():
            await self._driver.ask_until(are_known, "metadata of all topics", self._poll_interval_s)
        self.note_metadata()

    def doubt(self) -> None:
        """The coordinator refused a commit of this member: ask it at once, and hand out no rows before."""
        self.is_in_doubt = True
        self._is_rejoin_wanted.set()

    def _settle_doubt(self) -> None:
        if self.is_in_doubt:
            self.is_in_doubt = False
            self._driver.is_ready.set()

    def rejoin(self, reason: str) -> None:
        """Have the group assign anew, where its members can ask for that.

        Args:
            reason: What the coordinator logs.
        """
        self._core.warnings.append(
            f"group {self._group.group_id}: the broker assigns partitions; {reason} changes nothing"
        )

    async def run(self) -> None:
        """Be a member until cancelled."""
        while True:
            selection = self.selection
            try:
                await self._step()
            except KafkaError as error:
                await self._recover(error, selection)

    async def _recover(self, error: KafkaError, selection: TopicSelection) -> None:
        if error.code in _LOST:
            self._lose(error)
            self._forget_membership(error)
            return
        if error.code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._is_rejoin_wanted.set()
            return
        may_pass = error.retriable or error.code in {ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT}
        if not may_pass and self.selection is selection:
            raise error  # else it may be about what was subscribed to before
        self._group.forget_coordinator()
        await asyncio.sleep(self._backoff_s)

    def _lose(self, error: KafkaError) -> None:
        lost = self.owned
        self._core.assign(())
        self._settle_doubt()
        if lost:
            self._note_lost(lost, error)
            self._hooks.on_lost(lost)

    def _note_lost(self, partitions: Collection[TopicPartition], error: KafkaError) -> None:
        names = ", ".join(map(str, partitions))
        self._core.warnings.append(f"group {self._group.group_id}: lost {names}: {error}")
        self._hooks.note_lost(partitions, error)

    async def _give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Give partitions up when the application is done with the rows of its last poll: it may commit them till then.

        The member stays alive meanwhile. Kafka's consumer gives up within ``poll`` alone, to the same end.
        """
        if not partitions:
            return
        self.is_giving_up = True
        try:
            while not (is_done := await self._hooks.rows_done(self._heartbeat_s)) and self._is_polled_in_time:
                await self._keep_alive()
            if not is_done:
                self._note_lost(partitions, self._not_polled())
            await self._give_up_now(partitions)
        finally:
            self.is_giving_up = False
            self._driver.is_ready.set()

    async def _give_up_now(self, partitions: Collection[TopicPartition]) -> None:
        if not partitions:
            return
        await self._hooks.on_revoke(tuple(partitions))
        kept = set(self.owned) - set(partitions)
        self._core.assign([name for name in self.owned if name in kept])

    def _take(self, partitions: Collection[TopicPartition], begun_s: float | None) -> None:
        """Read these partitions.

        Args:
            partitions: Which.
            begun_s: Loop time when the rebalance began that ends with this; None if it goes on.
        """
        new = [name for name in partitions if name not in self.owned]
        self._core.assign(list(partitions))
        self._settle_doubt()
        if new:
            self._hooks.on_assign(new)
        self._driver.wake()
        if begun_s is not None:
            self._hooks.on_rebalanced(round((asyncio.get_running_loop().time() - begun_s) * 1000))

    @property
    def _is_polled_in_time(self) -> bool:
        silent_s: float = asyncio.get_running_loop().time() - self._hooks.last_poll_s()
        return bool(silent_s <= self._poll_interval_s)

    async def _wait_for_poll(self) -> None:
        """The application stopped polling: leave, and come back when it polls again (``max.poll.interval.ms``)."""
        self._core.warnings.append(
            f"group {self._group.group_id}: leaving, as there was no poll for max.poll.interval.ms"
        )
        await self.leave()
        self._lose(self._not_polled())
        while not self._is_polled_in_time:  # noqa: ASYNC110 - polling does not know the membership
            await asyncio.sleep(self._backoff_s)
        self._is_rejoin_wanted.set()

    def _not_polled(self) -> KafkaError:
        interval_ms = self._config["max.poll.interval.ms"]
        text = f"group {self._group.group_id}: there was no poll for max.poll.interval.ms={interval_ms}"
        return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, text)

    async def release(self) -> None:
        """Give up all partitions before leaving; those of a member that the group removed are lost."""
        if self.generation < 0:
            self._lose(KafkaError(ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            await self._give_up_now(self.owned)

    async def leave(self, leave_group: bool | None = None) -> None:
        """Tell the coordinator that this member is gone.

        Args:
            leave_group: True: a static member gives up its instance id too. False: a dynamic member says nothing, and
                its partitions move after ``session.timeout.ms``. None: dynamic members leave, static ones come back
                (KIP-1092).
        """
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self._send_leave(leave_group)
        except (KraftlogError, TimeoutError) as error:
            reason = str(error) or f"no answer within {LEAVE_TIMEOUT_S} s"
            self._core.warnings.append(f"leaving group {self._group.group_id}: {reason}")
        self.generation = -1

    @abstractmethod
    async def _step(self) -> None: ...

    @abstractmethod
    async def _keep_alive(self) -> None:
        """Tell the coordinator that this member is alive."""

    @abstractmethod
    async def _send_leave(self, leave_group: bool | None) -> None: ...

    @abstractmethod
    def _forget_membership(self, error: KafkaError) -> None: ...


def client_pattern(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    """A pattern that the client matches.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION: it does not compile; names it.
    """
    try:
        return re.compile(pattern)
    except re.error as error:
        text = f"subscribe(pattern={pattern!r}): {error}"
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, text) from error


def raise_for(code: int, what: str) -> None:
    """Raise the error of an answer.

    Raises:
        KafkaError: ``code`` is not zero; ``what`` names what failed.
    """
    if code:
        raise KafkaError(code, what)
