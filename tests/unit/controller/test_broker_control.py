"""Records of registration, fencing and shutdown: as tests/golden/kraft/logs/standalone shows Kafka writing them."""

from __future__ import annotations

import pytest

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.features import metadata_version_from_string
from kraftlog.types import Uuid
from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftlog.wire.messages.broker_registration import BrokerRegistrationRequest
from kraftlog.wire.messages.controller_registration import ControllerRegistrationRequest
from kraftlog.wire.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from kraftlog.wire.messages.unregister_broker import UnregisterBrokerRequest
from metadata_fixture import Cluster, directory_of, one_broker


def test_registration_is_fenced_and_its_epoch_is_the_first_records_offset():
    cluster = Cluster()
    offset = cluster.core.next_offset
    assert cluster.register(1).broker_epoch == offset
    record = cluster.records[0]
    assert isinstance(record, RegisterBrokerRecord)
    assert cluster.versions == [4]
    assert (record.fenced, record.in_controlled_shutdown, record.broker_epoch) == (True, False, offset)
    assert record.log_dirs == (directory_of(1),)
    assert record.cordoned_log_dirs is None


def test_first_heartbeat_unfences_only_when_caught_up():
    cluster = Cluster()
    cluster.register(1)
    answer = cluster.heartbeat(1, current_metadata_offset=0)
    assert (answer.is_caught_up, answer.is_fenced) == (False, True)
    assert not cluster.records
    answer = cluster.heartbeat(1, cordoned_log_dirs=())
    assert (answer.is_caught_up, answer.is_fenced) == (True, False)
    epoch = cluster.image.cluster.brokers[1].epoch
    assert cluster.records == [
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=-1),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, cordoned_log_dirs=()),
    ]
    assert cluster.versions == [0, 3]
    assert not cluster.heartbeat(1, cordoned_log_dirs=()).is_fenced
    assert not cluster.records


def test_controlled_shutdown_gives_up_leadership_then_fences():
    cluster = one_broker()
    topic_id = cluster.create("t").topic_id
    epoch = cluster.image.cluster.brokers[1].epoch
    answer = cluster.heartbeat(1, want_shut_down=True)
    assert (answer.is_fenced, answer.should_shut_down) == (False, False)
    assert cluster.records == [
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, in_controlled_shutdown=1),
        PartitionChangeRecord(
            partition_id=0, topic_id=topic_id, isr=(), leader=-1, eligible_leader_replicas=(1,), last_known_elr=(1,)
        ),
    ]
    assert cluster.versions == [1, 2]
    answer = cluster.heartbeat(1, want_shut_down=True)
    assert (answer.is_fenced, answer.should_shut_down) == (True, True)
    assert cluster.records == [BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=1)]


def test_shutdown_without_leadership_is_granted_at_once():
    cluster = one_broker()
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down


def test_clean_restart_leads_again_with_a_higher_leader_epoch():
    cluster = one_broker()
    topic_id = cluster.create("t").topic_id
    epoch = cluster.image.cluster.brokers[1].epoch
    cluster.heartbeat(1, want_shut_down=True)
    cluster.heartbeat(1, want_shut_down=True)
    cluster.register(1, incarnation=1, previous=epoch)
    assert [type(record) for record in cluster.records] == [RegisterBrokerRecord]
    cluster.heartbeat(1)
    assert cluster.records[1:] == [
        PartitionChangeRecord(
            partition_id=0, topic_id=topic_id, isr=(1,), leader=1, eligible_leader_replicas=(), last_known_elr=()
        )
    ]
    partition = cluster.partition("t")
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 2, 2)


def test_restart_after_a_crash_leaves_isr_and_elr_and_recovers_from_the_last_known_leader():
    # CPRT-08, CPRT-09, CPRT-64: the registration comes last, no record fences the earlier incarnation before it.
    cluster = one_broker()
    topic_id = cluster.create("t").topic_id
    offset = cluster.core.next_offset
    assert cluster.register(1, incarnation=1).broker_epoch == offset
    assert cluster.records[:-1] == [
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=(), leader=-1, last_known_elr=(1,))
    ]
    assert cluster.records[-1].broker_epoch == offset
    cluster.heartbeat(1)
    assert cluster.records[1:] == [
        PartitionChangeRecord(
            partition_id=0, topic_id=topic_id, isr=(1,), leader=1, leader_recovery_state=1, last_known_elr=()
        )
    ]


def test_another_live_incarnation_elsewhere_is_refused():
    cluster = one_broker()
    cluster.add_broker(2)
    with pytest.raises(KafkaError) as caught:
        cluster.register(2, incarnation=1)
    assert caught.value.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    epoch = cluster.image.cluster.brokers[2].epoch
    assert cluster.register(2).broker_epoch == epoch


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [Uuid.ZERO]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [directory_of(2)] * 2}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [directory_of(1)]}, ErrorCode.INVALID_REGISTRATION),
        ({"features": []}, ErrorCode.INVALID_REGISTRATION),
        (
            {
                "features": [
                    BrokerRegistrationRequest.Feature(
                        name="metadata.version", min_supported_version=7, max_supported_version=29
                    )
                ]
            },
            ErrorCode.UNSUPPORTED_VERSION,
        ),
    ],
)
def test_registration_is_refused(changes, code):
    cluster = one_broker()
    with pytest.raises(KafkaError) as caught:
        cluster.register(2, **changes)
    assert caught.value.code == code
    assert 2 not in cluster.image.cluster.brokers


def test_heartbeat_of_an_unknown_or_older_broker_is_stale():
    cluster = one_broker()
    for broker_id, epoch in ((1, 0), (9, 5)):
        request = BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch)
        with pytest.raises(KafkaError) as caught:
            cluster.ask(request)
        assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_fencing_moves_leadership_to_an_in_sync_replica():
    cluster = one_broker()
    cluster.add_broker(2)
    cluster.create("t", assignments=[(0, [1, 2])])
    cluster.heartbeat(1, want_fence=True)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2,), 1)
    assert cluster.records[-1].fenced == 1
    cluster.heartbeat(1)
    assert cluster.partition("t") == partition


def test_without_eligible_leader_replicas_the_last_in_sync_replica_stays():
    cluster = one_broker(version=metadata_version_from_string("3.9"))
    cluster.create("t")
    cluster.heartbeat(1, want_fence=True)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (-1, (1,), (), ())
    cluster.heartbeat(1)
    assert cluster.partition("t").leader == 1


def test_isr_shrink_raises_the_leader_epoch_only_below_36():
    for release, leader_epoch in (("3.5", 1), ("3.6", 0)):
        cluster = one_broker(version=metadata_version_from_string(release))
        cluster.add_broker(2)
        cluster.create("t", assignments=[(0, [1, 2])])
        cluster.heartbeat(2, want_fence=True)
        partition = cluster.partition("t")
        assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1,), leader_epoch)


def test_unclean_election_only_where_the_topic_allows_it():
    cluster = one_broker(version=metadata_version_from_string("3.9"))
    cluster.add_broker(2)
    for name, configs in (("safe", {}), ("unsafe", {"unclean.leader.election.enable": "true"})):
        cluster.create(name, assignments=[(0, [1, 2])], configs=configs)
    cluster.heartbeat(2, want_fence=True)
    cluster.heartbeat(1, want_fence=True)
    cluster.heartbeat(2)
    assert cluster.partition("safe").leader == -1
    partition = cluster.partition("unsafe")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, (2,), 1)


def test_unregister_takes_the_broker_out_of_its_partitions():
    cluster = one_broker()
    cluster.add_broker(2)
    cluster.create("t", assignments=[(0, [1, 2])])
    cluster.run(cluster.core.unregister_broker(UnregisterBrokerRequest(broker_id=2)))
    assert isinstance(cluster.records[-1], UnregisterBrokerRecord)
    assert cluster.partition("t").isr == (1,)
    with pytest.raises(KafkaError) as caught:
        cluster.ask(UnregisterBrokerRequest(broker_id=2))
    assert caught.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_controllers_register_from_37_on():
    request = ControllerRegistrationRequest(
        controller_id=1,
        incarnation_id=Uuid(b"i" * 16),
        listeners=[ControllerRegistrationRequest.Listener(name="CONTROLLER", host="h", port=9093)],
    )
    for release, is_written in (("3.6", False), ("3.7", True)):
        cluster = Cluster(version=metadata_version_from_string(release))
        cluster.run(cluster.core.register_controller(request))
        assert (1 in cluster.image.cluster.controllers) == is_written
