"""The settings of the metadata quorum, read from the node's configuration."""

from __future__ import annotations

from collections.abc import Iterable

from kraftlog.features import KRAFT_VERSION, supported_ranges
from kraftlog.node.config import NodeConfig
from kraftlog.node.quorum_keys import FETCH_WAIT_MS
from kraftlog.node.start_error import StartError
from kraftlog.raft.config import RaftConfig
from kraftlog.raft.voter_set import Endpoint, Voter, VoterSet
from kraftlog.runtime.metadata.settings import ChannelSettings, MetadataSettings
from kraftlog.storage.metadata_log import MetadataLogConfig
from kraftlog.transport.listener import ConfigError, EndPoint
from kraftlog.types import NodeId, ReplicaKey, Uuid
from kraftlog.vocabulary import CLUSTER_METADATA_DIRECTORY

__all__ = [
    "channel_settings",
    "check_metadata_log",
    "controller_listener",
    "metadata_log_config",
    "metadata_settings",
    "raft_config",
    "static_voters",
]

DEFAULT_CONTROLLER_LISTENER = "CONTROLLER"


def metadata_settings(
    config: NodeConfig, *, cluster_id: str, directory_id: Uuid, was_clean_shutdown: bool, end_points: Iterable[EndPoint]
) -> MetadataSettings:
    """The node's part in the metadata quorum.

    Args:
        config: Checked settings.
        cluster_id: As in meta.properties.
        directory_id: Of the metadata log directory, as in its meta.properties.
        was_clean_shutdown: Whether the last run closed that directory.
        end_points: The listeners as peers are told, with the ports they are bound to.

    Raises:
        ConfigError: A setting cannot be read.
    """
    return MetadataSettings(
        raft=raft_config(config, cluster_id=cluster_id, directory_id=directory_id, end_points=end_points),
        metadata_log_dir=config.metadata_log_dir,
        was_clean_shutdown=was_clean_shutdown,
        log=metadata_log_config(config),
        static_voters=static_voters(config),
        snapshot_max_bytes=config.get_int("metadata.log.max.record.bytes.between.snapshots"),
        snapshot_max_interval_ms=config.get_int("metadata.log.max.snapshot.interval.ms"),
        is_broker=config.is_broker,
        is_controller=config.is_controller,
        properties=config.properties,
        metadata_max_idle_interval_ms=config.get_int("metadata.max.idle.interval.ms"),
        auto_leader_rebalance_enable=config.get_bool("auto.leader.rebalance.enable"),
        leader_imbalance_check_interval_s=config.get_int("leader.imbalance.check.interval.seconds"),
        unclean_leader_election_interval_ms=config.get_int("unclean.leader.election.interval.ms"),
        broker_session_timeout_ms=config.get_int("broker.session.timeout.ms"),
        broker_heartbeat_interval_ms=config.get_int("broker.heartbeat.interval.ms"),
        metrics_num_samples=config.get_int("metrics.num.samples"),
        metrics_sample_window_ms=config.get_int("metrics.sample.window.ms"),
    )


def channel_settings(config: NodeConfig) -> ChannelSettings:
    """The way to the active controller."""
    return ChannelSettings(
        node_id=config.node_id,
        listener_name=controller_listener(config),
        socket_timeout_ms=config.get_int("controller.socket.timeout.ms"),
        connect_timeout_ms=config.get_int("controller.quorum.request.timeout.ms"),
    )


def raft_config(
    config: NodeConfig, *, cluster_id: str, directory_id: Uuid, end_points: Iterable[EndPoint]
) -> RaftConfig:
    """Identity, addresses and timers of this node's replica; a broker alone is an observer for ever.

    The arguments are those of ``metadata_settings``.
    """
    names = config.controller_listener_names
    low, high = supported_ranges()[KRAFT_VERSION]
    return RaftConfig(
        cluster_id=cluster_id,
        local_key=ReplicaKey(NodeId(config.node_id), directory_id),
        can_become_voter=config.is_controller,
        listener_name=controller_listener(config),
        local_endpoints=tuple(
            Endpoint(end_point.listener_name, end_point.host, end_point.port)
            for end_point in end_points
            if config.is_controller and end_point.listener_name in names
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
        fetch_max_wait_ms=config.get_int(FETCH_WAIT_MS),
        fetch_max_bytes=config.get_int("controller.quorum.fetch.max.bytes"),
        fetch_snapshot_max_bytes=config.get_int("controller.quorum.fetch.snapshot.max.bytes"),
        max_batch_bytes=config.get_int("internal.metadata.max.batch.size.in.bytes"),
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


def check_metadata_log(config: NodeConfig) -> None:
    """Refuse to begin without a metadata log where no other node can give it one.

    Raises:
        StartError: The directory is missing, and the only controller that could be asked for it is this node.
    """
    directory = config.metadata_log_dir / CLUSTER_METADATA_DIRECTORY
    if directory.exists() or config.get_list("controller.quorum.voters") or not config.is_controller:
        return
    names = config.controller_listener_names
    listeners = [*config.listeners, *config.advertised_listeners]
    own = {(listener.host, listener.port) for listener in listeners if listener.listener_name in names}
    if all((server.host, server.port) in own for server in bootstrap_servers(config)):
        message = (
            f"{directory} is missing: this node knows no voters, and controller.quorum.bootstrap.servers names no other"
            " controller; restore the directory, or format the log directories again"
        )
        raise StartError(message)


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
