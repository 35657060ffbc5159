"""AssignReplicasToDirs: which directory holds a replica, and what follows if it is not online."""

from __future__ import annotations

import pytest

from kraftlog.controller.directory import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    is_directory_online,
)
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.features import metadata_version_from_string
from kraftlog.types import Uuid
from kraftlog.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from metadata_fixture import cluster_of, directory_of

SECOND = Uuid(b"2" * 16)


def assign(cluster, directory, *wanted, broker_id=2, epoch=None):
    """The error of each (topic id, index)."""
    topics = [
        AssignReplicasToDirsRequest.TopicData(
            topic_id=topic_id, partitions=[AssignReplicasToDirsRequest.PartitionData(partition_index=index)]
        )
        for topic_id, index in wanted
    ]
    request = AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=cluster.image.cluster.brokers[broker_id].epoch if epoch is None else epoch,
        directories=[AssignReplicasToDirsRequest.DirectoryData(id=directory, topics=topics)],
    )
    response = cluster.ask(request)
    return [topic.partitions[0].error_code for topic in response.directories[0].topics]


def two_directories(**changes):
    cluster = cluster_of(1, **changes)
    cluster.add_broker(2, log_dirs=[directory_of(2), SECOND])
    topic_id = cluster.create("t", assignments=[(0, [2, 1])]).topic_id
    cluster.create("u", assignments=[(0, [1])])
    return cluster, topic_id


@pytest.mark.spec("CPRT-97")
def test_directories_are_recorded_and_strangers_refused_each_in_its_place():
    cluster, topic_id = two_directories()
    assert cluster.partition("t").directories == (DIRECTORY_UNASSIGNED, directory_of(1))
    other = cluster.image.topics.by_name("u").topic_id
    wanted = [(topic_id, 0), (topic_id, 4), (Uuid(b"n" * 16), 0), (other, 0)]
    assert assign(cluster, SECOND, *wanted) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ]
    partition = cluster.partition("t")
    assert (partition.directories, partition.leader_epoch, partition.partition_epoch) == (
        (SECOND, directory_of(1)),
        0,
        1,
    )
    assert assign(cluster, SECOND, (topic_id, 0)) == [ErrorCode.NONE]
    assert not cluster.records


@pytest.mark.spec("CPRT-97")
def test_stale_epochs_and_old_metadata_versions_are_refused():
    cluster, topic_id = two_directories()
    with pytest.raises(KafkaError) as caught:
        assign(cluster, SECOND, (topic_id, 0), epoch=0)
    assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH
    cluster, topic_id = two_directories(version=metadata_version_from_string("3.6"))
    with pytest.raises(KafkaError) as caught:
        assign(cluster, SECOND, (topic_id, 0))
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.spec("CPRT-98")
@pytest.mark.parametrize("directory", [DIRECTORY_LOST, Uuid(b"g" * 16)])
def test_directory_that_is_not_online_takes_the_broker_out(directory):
    cluster, topic_id = two_directories()
    assert assign(cluster, directory, (topic_id, 0)) == [ErrorCode.NONE]
    partition = cluster.partition("t")
    assert (partition.directories[0], partition.leader, partition.isr) == (directory, 1, (1,))
    cluster.heartbeat(1, want_fence=True)
    assert cluster.partition("t").leader == -1  # its broker lives, its directory does not


def test_reserved_ids_and_unknown_sets():
    # As Kafka 4.3.1 writes them; UNASSIGNED was taken for MIGRATING once.
    reserved = (DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, DIRECTORY_LOST)
    assert [int.from_bytes(directory, "big") for directory in reserved] == [0, 1, 2]
    assert is_directory_online(DIRECTORY_UNASSIGNED, [SECOND])
    assert is_directory_online(DIRECTORY_MIGRATING, [SECOND])
    assert not is_directory_online(DIRECTORY_LOST, [])
    assert is_directory_online(SECOND, [])
    assert not is_directory_online(SECOND, [directory_of(1)])
