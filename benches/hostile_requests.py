"""Requests of hundred thousands of entries, or near the bound of socket.request.max.bytes, for ``fairness.py``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kraftlog.wire.frame import encode_request
from kraftlog.wire.registry import API_BY_KEY

SMALL, LARGE = "small", "large"
ENTRIES = 200_000
KEYS = {api.name: key for key, api in API_BY_KEY.items()}


def frame(request: Any, version: int | None = None) -> bytes:
    """A request with its size before it."""
    used = API_BY_KEY[request.API_KEY].max_version if version is None else version
    return b"".join(map(bytes, encode_request(request.API_KEY, used, 1, "fairness", request)))


def request_class(name: str) -> Any:
    return API_BY_KEY[KEYS[name]].request


def metadata_of(topic: str, version: int = 12) -> bytes:
    request = request_class("Metadata")
    wanted = [request.MetadataRequestTopic(name=topic)]
    return frame(request(topics=wanted, allow_auto_topic_creation=False), version)


def names(prefix: str, count: int = ENTRIES) -> Iterable[str]:
    return (f"{prefix}-{index}" for index in range(count))


def build_metadata() -> tuple[Any, int]:
    request = request_class("Metadata")
    topics = [request.MetadataRequestTopic(name=name) for name in names("absent")]
    return request(topics=topics, allow_auto_topic_creation=False), 12


def build_find_coordinator() -> tuple[Any, int]:
    return request_class("FindCoordinator")(key_type=0, coordinator_keys=list(names("group"))), 4


def build_list_offsets() -> tuple[Any, int]:
    request = request_class("ListOffsets")
    partition = request.ListOffsetsPartition
    wanted = [partition(partition_index=index, timestamp=-1) for index in range(ENTRIES)]
    return request(replica_id=-1, topics=[request.ListOffsetsTopic(name=LARGE, partitions=wanted)]), 7


def build_fetch() -> tuple[Any, int]:
    request = request_class("Fetch")
    wanted = [request.FetchPartition(partition=index, partition_max_bytes=1) for index in range(ENTRIES)]
    topics = [request.FetchTopic(topic=LARGE, partitions=wanted)]
    return request(max_wait_ms=500, min_bytes=1, max_bytes=1, topics=topics, session_epoch=-1), 12


def build_fetch_session() -> tuple[Any, int]:
    made, version = build_fetch()
    return request_class("Fetch")(max_wait_ms=0, min_bytes=1, max_bytes=1, topics=made.topics, session_epoch=0), version


def build_produce() -> tuple[Any, int]:
    request = request_class("Produce")
    data = [request.PartitionProduceData(index=index, records=b"") for index in range(ENTRIES)]
    return request(acks=1, timeout_ms=1000, topic_data=[request.TopicProduceData(name=LARGE, partition_data=data)]), 9


def build_offset_fetch() -> tuple[Any, int]:
    request = request_class("OffsetFetch")
    topics = [request.OffsetFetchRequestTopics(name=LARGE, partition_indexes=range(ENTRIES))]
    return request(groups=[request.OffsetFetchRequestGroup(group_id="g", topics=topics)]), 8


def build_offset_commit() -> tuple[Any, int]:
    request = request_class("OffsetCommit")
    wanted = [
        request.OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
        for index in range(ENTRIES)
    ]
    return request(group_id="g", topics=[request.OffsetCommitRequestTopic(name=LARGE, partitions=wanted)]), 8


def build_describe_configs() -> tuple[Any, int]:
    request = request_class("DescribeConfigs")
    resource = request.DescribeConfigsResource
    wanted = [resource(resource_type=2, resource_name=LARGE, configuration_keys=None)] * (ENTRIES // 100)
    return request(resources=wanted), 4


def build_create_topics() -> tuple[Any, int]:
    request = request_class("CreateTopics")
    topics = [
        request.CreatableTopic(name=f"not a name {index}", num_partitions=1, replication_factor=1)
        for index in range(ENTRIES)
    ]
    return request(topics=topics, timeout_ms=1000, validate_only=True), 7


def build_delete_topics() -> tuple[Any, int]:
    return request_class("DeleteTopics")(topic_names=list(names("absent")), timeout_ms=1000), 5


def build_delete_records() -> tuple[Any, int]:
    request = request_class("DeleteRecords")
    wanted = [request.DeleteRecordsPartition(partition_index=index, offset=0) for index in range(ENTRIES)]
    return request(topics=[request.DeleteRecordsTopic(name=LARGE, partitions=wanted)], timeout_ms=1000), 2


def build_epochs() -> tuple[Any, int]:
    request = request_class("OffsetForLeaderEpoch")
    wanted = [
        request.OffsetForLeaderPartition(partition=index, current_leader_epoch=-1, leader_epoch=0)
        for index in range(ENTRIES)
    ]
    topics = [request.OffsetForLeaderTopic(topic=LARGE, partitions=wanted)]
    return request(replica_id=-1, topics=topics), 4


def build_describe_groups() -> tuple[Any, int]:
    return request_class("DescribeGroups")(groups=list(names("absent"))), 5


def build_delete_groups() -> tuple[Any, int]:
    return request_class("DeleteGroups")(groups_names=list(names("absent"))), 2


def build_alter_configs() -> tuple[Any, int]:
    request = request_class("IncrementalAlterConfigs")
    resources = [
        request.AlterConfigsResource(resource_type=2, resource_name=name, configs=[]) for name in names("absent")
    ]
    return request(resources=resources, validate_only=True), 1


def build_describe_partitions() -> tuple[Any, int]:
    request = request_class("DescribeTopicPartitions")
    return request(topics=[request.TopicRequest(name=name) for name in names("absent")]), 0


def build_unknown_tags() -> tuple[Any, int]:
    """Strings that are long, so that the frame is near the bound of socket.request.max.bytes."""
    return request_class("DescribeGroups")(groups=["x" * 30_000] * 3_000), 5


def build_join() -> tuple[Any, int]:
    request = request_class("JoinGroup")
    protocols = [request.JoinGroupRequestProtocol(name=f"p{index}", metadata=bytes(9 << 20)) for index in range(10)]
    return request(
        group_id="joined",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=100,
        protocol_type="consumer",
        protocols=protocols,
    ), 5


def build_long_names() -> tuple[Any, int]:
    """Names of topics that no topic can have, in a frame near the bound of socket.request.max.bytes."""
    request = request_class("Metadata")
    topics = [request.MetadataRequestTopic(name=f"{index:030000}") for index in range(3_000)]
    return request(topics=topics, allow_auto_topic_creation=False), 12


def build_alter_configs_old() -> tuple[Any, int]:
    request = request_class("AlterConfigs")
    resources = [
        request.AlterConfigsResource(resource_type=2, resource_name=name, configs=[]) for name in names("absent")
    ]
    return request(resources=resources, validate_only=True), 2


def build_transaction() -> tuple[Any, int]:
    request = request_class("AddPartitionsToTxn")
    topics = [request.AddPartitionsToTxnTopic(name=LARGE, partitions=list(range(ENTRIES)))]
    return request(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=topics,
    ), 3
