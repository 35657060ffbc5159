"""Short forms of the requests of share groups, against a running node."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kraftlog._kraftlog import encode_batch, read_batches
from kraftlog.types import Uuid
from kraftlog.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from kraftlog.wire.messages.delete_groups import DeleteGroupsRequest
from kraftlog.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from kraftlog.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from kraftlog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftlog.wire.messages.produce import ProduceRequest
from kraftlog.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from kraftlog.wire.messages.share_fetch import ShareFetchRequest
from kraftlog.wire.messages.share_group_describe import ShareGroupDescribeRequest
from kraftlog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from raw_client import RawClient

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
DEADLINE_S = 60.0
_GROUP = 32
CONFIG = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "30000",  # tests of locks that end set a shorter time
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
