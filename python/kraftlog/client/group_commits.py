"""Offsets that a consumer commits, by the clock and on demand, and the committed offsets that it begins at."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from kraftlog.client.config import ClientConfig
from kraftlog.client.driver import ConsumerDriver
from kraftlog.client.group_membership import GroupMembership
from kraftlog.client.group_offsets import GroupOffsets
from kraftlog.client.state.consumer_core import ConsumerCore
from kraftlog.client.state.handed_rows import HandedRows
from kraftlog.client.state.position import OffsetAndEpoch, OffsetAndMetadata
from kraftlog.errors import CommitFailedError, ErrorCode, KafkaError, ProtocolError
from kraftlog.types import TopicPartition

__all__ = ["GroupCommits"]

# The group no longer knows the member, or not with this generation.
_FENCED = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID))
_logger = logging.getLogger("kraftlog.client")


class GroupCommits:
    """See the module.

    Args:
        config: Settings.
        core: Whose positions are committed.
        driver: Whose loop it runs on.
        group: The coordinator.
        handed: The rows that the application may still be working on.
        member: Gives the membership that commits are made with, None for a consumer that is no member; raises where the
            membership has not begun.
    """

    def __init__(
        self,
        config: ClientConfig,
        core: ConsumerCore,
        driver: ConsumerDriver,
        group: GroupOffsets,
        handed: HandedRows,
        member: Callable[[], Awaitable[GroupMembership | None]],
    ) -> None:
        self._core = core
        self._driver = driver
        self._group = group
        self._handed = handed
        self._member = member
        self._instance_id: str | None = config["group.instance.id"]
        self._timeout_s: float = config["request.timeout.ms"] / 1000
        self._interval_ms: int = config["auto.commit.interval.ms"]
        self.is_automatic: bool = config["enable.auto.commit"]
        self._due_ms: int = driver.now_ms() + self._interval_ms
        self._is_fetching = False

    async def commit(self, offsets: dict[TopicPartition, OffsetAndMetadata], timeout_s: float | None) -> None:
        """Commit offsets, again after errors that may pass.

        Raises:
            CommitFailedError: The group no longer has this member.
            KafkaError: The coordinator refuses, or the member has not joined the group yet: REBALANCE_IN_PROGRESS.
        """
        loss_count = self._handed.loss_count
        member: GroupMembership | None = None

        async def commit_once() -> None:
            nonlocal member
            if self._handed.loss_count != loss_count:
                # The next attempt would commit in the name of the member that this one has become since.
                text = f"group {self._group.group_id} took partitions away before their offsets were committed"
                raise CommitFailedError(ErrorCode.UNKNOWN_MEMBER_ID, text, tuple(offsets))
            member = await self._member()
            if member is None:
                await self._group.commit(offsets)
                return
            await self._group.commit(
                offsets, generation=member.generation, member_id=member.member_id, instance_id=self._instance_id
            )

        limit_s = self._timeout_s if timeout_s is None else timeout_s
        # A topic that was deleted does not come back: its partitions could not be given up for so long.
        final = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        # The next heartbeat brings the member's new epoch (KIP-848).
        passing = {ErrorCode.STALE_MEMBER_EPOCH}
        try:
            await self._group.retried(commit_once, limit_s, final, passing)
        except KafkaError as error:
            if error.code in _FENCED and not isinstance(error, CommitFailedError):
                if member is not None:
                    member.doubt()
                raise CommitFailedError(error.code, error.message, tuple(offsets)) from error
            raise

    async def commit_positions(self, timeout_s: float | None, *, with_handed: bool) -> None:
        """Commit the positions, with or without the rows of the last poll.

        Raises:
            KafkaError: As :meth:`commit`.
        """
        positions = self._handed.positions(with_handed=with_handed)
        if positions:
            await self.commit(positions, timeout_s)

    async def commit_quietly(self, what: str, timeout_s: float | None = None, *, with_handed: bool = False) -> None:
        """Commit the positions; a failure is logged."""
        try:
            await self.commit_positions(timeout_s, with_handed=with_handed)
        except (KafkaError, ProtocolError) as error:
            _logger.warning("%s of group %s: %s", what, self._group.group_id, error)

    async def committed(
        self, names: Sequence[TopicPartition], timeout_s: float | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What is committed; partitions without an offset are left out.

        Raises:
            KafkaError: The coordinator refuses.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        return await self._group.retried(lambda: self._group.committed(names), limit_s)

    def next_due_ms(self, now_ms: int) -> int | None:
        """Begin what is due; the milliseconds until more is, None where nothing is due by the clock."""
        if self._core.uninitialized and not self._is_fetching:
            self._is_fetching = True
            self._driver.spawn(self._begin_at_committed())
        if not self.is_automatic:
            return None
        if now_ms >= self._due_ms:
            self._due_ms = now_ms + self._interval_ms
            self._driver.spawn(self.commit_quietly("automatic commit"))
        return self._due_ms - now_ms

    async def _begin_at_committed(self) -> None:
        names = self._core.uninitialized
        try:
            found = await self.committed(names, None)
        finally:
            self._is_fetching = False
        for name in names:
            offset = found.get(name)
            self._core.set_committed(
                name, None if offset is None else OffsetAndEpoch(offset.offset, offset.leader_epoch)
            )
        self._driver.wake()
