"""All partitions of this node: opened, created, reconfigured and deleted as the metadata says."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kraftlog._kraftlog import Log
from kraftlog.errors import ErrorCode, LogError
from kraftlog.partition.replica import Assignment, PartitionReplica
from kraftlog.runtime.replica.compactor import CleanerSettings
from kraftlog.runtime.replica.flusher import Flusher
from kraftlog.runtime.replica.log_dir_failure import is_disk_failure
from kraftlog.runtime.replica.log_opener import LogRecovery, RecoveryJob
from kraftlog.runtime.replica.partition import Partition
from kraftlog.runtime.replica.topic_config import TopicConfig, TopicConfigs
from kraftlog.storage.log_dir import LogDir
from kraftlog.storage.recovery_report import RecoveryReport
from kraftlog.types import TopicPartition, Uuid
from kraftlog.vocabulary import INTERNAL_TOPICS, ConfigResourceType

if TYPE_CHECKING:
    from kraftlog._kraftlog import RecoveryProgress
    from kraftlog.controller import MetadataDelta, MetadataImage
    from kraftlog.controller.topic_image import PartitionImage, TopicImage
    from kraftlog.node.node import Node

__all__ = ["Partitions", "first_high_watermark", "is_internal_topic"]

logger = logging.getLogger(__name__)

# Opening or closing a log waits for fsyncs, which a file system takes together when they come together.
_THREADS_FROM = 4
_THREAD_COUNT = 8


def is_internal_topic(topic: str) -> bool:
    """Whether only the broker itself writes to this topic."""
    return topic in INTERNAL_TOPICS


class Partitions:
    """The registry of :class:`Partition` by topic id and by name.

    Args:
        node: Whose partitions these are; its log_dirs are locked and read.

    Attributes:
        recovery: How far the recovery at start is; any thread may read it.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._by_id: dict[tuple[Uuid, int], Partition] = {}
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._flush_on_ack = node.config.get_bool("log.flush.on.ack")
        self._topic_configs = TopicConfigs(node.config)
        self._data_dirs = [one for one in node.log_dirs if one.path in node.config.log_dirs]
        self._flushers = {one: Flusher(node.loop, f"kraftlog-flush-{one.path.name}") for one in self._data_dirs}
        self._opened: dict[TopicPartition, tuple[Log, LogDir]] = {}
        self._offline: set[tuple[Uuid, int]] = set()
        self._reports = {one: RecoveryReport(one.path) for one in self._data_dirs}
        self.recovery = LogRecovery((), 1)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, topic_id: Uuid, index: int) -> Partition | None:
        """The partition with this topic id, if it is on this node."""
        return self._by_id.get((topic_id, index))

    def get_by_name(self, topic: str, index: int) -> Partition | None:
        """The partition with this topic name, if it is on this node."""
        return self._by_name.get((topic, index))

    # -- metadata ------------------------------------------------------------------------------------------------

    def load(self, image: MetadataImage) -> None:
        """At start: set directories of unknown topics aside, open every partition assigned here."""
        self._update_broker_overrides(image)
        self._set_strays_aside(image)
        if len(self._data_dirs) < len(self._node.config.log_dirs):
            self._set_lost_offline(image)
        self._recover(image)
        self._apply_topics(image, image.topics.all())
        for report in self._reports.values():
            report.finish()

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Follow one committed batch of metadata."""
        for topic_id in delta.deleted_topics:
            self._delete_topic(topic_id)
        is_broker_changed = any(kind == ConfigResourceType.BROKER for kind, _ in delta.changed_configs)
        if is_broker_changed and self._update_broker_overrides(image):
            changed: Iterable[TopicImage] = image.topics.all()
        else:
            names = {name for kind, name in delta.changed_configs if kind == ConfigResourceType.TOPIC}
            ids = {topic_id for topic_id, _ in delta.changed_partitions}
            found = [image.topics.by_name(name) for name in names] + [image.topics.by_id(one) for one in ids]
            changed = {topic.topic_id: topic for topic in found if topic is not None}.values()
        self._apply_topics(image, changed)

    def _apply_topics(self, image: MetadataImage, topics: Iterable[TopicImage]) -> None:
        topics = list(topics)
        self._open_ahead(image, topics)
        for topic in topics:
            self.apply_topic(image, topic)
        # What is left was found on disk and then not wanted here.
        for log, _ in self._opened.values():
            log.close()
        self._opened.clear()

    def apply_topic(self, image: MetadataImage, topic: TopicImage) -> None:
        """Bring every partition of a topic that is assigned here in line with the metadata."""
        config = self._topic_configs.get(image.configs.get(ConfigResourceType.TOPIC, topic.name))
        node_id = self._node.config.node_id
        for index, wanted in topic.partitions.items():
            partition = self._by_id.get((topic.topic_id, index))
            if node_id not in wanted.replicas:
                if partition is not None:
                    self._delete(partition)
                continue
            if partition is None:
                if (topic.topic_id, index) in self._offline:
                    continue
                try:
                    partition = self._open(topic, index, wanted, config)
                except (LogError, OSError) as error:
                    logger.exception("partition %s-%d cannot be opened and is offline", topic.name, index)
                    self._offline.add((topic.topic_id, index))
                    if isinstance(error, OSError) and is_disk_failure(error):
                        self.fail_log_dir(self._choose_log_dir(topic.name, index, wanted), error)
                    continue
            elif partition.config is not config:
                partition.update_config(config)
            partition.handle_assignment(
                Assignment(
                    leader_id=wanted.leader,
                    leader_epoch=wanted.leader_epoch,
                    partition_epoch=wanted.partition_epoch,
                    replicas=tuple(wanted.replicas),
                    isr=tuple(wanted.isr),
                ),
                self._node.now_ms(),
            )

    def _update_broker_overrides(self, image: MetadataImage) -> bool:
        overrides = {
            **image.configs.get(ConfigResourceType.BROKER, ""),
            **image.configs.get(ConfigResourceType.BROKER, str(self._node.config.node_id)),
        }
        if not self._topic_configs.update_broker_overrides(overrides):
            return False
        self._node.log_cleaner.update_settings(CleanerSettings.of(self._node.config, overrides))
        return True

    def _set_lost_offline(self, image: MetadataImage) -> None:
        """A directory could not be read: what is in no other one may be there, and is not to be begun anew."""
        found = {one.topic_partition for log_dir in self._data_dirs for one in log_dir.partition_directories()}
        for topic in image.topics.all():
            for index, wanted in topic.partitions.items():
                is_here = self._node.config.node_id in wanted.replicas
                if is_here and TopicPartition(topic.name, index) not in found:
                    self._offline.add((topic.topic_id, index))

    def _set_strays_aside(self, image: MetadataImage) -> None:
        """Rename directories the metadata does not place here to ``-stray``: data is never deleted on a guess."""
        for log_dir in self._data_dirs:
            for directory in log_dir.partition_directories():
                key = directory.topic_partition
                topic = image.topics.by_name(key.topic)
                wanted = topic.partitions.get(key.partition) if topic is not None else None
                topic_id = _read_topic_id(directory.path)
                if (
                    topic is None
                    or wanted is None
                    or self._node.config.node_id not in wanted.replicas
                    or (topic_id is not None and topic_id != topic.topic_id)
                ):
                    marked = log_dir.mark_directory(directory.path, "stray")
                    logger.warning("%s is not in the metadata of this node; kept as %s", directory.path, marked.name)

    # -- life of a partition -------------------------------------------------------------------------------------

    def _open(self, topic: TopicImage, index: int, wanted: PartitionImage, config: TopicConfig) -> Partition:
        key = TopicPartition(topic.name, index)
        opened = self._opened.pop(key, None)
        if opened is None:
            log_dir = self._choose_log_dir(topic.name, index, wanted)
            opened = self._open_log(key, topic.topic_id, config, log_dir), log_dir
        log, log_dir = opened
        log_end_offset = log.log_end_offset
        partition = Partition(
            topic=topic.name,
            topic_id=topic.topic_id,
            index=index,
            log=log,
            replica=PartitionReplica(
                node_id=self._node.config.node_id,
                flush_on_ack=self._flush_on_ack,
                min_insync_replicas=config.min_insync_replicas,
                log_end_offset=log_end_offset,
                flushed_offset=min(log.recovery_point, log_end_offset),
                high_watermark=first_high_watermark(log_dir.high_watermarks.pop(key, 0), log),
            ),
            config=config,
            log_dir=log_dir,
            flusher=self._flushers[log_dir],
            loop=self._node.loop,
            on_storage_failed=self._partition_failed,
        )
        self._by_id[topic.topic_id, index] = partition
        self._by_name[topic.name, index] = partition
        self._node.log_cleaner.add(partition)
        return partition

    def _open_log(
        self,
        key: TopicPartition,
        topic_id: Uuid,
        config: TopicConfig,
        log_dir: LogDir,
        recovery_threads: int = 1,
        progress: RecoveryProgress | None = None,
    ) -> Log:
        path = log_dir.path / str(key)
        was_there = path.is_dir()
        try:
            log = Log.open(
                path,
                config=config.log_config,
                recovery_point=log_dir.recovery_points.get(key, 0),
                log_start_offset=log_dir.log_start_offsets.get(key, 0),
                clean_shutdown=log_dir.was_clean_shutdown,
                now_ms=self._node.now_ms(),
                recovery_threads=recovery_threads,
                progress=progress,
            )
        except (LogError, OSError):
            log_dir.unopened.add(key)
            raise
        self._reports[log_dir].add(log.recovery_events)
        checkpointed = log_dir.high_watermarks.get(key, 0)
        if was_there and checkpointed > log.log_end_offset:
            logger.warning(
                "%s ends at offset %d, before its checkpointed high watermark %d: committed records are gone",
                path,
                log.log_end_offset,
                checkpointed,
            )
        # What the checkpoints say holds for the log that was there at start, not for one created later in its place.
        log_dir.recovery_points.pop(key, None)
        log_dir.log_start_offsets.pop(key, None)
        log_dir.unopened.discard(key)
        if log.topic_id is None:
            log.write_partition_metadata(bytes(topic_id))
        if self._flush_on_ack and log.recovery_point < log.log_end_offset:
            # What a crash left in the page cache may have been acknowledged as durable: make it so before anyone
            # asks, so that the high watermark does not start below it.
            log.flush()
        return log

    def _open_ahead(self, image: MetadataImage, topics: list[TopicImage]) -> None:
        """Open or create the logs of many new partitions on threads; those that fail are told of by apply_topic."""
        wanted: list[tuple[TopicPartition, Uuid, TopicConfig, LogDir]] = []
        for topic in topics:
            config = self._topic_configs.get(image.configs.get(ConfigResourceType.TOPIC, topic.name))
            for index, partition in topic.partitions.items():
                key = TopicPartition(topic.name, index)
                is_open = (topic.topic_id, index) in self._by_id or key in self._opened
                is_open = is_open or (topic.topic_id, index) in self._offline
                if self._node.config.node_id in partition.replicas and not is_open:
                    chosen = Counter(log_dir for *_, log_dir in wanted)
                    log_dir = self._choose_log_dir(topic.name, index, partition, chosen)
                    wanted.append((key, topic.topic_id, config, log_dir))
        if len(wanted) >= _THREADS_FROM:
            self._open_on_threads(wanted)

    def _open_on_threads(self, wanted: list[tuple[TopicPartition, Uuid, TopicConfig, LogDir]]) -> None:
        with ThreadPoolExecutor(max_workers=_THREAD_COUNT, thread_name_prefix="kraftlog-open") as pool:
            futures = [(pool.submit(self._open_log, *one), one) for one in wanted]
        for future, (key, *_, log_dir) in futures:
            if future.exception() is None:
                self._opened[key] = future.result(), log_dir

    def _recover(self, image: MetadataImage) -> None:
        """After an unclean stop: open, and so recover, the logs of each directory on several threads."""
        jobs: list[RecoveryJob] = []
        for log_dir in self._data_dirs:
            if log_dir.was_clean_shutdown:
                continue
            for directory in log_dir.partition_directories():
                key = directory.topic_partition
                topic = image.topics.by_name(key.topic)
                if topic is not None:
                    config = self._topic_configs.get(image.configs.get(ConfigResourceType.TOPIC, key.topic))
                    open_log = partial(self._open_log, key, topic.topic_id, config, log_dir)
                    jobs.append(RecoveryJob(key, log_dir, open_log))
        self.recovery = LogRecovery(jobs, self._node.config.get_int("num.recovery.threads.per.data.dir"))
        self._opened.update(self.recovery.run())

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970."""
        return self._node.now_ms()

    def missing_error(self, topic: str, index: int) -> int:
        """Why ``get_by_name`` found nothing: the error for the client (LEPO-07)."""
        found = self._node.metadata.image.topics.by_name(topic)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else self._missing_error(found, index)

    def missing_error_by_id(self, topic_id: Uuid, index: int) -> int:
        """Why ``get`` found nothing: the error for the client."""
        found = self._node.metadata.image.topics.by_id(topic_id)
        return ErrorCode.UNKNOWN_TOPIC_ID if found is None else self._missing_error(found, index)

    def _missing_error(self, topic: TopicImage, index: int) -> int:
        if index not in topic.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if (topic.topic_id, index) in self._offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _choose_log_dir(
        self, topic: str, index: int, wanted: PartitionImage, chosen: Counter[LogDir] | None = None
    ) -> LogDir:
        """Where the partition is, or is assigned to, else the directory with the fewest partitions."""
        log_dirs = [one for one in self._data_dirs if one.is_online]
        if not log_dirs:
            raise LogError("every directory of log.dirs is offline")
        if len(log_dirs) == 1:
            return log_dirs[0]
        for log_dir in log_dirs:
            if (log_dir.path / f"{topic}-{index}").is_dir():
                return log_dir
        assigned = dict(zip(wanted.replicas, wanted.directories, strict=False)).get(self._node.config.node_id)
        for log_dir in log_dirs:
            if log_dir.directory_id == assigned:
                return log_dir
        counts = Counter(partition.log_dir for partition in self)
        counts.update(chosen or {})
        return min(log_dirs, key=counts.__getitem__)

    def _delete_topic(self, topic_id: Uuid) -> None:
        for key in [key for key in self._by_id if key[0] == topic_id]:
            self._delete(self._by_id[key])
        self._offline = {key for key in self._offline if key[0] != topic_id}

    def _delete(self, partition: Partition) -> None:
        """Forget a partition at once, rename its directory, remove the files after file.delete.delay.ms."""
        del self._by_id[partition.topic_id, partition.index]
        self._by_name.pop((partition.topic, partition.index), None)
        self._node.log_cleaner.remove(partition)
        partition.close()
        try:
            partition.log.close()
        except LogError as error:
            logger.warning("closing the log of deleted partition %s: %s", partition, error)
        try:
            marked = partition.log_dir.mark_directory(Path(partition.log.path), "delete")
        except LogError:
            logger.exception("partition %s cannot be deleted", partition)
            return
        self._node.loop.call_later(
            partition.config.file_delete_delay_ms / 1000, self._node.run_in_background, remove_directory, marked
        )

    # -- failed directories --------------------------------------------------------------------------------------

    def _partition_failed(self, partition: Partition, error: BaseException) -> None:
        self.fail_log_dir(partition.log_dir, error)

    def fail_log_dir(self, log_dir: LogDir, error: BaseException) -> None:
        """A write or fsync failed: take every partition of the directory offline and never write there again.

        Clients get KAFKA_STORAGE_ERROR for these partitions; other directories go on. The node ends when it was the
        last one, or the one of the metadata log, as Kafka's broker does (KIP-112, KIP-858).
        """
        if not log_dir.is_online:
            return
        log_dir.failure = str(error)
        lost = [partition for partition in self if partition.log_dir is log_dir]
        names = ", ".join(sorted(map(str, lost))) or "none"
        logger.error("stopping to serve the replicas in %s, which failed: %s; offline: %s", log_dir.path, error, names)
        for partition in lost:
            key = (partition.topic_id, partition.index)
            del self._by_id[key]
            self._by_name.pop((partition.topic, partition.index), None)
            self._offline.add(key)
            partition.replica.on_log_failed()
            partition.close()
        has_metadata = log_dir.path == self._node.config.metadata_log_dir
        if has_metadata or not any(one.is_online for one in self._data_dirs):
            what = "the directory of the metadata log" if has_metadata else "every directory of log.dirs"
            self._node.metadata.on_failure(LogError(f"{what} is offline: {error}"))

    # -- stop ----------------------------------------------------------------------------------------------------

    def stop_flushers(self) -> None:
        """Wait for the rounds that run; no flush is begun after."""
        for flusher in self._flushers.values():
            flusher.stop()

    def close_all(self) -> bool:
        """Flush and close every log; False when one of them could not be."""
        for partition in self:
            partition.close()
        if not all(one.is_online for one in self._data_dirs):
            logger.warning("directories that failed are not closed cleanly")
        with ThreadPoolExecutor(max_workers=_THREAD_COUNT, thread_name_prefix="kraftlog-close") as pool:
            return all(list(pool.map(_close_log, self)))


def first_high_watermark(checkpointed: int, log: Log) -> int:
    """The high watermark a replica starts with: that of the checkpoint, but never outside its log.

    The checkpoint may be of before a recovery that cut the log, or of before records were deleted.
    """
    return max(min(checkpointed, log.log_end_offset), log.log_start_offset)


def _close_log(partition: Partition) -> bool:
    try:
        partition.log.close()
    except LogError:
        logger.exception("partition %s was not closed cleanly", partition)
        return False
    return True


def remove_directory(path: Path) -> None:
    """Remove a directory marked ``-delete``; what cannot be removed is tried again at the next start."""
    shutil.rmtree(path, ignore_errors=True)


def _read_topic_id(directory: Path) -> Uuid | None:
    try:
        text = (directory / "partition.metadata").read_text(encoding="utf-8")
    except OSError:
        return None
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "topic_id":
            try:
                return Uuid.parse(value.strip())
            except ValueError:
                return None
    return None
