"""Voters and feature levels that change under load, and replicas of ``kraftlog.Quorum``, in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from contextlib import suppress

import pytest

from kraftlog.client.async_consumer import AsyncConsumer
from kraftlog.client.async_producer import AsyncProducer
from kraftlog.errors import ErrorCode
from kraftlog.runtime.raft.raft_gauges import raft_state
from kraftlog.testing import InvariantViolationError
from kraftlog.testing.world.cluster import Cluster
from kraftlog.testing.world.history import CommandHistory
from kraftlog.testing.world.node_machine import NodeMachine
from kraftlog.testing.world.quorum_cluster import QuorumCluster, commands
from kraftlog.testing.world.swarm import ClusterScenario, run
from kraftlog.wire.messages.create_topics import CreateTopicsRequest

from .broker_links import PASSING, BrokerLinks
from .group_workload import PROTOCOLS
from .workloads import TOPIC, records_every

SETTINGS = {"num.partitions": "1", "default.replication.factor": "3", "min.insync.replicas": "2"}
LEVELS = {"kraft.version": 0, "metadata.version": 25, "transaction.version": 0}


def test_features_are_upgraded_and_a_voter_is_changed_under_load():
    """A static quorum of an earlier release becomes a dynamic one; its active controller leaves it and comes back."""
    with Cluster(6, properties=SETTINGS, levels=LEVELS) as cluster:
        task = cluster.begin(records_every(cluster, 0.2))
        # By then every voter has told the active controller which levels of kraft.version it supports.
        cluster.run_for(3_000)
        for feature in LEVELS:
            cluster.update_feature(feature)
        cluster.run_until(lambda: not cluster.is_changing, within_ms=20_000)
        removed = cluster.controller
        cluster.remove_voter(removed)
        cluster.run_until(lambda: not cluster.is_changing, within_ms=20_000)
        cluster.run_until(lambda: cluster.controller not in {removed, None}, within_ms=20_000)
        log = cluster.nodes[cluster.controller].node.metadata.replica.log
        assert len(log.raft.voters.ids) == 2
        cluster.add_voter(removed)
        cluster.run_until(lambda: not cluster.is_changing, within_ms=20_000)
        cluster.become_quiet()
        cluster.recover()
        cluster.run_until(task.done, within_ms=120_000)
        task.result()
        story = str(cluster.story)
        levels = cluster.nodes[cluster.controller].node.metadata.image.features
        voters = cluster.nodes[cluster.controller].node.metadata.replica.raft.voters.ids
    assert story.count(": NONE") == 5, story
    assert levels["transaction.version"] == 2
    assert len(voters) == 3


async def create_topics(cluster, created):
    """Create one topic after the other; keep the names of those that a broker says are there."""
    links = BrokerLinks(cluster, "creator")
    for number in itertools.count():
        topic = CreateTopicsRequest.CreatableTopic(name=f"topic-{number}", num_partitions=1, replication_factor=1)
        with suppress(*PASSING):
            answer = await links.ask(links.any(), CreateTopicsRequest(topics=[topic], timeout_ms=2_000))
            if answer.topics[0].error_code == ErrorCode.NONE:
                created.append(answer.topics[0].name)
        await asyncio.sleep(0.05)


def test_a_controller_cut_off_from_the_others_promises_nothing():
    """INV-12: it proposes what brokers ask for until it resigns; none of that is ever committed."""
    created = []
    with Cluster(5) as cluster:
        cluster.begin(create_topics(cluster, created))
        cluster.run_for(2_000)
        count = len(created)
        lonely = cluster.controller
        for name in cluster.nodes:
            if name.startswith("controller") and name != lonely:
                cluster.cut(lonely, name)
        log = cluster.nodes[lonely].replicated_log
        cluster.run_until(lambda: len(log.pending) > 1, within_ms=5_000)
        cluster.run_until(lambda: cluster.controller not in {lonely, None}, within_ms=20_000)
        cluster.run_for(2_000)
        assert not log.pending
        cluster.recover()
        images = [node.node.metadata.image.topics for node in cluster.nodes.values()]
        found = [{topic.name for topic in topics} for topics in images]
        looked = cluster.checkers.looked
    assert len(created) > count > 0
    assert all(names >= set(created) for names in found)
    assert looked["INV-12"] >= len(created)


def test_partitions_are_moved_and_led_by_their_first_replica_under_load():
    with Cluster(3, brokers=4, properties=SETTINGS) as cluster:
        task = cluster.begin(records_every(cluster, 0.1))
        cluster.run_for(2_000)
        ((_, _, before),) = [found for found in cluster.assignments() if found[0] == "records"]
        (unused,) = {4, 5, 6, 7} - set(before)
        cluster.move_partition("records", 0, (unused, before[0]))
        cluster.run_for(500)
        cluster.power_off(f"broker-{before[0]}")
        cluster.run_for(1_000)
        cluster.start(f"broker-{before[0]}")
        cluster.run_until(lambda: ("records", 0, (unused, before[0])) in cluster.assignments(), within_ms=30_000)
        cluster.elect_preferred("records", 0)
        cluster.run_until(lambda: not cluster.is_changing, within_ms=30_000)
        assert cluster.leader_of("records", 0) == f"broker-{unused}"
        cluster.become_quiet()
        cluster.recover()
        cluster.run_until(task.done, within_ms=120_000)
        task.result()


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda settings: "-".join(settings.values()))
@pytest.mark.slow
def test_members_and_producers_find_the_partitions_that_a_topic_gets(protocol):
    """A partition that is added holds records, all of which the group reads."""
    properties = SETTINGS | {"group.consumer.heartbeat.interval.ms": "1000"}
    with Cluster(5, properties=properties) as cluster:
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "metadata.max.age.ms": "2000"}
        written, read = set(), set()

        async def write():
            async with AsyncProducer({**settings, "linger.ms": "0"}) as producer:
                number = 0
                while not cluster.is_quiet:
                    number += 1
                    written.add(number)
                    await (await producer.send(TOPIC, str(number).encode(), key=str(number).encode()))
                    await asyncio.sleep(0.05)

        async def work():
            group = {"group.id": "workers", "auto.offset.reset": "earliest", **protocol}
            async with AsyncConsumer({**settings, **group}) as consumer:
                consumer.subscribe([TOPIC])
                while True:
                    read.update((record.partition, int(record.value)) for record in await consumer.poll_records(0.5))

        writer = cluster.begin(write(), client="writer")
        members = [cluster.begin(work(), client=f"member-{number}") for number in range(2)]
        cluster.run_for(3_000)
        assert cluster.growing_topics() == {TOPIC: 1}
        cluster.grow_topic(TOPIC, 3)
        cluster.run_for(15_000)
        assert cluster.growing_topics() == {TOPIC: 3}
        cluster.grow_topic(TOPIC, 3)
        cluster.run_until(lambda: not cluster.is_changing, within_ms=30_000)
        cluster.become_quiet()
        cluster.run_until(lambda: {number for _, number in read} >= written, within_ms=30_000)
        assert {partition for partition, _ in read} == {0, 1, 2}
        assert len(read) == len(written)
        story = str(cluster.story)
        for task in (writer, *members):
            task.cancel()
    assert [line.rpartition(": ")[2] for line in story.splitlines() if "hears" in line] == [
        "NONE",
        "INVALID_PARTITIONS",
    ]


def test_commands_of_a_quorum_are_linearizable_under_faults():
    text = """
    world seed=3 controllers=3 brokers=0
    set controller.quorum.election.timeout.ms=500
    set controller.quorum.fetch.timeout.ms=1000
    set metadata.log.max.record.bytes.between.snapshots=2000
    at 2000 power_off_all data=everything names=everything for_ms=400
    at 4000 isolate node=controller for_ms=2500
    at 7000 power_off node=controller data=torn names=suffix for_ms=500
    at 9000 power_off_all data=everything names=everything for_ms=400
    at 11000 change_voters node=1 for_ms=500
    end 14000
    """
    outcome = run(ClusterScenario.parse(text), commands, cluster_type=QuorumCluster)
    assert outcome.error is None, outcome.error
    assert outcome.fault_count == 5
    story = "\n".join(outcome.story)
    assert "commands were committed, in one order" in story
    assert story.count(": NONE") == 2, story


def history():
    found = CommandHistory()
    found.proposed(b"a", 10)
    found.committed(b"a", 5, 20)
    found.proposed(b"b", 30)
    for replica in ("one", "two"):
        found.applied(replica, 5, b"a", 7)
    return found


def test_commands_that_are_lost_repeated_or_out_of_order_are_noticed():
    found = history()
    found.applied("one", 6, b"b")
    found.committed(b"b", 6, 40)
    found.read([6], 35, 45)
    found.read([5], 25, 35)
    found.check()
    for change, expected in (
        (lambda found: found.applied("two", 5, b"b"), "INV-06"),
        (lambda found: found.applied("two", 6, b"a"), "INV-06"),
        (lambda found: found.applied("two", 6, b"x"), "INV-06"),
        (lambda found: found.applied("two", 5, b"a", 8), "INV-06"),
        (lambda found: found.committed(b"b", 6, 40), "INV-03"),
        (lambda found: found.refused(b"a"), "LINEARIZABLE"),
        (lambda found: found.applied("one", 4, b"b"), "LINEARIZABLE"),
        (lambda found: found.read([], 25, 30), "LINEARIZABLE"),
    ):
        found = history()
        change(found)
        with pytest.raises(InvariantViolationError) as raised:
            found.check()
        assert raised.value.identifier == expected


def test_what_follows_a_replica_gets_every_command_once_in_order():
    def followed(*pairs):
        found = CommandHistory()
        for offset, command in ((5, b"a"), (7, b"b"), (9, b"c")):
            found.proposed(command, 10)
            found.applied("one", offset, command)
        offsets = found.follow()
        for offset, command in pairs:
            found.followed(offsets, offset, command)
        found.check()

    followed()
    followed((5, b"a"), (7, b"b"), (9, b"c"))
    followed((7, b"b"), (9, b"c"))
    for wrong, expected in (
        (((5, b"a"), (9, b"c")), "LINEARIZABLE"),
        (((7, b"b"), (7, b"b")), "INV-06"),
        (((7, b"b"), (5, b"a")), "INV-06"),
        (((5, b"b"),), "INV-06"),
        (((6, b"x"),), "INV-06"),
    ):
        with pytest.raises(InvariantViolationError, match=expected):
            followed(*wrong)


def test_what_the_metrics_show_of_a_replica_is_what_its_core_is_after_every_turn():
    """The gauges are computed anew only when something that they show may have changed."""
    compared = Counter()

    def compare(machine):
        node = machine.node if isinstance(machine, NodeMachine) else None
        if node is None or not hasattr(node, "metadata") or not node.metadata.replica.is_opened:
            return
        log = node.metadata.replica.log
        now = raft_state(log.raft, 0)
        shown = log.driver.metrics.state
        # A new leader shows what it knew before until it knows what is committed; observers have a test of their own.
        now = now._replace(high_watermark=max(now.high_watermark, shown.high_watermark))
        assert shown._replace(observer_count=None) == now._replace(observer_count=None), machine.name
        compared[shown.state] += 1

    with Cluster(11) as cluster:
        cluster.world.watchers.append(compare)
        cluster.run_for(2_000)
        cluster.remove_voter("controller-2")
        cluster.run_until(lambda: not cluster.is_changing, within_ms=60_000)
        cluster.add_voter("controller-2")
        cluster.run_until(lambda: not cluster.is_changing, within_ms=60_000)
        lost = cluster.controller
        cluster.power_off(lost)
        cluster.run_for(8_000)
        cluster.start(lost)
        cluster.isolate(cluster.controller)
        cluster.run_for(8_000)
        cluster.become_quiet()
        cluster.recover()
    assert {"leader", "follower", "observer", "candidate", "prospective"} <= compared.keys(), compared
