"""Puts together what transactions need on a broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraftlog.metrics.transaction import MarkerCounts, TransactionMetrics
from kraftlog.node.broker_links import BrokerLinks
from kraftlog.node.settings import transaction_coordinator_settings
from kraftlog.runtime.coordinator.marker_sender import MarkerSender
from kraftlog.runtime.coordinator.marker_writer import GroupShards, MarkerWriter
from kraftlog.runtime.coordinator.transaction_coordinator import transaction_coordinator
from kraftlog.runtime.coordinator.transaction_verifier import TransactionVerifier

if TYPE_CHECKING:
    from kraftlog.coordinator.transaction.transaction_shard import TransactionShard
    from kraftlog.metrics import Metrics
    from kraftlog.node.config import NodeConfig
    from kraftlog.runtime.coordinator.shard_registry import CommittedMetadata, ShardRegistry, TaskGroup, TopicCreator
    from kraftlog.runtime.replica.registry import Partitions

__all__ = ["TransactionServices", "transaction_services"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionServices:
    """Of one broker.

    Attributes:
        coordinator: The transaction coordinator.
        verifier: Asks the coordinators of transactions that write here.
        marker_writer: Ends transactions on partitions of this node.
        links: Connections of the coordinator to other brokers.
        metrics: Of the three above, until ``close``.
    """

    coordinator: ShardRegistry[TransactionShard]
    verifier: TransactionVerifier
    marker_writer: MarkerWriter
    links: BrokerLinks
    metrics: TransactionMetrics

    def stop(self) -> None:
        """Unload every shard."""
        self.coordinator.stop()
        self.metrics.close()


def transaction_services(
    config: NodeConfig,
    *,
    metrics: Metrics,
    now_ms: Callable[[], int],
    metadata: CommittedMetadata,
    partitions: Partitions,
    groups: GroupShards,
    topics: TopicCreator,
    tasks: TaskGroup,
    take_producer_id: Callable[[], int | None],
) -> TransactionServices:
    """Make them; ``coordinator.start`` begins their work."""
    settings = transaction_coordinator_settings(config)
    links = BrokerLinks(
        config.node_id,
        config.inter_broker_listener_name,
        lambda: metadata.image,
        timeout_s=settings.request_timeout_ms / 1000,
        security=config.peer_security,
    )
    marker_writer = MarkerWriter(partitions, groups, now_ms)
    sender = MarkerSender(config.node_id, marker_writer.write, links, metadata, tasks)

    def count_markers() -> MarkerCounts:
        unwritten_ends = sum(runner.shard.unfinished_count for runner in coordinator.runners())
        return MarkerCounts(sender.without_leader_count, unwritten_ends)

    measured = TransactionMetrics(metrics, markers=count_markers)
    coordinator = transaction_coordinator(
        settings,
        now_ms=now_ms,
        metadata=metadata,
        partitions=partitions,
        topics=topics,
        tasks=tasks,
        take_producer_id=take_producer_id,
        send_markers=sender.send,
        on_loaded=measured.on_loaded,
    )
    verifier = TransactionVerifier(
        config.node_id,
        coordinator,
        links,
        metadata,
        retry_s=settings.retry_ms / 1000,
        retry_max_s=settings.retry_max_ms / 1000,
        on_verified=measured.on_verified,
    )
    return TransactionServices(
        coordinator=coordinator, verifier=verifier, marker_writer=marker_writer, links=links, metrics=measured
    )
