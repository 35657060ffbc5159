"""The response that Vote, BeginQuorumEpoch and EndQuorumEpoch have in common."""

from __future__ import annotations

from typing import Any

from kraftlog.raft import messages as raft
from kraftlog.runtime.raft.codec.raft_codec import Answering
from kraftlog.runtime.raft.codec.shared_fields import (
    answered_partition,
    leader_fields,
    node_endpoints,
    node_or_unknown,
)
from kraftlog.types import LogTopic
from kraftlog.wire.struct import Message

__all__ = ["to_core", "to_wire"]


def to_wire(kind: Any, response: Any, answering: Answering, **fields: Any) -> Message:
    """A response of the class ``kind``, with further fields of its partition."""
    if response.top_level_error_code:
        refused: Message = kind(error_code=response.top_level_error_code)
        return refused
    partition = kind.PartitionData(
        partition_index=0,
        error_code=response.error_code,
        leader_id=node_or_unknown(response.leader_id),
        leader_epoch=response.leader_epoch,
        **fields,
    )
    answer: Message = kind(
        topics=(kind.TopicData(topic_name=answering.topic.name, partitions=(partition,)),),
        node_endpoints=node_endpoints(kind, response, answering),
    )
    return answer


def to_core(
    kind: Any, response: Any, listener_name: str, topic: LogTopic, *, own_fields: tuple[str, ...] = ()
) -> raft.Response:
    """A response of the core's class ``kind``, with the partition's fields of these names."""
    if response.error_code:
        refused: raft.Response = kind(top_level_error_code=response.error_code)
        return refused
    partition = answered_partition(response, topic, [(topic.topic_name, topic.partitions) for topic in response.topics])
    answer: raft.Response = kind(
        error_code=partition.error_code,
        **leader_fields(partition.leader_id, partition.leader_epoch, response.node_endpoints, listener_name),
        **{name: getattr(partition, name) for name in own_fields},
    )
    return answer
