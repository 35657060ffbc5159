"""AlterPartition: what is refused, in Kafka's order, and what is answered to the rest."""

from __future__ import annotations

import pytest

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import Uuid
from kraftlog.wire.messages.alter_partition import AlterPartitionRequest
from kraftlog.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftlog.wire.messages.metadata_records import PartitionChangeRecord
from metadata_fixture import cluster_of


def three(replicas=(1, 2, 3), *, min_isr=1, **changes):
    cluster = cluster_of(4, **changes)
    cluster.create("t", assignments=[(0, list(replicas))], configs={"min.insync.replicas": str(min_isr)})
    return cluster


def alter(cluster, *wanted, sender=1, broker_epoch=None, version=3, topic_id=None):
    """Ask for in-sync sets of partition 0: fields of the request besides those that are right."""
    epoch = cluster.image.cluster.brokers[sender].epoch if broker_epoch is None else broker_epoch
    partition = cluster.partition("t")
    partitions = []
    for fields in wanted:
        isr = fields.pop("isr")
        epochs = fields.pop("epochs", {})
        states = [
            AlterPartitionRequest.BrokerState(broker_id=member, broker_epoch=epochs.get(member, -1)) for member in isr
        ]
        values = {"leader_epoch": partition.leader_epoch, "partition_epoch": partition.partition_epoch}
        members = {"new_isr_with_epochs": states} if version >= 3 else {"new_isr": isr}
        partitions.append(AlterPartitionRequest.PartitionData(**(values | fields), **members))
    topic = AlterPartitionRequest.TopicData(
        topic_id=cluster.image.topics.by_name("t").topic_id if topic_id is None else topic_id, partitions=partitions
    )
    request = AlterPartitionRequest(broker_id=sender, broker_epoch=epoch, topics=[topic])
    return cluster.ask(request).topics[0].partitions


def code(cluster, **fields):
    sender = fields.pop("sender", 1)
    return alter(cluster, fields, sender=sender)[0].error_code


@pytest.mark.spec("CPRT-48")
def test_sender_with_another_broker_epoch_is_refused_altogether():
    cluster = three()
    with pytest.raises(KafkaError) as caught:
        alter(cluster, {"isr": [1]}, broker_epoch=0)
    assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.spec("CPRT-49")
def test_unknown_topic_and_partition_are_refused_each_in_its_place():
    cluster = three()
    for topic_id in (Uuid.ZERO, Uuid(b"u" * 16)):
        assert alter(cluster, {"isr": [1]}, topic_id=topic_id)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert code(cluster, isr=[1], partition_index=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.spec("CPRT-50", "CPRT-51", "CPRT-52", "CPRT-53")
def test_epochs_then_sender_then_set_then_recovery_state_are_checked():
    cluster = three()
    cluster.heartbeat(1, want_fence=True)  # 2 leads in leader epoch 1, partition epoch 1
    cluster.heartbeat(1)
    for fields, expected in (
        ({"leader_epoch": 2, "partition_epoch": 0}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 0, "partition_epoch": 2}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 0, "sender": 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"sender": 1, "partition_epoch": 0}, ErrorCode.INVALID_REQUEST),
        ({"partition_epoch": 0, "isr": [2, 9]}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"isr": [2, 4]}, ErrorCode.INVALID_REQUEST),
        ({"isr": [2, 2]}, ErrorCode.INVALID_REQUEST),
        ({"isr": [3]}, ErrorCode.INVALID_REQUEST),
        ({"isr": []}, ErrorCode.INVALID_REQUEST),
        ({"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ({"leader_recovery_state": 1, "isr": [2]}, ErrorCode.INVALID_REQUEST),
        ({"leader_recovery_state": 5, "isr": [2]}, ErrorCode.INVALID_REQUEST),
    ):
        assert code(cluster, **({"sender": 2, "isr": [2, 3]} | fields)) == expected, fields
        assert not cluster.records


@pytest.mark.spec("CPRT-54", "CPRT-26")
def test_fenced_leaving_and_restarted_brokers_are_ineligible_also_as_old_members():
    cluster = three()
    assert code(cluster, isr=[1, 2], epochs={2: 1}) == ErrorCode.INELIGIBLE_REPLICA
    epochs = {2: cluster.image.cluster.brokers[2].epoch}
    assert code(cluster, isr=[1, 2, 3], epochs=epochs) == ErrorCode.NONE
    cluster.create("led-by-3", assignments=[(0, [3, 1])])
    cluster.heartbeat(3, want_shut_down=True)
    assert code(cluster, isr=[1, 2, 3]) == ErrorCode.INELIGIBLE_REPLICA
    cluster.heartbeat(2, want_fence=True)
    assert code(cluster, isr=[1, 2]) == ErrorCode.INELIGIBLE_REPLICA
    assert alter(cluster, {"isr": [1, 2]}, version=2)[0].error_code == ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.spec("CPRT-55", "CPRT-56", "CPRT-40")
def test_answer_has_the_state_after_the_change():
    """RINV-80."""
    cluster = three()
    good, bad = alter(cluster, {"isr": [1, 3]}, {"isr": [1], "partition_index": 5})
    assert bad.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (good.leader_id, good.leader_epoch, good.isr, good.partition_epoch) == (1, 0, (1, 3), 1)
    assert cluster.records == [PartitionChangeRecord(topic_id=cluster.records[0].topic_id, partition_id=0, isr=(1, 3))]
    same = alter(cluster, {"isr": [1, 3]})[0]
    assert (same.error_code, same.partition_epoch) == (ErrorCode.NONE, 1)
    assert not cluster.records


@pytest.mark.spec("CPRT-59")
def test_repeated_request_is_told_that_its_partition_epoch_is_over():
    cluster = three()
    assert code(cluster, isr=[1, 2], partition_epoch=0) == ErrorCode.NONE
    before = cluster.partition("t")
    assert code(cluster, isr=[1, 2], partition_epoch=0) == ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.partition("t") == before


@pytest.mark.spec("CPRT-57", "CPRT-78", "CPRT-79", "RINV-83")
def test_change_that_ends_a_reassignment_away_from_the_leader_says_so_and_is_recorded():
    cluster = three((1, 2))
    target = AlterPartitionReassignmentsRequest.ReassignablePartition(replicas=[2, 3])
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name="t", partitions=[target])
    cluster.ask(AlterPartitionReassignmentsRequest(topics=[topic]))
    assert code(cluster, isr=[1, 2, 3]) == ErrorCode.NEW_LEADER_ELECTED
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr, partition.leader, partition.leader_epoch) == ((2, 3), (2, 3), 2, 1)
    assert not partition.is_reassigning


@pytest.mark.spec("CPRT-36", "CPRT-38", "CPRT-53", "CPRT-69", "RINV-29")
def test_leader_after_an_unclean_election_recovers_alone_then_says_that_it_has():
    cluster = cluster_of(2)
    configs = {"unclean.leader.election.enable": "true"}
    cluster.create("t", assignments=[(0, [1, 2])], configs=configs)
    assert alter(cluster, {"isr": [1]})[0].error_code == ErrorCode.NONE
    cluster.heartbeat(2, want_fence=True)
    cluster.heartbeat(1, want_fence=True)
    cluster.register(1, incarnation=1)  # uncleanly: it may not lead by the ELR
    cluster.heartbeat(2)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.leader_recovery_state, partition.elr) == (2, (2,), 1, ())
    cluster.heartbeat(1)
    assert code(cluster, sender=2, isr=[2, 1], leader_recovery_state=1) == ErrorCode.INVALID_REQUEST
    assert code(cluster, sender=2, isr=[2], leader_recovery_state=1) == ErrorCode.NONE
    assert not cluster.records
    assert code(cluster, sender=2, isr=[2, 1], leader_recovery_state=0) == ErrorCode.NONE
    assert cluster.partition("t").leader_recovery_state == 0


@pytest.mark.spec("CPRT-60", "CPRT-61", "CPRT-68", "RINV-26")
def test_eligible_leader_replicas_are_those_that_left_below_the_minimum():
    cluster = three((1, 2, 3, 4), min_isr=3)
    assert code(cluster, isr=[1, 2]) == ErrorCode.NONE
    assert cluster.partition("t").elr == (3, 4)
    assert code(cluster, isr=[1]) == ErrorCode.NONE
    assert cluster.partition("t").elr == (2, 3, 4)
    assert code(cluster, isr=[1, 3]) == ErrorCode.NONE
    assert cluster.partition("t").elr == (2, 4)
    assert code(cluster, isr=[1, 3, 4]) == ErrorCode.NONE
    assert cluster.partition("t").elr == ()
