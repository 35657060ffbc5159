"""kill -9 of the leader, again and again, while commands are proposed: nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time

import pytest

from linearizability.cluster import SHORT_TIMERS, Cluster, MemberGoneError

KILL_COUNT = int(os.environ.get("KRAFTLOG_LEADER_KILLS", "3"))
HAS_DEFAULT_TIMERS = os.environ.get("KRAFTLOG_LEADER_KILL_TIMERS") == "default"
PROPOSER_COUNT = 3


class Proposers:
    """Clients that propose one command after the other.

    Attributes:
        acknowledged: The commands that are committed, as they were told.
        acknowledged_at: When the last one was, on the monotonic clock.
    """

    def __init__(self, cluster):
        self.cluster = cluster
        self.acknowledged = []
        self.proposed = set()
        self.acknowledged_at = 0.0
        self.is_over = False

    async def run(self, name):
        rng = random.Random(name)
        number = 0
        while not self.is_over:
            number += 1
            value = f"{name}-{number}"
            member = self.cluster.members[rng.choice(list(self.cluster.members))]
            self.proposed.add(value)
            begun = time.monotonic()
            try:
                answer = await member.ask(do="propose", key=f"k{number % 100}", value=value, timeout_s=3.0)
            except MemberGoneError:
                await asyncio.sleep(0.02)
                continue
            if answer.get("result"):
                self.acknowledged.append(value)
                self.acknowledged_at = max(self.acknowledged_at, begun)
            await asyncio.sleep(0.02)


async def kill_leaders(home, count, config):
    """Kill so many leaders; return how long each took to be replaced, and to have a command committed, in ms."""
    leader_ms, commit_ms = [], []
    async with Cluster(home, config=config) as cluster:
        proposers = Proposers(cluster)
        tasks = [asyncio.ensure_future(proposers.run(f"p{index}")) for index in range(PROPOSER_COUNT)]
        for _ in range(count):
            victim, epoch = await cluster.leader()
            await asyncio.sleep(0.1)
            killed_at = time.monotonic()
            await victim.kill()
            await cluster.leader(above_epoch=epoch)
            leader_ms.append((time.monotonic() - killed_at) * 1000)
            async with asyncio.timeout(60):
                while proposers.acknowledged_at < killed_at:  # noqa: ASYNC110 - the latest of several clients
                    await asyncio.sleep(0.005)
            commit_ms.append((time.monotonic() - killed_at) * 1000)
            await victim.start()
        proposers.is_over = True
        await asyncio.gather(*tasks)
        for member in cluster.members.values():
            applied = (await member.ask(do="applied", key="", timeout_s=30.0))["result"]
            lost = [value for value in proposers.acknowledged if value not in applied]
            assert not lost, f"replica {member.node_id} lost {lost[:10]}"
            assert all(times == 1 for times in applied.values()), "a command was applied twice"
            assert applied.keys() <= proposers.proposed
    return leader_ms, commit_ms, len(proposers.acknowledged)


@pytest.mark.slow
@pytest.mark.timeout(max(300, KILL_COUNT * 30))
def test_nothing_acknowledged_is_lost_with_the_leader(tmp_path):
    config = {} if HAS_DEFAULT_TIMERS else SHORT_TIMERS
    leader_ms, commit_ms, count = asyncio.run(kill_leaders(tmp_path, KILL_COUNT, config))
    print(
        f"{KILL_COUNT} leaders killed, {count} commands acknowledged and none lost; time to a new leader: median"
        f" {statistics.median(leader_ms):.0f} ms, worst {max(leader_ms):.0f} ms; to the first command proposed after"
        f" the kill: median {statistics.median(commit_ms):.0f} ms, worst {max(commit_ms):.0f} ms"
    )
    assert count > KILL_COUNT
