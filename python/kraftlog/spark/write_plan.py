"""What a commit has to do to a log directory, worked out from what is there and what was staged."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from kraftlog._kraftlog import Log, LogConfig, log_end_offset
from kraftlog.errors import LogError
from kraftlog.reading import open_log
from kraftlog.reading.directory import partition_of, read_leader_epochs
from kraftlog.storage.atomic_file import replace_file
from kraftlog.storage.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_offset_checkpoint,
)
from kraftlog.storage.log_dir import CLEAN_SHUTDOWN_NAME
from kraftlog.types import TopicPartition, Uuid

__all__ = ["Existing", "Step", "WrittenPartition", "existing_partitions", "plan_steps"]

LOG_SUFFIX: Final = ".log"
PARTITION_METADATA: Final = "partition.metadata"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
# The order in which the files of a segment are moved: an index without its segment is thrown away by a node, a segment
# without its index gets one.
_MOVED_SUFFIXES: Final = (".index", ".timeindex", ".txnindex", LOG_SUFFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPartition:
    """A partition directory that a task attempt finished.

    Args:
        topic: Its topic.
        partition: Its number.
        first_offset: Of its first record.
        end_offset: After its last record.
        rows: Its records.
        size_bytes: Of its segments.
        epochs: Leader epochs with their first offsets.
        staged: Its directory, relative to that of the job.
    """

    topic: str
    partition: int
    first_offset: int
    end_offset: int
    rows: int
    size_bytes: int
    epochs: tuple[tuple[int, int], ...]
    staged: str

    @property
    def name(self) -> str:
        """Name of the partition directory."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Existing:
    """Where a partition that is there already ends: the offset after its last record, and its latest leader epoch."""

    end_offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One partition of a commit. What has been done of it already is told by what is still staged.

    Args:
        kind: ``place`` a directory, ``append`` segments to the one that is there, or ``remove`` one.
        topic: Its topic.
        partition: Its number.
        staged: The staged directory relative to that of the job, empty for ``remove``.
        log_start_offset: For ``log-start-offset-checkpoint``: 0 for no line, None to leave the line as it is.
        end_offset: For the other checkpoints; None for no lines.
        replaces: ``place``: a directory was there.
        moved: ``append``: names of files in the order in which they are moved, each with its size in bytes.
        tail: ``append``: the last segment file that was there, with its size.
        emptied: ``append``: names of files of an empty last segment, which go.
        epochs: ``append``: all leader epochs with their first offsets.
    """

    kind: Literal["place", "append", "remove"]
    topic: str
    partition: int
    staged: str = ""
    log_start_offset: int | None = None
    end_offset: int | None = None
    replaces: bool = False
    moved: Sequence[tuple[str, int]] = ()
    tail: tuple[str, int] | None = None
    emptied: Sequence[str] = ()
    epochs: Sequence[tuple[int, int]] = ()

    @property
    def name(self) -> str:
        """Name of the partition directory."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """What the driver decided before the tasks began.

    Args:
        directory: The log directory.
        job: Name of the job's directory.
        overwrite: The topics that are written are replaced as a whole.
        topic: Of the option, which is overwritten even when it gets no row.
        must_be_new: A partition that has records is an error.
        topic_ids: By topic.
        existing: Partitions that were there.
    """

    directory: Path
    job: str
    overwrite: bool = False
    topic: str | None = None
    must_be_new: bool = False
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    existing: Mapping[tuple[str, int], Existing] = field(default_factory=dict)


def existing_partitions(directory: Path, topics: Collection[str] | None = None) -> dict[tuple[str, int], Existing]:
    """The partitions in a log directory, of some topics or of all, with where they end. Nothing is changed."""
    found: dict[tuple[str, int], Existing] = {}
    if not directory.is_dir():
        return found
    for path in sorted(directory.iterdir()):
        key = partition_of(path.name)
        if key is None or (topics is not None and key[0] not in topics) or not path.is_dir():
            continue
        epochs = read_leader_epochs(path)
        found[key] = Existing(log_end_offset(path), epochs[-1].epoch if epochs else 0)
    return found


def plan_steps(plan: WritePlan, written: Sequence[WrittenPartition], staging: Path) -> list[Step]:
    """The steps that make what was written part of the directory; topic ids are written into what is staged.

    A log that is appended to and was not shut down cleanly is recovered first, as a node would when it starts.

    Args:
        plan: The driver's plan; the caller holds the lock of its directory.
        written: What the tasks that count have staged.
        staging: Directory of the job.

    Raises:
        LogError: The directory is not as it was when the tasks began, or two tasks wrote one partition.
    """
    _refuse_shared(written)
    checkpoints = {
        name: read_offset_checkpoint(plan.directory / name)
        for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)
    }
    ids = _TopicIds(plan)
    steps: list[Step] = []
    for placed in sorted(written, key=lambda placed: (placed.topic, placed.partition)):
        if not (staging / placed.staged).is_dir():
            message = f"{staging / placed.staged} is gone, which a task wrote: was {staging} removed during the write?"
            raise LogError(message)
        target = plan.directory / placed.name
        if not target.exists():
            if (placed.topic, placed.partition) in plan.existing and not plan.overwrite:
                message = f"{target} is gone, which was there when the write began"
                raise LogError(message)
            ids.write(staging / placed.staged, placed.topic)
            steps.append(_place(placed, replaces=False))
        elif plan.overwrite:
            ids.write(staging / placed.staged, placed.topic)
            steps.append(_place(placed, replaces=True))
        else:
            ids.check(target, placed.topic)
            steps.append(_append(plan, placed, staging, target, checkpoints, ids))
    if plan.overwrite:
        topics = {partition.topic for partition in written} | ({plan.topic} if plan.topic is not None else set())
        kept = {(partition.topic, partition.partition) for partition in written}
        steps += [
            Step(kind="remove", topic=topic, partition=partition, log_start_offset=0)
            for topic, partition in sorted(existing_partitions(plan.directory, topics).keys() - kept)
        ]
    return steps


def _refuse_shared(written: Sequence[WrittenPartition]) -> None:
    seen: dict[str, WrittenPartition] = {}
    for shared in written:
        other = seen.setdefault(shared.name, shared)
        if other is not shared:
            message = (
                f"rows of {shared.name} came from several tasks ({other.staged.split('/')[0]} wrote {other.rows} and "
                f"{shared.staged.split('/')[0]} {shared.rows}): all rows of a partition have to be in shared task, see "
                "kraftlog.spark.prepare"
            )
            raise LogError(message)


def _place(one: WrittenPartition, *, replaces: bool) -> Step:
    return Step(
        kind="place",
        topic=one.topic,
        partition=one.partition,
        staged=one.staged,
        log_start_offset=one.first_offset,
        end_offset=one.end_offset,
        replaces=replaces,
    )


def _append(
    plan: WritePlan,
    one: WrittenPartition,
    staging: Path,
    target: Path,
    checkpoints: Mapping[str, Mapping[TopicPartition, int]],
    ids: _TopicIds,
) -> Step:
    key = TopicPartition(one.topic, one.partition)
    expected = plan.existing.get((one.topic, one.partition))
    log = Log.open(
        target,
        config=LogConfig(),
        now_ms=time.time_ns() // 1_000_000,
        recovery_point=checkpoints[RECOVERY_POINT_CHECKPOINT].get(key, 0),
        log_start_offset=checkpoints[LOG_START_OFFSET_CHECKPOINT].get(key, 0),
        clean_shutdown=(plan.directory / CLEAN_SHUTDOWN_NAME).exists(),
    )
    end_offset, size_bytes, epochs = log.log_end_offset, log.size_bytes, log.epoch_entries()
    segments = log.segments()
    log.close()
    if expected is None or end_offset != expected.end_offset:
        was = "was not there" if expected is None else f"ended at offset {expected.end_offset}"
        message = (
            f"{target} ends at offset {end_offset} and {was} when the write began: something else wrote to it, or its "
            "tail was damaged and cut off; write again"
        )
        raise LogError(message)
    if plan.must_be_new and size_bytes:
        message = f"{target} has records already and option ifExists is error"
        raise LogError(message)
    if size_bytes == 0:
        # As a node leaves a topic that nobody wrote to: nothing is lost when the whole directory is replaced.
        ids.write(staging / one.staged, one.topic)
        return _place(one, replaces=True)
    if epochs and one.epochs and one.epochs[0][0] < epochs[-1][0]:
        message = f"{target}: leader epoch {one.epochs[0][0]} of the rows comes after epoch {epochs[-1][0]} of the log"
        raise LogError(message)
    moved = _files(staging / one.staged)
    names = {name for name, _ in moved}
    last = segments[-1]
    emptied: list[str] = []
    if last.size_bytes == 0:
        emptied = [
            path.name
            for path in target.iterdir()
            if path.stem == last.path.stem and path.suffix in _MOVED_SUFFIXES and path.name not in names
        ]
        segments = segments[:-1]
    latest = epochs[-1][0] if epochs else -1
    return Step(
        kind="append",
        topic=one.topic,
        partition=one.partition,
        staged=one.staged,
        end_offset=one.end_offset,
        moved=moved,
        tail=(segments[-1].path.name, segments[-1].size_bytes),
        emptied=emptied,
        epochs=[*epochs, *(entry for entry in one.epochs if entry[0] > latest)],
    )


def _files(directory: Path) -> list[tuple[str, int]]:
    """Files of the segments, oldest segment first, each with its size.

    Snapshots of producers stay behind: the newest one of the log that is appended to knows producers that these rows
    know nothing of.
    """
    found = [path for path in directory.iterdir() if path.suffix in _MOVED_SUFFIXES]
    found.sort(key=lambda path: (path.stem, _MOVED_SUFFIXES.index(path.suffix)))
    return [(path.name, path.stat().st_size) for path in found]


class _TopicIds:
    """The ids of topics: those in the directory, those of the option, else new ones."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan
        self._known: dict[str, Uuid] = {}

    def write(self, directory: Path, topic: str) -> None:
        """Give a staged directory its ``partition.metadata``."""
        text = f"version: 0\ntopic_id: {self._of(topic)}"
        replace_file(directory / PARTITION_METADATA, text.encode())

    def check(self, directory: Path, topic: str) -> None:
        """Refuse an id that the option says and a directory contradicts."""
        wanted, found = self._plan.topic_ids.get(topic), open_log(directory).topic_id
        if wanted is not None and found is not None and str(found) != wanted:
            message = f"{directory} belongs to topic id {found}, option topicIds says {wanted}"
            raise LogError(message)

    def _of(self, topic: str) -> Uuid:
        if topic not in self._known:
            self._known[topic] = self._find(topic)
        return self._known[topic]

    def _find(self, topic: str) -> Uuid:
        for path in sorted(self._plan.directory.glob(f"{topic}-*")):
            key = partition_of(path.name)
            if key is not None and key[0] == topic and path.is_dir():
                self.check(path, topic)
                found = open_log(path).topic_id
                if found is not None:
                    return found
        given = self._plan.topic_ids.get(topic)
        if given is not None:
            return Uuid.parse(given)
        # The same for all partitions, and again when the commit is repeated.
        return Uuid(hashlib.sha256(f"{self._plan.job}/{topic}".encode()).digest()[:16])
