"""Invariants of partitions in the metadata, after each record of random operations of a controller."""

from __future__ import annotations

from random import Random

import pytest

from kraftlog.controller import MetadataImage
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.features import LATEST_PRODUCTION, metadata_version_from_string
from kraftlog.wire.messages.alter_partition import AlterPartitionRequest
from kraftlog.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftlog.wire.messages.elect_leaders import ElectLeadersRequest
from metadata_fixture import cluster_of

BROKERS = 5
OPERATIONS = 150
WITHOUT_ELR = metadata_version_from_string("3.9")


class Shadow:
    """An image that replays record by record; what holds of a partition is checked after each."""

    def __init__(self, cluster):
        self.image = MetadataImage()
        self.cluster = cluster
        self.last = {}

    def replay(self, records):
        for record in records:
            self.image.replay(record)
            for topic in self.image.topics:
                for index, partition in topic.partitions.items():
                    self.check(index, partition)

    def check(self, index, partition):
        replicas, isr, elr = set(partition.replicas), set(partition.isr), set(partition.elr)
        assert replicas
        assert isr <= replicas
        assert elr <= replicas
        assert not isr & elr
        assert len(isr) == len(partition.isr)
        assert len(replicas) == len(partition.replicas)
        assert partition.leader == -1 or partition.leader in isr
        assert {*partition.adding_replicas, *partition.removing_replicas} <= replicas
        assert not set(partition.adding_replicas) & set(partition.removing_replicas)
        before = self.last.get(index)
        self.last[index] = partition
        if before is not None:
            assert partition.leader_epoch >= before.leader_epoch
            assert partition.partition_epoch >= before.partition_epoch
            assert before == partition or partition.partition_epoch == before.partition_epoch + 1
            assert before.leader == partition.leader or partition.leader_epoch > before.leader_epoch


def alter_partition(cluster, rng):
    partition = cluster.partition("t", rng.randrange(3))
    if partition.leader < 0:
        return
    wanted = {partition.leader, *rng.sample(partition.replicas, rng.randint(1, len(partition.replicas)))}
    data = AlterPartitionRequest.PartitionData(
        partition_index=next(i for i in range(3) if cluster.partition("t", i) is partition),
        leader_epoch=partition.leader_epoch - rng.choice((0, 0, 0, 1)),
        partition_epoch=partition.partition_epoch - rng.choice((0, 0, 0, 1)),
        new_isr_with_epochs=[AlterPartitionRequest.BrokerState(broker_id=member) for member in wanted],
    )
    topic_id = cluster.image.topics.by_name("t").topic_id
    cluster.ask(
        AlterPartitionRequest(
            broker_id=partition.leader,
            broker_epoch=cluster.image.cluster.brokers[partition.leader].epoch,
            topics=[AlterPartitionRequest.TopicData(topic_id=topic_id, partitions=[data])],
        )
    )


def reassign(cluster, rng):
    replicas = None if rng.random() < 0.4 else rng.sample(range(1, BROKERS + 1), rng.randint(1, 4))
    partition = AlterPartitionReassignmentsRequest.ReassignablePartition(
        partition_index=rng.randrange(3), replicas=replicas
    )
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name="t", partitions=[partition])
    return cluster.ask(AlterPartitionReassignmentsRequest(topics=[topic])).responses[0].partitions[0].error_code


def elect(cluster, rng):
    topic = ElectLeadersRequest.TopicPartitions(topic="t", partitions=[rng.randrange(3)])
    cluster.ask(ElectLeadersRequest(election_type=rng.choice((0, 0, 1)), topic_partitions=[topic]))


@pytest.mark.parametrize("version", [LATEST_PRODUCTION, WITHOUT_ELR], ids=["elr", "no elr"])
def test_each_record_of_random_operations_leaves_partitions_sound(version):
    """CPRT-102: fencing, unfencing, restarts, AlterPartition, reassignments and elections in any order."""
    changes = 0
    for seed in range(12):
        rng = Random(seed)
        cluster = cluster_of(BROKERS, version=version)
        shadow = Shadow(cluster)
        replayed = cluster.run

        def run(outcome, cluster=cluster, shadow=shadow, replayed=replayed):
            response = replayed(outcome)
            shadow.replay(cluster.records)
            return response

        for record, _ in cluster.image.to_records():
            shadow.image.replay(record)
        cluster.run = run
        cluster.create(
            "t", assignments=[(0, [1, 2, 3]), (1, [2, 3, 4]), (2, [5, 1, 2])], configs={"min.insync.replicas": "2"}
        )
        for number in range(OPERATIONS):
            broker_id = rng.randint(1, BROKERS)
            try:
                match rng.randrange(8):
                    case 0:
                        cluster.heartbeat(broker_id, want_fence=True)
                    case 1 | 2:
                        cluster.heartbeat(broker_id)
                    case 3:
                        registration = cluster.registration(broker_id, incarnation=1 + number % 200)
                        cluster.run(cluster.core.register_broker(registration, 1 << 40))
                    case 4:
                        assert reassign(cluster, rng) != ErrorCode.UNKNOWN_SERVER_ERROR
                    case 5:
                        elect(cluster, rng)
                    case _:
                        alter_partition(cluster, rng)
            except KafkaError as error:
                assert error.code != ErrorCode.UNKNOWN_SERVER_ERROR
        changes += sum(partition.partition_epoch for partition in shadow.last.values())
        assert {index: cluster.partition("t", index) for index in range(3)} == shadow.last
    assert changes > 500
