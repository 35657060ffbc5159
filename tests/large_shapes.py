"""Requests with very many entries: for each array of each request schema, that array filled and the others small.

The walks over all APIs (``benches/request_walk.py`` and ``tests/integration/node/test_request_walk.py``) send them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kraftlog._kraftlog import encode_batch
from kraftlog.types import Uuid
from kraftlog.wire.registry import API_BY_KEY, Api
from kraftlog.wire.schema import FieldSchema, parse_schema
from raw_client import RawClient
from transaction_requests import add, begin
from waiting import until_true

__all__ = ["Shape", "World", "make_world", "shapes_of"]

_TOPIC = "large"

_END = 32767
# Their known names would delete the topic that other requests are about.
_ABSENT_ONLY = frozenset({"DeleteTopics", "DeleteGroups"})
_PARTITION_FIELDS = frozenset(
    {"partition", "partitionIndex", "index", "partitions", "partitionIndexes", "partitionId", "partitionIndexId"}
)
_TOPIC_FIELDS = frozenset(
    {"topic", "topicName", "topicNames", "name", "topics", "subscribedTopicNames", "resourceName"}
)
_NUMBERED_FIELDS = frozenset({"firstOffset", "lastOffset"})
# An array of these has distinct ones unless they are to be known.
_OWNER_ARRAYS = {"groupId": "groups", "transactionalId": "transactions"}


@dataclass(frozen=True, kw_only=True)
class World:
    """What a node has, for requests to name.

    Attributes:
        topic: A topic with ``partitions`` partitions.
        topic_id: Its id.
        partitions: How many.
        fields: Values by Kafka's field name, or by ``Api.field``, which wins; None is the field's default.
    """

    topic: str
    topic_id: Uuid
    partitions: int
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One request.

    Attributes:
        name: The API, the array that is filled, and with what.
        version: Of the request.
        request: The message.
    """

    name: str
    version: int
    request: Any


def shapes_of(key: int, world: World, entries: int) -> Iterator[Shape]:
    """Every array of the API's request, filled with distinct absent things and with known ones.

    Args:
        key: Of the API.
        world: What exists.
        entries: Of the filled array.
    """
    api = API_BY_KEY[key]
    low, high = api.request.VERSIONS if api.is_removed else (api.min_version, api.max_version)
    for path, versions in _arrays(api.request, api.request, ()):
        version = min(high, versions[1])
        if version < max(low, versions[0]):
            continue
        for known in (False, True):
            if known and api.name in _ABSENT_ONLY:
                continue
            builder = _Builder(api, world, version, entries, path, known=known)
            name = f"{api.name}.{'.'.join(path)} {'known' if known else 'absent'}"
            yield Shape(name=name, version=version, request=builder.build())


def _arrays(
    message: Any, struct: Any, path: tuple[str, ...], versions: tuple[int, int] = (0, _END)
) -> Iterator[tuple[tuple[str, ...], tuple[int, int]]]:
    for schema in parse_schema(struct):
        served = max(versions[0], schema.versions.low), min(versions[1], schema.versions.high)
        nested = getattr(message, schema.element, None)
        if schema.is_array:
            yield (*path, schema.name), served
        if nested is not None:
            yield from _arrays(message, nested, (*path, schema.name), served)


class _Builder:
    """Makes one request."""

    def __init__(self, api: Api, world: World, version: int, entries: int, path: Sequence[str], *, known: bool) -> None:
        self._api = api
        self._world = world
        self._version = version
        self._entries = entries
        self._path = tuple(path)
        self._known = known

    def build(self) -> Any:
        return self._struct(self._api.request, (), 0)

    def _struct(self, struct: Any, path: tuple[str, ...], number: int) -> Any:
        values: dict[str, Any] = {}
        for schema in parse_schema(struct):
            if self._version not in schema.versions:
                continue
            value = self._value(schema, (*path, schema.name), number)
            if value is not None:
                values[schema.name] = value
        return struct(**values)

    def _value(self, schema: FieldSchema, path: tuple[str, ...], number: int) -> Any:
        nested = getattr(self._api.request, schema.element, None)
        if schema.is_array:
            is_way = path == self._path[: len(path)]
            if not is_way:
                # Arrays beside the filled one are empty, and null if they may be, but for one entry below it.
                inside = path[: len(self._path)] == self._path
                if not inside:
                    return () if self._version not in schema.nullable else None
            count = self._entries if path == self._path else 1
            if nested is None:
                return [self._scalar(schema, index if count > 1 else number) for index in range(count)]
            return [self._struct(nested, path, index if count > 1 else number) for index in range(count)]
        if nested is not None:
            return self._struct(nested, path, number) if path == self._path[: len(path)] else None
        return self._scalar(schema, number)

    def _scalar(self, schema: FieldSchema, number: int) -> Any:
        world, name = self._world, schema.json_name
        is_distinct = not self._known and self._path[-1] == _OWNER_ARRAYS.get(name)
        for key in (f"{self._api.name}.{name}", name):
            if key in world.fields and not is_distinct:
                return world.fields[key]
        if name == "lastOffset" and self._path[-1] == "acknowledge_types":
            return self._entries - 1
        if name in _NUMBERED_FIELDS:
            return number
        match schema.element:
            case "string":
                return world.topic if self._known and name in _TOPIC_FIELDS else f"{name}-{number}"
            case "uuid":
                return world.topic_id if self._known and name == "topicId" else Uuid(number.to_bytes(16, "big"))
            case "bytes" | "records":
                return b""
            case "bool":
                return None
            case "float64":
                return 0.0
        if name in _PARTITION_FIELDS:
            return number % world.partitions if self._known else number
        # Ids of brokers and the like in arrays; other numbers have their defaults.
        return number if schema.is_array and schema.element in {"int32", "int64"} else (0 if schema.is_array else None)


def _request_class(name: str) -> Any:
    return next(api.request for api in API_BY_KEY.values() if api.name == name)


def make_world(bootstrap: str, partitions: int, cluster_id: str) -> World:
    """Create what requests name: topics, groups with a member, a transaction."""
    with RawClient(bootstrap, timeout_s=120) as client:
        create = _request_class("CreateTopics")
        topics = [
            create.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in (("small", 1), (_TOPIC, partitions))
        ]
        made = client.call(create(topics=topics, timeout_ms=100_000)).topics
        topic_id = next(topic.topic_id for topic in made if topic.name == _TOPIC)
        find = _request_class("FindCoordinator")
        for key_type, keys in ((0, ["g", "c", "s"]), (1, ["t"])):
            asked = find(key_type=key_type, coordinator_keys=keys)
            until_true(lambda asked=asked: not any(c.error_code for c in client.call(asked).coordinators))
        producer = begin(client, "t")
        add(client, "t", producer, (_TOPIC, 0))
        commit = _request_class("OffsetCommit")
        offsets = [
            commit.OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
            for index in range(partitions)
        ]
        client.call(commit(group_id="g", topics=[commit.OffsetCommitRequestTopic(name=_TOPIC, partitions=offsets)]), 8)
        beat = _request_class("ConsumerGroupHeartbeat")
        member = "AAAAAAAAAAAAAAAAAAAAAA"
        joined = client.call(
            beat(
                group_id="c",
                member_id=member,
                member_epoch=0,
                rebalance_timeout_ms=300_000,
                subscribed_topic_names=["small"],
                topic_partitions=[],
            )
        )
        share = _request_class("ShareGroupHeartbeat")
        client.call(share(group_id="s", member_id=member, member_epoch=0, subscribed_topic_names=[_TOPIC]))
    batch = encode_batch([(int(time.time() * 1000), b"k", b"v", ())])
    return World(
        topic=_TOPIC,
        topic_id=topic_id,
        partitions=partitions,
        fields={
            "groupId": "g",
            **{f"{name}.groupId": "c" for name in ("ConsumerGroupHeartbeat",)},
            **{
                f"{name}.groupId": "s"
                for name in (
                    "ShareGroupHeartbeat",
                    "ShareFetch",
                    "ShareAcknowledge",
                    "InitializeShareGroupState",
                    "ReadShareGroupState",
                    "WriteShareGroupState",
                    "DeleteShareGroupState",
                    "ReadShareGroupStateSummary",
                    "DescribeShareGroupOffsets",
                    "AlterShareGroupOffsets",
                    "DeleteShareGroupOffsets",
                )
            },
            "memberId": None,
            "ConsumerGroupHeartbeat.memberId": member,
            "ConsumerGroupHeartbeat.memberEpoch": joined.member_epoch,
            "ConsumerGroupHeartbeat.rebalanceTimeoutMs": 300_000,
            "ConsumerGroupHeartbeat.instanceId": None,
            "ConsumerGroupHeartbeat.subscribedTopicRegex": None,
            "serverAssignor": None,
            "ShareGroupHeartbeat.memberId": member,
            "ShareGroupHeartbeat.memberEpoch": 1,
            "ShareFetch.memberId": member,
            "ShareFetch.maxRecords": 500,
            "ShareFetch.maxBytes": 1 << 20,
            "ShareAcknowledge.memberId": member,
            "ShareAcknowledge.shareSessionEpoch": -1,
            "acknowledgeTypes": 1,
            "transactionalId": "t",
            "v3AndBelowTransactionalId": "t",
            "Produce.transactionalId": None,
            "Produce.acks": 1,
            "Produce.records": batch,
            "producerId": producer[0],
            "producerEpoch": producer[1],
            "v3AndBelowProducerId": producer[0],
            "v3AndBelowProducerEpoch": producer[1],
            "generationId": -1,
            "generationIdOrMemberEpoch": -1,
            "groupInstanceId": None,
            "clusterId": None,
            "BrokerRegistration.clusterId": cluster_id,
            "BrokerRegistration.brokerId": 77,
            "ControllerRegistration.controllerId": 77,
            "rack": None,
            "rackId": None,
            "validateOnly": True,
            "timeoutMs": 1_000,
            "Produce.timeoutMs": 1_000,
            "sessionTimeoutMs": 10_000,
            "rebalanceTimeoutMs": 100,
            "protocolType": "consumer",
            "resourceType": 2,
            "numPartitions": 1,
            "replicationFactor": 1,
            "responsePartitionLimit": 2_000,
            "Metadata.allowAutoTopicCreation": False,
        },
    )
