"""The ``-future`` directories that are found at start: what becomes of them. Runs on a thread."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kraftlog.partition.directory_move import FutureFate, future_fate
from kraftlog.runtime.replica.log_placement import may_be_of_topic

if TYPE_CHECKING:
    from kraftlog.storage.log_dir import LogDir
    from kraftlog.types import TopicPartition, Uuid

__all__ = ["FutureDirectory", "WantedReplica", "settle_futures"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WantedReplica:
    """A replica that the metadata places on this node.

    Attributes:
        directory: The id of the data directory it is assigned to.
    """

    topic_id: Uuid
    directory: Uuid


@dataclass(frozen=True, slots=True)
class FutureDirectory:
    """A copy of a partition's log that an earlier run has begun."""

    log_dir: LogDir
    path: Path


def settle_futures(
    log_dirs: Sequence[LogDir], wanted: Mapping[TopicPartition, WantedReplica]
) -> dict[TopicPartition, FutureDirectory]:
    """Give every ``-future`` directory the name that it should have.

    Args:
        log_dirs: The data directories that can be read.
        wanted: The replicas of this node.

    Returns:
        Those that are to be filled on.

    Raises:
        LogError: A directory could not be renamed.
    """
    found_in = [(log_dir, found) for log_dir in log_dirs for found in log_dir.future_directories()]
    current = {found.topic_partition for log_dir in log_dirs for found in log_dir.partition_directories()}
    futures: dict[TopicPartition, FutureDirectory] = {}

    def is_assigned(log_dir: LogDir, name: TopicPartition) -> bool:
        return name in wanted and wanted[name].directory == log_dir.directory_id

    # Of several copies of a log the one counts that is where the metadata has the replica.
    for log_dir, found in sorted(found_in, key=lambda pair: not is_assigned(pair[0], pair[1].topic_partition)):
        name, path = found.topic_partition, found.path
        fate = future_fate(
            is_placed_here=name in wanted and may_be_of_topic(path, wanted[name].topic_id),
            is_assigned=is_assigned(log_dir, name),
            has_current=name in current,
        )
        if fate is FutureFate.STRAY:
            marked = log_dir.mark_future(path, "stray")
            logger.warning("%s is not in the metadata of this node; kept as %s", path, marked.name)
        elif name in futures:
            marked = log_dir.mark_future(path, "stray")
            logger.warning(
                "%s is a second future replica besides %s; kept as %s", path, futures[name].path, marked.name
            )
        elif fate is FutureFate.CURRENT:
            _make_current(log_dirs, log_dir, name, path)
            current.add(name)
        else:
            futures[name] = FutureDirectory(log_dir, path)
    return futures


def _make_current(log_dirs: Sequence[LogDir], log_dir: LogDir, name: TopicPartition, path: Path) -> None:
    """The log of before is gone: an earlier run has renamed it for deletion."""
    log_dir.make_current(path)
    # What other directories remember of the replica: the high watermark, and what DeleteRecords hid.
    for checkpoint in ("high_watermarks", "log_start_offsets"):
        known = [offsets[name] for other in log_dirs if name in (offsets := getattr(other, checkpoint))]
        if known:
            getattr(log_dir, checkpoint)[name] = max(known)
    logger.info("the future replica %s becomes the log of %s, as the metadata has it there", path, name)
