"""The settings of the metadata quorum and of the way to its leader; the node makes them of its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kraftlog.raft.config import RaftConfig
from kraftlog.raft.voter_set import VoterSet
from kraftlog.storage.metadata_log import MetadataLogConfig
from kraftlog.types import NodeId, Uuid

__all__ = ["ChannelSettings", "MetadataSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataSettings:
    """One node's part in the metadata quorum; fields without a text here bear the names of Kafka's keys.

    Args:
        raft: Identity, addresses and timers of the replica.
        metadata_log_dir: The data directory with the metadata log.
        was_clean_shutdown: Whether the last run closed that directory.
        log: Of the metadata log.
        static_voters: controller.quorum.voters, in force while the log has no Voters record.
        snapshot_max_bytes: metadata.log.max.record.bytes.between.snapshots.
        snapshot_max_interval_ms: metadata.log.max.snapshot.interval.ms.
        is_broker, is_controller: The roles of the node; which metrics there are follows from them.
        properties: What the node's own properties set explicitly, by broker key.
        leader_imbalance_check_interval_s: leader.imbalance.check.interval.seconds.
        metrics_sample_window_ms: metrics.sample.window.ms.
    """

    raft: RaftConfig
    metadata_log_dir: Path
    was_clean_shutdown: bool
    log: MetadataLogConfig
    static_voters: VoterSet
    snapshot_max_bytes: int
    snapshot_max_interval_ms: int
    is_broker: bool
    is_controller: bool
    properties: Mapping[str, str]
    metadata_max_idle_interval_ms: int
    broker_session_timeout_ms: int
    broker_heartbeat_interval_ms: int
    auto_leader_rebalance_enable: bool
    leader_imbalance_check_interval_s: int
    unclean_leader_election_interval_ms: int
    metrics_num_samples: int
    metrics_sample_window_ms: int

    @property
    def node_id(self) -> NodeId:
        """This node."""
        return self.raft.local_key.node_id

    @property
    def directory_id(self) -> Uuid:
        """Of the metadata log directory."""
        return self.raft.local_key.directory_id

    @property
    def cluster_id(self) -> str:
        """As in meta.properties."""
        return self.raft.cluster_id or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSettings:
    """How a node reaches the active controller.

    Args:
        node_id: As the connection names its client.
        listener_name: The listener on which controllers are reached.
        socket_timeout_ms: controller.socket.timeout.ms: longest wait for one answer.
        connect_timeout_ms: controller.quorum.request.timeout.ms: longest wait for a connection.
    """

    node_id: int
    listener_name: str
    socket_timeout_ms: int
    connect_timeout_ms: int
