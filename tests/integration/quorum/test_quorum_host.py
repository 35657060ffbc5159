"""Many quorums behind one address per node: each with its own leader, log and state."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading

import pytest

import kraftlog
from free_ports import free_addresses
from kraftlog.errors import KraftlogError, NodeClosedError
from kraftlog.quorum.async_quorum import AsyncQuorum
from quorum_api_fixture import Journal
from waiting import until

from .test_sasl import sasl
from .test_tls import tls

NAMES = [f"quorum-{number}" for number in range(30)]
QUICK = {"controller.quorum.election.timeout.ms": 300, "controller.quorum.election.backoff.max.ms": 100}


class Nodes:
    """Three hosts on one loop, each with every quorum."""

    def __init__(self, home, **config):
        self.home, self.config = home, {**QUICK, **config}
        self.voters = dict(enumerate(free_addresses(3), 1))
        self.hosts, self.machines = {}, {}

    async def start(self, node_id, names=NAMES):
        host = self.hosts[node_id] = kraftlog.QuorumHost(
            data_dir=self.home / str(node_id), node_id=node_id, voters=self.voters, threads=2, config=self.config
        )
        await host.start()
        self.machines[node_id] = {name: Journal() for name in names}
        await asyncio.gather(*(host.open(name, self.machines[node_id][name]) for name in names))

    def quorum(self, node_id, name):
        return self.hosts[node_id].quorums[name]

    async def stop(self):
        await asyncio.gather(*(host.close() for host in self.hosts.values()))


@contextlib.asynccontextmanager
async def three(home, names=NAMES, **config):
    nodes = Nodes(home, **config)
    try:
        await asyncio.gather(*(nodes.start(node_id, names) for node_id in nodes.voters))
        yield nodes
    finally:
        await nodes.stop()


def run(coroutine):
    asyncio.run(asyncio.wait_for(coroutine, 60))


def test_each_quorum_has_its_own_log_and_leader(tmp_path):
    async def check():
        before = threading.active_count()
        async with three(tmp_path) as nodes:
            for number, name in enumerate(NAMES):
                for node_id in nodes.voters:
                    await nodes.quorum(node_id, name).propose([b"%d from %d" % (number, node_id)])
            for number, name in enumerate(NAMES):
                expected = [b"%d from %d" % (number, node_id) for node_id in nodes.voters]
                for node_id in nodes.voters:
                    await nodes.quorum(node_id, name).read_barrier()
                    assert nodes.machines[node_id][name].commands == expected
            described = await nodes.quorum(1, NAMES[0]).describe()
            assert {voter.replica_id for voter in described.voters} == set(nodes.voters)
            target = 1 + nodes.quorum(1, NAMES[0]).leader_id % 3
            leader = nodes.quorum(nodes.quorum(1, NAMES[0]).leader_id, NAMES[0])
            await leader.transfer_leadership(target)
            assert nodes.quorum(target, NAMES[0]).leader_id == target
            # Two of each host for logs and at most two for checkpoints, whatever the number of quorums is.
            assert threading.active_count() - before <= 3 * 4
            sizes = {name: (tmp_path / "1" / name / "__cluster_metadata-0").exists() for name in NAMES}
            assert all(sizes.values())

    run(check())


def test_a_node_that_ends_and_comes_back_takes_part_in_all(tmp_path):
    async def check():
        async with three(tmp_path) as nodes:
            for name in NAMES:
                await nodes.quorum(2, name).propose([b"first"])
            await nodes.hosts[1].close()
            with pytest.raises(NodeClosedError):
                await nodes.hosts[1].open("late", Journal())
            for name in NAMES:
                await nodes.quorum(2, name).propose([b"second"])
            await nodes.start(1)
            for name in NAMES:
                await nodes.quorum(1, name).propose([b"third"])
                assert nodes.machines[1][name].commands == [b"first", b"second", b"third"]

    run(check())


def test_one_quorum_is_closed_and_opened_again(tmp_path):
    async def check():
        async with three(tmp_path) as nodes:
            name, other = NAMES[:2]
            await nodes.quorum(1, name).propose([b"a"])
            closed = nodes.quorum(3, name)
            await closed.close()
            assert name not in nodes.hosts[3].quorums
            await nodes.quorum(1, name).propose([b"b"])
            await nodes.quorum(3, other).propose([b"of another one"])
            again = await nodes.hosts[3].open(name, Journal())
            await until(lambda: again.applied_end_offset == nodes.quorum(1, name).applied_end_offset)
            with pytest.raises(ValueError, match="open already"):
                await nodes.hosts[3].open(name, Journal())

    run(check())


def test_a_quorum_of_some_of_the_nodes_is_followed_by_the_others(tmp_path):
    async def check():
        async with three(tmp_path) as nodes:
            journals = {node_id: Journal() for node_id in nodes.voters}
            few = [await nodes.hosts[node_id].open("few", journals[node_id], voters=[1, 2]) for node_id in nodes.voters]
            await few[2].propose([b"a"])
            assert journals[3].commands == [b"a"]
            described = await few[2].describe()
            assert {voter.replica_id for voter in described.voters} == {1, 2}
            await few[2].add_voter()
            described = await few[0].describe()
            assert {voter.replica_id for voter in described.voters} == {1, 2, 3}

    run(check())


def test_what_cannot_be_opened_is_refused(tmp_path):
    async def check():
        async with kraftlog.QuorumHost(data_dir=tmp_path, threads=1) as host:
            for name in ("", "..", "a/b", "x" * 250, "a@b"):
                with pytest.raises(ValueError, match="name"):
                    await host.open(name, Journal())
            with pytest.raises(ValueError, match="no nodes"):
                await host.open("a", Journal(), voters=[1, 7])
            alone = await host.open("a", Journal())
            await alone.propose([b"a"])
            with pytest.raises(ValueError, match="no other node"):
                await host.open("b", Journal(), join=True)
            assert set(host.quorums) == {"a"}
            second = kraftlog.QuorumHost(data_dir=tmp_path / "second", address=host.address)
            with pytest.raises(KraftlogError):
                await second.start()
        with pytest.raises(ValueError, match="threads"):
            kraftlog.QuorumHost(data_dir=tmp_path, threads=0)
        with pytest.raises(TypeError):
            kraftlog.QuorumHost(data_dir=tmp_path, thread=3)

    run(check())


def test_a_host_that_is_closed_while_it_opens_quorums_leaves_none_behind(tmp_path):
    async def check():
        host = kraftlog.QuorumHost(data_dir=tmp_path)
        await host.start()
        opening = [asyncio.ensure_future(host.open(f"q{number}", Journal())) for number in range(40)]
        twice = asyncio.ensure_future(host.open("q0", Journal()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="open already"):
            await twice
        await host.close()
        ends = await asyncio.gather(*opening, return_exceptions=True)
        assert {type(end) for end in ends} <= {kraftlog.AsyncQuorum, NodeClosedError}
        assert not host.quorums
        async with kraftlog.QuorumHost(data_dir=tmp_path) as again:
            await asyncio.gather(*(again.open(f"q{number}", Journal()) for number in range(40)))

    run(check())


async def ask_in_plain_text(address, name):
    """Ask a quorum to describe itself, without TLS and without a password; returns the answer, empty for none."""
    client_id = f"any@{name}".encode()
    api_key, version, correlation_id = 55, 0, 42  # DescribeQuorum
    header = struct.pack(">hhih", api_key, version, correlation_id, len(client_id)) + client_id
    request = header + bytes.fromhex("00 01 00")  # no tags, no topics, no tags
    reader, writer = await asyncio.open_connection(*address.split(":"))
    try:
        writer.write(struct.pack(">i", len(request)) + request)
        answer = await asyncio.wait_for(reader.readexactly(8), 10)
        return answer if struct.unpack(">ii", answer)[1] == correlation_id else b""
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("secured", [tls, sasl, dict])
def test_all_quorums_of_a_host_are_secured(tmp_path, secured):
    async def check():
        async with three(tmp_path, NAMES[:3], **secured()) as nodes:
            for name in NAMES[:3]:
                for node_id in nodes.voters:
                    await nodes.quorum(node_id, name).propose([b"command"])
                for node_id in nodes.voters:
                    await nodes.quorum(node_id, name).read_barrier()
                assert [machines[name].commands for machines in nodes.machines.values()] == [[b"command"] * 3] * 3
                is_open = secured is dict
                assert bool(await ask_in_plain_text(nodes.voters[1], name)) == is_open

    run(check())


def test_all_quorums_are_closed_before_the_error_of_one_is_raised(tmp_path, monkeypatch):
    async def check():
        async with three(tmp_path, NAMES[:3]) as nodes:
            first, *others = nodes.hosts[1].quorums.values()
            close = AsyncQuorum.close

            async def close_late(quorum):
                if quorum is first:
                    await close(quorum)
                    raise KraftlogError("cannot be closed")
                await asyncio.sleep(2)  # longer than the first one takes
                await close(quorum)

            monkeypatch.setattr(AsyncQuorum, "close", close_late)
            with pytest.raises(KraftlogError, match="cannot be closed"):
                await nodes.hosts[1].close()
            monkeypatch.undo()
            assert not any(quorum.is_open for quorum in others)
            with pytest.raises(NodeClosedError):
                await nodes.hosts[1].open("late", Journal())

    run(check())
