"""The data directory of a partition, and directories whose partitions are not this node's."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kraftlog.controller.directory import DIRECTORY_UNASSIGNED
from kraftlog.errors import LogError
from kraftlog.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from kraftlog.storage.log_dir import LogDir

__all__ = ["LogPlacement", "check_no_duplicates", "may_be_of_topic", "set_strays_aside"]

logger = logging.getLogger(__name__)

# Of partitions that are not here yet; the oldest wish is forgotten first.
_PREFERRED_MAX = 10_000


class LogPlacement:
    """Chooses directories and counts the partitions in each.

    Args:
        log_dirs: The data directories that can be read.
    """

    def __init__(self, log_dirs: Sequence[LogDir]) -> None:
        self.log_dirs = tuple(log_dirs)
        self._counts: Counter[LogDir] = Counter()
        self._preferred: dict[TopicPartition, LogDir] = {}

    def choose(self, key: TopicPartition, assigned: Uuid | None) -> LogDir:
        """Where the partition is, or an operator wants it, or it is assigned to, else the directory with the fewest.

        The last choice is made among the directories that are not cordoned, or is the first one if all are.

        Raises:
            LogError: No directory is online, or the partition's log may lie in a directory that is not (KAFKA-16234).
        """
        log_dirs = [log_dir for log_dir in self.log_dirs if log_dir.is_online]
        if not log_dirs:
            raise LogError("every directory of log.dirs is offline")
        if len(self.log_dirs) == 1:
            return log_dirs[0]
        for log_dir in log_dirs:
            if (log_dir.path / str(key)).is_dir():
                return log_dir
        preferred = self._preferred.pop(key, None)
        if preferred is not None and preferred.is_online:
            return preferred
        for log_dir in log_dirs:
            if log_dir.directory_id == assigned:
                return log_dir
        if len(log_dirs) < len(self.log_dirs) and assigned not in {None, DIRECTORY_UNASSIGNED}:
            raise LogError(f"it is assigned to directory {assigned}, and a directory of log.dirs is offline")
        # As Kafka's LogManager.nextLogDirs: if all are cordoned, the first one that is online.
        uncordoned = [log_dir for log_dir in log_dirs if not log_dir.is_cordoned]
        return min(uncordoned, key=self._counts.__getitem__, default=log_dirs[0])

    def prefer(self, key: TopicPartition, log_dir: LogDir) -> None:
        """Open the partition in this directory once it is placed here, wherever it is assigned to (KIP-113)."""
        self._preferred.pop(key, None)
        if len(self._preferred) >= _PREFERRED_MAX:
            del self._preferred[next(iter(self._preferred))]
        self._preferred[key] = log_dir

    def add(self, log_dir: LogDir) -> None:
        """A partition is in this directory, or about to be."""
        self._counts[log_dir] += 1

    def remove(self, log_dir: LogDir) -> None:
        """A partition is no longer in this directory."""
        self._counts[log_dir] -= 1


def set_strays_aside(log_dirs: Sequence[LogDir], wanted: Mapping[TopicPartition, Uuid]) -> None:
    """Rename directories the metadata does not place here to ``-stray``: data is never deleted on a guess.

    Args:
        log_dirs: The data directories.
        wanted: The partitions of this node with the ids of their topics.
    """
    for log_dir in log_dirs:
        strays = [
            directory
            for directory in log_dir.partition_directories()
            if (topic_id := wanted.get(directory.topic_partition)) is None
            or not may_be_of_topic(directory.path, topic_id)
        ]
        if strays:
            log_dir.erase_checkpoints({directory.topic_partition for directory in strays})
        for directory in strays:
            marked = log_dir.mark_directory(directory.path, "stray")
            log_dir.forget(directory.topic_partition)
            logger.warning("%s is not in the metadata of this node; kept as %s", directory.path, marked.name)


def check_no_duplicates(log_dirs: Sequence[LogDir]) -> None:
    """Refuse two directories with the same partition: nobody can tell which one holds what was acknowledged.

    Raises:
        LogError: Names both (RDLT-55).
    """
    found: dict[TopicPartition, Path] = {}
    for log_dir in log_dirs:
        for directory in log_dir.partition_directories():
            other = found.setdefault(directory.topic_partition, directory.path)
            if other is not directory.path:
                msg = (
                    f"{other} and {directory.path} are both of partition {directory.topic_partition}: "
                    "move the one that is not to be served out of log.dirs"
                )
                raise LogError(msg)


def may_be_of_topic(directory: Path, topic_id: Uuid) -> bool:
    """Whether a log is of this topic. One whose file cannot be read may be; opening it says why it is not served."""
    if not (directory / "partition.metadata").exists():
        return False
    return _read_topic_id(directory) in {None, topic_id}


def _read_topic_id(directory: Path) -> Uuid | None:
    try:
        text = (directory / "partition.metadata").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "topic_id":
            try:
                return Uuid.parse(value.strip())
            except ValueError:
                return None
    return None
