"""Groups through a live node: finding the coordinator, members, offsets, and what a restart keeps."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

import kraftlog
from kraftlog.errors import ErrorCode
from kraftlog.types import Uuid
from kraftlog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kraftlog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kraftlog.wire.messages.delete_groups import DeleteGroupsRequest
from kraftlog.wire.messages.delete_topics import DeleteTopicsRequest
from kraftlog.wire.messages.describe_groups import DescribeGroupsRequest
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from kraftlog.wire.messages.heartbeat import HeartbeatRequest
from kraftlog.wire.messages.init_producer_id import InitProducerIdRequest
from kraftlog.wire.messages.join_group import JoinGroupRequest
from kraftlog.wire.messages.leave_group import LeaveGroupRequest
from kraftlog.wire.messages.list_groups import ListGroupsRequest
from kraftlog.wire.messages.metadata import MetadataRequest
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest
from kraftlog.wire.messages.offset_delete import OffsetDeleteRequest
from kraftlog.wire.messages.offset_fetch import OffsetFetchRequest
from kraftlog.wire.messages.sync_group import SyncGroupRequest
from kraftlog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from raw_client import RawClient

CONFIG = {"offsets.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "0"}
# A consumer's subscription to topic "t".
SUBSCRIPTION = bytes.fromhex("0001 00000001 0001 74 ffffffff")


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with kraftlog.Broker(tmp_path_factory.mktemp("data"), config=CONFIG) as one:
        one.create_topic("t", partitions=2)
        one.create_topic("u", partitions=1)
        with RawClient(one.bootstrap_servers) as client:
            client.call(FindCoordinatorRequest(coordinator_keys=["any"]))
        yield one


@pytest.fixture
def client(broker):
    with RawClient(broker.bootstrap_servers) as one:
        yield one


def commit(client, group, *offsets, version=9, generation=-1, member_id="", topic_id=Uuid.ZERO, metadata=""):
    topics = [
        OffsetCommitRequest.OffsetCommitRequestTopic(
            name=topic,
            topic_id=topic_id,
            partitions=[
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset, committed_metadata=metadata
                )
            ],
        )
        for topic, index, offset in offsets
    ]
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation, member_id=member_id, topics=topics
    )
    response = client.call(request, version)
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


def fetch(client, group, version=9):
    """topic, partition -> offset"""
    if version >= 8:
        request = OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)])
        (answer,) = client.call(request, version).groups
        assert answer.error_code == ErrorCode.NONE
        topics = answer.topics
    else:
        topics = client.call(OffsetFetchRequest(group_id=group, topics=None), version).topics
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in topics
        for partition in topic.partitions
    }


def join(client, group, member_id="", version=9, instance_id=None):
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )
    response = client.call(request, version)
    if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        return join(client, group, response.member_id, version, instance_id)
    return response


def sync(client, group, joined, assignment=b"all of it"):
    assignments = [SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)]
    request = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=assignments if joined.leader == joined.member_id else [],
    )
    return client.call(request)


def describe(client, group, version=6):
    (one,) = client.call(DescribeGroupsRequest(groups=[group]), version).groups
    return one


@pytest.mark.spec("CGRP-03")
@pytest.mark.parametrize("version", range(7))
def test_find_coordinator_every_version(client, broker, version):
    if version >= 4:
        found = client.call(FindCoordinatorRequest(coordinator_keys=["a", "b"]), version).coordinators
        assert [coordinator.key for coordinator in found] == ["a", "b"]
    else:
        found = [client.call(FindCoordinatorRequest(key="a"), version)]
    for coordinator in found:
        assert coordinator.error_code == ErrorCode.NONE
        assert f"{coordinator.host}:{coordinator.port}" == broker.bootstrap_servers


@pytest.mark.parametrize("version", range(2))
def test_a_consumer_group_is_joined_described_and_left(client, version):
    beat = ConsumerGroupHeartbeatRequest(
        group_id=f"new-{version}",
        member_id="m",
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["absent"],
        topic_partitions=[],
    )
    joined = client.call(beat, version)
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (ErrorCode.NONE, "m", 2)
    asked = ConsumerGroupDescribeRequest(group_ids=[f"new-{version}", "", "nobody"])
    described = client.call(asked, version).groups
    assert [group.error_code for group in described] == [0, ErrorCode.INVALID_GROUP_ID, ErrorCode.GROUP_ID_NOT_FOUND]
    assert [member.client_host for member in described[0].members] == ["/127.0.0.1"]
    left = client.call(replace(beat, member_epoch=-1), version)
    assert (left.error_code, left.member_epoch) == (ErrorCode.NONE, -1)
    deleted = client.call(DeleteGroupsRequest(groups_names=[f"new-{version}"]), 2)
    assert deleted.results[0].error_code == ErrorCode.NONE


def test_producer_ids_are_given_once(client):
    given = [client.call(InitProducerIdRequest(transactional_id=None), version) for version in range(6)]
    assert [answer.error_code for answer in given] == [ErrorCode.NONE] * 6
    assert len({answer.producer_id for answer in given}) == 6
    assert {answer.producer_epoch for answer in given} == {0}


@pytest.mark.parametrize("version", range(2, 10))
def test_offsets_of_a_simple_consumer_every_version(client, version):
    group = f"simple-{version}"
    assert commit(client, group, ("t", 0, 10 + version), ("t", 1, 7), version=version) == [ErrorCode.NONE] * 2
    for fetch_version in range(2, 10):
        assert fetch(client, group, fetch_version) == {("t", 0): 10 + version, ("t", 1): 7}


@pytest.mark.spec("CGRP-66", "CGRP-74")
def test_offsets_by_topic_id(client):
    (topic,) = client.call(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])).topics
    assert commit(client, "by-id", ("", 0, 4), version=10, topic_id=topic.topic_id) == [ErrorCode.NONE]
    assert commit(client, "by-id", ("", 0, 4), version=10, topic_id=Uuid(b"\x09" * 16)) == [ErrorCode.UNKNOWN_TOPIC_ID]
    asked = [
        OffsetFetchRequest.OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])
        for topic_id in (topic.topic_id, Uuid(b"\x09" * 16))
    ]
    request = OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id="by-id", topics=asked)])
    known, unknown = client.call(request, 10).groups[0].topics
    assert known.partitions[0].committed_offset == 4
    assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_partition_without_offset_is_minus_one(client):
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[1])
    response = client.call(OffsetFetchRequest(group_id="nobody", topics=[topic]), 1)
    assert response.topics[0].partitions[0].committed_offset == -1


@pytest.mark.parametrize(
    ("offsets", "settings", "code"),
    [
        (("nosuch", 0, 1), {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("t", 99, 1), {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("t", 0, 1), {"metadata": "x" * 5000}, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        (("t", 0, 1), {"generation": 3, "member_id": "m"}, ErrorCode.GROUP_ID_NOT_FOUND),
        (("t", 0, 1), {"generation": 3, "member_id": "m", "version": 8}, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_commit_is_refused_with_kafkas_code(client, offsets, settings, code):
    assert commit(client, f"refused-{code}", offsets, **settings) == [code]


def test_a_member_joins_syncs_commits_and_leaves(client):
    joined = join(client, "life")
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, joined.member_id)
    assert joined.members[0].metadata == SUBSCRIPTION
    assert sync(client, "life", joined).assignment == b"all of it"
    described = describe(client, "life")
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert described.members[0].member_assignment == b"all of it"
    assert described.members[0].client_host == "/127.0.0.1"
    alive = HeartbeatRequest(group_id="life", generation_id=1, member_id=joined.member_id)
    assert client.call(alive).error_code == ErrorCode.NONE
    late = HeartbeatRequest(group_id="life", generation_id=7, member_id=joined.member_id)
    assert client.call(late).error_code == ErrorCode.ILLEGAL_GENERATION
    assert commit(client, "life", ("t", 0, 5), generation=1, member_id=joined.member_id) == [ErrorCode.NONE]
    assert commit(client, "life", ("t", 0, 5)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    member = LeaveGroupRequest.MemberIdentity(member_id=joined.member_id)
    (left,) = client.call(LeaveGroupRequest(group_id="life", members=[member])).members
    assert left.error_code == ErrorCode.NONE
    assert describe(client, "life").group_state == "Empty"
    assert fetch(client, "life") == {("t", 0): 5}


def test_a_second_member_makes_the_first_rejoin(broker, client):
    first = join(client, "two")
    sync(client, "two", first)
    with RawClient(broker.bootstrap_servers) as other:
        request = JoinGroupRequest(
            group_id="two",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        )
        other.send(request, 3)
        alive = HeartbeatRequest(group_id="two", generation_id=1, member_id=first.member_id)
        deadline = time.monotonic() + 30
        while client.call(alive).error_code != ErrorCode.REBALANCE_IN_PROGRESS:
            assert time.monotonic() < deadline
        again = join(client, "two", first.member_id)
        _, second = other.receive(JoinGroupRequest.API_KEY, 3)
        assert again.generation_id == second.generation_id == 2
        assert {member.member_id for member in again.members} == {first.member_id, second.member_id}


@pytest.mark.parametrize("version", range(10))
def test_join_group_every_version(client, version):
    joined = join(client, f"join-{version}", version=version)
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 1)
    assert joined.protocol_name == "range"


@pytest.mark.spec("CGRP-06")
def test_group_ids_that_are_empty_are_refused(client):
    assert join(client, "").error_code == ErrorCode.INVALID_GROUP_ID
    assert client.call(HeartbeatRequest(group_id="")).error_code == ErrorCode.INVALID_GROUP_ID
    assert client.call(LeaveGroupRequest(group_id="")).error_code == ErrorCode.INVALID_GROUP_ID
    assert client.call(OffsetDeleteRequest(group_id="")).error_code == ErrorCode.INVALID_GROUP_ID
    synced = SyncGroupRequest(group_id="", protocol_type="consumer", protocol_name="range")
    assert client.call(synced).error_code == ErrorCode.INVALID_GROUP_ID
    partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])
    transactional = TxnOffsetCommitRequest(
        transactional_id="x", group_id="", producer_id=1, producer_epoch=0, topics=[topic]
    )
    assert client.call(transactional).topics[0].partitions[0].error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.spec("CGRP-06")
def test_the_empty_group_id_may_be_committed_fetched_described_and_deleted(client):
    assert commit(client, "", ("t", 0, 3)) == [ErrorCode.NONE]
    assert fetch(client, "") == {("t", 0): 3}
    assert (describe(client, "").error_code, describe(client, "").group_state) == (ErrorCode.NONE, "Empty")
    (result,) = client.call(DeleteGroupsRequest(groups_names=[""])).results
    assert result.error_code == ErrorCode.NONE


@pytest.mark.spec("CGRP-31")
def test_errors_of_join_group_name_no_protocol(client):
    for version in range(10):
        refused = join(client, f"no-protocol-{version}", member_id="ghost", version=version)
        assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert (refused.protocol_type, refused.protocol_name) == (None, None if version >= 7 else "")


@pytest.mark.spec("CGRP-34")
def test_sync_group_needs_protocol_type_and_name_from_version_5_on(client):
    for fields in ({"protocol_type": "consumer"}, {"protocol_name": "range"}, {}):
        request = SyncGroupRequest(group_id="absent", member_id="m", **fields)
        assert client.call(request, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert client.call(SyncGroupRequest(group_id="absent", member_id="m"), 4).error_code == (
            ErrorCode.UNKNOWN_MEMBER_ID
        )


@pytest.mark.spec("CGRP-64")
def test_metadata_that_is_too_long_fails_its_partition_only(client):
    sized = {"t": 0, "u": 0}
    topics = [
        OffsetCommitRequest.OffsetCommitRequestTopic(
            name=name,
            partitions=[
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=1, committed_metadata="\u20ac" * (4096 + (name == "u"))
                )
            ],
        )
        for name, index in sized.items()
    ]
    response = client.call(OffsetCommitRequest(group_id="sized", topics=topics), 9)
    codes = [partition.error_code for topic in response.topics for partition in topic.partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert fetch(client, "sized") == {("t", 0): 1}


@pytest.mark.spec("CGRP-68", "CGRP-69", "CGRP-70", "CGRP-71")
@pytest.mark.parametrize("version", range(1, 11))
def test_fetching_offsets_in_every_version(client, version):
    (found,) = client.call(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])).topics
    assert commit(client, "fetched", ("t", 0, 6)) == [ErrorCode.NONE]

    def answered(group, topics):
        """(group's error, [(partition, offset, leader epoch, metadata, error)])"""
        if version < 8:
            asked = topics and [OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
            answer = client.call(OffsetFetchRequest(group_id=group, topics=asked), version)
        else:
            asked = topics and [
                OffsetFetchRequest.OffsetFetchRequestTopics(name="t", topic_id=found.topic_id, partition_indexes=[0, 1])
            ]
            # Epoch and member id of a classic group are not looked at.
            one = OffsetFetchRequest.OffsetFetchRequestGroup(
                group_id=group, topics=asked, **({"member_id": "x", "member_epoch": 9} if version >= 9 else {})
            )
            (answer,) = client.call(OffsetFetchRequest(groups=[one]), version).groups
        return answer.error_code, [
            (p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code)
            for topic in answer.topics
            for p in topic.partitions
        ]

    none = [(index, -1, -1, "", 0) for index in range(2)]
    assert answered("fetched", True) == (0, [(0, 6, -1, "", 0), none[1]])
    assert answered("unknown", True) == (0, none)
    if version >= 2:
        assert answered("unknown", None) == (0, [])
        assert answered("fetched", None) == (0, [(0, 6, -1, "", 0)])


@pytest.mark.spec("CGRP-73")
def test_member_id_and_epoch_are_not_checked_for_a_classic_group(client):
    commit(client, "not-checked", ("t", 0, 6))
    for version in (9, 10):
        one = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id="not-checked", topics=None, member_id="x", member_epoch=99
        )
        (answer,) = client.call(OffsetFetchRequest(groups=[one]), version).groups
        assert (answer.error_code, answer.topics[0].partitions[0].committed_offset) == (0, 6)


@pytest.mark.spec("CGRP-75")
def test_a_topic_that_was_created_again_has_no_offsets_yet(broker, client):
    def topic_id():
        (topic,) = client.call(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="again")])).topics
        return topic.topic_id

    broker.create_topic("again", partitions=1)
    old_id = topic_id()
    assert commit(client, "again", ("again", 0, 3)) == [0]
    client.call(DeleteTopicsRequest(topic_names=["again"], timeout_ms=5000), 5)
    broker.create_topic("again", partitions=1)
    new_id = topic_id()
    assert new_id != old_id
    asked = OffsetFetchRequest.OffsetFetchRequestTopics(topic_id=new_id, partition_indexes=[0])
    request = OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id="again", topics=[asked])])
    (partition,) = client.call(request, 10).groups[0].topics[0].partitions
    assert (partition.committed_offset, partition.error_code) == (-1, 0)


@pytest.mark.spec("CGRP-86", "NGRP-103")
def test_list_groups_filters_by_state_and_type(client):
    commit(client, "listed-empty", ("t", 0, 1))
    sync(client, "listed-stable", join(client, "listed-stable"))

    def listed(**filters):
        return {group.group_id for group in client.call(ListGroupsRequest(**filters)).groups}

    assert {"listed-empty", "listed-stable"} <= listed()
    assert "listed-stable" in listed(states_filter=["stable"])
    assert "listed-empty" not in listed(states_filter=["stable"])
    assert "listed-empty" in listed(types_filter=["Classic"])
    assert listed(types_filter=["share"]) == listed(types_filter=["streams"]) == set()
    assert listed(types_filter=["nosuch"]) == listed(states_filter=["nosuch"]) == set()
    both = listed(states_filter=["STABLE", "empty"])
    assert {"listed-empty", "listed-stable"} <= both
    assert {group.group_type for group in client.call(ListGroupsRequest(types_filter=["CLASSIC"])).groups} == {
        "classic"
    }


@pytest.mark.spec("NGRP-84")
@pytest.mark.spec("CGRP-90")
def test_unknown_group_is_dead_and_from_version_6_an_error(client):
    assert describe(client, "never", 5).group_state == "Dead"
    assert describe(client, "never", 5).error_code == ErrorCode.NONE
    unknown = describe(client, "never", 6)
    assert (unknown.error_code, unknown.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert unknown.error_message == "Group never not found."
    beat = ConsumerGroupHeartbeatRequest(
        group_id="not-classic",
        member_id="m",
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert client.call(beat).error_code == ErrorCode.NONE
    assert (describe(client, "not-classic", 5).group_state, describe(client, "not-classic", 5).error_code) == (
        "Dead",
        0,
    )
    other = describe(client, "not-classic", 6)
    assert (other.error_code, other.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group not-classic is not a classic group.",
    )
    commit(client, "simple-for-describe", ("t", 0, 1))
    asked = ConsumerGroupDescribeRequest(group_ids=["never", "simple-for-describe", ""])
    assert [(group.error_code, group.error_message) for group in client.call(asked).groups] == [
        (ErrorCode.GROUP_ID_NOT_FOUND, "Group never not found."),
        (ErrorCode.GROUP_ID_NOT_FOUND, "Group simple-for-describe is not a consumer group."),
        (ErrorCode.INVALID_GROUP_ID, None),
    ]


@pytest.mark.spec("CGRP-85")
def test_offset_delete_spares_what_is_consumed(client):
    joined = join(client, "cut")
    sync(client, "cut", joined)
    assert commit(client, "cut", ("t", 0, 1), ("u", 0, 2), generation=1, member_id=joined.member_id) == [0, 0]
    one = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
    topics = [
        OffsetDeleteRequest.OffsetDeleteRequestTopic(name=name, partitions=[one]) for name in ("t", "u", "nosuch")
    ]
    response = client.call(OffsetDeleteRequest(group_id="nosuchgroup", topics=topics[2:]))
    assert (response.error_code, response.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, ())
    response = client.call(OffsetDeleteRequest(group_id="cut", topics=topics))
    codes = {topic.name: topic.partitions[0].error_code for topic in response.topics}
    assert codes == {
        "t": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        "u": ErrorCode.NONE,
        "nosuch": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert fetch(client, "cut") == {("t", 0): 1}


def test_delete_groups_deletes_only_empty_ones(client):
    commit(client, "gone", ("t", 0, 1))
    sync(client, "busy", join(client, "busy"))
    results = client.call(DeleteGroupsRequest(groups_names=["gone", "busy", "never"])).results
    assert {result.group_id: result.error_code for result in results} == {
        "gone": ErrorCode.NONE,
        "busy": ErrorCode.NON_EMPTY_GROUP,
        "never": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert fetch(client, "gone") == {}


def test_offsets_of_a_deleted_topic_go_with_it(broker, client):
    broker.create_topic("short-lived", partitions=1)
    assert commit(client, "mourner", ("short-lived", 0, 3), ("t", 0, 4)) == [0, 0]
    client.call(DeleteTopicsRequest(topic_names=["short-lived"], timeout_ms=5000), 5)
    deadline = time.monotonic() + 30
    while fetch(client, "mourner") != {("t", 0): 4}:
        assert time.monotonic() < deadline


def test_a_restart_keeps_groups_and_offsets(tmp_path):
    with kraftlog.Broker(tmp_path, config=CONFIG) as broker, RawClient(broker.bootstrap_servers) as client:
        broker.create_topic("t", partitions=1)
        client.call(FindCoordinatorRequest(coordinator_keys=["kept"]))
        joined = join(client, "kept", instance_id="static")
        sync(client, "kept", joined)
        assert commit(client, "kept", ("t", 0, 9), generation=1, member_id=joined.member_id) == [ErrorCode.NONE]
        assert commit(client, "plain", ("t", 0, 8)) == [ErrorCode.NONE]
    with kraftlog.Broker(tmp_path, config=CONFIG) as broker, RawClient(broker.bootstrap_servers) as client:
        wait_for_group(client, "kept")
        assert fetch(client, "kept") == {("t", 0): 9}
        assert fetch(client, "plain") == {("t", 0): 8}
        described = describe(client, "kept")
        assert described.group_state == "Stable"
        assert [member.member_id for member in described.members] == [joined.member_id]
        alive = HeartbeatRequest(
            group_id="kept", generation_id=1, member_id=joined.member_id, group_instance_id="static"
        )
        assert client.call(alive).error_code == ErrorCode.NONE


def wait_for_group(client, group):
    deadline = time.monotonic() + 30
    while describe(client, group).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        assert time.monotonic() < deadline
