"""kraftlog and Apache Kafka brokers replicate each other's partitions, under controllers of either program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interop.harness import DATA_PATH, Java, environment_flag
from interop.mixed.cluster import KAFKA, KRAFTLOG, Member, MixedCluster, eventually
from interop.mixed.counted_node import FETCHES_BY_LOOP, OUT, OUT_BY_LOOP, taken_from
from interop.mixed.load import Load

KAFKA_BROKER, KRAFTLOG_BROKER = 2, 3
WHOLE = environment_flag("KRAFTLOG_MIXED")


def under_kafka(cluster: MixedCluster) -> None:
    """A Kafka node is controller and broker 1, a Kafka broker is 2, a kraftlog broker 3."""
    cluster.add(KAFKA, "broker,controller", 1)
    cluster.add(KAFKA, "broker", 2)
    cluster.add(KRAFTLOG, "broker", 3)


def under_kraftlog(cluster: MixedCluster) -> None:
    """Three kraftlog controllers, Kafka brokers 1 and 2, and a kraftlog broker 3."""
    for node_id in (11, 12, 13):
        cluster.add(KRAFTLOG, "controller", node_id)
    cluster.add(KAFKA, "broker", 1)
    cluster.add(KAFKA, "broker", 2)
    cluster.add(KRAFTLOG, "broker", 3)


@pytest.fixture
def cluster(tmp_path: Path, java: Java) -> Iterator[MixedCluster]:
    made = MixedCluster(tmp_path, java)
    yield made
    made.close()


whole_only = pytest.mark.skipif(not WHOLE, reason="`.ci/dev mixed` runs the rest: it takes minutes")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("layout", [under_kafka, pytest.param(under_kraftlog, marks=whole_only)])
@pytest.mark.slow
def test_brokers_of_both_programs_replicate_each_other(
    cluster: MixedCluster, layout: Callable[[MixedCluster], None]
) -> None:
    layout(cluster)
    cluster.start()
    with Load(cluster, [[1, 2, 3], [2, 3, 1], [3, 1, 2]]) as load:
        load.wait_for_progress("start")
        load.check_java_clients()
        check_data_path(cluster)

        for victim in (KRAFTLOG_BROKER, KAFKA_BROKER):
            strike(cluster, load, cluster.members[victim])
        for controller in cluster.controllers:
            if not controller.is_broker and controller.node_id == cluster.active_controller():
                controller.kill()
                load.wait_for_progress("kill of the active controller")
                controller.start()
                break

        cluster.create_topic("moved", [1, 2], [2, 1], min_insync_replicas="1")
        load.fill("moved", 2)
        cluster.reassign("moved", {0: [3, 1], 1: [2, 3]})
        assert [cluster.topics()["moved"][index][1] for index in (0, 1)] == [[3, 1], [2, 3]]
        cluster.reassign("moved", {0: [2, 3], 1: [3, 1]})
        change_metadata(cluster)

        for node_id in (KRAFTLOG_BROKER, KAFKA_BROKER) if WHOLE else (KRAFTLOG_BROKER,):
            cluster.members[node_id].stop()
            load.wait_for_progress(f"controlled shutdown of {node_id}")
            cluster.members[node_id].start()
            cluster.wait_until_in_sync()
        cluster.elect_preferred()
        load.wait_for_progress("election")
        check_data_path(cluster)  # the throttle of the reassignment has ended
    load.check_all()
    topics = cluster.replicas()
    cluster.stop()
    cluster.assert_equal_replicas(topics)
    for member in cluster.members.values():
        assert not member.complaints(), member.complaints()[:10]


def check_data_path(cluster: MixedCluster) -> None:
    """I/O threads answer Kafka's followers, and the kraftlog broker follows Kafka's leaders."""
    member = cluster.members[KRAFTLOG_BROKER]
    counts_of_a_while(member)  # fetches that came while the node became leader may end on the event loop
    grown = counts_of_a_while(member)
    print(f"followers and leaders: {dict(grown)}", flush=True)
    if DATA_PATH == "native":
        assert grown[OUT] > 0 == grown[OUT_BY_LOOP] == grown[FETCHES_BY_LOOP]
    else:
        assert grown[OUT] == grown[OUT_BY_LOOP] > 0
    for leader in cluster.brokers:
        if leader.kind == KAFKA:
            assert grown[taken_from(leader.node_id)] > 0


def counts_of_a_while(member: Member) -> Counter[str]:
    """What a node counts while it answers some fetches."""
    before = member.counts()
    eventually(lambda: member.counts()[OUT] > before[OUT] + 50_000, "followers take nothing")
    return member.counts() - before


def change_metadata(cluster: MixedCluster) -> None:
    """A setting, a deleted topic and a feature level, which brokers of both programs apply."""
    cluster.create_topic("gone", [1, 3])
    cluster.tool("TopicCommand", "--delete", "--topic", "gone")
    cluster.features("downgrade", "--feature", "share.version=0")
    cluster.features("upgrade", "--feature", "share.version=1")
    topic = ("--entity-type", "topics", "--entity-name", "moved")
    cluster.configs(*topic, "--alter", "--add-config", "retention.ms=77000000")
    for member in cluster.brokers:
        eventually(
            lambda member=member: "gone" not in cluster.topics(member), f"{member.node_id} has the deleted topic"
        )
        where = f"127.0.0.1:{member.port}"
        eventually(
            lambda where=where: "retention.ms=77000000" in cluster.configs(*topic, "--describe", bootstrap=where),
            f"{member.node_id} does not have the setting",
        )
        directory = member.data_dir / "gone-0"
        eventually(lambda directory=directory: not directory.exists(), f"{directory} is there yet")


def strike(cluster: MixedCluster, load: Load, victim: Member) -> None:
    """Kill -9; others lead its partition, it follows them after its return, and is given its partition back."""
    index = {1: 0, 2: 1, 3: 2}[victim.node_id]
    assert cluster.leader(load.topic, index) == victim.node_id
    victim.kill()
    load.wait_for_progress(f"kill of {victim.kind} {victim.node_id}")
    victim.start()
    cluster.wait_until_in_sync()
    assert cluster.leader(load.topic, index) != victim.node_id
    cluster.elect_preferred()
    assert cluster.leader(load.topic, index) == victim.node_id
    load.wait_for_progress(f"election of {victim.kind} {victim.node_id}")
