"""What callers are told of proposals whose leadership, place or time was lost, and the room that they give back."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from kraftlog.errors import DeadlineError, NotCommittedError, OutcomeUnknownError
from kraftlog.quorum.proposals import COMMAND_OVERHEAD_BYTES, Applied, Deadlines, Proposal, Watched
from kraftlog.quorum.replica import QuorumReplica
from kraftlog.runtime.raft.log_machine import Proposed
from kraftlog.types import Epoch, NodeId
from quorum_api_fixture import Journal
from waiting import until

COMMAND = b"c" * 100
COMMAND_BYTES = len(COMMAND) + COMMAND_OVERHEAD_BYTES


class LeaderLog:
    """A log that takes every proposal and commits none."""

    is_leader = True
    failure = None
    applied_end_offset = 0

    def __init__(self):
        self.pending = []
        self.end_offset = 0
        self.log = SimpleNamespace(config=SimpleNamespace(max_batch_bytes=1 << 20))
        self.driver = SimpleNamespace(tell=lambda event: event())
        self.raft = SimpleNamespace(
            config=SimpleNamespace(local_key=SimpleNamespace(node_id=NodeId(1))), leader_id=None, leader_endpoints=()
        )

    def propose(self, values, *, size_bytes, payload):
        proposed = Proposed(self.end_offset, self.end_offset + len(values) - 1, 1, 0, size_bytes, payload)
        self.end_offset += len(values)
        self.pending.append(proposed)
        return proposed

    def lose(self, replica, epoch):
        lost, self.pending = self.pending, []
        replica.on_leader_changed(None, Epoch(epoch), lost)


def replica_over(log, *, max_pending_bytes):
    replica = QuorumReplica(Journal(), max_pending_bytes=max_pending_bytes)
    replica.log = log
    return replica


def test_lost_leadership_gives_back_the_room_of_what_was_pending():
    async def run():
        log = LeaderLog()
        replica = replica_over(log, max_pending_bytes=2 * COMMAND_BYTES)
        deadline_s = asyncio.get_running_loop().time() + 60
        for _ in range(3):
            replica.submit([COMMAND], deadline_s)
        await until(lambda: log.end_offset == 2)
        assert log.end_offset == 2, "there is no room for the third"
        log.lose(replica, 2)
        replica.on_leader_changed(NodeId(1), Epoch(3), ())
        replica.submit([COMMAND], deadline_s)
        await until(lambda: log.end_offset == 4)
        replica.deadlines.close()

    asyncio.run(run())


def test_record_of_a_later_epoch_at_its_offset_says_that_a_proposal_was_cut_off():
    async def run():
        loop = asyncio.get_running_loop()
        watched = Watched()
        lost, kept = (Proposal([b"a"], 1, 0.0, loop.create_future()) for _ in range(2))
        watched.watch(kept, 8, 1, 0)
        watched.watch(lost, 9, 1, 0)
        watched.on_applied(Applied(8, 1, 1))
        watched.on_applied(Applied(9, 1, 2))
        assert kept.future.result().base_offset == 8
        with pytest.raises(NotCommittedError, match="cut off"):
            lost.future.result()

    asyncio.run(run())


def test_snapshot_decides_nothing_about_the_proposal_at_its_end_and_hides_the_one_below():
    async def run():
        loop = asyncio.get_running_loop()
        watched = Watched()
        below, at_end = (Proposal([b"a"], 1, 0.0, loop.create_future()) for _ in range(2))
        watched.watch(below, 9, 1, 0)
        watched.watch(at_end, 10, 1, 0)
        watched.on_snapshot(10)
        with pytest.raises(OutcomeUnknownError, match="snapshot"):
            below.future.result()
        assert not at_end.future.done()
        assert list(watched.proposals()) == [at_end]

    asyncio.run(run())


def test_a_deadline_that_is_noted_behind_the_end_has_no_timer():
    """The timer of a forwarded proposal outlasted its quorum, and kept it (INV-33)."""

    async def run():
        loop = asyncio.get_running_loop()
        timers = []
        deadlines = Deadlines(SimpleNamespace(time=loop.time, call_at=lambda *what: timers.append(what)), list)
        deadlines.close()
        deadlines.note(loop.time() + 60)
        assert not timers

    asyncio.run(run())


def test_deadline_tells_what_may_be_committed_from_what_was_never_proposed():
    async def run():
        log = LeaderLog()
        replica = replica_over(log, max_pending_bytes=COMMAND_BYTES)
        deadline_s = asyncio.get_running_loop().time()
        proposed = replica.submit([COMMAND], deadline_s + 0.05)
        queued = replica.submit([COMMAND], deadline_s + 0.05)
        with pytest.raises(DeadlineError, match="proposed, and may be committed yet") as first:
            await proposed.future
        with pytest.raises(DeadlineError, match="not proposed") as second:
            await queued.future
        assert (log.end_offset, first.value.may_be_committed, second.value.may_be_committed) == (1, True, False)
        replica.deadlines.close()

    asyncio.run(run())
