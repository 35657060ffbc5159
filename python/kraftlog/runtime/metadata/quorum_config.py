"""What the metadata quorum takes from the configuration and the metadata directory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kraftlog.errors import LogError
from kraftlog.features import KRAFT_VERSION, supported_ranges
from kraftlog.raft.core import RaftConfig
from kraftlog.raft.voter_set import Endpoint, Voter, VoterSet
from kraftlog.storage.meta_properties import random_uuid, read_meta_properties, write_meta_properties
from kraftlog.storage.metadata_log import MetadataLogConfig
from kraftlog.transport.listener import ConfigError
from kraftlog.types import NodeId, ReplicaKey, Uuid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kraftlog.node.config import NodeConfig
    from kraftlog.transport.listener import EndPoint

__all__ = [
    "RaftNode",
    "controller_listener",
    "ensure_directory_id",
    "metadata_log_config",
    "raft_config",
    "static_voters",
]

DEFAULT_CONTROLLER_LISTENER = "CONTROLLER"


class RaftNode(Protocol):
    """What is known of a node before its replica starts."""

    @property
    def config(self) -> NodeConfig:
        """Settings."""

    @property
    def cluster_id(self) -> str:
        """As in meta.properties."""

    def advertised_end_points(self) -> Sequence[EndPoint]:
        """The listeners as peers are told."""


def raft_config(node: RaftNode, directory_id: Uuid, *, max_batch_bytes: int) -> RaftConfig:
    """Identity, addresses and timers of this node's replica; a broker alone is an observer for ever."""
    config = node.config
    names = config.controller_listener_names
    low, high = supported_ranges()[KRAFT_VERSION]
    return RaftConfig(
        cluster_id=node.cluster_id,
        local_key=ReplicaKey(NodeId(config.node_id), directory_id),
        can_become_voter=config.is_controller,
        listener_name=controller_listener(config),
        local_endpoints=tuple(
            Endpoint(one.listener_name, one.host, one.port)
            for one in node.advertised_end_points()
            if config.is_controller and one.listener_name in names
        ),
        bootstrap_servers=bootstrap_servers(config),
        min_kraft_version=low,
        max_kraft_version=high,
        election_timeout_ms=config.get_int("controller.quorum.election.timeout.ms"),
        fetch_timeout_ms=config.get_int("controller.quorum.fetch.timeout.ms"),
        election_backoff_max_ms=config.get_int("controller.quorum.election.backoff.max.ms"),
        request_timeout_ms=config.get_int("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=config.get_int("controller.quorum.retry.backoff.ms"),
        append_linger_ms=config.get_int("controller.quorum.append.linger.ms"),
        fetch_max_bytes=config.get_int("controller.quorum.fetch.max.bytes"),
        fetch_snapshot_max_bytes=config.get_int("controller.quorum.fetch.snapshot.max.bytes"),
        max_batch_bytes=max_batch_bytes,
        auto_join=config.is_controller and config.get_bool("controller.quorum.auto.join.enable"),
    )


def metadata_log_config(config: NodeConfig) -> MetadataLogConfig:
    """Settings of the metadata log."""
    return MetadataLogConfig(
        segment_bytes=config.get_optional_int("internal.metadata.log.segment.bytes")
        or config.get_int("metadata.log.segment.bytes"),
        segment_ms=config.get_int("metadata.log.segment.ms"),
        max_batch_bytes=config.get_int("internal.metadata.max.batch.size.in.bytes"),
        retention_bytes=config.get_int("metadata.max.retention.bytes"),
        retention_ms=config.get_int("metadata.max.retention.ms"),
        delete_delay_ms=config.get_int("internal.metadata.delete.delay.millis"),
    )


def ensure_directory_id(directory: Path) -> Uuid:
    """The id in meta.properties; one is drawn and stored where an older format left none (BOOT-32).

    Raises:
        LogError: The directory is not formatted.
    """
    properties = read_meta_properties(directory)
    if properties is None:
        raise LogError(f"{directory} is not formatted")
    if properties.directory_id is not None:
        return properties.directory_id
    directory_id = random_uuid()
    write_meta_properties(directory, replace(properties, directory_id=directory_id))
    return directory_id


def static_voters(config: NodeConfig) -> VoterSet:
    """controller.quorum.voters: no directory ids, kraft.version 0 only."""
    voters: list[Voter] = []
    for entry in config.get_list("controller.quorum.voters"):
        node_id, _, address = entry.partition("@")
        endpoint = _endpoint(controller_listener(config), address)
        voters.append(Voter(ReplicaKey(NodeId(int(node_id))), (endpoint,)))
    return VoterSet(voters)


def bootstrap_servers(config: NodeConfig) -> tuple[Endpoint, ...]:
    """controller.quorum.bootstrap.servers: whom to ask for the leader.

    Raises:
        ConfigError: An entry is not of the form host:port.
    """
    servers: list[Endpoint] = []
    for entry in config.get_list("controller.quorum.bootstrap.servers"):
        try:
            servers.append(_endpoint(controller_listener(config), entry))
        except ValueError:
            msg = f"controller.quorum.bootstrap.servers: cannot read {entry!r}; each entry has the form host:port"
            raise ConfigError(msg) from None
    return tuple(servers)


def controller_listener(config: NodeConfig) -> str:
    """Replicas find each other on the first controller listener (ENDP-08)."""
    names = config.controller_listener_names
    return names[0] if names else DEFAULT_CONTROLLER_LISTENER


def _endpoint(listener_name: str, address: str) -> Endpoint:
    host, _, port = address.rpartition(":")
    return Endpoint(listener_name, host.strip("[]"), int(port))
