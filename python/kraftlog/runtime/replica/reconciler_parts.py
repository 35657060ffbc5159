"""What the replicas of this node are opened, changed and removed with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from kraftlog.runtime.replica.checkpoint_writer import CheckpointWriter
    from kraftlog.runtime.replica.compactor import LogCleaner
    from kraftlog.runtime.replica.log_opener import LogOpener
    from kraftlog.runtime.replica.log_placement import LogPlacement
    from kraftlog.runtime.replica.log_remover import RemoveLater
    from kraftlog.runtime.replica.log_workers import LogWorkers
    from kraftlog.runtime.replica.registry import Partitions
    from kraftlog.runtime.replica.replica_threads import ReplicaThreads
    from kraftlog.runtime.replica.replica_timers import ReplicaTimers
    from kraftlog.runtime.replica.settings import ReplicaSettings
    from kraftlog.runtime.replica.step_queue import StepQueue
    from kraftlog.runtime.replica.topic_config import TopicConfigs

__all__ = ["ReconcilerParts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcilerParts:
    """What a reconciler works with."""

    settings: ReplicaSettings
    loop: asyncio.AbstractEventLoop
    partitions: Partitions
    topic_configs: TopicConfigs
    placement: LogPlacement
    opener: LogOpener
    workers: LogWorkers
    steps: StepQueue
    checkpoints: CheckpointWriter
    compactor: LogCleaner
    threads: ReplicaThreads
    timers: ReplicaTimers
    remove_later: RemoveLater
