"""Elections: asked for by an operator, and those that the controller looks for now and then."""

from __future__ import annotations

import pytest

from kraftlog.controller import election_control
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.features import ELIGIBLE_LEADER_REPLICAS_VERSION, metadata_version_from_string
from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftlog.wire.messages.elect_leaders import ElectLeadersRequest
from kraftlog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftlog.wire.messages.metadata_records import PartitionChangeRecord
from kraftlog.wire.messages.unregister_broker import UnregisterBrokerRequest
from kraftlog.wire.messages.update_features import UpdateFeaturesRequest
from metadata_fixture import cluster_of

PREFERRED, UNCLEAN = 0, 1
WITHOUT_ELR = metadata_version_from_string("3.9")


def elect(cluster, election_type, *wanted):
    """The outcome of each partition; ``wanted`` has names and indexes, without any all partitions are asked for."""
    topics = [ElectLeadersRequest.TopicPartitions(topic=name, partitions=[index]) for name, index in wanted]
    response = cluster.ask(ElectLeadersRequest(election_type=election_type, topic_partitions=topics or None))
    return {
        (topic.topic, partition.partition_id): partition.error_code
        for topic in response.replica_election_results
        for partition in topic.partition_result
    }


def set_config(cluster, kind, name, key, value):
    config = IncrementalAlterConfigsRequest.AlterableConfig(name=key, value=value, config_operation=int(value is None))
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[config]
    )
    return cluster.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code


def state(cluster, name="t", index=0):
    partition = cluster.partition(name, index)
    return partition.leader, partition.isr, partition.elr


@pytest.mark.spec("CPRT-43", "CPRT-45", "CPRT-32")
def test_preferred_election():
    cluster = cluster_of(3)
    cluster.create("t", assignments=[(0, [1, 2]), (1, [2, 1])])
    cluster.heartbeat(1, want_fence=True)
    asked = (("t", 0), ("t", 1), ("t", 5), ("none", 0))
    assert list(elect(cluster, PREFERRED, *asked).values()) == [
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    cluster.heartbeat(1)
    assert elect(cluster, PREFERRED, ("t", 0)) == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


@pytest.mark.spec("CPRT-44", "CPRT-36")
def test_unclean_election_whatever_the_topic_says():
    cluster = cluster_of(2, version=WITHOUT_ELR)
    cluster.create("t", assignments=[(0, [1, 2])])
    assert elect(cluster, UNCLEAN, ("t", 0)) == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}
    cluster.heartbeat(2, want_fence=True)
    cluster.heartbeat(1, want_fence=True)
    assert elect(cluster, UNCLEAN, ("t", 0)) == {("t", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    cluster.heartbeat(2)
    assert cluster.partition("t").leader == -1
    assert elect(cluster, UNCLEAN, ("t", 0)) == {("t", 0): ErrorCode.NONE}
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, (2,), 1)


@pytest.mark.spec("CPRT-45")
def test_unknown_type_is_refused_at_the_top_and_in_each_place():
    cluster = cluster_of(1)
    request = ElectLeadersRequest(
        election_type=7, topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0, 1])]
    )
    with pytest.raises(KafkaError) as caught:
        cluster.ask(request)
    response = election_control.refuse_elections(request, caught.value)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    partitions = response.replica_election_results[0].partition_result
    assert [partition.error_code for partition in partitions] == [ErrorCode.INVALID_REQUEST] * 2


@pytest.mark.spec("CPRT-46")
def test_election_of_all_leaves_out_what_needs_none():
    cluster = cluster_of(3)
    cluster.create("t", assignments=[(0, [1, 2]), (1, [2, 1]), (2, [3, 2])])
    cluster.heartbeat(1, want_fence=True)
    assert elect(cluster, PREFERRED) == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


@pytest.mark.spec("CPRT-39", "RINV-37")
def test_periodic_round_gives_partitions_back_to_their_preferred_leaders(monkeypatch):
    cluster = cluster_of(2)
    cluster.create("t", assignments=[(index, [1, 2]) for index in range(5)])
    cluster.heartbeat(1, want_shut_down=True)
    assert not cluster.run(cluster.core.balance_leaders())
    assert not cluster.records
    cluster.register(1, incarnation=1, previous=cluster.image.cluster.brokers[1].epoch)
    cluster.heartbeat(1)
    topic = cluster.image.topics.by_name("t")
    for index, partition in list(topic.partitions.items()):  # as AlterPartition would
        topic.partitions[index] = partition.merge(PartitionChangeRecord(isr=(2, 1)))
    monkeypatch.setattr(election_control, "MAX_ELECTIONS_PER_ROUND", 3)
    assert cluster.run(cluster.core.balance_leaders()) is True
    assert len(cluster.records) == 3
    assert cluster.run(cluster.core.balance_leaders()) is False
    assert {cluster.partition("t", index).leader for index in range(5)} == {1}


@pytest.mark.spec("CPRT-37")
def test_option_turned_on_later_counts_at_the_next_round():
    cluster = cluster_of(2, version=WITHOUT_ELR)
    for name in ("t", "u"):
        cluster.create(name, assignments=[(0, [1, 2])])
    cluster.heartbeat(2, want_fence=True)
    cluster.heartbeat(1, want_fence=True)
    cluster.heartbeat(2)
    assert cluster.run(cluster.core.elect_unclean_leaders()) is False
    assert not cluster.records
    assert set_config(cluster, 2, "t", "unclean.leader.election.enable", "true") == ErrorCode.NONE
    assert cluster.partition("t").leader == -1
    cluster.run(cluster.core.elect_unclean_leaders())
    assert (cluster.partition("t").leader, cluster.partition("u").leader) == (2, -1)
    assert set_config(cluster, 4, "", "unclean.leader.election.enable", "true") == ErrorCode.NONE
    cluster.run(cluster.core.elect_unclean_leaders())
    assert cluster.partition("u").leader == 2


@pytest.mark.spec("CPRT-62", "CPRT-63", "CPRT-66", "RINV-34")
def test_last_member_goes_to_the_elr_and_comes_back_cleanly():
    cluster = cluster_of(2)
    cluster.create("t", assignments=[(0, [1, 2])], configs={"min.insync.replicas": "2"})
    cluster.heartbeat(2, want_fence=True)
    assert state(cluster) == (1, (1,), (2,))
    cluster.heartbeat(1, want_fence=True)
    assert state(cluster) == (-1, (), (1, 2))
    assert cluster.partition("t").last_known_elr == (1,)
    cluster.heartbeat(2)
    assert state(cluster) == (2, (2,), (1,))
    partition = cluster.partition("t")
    assert (partition.leader_recovery_state, partition.last_known_elr, partition.leader_epoch) == (0, (), 2)


@pytest.mark.spec("CPRT-62", "RINV-23")
def test_live_elr_member_leads_at_once():
    cluster = cluster_of(2)
    cluster.create("t", assignments=[(0, [1, 2])], configs={"min.insync.replicas": "2"})
    cluster.heartbeat(2, want_fence=True)
    cluster.heartbeat(2)
    cluster.heartbeat(1, want_fence=True)
    assert state(cluster) == (2, (2,), (1,))


@pytest.mark.spec("CPRT-64", "CPRT-65", "CPRT-67", "CPRT-09", "RINV-81", "RINV-84", "RINV-28")
def test_last_known_leader_leads_uncleanly_once_it_is_back_and_nobody_else():
    cluster = cluster_of(2)
    cluster.create("t", assignments=[(0, [1, 2])], configs={"min.insync.replicas": "2"})
    cluster.heartbeat(2, want_fence=True)
    cluster.heartbeat(1, want_fence=True)
    for broker_id in (2, 1):
        cluster.core.sessions.forget(broker_id)
        cluster.register(broker_id, incarnation=1)
    assert state(cluster) == (-1, (), ())
    cluster.heartbeat(2)
    assert state(cluster) == (-1, (), ())
    assert elect(cluster, PREFERRED, ("t", 0)) == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    cluster.heartbeat(1)
    assert state(cluster) == (1, (1,), ())
    partition = cluster.partition("t")
    assert (partition.leader_recovery_state, partition.last_known_elr) == (1, ())


@pytest.mark.spec("CPRT-64", "CPRT-66", "RINV-34")
def test_last_in_sync_replica_leads_again_if_eligible_replicas_were_enabled_while_it_was_away():
    """A simulated cluster lost power around the upgrade, and no replica of its partitions could lead afterwards."""
    cluster = cluster_of(2, version=metadata_version_from_string("4.0"))
    cluster.create("t", assignments=[(0, [1, 2])], configs={"min.insync.replicas": "2"})
    cluster.heartbeat(1, want_fence=True)
    cluster.heartbeat(2, want_fence=True)
    assert state(cluster) == (-1, (2,), ())
    upgrade = UpdateFeaturesRequest.FeatureUpdateKey(feature=ELIGIBLE_LEADER_REPLICAS_VERSION, max_version_level=1)
    assert cluster.ask(UpdateFeaturesRequest(feature_updates=(upgrade,))).error_code == ErrorCode.NONE
    for broker_id in (2, 1):
        cluster.core.sessions.forget(broker_id)
        cluster.register(broker_id, incarnation=1)
    assert state(cluster) == (-1, (), ())
    cluster.heartbeat(1)
    assert state(cluster) == (-1, (), ()), "it was not in sync"
    cluster.heartbeat(2)
    assert state(cluster) == (2, (2,), ())
    partition = cluster.partition("t")
    assert (partition.leader_recovery_state, partition.last_known_elr) == (1, ())


@pytest.mark.spec("CPRT-70", "CPRT-10", "CPRT-34", "CPRT-35", "CPRT-33")
def test_without_elr_the_last_member_stays_also_after_an_unclean_stop():
    cluster = cluster_of(1, version=WITHOUT_ELR)
    cluster.create("t")
    cluster.register(1, incarnation=1)
    assert state(cluster) == (-1, (1,), ())
    assert cluster.partition("t").leader_epoch == 1
    cluster.heartbeat(1)
    assert state(cluster) == (1, (1,), ())
    assert cluster.partition("t").leader_epoch == 2


@pytest.mark.spec("CPRT-72", "CPRT-73")
def test_another_minimum_clears_eligible_leader_replicas_in_the_same_batch():
    cluster = cluster_of(2)
    for name in ("t", "u"):
        cluster.create(name, assignments=[(0, [1, 2])], configs={"min.insync.replicas": "2"} if name == "t" else {})
    assert set_config(cluster, 4, "", "min.insync.replicas", "2") == ErrorCode.NONE
    cluster.heartbeat(2, want_fence=True)
    assert (state(cluster)[2], state(cluster, "u")[2]) == ((2,), (2,))
    assert set_config(cluster, 2, "t", "min.insync.replicas", "1") == ErrorCode.NONE
    assert [type(record).__name__ for record in cluster.records] == ["ConfigRecord", "ClearElrRecord"]
    assert (state(cluster)[2], state(cluster, "u")[2]) == ((), (2,))
    assert set_config(cluster, 4, "", "min.insync.replicas", "1") == ErrorCode.NONE
    assert cluster.records[-1].topic_name == ""
    assert state(cluster, "u")[2] == ()
    assert set_config(cluster, 4, "1", "min.insync.replicas", "1") == ErrorCode.INVALID_CONFIG
    assert set_config(cluster, 4, "", "min.insync.replicas", None) == ErrorCode.INVALID_CONFIG


@pytest.mark.spec("CPRT-28", "CPRT-29")
def test_unregistered_broker_leaves_isr_and_stays_a_replica():
    cluster = cluster_of(3)
    cluster.create("t", assignments=[(0, [2, 1, 3])])
    epoch = cluster.image.cluster.brokers[2].epoch
    cluster.ask(UnregisterBrokerRequest(broker_id=2))
    assert state(cluster) == (1, (1, 3), ())
    assert cluster.partition("t").replicas == (2, 1, 3)
    with pytest.raises(KafkaError) as caught:
        cluster.ask(BrokerHeartbeatRequest(broker_id=2, broker_epoch=epoch))
    assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.spec("CPRT-103", "RINV-01")
def test_every_partition_is_led_cleanly_after_a_full_stop_in_any_order():
    orders = [((1, 2, 3), (1, 2, 3)), ((1, 2, 3), (3, 2, 1)), ((3, 1, 2), (1, 3, 2)), ((2, 3, 1), (2, 1, 3))]
    for stops, starts in orders:
        cluster = cluster_of(3)
        cluster.create("t", 6, 3, configs={"min.insync.replicas": "2"})
        for broker_id in stops:
            while not cluster.heartbeat(broker_id, want_shut_down=True).should_shut_down:
                for other in cluster.image.cluster.brokers.values():
                    if not other.fenced and other.broker_id != broker_id:
                        cluster.heartbeat(other.broker_id)
        for broker_id in starts:
            cluster.register(broker_id, incarnation=1, previous=cluster.image.cluster.brokers[broker_id].epoch)
            cluster.heartbeat(broker_id)
        for partition in cluster.image.topics.by_name("t").partitions.values():
            assert partition.has_leader
            assert partition.leader_recovery_state == 0
