"""What the replicas of topic partitions take from the node's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kraftlog.runtime.replica.checkpoint_writer import CheckpointIntervals
from kraftlog.runtime.replica.compactor import CleanerSettings
from kraftlog.runtime.replica.fetcher_loop import FetcherSettings
from kraftlog.runtime.replica.retention import RetentionIntervals

__all__ = ["ReplicaSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """Settings of the replicas.

    Attributes:
        node_id: This node.
        log_dirs: The configured data directories, readable or not.
        metadata_log_dir: The directory of the metadata log, which cannot be lost.
        flush_on_ack: Whether an acknowledgement waits for the disk.
        recovery_threads_per_dir: Logs of a directory that are recovered at once after an unclean stop.
        properties: Broker settings as texts, the defaults of topic settings among them.
        cleaner: Settings of the compactor before they are altered dynamically.
        retention: How often old segments are looked for.
        checkpoints: How often checkpoints are written.
        fetcher: How this broker follows others.
        lag_max_ms: replica.lag.time.max.ms.
        listener_name: inter.broker.listener.name.
        answers_followers: Whether I/O threads answer the fetches of followers that nothing throttles.
        transaction_max_timeout_ms: transaction.max.timeout.ms, after which a transaction should have ended.
    """

    node_id: int
    log_dirs: tuple[Path, ...]
    metadata_log_dir: Path
    flush_on_ack: bool
    recovery_threads_per_dir: int
    properties: Mapping[str, str]
    cleaner: CleanerSettings
    retention: RetentionIntervals
    checkpoints: CheckpointIntervals
    fetcher: FetcherSettings
    lag_max_ms: int
    listener_name: str
    answers_followers: bool = False
    transaction_max_timeout_ms: int = 900_000
