"""The replicas of topic partitions on this node: what they consist of, and their life from start to stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kraftlog import host
from kraftlog.errors import LogError
from kraftlog.metrics.replica import FetcherCounts, ReplicaCounts, ReplicaMetrics
from kraftlog.partition.replication_quota import UNLIMITED
from kraftlog.partition.stop_replica import ControllerFence
from kraftlog.runtime.replica.checkpoint_writer import CheckpointWriter
from kraftlog.runtime.replica.directory_assignments import DirectoryAssignments
from kraftlog.runtime.replica.directory_moves import DirectoryMoves
from kraftlog.runtime.replica.fetchers import ReplicaFetchers
from kraftlog.runtime.replica.future_directories import FutureDirectory, WantedReplica, settle_futures
from kraftlog.runtime.replica.gone_brokers import GoneBrokers
from kraftlog.runtime.replica.isr_changes import IsrChanges
from kraftlog.runtime.replica.log_dir_failure import LogDirFailures
from kraftlog.runtime.replica.log_opener import LogOpener, OpenRequest
from kraftlog.runtime.replica.log_placement import LogPlacement, check_no_duplicates, set_strays_aside
from kraftlog.runtime.replica.log_recovery import LogRecovery, RecoveryJob
from kraftlog.runtime.replica.log_remover import remove_directories
from kraftlog.runtime.replica.reconciler import Reconciler
from kraftlog.runtime.replica.reconciler_parts import ReconcilerParts
from kraftlog.runtime.replica.registry import Partitions
from kraftlog.runtime.replica.replica_threads import ReplicaThreads
from kraftlog.runtime.replica.replica_timers import ReplicaTimers
from kraftlog.runtime.replica.retention import Retention
from kraftlog.runtime.replica.step_queue import StepQueue
from kraftlog.runtime.replica.topic_config import TopicConfig, TopicConfigs
from kraftlog.types import TopicPartition, Uuid
from kraftlog.vocabulary import ConfigResourceType

if TYPE_CHECKING:
    from pathlib import Path

    from kraftlog._kraftlog import Log
    from kraftlog.controller import MetadataDelta, MetadataImage
    from kraftlog.metrics import Metrics
    from kraftlog.partition.stop_replica import ReplicaStop
    from kraftlog.runtime.inbox import Inbox
    from kraftlog.runtime.replica.compactor import LogCleaner
    from kraftlog.runtime.replica.isr_changes import Controllers, Proposal
    from kraftlog.runtime.replica.log_workers import LogWorkers
    from kraftlog.runtime.replica.partition import Partition
    from kraftlog.runtime.replica.registry import PartitionKey
    from kraftlog.runtime.replica.settings import ReplicaSettings
    from kraftlog.storage.log_dir import LogDir
    from kraftlog.transport.peer_security import PeerSecurity

__all__ = ["ReplicaManager"]

logger = logging.getLogger(__name__)

_CLOSING_THREADS = 8
# Far below the five seconds in which meters move on.
_COUNTING_S = 1
# In which a coordinator should have ended a transaction after its longest time, as in Kafka's ProducerStateManager.
_LATE_TRANSACTION_MS = 300_000


class ReplicaManager:
    """Composes the parts of this room. Called on the node's loop.

    Args:
        settings: From the node's configuration.
        loop: The node's.
        now_ms: Wall clock.
        log_dirs: The data directories that can be read, locked.
        image: The committed metadata.
        compactor: Cleans the logs.
        workers: Threads for file work.
        on_fatal: Called when the node cannot go on.
        controllers: The way to the active controller, for changes of in-sync sets.
        broker_epoch: Gives the epoch of this broker's registration.
        security: Makes what a connection to another broker needs; gives None where that is PLAINTEXT.
        metrics: Where those of the replicas are registered; None on a node that is no broker.

    Attributes:
        partitions: The registry.
        recovery: How far the recovery at start is; any thread may read it.
        steps: The queue of work on the loop.
        fetchers: Follow the leaders of partitions that are replicated here.
        isr_changes: Proposals of this broker for the controller.
        directory_moves: Replicas on their way to other data directories.
    """

    def __init__(
        self,
        settings: ReplicaSettings,
        *,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        log_dirs: Sequence[LogDir],
        image: Callable[[], MetadataImage],
        compactor: LogCleaner,
        workers: LogWorkers,
        on_fatal: Callable[[LogError], None],
        controllers: Controllers,
        broker_epoch: Callable[[], int],
        security: Callable[[], PeerSecurity | None],
        metrics: Metrics | None = None,
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._now_ms = now_ms
        self._image = image
        self._log_dirs = tuple(log_dirs)
        self._compactor = compactor
        self._workers = workers
        self._topic_configs = TopicConfigs(settings.properties)
        self._threads = ReplicaThreads(loop, self._log_dirs, answer_followers=settings.answers_followers)
        self._opener = LogOpener(self._log_dirs, now_ms, flush_on_ack=settings.flush_on_ack)
        self._timers = ReplicaTimers(loop)
        self._is_loaded = False
        self.recovery = LogRecovery((), 1)
        self.partitions = Partitions(image, now_ms)
        self.steps = StepQueue(loop)
        self._checkpoints = CheckpointWriter(
            settings.checkpoints, self._log_dirs, loop, self.partitions, workers.in_background, self.fail_log_dir
        )
        parts = ReconcilerParts(
            settings=settings,
            loop=loop,
            partitions=self.partitions,
            topic_configs=self._topic_configs,
            placement=LogPlacement(self._log_dirs),
            opener=self._opener,
            workers=workers,
            steps=self.steps,
            checkpoints=self._checkpoints,
            compactor=compactor,
            threads=self._threads,
            timers=self._timers,
            remove_later=self._remove_later,
        )
        self._broker_epoch = broker_epoch
        self._controller_fence = ControllerFence()
        self._reconciler = Reconciler(parts, self.fail_log_dir, self._end_fetch)
        self._failures = LogDirFailures(
            self._log_dirs,
            settings.metadata_log_dir,
            self.partitions,
            abandon=self._reconciler.abandon,
            on_fatal=on_fatal,
        )
        self._retention = Retention(settings.retention, loop, self.partitions, now_ms, workers.in_background)
        self._metrics = (
            None
            if metrics is None
            else ReplicaMetrics(
                metrics,
                counts=self._count_replicas,
                fetchers=self._count_fetchers,
                moves=lambda: self.directory_moves.counts,
            )
        )
        self.partitions.traffic = self._metrics
        self.isr_changes = IsrChanges(settings.node_id, broker_epoch, controllers, self._metrics)
        self._threads.inbox.handle("in_sync_proposed", self._in_sync_proposed)
        self._threads.inbox.handle("replicated", self._replicated)
        self.gone_brokers = GoneBrokers(loop, image, lambda: (loop.link for loop in self.fetchers.loops))
        self.fetchers = ReplicaFetchers(
            settings.fetcher,
            partitions=self.partitions,
            image=image,
            listener_name=settings.listener_name,
            broker_epoch=broker_epoch,
            keep_recovery_point=self._checkpoints.write_recovery_points,
            security=security,
            connection_lost=self.gone_brokers.connection_lost,
        )
        self.partitions.add_listener(self.fetchers.partition_changed)
        self._directory_assignments = DirectoryAssignments(settings.node_id, broker_epoch, image, controllers)
        self.directory_moves = DirectoryMoves(
            parts,
            image=image,
            assign=self._directory_assignments.assign,
            on_log_dir_failed=self.fail_log_dir,
            write_checkpoints=self._checkpoints.write_soon,
        )
        self.partitions.add_listener(self.directory_moves.partition_changed)
        self._failures.listeners.append(self.directory_moves.log_dir_failed)
        self.partitions.add_listener(self._report_directory)

    # -- start ---------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Set directories of unknown topics aside, recover what an unclean stop left, open every log assigned here.

        ``apply`` may be called meanwhile: what it brings is followed afterwards.
        """
        self.steps.pause()
        image = self._image()
        self._reconciler.update_broker_overrides(image)
        self._follow_settings(image)
        wanted = self._wanted(image)
        jobs, futures = await self._loop.run_in_executor(None, self._find_logs, wanted)
        self.directory_moves.resume(futures)
        self.recovery = LogRecovery(jobs, self._settings.recovery_threads_per_dir)
        recovered = await self._loop.run_in_executor(None, self.recovery.run)
        self._reconciler.start(self._image(), recovered)
        self.steps.resume()
        await self._reconciler.wait_until_settled()
        self._opener.finish_reports()
        self._is_loaded = True
        if not all(log_dir.was_clean_shutdown for log_dir in self._log_dirs):
            # A checkpoint may promise more than a crash left: it must not, once a log grows beyond that again.
            await self._loop.run_in_executor(None, self._checkpoints.write_all)

    def start_timers(self) -> None:
        """Begin with recurring work, and remove later what an earlier run has marked."""
        self._retention.start(self._timers)
        self._checkpoints.start(self._timers)
        # A member leaves between once and one and a half times replica.lag.time.max.ms after it was caught up (ISR-21).
        self._timers.every(max(self._settings.lag_max_ms // 2, 1), self._check_in_sync)
        for log_dir in self._log_dirs:
            self._workers.in_background(self._remove_found, log_dir)

    def _remove_found(self, log_dir: LogDir) -> None:
        """On a thread: what an earlier run marked is removed once ``file.delete.delay.ms`` is over, from now on."""
        found = [str(path) for path in log_dir.deleted_directories()]
        if found:
            delay_ms = self._topic_configs.get({}).file_delete_delay_ms
            self._loop.call_soon_threadsafe(self._remove_later, delay_ms, found)

    def _remove_later(self, delay_ms: int, paths: Sequence[Path | str]) -> None:
        self._timers.once(delay_ms / 1000, self._workers.in_background, remove_directories, paths)

    def _wanted(self, image: MetadataImage) -> dict[TopicPartition, tuple[WantedReplica, int, TopicConfig]]:
        """The partitions assigned here: leader epoch (-1 unless led here) and settings of each."""
        node_id = self._settings.node_id
        wanted: dict[TopicPartition, tuple[WantedReplica, int, TopicConfig]] = {}
        all_readable = len(self._log_dirs) == len(self._settings.log_dirs)
        found = set() if all_readable else self._directories()
        for topic in image.topics.all():
            config = self._topic_configs.get(image.configs.get(ConfigResourceType.TOPIC, topic.name))
            for index, partition in topic.partitions.items():
                if node_id not in partition.replicas:
                    continue
                key = TopicPartition(topic.name, index)
                epoch = partition.leader_epoch if partition.leader == node_id else -1
                replica = WantedReplica(topic.topic_id, partition.directory(node_id))
                wanted[key] = replica, epoch, config
                if not all_readable and key not in found:
                    # A directory could not be read: what is in no other one may be there, and is not to be begun anew.
                    self.partitions.set_offline((topic.topic_id, index))
        return wanted

    def _directories(self) -> set[TopicPartition]:
        return {
            directory.topic_partition for log_dir in self._log_dirs for directory in log_dir.partition_directories()
        }

    def _find_logs(
        self, wanted: Mapping[TopicPartition, tuple[WantedReplica, int, TopicConfig]]
    ) -> tuple[list[RecoveryJob], Mapping[TopicPartition, FutureDirectory]]:
        """On a thread: set strays aside; the logs that have to be recovered, and the copies that are to be filled."""
        # First, as with Kafka: what an offline directory kept of a deleted topic is no second log of the next one.
        set_strays_aside(self._log_dirs, {key: replica.topic_id for key, (replica, _, _) in wanted.items()})
        check_no_duplicates(self._log_dirs)
        futures = settle_futures(self._log_dirs, {key: replica for key, (replica, _, _) in wanted.items()})
        jobs: list[RecoveryJob] = []
        for log_dir in self._log_dirs:
            if log_dir.was_clean_shutdown:
                continue
            for directory in log_dir.partition_directories():
                key = directory.topic_partition
                replica, leader_epoch, config = wanted[key]
                log_dir.unopened.add(key)
                request = OpenRequest(
                    key=key, topic_id=replica.topic_id, config=config, log_dir=log_dir, leader_epoch=leader_epoch
                )
                jobs.append(RecoveryJob(key, log_dir, partial(self._opener.open, request)))
        return jobs, futures

    # -- while it runs -------------------------------------------------------------------------------------------

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Follow one committed batch of metadata; partitions that are to be opened are missing until they are open."""
        self._reconciler.apply(image, delta)
        self.gone_brokers.apply(delta)
        self.fetchers.apply(delta)
        if any(kind == ConfigResourceType.BROKER for kind, _ in delta.changed_configs):
            self._follow_settings(image)

    def _follow_settings(self, image: MetadataImage) -> None:
        """Settings of this broker that change while it runs."""
        names = ("", str(self._settings.node_id))
        overrides: dict[str, str] = {}
        for name in names:
            overrides |= image.configs.get(ConfigResourceType.BROKER, name)
        text = overrides.get("num.replica.fetchers")
        self.fetchers.resize(int(text) if text else self._settings.fetcher.fetchers_per_leader)
        self.partitions.leader_quota.bytes_per_second = _rate(overrides, "leader.replication.throttled.rate")
        self.partitions.follower_quota.bytes_per_second = _rate(overrides, "follower.replication.throttled.rate")
        self.directory_moves.quota.bytes_per_second = _rate(overrides, "replica.alter.log.dirs.io.max.bytes.per.second")

    def _check_in_sync(self) -> None:
        """Propose that replicas which fell behind leave their in-sync sets."""
        now_ms = self.partitions.now_ms()
        self.steps.add_each(
            lambda partition: self._propose_shrink(partition, now_ms),
            [partition for partition in self.partitions if partition.is_leader],
        )

    def _propose_shrink(self, partition: Partition, now_ms: int) -> None:
        proposal = partition.replica.propose_shrink(now_ms)
        if proposal is not None:
            self.isr_changes.submit(partition, proposal)

    def _in_sync_proposed(self, topic_id: bytes, index: int, proposal: Proposal) -> None:
        """A follower's fetch on an I/O thread asks for a change of the in-sync set."""
        partition = self.partitions.get(Uuid(topic_id), index)
        if partition is not None and partition.replica.is_proposal_pending(proposal[0]):
            self.isr_changes.submit(partition, proposal)

    def _replicated(self) -> None:
        """I/O threads have begun to send records to followers; what they send until then is counted at once."""
        self._timers.once(_COUNTING_S, self.partitions.take_replicated_out)

    def admit(self, *, controller_epoch: int, broker_epoch: int) -> int:
        """0, or why a StopReplica request is refused as a whole. See :class:`ControllerFence`."""
        return self._controller_fence.admit(
            controller_epoch=controller_epoch,
            metadata_epoch=self._image().epoch,
            request_broker_epoch=broker_epoch,
            broker_epoch=self._broker_epoch(),
        )

    def _end_fetch(self, key: PartitionKey) -> None:
        self.fetchers.remove(key)

    def stop_replica(self, stop: ReplicaStop) -> asyncio.Future[int]:
        """Stop a replica as a controller of Kafka 3.x asks; the future gives 0 or an error code."""
        return self._reconciler.stop_replica(stop)

    def _report_directory(self, partition: Partition) -> None:
        """Tell the controller in which directory a replica lies, if the metadata says otherwise."""
        image = self._image()
        key = (partition.topic_id, partition.index)
        if not image.metadata_version.is_directory_assignment_supported or self.partitions.get(*key) is not partition:
            return
        topic = image.topics.by_id(partition.topic_id)
        wanted = None if topic is None else topic.partitions.get(partition.index)
        directory_id = partition.log_dir.directory_id
        if self.directory_moves.has_assignment(partition):
            return
        if wanted is None or self._settings.node_id not in wanted.replicas or directory_id == Uuid.ZERO:
            return
        if wanted.directory(self._settings.node_id) != directory_id:
            self._directory_assignments.assign(key, directory_id)

    def _count_replicas(self) -> ReplicaCounts:
        """On any thread."""
        partitions, leaders, under_replicated, under_min_isr, at_min_isr = self.partitions.native.counts()
        late_ms = self._now_ms() - self._settings.transaction_max_timeout_ms - _LATE_TRANSACTION_MS
        return ReplicaCounts(
            partitions=partitions,
            leaders=leaders,
            under_replicated=under_replicated,
            under_min_isr=under_min_isr,
            at_min_isr=at_min_isr,
            reassigning=self.partitions.reassigning_count,
            offline=self.partitions.offline_count,
            offline_directories=len(self._settings.log_dirs) - sum(log_dir.is_online for log_dir in self._log_dirs),
            late_transactions=self.partitions.late_transaction_count(late_ms),
        )

    def _count_fetchers(self) -> FetcherCounts:
        """On any thread."""
        fetchers = self.fetchers
        return FetcherCounts(
            max_lag=fetchers.max_lag,
            min_fetch_rate=fetchers.min_fetch_rate,
            failed_partitions=fetchers.failed_count,
            dead_loops=fetchers.dead_count,
        )

    @property
    def inbox(self) -> Inbox:
        """The mailbox of the loop."""
        return self._threads.inbox

    @property
    def is_settled(self) -> bool:
        """Whether every partition is as the metadata says: nothing is being opened or removed."""
        return self._reconciler.is_settled

    async def wait_until_open(self, topics: Iterable[str], indexes: Iterable[int] | None = None) -> None:
        """Wait until partitions of these topics that are assigned here are open, offline or gone again.

        ``indexes`` None: all of each topic.
        """
        await self._reconciler.wait_until_open(topics, indexes)

    def open_first(self, topic: str, indexes: Collection[int]) -> None:
        """Open these partitions of a topic before others when it is created; none: in any order."""
        self._reconciler.open_first(topic, indexes)

    def fail_log_dir(self, log_dir: LogDir, error: BaseException) -> None:
        """A write or fsync failed: the directory goes offline. See :class:`LogDirFailures`."""
        self._failures.fail(log_dir, error)

    def add_failure_listener(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when a directory has gone offline."""
        self._failures.listeners.append(listener)

    # -- stop ----------------------------------------------------------------------------------------------------

    async def stop(self) -> bool:
        """Stop the timers and threads, write the checkpoints, flush and close every log.

        Returns:
            False when one of them could not be closed cleanly.
        """
        self._timers.stop()
        if self._metrics is not None:
            self._metrics.close()
        await self.isr_changes.stop()
        await self._directory_assignments.stop()
        await self.fetchers.stop()
        await self.gone_brokers.stop()
        are_copies_closed = await self.directory_moves.stop()
        unserved = await self._reconciler.stop()
        await self._loop.run_in_executor(None, self._compactor.stop)
        await self._loop.run_in_executor(None, self._threads.stop_flushing)
        for partition in self.partitions:
            partition.close()
        self._threads.inbox.close()
        return await self._loop.run_in_executor(None, self._close_logs, unserved) and are_copies_closed

    def _close_logs(self, unserved: list[Log]) -> bool:
        if self._is_loaded:
            # Before, the files say more than is known of the logs that are open.
            self._checkpoints.write_all()
        if not all(log_dir.is_online for log_dir in self._log_dirs):
            logger.warning("directories that failed are not closed cleanly")
        logs = [partition.log for partition in self.partitions] + unserved
        with host.joined_executor("kraftlog-close", _CLOSING_THREADS) as pool:
            return all(list(pool.map(_close_log, logs)))


def _rate(overrides: Mapping[str, str], key: str) -> int:
    """Bytes per second; a value that the controller of another implementation let pass counts as none."""
    text = overrides.get(key)
    if text is None:
        return UNLIMITED
    if not text.isdecimal():
        logger.error("%s=%s is not a number of bytes per second; replication is not throttled", key, text)
        return UNLIMITED
    return int(text)


def _close_log(log: Log) -> bool:
    try:
        log.close()
    except (LogError, OSError):
        logger.exception("the log in %s was not closed cleanly", log.path)
        return False
    return True
