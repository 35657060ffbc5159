"""Clusters in virtual time with invariants, faults that are drawn, and scenarios that replay."""

from __future__ import annotations

import asyncio

import pytest

from kraftlog import host
from kraftlog.client.async_producer import AsyncProducer
from kraftlog.testing import InvariantViolationError
from kraftlog.testing.world.cluster import LONG_WAITS, Cluster
from kraftlog.testing.world.history import OffsetHistory, RecordHistory, TransactionHistory
from kraftlog.testing.world.machine import Machine
from kraftlog.testing.world.swarm import ClusterFailedError, ClusterScenario, draw, run, shrink
from kraftlog.testing.world.world import World

from .workloads import records_every, transactions

SETTINGS = {"num.partitions": "2", "default.replication.factor": "3", "min.insync.replicas": "2"}


def test_a_thread_that_a_machine_joins_has_the_clock_of_the_machine():
    """The clock of the process made a recovery forget every idempotent producer as expired."""
    with World(1) as world:
        machine = Machine(world, "machine")

        async def work():
            with host.joined_executor("thread", 4) as pool:
                return pool.submit(host.wall_ms).result()

        found_ms = world.run(machine, work())
        assert abs(found_ms - world.wall_ms()) < 1000


def test_a_cluster_loses_nothing_and_recovers_in_virtual_time():
    """The workload accounts for each record: RINV-01, RINV-05, RINV-11. An empty disk is filled again."""
    with Cluster(3, properties=SETTINGS) as cluster:
        task = cluster.begin(records_every(cluster, 0.1))
        cluster.run_for(1_000)
        lost = cluster.leader_of("records", 0)
        assert cluster.may_lose(lost)
        cluster.replace_disk(lost)
        cluster.run_for(500)
        cluster.start(lost)
        cluster.run_for(2_000)
        cluster.power_off(cluster.leader_of("records", 0))
        cluster.run_for(2_000)
        cluster.isolate(cluster.controller)
        cluster.break_within_frame("client", cluster.leader_of("records", 1))
        cluster.run_for(4_000)
        cluster.become_quiet()
        cluster.recover()
        cluster.run_until(task.done, within_ms=120_000)
        task.result()
        story = str(cluster.story)
        looked = cluster.checkers.looked
    assert "loses power" in story
    assert story.count("is the active controller in epoch") >= 2
    assert "all of them are there" in story
    rules = ("INV-01", "INV-08", "RINV-07", "RINV-08", "RINV-09", "RINV-14", "RINV-21", "RINV-22", "RINV-26", "RINV-27")
    assert all(looked[rule] for rule in rules)


def test_transactions_are_seen_as_a_whole_when_their_coordinator_dies():
    """One producer commits and aborts; read_committed sees what was committed, and nothing in part (RINV-06)."""
    settings = {"transaction.state.log.num.partitions": "1", "transaction.state.log.replication.factor": "3"}
    with Cluster(4, controllers=1, properties={**SETTINGS, **settings}) as cluster:
        task = cluster.begin(transactions(cluster))
        cluster.run_for(1_000)
        coordinator = cluster.leader_of("__transaction_state", 0)
        cluster.kill(coordinator)
        cluster.run_for(1_500)
        assert cluster.leader_of("__transaction_state", 0) not in {coordinator, None}
        cluster.become_quiet()
        cluster.recover()
        cluster.run_until(task.done, within_ms=120_000)
        task.result()
        assert "each transaction as a whole" in str(cluster.story)


async def one_record(cluster):
    """A service that fails when the controller moves: it does not survive an isolated controller."""
    before = cluster.controller
    while not cluster.is_quiet:
        assert cluster.controller in {before, None}, "the controller moved"
        await asyncio.sleep(0.2)


@pytest.mark.slow
def test_a_failing_run_shrinks_to_a_scenario_that_replays():
    text = """
    world seed=5 controllers=3 brokers=1
    at 3000 reset node=1 to=2
    at 3100 jump_clock node=0 by_ms=1500
    at 3200 isolate node=controller for_ms=9000
    at 9000 reset node=2 to=1
    end 12000
    """
    outcome = run(ClusterScenario.parse(text), one_record)
    assert outcome.scenario.breaks == "AssertionError"
    shortest = shrink(outcome, one_record, budget=8)
    assert [fault.kind for fault in shortest.scenario.faults] == ["isolate"]
    again = run(ClusterScenario.parse(str(shortest.scenario)), one_record)
    assert str(again.scenario) == str(shortest.scenario)
    assert again.story == shortest.story
    assert "isolate node=controller" in str(ClusterFailedError(again))


def test_a_drawn_run_is_written_down_and_read():
    drawn = [draw(seed) for seed in range(40)]
    assert [ClusterScenario.parse(str(scenario)) for scenario in drawn] == drawn
    assert len({fault.kind for scenario in drawn for fault in scenario.faults}) == 19 + 6 + 1 + 2
    assert {scenario.combined for scenario in drawn} == {0, 1, 3}
    assert {name for scenario in drawn for name, _ in scenario.levels} >= {"kraft.version", "metadata.version"}
    with pytest.raises(ValueError, match="not a line"):
        ClusterScenario.parse("world seed=1 controllers=1 brokers=1\nnonsense")
    with pytest.raises(ValueError, match="world seed"):
        ClusterScenario.parse("end 5")


def test_a_lost_a_repeated_and_a_changed_record_are_noticed():
    history = RecordHistory()
    history.sent("a", 1)
    history.sent("a", 2)
    history.acked("t", 0, 5, "a", 1)
    history.check_complete("t", 0, [(5, "a", 1), (6, "a", 2)])
    with pytest.raises(InvariantViolationError, match="was acknowledged at offset 5, None is"):
        history.check_complete("t", 0, [(6, "a", 2)])
    with pytest.raises(InvariantViolationError, match="behind 1"):
        history.check_complete("t", 0, [(5, "a", 1), (7, "a", 1)])
    with pytest.raises(InvariantViolationError, match="was read at offset 5"):
        history.read("t", 0, 5, "a", 2)
    with pytest.raises(InvariantViolationError, match="nobody sent"):
        history.read("t", 0, 8, "b", 1)


def test_an_offset_that_goes_back_and_half_a_transaction_are_noticed():
    offsets = OffsetHistory()
    offsets.committed("g", "t", 0, 7)
    offsets.fetched("g", "t", 0, 7)
    with pytest.raises(InvariantViolationError, match="went back from 7 to 6"):
        offsets.fetched("g", "t", 0, 6)
    transactions = TransactionHistory()
    for number in range(3):
        transactions.began(number, 2)
    transactions.ended(0, is_committed=True)
    transactions.ended(1, is_committed=False)
    transactions.check([0, 0])
    transactions.check([0, 0, 2, 2])
    for seen in ([], [0], [0, 0, 1], [0, 0, 2]):
        with pytest.raises(InvariantViolationError, match="records are seen"):
            transactions.check(seen)


@pytest.mark.parametrize("changes", [0, 1, 7, 40])
def test_a_machine_loses_power_behind_the_change_of_its_disk_that_was_named(changes):
    """What it does later in the same event has no effect: nobody hears of it, and it is not on the disk."""
    with Cluster(4, brokers=1, controllers=1) as cluster:
        machine = cluster.nodes["broker-2"]
        ended, counts = [], []
        before = machine.disk.change_count
        cluster.power_off_after("broker-2", changes, then=lambda: ended.append(cluster.world.now_ms))
        cluster.world.watchers.append(lambda _: counts.append(0 if ended else machine.disk.change_count))
        cluster.run_until(lambda: bool(ended), within_ms=60_000)
        assert not machine.is_running
        assert max(counts) <= before + changes
        cluster.run_for(1_000)
        assert len(ended) == 1
        cluster.recover()


def test_a_power_failure_that_has_not_come_by_the_recovery_does_not_come():
    with Cluster(4, brokers=1, controllers=1) as cluster:
        cluster.power_off_after("broker-2", 10_000)
        cluster.recover()
        cluster.run_for(60_000)
        assert cluster.nodes["broker-2"].is_running


async def send_one(cluster):
    """Produce a record to a topic that is new."""
    async with AsyncProducer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        await (await producer.send("new", b"a record"))


def test_idle_nodes_with_long_waits_seldom_ask_and_learn_at_once():
    """``controller.quorum.fetch.wait.max.ms``: a fetch that waits is answered when there is something new."""
    events = {}
    for name, properties in (("kafka", SETTINGS), ("long", SETTINGS | LONG_WAITS)):
        with Cluster(5, properties=properties) as cluster:
            cluster.run_for(15_000)
            before = cluster.world.event_count
            cluster.run_for(30_000)
            events[name] = cluster.world.event_count - before
            if name == "long":
                began_ms = cluster.world.now_ns / 1e6
                cluster.run(send_one(cluster), within_ms=5_000)
                assert cluster.world.now_ns / 1e6 - began_ms < 1_000
                cluster.kill(cluster.controller)
                cluster.recover()
    assert events["long"] * 4 < events["kafka"]
