"""Calls of ``kraftlog.Quorum`` beside proposals and barriers, over whole replicas in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from kraftlog.errors import (
    DeadlineError,
    ErrorCode,
    KafkaError,
    LeadershipTransferError,
    NodeClosedError,
    NotLeaderError,
    OffsetOutOfRangeError,
    TooManyCallsError,
)
from kraftlog.testing.world.quorum_cluster import QuorumCluster, commands

MINUTE_MS = 60_000.0


@pytest.fixture
def cluster():
    with QuorumCluster(21) as made:
        made.run_for(3_000)
        yield made


def leader_of(cluster):
    return cluster.nodes[cluster.controller]


def other_of(cluster):
    return next(machine for name, machine in cluster.nodes.items() if name != cluster.controller)


def ask(machine, coroutine):
    """Run a coroutine on the loop of a replica; returns what it does."""
    task = machine.loop.create_task(coroutine)
    machine.world.run_until(task.done, within_ms=10 * MINUTE_MS)
    return task.result()


def finish(cluster):
    """End all faults and clients: the history is in order."""
    cluster.become_quiet()
    cluster.recover()
    task = cluster.begin(commands(cluster))
    cluster.run_until(task.done, within_ms=10 * MINUTE_MS)
    task.result()


def test_leadership_goes_to_each_voter_under_load(cluster):
    for machine in [*cluster.nodes.values()] * 2:
        ask(leader_of(cluster), leader_of(cluster).quorum.transfer_leadership(machine.node_id))
        cluster.run_until(lambda: cluster.controller == machine.name, within_ms=100)  # noqa: B023  called in the loop
    assert cluster.checkers.quorum.election_count <= 1 + 2 * len(cluster.nodes), "each time the chosen one, at once"
    count = cluster.history.committed_count
    cluster.run_for(1_000)
    assert cluster.history.committed_count > count
    finish(cluster)


def test_a_voter_that_does_not_catch_up_leaves_the_leader_where_it_is(cluster):
    leader, other = leader_of(cluster), other_of(cluster)
    cluster.isolate(other.name)
    cluster.run_for(1_100)
    with pytest.raises(DeadlineError, match="leads on"):
        ask(leader, leader.quorum.transfer_leadership(other.node_id, timeout_s=1))
    assert leader.quorum.is_leader
    count = cluster.history.committed_count
    cluster.run_for(1_000)
    assert cluster.history.committed_count > count, "what waited meanwhile is proposed"
    finish(cluster)


def test_others_are_answered_while_the_chosen_voter_is_waited_for(cluster):
    leader, other = leader_of(cluster), other_of(cluster)
    cluster.isolate(other.name)
    cluster.run_for(1_100)
    task = leader.loop.create_task(leader.quorum.transfer_leadership(other.node_id, timeout_s=30))
    for _ in range(4):
        count = cluster.history.committed_count
        cluster.run_for(400)
        assert cluster.history.committed_count > count
    assert not task.done()
    cluster.mend_links(other.name)
    cluster.run_until(task.done, within_ms=10_000)
    task.result()
    cluster.run_until(lambda: cluster.controller == other.name, within_ms=100)
    finish(cluster)


def test_another_voter_leads_when_the_chosen_one_ends(cluster):
    leader, other = leader_of(cluster), other_of(cluster)
    task = leader.loop.create_task(leader.quorum.transfer_leadership(other.node_id))
    cluster.run_until(lambda: not leader.quorum.is_leader, within_ms=1_000)
    cluster.kill(other.name)
    cluster.run_until(task.done, within_ms=MINUTE_MS)
    with pytest.raises(LeadershipTransferError) as raised:
        task.result()
    assert raised.value.leader_id not in {None, other.node_id}
    cluster.start(other.name)
    finish(cluster)


def test_what_cannot_lead_is_refused(cluster):
    leader, other = leader_of(cluster), other_of(cluster)
    with pytest.raises(NotLeaderError):
        ask(other, other.quorum.transfer_leadership(leader.node_id))
    with pytest.raises(KafkaError) as raised:
        ask(leader, leader.quorum.transfer_leadership(99))
    assert raised.value.code == ErrorCode.VOTER_NOT_FOUND
    ask(leader, leader.quorum.transfer_leadership(leader.node_id))
    assert leader.quorum.is_leader


def test_a_read_may_be_as_old_as_it_says(cluster):
    """While no leader can be reached, reads go on for that long; none misses what was committed before."""
    cluster.become_quiet()
    cluster.run_for(1_000)
    leader, other = leader_of(cluster), other_of(cluster)
    end_offset = ask(other, other.quorum.read_barrier())
    asked_ns = cluster.world.now_ns
    cluster.isolate(other.name)
    cluster.history.proposed(b"later", cluster.world.now_ns)
    offset = ask(leader, leader.quorum.propose([b"later"]))
    while cluster.world.now_ns - asked_ns < 4_000_000_000:
        assert ask(other, other.quorum.read_barrier(max_staleness_s=5)) == end_offset <= offset
        cluster.run_for(500)
    with pytest.raises(DeadlineError):
        ask(other, other.quorum.read_barrier(max_staleness_s=2, timeout_s=1))
    cluster.run_for(5_000)
    with pytest.raises(DeadlineError):
        ask(other, other.quorum.read_barrier(max_staleness_s=5, timeout_s=1))
    cluster.recover()
    assert ask(other, other.quorum.read_barrier(max_staleness_s=5)) > offset
    with pytest.raises(ValueError, match="at least 0"):
        ask(other, other.quorum.read_barrier(max_staleness_s=-1))


async def read_again_and_again(quorum, max_staleness_s):
    """Returns how long it takes, by the replica's clock."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for _ in range(200):
        await quorum.read_barrier(max_staleness_s=max_staleness_s)
    return loop.time() - began_s


def test_stale_reads_ask_once_in_their_time(cluster):
    cluster.become_quiet()
    other, took_s = other_of(cluster), []
    for max_staleness_s in (0.0, 1.0):
        cluster.run_for(2_000)
        took_s.append(ask(other, read_again_and_again(other.quorum, max_staleness_s)))
    assert took_s[1] < took_s[0] / 20, "a question takes two messages to the leader, and two to another voter"


def test_more_calls_than_may_wait_fail_at_once():
    with QuorumCluster(22, max_waiting_calls=10) as cluster:
        cluster.become_quiet()
        cluster.run_for(3_000)
        other = other_of(cluster)
        cluster.isolate(other.name)
        cluster.run_for(2_000)

        async def propose_all():
            for number in range(15):
                cluster.history.proposed(b"%d" % number, cluster.world.now_ns)
            calls = [other.quorum.propose([b"%d" % number], timeout_s=2) for number in range(15)]
            calls += [other.quorum.read_barrier(timeout_s=2) for _ in range(5)]
            return await asyncio.gather(*calls, return_exceptions=True)

        ends = Counter(type(end) for end in ask(other, propose_all()))
        assert ends == {DeadlineError: 10, TooManyCallsError: 10}
        cluster.recover()
        ask(other, other.quorum.read_barrier())


async def follow(quorum, start_offset, commands):
    async for batch in quorum.committed(start_offset):
        commands.extend(batch)


def test_committed_commands_are_followed_on_each_replica(cluster):
    found = {name: [] for name in cluster.nodes}
    following = {
        name: machine.loop.create_task(follow(machine.quorum, index * 20, found[name]))
        for index, (name, machine) in enumerate(cluster.nodes.items())
    }
    late = []
    cluster.run_for(1_000)
    other = other_of(cluster)
    now = other.quorum.applied_end_offset
    behind = other.loop.create_task(follow(other.quorum, None, late))
    cluster.run_for(1_000)
    cluster.power_off(cluster.controller)
    cluster.run_for(5_000)
    cluster.become_quiet()
    cluster.run_for(3_000)
    alive = [name for name, machine in cluster.nodes.items() if machine.is_running]
    every = max(found.values(), key=len)
    assert [offset for offset, _ in every] == sorted({offset for offset, _ in every})
    for name in alive:
        first = found[name][0][0]
        assert found[name] == [pair for pair in every if pair[0] >= first]
        assert not following[name].done()
    assert late == [pair for pair in every if pair[0] >= now]
    machine = cluster.nodes[alive[0]]
    ask(machine, machine.quorum.close())
    cluster.run_for(10)
    with pytest.raises(NodeClosedError):
        following[alive[0]].result()
    behind.cancel()


def test_commands_that_a_snapshot_stands_for_are_not_followed():
    settings = {"internal.metadata.log.segment.bytes": "1024", "metadata.max.retention.bytes": "2048"}
    with QuorumCluster(23, properties=settings) as cluster:
        cluster.run_for(5_000)
        leader, commands = leader_of(cluster), []
        following = leader.loop.create_task(follow(leader.quorum, 0, commands))
        cluster.run_for(1_000)
        assert commands
        assert not following.done()
        before = leader.quorum.applied_end_offset
        for _ in range(3):
            cluster.run_for(3_000)
            taken = ask(leader, leader.quorum.snapshot())
            assert taken.end_offset >= before
            assert taken.size_bytes > 1_000
            before = leader.quorum.applied_end_offset
        cluster.become_quiet()
        cluster.run_for(120_000)
        assert leader.quorum.replicated_log.log.log_start_offset > 0
        following = leader.loop.create_task(follow(leader.quorum, 0, commands))
        cluster.run_for(10)
        with pytest.raises(OffsetOutOfRangeError, match="in a checkpoint alone"):
            following.result()
        finish(cluster)


def test_a_snapshot_is_taken_when_it_is_asked_for(cluster):
    leader = leader_of(cluster)
    applied = leader.quorum.applied_end_offset
    taken = ask(leader, leader.quorum.snapshot())
    assert taken.end_offset >= applied
    newest = leader.quorum.replicated_log.log.snapshots[-1]
    assert (newest[0].end_offset, newest[0].epoch, newest[1]) == (taken.end_offset, taken.epoch, taken.size_bytes)
    cluster.become_quiet()
    cluster.run_for(1_000)
    first = ask(leader, leader.quorum.snapshot())
    assert ask(leader, leader.quorum.snapshot()) == first, "nothing was applied since"
    cluster.power_off(leader.name, data="nothing")
    cluster.start(leader.name)
    cluster.recover()
    assert leader.quorum.replicated_log.log.snapshots[-1][0].end_offset == first.end_offset
    assert leader.quorum.snapshot_progress is None


def test_two_that_ask_get_a_snapshot_of_what_was_applied_when_they_asked(cluster):
    leader = leader_of(cluster)

    async def ask_twice():
        first = asyncio.ensure_future(leader.quorum.snapshot())
        for _ in range(3):
            await asyncio.sleep(0)
        progress = leader.quorum.snapshot_progress
        await leader.quorum.propose([b"more"])
        applied = leader.quorum.applied_end_offset
        return progress, applied, await first, await leader.quorum.snapshot()

    cluster.history.proposed(b"more", cluster.world.now_ns)
    progress, applied, first, second = ask(leader, ask_twice())
    assert progress.end_offset == first.end_offset < applied <= second.end_offset


def test_a_state_machine_that_gives_no_snapshot_has_none(cluster):
    leader = leader_of(cluster)
    leader.state_machine.snapshot = lambda: None
    with pytest.raises(DeadlineError, match="snapshot"):
        ask(leader, leader.quorum.snapshot(timeout_s=2))
    assert leader.quorum.is_leader
