"""What Metadata says of brokers that are fenced, over a node without sockets."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlog.errors import ErrorCode
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata import MetadataRequest
from kraftlog.wire.messages.metadata_records import FenceBrokerRecord, PartitionRecord, TopicRecord, UnfenceBrokerRecord

TOPIC_ID = Uuid(b"t" * 16)


@pytest.mark.parametrize("version", [5, 7, 12, 13])
def test_fenced_broker_is_not_listed_and_its_replicas_are_offline(node: Any, version: int) -> None:
    """CPRT-19."""
    node.register_broker(2)
    node.replay(
        TopicRecord(name="t", topic_id=TOPIC_ID),
        *(
            PartitionRecord(partition_id=index, topic_id=TOPIC_ID, replicas=replicas, isr=replicas, leader=replicas[0])
            for index, replicas in enumerate([(1, 2), (2, 1)])
        ),
    )

    def asked() -> tuple[list[int], list[tuple[int, int, list[int], list[int]]]]:
        node.metadata.image.offset += 1  # views are kept for each state
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])
        found = node.ask(request, version)
        partitions = [
            (partition.error_code, partition.leader_id, list(partition.replica_nodes), list(partition.offline_replicas))
            for partition in found.topics[0].partitions
        ]
        return sorted(broker.node_id for broker in found.brokers), partitions

    assert asked() == ([1, 2], [(0, 1, [1, 2], []), (0, 2, [2, 1], [])])
    node.replay(FenceBrokerRecord(id=2, epoch=2))
    assert asked() == ([1], [(0, 1, [1, 2], [2]), (ErrorCode.LEADER_NOT_AVAILABLE, -1, [2, 1], [2])])
    node.replay(UnfenceBrokerRecord(id=2, epoch=2))
    assert asked()[0] == [1, 2]
