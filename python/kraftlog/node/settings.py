"""The settings of each room as one value, read from the node's configuration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kraftlog.api.request_quota import QuotaWindows
from kraftlog.api.settings import ApiSettings
from kraftlog.controller.dynamic_broker_configs import connection_overrides
from kraftlog.coordinator.group.assignors import ASSIGNORS
from kraftlog.coordinator.group.config import GroupConfig, MigrationPolicy
from kraftlog.coordinator.share.state_shard import ShareStateConfig
from kraftlog.coordinator.transaction.config import TransactionConfig
from kraftlog.node.config import NodeConfig
from kraftlog.node.identity import NodeIdentity, RegisteredListener
from kraftlog.node.registration import BrokerRegistrationSettings
from kraftlog.node.start_error import StartError
from kraftlog.partition.replica_selector import LEADER_SELECTOR, RACK_AWARE_SELECTOR
from kraftlog.quota.sampled_rate import Windows
from kraftlog.runtime.coordinator.group_coordinator import GroupCoordinatorSettings
from kraftlog.runtime.coordinator.shard_runner import Compression
from kraftlog.runtime.coordinator.share_coordinator import ShareCoordinatorSettings
from kraftlog.runtime.coordinator.transaction_coordinator import TransactionCoordinatorSettings
from kraftlog.runtime.metadata.topic_creation import TopicCreationSettings
from kraftlog.runtime.replica.checkpoint_writer import CheckpointIntervals
from kraftlog.runtime.replica.compactor import CleanerSettings
from kraftlog.runtime.replica.fetcher_loop import FetcherSettings
from kraftlog.runtime.replica.retention import RetentionIntervals
from kraftlog.runtime.replica.settings import ReplicaSettings
from kraftlog.runtime.share.group_settings import ShareBrokerSettings
from kraftlog.storage.log_dir import LogDir
from kraftlog.transport.acceptor import ConnectionLimits
from kraftlog.transport.listener import ConfigError, EndPoint
from kraftlog.transport.native_sockets import DataPathLimits

__all__ = [
    "FETCH_SESSION_EVICTION_MS",
    "api_settings",
    "broker_registration_settings",
    "cleaner_settings",
    "connection_limits",
    "data_path_limits",
    "group_coordinator_settings",
    "node_identity",
    "quota_windows",
    "replica_settings",
    "topic_creation_settings",
    "transaction_coordinator_settings",
]

# By the ids that offsets.topic.compression.codec and record batches have.
_CODECS: Final[tuple[Compression, ...]] = ("none", "gzip", "snappy", "lz4", "zstd")
# Not a setting in Kafka either.
FETCH_SESSION_EVICTION_MS: Final = 120_000
_MINUTE_MS: Final = 60_000
_IO_THREADS_MAX: Final = 64
_LISTENER_PREFIX: Final = "listener.name."


def api_settings(config: NodeConfig) -> ApiSettings:
    """What handlers take from the configuration."""
    return ApiSettings(
        properties=config.properties,
        auto_create_topics_enable=config.get_bool("auto.create.topics.enable"),
        delete_topic_enable=config.get_bool("delete.topic.enable"),
        fetch_max_bytes=config.get_int("fetch.max.bytes"),
        max_request_partition_size_limit=config.get_int("max.request.partition.size.limit"),
        group_protocols=frozenset(config.get_list("group.coordinator.rebalance.protocols")),
        transaction_partition_verification_enable=config.get_bool("transaction.partition.verification.enable"),
        selects_replicas_by_rack=_selects_replicas_by_rack(config),
    )


def _selects_replicas_by_rack(config: NodeConfig) -> bool:
    """Whether consumers are sent to followers in their rack.

    Raises:
        StartError: replica.selector.class names a class that only Java could load.
    """
    name = config.get_optional_str("replica.selector.class")
    if name not in {None, "", LEADER_SELECTOR, RACK_AWARE_SELECTOR}:
        msg = f"replica.selector.class={name} is not supported; set {RACK_AWARE_SELECTOR} or remove it"
        raise StartError(msg)
    return name == RACK_AWARE_SELECTOR


def connection_limits(config: NodeConfig) -> ConnectionLimits:
    """Bounds on connections."""

    def explicit(key: str) -> int:
        # Kafka's defaults of 100 KiB would hold the kernel's own tuning back; only what is set explicitly counts.
        return config.get_int(key) if key in config.properties else -1

    return ConnectionLimits(
        max_connections=config.get_int("max.connections"),
        max_connections_per_ip=config.get_int("max.connections.per.ip"),
        max_idle_ms=config.get_int("connections.max.idle.ms"),
        max_frame_bytes=config.get_int("socket.request.max.bytes"),
        send_buffer_bytes=explicit("socket.send.buffer.bytes"),
        receive_buffer_bytes=explicit("socket.receive.buffer.bytes"),
        listen_backlog=config.get_int("socket.listen.backlog.size"),
        max_connections_per_ip_overrides=connection_overrides(config.get_str("max.connections.per.ip.overrides")),
        max_connection_creation_rate=config.get_int("max.connection.creation.rate"),
        max_connections_by_listener=_by_listener(config, "max.connections"),
        max_connection_creation_rate_by_listener=_by_listener(config, "max.connection.creation.rate"),
        unlimited_listener=_unlimited_listener(config),
        max_queued_requests=config.get_int("queued.max.requests"),
        max_queued_bytes=config.get_int("queued.max.request.bytes"),
    )


def _unlimited_listener(config: NodeConfig) -> str:
    """The listener of other brokers, if clients have one of their own."""
    if not config.is_broker:
        return ""
    controllers = config.controller_listener_names
    of_brokers = [listener for listener in config.listeners if listener.listener_name not in controllers]
    return config.inter_broker_listener_name if len(of_brokers) > 1 else ""


def _by_listener(config: NodeConfig, key: str) -> dict[str, int]:
    """The values of ``listener.name.<name>.<key>``, by lower-case name.

    Raises:
        ConfigError: A value is not a positive integer.
    """
    values: dict[str, int] = {}
    for name, text in config.properties.items():
        if name.startswith(_LISTENER_PREFIX) and name.endswith(f".{key}"):
            try:
                value = int(text.strip())
            except ValueError:
                value = 0
            if value <= 0:
                msg = f"{name}={text} must be an integer of at least 1"
                raise ConfigError(msg)
            values[name.removeprefix(_LISTENER_PREFIX).removesuffix(f".{key}").lower()] = value
    return values


def quota_windows(config: NodeConfig) -> QuotaWindows:
    """How the use of client quotas is measured."""
    return QuotaWindows(
        rates=Windows(1000 * config.get_int("quota.window.size.seconds"), config.get_int("quota.window.num")),
        mutations=Windows(
            1000 * config.get_int("controller.quota.window.size.seconds"),
            config.get_int("controller.quota.window.num"),
        ),
    )


def data_path_limits(config: NodeConfig) -> DataPathLimits:
    """Bounds of the I/O threads."""
    # More threads than one pay only with more cores than the loop and the flushes use.
    threads = config.get_int("num.network.threads") if "num.network.threads" in config.properties else 1
    return DataPathLimits(
        threads=min(threads, _IO_THREADS_MAX),
        max_frame_bytes=config.get_int("socket.request.max.bytes"),
        max_idle_ms=config.get_int("connections.max.idle.ms"),
        fetch_max_bytes=config.get_int("fetch.max.bytes"),
        fetch_sessions_max=config.get_int("max.incremental.fetch.session.cache.slots"),
        fetch_session_eviction_ms=FETCH_SESSION_EVICTION_MS,
        selects_replicas=_selects_replicas_by_rack(config),
        max_queued_requests=config.get_int("queued.max.requests"),
        max_queued_bytes=config.get_int("queued.max.request.bytes"),
    )


def group_coordinator_settings(config: NodeConfig) -> GroupCoordinatorSettings:
    """Settings of the group coordinator."""
    return GroupCoordinatorSettings(
        compression=_CODECS[config.get_int("offsets.topic.compression.codec")],
        write_timeout_ms=config.get_int("offsets.commit.timeout.ms"),
        groups=GroupConfig(
            group_min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
            group_max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
            group_max_size=config.get_int("group.max.size"),
            group_initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
            offset_metadata_max_bytes=config.get_int("offset.metadata.max.bytes"),
            offsets_retention_ms=config.get_int("offsets.retention.minutes") * _MINUTE_MS,
            offsets_retention_check_interval_ms=config.get_int("offsets.retention.check.interval.ms"),
            group_consumer_max_size=config.get_int("group.consumer.max.size"),
            group_consumer_assignors=_assignors(config),
            group_consumer_regex_refresh_interval_ms=config.get_int("group.consumer.regex.refresh.interval.ms"),
            group_consumer_migration_policy=MigrationPolicy(config.get_str("group.consumer.migration.policy").lower()),
            group_consumer_session_timeout_ms=config.get_int("group.consumer.session.timeout.ms"),
            group_consumer_min_session_timeout_ms=config.get_int("group.consumer.min.session.timeout.ms"),
            group_consumer_max_session_timeout_ms=config.get_int("group.consumer.max.session.timeout.ms"),
            group_consumer_heartbeat_interval_ms=config.get_int("group.consumer.heartbeat.interval.ms"),
            group_consumer_min_heartbeat_interval_ms=config.get_int("group.consumer.min.heartbeat.interval.ms"),
            group_consumer_max_heartbeat_interval_ms=config.get_int("group.consumer.max.heartbeat.interval.ms"),
            group_consumer_assignment_interval_ms=config.get_int("group.consumer.assignment.interval.ms"),
            group_consumer_min_assignment_interval_ms=config.get_int("group.consumer.min.assignment.interval.ms"),
            group_consumer_max_assignment_interval_ms=config.get_int("group.consumer.max.assignment.interval.ms"),
            group_share_max_size=config.get_int("group.share.max.size"),
            group_share_session_timeout_ms=config.get_int("group.share.session.timeout.ms"),
            group_share_min_session_timeout_ms=config.get_int("group.share.min.session.timeout.ms"),
            group_share_max_session_timeout_ms=config.get_int("group.share.max.session.timeout.ms"),
            group_share_heartbeat_interval_ms=config.get_int("group.share.heartbeat.interval.ms"),
            group_share_min_heartbeat_interval_ms=config.get_int("group.share.min.heartbeat.interval.ms"),
            group_share_max_heartbeat_interval_ms=config.get_int("group.share.max.heartbeat.interval.ms"),
            group_share_assignment_interval_ms=config.get_int("group.share.assignment.interval.ms"),
            group_share_min_assignment_interval_ms=config.get_int("group.share.min.assignment.interval.ms"),
            group_share_max_assignment_interval_ms=config.get_int("group.share.max.assignment.interval.ms"),
        ),
    )


def _assignors(config: NodeConfig) -> tuple[str, ...]:
    """The server-side assignors of consumer groups, the default one first.

    Raises:
        StartError: One is a class of Java, or unknown.
    """
    names = tuple(config.get_list("group.consumer.assignors"))
    unknown = [name for name in names if name not in ASSIGNORS]
    if unknown or not names:
        found = ", ".join(unknown) or "an empty list"
        raise StartError(f"group.consumer.assignors: {found}: supported are {', '.join(ASSIGNORS)}")
    return names


def transaction_coordinator_settings(config: NodeConfig) -> TransactionCoordinatorSettings:
    """Settings of the transaction coordinator."""
    request_timeout_ms = config.get_int("request.timeout.ms")
    return TransactionCoordinatorSettings(
        transactions=TransactionConfig(
            max_timeout_ms=config.get_int("transaction.max.timeout.ms"),
            abort_check_interval_ms=config.get_int("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            expiration_ms=config.get_int("transactional.id.expiration.ms"),
            expiration_check_interval_ms=config.get_int("transaction.remove.expired.transaction.cleanup.interval.ms"),
            two_phase_commit_enable=config.get_bool("transaction.two.phase.commit.enable"),
        ),
        retry_ms=config.get_int("add.partitions.to.txn.retry.backoff.ms"),
        retry_max_ms=min(config.get_int("add.partitions.to.txn.retry.backoff.max.ms"), request_timeout_ms),
        request_timeout_ms=request_timeout_ms,
    )


def share_coordinator_settings(config: NodeConfig) -> ShareCoordinatorSettings:
    """Settings of the share coordinator."""
    return ShareCoordinatorSettings(
        compression=_CODECS[config.get_int("share.coordinator.state.topic.compression.codec")],
        write_timeout_ms=config.get_int("share.coordinator.write.timeout.ms"),
        states=ShareStateConfig(
            updates_per_snapshot=config.get_int("share.coordinator.snapshot.update.records.per.snapshot"),
            cold_interval_ms=config.get_int("share.coordinator.cold.partition.snapshot.interval.ms"),
            prune_interval_ms=config.get_int("share.coordinator.state.topic.prune.interval.ms"),
        ),
    )


def share_broker_settings(config: NodeConfig) -> ShareBrokerSettings:
    """Settings of share groups on the leaders of partitions."""
    return ShareBrokerSettings(
        delivery_count_limit=config.get_int("group.share.delivery.count.limit"),
        min_delivery_count_limit=config.get_int("group.share.min.delivery.count.limit"),
        max_delivery_count_limit=config.get_int("group.share.max.delivery.count.limit"),
        record_lock_duration_ms=config.get_int("group.share.record.lock.duration.ms"),
        min_record_lock_duration_ms=config.get_int("group.share.min.record.lock.duration.ms"),
        max_record_lock_duration_ms=config.get_int("group.share.max.record.lock.duration.ms"),
        partition_max_record_locks=config.get_int("group.share.partition.max.record.locks"),
        min_partition_max_record_locks=config.get_int("group.share.min.partition.max.record.locks"),
        max_partition_max_record_locks=config.get_int("group.share.max.partition.max.record.locks"),
        max_share_sessions=config.get_int("group.share.max.share.sessions"),
    )


def cleaner_settings(config: NodeConfig) -> CleanerSettings:
    """Settings of the compactor, before they are altered dynamically."""

    def number(key: str) -> float:
        value = config.get(key)
        return value if isinstance(value, int | float) else 0

    return CleanerSettings(
        enable=config.get_bool("log.cleaner.enable"),
        threads=config.get_int("log.cleaner.threads"),
        dedupe_buffer_size=config.get_int("log.cleaner.dedupe.buffer.size"),
        load_factor=number("log.cleaner.io.buffer.load.factor"),
        io_buffer_size=config.get_int("log.cleaner.io.buffer.size"),
        io_max_bytes_per_second=number("log.cleaner.io.max.bytes.per.second"),
        backoff_ms=config.get_int("log.cleaner.backoff.ms"),
    )


def replica_settings(config: NodeConfig) -> ReplicaSettings:
    """Settings of the replicas of topic partitions."""
    return ReplicaSettings(
        node_id=config.node_id,
        log_dirs=tuple(config.log_dirs),
        metadata_log_dir=config.metadata_log_dir,
        flush_on_ack=config.get_bool("log.flush.on.ack"),
        recovery_threads_per_dir=config.get_int("num.recovery.threads.per.data.dir"),
        properties=config.properties,
        cleaner=cleaner_settings(config),
        retention=RetentionIntervals(
            initial_delay_ms=config.get_int("log.initial.task.delay.ms"),
            check_ms=config.get_int("log.retention.check.interval.ms"),
        ),
        checkpoints=CheckpointIntervals(
            high_watermark_ms=config.get_int("replica.high.watermark.checkpoint.interval.ms"),
            recovery_point_ms=config.get_int("log.flush.offset.checkpoint.interval.ms"),
            log_start_ms=config.get_int("log.flush.start.offset.checkpoint.interval.ms"),
        ),
        fetcher=FetcherSettings(
            node_id=config.node_id,
            fetchers_per_leader=config.get_int("num.replica.fetchers"),
            backoff_ms=config.get_int("replica.fetch.backoff.ms"),
            wait_max_ms=config.get_int("replica.fetch.wait.max.ms"),
            min_bytes=config.get_int("replica.fetch.min.bytes"),
            max_bytes=config.get_int("replica.fetch.response.max.bytes"),
            partition_max_bytes=config.get_int("replica.fetch.max.bytes"),
            socket_timeout_ms=config.get_int("replica.socket.timeout.ms"),
            flush_on_ack=config.get_bool("log.flush.on.ack"),
        ),
        lag_max_ms=config.get_int("replica.lag.time.max.ms"),
        listener_name=config.inter_broker_listener_name,
        answers_followers=config.follower_fetches == "native",
        transaction_max_timeout_ms=config.get_int("transaction.max.timeout.ms"),
    )


def topic_creation_settings(config: NodeConfig) -> TopicCreationSettings:
    """Settings of topics that are created on demand."""
    return TopicCreationSettings(
        offsets_topic_num_partitions=config.get_int("offsets.topic.num.partitions"),
        offsets_topic_replication_factor=config.get_int("offsets.topic.replication.factor"),
        offsets_topic_segment_bytes=config.get_int("offsets.topic.segment.bytes"),
        transaction_state_log_num_partitions=config.get_int("transaction.state.log.num.partitions"),
        transaction_state_log_replication_factor=config.get_int("transaction.state.log.replication.factor"),
        transaction_state_log_segment_bytes=config.get_int("transaction.state.log.segment.bytes"),
        transaction_state_log_min_isr=config.get_int("transaction.state.log.min.isr"),
        share_coordinator_state_topic_num_partitions=config.get_int("share.coordinator.state.topic.num.partitions"),
        share_coordinator_state_topic_replication_factor=config.get_int(
            "share.coordinator.state.topic.replication.factor"
        ),
        share_coordinator_state_topic_segment_bytes=config.get_int("share.coordinator.state.topic.segment.bytes"),
        share_coordinator_state_topic_min_isr=config.get_int("share.coordinator.state.topic.min.isr"),
        request_timeout_ms=config.get_int("request.timeout.ms"),
    )


def node_identity(
    config: NodeConfig, cluster_id: str, end_points: Iterable[EndPoint], *, is_controller_listener: bool
) -> NodeIdentity:
    """What the node registers as in one of its roles.

    Args:
        config: Checked settings.
        cluster_id: As in meta.properties.
        end_points: The listeners as others are told, with the ports they are bound to.
        is_controller_listener: Whether the listeners of the controller count, or those for clients.
    """
    names = config.controller_listener_names
    return NodeIdentity(
        node_id=config.node_id,
        cluster_id=cluster_id,
        listeners=tuple(
            RegisteredListener(
                end_point.listener_name,
                end_point.host,
                end_point.port,
                config.security_protocol(end_point.listener_name),
            )
            for end_point in end_points
            if (end_point.listener_name in names) == is_controller_listener
        ),
    )


def broker_registration_settings(
    config: NodeConfig, cluster_id: str, end_points: Iterable[EndPoint], log_dirs: Iterable[LogDir]
) -> BrokerRegistrationSettings:
    """Who the broker is, and how often it says so; the arguments are those of ``node_identity``."""
    return BrokerRegistrationSettings(
        identity=node_identity(config, cluster_id, end_points, is_controller_listener=False),
        rack=config.get_optional_str("broker.rack"),
        directory_ids=tuple(log_dir.directory_id for log_dir in log_dirs if log_dir.path in config.log_dirs),
        heartbeat_interval_ms=config.get_int("broker.heartbeat.interval.ms"),
        registration_timeout_ms=config.get_int("initial.broker.registration.timeout.ms"),
        directory_timeout_ms=config.get_int("log.dir.failure.timeout.ms"),
    )
