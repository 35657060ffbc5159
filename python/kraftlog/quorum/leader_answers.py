"""What a leader answered to questions about its quorum."""

from __future__ import annotations

from typing import Any

from kraftlog.errors import KafkaError
from kraftlog.raft.voter_set import Endpoint
from kraftlog.runtime.metadata.quorum_info import QuorumInfo, ReplicaInfo

__all__ = ["describe_error", "quorum_info", "top_level_error"]


def top_level_error(response: Any) -> KafkaError | None:
    """The error of a whole answer; None for none."""
    return KafkaError(response.error_code, response.error_message) if response.error_code else None


def describe_error(response: Any) -> KafkaError | None:
    """The error of an answer to DescribeQuorum, as a whole or of its partition; None for none."""
    code = response.error_code or response.topics[0].partitions[0].error_code
    return KafkaError(code) if code else None


def quorum_info(response: Any) -> QuorumInfo:
    """What an answer to DescribeQuorum says."""
    partition = response.topics[0].partitions[0]
    listeners = {
        node.node_id: tuple(Endpoint(listener.name, listener.host, listener.port) for listener in node.listeners)
        for node in response.nodes
    }

    def info(replica: Any) -> ReplicaInfo:
        return ReplicaInfo(
            replica_id=replica.replica_id,
            directory_id=replica.replica_directory_id,
            log_end_offset=replica.log_end_offset,
            last_fetch_timestamp=replica.last_fetch_timestamp,
            last_caught_up_timestamp=replica.last_caught_up_timestamp,
            listeners=listeners.get(replica.replica_id, ()),
        )

    return QuorumInfo(
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        high_watermark=partition.high_watermark,
        voters=tuple(map(info, partition.current_voters)),
        observers=tuple(map(info, partition.observers)),
    )
