"""What is handed to the leader, and when it no longer may be."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from kraftlog.errors import DeadlineError
from kraftlog.quorum.replica import QuorumReplica
from kraftlog.quorum.routes import Routes
from kraftlog.raft.voter_set import Endpoint
from kraftlog.types import NodeId
from quorum_api_fixture import Journal
from waiting import until


class FollowerLog:
    """A log of a replica that knows a leader."""

    is_leader = False
    failure = None
    applied_end_offset = 0
    pending = ()

    def __init__(self):
        self.log = SimpleNamespace(config=SimpleNamespace(max_batch_bytes=1 << 20))
        self.raft = SimpleNamespace(
            config=SimpleNamespace(local_key=SimpleNamespace(node_id=NodeId(1)), listener_name="QUORUM"),
            leader_id=NodeId(2),
            leader_endpoints=(Endpoint("QUORUM", "leader.example", 9093),),
        )


class SlowLink:
    """A connection to the leader that takes as long as the test says."""

    def __init__(self):
        self.may_connect = asyncio.Event()
        self.proposed = []

    async def connect(self, endpoint):
        await self.may_connect.wait()
        return endpoint

    async def propose(self, connection, commands, timeout_s):
        self.proposed.append(list(commands))
        assert timeout_s > 0
        return 7, 3

    def close(self):
        """There is nothing to close."""


def follower():
    """Routes of a replica that follows, and their link to the leader."""
    replica = QuorumReplica(Journal(), max_pending_bytes=1 << 20)
    replica.log = FollowerLog()
    routes = Routes(
        replica,
        client_id="quorum-1",
        request_timeout_s=60,
        default_timeout_s=60,
        max_waiting_calls=100,
        security=lambda _: None,
    )
    routes._link = link = SlowLink()
    return routes, link


def test_who_was_told_that_nothing_was_proposed_is_not_proposed_when_the_leader_is_reached_later():
    """Found by a drawn run of a simulated quorum: such a command was committed a second after its refusal."""

    async def run():
        routes, link = follower()
        late = asyncio.ensure_future(routes.propose([b"late"], 0.05, forward=True))
        patient = asyncio.ensure_future(routes.propose([b"patient"], 60, forward=True))
        given_up = asyncio.ensure_future(routes.propose([b"given up"], 60, forward=True))
        with pytest.raises(DeadlineError, match="not proposed") as raised:
            await late
        assert not raised.value.may_be_committed
        given_up.cancel()
        await asyncio.wait([given_up])
        link.may_connect.set()
        await until(lambda: link.proposed)
        assert link.proposed == [[b"patient"]]
        patient.cancel()
        await asyncio.wait([patient])
        routes.close()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_nothing_is_sent_if_nobody_waits_any_more():
    async def run():
        routes, link = follower()
        late = asyncio.ensure_future(routes.propose([b"late"], 0.05, forward=True))
        with pytest.raises(DeadlineError, match="not proposed"):
            await late
        link.may_connect.set()
        await until(lambda: not routes._tasks)
        assert link.proposed == []
        routes.close()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_the_age_of_a_stale_read_counts_from_its_question():
    """What was committed while the answer was on its way may be missing."""

    async def run():
        routes, link = follower()
        loop, asked = asyncio.get_running_loop(), []
        clock = SimpleNamespace(late_s=0.0)
        routes._loop = SimpleNamespace(
            time=lambda: loop.time() + clock.late_s,
            call_soon=loop.call_soon,
            create_future=loop.create_future,
            create_task=loop.create_task,
        )

        async def read_offset(endpoint):
            asked.append(endpoint)
            clock.late_s += 30
            return 0

        async def wait_for_offset(offset):
            assert offset == -1

        link.read_offset, routes._log.wait_for_offset = read_offset, wait_for_offset
        await routes.read_barrier(60, 0.0)
        await routes.read_barrier(60, 60.0)
        assert len(asked) == 1
        await routes.read_barrier(60, 20.0)
        assert len(asked) == 2
        routes.close()

    asyncio.run(asyncio.wait_for(run(), 30))
