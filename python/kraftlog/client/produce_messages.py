"""What a producer says to a leader, and what it takes from the answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from kraftlog._kraftlog import EncodedBatch
from kraftlog.client.state.cluster_metadata import ClusterMetadata, Node
from kraftlog.errors import KafkaError
from kraftlog.types import TopicPartition, Uuid
from kraftlog.wire.messages.produce import ProduceRequest, ProduceResponse

__all__ = ["Outcome", "outcomes_of", "produce_request", "refusal", "take_hints"]

Outcome: TypeAlias = ProduceResponse.PartitionProduceResponse


def produce_request(
    records: Iterable[tuple[TopicPartition, EncodedBatch]],
    topic_ids: Mapping[str, Uuid],
    *,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
) -> ProduceRequest:
    """The request for one batch of each partition."""
    topics: dict[str, list[ProduceRequest.PartitionProduceData]] = {}
    for name, data in records:
        topics.setdefault(name.topic, []).append(
            ProduceRequest.PartitionProduceData(index=name.partition, records=data)
        )
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            ProduceRequest.TopicProduceData(name=topic, topic_id=topic_ids[topic], partition_data=partitions)
            for topic, partitions in topics.items()
        ],
    )


def outcomes_of(answer: ProduceResponse, topic_ids: Mapping[str, Uuid]) -> dict[TopicPartition, Outcome]:
    """What became of each partition's batch, by the names that the request had."""
    names = {topic_id: topic for topic, topic_id in topic_ids.items()}
    return {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), partition.index): partition
        for topic in answer.responses
        for partition in topic.partition_responses
    }


def take_hints(metadata: ClusterMetadata, answer: ProduceResponse, outcomes: Mapping[TopicPartition, Outcome]) -> None:
    """Learn the leaders that an answer names (KIP-951)."""
    leaders = {
        name: (found.current_leader.leader_id, found.current_leader.leader_epoch)
        for name, found in outcomes.items()
        if found.current_leader.leader_id >= 0
    }
    nodes = [Node(node.node_id, node.host, node.port, node.rack) for node in answer.node_endpoints]
    metadata.apply_leaders(leaders, nodes)


def refusal(name: TopicPartition, outcome: Outcome) -> KafkaError:
    """The error of a partition, with the reasons for single records (KIP-467)."""
    reasons = [
        f"record {refused.batch_index}: {refused.batch_index_error_message}" for refused in outcome.record_errors
    ]
    return KafkaError(outcome.error_code, "; ".join(filter(None, [str(name), outcome.error_message, *reasons])))
