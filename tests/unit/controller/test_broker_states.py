"""Registration and the states that heartbeats lead to: fenced, unfenced, in controlled shutdown, gone."""

from __future__ import annotations

import pytest

from kraftlog.controller.result import ControllerResult
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import Uuid
from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftlog.wire.messages.broker_registration import BrokerRegistrationRequest
from kraftlog.wire.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from metadata_fixture import Cluster, cluster_of, directory_of


def code_of(call, *args, **fields):
    with pytest.raises(KafkaError) as caught:
        call(*args, **fields)
    return caught.value.code


def features(**ranges):
    return [
        BrokerRegistrationRequest.Feature(
            name=name.replace("_", "."), min_supported_version=low, max_supported_version=high
        )
        for name, (low, high) in ranges.items()
    ]


@pytest.mark.spec("CPRT-01", "CPRT-05", "CPRT-06", "CPRT-07")
def test_registration_is_refused_with_kafkas_error():
    cluster = cluster_of(1)
    register = cluster.register
    assert code_of(register, 2, cluster_id="other") == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert code_of(register, 2, is_migrating_zk_broker=True) == ErrorCode.BROKER_ID_NOT_REGISTERED
    for log_dirs in ([], [Uuid(bytes(15) + b"\x63")], [directory_of(2)] * 2, [directory_of(1)]):
        assert code_of(register, 2, log_dirs=log_dirs) == ErrorCode.INVALID_REGISTRATION
    for named, expected in (
        (features(metadata_version=(7, 29)), ErrorCode.UNSUPPORTED_VERSION),
        (features(metadata_version=(7, 30)), ErrorCode.UNSUPPORTED_VERSION),  # the others count as 0-0
        (features(metadata_version=(7, 30), unknown=(1, 2)), ErrorCode.UNSUPPORTED_VERSION),
        (features(kraft_version=(0, 1)), ErrorCode.INVALID_REGISTRATION),
    ):
        assert code_of(register, 2, features=named) == expected
    assert 2 not in cluster.image.cluster.brokers


@pytest.mark.spec("CPRT-04", "RINV-78")
def test_same_incarnation_keeps_epoch_and_state_and_replaces_the_rest():
    cluster = cluster_of(1)
    cluster.create("t")
    epoch = cluster.image.cluster.brokers[1].epoch
    cluster.heartbeat(1, want_shut_down=True)
    assert cluster.register(1, rack="r", log_dirs=[directory_of(7)]).broker_epoch == epoch
    broker = cluster.image.cluster.brokers[1]
    assert (broker.fenced, broker.in_controlled_shutdown, broker.rack) == (False, True, "r")
    assert broker.log_dirs == (directory_of(7),)
    assert [type(record) for record in cluster.records] == [RegisterBrokerRecord]


@pytest.mark.spec("CPRT-03", "CPRT-08", "CPRT-09", "RINV-77", "RINV-60")
def test_new_incarnation_has_left_every_in_sync_set_before_its_record():
    cluster = cluster_of(2)
    cluster.create("t", assignments=[(0, [2, 1])], configs={"min.insync.replicas": "2"})
    before = cluster.image.cluster.brokers[2].epoch
    cluster.core.sessions.forget(2)
    epoch = cluster.register(2, incarnation=1, previous=before).broker_epoch
    assert epoch > before
    assert isinstance(cluster.records[-1], RegisterBrokerRecord)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (1, (1,), (2,))  # cleanly: it stays eligible
    assert cluster.image.cluster.brokers[2].fenced
    cluster.register(2, incarnation=2)
    assert cluster.partition("t").elr == ()


@pytest.mark.spec("CPRT-14", "RINV-79")
def test_unfenced_only_once_the_record_of_the_registration_is_applied():
    cluster = cluster_of(2)
    cluster.create("t", assignments=[(0, [2, 1])])
    cluster.core.sessions.forget(2)
    epoch = cluster.register(2, incarnation=1).broker_epoch
    offset = cluster.image.offset
    assert offset == epoch + 1  # the partition's change comes first
    answer = cluster.heartbeat(2, current_metadata_offset=epoch)
    assert (answer.is_caught_up, answer.is_fenced) == (False, True)
    cluster.run(cluster.core.no_op())
    answer = cluster.heartbeat(2, current_metadata_offset=offset)
    assert (answer.is_caught_up, answer.is_fenced) == (True, False)


@pytest.mark.spec("CPRT-12")
def test_heartbeat_of_an_unknown_or_older_registration_is_stale():
    cluster = cluster_of(1)
    assert code_of(cluster.ask, BrokerHeartbeatRequest(broker_id=9, broker_epoch=1)) == ErrorCode.STALE_BROKER_EPOCH
    assert code_of(cluster.heartbeat, 1, broker_epoch=0) == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.spec("CPRT-21", "CPRT-22", "CPRT-23", "CPRT-26")
def test_controlled_shutdown_waits_until_every_other_broker_knows():
    cluster = cluster_of(3)
    cluster.create("t", assignments=[(0, [1, 2, 3]), (1, [2, 1, 3])])
    old_offset = cluster.image.offset
    answer = cluster.heartbeat(1, want_shut_down=True)
    assert (answer.is_fenced, answer.should_shut_down) == (False, False)
    recorded = cluster.image.offset
    assert cluster.image.cluster.brokers[1].in_controlled_shutdown
    assert cluster.partition("t").leader == 2
    assert cluster.partition("t", 1).isr == (2, 3)
    for heard in ((), ((2, old_offset), (3, recorded)), ((2, recorded - 1),)):
        for broker_id, offset in heard:
            cluster.heartbeat(broker_id, current_metadata_offset=offset)
        answer = cluster.heartbeat(1, want_shut_down=True)
        assert not answer.should_shut_down
        assert not cluster.records
    cluster.run(cluster.core.no_op())
    cluster.heartbeat(2, current_metadata_offset=recorded)
    answer = cluster.heartbeat(1, want_shut_down=True)
    assert (answer.is_fenced, answer.should_shut_down) == (True, True)
    assert cluster.image.cluster.brokers[1].fenced


@pytest.mark.spec("CPRT-22")
def test_shutdown_is_not_granted_while_the_broker_leads_a_partition():
    """No election of this controller gives it one; a record of the controller before it may."""
    cluster = cluster_of(2)
    topic_id = cluster.create("t", assignments=[(0, [1, 2])]).topic_id
    cluster.heartbeat(1, want_shut_down=True)
    cluster.heartbeat(2)
    change = PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1, isr=(1, 2))
    cluster.run(ControllerResult(None, [(change, 2)]))
    cluster.heartbeat(2)
    assert cluster.partition("t").leader == 1
    answer = cluster.heartbeat(1, want_shut_down=True)
    assert (answer.is_fenced, answer.should_shut_down) == (False, False)
    cluster.run(ControllerResult(None, [(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=2), 2)]))
    cluster.heartbeat(2)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down


@pytest.mark.spec("CPRT-24")
def test_shutdown_is_granted_at_once_to_those_who_lead_nothing_or_do_not_wait():
    cluster = cluster_of(3)
    cluster.create("t", assignments=[(0, [1, 2])])
    assert cluster.heartbeat(2, want_shut_down=True).should_shut_down
    cluster.heartbeat(3, want_fence=True)
    assert cluster.heartbeat(3, want_shut_down=True).should_shut_down
    assert cluster.heartbeat(1, want_fence=True, want_shut_down=True).should_shut_down
    assert cluster.partition("t").leader == -1


@pytest.mark.spec("CPRT-27")
def test_mark_of_the_shutdown_stays_until_a_new_registration():
    cluster = cluster_of(1)
    cluster.create("t")
    cluster.heartbeat(1, want_shut_down=True)
    assert cluster.heartbeat(1).should_shut_down  # it was asked for, and is granted
    assert not cluster.heartbeat(1).is_fenced
    assert cluster.image.cluster.brokers[1].in_controlled_shutdown
    assert cluster.partition("t").leader == 1
    cluster.core.sessions.forget(1)
    cluster.register(1, incarnation=1)
    assert not cluster.image.cluster.brokers[1].in_controlled_shutdown


@pytest.mark.spec("CPRT-88", "CPRT-26")
def test_brokers_that_are_leaving_get_no_replicas_those_that_left_may():
    cluster = cluster_of(2)
    cluster.create("t", assignments=[(0, [1, 2])])
    cluster.heartbeat(1, want_shut_down=True)
    assert cluster.create("u", 1, 2).error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert cluster.create("v", assignments=[(0, [1])]).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    cluster.heartbeat(2)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert cluster.create("u", 1, 2).error_code == ErrorCode.NONE
    assert (cluster.partition("u").replicas, cluster.partition("u").isr) == ((2, 1), (2,))


@pytest.mark.spec("CPRT-18")
def test_heartbeat_counts_from_its_arrival():
    cluster = cluster_of(1)
    epoch = cluster.image.cluster.brokers[1].epoch
    cluster.core.note_contact(BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch), 8000)
    cluster.core.note_contact(BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch - 1), 9000)
    assert cluster.run(cluster.core.fence_silent_broker(16_999)) is None
    assert cluster.run(cluster.core.fence_silent_broker(17_000)) == 1


@pytest.mark.spec("CPRT-02")
def test_only_heartbeats_make_a_session():
    cluster = Cluster()
    cluster.register(2)
    cluster.register(2, incarnation=1)
    cluster.heartbeat(2, want_fence=True)
    assert code_of(cluster.register, 2, incarnation=2) == ErrorCode.DUPLICATE_BROKER_REGISTRATION


@pytest.mark.spec("CPRT-96", "CPRT-98")
def test_failed_directory_takes_the_broker_out_of_its_partitions_only():
    second = Uuid(b"2" * 16)
    cluster = cluster_of(1)
    cluster.add_broker(2, log_dirs=[directory_of(2), second])
    cluster.create("t", assignments=[(0, [2, 1]), (1, [2, 1])])
    topic = cluster.image.topics.by_name("t")
    for index, directory in enumerate((directory_of(2), second)):
        partition = topic.partitions[index]
        topic.partitions[index] = partition.merge(PartitionChangeRecord(directories=(directory, directory_of(1))))
    epoch = cluster.image.cluster.brokers[2].epoch
    cluster.heartbeat(2, offline_log_dirs=[second])
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2, 1))
    assert (cluster.partition("t", 1).leader, cluster.partition("t", 1).isr) == (1, (1,))
    assert cluster.records[-1] == BrokerRegistrationChangeRecord(
        broker_id=2, broker_epoch=epoch, log_dirs=(directory_of(2),)
    )
    assert cluster.versions[-1] == 2
    cluster.heartbeat(2, offline_log_dirs=[second])
    assert not cluster.records


@pytest.mark.spec("CPRT-96", "RINV-27")
def test_broker_that_is_unfenced_and_loses_a_directory_at_once_leads_nothing_there():
    second = Uuid(b"2" * 16)
    cluster = cluster_of(1)
    cluster.add_broker(2, log_dirs=[directory_of(2), second])
    cluster.create("t", assignments=[(0, [2]), (1, [2])])
    topic = cluster.image.topics.by_name("t")
    for index, directory in enumerate((directory_of(2), second)):
        topic.partitions[index] = topic.partitions[index].merge(PartitionChangeRecord(directories=(directory,)))
    cluster.heartbeat(2, want_fence=True)
    assert (cluster.partition("t").leader, cluster.partition("t", 1).leader) == (-1, -1)
    cluster.heartbeat(2, offline_log_dirs=[second])
    assert (cluster.partition("t").leader, cluster.partition("t", 1).leader) == (2, -1)
    assert cluster.image.cluster.brokers[2].log_dirs == (directory_of(2),)


@pytest.mark.spec("CPRT-99")
def test_cordoned_broker_gets_replicas_by_hand_only():
    cluster = cluster_of(2)
    cluster.heartbeat(2, cordoned_log_dirs=[directory_of(2)])
    cluster.create("t", 4, 1)
    assert {partition.leader for partition in cluster.image.topics.by_name("t").partitions.values()} == {1}
    assert cluster.create("u", 1, 2).error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert cluster.create("v", assignments=[(0, [2])]).error_code == ErrorCode.NONE
    cluster.heartbeat(2)
    assert not cluster.records
