"""Share groups over a socket: every request and code of area 34 that one node shows (KIP-932)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import kraftlog
from kraftlog.coordinator.share import share_session
from kraftlog.errors import ErrorCode
from kraftlog.types import Uuid
from kraftlog.wire.messages.api_versions import ApiVersionsRequest
from kraftlog.wire.messages.describe_configs import DescribeConfigsRequest
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from kraftlog.wire.messages.list_groups import ListGroupsRequest
from kraftlog.wire.messages.share_fetch import ShareFetchRequest
from kraftlog.wire.messages.update_features import UpdateFeaturesRequest
from raw_client import RawClient
from share_fixture import ACCEPT, CONFIG, REJECT, RELEASE, RENEW, Cluster, Group, acquired, codes, until, values

NOT_HOSTED = "This server does not host this topic-partition."


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with kraftlog.Broker(config=CONFIG) as broker:
        made = Cluster(broker.bootstrap_servers)
        yield made
        made.client.sock.close()


# -- sessions, fetches, acknowledgements -------------------------------------------------------------------------------


def test_records_are_acquired_acknowledged_and_never_seen_again(cluster: Cluster) -> None:
    """SHGR-12, SHGR-22, SHGR-28, SHGR-29, SHGR-45."""
    g = Group(cluster, "plain", (b"a", b"b"), (b"c",))
    first = g.fetch("A", 0)
    assert (acquired(first), values(first), first.acquisition_lock_timeout_ms) == (
        [(0, 2, 1)],
        [b"a", b"b", b"c"],
        30_000,
    )
    assert codes(g.acknowledge("A", 1, (0, 0, (ACCEPT,)))) == [0]
    cluster.write(g.topic_id, b"d")
    answer = g.fetch("A", 2, acks=((1, 2, (ACCEPT, REJECT)),))
    assert (acquired(answer), values(answer)) == ([(3, 3, 1)], [b"d"])
    assert answer.responses[0].partitions[0].acknowledge_error_code == 0
    again = g.fetch("A", 3, acks=((0, 0, (ACCEPT,)),), max_wait_ms=10)
    partition = again.responses[0].partitions[0]
    assert (partition.error_code, partition.acknowledge_error_code) == (0, ErrorCode.INVALID_RECORD_STATE)


def test_epochs_of_sessions_are_checked(cluster: Cluster) -> None:
    """SHGR-19, SHGR-20, SHGR-21."""
    g = Group(cluster, "sessions", (b"a",))
    assert g.fetch("A", 1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert g.fetch("A", -1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert g.acknowledge("A", 1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert g.acknowledge("A", 0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert g.fetch("A", 0, acks=((0, 0, (ACCEPT,)),)).error_code == ErrorCode.INVALID_REQUEST
    assert acquired(g.fetch("A", 0)) == [(0, 0, 1)]
    assert g.fetch("A", 2, max_wait_ms=1).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert g.fetch("A", 1, max_wait_ms=1).error_code == 0
    assert g.acknowledge("A", 3).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert g.fetch("A", 0, max_wait_ms=1).error_code == 0
    assert codes(g.acknowledge("A", 1, (0, 0, (ACCEPT,)))) == [0]


@pytest.mark.parametrize("member", [None, "", "m" * 37])
def test_member_ids_are_checked(cluster: Cluster, member: str | None) -> None:
    """SHGR-04."""
    place = (Uuid.ZERO, 0)
    assert cluster.fetch("g", member, 0, place).error_code == ErrorCode.INVALID_REQUEST  # type: ignore[arg-type]
    assert cluster.acknowledge("g", member, 1, None).error_code == ErrorCode.INVALID_REQUEST  # type: ignore[arg-type]
    if member is not None:
        cluster.find("g")
        assert cluster.beat("g", member, 0, "t").error_code == ErrorCode.INVALID_REQUEST


def test_a_final_epoch_takes_acknowledgements_and_releases_the_rest(cluster: Cluster) -> None:
    """SHGR-23."""
    g = Group(cluster, "final", (b"a", b"b", b"c"))
    assert acquired(g.fetch("A", 0)) == [(0, 2, 1)]
    last = g.fetch("A", -1, acks=((0, 0, (ACCEPT,)),))
    assert (last.error_code, last.responses[0].partitions[0].acknowledge_error_code) == (0, 0)
    assert acquired(g.fetch("B", 0)) == [(1, 2, 2)]
    assert g.acknowledge("B", -1, (1, 1, (ACCEPT,))).error_code == 0
    assert g.acknowledge("B", 1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert acquired(g.fetch("C", 0)) == [(2, 2, 3)]


def test_a_lost_connection_ends_the_session(cluster: Cluster) -> None:
    """SHGR-18."""
    g = Group(cluster, "lost", (b"a",))
    with RawClient(cluster.bootstrap) as client:
        assert acquired(g.fetch("B", 0, client=client)) == [(0, 0, 1)]
        assert acquired(g.fetch("A", 0, max_wait_ms=1)) == []
    # Long before the lock would have ended.
    assert acquired(g.fetch("A", 1, max_wait_ms=20_000)) == [(0, 0, 2)]


def test_members_share_and_groups_do_not(cluster: Cluster) -> None:
    """SHGR-30, SHGR-31, SHGR-32."""
    g = Group(cluster, "many", (b"a", b"b"), (b"c", b"d"), (b"e",))
    assert acquired(g.fetch("A", 0, max_records=1)) == [(0, 1, 1)]
    strict = g.fetch("B", 0, max_records=1, share_acquire_mode=1)
    assert acquired(strict) == [(2, 2, 1)]
    assert acquired(g.fetch("C", 0, batch_size=1)) == [(3, 3, 1), (4, 4, 1)]
    cluster.configure("other", auto_offset_reset="earliest")
    cluster.join("other", "A", g.topic)
    assert acquired(cluster.fetch("other", "A", 0, g.place, version=1)) == [(0, 4, 1)]


def test_partitions_leave_the_session(cluster: Cluster) -> None:
    """SHGR-25."""
    g = Group(cluster, "forget", (b"a",))
    forgotten = [ShareFetchRequest.ForgottenTopic(topic_id=g.topic_id, partitions=[0])]
    assert acquired(g.fetch("A", 0)) == [(0, 0, 1)]
    answer = cluster.fetch("forget", "A", 1, forgotten_topics_data=forgotten, max_wait_ms=1)
    assert (answer.error_code, list(answer.responses)) == (0, [])
    cluster.write(g.topic_id, b"b")
    assert acquired(cluster.fetch("forget", "A", 2, max_wait_ms=100)) == []
    assert acquired(g.fetch("A", 3)) == [(1, 1, 1)]


def test_unknown_topics_and_partitions_are_named(cluster: Cluster) -> None:
    """SHGR-26."""
    g = Group(cluster, "unknown", (b"a",))
    nowhere = Uuid(b"?" * 16)
    answer = cluster.fetch("unknown", "A", 0, (nowhere, 0), (g.topic_id, 7), g.place)
    assert codes(answer) == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    ack = cluster.acknowledge("unknown", "A", 1, (nowhere, 0), (0, 0, (ACCEPT,)))
    assert codes(ack) == [ErrorCode.UNKNOWN_TOPIC_ID]
    ack = cluster.acknowledge("unknown", "A", 2, (g.topic_id, 7), (0, 0, (ACCEPT,)))
    assert codes(ack) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    empty = cluster.acknowledge("unknown", "A", 3, g.place)
    assert (empty.error_code, list(empty.responses)) == (0, [])


@pytest.mark.parametrize(
    ("version", "acks"),
    [
        (2, ((1, 0, (ACCEPT,)),)),
        (2, ((1, 1, (ACCEPT,)), (0, 0, (ACCEPT,)))),
        (2, ((0, 1, ()),)),
        (2, ((0, 2, (ACCEPT, ACCEPT)),)),
        (2, ((0, 0, (5,)),)),
        (2, ((0, 0, (-1,)),)),
        (2, ((0, 0, (RENEW,)),)),
        (1, ((0, 0, (RENEW,)),)),
    ],
)
def test_malformed_acknowledgements_are_refused(
    cluster: Cluster, malformed: Group, version: int, acks: tuple[tuple[int, int, tuple[int, ...]], ...]
) -> None:
    """SHGR-40, SHGR-41."""
    malformed.fetch("A", 0, max_wait_ms=1)
    assert codes(malformed.acknowledge("A", 1, *acks, version=version)) == [ErrorCode.INVALID_REQUEST]


@pytest.fixture(scope="module")
def malformed(cluster: Cluster) -> Group:
    return Group(cluster, "malformed", (b"a", b"b", b"c"))


def test_nothing_is_done_without_acknowledgements(cluster: Cluster) -> None:
    """SHGR-52."""
    g = Group(cluster, "nothing", (b"a",))
    g.fetch("A", 0)
    answer = g.acknowledge("A", 1)
    assert (answer.error_code, list(answer.responses)) == (0, [])


def test_locks_are_renewed_and_a_renewing_fetch_reads_nothing(cluster: Cluster) -> None:
    """SHGR-41, SHGR-42."""
    g = Group(cluster, "renew", (b"a",), record_lock_duration_ms="5000")
    zero = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    assert acquired(g.fetch("A", 0)) == [(0, 0, 1)]
    assert g.fetch("A", 1, is_renew_ack=True).error_code == ErrorCode.INVALID_REQUEST
    cluster.write(g.topic_id, b"b")
    time.sleep(2.5)
    answer = g.fetch("A", 1, acks=((0, 0, (RENEW,)),), is_renew_ack=True, **zero)
    assert (acquired(answer), answer.responses[0].partitions[0].acknowledge_error_code) == ([], 0)
    time.sleep(2.7)
    assert acquired(g.fetch("B", 0, max_wait_ms=1)) == [(1, 1, 1)]
    assert codes(g.acknowledge("A", 2, (0, 0, (RENEW,)), is_renew_ack=True)) == [0]
    assert codes(g.acknowledge("A", 3, (0, 0, (ACCEPT,)))) == [0]
    assert cluster.configure("renew", renew_acknowledge_enable="false") == 0
    assert codes(g.acknowledge("B", 1, (1, 1, (RENEW,)), is_renew_ack=True)) == [ErrorCode.INVALID_RECORD_STATE]


def test_a_lock_ends_and_the_last_delivery_archives(cluster: Cluster) -> None:
    """SHGR-46, SHGR-47."""
    g = Group(cluster, "timeouts", (b"a",), delivery_count_limit="2", record_lock_duration_ms="1000")
    assert acquired(g.fetch("A", 0)) == [(0, 0, 1)]
    assert cluster.configure("timeouts", record_lock_duration_ms="30000") == 0
    assert acquired(g.fetch("B", 0, max_wait_ms=20_000)) == [(0, 0, 2)]
    assert codes(g.acknowledge("A", 1, (0, 0, (ACCEPT,)))) == [ErrorCode.INVALID_RECORD_STATE]
    assert codes(g.acknowledge("B", 1, (0, 0, (RELEASE,)))) == [0]
    assert acquired(g.fetch("C", 0, max_wait_ms=50)) == []


def test_a_group_begins_at_the_end_unless_it_says_otherwise(cluster: Cluster) -> None:
    """SHGR-28."""
    g = Group(cluster, "latest", (b"old",), auto_offset_reset="latest")
    assert acquired(g.fetch("A", 0, max_wait_ms=50)) == []
    cluster.write(g.topic_id, b"new")
    assert acquired(g.fetch("A", 1)) == [(1, 1, 1)]
    hour = Group(cluster, "hour", (b"old",), auto_offset_reset="by_duration:PT1H")
    assert acquired(hour.fetch("A", 0)) == [(0, 0, 1)]


def test_too_many_sessions_are_refused_after_the_wait(cluster: Cluster) -> None:
    """SHGR-24."""
    g = Group(cluster, "limit", (b"a",))
    answers = [g.fetch(f"m{number}", 0, max_wait_ms=1) for number in range(101)]
    assert answers[-1].error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    begin = time.monotonic()
    assert g.fetch("late", 0, max_wait_ms=300).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert time.monotonic() - begin >= 0.3
    for number in range(100):
        g.fetch(f"m{number}", -1)


def test_a_session_with_too_many_partitions_is_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    # A member could name any number of partitions, for as long as its connection lived.
    g = Group(cluster, "many", (b"a",))
    unknown = [(g.topic_id, index) for index in range(1, 5)]
    monkeypatch.setattr(share_session, "SESSION_PARTITIONS_MAX", 3)
    refused = cluster.fetch(g.name, "A", 0, g.place, *unknown, max_wait_ms=1)
    assert refused.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert g.fetch("A", 1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert acquired(g.fetch("A", 0)) == [(0, 0, 1)]
    assert cluster.fetch(g.name, "A", 1, *unknown[:2], max_wait_ms=1).error_code == 0
    refused = cluster.fetch(g.name, "A", 2, *unknown[:3], max_wait_ms=1)
    assert refused.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert cluster.fetch(g.name, "A", 3, *unknown[:2], max_wait_ms=1).error_code == 0, "it has these already"
    monkeypatch.setattr(share_session, "ALL_PARTITIONS_MAX", 3)
    assert g.fetch("B", 0, max_wait_ms=1).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    g.fetch("A", -1)


# -- administration ----------------------------------------------------------------------------------------------------


def test_groups_are_listed_and_described(cluster: Cluster) -> None:
    """SHGR-17."""
    g = Group(cluster, "shown", (b"a",))
    listed = cluster.client.call(ListGroupsRequest(types_filter=["share"])).groups
    assert ("shown", "share", "Stable", "share") in {
        (group.group_id, group.protocol_type, group.group_state, group.group_type) for group in listed
    }
    assert (cluster.described("shown").group_state, cluster.described("none").error_code) == (
        "Stable",
        ErrorCode.GROUP_ID_NOT_FOUND,
    )
    assert cluster.beat("shown", "A", -1).error_code == 0
    assert cluster.described("shown").group_state == "Empty"
    assert g.epoch > 0


def test_offsets_are_described_altered_and_deleted(cluster: Cluster) -> None:
    """SHGR-74, SHGR-75, SHGR-76, SHGR-77."""
    g = Group(cluster, "admin", (b"a",), (b"b",), (b"c",), (b"d",))
    g.fetch("A", 0)
    assert codes(g.acknowledge("A", 1, (0, 1, (ACCEPT,)), (3, 3, (ACCEPT,)))) == [0]

    def shown(topic: str | None = g.topic, group: str = "admin") -> list[tuple[int, int, int]]:
        found = cluster.offsets(group, topic, 0)
        assert found.error_code == 0
        return [(p.start_offset, p.lag, p.error_code) for t in found.topics for p in t.partitions]

    ((start, lag, code),) = shown()
    assert (start in (0, 2), lag, code) == (True, 1, 0)
    assert shown(None) == shown()
    assert shown("absent") == [(-1, -1, 0)]
    assert shown(None, "nobody") == []
    assert cluster.alter("admin", g.topic, 0, 1).error_code == ErrorCode.NON_EMPTY_GROUP
    assert cluster.delete_offsets("admin", g.topic).error_code == ErrorCode.NON_EMPTY_GROUP
    assert cluster.delete_group("admin") == ErrorCode.NON_EMPTY_GROUP
    g.fetch("A", -1)
    cluster.beat("admin", "A", -1)
    assert codes(cluster.alter("admin", g.topic, 0, 1)) == [0]
    assert codes(cluster.alter("admin", g.topic, 9, 1)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    refused = cluster.alter("admin", "absent", 0, 1)
    assert codes(refused) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert refused.responses[0].partitions[0].error_message == NOT_HOSTED
    assert [start for start, _, _ in shown()] == [1]
    cluster.join("admin", "B", g.topic)
    assert acquired(g.fetch("B", 0)) == [(1, 3, 1)]
    g.fetch("B", -1)
    cluster.beat("admin", "B", -1)
    deleted = cluster.delete_offsets("admin", g.topic)
    assert (deleted.error_code, [topic.error_code for topic in deleted.responses]) == (0, [0])
    assert shown() == [(-1, -1, 0)]
    deleted = cluster.delete_offsets("admin", g.topic)
    assert [topic.error_code for topic in deleted.responses] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert deleted.responses[0].error_message == "There is no offset information to delete."
    cluster.alter("admin", g.topic, 0, 1)
    deleted = cluster.delete_offsets("admin", "absent")
    assert [topic.error_code for topic in deleted.responses] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert deleted.responses[0].error_message == NOT_HOSTED
    refused = cluster.delete_offsets("nobody", g.topic)
    assert (refused.error_code, refused.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group nobody not found.")
    assert cluster.delete_group("admin") == 0
    assert cluster.described("admin").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    made = cluster.alter("made", g.topic, 0, 3)
    assert codes(made) == [0]
    assert [start for start, _, _ in shown(group="made")] == [3]


def test_the_share_coordinator_is_found_by_version_6_and_whole_keys(cluster: Cluster) -> None:
    """SHGR-58."""
    _, topic_id = cluster.topic()

    def find(key: str, version: int = 6) -> int:
        answer = cluster.client.call(FindCoordinatorRequest(key_type=2, coordinator_keys=[key]), version)
        code: int = answer.coordinators[0].error_code
        return code

    assert until(lambda: find(f"g:{topic_id}:0"), lambda code: code != ErrorCode.COORDINATOR_NOT_AVAILABLE) == 0
    for key in ("g", f"g:{topic_id}", "g:x:0", f"g:{topic_id}:x", f":{topic_id}:0"):
        assert find(key) == ErrorCode.INVALID_REQUEST
    assert find(f"g:{topic_id}:0", 5) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("name", "outside"),
    [
        ("session_timeout_ms", ("44999", "60001")),
        ("heartbeat_interval_ms", ("4999", "15001")),
        ("record_lock_duration_ms", ("999", "60001")),
        ("delivery_count_limit", ("1", "11")),
        ("partition_max_record_locks", ("99", "4001")),
        ("auto_offset_reset", ("none", "by_duration:x")),
        ("isolation_level", ("committed",)),
        ("assignment_interval_ms", ("-1", "15001")),
    ],
)
def test_settings_outside_their_bounds_are_refused(cluster: Cluster, name: str, outside: tuple[str, ...]) -> None:
    """SHGR-80."""
    assert [cluster.configure("bounds", **{name: text}) for text in outside] == [ErrorCode.INVALID_CONFIG] * len(
        outside
    )


# -- switched off ----------------------------------------------------------------------------------------------------


def _set_level(client: RawClient, level: int) -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey(
        feature="share.version", max_version_level=level, upgrade_type=1 if level else 2
    )
    answer = client.call(UpdateFeaturesRequest(feature_updates=[update], timeout_ms=30_000))
    assert answer.error_code == 0, answer


def test_level_0_switches_share_groups_off_and_forgets_sessions() -> None:
    """SHGR-01, SHGR-03."""
    with kraftlog.Broker(config=CONFIG) as broker, RawClient(broker.bootstrap_servers) as admin:
        cluster = Cluster(broker.bootstrap_servers)
        g = Group(cluster, "off", (b"a",))
        assert acquired(g.fetch("A", 0)) == [(0, 0, 1)]
        _set_level(admin, 0)
        unsupported = ErrorCode.UNSUPPORTED_VERSION
        assert until(lambda: g.fetch("A", 1, max_wait_ms=1), lambda a: a.error_code).error_code == unsupported
        assert g.acknowledge("A", 1).error_code == unsupported
        assert cluster.beat("off", "A", 0, g.topic).error_code == unsupported
        assert cluster.described("off").error_code == unsupported
        assert cluster.offsets("off", None).error_code == unsupported
        assert cluster.alter("off", g.topic, 0, 0).error_code == unsupported
        assert cluster.delete_offsets("off", g.topic).error_code == unsupported
        versions = admin.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"))
        listed = {api.api_key for api in versions.api_keys}
        assert {76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92} <= listed
        _set_level(admin, 1)
        code = until(lambda: g.fetch("A", 1, max_wait_ms=1).error_code, lambda code: code != unsupported)
        assert code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert acquired(g.fetch("A", 0, max_wait_ms=5_000)) == [(0, 0, 1)]
        cluster.client.sock.close()


def test_the_topic_of_the_share_coordinator_has_the_settings_of_kafka(cluster: Cluster) -> None:
    """SHGR-59."""
    g = Group(cluster, "topic-settings", (b"a",))
    g.fetch("A", 0)
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name="__share_group_state", configuration_keys=None
    )
    (result,) = cluster.client.call(DescribeConfigsRequest(resources=[resource])).results
    found = {config.name: config.value for config in result.configs}
    wanted = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "compression.type": "producer",
    }
    assert {name: found[name] for name in wanted} == wanted
