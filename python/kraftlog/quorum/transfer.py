"""Leadership that goes to a chosen voter (Raft thesis 3.10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kraftlog.errors import DeadlineError, ErrorCode, KafkaError, LeadershipTransferError
from kraftlog.types import NodeId, Offset

if TYPE_CHECKING:
    from kraftlog.quorum.replica import QuorumReplica

__all__ = ["transfer_leadership"]

# Between two looks at how far the chosen voter is: it fetches again as soon as it has what it asked for.
_LOOK_S: Final = 0.005


async def transfer_leadership(
    replica: QuorumReplica, node_id: int, deadline_s: float, check_running: Callable[[], None]
) -> None:
    """Let a voter catch up, then resign in its favour, and wait for the next leader.

    Once the voter is heard from and has what the log had before, proposals wait until this replica has resigned, so
    that the voter's log becomes as long as this one's; for an election time-out at most, after which they go on and the
    voter gets another chance.

    Args:
        replica: Which leads.
        node_id: Of the voter.
        deadline_s: Loop time at which this is given up.
        check_running: Raises when the replica does nothing any more.

    Raises:
        NotLeaderError: The replica does not lead.
        KafkaError: VOTER_NOT_FOUND.
        DeadlineError: The voter is silent, or has not caught up in time, and this replica leads on; or nobody is
            known to lead.
        LeadershipTransferError: Another voter was elected.
    """
    log = replica.log
    raft, own_id = log.raft, log.raft.config.local_key.node_id
    if not log.is_leader:
        raise replica.not_leader()
    if node_id == own_id:
        return
    successor, epoch = NodeId(node_id), raft.epoch
    loop = asyncio.get_running_loop()

    async def catches_up(limit_s: float, end_offset: Offset | None = None) -> bool:
        """Whether the voter has what is below an offset, or all, before the time is over; True if no longer leading."""
        while raft.epoch == epoch and raft.is_leader:
            if _has(replica, successor, raft.log_end_offset if end_offset is None else end_offset):
                return True
            if loop.time() >= limit_s:
                return False
            await asyncio.sleep(_LOOK_S)
            check_running()
        return True

    has_all = False
    while not has_all:
        if not await catches_up(deadline_s, raft.log_end_offset):
            raise DeadlineError(f"{node_id} has not caught up in time; this replica leads on")
        with replica.holding_back():
            limit_s = min(deadline_s, loop.time() + raft.config.election_timeout_ms / 1000)
            has_all = await catches_up(limit_s)
            if has_all:
                log.driver.tell(lambda: raft.resign(log.driver.now_ms(), epoch=epoch, successor=successor))
    while raft.epoch == epoch or raft.leader_id is None:
        try:
            async with asyncio.timeout_at(deadline_s):
                await replica.leader_changed.wait()
        except TimeoutError:
            raise DeadlineError("no leader was elected in time") from None
        check_running()
    if raft.leader_id != successor:
        raise LeadershipTransferError(f"{raft.leader_id} was elected instead of {node_id}", raft.leader_id)


def _has(replica: QuorumReplica, voter_id: NodeId, end_offset: Offset) -> bool:
    """Whether a voter that runs has what is below an offset."""
    raft = replica.log.raft
    if voter_id not in raft.voters.ids:
        raise KafkaError(ErrorCode.VOTER_NOT_FOUND, f"{voter_id} is not a voter")
    now_ms = replica.log.driver.now_ms()
    found = next((found for found in raft.progress(now_ms) if found.key.node_id == voter_id), None)
    if found is None or found.log_end_offset is None or found.last_fetch_ms is None:
        return False
    # One that runs asks again once its long poll is over.
    is_heard = now_ms - found.last_fetch_ms <= 2 * raft.config.fetch_max_wait_ms
    return is_heard and found.log_end_offset >= end_offset
