"""What the checkers say of how many replicas have what is committed when a move ends or is given up."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kraftlog.controller.reassignment import CompletedReassignment
from kraftlog.controller.topic_image import NO_LEADER, RECOVERING, PartitionImage
from kraftlog.testing import InvariantViolationError
from kraftlog.testing.world.cluster import Cluster
from kraftlog.testing.world.metadata_checker import MetadataChecker
from kraftlog.testing.world.partition_checker import PartitionChecker
from kraftlog.types import Uuid

from .test_checkers import TOPIC_ID, Partitions, machine_of, partition_of, story
from .test_operator import SETTINGS
from .workloads import records_every

STARTED = PartitionImage(replicas=(1, 2, 3), directories=(Uuid.ZERO,) * 3, isr=(1, 2), leader=1)
MOVING = replace(STARTED, replicas=(4, 3, 1, 2), adding_replicas=(4,), removing_replicas=(1, 2), partition_epoch=1)
ENDED = replace(
    MOVING, replicas=(4, 3), isr=(4,), leader=4, adding_replicas=(), removing_replicas=(), partition_epoch=2
)
GIVEN_UP = replace(STARTED, isr=(1,), partition_epoch=2)


def told(now, log_ends, *, was=MOVING, meanwhile=None):
    """Brokers 1 to 4 have logs with these ends, 5 is committed, and a node learns of two states of their partition."""
    leader = log_ends.index(5) + 1
    nodes = {
        node_id: machine_of(node_id, partition_of(leader, node_id, high_watermark=min(5, end), log_end=end))
        for node_id, end in zip((1, 2, 3, 4), log_ends, strict=True)
    }
    metadata = MetadataChecker(nodes, story())
    checker = PartitionChecker(nodes, metadata, story())
    metadata.on_change = checker.check_change
    for node_id in (leader, *nodes):  # no follower knows more
        checker.after_turn(nodes[node_id])
    topic = SimpleNamespace(name="t", topic_id=TOPIC_ID)
    metadata._check_partition(nodes[1], topic, 0, was)
    for machine in nodes.values():
        vars(machine).update({"has_bad_disk": False} | (meanwhile or {}).get(machine.node_id, {}))
    metadata._check_partition(nodes[1], topic, 0, now)
    return Counter(checker.looked)["RINV-33"]


def fails(now, log_ends, **more):
    with pytest.raises(InvariantViolationError, match="RINV-33"):
        told(now, log_ends, **more)


def test_a_move_that_ends_leaves_as_many_replicas_with_what_is_committed():
    """Of 1, 2 and 3 two had it: 3 has not caught up, and 4 alone is fewer (KAFKA-15665)."""
    fails(ENDED, (5, 5, 3, 5))
    assert told(ENDED, (5, 5, 5, 5)) == 1
    assert told(ENDED, (5, 4, 3, 5)) == 1, "one had it, and one has it"
    assert told(replace(ENDED, replicas=(4,)), (5, 5, 3, 5)) == 1, "the target has one replica"


def test_a_move_that_is_given_up_leaves_one_replica_with_what_is_committed():
    assert told(GIVEN_UP, (5, 4, 3, 5)) == 1
    fails(GIVEN_UP, (4, 4, 3, 5))
    assert told(replace(GIVEN_UP, isr=(), leader=NO_LEADER), (4, 4, 3, 5)) == 0, "it waits for an operator"
    assert told(replace(GIVEN_UP, leader_recovery_state=RECOVERING), (4, 4, 3, 5)) == 1, "who leads may lack it"


@pytest.mark.parametrize(
    "meanwhile",
    [
        {"is_running": False},
        {"start_count": 2},
        {"has_bad_disk": True},
        {"is_disk_failing": True},
        {"disk_since_ms": 11.0},
    ],
)
def test_what_a_disk_or_a_power_failure_took_is_not_lost_by_the_move(meanwhile):
    assert told(ENDED, (5, 5, 3, 5), meanwhile={3: meanwhile}) == 1
    assert told(GIVEN_UP, (4, 4, 3, 5), meanwhile={1: meanwhile}) == 1


def test_a_log_that_is_not_open_counts_for_neither_side():
    """Tables 9300007: it was in a directory that had failed."""
    assert told(ENDED, (5, 5, 3, 5), meanwhile={3: {"node": None}}) == 1
    assert told(ENDED, (5, 5, 3, 5), meanwhile={1: {"node": None}}) == 1


def test_replicas_that_stay_are_not_counted():
    grown = replace(STARTED, replicas=(1, 2, 3, 4), adding_replicas=(4,), partition_epoch=2)
    assert told(grown, (5, 4, 3, 0), was=replace(STARTED, partition_epoch=1)) == 0


def starts(log_start, *, now):
    """Broker 1 has a log that begins at 4, then a new process whose log begins elsewhere; it hears of ``now``."""
    machine = machine_of(1, partition_of(1, 1, high_watermark=5, log_end=5))
    machine.node.partitions[0].log.log_start_offset = 4
    nodes = dict.fromkeys((1, 2, 3), machine)
    metadata = MetadataChecker(nodes, story())
    checker = PartitionChecker(nodes, metadata, story())
    metadata.on_change = checker.check_change
    checker.after_turn(machine)
    metadata._check_partition(machine, SimpleNamespace(name="t", topic_id=TOPIC_ID), 0, now)
    again = partition_of(1, 1, high_watermark=5, log_end=5)
    again.log.log_start_offset = log_start
    machine.node.partitions = Partitions([again])
    machine.start_count += 1
    checker.after_turn(machine)


def test_a_replica_that_was_moved_away_while_its_broker_was_down_begins_anew():
    """Trims 9100013: the process that deleted its log had never opened it (RINV-19)."""
    starts(0, now=replace(STARTED, replicas=(2, 3), isr=(2,), leader=2))
    starts(4, now=STARTED)
    with pytest.raises(InvariantViolationError, match="RINV-19"):
        starts(0, now=STARTED)


def fewer_replicas_while_one_is_cut_off():
    """Three replicas of ``records``, of which the target has the leader and one that has fallen behind."""
    with Cluster(11, properties={**SETTINGS, "replica.lag.time.max.ms": "2000"}) as cluster:
        task = cluster.begin(records_every(cluster, 0.1))
        cluster.run_for(2_000)
        leader = cluster.nodes[cluster.leader_of("records", 0)].node_id
        behind, other = sorted({4, 5, 6} - {leader})
        for name in cluster.nodes:
            if name != f"broker-{behind}" and name.startswith("broker"):
                cluster.cut(f"broker-{behind}", name)
        image = cluster.nodes[cluster.controller].node.metadata.image

        def is_behind():
            return set(image.topics.by_name("records").partitions[0].isr) == {leader, other}

        cluster.run_until(is_behind, within_ms=20_000)
        cluster.run_for(2_000)
        cluster.move_partition("records", 0, (leader, behind))
        cluster.run_for(2_000)
        assert is_behind()
        cluster.become_quiet()
        cluster.recover()
        cluster.run_until(task.done, within_ms=120_000)
        task.result()
        assert ("records", 0, (leader, behind)) in cluster.assignments()
        assert cluster.checkers.looked["RINV-33"]


def test_a_move_to_fewer_replicas_waits_for_those_that_are_behind():
    fewer_replicas_while_one_is_cut_off()


def test_a_move_that_does_not_wait_is_noticed(monkeypatch):
    """KAFKA-15665: it ends with one replica in sync."""

    def complete(*, replicas, removing, adding, isr):
        if not adding and not removing:
            return None
        return CompletedReassignment(
            *(tuple(each for each in found if each not in removing) for found in (replicas, isr))
        )

    monkeypatch.setattr("kraftlog.controller.partition_change.complete_reassignment", complete)
    with pytest.raises(InvariantViolationError, match="RINV-33"):
        fewer_replicas_while_one_is_cut_off()
