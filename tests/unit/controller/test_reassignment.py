"""Reassignments: what they go through, when they end, and what is left when they are cancelled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraftlog.controller.directory import DIRECTORY_UNASSIGNED
from kraftlog.controller.reassignment import Reassignment, RevertedReassignment, complete_reassignment
from kraftlog.controller.topic_image import RECOVERING
from kraftlog.errors import ErrorCode
from kraftlog.types import Uuid
from kraftlog.wire.messages.alter_partition import AlterPartitionRequest
from kraftlog.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftlog.wire.messages.create_partitions import CreatePartitionsRequest
from metadata_fixture import cluster_of, directory_of


def reassign(cluster, replicas, *, index=0, allow=True, name="t"):
    """Ask for one reassignment; None cancels it."""
    partition = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=index, replicas=replicas)
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name=name, partitions=[partition])
    request = AlterPartitionReassignmentsRequest(topics=[topic], allow_replication_factor_change=allow)
    return cluster.ask(request).responses[0].partitions[0].error_code


def set_isr(cluster, *isr):
    partition = cluster.partition("t")
    wanted = AlterPartitionRequest.PartitionData(
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr_with_epochs=[AlterPartitionRequest.BrokerState(broker_id=member) for member in isr],
    )
    topic_id = cluster.image.topics.by_name("t").topic_id
    request = AlterPartitionRequest(
        broker_id=partition.leader,
        broker_epoch=cluster.image.cluster.brokers[partition.leader].epoch,
        topics=[AlterPartitionRequest.TopicData(topic_id=topic_id, partitions=[wanted])],
    )
    return cluster.ask(request).topics[0].partitions[0].error_code


def topic_on(*replicas, brokers=6, configs=None):
    cluster = cluster_of(brokers)
    cluster.create("t", assignments=[(0, list(replicas))], configs=configs)
    return cluster


@pytest.mark.spec("CPRT-75")
def test_lists_of_a_reassignment_follow_from_both_sets():
    assert Reassignment.of((1, 2, 3), (5, 4, 3)) == Reassignment((5, 4, 3, 1, 2), (4, 5), (1, 2))
    cluster = topic_on(1, 2, 3)
    assert reassign(cluster, [5, 4, 3]) == ErrorCode.NONE
    partition = cluster.partition("t")
    assert (partition.replicas, partition.adding_replicas, partition.removing_replicas) == (
        (5, 4, 3, 1, 2),
        (4, 5),
        (1, 2),
    )
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 0, 1)


@pytest.mark.spec("CPRT-78", "RINV-82")
@pytest.mark.parametrize(
    ("replicas", "removing", "adding", "isr", "expected"),
    [
        ((1, 2), (), (), (1, 2), None),
        ((3, 1), (1,), (3,), (1,), None),
        ((3, 1), (1,), (3,), (1, 3), ((3,), (3,))),
        ((3, 4, 1), (1,), (3, 4), (3, 1), None),
        ((2, 3, 1), (1,), (3,), (3, 1), ((2, 3), (3,))),
        # Fewer are added than removed: 5 alone would be a smaller in-sync set than 1, 2 and 5 (KAFKA-15665).
        ((3, 4, 5, 1, 2), (1, 2), (5,), (1, 2, 5), None),
        ((3, 4, 5, 1, 2), (1, 2), (5,), (5, 4, 3, 2), ((3, 4, 5), (5, 4, 3))),
    ],
)
def test_reassignment_ends_when_the_in_sync_set_is_ready(replicas, removing, adding, isr, expected):
    completed = complete_reassignment(replicas=replicas, removing=removing, adding=adding, isr=isr)
    assert (None if completed is None else (completed.replicas, completed.isr)) == expected


@pytest.mark.spec("CPRT-76")
def test_permutation_is_done_in_one_record():
    cluster = topic_on(1, 2, 3)
    assert reassign(cluster, [3, 2, 1]) == ErrorCode.NONE
    assert len(cluster.records) == 1
    partition = cluster.partition("t")
    assert (partition.replicas, partition.is_reassigning, partition.leader) == ((3, 2, 1), False, 1)
    assert partition.directories == (directory_of(3), directory_of(2), directory_of(1))


@pytest.mark.spec("CPRT-77", "CPRT-41")
def test_smaller_set_that_is_in_sync_is_done_at_once_and_raises_the_leader_epoch():
    cluster = topic_on(1, 2, 3)
    assert reassign(cluster, [1, 2]) == ErrorCode.NONE
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr, partition.leader, partition.leader_epoch) == ((1, 2), (1, 2), 1, 1)


@pytest.mark.spec("CPRT-80", "CPRT-81", "CPRT-82")
def test_bad_targets_are_refused():
    cluster = topic_on(1, 2, 3)
    cluster.heartbeat(4, want_fence=True)
    for replicas, expected in (
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ):
        assert reassign(cluster, replicas) == expected
    assert reassign(cluster, [1], index=1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(cluster, [1], name="none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(cluster, [1, 2], allow=False) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(cluster, [4, 5, 6], allow=False) == ErrorCode.NONE  # a fenced broker is allowed
    assert reassign(cluster, [1, 2, 3, 4], allow=False) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(cluster, [1, 2, 5], allow=False) == ErrorCode.NONE


@pytest.mark.spec("CPRT-82")
def test_cancelling_drops_what_was_added_and_moves_its_leader():
    cluster = topic_on(1, 2)
    reassign(cluster, [3, 4])
    assert set_isr(cluster, 1, 2, 3) == ErrorCode.NONE
    for broker_id in (1, 2):
        cluster.heartbeat(broker_id, want_fence=True)
        cluster.heartbeat(broker_id)
    assert cluster.partition("t").leader == 3
    assert reassign(cluster, None) == ErrorCode.INVALID_REPLICA_ASSIGNMENT  # only an added replica is in sync
    assert set_isr(cluster, 3, 1) == ErrorCode.NONE
    before = cluster.partition("t")
    assert reassign(cluster, None) == ErrorCode.NONE
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 2), (1,), 1)
    assert partition.leader_epoch == before.leader_epoch + 1
    assert not partition.is_reassigning


@pytest.mark.spec("CPRT-83", "RINV-29")
def test_cancelling_uncleanly_takes_the_first_original_replica():
    cluster = topic_on(1, 2, configs={"unclean.leader.election.enable": "true"})
    reassign(cluster, [3, 4])
    set_isr(cluster, 1, 3)
    cluster.heartbeat(1, want_fence=True)
    cluster.heartbeat(1)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (3, (3,))
    reverted = RevertedReassignment.of(cluster.partition("t"), is_elr_enabled=True)
    assert (reverted.replicas, reverted.isr, reverted.is_unclean) == ((1, 2), (1,), True)
    assert reassign(cluster, None) == ErrorCode.NONE
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (1, (1,), RECOVERING)


@pytest.mark.spec("RINV-23")
@pytest.mark.parametrize("is_unclean", [True, False])
def test_cancelling_without_a_replica_in_sync_leaves_the_election_to_eligible_ones(is_unclean):
    """Kafka makes the first replica the only one in sync, or refuses."""
    configs = {"min.insync.replicas": "2", "unclean.leader.election.enable": str(is_unclean).lower()}
    cluster = topic_on(1, 2, 3, configs=configs)
    assert set_isr(cluster, 1) == ErrorCode.NONE
    reassign(cluster, [1, 4, 5])
    for broker_id in (2, 3, 4, 5, 1):
        cluster.heartbeat(broker_id, want_fence=True)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (-1, (), (1, 2, 3))
    assert reassign(cluster, None) == ErrorCode.NONE
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr, partition.elr) == ((1, 2, 3), (), (1, 2, 3))
    cluster.heartbeat(2)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, (2,), 0)


@pytest.mark.spec("RINV-23", "RINV-29")
@pytest.mark.parametrize("is_unclean", [True, False])
def test_cancelling_elects_an_eligible_leader_if_only_an_added_replica_is_in_sync(is_unclean):
    """Kafka makes the first replica the only one in sync, which may lack records, or refuses."""
    configs = {"min.insync.replicas": "2", "unclean.leader.election.enable": str(is_unclean).lower()}
    cluster = topic_on(1, 2, configs=configs)
    reassign(cluster, [3, 4])
    assert set_isr(cluster, 1, 2, 3) == ErrorCode.NONE
    for broker_id in (1, 2):
        cluster.heartbeat(broker_id, want_fence=True)
    for broker_id in (1, 2):
        cluster.heartbeat(broker_id)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (3, (3,), (2,))
    assert reassign(cluster, None) == ErrorCode.NONE
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr, partition.elr) == ((1, 2), (2,), ())
    assert (partition.leader, partition.leader_recovery_state) == (2, 0)


@pytest.mark.spec("RINV-29")
@pytest.mark.parametrize(
    ("isr", "eligible", "last_known", "is_elr_enabled", "expected"),
    [
        ((), (4,), (), True, ((1, 2), (1,), True)),
        ((), (), (), True, ((1, 2), (), False)),
        ((), (), (2,), True, ((1, 2), (), False)),
        ((), (), (4,), True, ((1, 2), (1,), True)),
        ((), (2,), (4,), True, ((1, 2), (), False)),
        ((3,), (2,), (), True, ((1, 2), (), False)),
        ((3,), (4,), (), True, ((1, 2), (1,), True)),
        ((3,), (2,), (), False, ((1, 2), (1,), True)),
        ((3, 2), (1,), (), True, ((1, 2), (2,), False)),
    ],
)
def test_cancelling_is_unclean_if_no_replica_with_everything_stays(isr, eligible, last_known, is_elr_enabled, expected):
    cluster = topic_on(1, 2)
    reassign(cluster, [3, 4])
    partition = replace(cluster.partition("t"), isr=isr, elr=eligible, last_known_elr=last_known, leader=-1)
    reverted = RevertedReassignment.of(partition, is_elr_enabled=is_elr_enabled)
    assert (reverted.replicas, reverted.isr, reverted.is_unclean) == expected


@pytest.mark.spec("CPRT-84")
def test_new_target_is_compared_with_the_replicas_there_are():
    cluster = topic_on(1, 2, 3)
    reassign(cluster, [1, 2, 4])
    reassign(cluster, [1, 2, 5])
    partition = cluster.partition("t")
    assert partition.replicas == (1, 2, 5, 3, 4)
    assert (partition.adding_replicas, partition.removing_replicas) == ((5,), (3, 4))


def test_new_target_that_adds_nothing_ends_rather_than_waits_for_what_it_removes():
    cluster = topic_on(1, 2, 3)
    reassign(cluster, [1, 2, 4])
    assert reassign(cluster, [1, 2, 3]) == ErrorCode.NONE
    partition = cluster.partition("t")
    assert (partition.replicas, partition.is_reassigning) == ((1, 2, 3), False)


@pytest.mark.spec("CPRT-86")
def test_new_replicas_get_the_only_directory_of_their_broker():
    cluster = cluster_of(2)
    cluster.add_broker(3, log_dirs=[directory_of(3), Uuid(b"d" * 16)])
    cluster.create("t", assignments=[(0, [1])])
    reassign(cluster, [1, 2, 3])
    assert cluster.partition("t").directories == (directory_of(1), directory_of(2), DIRECTORY_UNASSIGNED)


@pytest.mark.spec("CPRT-87")
def test_partitions_are_added_while_others_move_with_the_replicas_that_those_have_now():
    cluster = topic_on(1, 2)
    assert reassign(cluster, [3, 4]) == ErrorCode.NONE
    for count in (2, 3):
        wanted = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=count, assignments=None)
        response = cluster.run(cluster.core.create_partitions(CreatePartitionsRequest(topics=[wanted])))
        assert response.results[0].error_code == ErrorCode.NONE
        assert cluster.partition("t").is_reassigning
        assert len(cluster.partition("t", count - 1).replicas) == 4 == len(cluster.partition("t").replicas)
    assert reassign(cluster, None) == ErrorCode.NONE
    wanted = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=4, assignments=None)
    cluster.run(cluster.core.create_partitions(CreatePartitionsRequest(topics=[wanted])))
    assert len(cluster.partition("t", 3).replicas) == 2


@pytest.mark.spec("RINV-26")
def test_removed_replicas_are_no_eligible_leaders():
    """Fails before the fix: with fewer replicas than min.insync.replicas, brokers without a log could be elected."""
    cluster = topic_on(1, 2, 3, configs={"min.insync.replicas": "2"})
    assert reassign(cluster, [5]) == ErrorCode.NONE
    assert set_isr(cluster, 1, 2, 3, 5) == ErrorCode.NEW_LEADER_ELECTED
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr, partition.elr, partition.leader) == ((5,), (5,), (), 5)
    cluster.heartbeat(5, want_fence=True)
    partition = cluster.partition("t")
    assert (partition.leader, partition.elr) == (-1, (5,))
