"""Nodes of a cluster that do what no node may do, each of which a checker notices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraftlog.runtime.metadata.active_controller import ActiveController
from kraftlog.runtime.replica.fetcher_loop import FetcherLoop
from kraftlog.testing import InvariantViolationError
from kraftlog.testing.world.cluster import Cluster

from .workloads import records_every

SETTINGS = {"num.partitions": "1", "default.replication.factor": "3", "min.insync.replicas": "2"}


def broken(work, *, controllers=1, writes=True):
    """The rule that a cluster breaks while ``work(cluster)`` is done, beside a producer and a reader or without."""
    try:
        with Cluster(21, controllers=controllers, properties=SETTINGS) as cluster:
            if writes:
                cluster.begin(records_every(cluster, 0.1))
            cluster.run_for(2_000)
            work(cluster)
    except InvariantViolationError as error:
        return error.identifier
    return None


def test_a_loop_without_a_pause_is_noticed():
    def work(cluster):
        loop = cluster.nodes["broker-2"].loop

        def spin():
            loop.call_soon(spin)

        loop.call_soon(spin)
        cluster.run_for(5_000)

    assert broken(work) == "INV-32"


@pytest.mark.slow
def test_a_follower_that_fetches_without_a_pause_is_noticed(monkeypatch):
    request = FetcherLoop._request

    def hurried(loop, fetch_round):
        return replace(request(loop, fetch_round), max_wait_ms=0)

    monkeypatch.setattr(FetcherLoop, "_request", hurried)
    assert broken(lambda cluster: cluster.run_for(10_000)) == "RINV-39"


def test_an_active_controller_that_resigns_without_a_fault_is_noticed():
    def work(cluster):
        cluster.recover()
        name = cluster.controller
        driver = cluster.nodes[name].replicated_log.driver
        cluster.nodes[name].loop.call_later(1, driver.tell, lambda: driver.core.resign(driver.now_ms()))
        cluster.check_stability()

    assert broken(work, controllers=3, writes=False) == "INV-27"


def test_a_controller_that_answers_before_it_has_committed_is_noticed(monkeypatch):
    propose = ActiveController._propose

    def hasty(controller, result, future):
        propose(controller, result, future)
        if not future.done():
            future.set_result(result.response)

    monkeypatch.setattr(ActiveController, "_propose", hasty)
    assert broken(lambda cluster: cluster.run_for(5_000), controllers=3) == "INV-12"


def test_a_replica_that_is_given_up_without_the_controller_is_noticed():
    def work(cluster):
        machine = cluster.nodes[cluster.leader_of("records", 0)]
        partition = next(found for found in machine.node.partitions if found.topic == "records")
        machine.loop.call_later(1, machine.node.partitions.remove, partition)
        cluster.run_for(5_000)

    assert broken(work) == "RINV-32"
