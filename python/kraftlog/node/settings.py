"""The settings of each room as one value, read from the node's configuration."""

from __future__ import annotations

from kraftlog.api.settings import ApiSettings
from kraftlog.node.config import NodeConfig
from kraftlog.runtime.metadata.topic_creation import TopicCreationSettings
from kraftlog.transport.acceptor import ConnectionLimits

__all__ = ["api_settings", "connection_limits", "topic_creation_settings"]


def api_settings(config: NodeConfig) -> ApiSettings:
    """What handlers take from the configuration."""
    return ApiSettings(
        properties=config.properties,
        auto_create_topics_enable=config.get_bool("auto.create.topics.enable"),
        delete_topic_enable=config.get_bool("delete.topic.enable"),
        fetch_max_bytes=config.get_int("fetch.max.bytes"),
        max_request_partition_size_limit=config.get_int("max.request.partition.size.limit"),
    )


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
    )


def topic_creation_settings(config: NodeConfig) -> TopicCreationSettings:
    """Settings of topics that are created on demand."""
    return TopicCreationSettings(
        offsets_topic_num_partitions=config.get_int("offsets.topic.num.partitions"),
        offsets_topic_replication_factor=config.get_int("offsets.topic.replication.factor"),
        offsets_topic_segment_bytes=config.get_int("offsets.topic.segment.bytes"),
        request_timeout_ms=config.get_int("request.timeout.ms"),
    )
