"""Settings of topics and brokers that change under load, in virtual time."""

from __future__ import annotations

from random import Random

from kraftlog.testing.scenario import ScheduledFault
from kraftlog.testing.world.cluster import Cluster
from kraftlog.testing.world.cluster_fault import happen
from kraftlog.testing.world.drawn_settings import DEFAULT, draw_broker_setting, draw_topic_setting
from kraftlog.testing.world.swarm import draw
from kraftlog.vocabulary import ConfigResourceType

from .workloads import TOPIC, records_every

SETTINGS = {"num.partitions": "1", "default.replication.factor": "3", "min.insync.replicas": "2"}


def drawn(draw_setting):
    """Every setting and value that may be drawn."""
    rng = Random(1)
    return sorted({tuple(draw_setting(rng).values()) for _ in range(2000)}, key=str)


def brokers(cluster):
    """The machines of brokers."""
    return [machine for machine in cluster.nodes.values() if "broker" in machine.roles]


def replicas(cluster, topic):
    """The replicas of a topic's first partition, of all brokers."""
    found = [machine.node.partitions for machine in brokers(cluster)]
    topic_id = cluster.nodes[cluster.controller].node.metadata.image.topics.by_name(topic).topic_id
    return [partitions.get(topic_id, 0) for partitions in found]


def test_each_setting_that_may_be_drawn_is_taken_while_records_are_written():
    topic_settings, broker_settings = drawn(draw_topic_setting), drawn(draw_broker_setting)
    assert len(topic_settings) > 40
    assert len(broker_settings) > 25
    with Cluster(9, properties=SETTINGS) as cluster:
        broker_id = str(next(machine.node_id for machine in brokers(cluster)))
        task = cluster.begin(records_every(cluster, 0.2))
        cluster.run_for(2_000)
        for number, (name, value) in enumerate(topic_settings + broker_settings):
            is_of_topic = number < len(topic_settings)
            kind = ConfigResourceType.TOPIC if is_of_topic else ConfigResourceType.BROKER
            resource = TOPIC if is_of_topic else ("", broker_id)[number % 2]
            cluster.configure(kind, resource, name, None if value == DEFAULT else str(value))
            cluster.run_until(lambda: not cluster.is_changing, within_ms=5_000)
            cluster.run_for(100)
        cluster.become_quiet()
        cluster.recover()
        cluster.run_until(task.done, within_ms=120_000)
        task.result()
        answers = [str(line) for line in cluster.story if "hears of its wish" in str(line)]
    assert len(answers) == len(topic_settings) + len(broker_settings)
    assert [answer for answer in answers if not answer.endswith(": NONE")] == []


def test_settings_are_in_effect_on_every_replica():
    with Cluster(10, properties=SETTINGS) as cluster:
        task = cluster.begin(records_every(cluster, 0.2))
        cluster.run_for(2_000)
        cluster.configure(ConfigResourceType.TOPIC, TOPIC, "min.insync.replicas", "3")
        cluster.configure(ConfigResourceType.TOPIC, TOPIC, "segment.ms", "300")
        cluster.configure(ConfigResourceType.BROKER, "", "compression.type", "zstd")
        cluster.run_for(5_000)
        found = replicas(cluster, TOPIC)
        assert [replica.config.min_insync_replicas for replica in found] == [3, 3, 3]
        assert [replica.config.recompresses for replica in found] == [True, True, True]
        assert all(len(replica.log.segments()) > 3 for replica in found)
        cluster.configure(ConfigResourceType.TOPIC, TOPIC, "min.insync.replicas", None)
        cluster.run_for(1_000)
        assert [replica.config.min_insync_replicas for replica in found] == [2, 2, 2]
        cluster.become_quiet()
        cluster.recover()
        cluster.run_until(task.done, within_ms=120_000)
        task.result()


def test_a_setting_that_cannot_be_is_refused_and_the_operator_goes_on():
    with Cluster(11, properties=SETTINGS) as cluster:
        task = cluster.begin(records_every(cluster, 0.2))
        cluster.run_for(2_000)
        cluster.configure(ConfigResourceType.TOPIC, "no-such-topic", "segment.ms", "300")
        cluster.configure(ConfigResourceType.TOPIC, TOPIC, "segment.ms", "never")
        cluster.configure(ConfigResourceType.BROKER, "", "log.roll.ms", "3000")
        cluster.run_until(lambda: not cluster.is_changing, within_ms=20_000)
        cluster.become_quiet()
        cluster.run_until(task.done, within_ms=120_000)
        answers = [str(line).rsplit(": ", 1)[1] for line in cluster.story if "hears of its wish" in str(line)]
    assert answers == ["UNKNOWN_TOPIC_OR_PARTITION", "INVALID_CONFIG", "NONE"]


def test_half_of_the_drawn_runs_change_settings_and_they_happen():
    runs = [draw(seed) for seed in range(200)]
    changing = [run for run in runs if any(fault.kind.startswith("configure_") for fault in run.faults)]
    assert 60 < len(changing) < 140
    with Cluster(12, properties=SETTINGS) as cluster:
        broker = ScheduledFault(0, "configure_broker", (("broker", 0), ("name", "log.roll.ms"), ("value", 300)))
        assert happen(cluster, ScheduledFault.parse(str(broker)))
        topic = ScheduledFault(0, "configure_topic", (("topic", 7), ("name", "segment.ms"), ("value", DEFAULT)))
        assert not happen(cluster, topic)  # there is none yet
        cluster.run_until(lambda: not cluster.is_changing, within_ms=5_000)
        assert "every broker has log.roll.ms=300: NONE" in str(cluster.story)
