"""Clusters in one situation each, cut and healed on purpose; the invariants are looked at after every event."""

from __future__ import annotations

from itertools import permutations

import pytest

from kraftlog.testing import Simulation, SimulationConfig
from kraftlog.testing.disk import SimulatedDisk

SEEDS = range(5)
KAFKAS_DEFAULTS = {
    "election_timeout_ms": 1000,
    "fetch_timeout_ms": 2000,
    "request_timeout_ms": 2000,
    "retry_backoff_ms": 20,
    "proposals_per_second": 10,
    "auto_join": False,
    "refuses_connections": False,
}


def cluster(seed, voter_count=3, *, starts=True, **options):
    options = {**KAFKAS_DEFAULTS, "observer_count": 0, "is_dynamic": True, "fault_count": 0, **options}
    simulation = Simulation(SimulationConfig(seed=seed, voter_count=voter_count, **options))
    if starts:
        simulation.start()
        simulation.run_for(10_000)
        assert simulation.leader() is not None
    return simulation


def leading(simulation):
    node = simulation.leader()
    return node.node_id, node.core.epoch


def others_of(simulation, *node_ids):
    return [node for node in simulation.nodes if node not in node_ids]


def keep_only(simulation, links):
    """Lose all messages but those along these links."""
    known = {frozenset(link) for link in links}
    simulation.network.blocked |= {pair for pair in permutations(simulation.nodes, 2) if frozenset(pair) not in known}


def ring(a, b, c, d, e):
    """The network of KIP-996 in which c still reaches a majority, and b only d."""
    return [(a, c), (b, d), (c, d), (c, e), (d, e)]


@pytest.mark.spec("PREV-29")
@pytest.mark.parametrize("seed", SEEDS)
def test_leader_that_reaches_a_majority_stays(seed):
    simulation = cluster(seed, 5)
    before = leading(simulation)
    c = before[0]
    a, b, d, e = others_of(simulation, c)
    keep_only(simulation, ring(a, b, c, d, e))
    for _ in range(60):
        simulation.run_for(500)
        assert leading(simulation) == before
    assert {node.core.epoch for node in simulation.nodes.values()} == {before[1]}


@pytest.mark.spec("PREV-30")
@pytest.mark.parametrize("seed", SEEDS)
def test_ring_from_the_start_elects_once(seed):
    simulation = cluster(seed, 5, starts=False)
    keep_only(simulation, ring(1, 2, 3, 4, 5))
    simulation.start()
    simulation.run_for(60_000)
    assert len(simulation.invariants.leaders) == 1


@pytest.mark.spec("PREV-32", "CQ-24")
@pytest.mark.parametrize("seed", SEEDS)
def test_node_that_was_cut_off_brings_no_higher_epoch(seed):
    simulation = cluster(seed)
    before = leading(simulation)
    lost = others_of(simulation, before[0])[0]
    simulation.network.isolate(lost, others_of(simulation, lost))
    simulation.run_for(120_000)
    assert simulation.nodes[lost].core.epoch == before[1]
    simulation.network.heal()
    simulation.run_for(10_000)
    assert leading(simulation) == before


@pytest.mark.spec("CQ-24", "CQ-01")
@pytest.mark.parametrize("seed", SEEDS)
def test_isolated_leader_gives_up_within_one_and_a_half_fetch_timeouts(seed):
    simulation = cluster(seed)
    old, epoch = leading(simulation)
    simulation.network.isolate(old, others_of(simulation, old))
    simulation.run_for(3_100)
    assert not simulation.nodes[old].core.is_leader
    simulation.run_for(10_000)
    new, new_epoch = leading(simulation)
    assert new != old
    assert new_epoch > epoch


@pytest.mark.spec("PREV-34")
@pytest.mark.parametrize("seed", SEEDS)
def test_leader_that_reaches_one_follower_of_four_is_replaced(seed):
    simulation = cluster(seed, 5)
    old, _ = leading(simulation)
    friend = others_of(simulation, old)[0]
    simulation.network.isolate(old, others_of(simulation, old, friend))
    simulation.run_for(20_000)
    new, _ = leading(simulation)
    assert new != old
    committed = simulation.invariants.high_watermark
    simulation.run_for(5_000)
    assert simulation.invariants.high_watermark > committed


@pytest.mark.spec("PREV-31", "RCFG-68", "RCFG-44")
@pytest.mark.parametrize("seed", SEEDS)
def test_voter_that_does_not_know_that_it_was_removed_disturbs_nobody(seed):
    simulation = cluster(seed, 4)
    before = leading(simulation)
    lost = others_of(simulation, before[0])[0]
    # It hears nothing, but its questions arrive: the worst that it can do.
    simulation.network.blocked |= {(other, lost) for other in others_of(simulation, lost)}
    simulation.remove_voter(simulation.nodes[lost].key)
    simulation.run_for(60_000)
    assert leading(simulation) == before
    assert lost not in simulation.leader().core.voters.ids
    simulation.network.heal()
    simulation.run_for(5_000)
    assert leading(simulation) == before
    assert simulation.nodes[lost].core.role.name == "follower"
    assert not simulation.nodes[lost].core.is_voter


@pytest.mark.spec("ELEC-56")
@pytest.mark.parametrize("seed", SEEDS)
def test_two_leaders_lost_one_after_the_other(seed):
    simulation = cluster(seed, 3)
    first, _ = leading(simulation)
    simulation.network.isolate(first, others_of(simulation, first))
    simulation.run_for(10_000)
    second, _ = leading(simulation)
    assert second != first
    simulation.network.heal()
    simulation.network.isolate(second, others_of(simulation, second))
    committed = simulation.invariants.high_watermark
    simulation.run_for(15_000)
    assert leading(simulation)[0] != second
    assert simulation.invariants.high_watermark > committed


@pytest.mark.spec("ELEC-57", "HWM-21", "FTCH-50")
@pytest.mark.parametrize("seed", SEEDS)
def test_only_the_side_with_a_majority_goes_on(seed):
    simulation = cluster(seed, 5)
    old, _ = leading(simulation)
    small = [old, others_of(simulation, old)[0]]
    large = others_of(simulation, *small)
    simulation.network.split(small, large)
    simulation.run_for(50)  # what was under way still arrives
    committed = simulation.invariants.high_watermark
    simulation.run_for(20_000)
    assert leading(simulation)[0] in large
    assert simulation.invariants.high_watermark > committed + 20
    assert max(simulation.nodes[node_id].core.high_watermark for node_id in small) <= committed
    simulation.network.heal()
    simulation.run_for(10_000)
    ends = [node.core.high_watermark for node in simulation.nodes.values()]
    assert max(ends) - min(ends) < 40
    assert min(ends) > committed + 20


@pytest.mark.spec("JOIN-15", "JOIN-16", "RCFG-67")
@pytest.mark.parametrize("seed", SEEDS)
def test_standalone_node_and_two_that_join_become_three_voters(seed):
    simulation = cluster(seed, 1, starts=False, observer_count=2, auto_join=True)
    simulation.network.isolate(1, [2, 3])
    simulation.start()
    simulation.run_for(10_000)
    simulation.network.heal()
    simulation.run_for(30_000)
    for node in simulation.nodes.values():
        assert node.core.voters.ids == (1, 2, 3)
    assert len(simulation.invariants.leaders) == 1, "joining is no reason for an election"


@pytest.mark.spec("JOIN-17")
@pytest.mark.parametrize("seed", SEEDS)
def test_voter_with_a_new_disk_replaces_its_old_self(seed):
    simulation = cluster(seed, 3, auto_join=True)
    lost = others_of(simulation, leading(simulation)[0])[0]
    simulation.nodes[lost].crash()
    node = simulation.replace_disk(lost)
    node.start()
    simulation.run_for(30_000)
    assert simulation.leader().core.voters.ids == (1, 2, 3)
    assert simulation.leader().core.voters.contains(node.key)
    assert node.core.is_voter


@pytest.mark.spec("SNAP-24", "SNAP-51")
def test_checkpoint_that_outlives_the_end_of_the_log():
    """Found by this seed: a crash took records of which there was a checkpoint already."""
    Simulation(SimulationConfig(seed=74, voter_count=3, fault_count=60)).run()


@pytest.mark.spec("PREV-33", "DISK-36")
@pytest.mark.parametrize("seed", SEEDS)
def test_voter_that_lost_its_records_cannot_become_a_candidate(seed):
    simulation = cluster(seed)
    leader, epoch = leading(simulation)
    lost = others_of(simulation, leader)[0]
    node = simulation.nodes[lost]
    node.crash()
    # The id and the directory id are as before, the log is as it was formatted; only the other follower is in reach.
    node.disk = SimulatedDisk(simulation.static_voters, serial=99)
    simulation.network.isolate(lost, [leader])
    before = simulation.counters["became_candidate"]
    node.start()
    simulation.run_for(30_000)
    assert simulation.counters["became_candidate"] == before
    assert simulation.counters["became_prospective"] > 3
    assert leading(simulation) == (leader, epoch)
    simulation.network.heal()
    simulation.run_for(5_000)
    assert node.core.high_watermark > 0


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("refuses_connections", [True, False])
def test_followers_of_a_leader_that_refuses_connections_elect_before_their_fetch_timers_end(seed, refuses_connections):
    """Of three voters with Kafka's timers; without refusals nobody stands before 2 seconds are over."""
    simulation = cluster(seed, refuses_connections=refuses_connections)
    leader_id, epoch = leading(simulation)
    simulation.nodes[leader_id].crash()
    simulation.run_for(1_000)
    is_elected = simulation.leader() is not None
    assert is_elected == refuses_connections
    if is_elected:
        assert leading(simulation)[1] == epoch + 1


def test_one_follower_that_is_refused_does_not_depose_a_leader_that_the_others_fetch_from():
    simulation = cluster(1, refuses_connections=True)
    before = leading(simulation)
    follower = simulation.nodes[others_of(simulation, before[0])[0]]
    for _ in range(40):
        follower.tell(follower.core.handle_refused_connection, before[0], follower.now_ms())
        simulation.run_for(50)
    assert leading(simulation) == before
