"""Share groups over a socket: every request and code of area 34 that one node shows (KIP-932)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kraftlog
from kraftlog._kraftlog import encode_batch, read_batches
from kraftlog.errors import ErrorCode
from kraftlog.types import Uuid
from kraftlog.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from kraftlog.wire.messages.api_versions import ApiVersionsRequest
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from kraftlog.wire.messages.delete_groups import DeleteGroupsRequest
from kraftlog.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from kraftlog.wire.messages.describe_configs import DescribeConfigsRequest
from kraftlog.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from kraftlog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftlog.wire.messages.list_groups import ListGroupsRequest
from kraftlog.wire.messages.produce import ProduceRequest
from kraftlog.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from kraftlog.wire.messages.share_fetch import ShareFetchRequest
from kraftlog.wire.messages.share_group_describe import ShareGroupDescribeRequest
from kraftlog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kraftlog.wire.messages.update_features import UpdateFeaturesRequest
from raw_client import RawClient

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
DEADLINE_S = 20.0
_GROUP = 32
CONFIG = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "1000",
    "group.share.max.share.sessions": "100",
    "group.share.assignment.interval.ms": "0",
    "share.coordinator.state.topic.num.partitions": "3",
}


class Cluster:
    """A node, one connection to it, and short forms of requests."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.client = RawClient(bootstrap, timeout_s=30)
        self.topics = 0

    def topic(self, partitions: int = 1) -> tuple[str, Uuid]:
        self.topics += 1
        name = f"share-{self.topics}"
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        (made,) = self.client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000)).topics
        assert made.error_code == 0
        return name, made.topic_id

    def write(self, topic: Uuid, *values: bytes, partition: int = 0) -> None:
        batch = encode_batch([(int(time.time() * 1000), None, value, ()) for value in values])
        request = ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    topic_id=topic,
                    partition_data=[ProduceRequest.PartitionProduceData(index=partition, records=batch)],
                )
            ],
        )
        until(lambda: self.client.call(request).responses[0].partition_responses[0].error_code, lambda code: code == 0)

    def configure(self, group: str, **settings: str) -> int:
        configs = [
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=f"share.{name.replace('_', '.')}", config_operation=0, value=value
            )
            for name, value in settings.items()
        ]
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=_GROUP, resource_name=group, configs=configs
        )
        code: int = self.client.call(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code
        return code

    def find(self, group: str) -> None:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        assert self.client.call(request).coordinators[0].error_code == 0

    def beat(self, group: str, member: str, epoch: int, *topics: str, **fields: Any) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=topics or None, **fields
        )
        return self.client.call(request)

    def join(self, group: str, member: str, topic: str) -> int:
        """Join, and beat until partitions are assigned; the member epoch."""
        self.find(group)
        answer = until(lambda: self.beat(group, member, 0, topic), lambda a: a.error_code not in (14, 15, 16))
        assert answer.error_code == 0, answer
        assert answer.assignment.topic_partitions in ([], ()) or self.is_shared(group)
        if answer.assignment.topic_partitions:
            return int(answer.member_epoch)
        epoch = answer.member_epoch
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            answer = self.beat(group, member, epoch)
            assert answer.error_code == 0, answer
            epoch = answer.member_epoch
            if answer.assignment is not None and answer.assignment.topic_partitions:
                return int(epoch)
            time.sleep(0.1)
        raise AssertionError(answer)

    def is_shared(self, group: str) -> bool:
        return bool(self.described(group).members)

    def described(self, group: str) -> Any:
        return self.client.call(ShareGroupDescribeRequest(group_ids=[group])).groups[0]

    def fetch(
        self,
        group: str,
        member: str,
        epoch: int,
        *places: tuple[Uuid, int],
        acks: tuple[tuple[int, int, tuple[int, ...]], ...] = (),
        version: int = 2,
        client: RawClient | None = None,
        **fields: Any,
    ) -> Any:
        values: dict[str, Any] = {"max_wait_ms": 2_000, "min_bytes": 1, "max_records": 500, "batch_size": 500} | fields
        batches = [
            ShareFetchRequest.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            for first, last, types in acks
        ]
        request = ShareFetchRequest(
            group_id=group,
            member_id=member,
            share_session_epoch=epoch,
            topics=[
                ShareFetchRequest.FetchTopic(
                    topic_id=topic,
                    partitions=[
                        ShareFetchRequest.FetchPartition(partition_index=index, acknowledgement_batches=batches)
                    ],
                )
                for topic, index in places
            ],
            **values,
        )
        return (client or self.client).call(request, version)

    def acknowledge(
        self,
        group: str,
        member: str,
        epoch: int,
        place: tuple[Uuid, int] | None,
        *acks: tuple[int, int, tuple[int, ...]],
        version: int = 2,
        **fields: Any,
    ) -> Any:
        batches = [
            ShareAcknowledgeRequest.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            for first, last, types in acks
        ]
        topics = []
        if place is not None:
            partition = ShareAcknowledgeRequest.AcknowledgePartition(
                partition_index=place[1], acknowledgement_batches=batches
            )
            topics = [ShareAcknowledgeRequest.AcknowledgeTopic(topic_id=place[0], partitions=[partition])]
        request = ShareAcknowledgeRequest(
            group_id=group, member_id=member, share_session_epoch=epoch, topics=topics, **fields
        )
        return self.client.call(request, version)

    def offsets(self, group: str, topic: str | None, *indexes: int) -> Any:
        asked = DescribeShareGroupOffsetsRequest
        topics = (
            None
            if topic is None
            else [asked.DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=indexes)]
        )
        return self.client.call(
            asked(groups=[asked.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=topics)])
        ).groups[0]

    def alter(self, group: str, topic: str, index: int, offset: int) -> Any:
        asked = AlterShareGroupOffsetsRequest
        partition = asked.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
        topics = [asked.AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[partition])]
        return self.client.call(asked(group_id=group, topics=topics))

    def delete_offsets(self, group: str, topic: str) -> Any:
        asked = DeleteShareGroupOffsetsRequest
        topics = [asked.DeleteShareGroupOffsetsRequestTopic(topic_name=topic)]
        return self.client.call(asked(group_id=group, topics=topics))

    def delete_group(self, group: str) -> int:
        code: int = self.client.call(DeleteGroupsRequest(groups_names=[group])).results[0].error_code
        return code


def until(ask: Callable[[], Any], done: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while not done(answer := ask()):
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
    return answer


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    assert answer.error_code == 0, answer
    return [
        (part.first_offset, part.last_offset, part.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for part in partition.acquired_records
    ]


def values(answer: Any) -> list[bytes]:
    return [
        value or b""
        for topic in answer.responses
        for partition in topic.partitions
        for batch in read_batches(partition.records or b"")
        for _, _, _, value, _ in batch.records()
    ]


def codes(answer: Any) -> list[int]:
    assert answer.error_code == 0, answer
    return [partition.error_code for topic in answer.responses for partition in topic.partitions]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with kraftlog.Broker(config=CONFIG) as broker:
        made = Cluster(broker.bootstrap_servers)
        yield made
        made.client.sock.close()


class Group:
    """A topic with one partition, a group that reads it from the start, and one member with a session."""

    def __init__(self, cluster: Cluster, name: str, *written: tuple[bytes, ...], **settings: str) -> None:
        self.cluster = cluster
        self.name = name
        self.topic, self.topic_id = cluster.topic()
        assert cluster.configure(name, **({"auto_offset_reset": "earliest"} | settings)) == 0
        for batch in written:
            cluster.write(self.topic_id, *batch)
        self.epoch = cluster.join(name, "A", self.topic)
        self.place = (self.topic_id, 0)

    def fetch(self, member: str, epoch: int, **fields: Any) -> Any:
        return self.cluster.fetch(self.name, member, epoch, self.place, **fields)

    def acknowledge(self, member: str, epoch: int, *acks: tuple[int, int, tuple[int, ...]], **fields: Any) -> Any:
        return self.cluster.acknowledge(self.name, member, epoch, self.place, *acks, **fields)


# -- sessions, fetches, acknowledgements -------------------------------------------------------------------------------


def test_records_are_acquired_acknowledged_and_never_seen_again(cluster: Cluster) -> None:
    """SHGR-12, SHGR-22, SHGR-28, SHGR-29, SHGR-45."""
    g = Group(cluster, "plain", (b"a", b"b"), (b"c",))
    first = g.fetch("A", 0)
    assert (acquired(first), values(first), first.acquisition_lock_timeout_ms) == (
        [(0, 2, 1)],
        [b"a", b"b", b"c"],
        1_000,
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
    begin = time.monotonic()
    assert acquired(g.fetch("A", 1, max_wait_ms=5_000)) == [(0, 0, 2)]
    assert time.monotonic() - begin < 0.9


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
    g = Group(cluster, "renew", (b"a",), record_lock_duration_ms="2000")
    zero = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    assert acquired(g.fetch("A", 0)) == [(0, 0, 1)]
    assert g.fetch("A", 1, is_renew_ack=True).error_code == ErrorCode.INVALID_REQUEST
    cluster.write(g.topic_id, b"b")
    time.sleep(1.2)
    answer = g.fetch("A", 1, acks=((0, 0, (RENEW,)),), is_renew_ack=True, **zero)
    assert (acquired(answer), answer.responses[0].partitions[0].acknowledge_error_code) == ([], 0)
    time.sleep(1.2)
    assert acquired(g.fetch("B", 0, max_wait_ms=1)) == [(1, 1, 1)]
    assert codes(g.acknowledge("A", 2, (0, 0, (RENEW,)), is_renew_ack=True)) == [0]
    assert codes(g.acknowledge("A", 3, (0, 0, (ACCEPT,)))) == [0]
    assert cluster.configure("renew", renew_acknowledge_enable="false") == 0
    assert codes(g.acknowledge("B", 1, (1, 1, (RENEW,)), is_renew_ack=True)) == [ErrorCode.INVALID_RECORD_STATE]


def test_a_lock_ends_and_the_last_delivery_archives(cluster: Cluster) -> None:
    """SHGR-46, SHGR-47."""
    g = Group(cluster, "timeouts", (b"a",), delivery_count_limit="2")
    assert acquired(g.fetch("A", 0)) == [(0, 0, 1)]
    assert acquired(g.fetch("B", 0, max_wait_ms=5_000)) == [(0, 0, 2)]
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
    assert codes(cluster.alter("admin", "absent", 0, 1)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
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
    assert cluster.delete_offsets("nobody", g.topic).error_code == ErrorCode.GROUP_ID_NOT_FOUND
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
