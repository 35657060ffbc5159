"""Sessions of brokers: who keeps quiet for too long is fenced, and its id is free for another process."""

from __future__ import annotations

import pytest

from kraftlog.controller.broker_sessions import BrokerSessions
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftlog.wire.messages.metadata_records import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from kraftlog.wire.messages.unregister_broker import UnregisterBrokerRequest
from metadata_fixture import Cluster, one_broker


def beat(cluster, broker_id, now_ms, **changes):
    values = {
        "broker_id": broker_id,
        "broker_epoch": cluster.image.cluster.brokers[broker_id].epoch,
        "current_metadata_offset": cluster.image.offset,
    }
    return cluster.run(cluster.core.broker_heartbeat(BrokerHeartbeatRequest(**(values | changes)), now_ms))


def fence(cluster, now_ms):
    return cluster.run(cluster.core.fence_silent_broker(now_ms))


def test_broker_has_a_session_until_it_is_silent_for_the_timeout():
    sessions = BrokerSessions(9000)
    sessions.touch(1, 5, 1000)
    assert sessions.is_valid(1, 5, 9999)
    assert not sessions.is_valid(1, 5, 10_000)
    assert not sessions.is_valid(1, 4, 1000), "of another registration"
    assert not sessions.is_valid(2, 5, 1000)
    assert sessions.take_expired(9999) is None
    assert sessions.take_expired(10_000) == (1, 5)
    assert sessions.take_expired(10_000) is None


def test_who_was_silent_longest_is_named_first():
    sessions = BrokerSessions(100)
    for broker_id, heard_ms in ((1, 30), (2, 10), (3, 20)):
        sessions.touch(broker_id, 0, heard_ms)
    assert [sessions.take_expired(125) for _ in range(3)] == [(2, 0), (3, 0), None]


def test_time_in_which_the_controller_stood_still_counts_for_nobody():
    sessions = BrokerSessions(9000)
    sessions.touch(1, 0, 0)
    assert not sessions.has_expired(1000)
    assert not sessions.has_expired(61_000)
    assert not sessions.has_expired(62_000)
    for now_ms in range(63_000, 67_000, 1000):
        assert not sessions.has_expired(now_ms), now_ms
    assert sessions.has_expired(67_000)
    assert sessions.has_expired(68_000)


def test_silent_broker_is_fenced_and_its_partitions_are_led_by_others():
    """CPRT-16."""
    cluster = one_broker()
    cluster.add_broker(2)
    cluster.create("t", assignments=[(0, [2, 1])])
    beat(cluster, 1, 5000)
    assert fence(cluster, 8999) is None
    assert not cluster.records
    assert fence(cluster, 9000) == 2
    epoch = cluster.image.cluster.brokers[2].epoch
    assert cluster.records[-1] == BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=epoch, fenced=1)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (1, (1,))
    assert fence(cluster, 9000) is None
    assert fence(cluster, 14_000) == 1


def test_fenced_broker_that_lives_is_unfenced_by_its_next_heartbeat():
    cluster = one_broker()
    cluster.create("t")
    assert fence(cluster, 9000) == 1
    assert cluster.partition("t").leader == -1
    assert not beat(cluster, 1, 9500).is_fenced
    assert cluster.partition("t").leader == 1
    assert fence(cluster, 18_499) is None
    assert fence(cluster, 18_500) == 1


def test_heartbeat_of_an_older_registration_does_not_keep_a_session():
    cluster = one_broker()
    with pytest.raises(KafkaError) as caught:
        beat(cluster, 1, 8000, broker_epoch=0)
    assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH
    assert fence(cluster, 9000) == 1


def test_restarted_broker_waits_until_the_session_of_the_killed_one_is_over():
    cluster = one_broker()
    cluster.add_broker(2)

    def register(now_ms):
        request = cluster.registration(2, incarnation=1)
        return cluster.run(cluster.core.register_broker(request, now_ms))

    for now_ms in (0, 8999):
        with pytest.raises(KafkaError) as caught:
            register(now_ms)
        assert caught.value.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    register(9000)
    assert [type(record) for record in cluster.records] == [RegisterBrokerRecord]
    beat(cluster, 2, 9000, want_fence=True)
    with pytest.raises(KafkaError) as caught:  # fenced, yet alive
        cluster.run(cluster.core.register_broker(cluster.registration(2, incarnation=2), 9001))
    assert caught.value.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_broker_that_left_in_order_leaves_its_id_at_once():
    cluster = one_broker()
    cluster.add_broker(2)
    assert cluster.heartbeat(2, want_shut_down=True).should_shut_down
    cluster.register(2, incarnation=1)
    cluster.run(cluster.core.unregister_broker(UnregisterBrokerRequest(broker_id=2)))
    assert fence(cluster, 100_000) == 1
    assert fence(cluster, 100_000) is None


def test_new_controller_gives_every_broker_a_whole_session():
    """CPRT-17."""
    cluster = one_broker()
    cluster.add_broker(2)
    cluster.register(3)  # fenced: it has nothing to lose
    cluster.core.activate((), 50_000)
    assert fence(cluster, 58_999) is None
    assert {fence(cluster, 59_000), fence(cluster, 59_000)} == {1, 2}


def test_duplicate_is_refused_before_its_directories_are_looked_at():
    cluster = Cluster()
    cluster.add_broker(2)
    with pytest.raises(KafkaError) as caught:
        cluster.register(2, incarnation=1, log_dirs=[])
    assert caught.value.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    with pytest.raises(KafkaError) as caught:
        cluster.register(2, incarnation=1, cluster_id="other")
    assert caught.value.code == ErrorCode.INCONSISTENT_CLUSTER_ID
