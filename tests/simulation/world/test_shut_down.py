"""Nodes of a cluster that are asked to end, as by SIGTERM: leaderships go first, and nothing is kept (INV-33)."""

from __future__ import annotations

import asyncio

import pytest

from kraftlog.errors import KraftlogError, NodeClosedError
from kraftlog.node.node import Node
from kraftlog.testing import InvariantViolationError
from kraftlog.testing.world.cluster import Cluster
from kraftlog.testing.world.quorum_cluster import QuorumCluster

from .topic_workload import topics
from .workloads import records_every

SETTINGS = {"num.partitions": "3", "default.replication.factor": "3", "min.insync.replicas": "2"}
MINUTE_MS = 60_000.0


def ended(cluster, name):
    """Ask a node to end; returns the virtual time that it takes."""
    done = []
    begun_ms = cluster.world.now_ms
    cluster.shut_down(name, then=lambda: done.append(cluster.world.now_ms))
    cluster.run_until(lambda: done, within_ms=MINUTE_MS)
    return done[0] - begun_ms


def clean_shutdown_file(cluster, name):
    return cluster.nodes[name].data_path / ".kafka_cleanshutdown"


@pytest.mark.slow
def test_a_cluster_is_restarted_node_by_node_while_clients_write_and_read():
    with Cluster(11, properties=SETTINGS) as cluster:
        task = cluster.begin(records_every(cluster, 0.05))
        cluster.run_for(2_000)
        for name in cluster.nodes:
            assert ended(cluster, name) < 5_000
            assert clean_shutdown_file(cluster, name).exists()
            led = {cluster.leader_of("records", index) for index in range(3)}
            assert None not in led
            assert name not in led
            assert cluster.controller not in {None, name}
            cluster.start(name)
            cluster.run_until(lambda name=name: cluster.nodes[name].is_serving, within_ms=MINUTE_MS)
            assert not clean_shutdown_file(cluster, name).exists()
        cluster.become_quiet()
        cluster.recover()
        cluster.run_until(task.done, within_ms=2 * MINUTE_MS)
        task.result()
        assert "all of them are there" in str(cluster.story)


def test_a_node_that_is_being_started_is_killed_and_one_that_ends_may_still_be():
    with Cluster(12, controllers=1, properties=SETTINGS) as cluster:
        cluster.kill("broker-2")
        cluster.start("broker-2")
        done = []
        cluster.shut_down("broker-2", then=lambda: done.append(1))
        assert done == [1]
        assert not cluster.nodes["broker-2"].is_running
        cluster.start("broker-2")
        cluster.recover()
        cluster.shut_down("broker-2", then=lambda: done.append(2))
        cluster.shut_down("broker-2", then=lambda: done.append(3))
        cluster.power_off("broker-2")
        cluster.start("broker-2")
        cluster.recover()
        assert done == [1]
        assert "is asked to end" in str(cluster.story)


def test_a_full_disk_costs_its_directory_the_clean_shutdown_file_alone():
    """The process ended with an error, and what came after that file was not done."""
    with Cluster(14, controllers=1, directories=3, properties=SETTINGS) as cluster:
        machine = cluster.nodes["broker-2"]
        *others, last = machine.data_paths
        cluster.fill_disk("broker-2", 2)
        ended(cluster, "broker-2")
        assert not (last / ".kafka_cleanshutdown").exists()
        assert all((path / ".kafka_cleanshutdown").exists() for path in others)
        cluster.become_quiet()
        cluster.start("broker-2")
        cluster.recover()
        assert machine.is_serving


@pytest.mark.slow
def test_directories_of_deleted_topics_are_left_to_the_next_start():
    """Timers that would have removed them a minute later kept the node that had stopped."""
    with Cluster(13, controllers=1, properties=SETTINGS) as cluster:
        task = cluster.begin(topics(cluster))
        cluster.run_for(10_000)
        data = cluster.nodes["broker-2"].data_path
        ended(cluster, "broker-2")
        deleted = {path.name for path in data.glob("*-delete")}
        assert deleted
        cluster.run_for(2 * MINUTE_MS)
        assert {path.name for path in data.glob("*-delete")} == deleted
        cluster.start("broker-2")
        cluster.become_quiet()
        cluster.recover()
        cluster.run_until(task.done, within_ms=4 * MINUTE_MS)
        task.result()
        cluster.run_for(2 * MINUTE_MS)
        assert not deleted & {path.name for path in data.glob("*-delete")}


async def use(cluster, quorum):
    """Propose, and read as soon as that is committed; returns how the read ends."""
    cluster.history.proposed(b"the last command", cluster.world.now_ns)
    await quorum.propose([b"the last command"])
    try:
        await quorum.read_barrier(timeout_s=600)
    except NodeClosedError as error:
        return error
    return None


@pytest.mark.parametrize("wait_ms", [0.1, 0.3, 0.6])
def test_a_call_that_waits_for_a_leader_ends_with_its_quorum(wait_ms):
    """It waited on until its own time was over, though nobody could answer any more."""
    with QuorumCluster(15, controllers=1) as cluster:
        cluster.become_quiet()
        cluster.run_for(3_000)
        machine = cluster.nodes["replica-1"]
        reading = machine.loop.create_task(use(cluster, machine.quorum))
        cluster.run_for(wait_ms)
        ended(cluster, "replica-1")
        assert reading.result() is None or str(reading.result()) == "the quorum was closed"


async def propose_and_close(cluster, quorum):
    """Propose every 0.2 ms until the quorum is closed; returns how each call ended, None for one that has not."""

    async def propose(number):
        cluster.history.proposed(b"%d" % number, cluster.world.now_ns)
        try:
            return await quorum.propose([b"%d" % number])
        except KraftlogError as error:
            return error

    proposals, closing = [], None
    while closing is None or not closing.done():
        proposals.append(asyncio.ensure_future(propose(len(proposals))))
        if len(proposals) == 50:
            closing = asyncio.ensure_future(quorum.close())
        await asyncio.sleep(0.0002)
    await asyncio.wait(proposals, timeout=60)
    return [proposal.result() if proposal.done() else None for proposal in proposals]


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_command_that_is_proposed_while_its_quorum_closes_is_refused(role):
    """Seed 5 with commands: the leader was to get it, and the replica had told those before it of its end (INV-33)."""
    with QuorumCluster(16) as cluster:
        cluster.become_quiet()
        cluster.run_for(3_000)
        is_one = {name: (name == cluster.controller) == (role == "leader") for name in cluster.nodes}
        name = next(name for name, fits in is_one.items() if fits)
        using = cluster.nodes[name].loop.create_task(propose_and_close(cluster, cluster.nodes[name].quorum))
        cluster.run_until(using.done, within_ms=120_000)
        ends = using.result()
    assert None not in ends, "a call that nobody answers"
    assert isinstance(ends[0], int)
    assert isinstance(ends[-1], NodeClosedError)


@pytest.mark.parametrize("kept", ["task", "timer", "socket", "disk"])
def test_what_a_node_keeps_is_noticed(monkeypatch, kept):
    async def wait():
        await asyncio.Event().wait()

    async def stop(node):
        await stop_node(node)
        loop = asyncio.get_running_loop()
        machine = loop.host
        match kept:
            case "task":
                machine.kept_for_test = loop.create_task(wait())
            case "timer":
                loop.call_later(600, print)
            case "socket":
                machine.listen("", 1, backlog=1, receive_buffer_bytes=1)
            case "disk":
                loop.call_later(1, (machine.data_path / "late").write_bytes, b"late")

    stop_node = Node.stop
    monkeypatch.setattr(Node, "stop", stop)
    with Cluster(14, controllers=1, brokers=1) as cluster, pytest.raises(InvariantViolationError) as raised:
        ended(cluster, "broker-2")
    assert raised.value.identifier == "INV-33"
    assert kept in str(raised.value)
