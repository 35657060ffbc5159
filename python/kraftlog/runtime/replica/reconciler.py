"""Brings the partitions of this node in line with the metadata, a few at a time.

Logs are opened, created and deleted on threads; what follows runs on the event loop in steps of a bounded number per
turn. Each step looks at the newest metadata, so that a partition may change or go while its log is being opened.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kraftlog.errors import ErrorCode, LogError
from kraftlog.partition.assignment import Assignment
from kraftlog.partition.stop_replica import fenced_error
from kraftlog.runtime.replica.log_opener import OpenRequest, first_high_watermark
from kraftlog.runtime.replica.partition import Partition, ReplicaStart
from kraftlog.runtime.replica.registry import is_internal_topic
from kraftlog.runtime.replica.replica_removal import ReplicaRemoval, UnservedLog
from kraftlog.runtime.replica.step_queue import STEPS_PER_TURN
from kraftlog.storage.disk_failure import is_disk_failure
from kraftlog.types import TopicPartition
from kraftlog.vocabulary import ConfigResourceType

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from kraftlog._kraftlog import Log
    from kraftlog.controller import MetadataDelta, MetadataImage
    from kraftlog.controller.topic_image import PartitionImage, TopicImage
    from kraftlog.partition.stop_replica import ReplicaStop
    from kraftlog.runtime.replica.reconciler_parts import ReconcilerParts
    from kraftlog.runtime.replica.registry import PartitionKey
    from kraftlog.runtime.replica.topic_config import TopicConfig
    from kraftlog.storage.log_dir import LogDir

__all__ = ["Reconciler"]

logger = logging.getLogger(__name__)

RETRY_S = 1.0
# So many logs are being opened at once; a future and a request for each of thousands would make the garbage collector
# look at the whole heap.
OPENING_MAX = 64
# For the requests that follow the one that needed a partition first.
_HEAD_START_S = 0.02


@dataclass(slots=True)
class _Opening:
    """A log that is being opened."""

    request: OpenRequest
    future: Future[Log] | None = None


class Reconciler:
    """Follows the metadata. All methods are called on the loop.

    Args:
        parts: Collaborators.
        on_log_dir_failed: Told of a write, fsync, open or rename that failed.
        end_fetch: Ends the fetches of a partition before its replica goes.
    """

    def __init__(
        self,
        parts: ReconcilerParts,
        on_log_dir_failed: Callable[[LogDir, BaseException], None],
        end_fetch: Callable[[PartitionKey], None],
    ) -> None:
        self._parts = parts
        self._partitions = parts.partitions
        self._steps = parts.steps
        self._node_id = parts.settings.node_id
        self._on_log_dir_failed = on_log_dir_failed
        self._image: MetadataImage | None = None
        self._opening: dict[PartitionKey, _Opening] = {}
        self._unopened: deque[PartitionKey] = deque()
        self._on_storage_failed = self._partition_failed  # one bound method for all partitions
        # Directories that are being opened or removed: a topic of the same name waits for its name to be free.
        self._busy: set[str] = set()
        self._blocked: dict[str, list[PartitionKey]] = {}
        self._first: dict[str, Collection[int]] = {}
        self._recovered: dict[TopicPartition, tuple[Log, LogDir]] = {}
        self._waiters: dict[PartitionKey, list[asyncio.Future[None]]] = {}
        # Replicas that a controller stopped, with the leader epoch in which it did: a higher one opens them again.
        self._stopped: dict[PartitionKey, tuple[TopicPartition, int]] = {}
        self._waiting_stops: dict[str, list[Callable[[], None]]] = {}
        self._is_stopped = False
        self._removal = ReplicaRemoval(
            parts, end_fetch=end_fetch, ended=self._free, on_log_dir_failed=on_log_dir_failed
        )

    @property
    def is_settled(self) -> bool:
        """Whether nothing is being opened, removed or waiting for its step."""
        return not (self._opening or self._unopened or self._busy or self._steps)

    # -- metadata ------------------------------------------------------------------------------------------------

    def open_first(self, topic: str, indexes: Collection[int]) -> None:
        """Open these partitions of a topic before others when it is created; none: in any order."""
        if indexes:
            self._first[topic] = indexes
        else:
            self._first.pop(topic, None)

    def _without_deferred(
        self, mine: list[tuple[PartitionKey, PartitionImage]]
    ) -> list[tuple[PartitionKey, PartitionImage]]:
        """Leave out partitions of topics some of whose partitions are wanted first; they follow when those are open.

        Until then the threads, and the steps on the loop, are for what a client waits for.
        """
        image = self._image
        for name, indexes in self._first.items():
            topic = None if image is None else image.topics.by_name(name)
            first = () if topic is None else [key for key, _ in mine if key[0] == topic.topic_id and key[1] in indexes]
            if topic is None or not first:
                continue
            later = [key for key, _ in mine if key[0] == topic.topic_id and key[1] not in indexes]
            mine = [item for item in mine if item[0][0] != topic.topic_id or item[0][1] in indexes]
            waiting = set(first)

            def opened(
                key: PartitionKey, _: object, waiting: set[PartitionKey] = waiting, later: list[PartitionKey] = later
            ) -> None:
                waiting.discard(key)
                if not waiting:
                    self._parts.timers.once(_HEAD_START_S, self._enqueue, later)

            for key in first:
                waiter: asyncio.Future[None] = self._parts.loop.create_future()
                waiter.add_done_callback(partial(opened, key))
                self._waiters.setdefault(key, []).append(waiter)
        return mine

    def start(self, image: MetadataImage, recovered: dict[TopicPartition, tuple[Log, LogDir]]) -> None:
        """Open every partition assigned here.

        Args:
            image: The committed metadata.
            recovered: Logs that are open already, by the names of their directories.
        """
        self._image = image
        self._recovered = recovered
        self._enqueue_topics(image.topics.all())
        self._steps.add(self._discard_recovered)

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Follow one committed batch of metadata."""
        self._image = image
        for topic_id, topic in delta.deleted_topics.items():
            self._enqueue((topic_id, index) for index in topic.partitions)
        # As Kafka: what leaves this broker comes before what it leads, and that before what it follows (RDLT-16).
        partitions = delta.changed_partitions
        mine = [(key, wanted) for key, wanted in partitions.items() if self._node_id in wanted.replicas]
        if self._first:
            mine = self._without_deferred(mine)
        self._enqueue([key for key, wanted in partitions.items() if self._node_id not in wanted.replicas])
        self._enqueue([key for key, wanted in mine if wanted.leader == self._node_id])
        self._enqueue([key for key, wanted in mine if wanted.leader != self._node_id])
        if delta.changed_brokers:
            self._steps.add_each(self._update_live_brokers, list(self._partitions))
        if any(kind == ConfigResourceType.BROKER for kind, _ in delta.changed_configs) and self.update_broker_overrides(
            image
        ):
            self._enqueue_topics(image.topics.all())
            return
        for kind, name in sorted(delta.changed_configs):
            changed = image.topics.by_name(name) if kind == ConfigResourceType.TOPIC else None
            if changed is not None:
                self._enqueue_topics([changed])

    def update_broker_overrides(self, image: MetadataImage) -> bool:
        """Take over dynamic broker settings; True when they differ."""
        overrides = {
            **image.configs.get(ConfigResourceType.BROKER, ""),
            **image.configs.get(ConfigResourceType.BROKER, str(self._node_id)),
        }
        if not self._parts.topic_configs.update_broker_overrides(overrides):
            return False
        self._parts.compactor.update_settings(self._parts.settings.cleaner.altered(overrides))
        return True

    def _enqueue(self, keys: Iterable[PartitionKey]) -> None:
        self._steps.add_each(self._reconcile, keys)

    def _enqueue_topics(self, topics: Sequence[TopicImage]) -> None:
        for topic in topics:
            self._enqueue([(topic.topic_id, index) for index in topic.partitions])

    def _wanted(self, key: PartitionKey) -> tuple[TopicImage, PartitionImage] | None:
        """The partition as the newest metadata has it, if it is assigned to this node."""
        topic = None if self._image is None else self._image.topics.by_id(key[0])
        wanted = None if topic is None else topic.partitions.get(key[1])
        if topic is None or wanted is None or self._node_id not in wanted.replicas:
            return None
        return topic, wanted

    def _config(self, topic: TopicImage) -> TopicConfig:
        overrides = {} if self._image is None else self._image.configs.get(ConfigResourceType.TOPIC, topic.name)
        return self._parts.topic_configs.get(overrides)

    def _reconcile(self, key: PartitionKey) -> None:
        """Bring one partition in line with the metadata."""
        found = self._wanted(key)
        partition = self._partitions.get(*key)
        if found is None:
            self._partitions.clear_offline(key)
            self._settle(key)
            stopped = self._stopped.pop(key, None)
            if partition is not None:
                self._remove(partition, is_deleted=True)
            elif stopped is not None:
                self._delete_stopped(stopped[0])
            return  # a log that is being opened goes when it is open
        topic, wanted = found
        if partition is not None:
            config = self._config(topic)
            if partition.config is not config:
                partition.update_config(config)
            self._assign(partition, wanted)
        elif key not in self._opening and not self._partitions.is_offline(key) and not self._is_kept_stopped(key):
            self._open(key, topic, wanted)

    def _update_live_brokers(self, partition: Partition) -> None:
        """Which of the other replicas may fetch and join the in-sync set."""
        found = self._wanted((partition.topic_id, partition.index))
        if found is not None and partition.is_leader:
            partition.replica.update_live_brokers(self._live_brokers(found[1]))

    def _live_brokers(self, wanted: PartitionImage) -> list[tuple[int, int, bool]]:
        """Broker, epoch and whether it shuts down, of the other replicas that are registered and not fenced."""
        brokers = {} if self._image is None else self._image.cluster.brokers
        registered = (brokers.get(replica) for replica in wanted.replicas if replica != self._node_id)
        return [
            (broker.broker_id, broker.epoch, broker.in_controlled_shutdown)
            for broker in registered
            if broker is not None and not broker.fenced
        ]

    def _assign(self, partition: Partition, wanted: PartitionImage) -> None:
        known_epoch = partition.leader_epoch if partition.is_leader else -1
        partition.handle_assignment(
            Assignment(
                leader_id=wanted.leader,
                leader_epoch=wanted.leader_epoch,
                partition_epoch=wanted.partition_epoch,
                replicas=tuple(wanted.replicas),
                isr=tuple(wanted.isr),
            ),
            self._partitions.now_ms(),
            self._live_brokers(wanted) if wanted.leader == self._node_id else None,
        )
        self._partitions.set_reassigning(
            partition, is_reassigning=partition.is_leader and bool(wanted.adding_replicas or wanted.removing_replicas)
        )
        self._partitions.set_adding(partition, wanted.adding_replicas)
        self._partitions.notify(partition)
        if partition.is_leader and partition.leader_epoch != known_epoch:
            self._partitions.lead(partition, [replica for replica in wanted.isr if replica != self._node_id])

    # -- opening -------------------------------------------------------------------------------------------------

    def _open(self, key: PartitionKey, topic: TopicImage, wanted: PartitionImage) -> None:
        if len(self._opening) >= OPENING_MAX:
            self._unopened.append(key)
            return
        name = TopicPartition(topic.name, key[1])
        other = self._partitions.get_by_name(name.topic, name.partition)
        if str(name) in self._busy or other is not None:
            if other is not None and self._wanted((other.topic_id, other.index)) is not None:
                # As Kafka's ReplicaManager.getOrCreatePartition: nothing is done to the log that is there.
                logger.error("partition %s is that of topic id %s, not %s", name, other.topic_id, topic.topic_id)
            self._blocked.setdefault(str(name), []).append(key)
            return
        recovered = self._recovered.pop(name, None)
        assigned = dict(zip(wanted.replicas, wanted.directories, strict=False)).get(self._node_id)
        try:
            log_dir = self._parts.placement.choose(name, assigned) if recovered is None else recovered[1]
        except LogError as error:
            logger.error("partition %s is offline: %s", name, error)
            self._partitions.set_offline(key)
            self._settle(key)
            return
        request = OpenRequest(
            key=name,
            topic_id=topic.topic_id,
            config=self._config(topic),
            log_dir=log_dir,
            leader_epoch=wanted.leader_epoch if wanted.leader == self._node_id else -1,
        )
        self._busy.add(str(name))
        self._parts.placement.add(log_dir)
        if recovered is not None:
            self._install(key, request, recovered[0])
            return
        # Until the log is open, checkpoints keep what they say of it.
        log_dir.unopened.add(name)
        opening = self._opening[key] = _Opening(request)
        opening.future = self._parts.workers.submit(self._parts.opener.open, request)
        opening.future.add_done_callback(partial(self._open_ended, key))

    def _open_ended(self, key: PartitionKey, future: Future[Log]) -> None:
        """On a thread."""
        if not future.cancelled():
            self._steps.add_threadsafe(partial(self._finish_open, key, future))

    def _finish_open(self, key: PartitionKey, future: Future[Log]) -> None:
        request = self._opening.pop(key).request
        try:
            self._handle_opened(key, request, future)
        finally:
            self._open_next()

    def _open_next(self) -> None:
        while self._unopened and len(self._opening) < OPENING_MAX:
            self._reconcile(self._unopened.popleft())

    def _handle_opened(self, key: PartitionKey, request: OpenRequest, future: Future[Log]) -> None:
        error = future.exception()
        if error is None:
            self._install(key, request, future.result())
            return
        self._parts.placement.remove(request.log_dir)
        self._free(request.key)
        if not isinstance(error, LogError | OSError):
            self._partitions.set_offline(key)
            self._settle(key)
            raise error
        if not is_disk_failure(error):
            logger.warning("opening partition %s is tried again in %g s: %s", request.key, RETRY_S, error)
            self._parts.timers.once(RETRY_S, self._steps.add, partial(self._reconcile, key))
            return
        if self._wanted(key) is not None:
            logger.error("partition %s cannot be opened and is offline", request.key, exc_info=error)
            self._partitions.set_offline(key)
        self._settle(key)
        if isinstance(error, OSError):
            self._on_log_dir_failed(request.log_dir, error)

    def _install(self, key: PartitionKey, request: OpenRequest, log: Log) -> None:
        """A log is open: serve it, unless the metadata or the directory have changed meanwhile."""
        found = self._wanted(key)
        log_dir = request.log_dir
        high_watermark = first_high_watermark(log_dir.high_watermarks.get(request.key, 0), log)
        log_dir.forget(request.key)
        if found is None:
            self._settle(key)
            self._parts.placement.remove(log_dir)
            self._removal.delete_unserved(UnservedLog(request.key, log, log_dir, request.config))
            return
        if not log_dir.is_online:
            self._parts.placement.remove(log_dir)
            self._partitions.set_offline(key)
            self._parts.workers.submit(log.discard)
            self._free(request.key)
            self._settle(key)
            return
        topic, wanted = found
        partition = self._new_partition(topic, key[1], request, log, high_watermark)
        partition.replica.update_lag_max_ms(self._parts.settings.lag_max_ms)
        self._partitions.add(partition)
        self._parts.workers.submit_in_order(self._parts.compactor.add, partition)
        config = self._config(topic)
        if config is not request.config:
            partition.update_config(config)
        self._assign(partition, wanted)
        partition.publish(is_published=not is_internal_topic(topic.name))
        self._free(request.key)
        self._settle(key)

    def _new_partition(
        self, topic: TopicImage, index: int, request: OpenRequest, log: Log, high_watermark: int
    ) -> Partition:
        return Partition(
            topic=topic.name,
            topic_id=topic.topic_id,
            index=index,
            log=log,
            start=ReplicaStart(
                node_id=self._node_id,
                flush_on_ack=self._parts.settings.flush_on_ack,
                high_watermark=high_watermark,
            ),
            config=request.config,
            log_dir=request.log_dir,
            threads=self._parts.threads,
            on_storage_failed=self._on_storage_failed,
        )

    def _partition_failed(self, partition: Partition, error: BaseException) -> None:
        self._on_log_dir_failed(partition.log_dir, error)

    def abandon(self, log_dir: LogDir) -> None:
        """A directory failed: what is being opened there goes offline at once."""
        for key, opening in self._opening.items():
            if opening.request.log_dir is log_dir:
                self._partitions.set_offline(key)

    def _discard_recovered(self) -> None:
        """Logs that were found on disk and recovered, and that the metadata does not place here any more."""
        for log, _ in self._recovered.values():
            self._parts.workers.submit(log.close)
        self._recovered.clear()

    # -- deletion ------------------------------------------------------------------------------------------------

    def stop_replica(self, stop: ReplicaStop) -> asyncio.Future[int]:
        """Stop a replica as a controller asks; the future gives 0 or an error code.

        It ends when the log is closed, or its directory renamed. The replica stays stopped until the metadata has a
        higher leader epoch.

        Source: KIP-570.
        """
        ended: asyncio.Future[int] = self._parts.loop.create_future()
        self._stop(stop, ended)
        return ended

    def _stop(self, stop: ReplicaStop, ended: asyncio.Future[int]) -> None:
        name = stop.topic_partition
        topic = None if self._image is None else self._image.topics.by_name(name.topic)
        partition = self._partitions.get_by_name(name.topic, name.partition)
        key = None if topic is None else (topic.topic_id, name.partition)
        if partition is not None:
            key = (partition.topic_id, partition.index)
        found = None if key is None else self._wanted(key)
        local_epoch = -1 if found is None else found[1].leader_epoch
        if partition is not None:
            local_epoch = max(local_epoch, partition.leader_epoch)
        if key is not None and partition is None and self._partitions.is_offline(key):
            ended.set_result(ErrorCode.KAFKA_STORAGE_ERROR)
        elif error_code := fenced_error(stop.leader_epoch, local_epoch):
            ended.set_result(error_code)
        elif partition is None and (str(name) in self._busy or key in self._opening):
            self._waiting_stops.setdefault(str(name), []).append(partial(self._stop, stop, ended))
        else:
            if key is not None and found is not None:
                self._stopped[key] = name, max(local_epoch, stop.leader_epoch)
                self._settle(key)
            if partition is not None:
                self._remove(partition, is_deleted=stop.is_deleted, ended=ended)
            elif not (stop.is_deleted and self._delete_directory(name, ended)):
                ended.set_result(ErrorCode.NONE)

    def _delete_stopped(self, name: TopicPartition) -> None:
        """The metadata took a replica away that a controller had stopped before; its log may still be closing."""
        if str(name) in self._busy:
            self._waiting_stops.setdefault(str(name), []).append(partial(self._delete_stopped, name))
        else:
            self._delete_directory(name)

    def _is_kept_stopped(self, key: PartitionKey) -> bool:
        stopped, found = self._stopped.get(key), self._wanted(key)
        if stopped is None or found is None:
            return False
        if found[1].leader_epoch > stopped[1]:
            del self._stopped[key]
            logger.error("partition %s of a known topic is not here, as it was stopped: it is opened again", stopped[0])
            return False
        return True

    def _remove(self, partition: Partition, *, is_deleted: bool, ended: asyncio.Future[int] | None = None) -> None:
        """Take a replica out at once; then delete its log, or close it and leave it on the disk."""
        self._busy.add(str(partition))
        self._removal.remove(partition, is_deleted=is_deleted, ended=ended)

    def _delete_directory(self, name: TopicPartition, ended: asyncio.Future[int] | None = None) -> bool:
        """Delete the log of a replica that is not served; False when there is none."""
        if str(name) in self._busy or not self._removal.delete_directory(name, ended):
            return False
        self._busy.add(str(name))
        return True

    def _free(self, name: TopicPartition) -> None:
        """The directory of this name is open as wanted, or gone: the next change of this name starts."""
        self._busy.discard(str(name))
        for stop in self._waiting_stops.pop(str(name), ()):
            stop()
        self._enqueue(self._blocked.pop(str(name), ()))

    # -- waiting -------------------------------------------------------------------------------------------------

    def _settle(self, key: PartitionKey) -> None:
        for waiter in self._waiters.pop(key, ()):
            if not waiter.done():
                waiter.set_result(None)

    async def wait_until_open(self, topics: Iterable[str], indexes: Iterable[int] | None = None) -> None:
        """Wait until partitions of these topics that are assigned here are open, offline or gone again.

        ``indexes`` None: all of each topic.
        """
        for name in topics:
            topic = None if self._image is None else self._image.topics.by_name(name)
            wanted = () if topic is None else topic.partitions if indexes is None else indexes
            for key in [] if topic is None else [(topic.topic_id, index) for index in wanted]:
                await self._wait_for(key)
                if key[1] % STEPS_PER_TURN == 0:
                    await asyncio.sleep(0)

    async def _wait_for(self, key: PartitionKey) -> None:
        while self._is_awaited(key):
            waiter: asyncio.Future[None] = self._parts.loop.create_future()
            self._waiters.setdefault(key, []).append(waiter)
            await waiter

    async def wait_until_settled(self) -> None:
        """Wait until every partition that is assigned here now is open, offline or gone again."""
        if self._image is not None:
            await self.wait_until_open([topic.name for topic in self._image.topics.all()])

    def _is_awaited(self, key: PartitionKey) -> bool:
        return (
            self._partitions.get(*key) is None
            and not self._partitions.is_offline(key)
            and key not in self._stopped
            and not self._is_stopped
            and self._wanted(key) is not None
        )

    # -- stop ----------------------------------------------------------------------------------------------------

    async def stop(self) -> list[Log]:
        """Begin nothing more and wait for the threads.

        Returns:
            Logs that were opened and never served: the caller closes them.
        """
        self._is_stopped = True
        self._steps.close()
        await self._parts.loop.run_in_executor(None, self._parts.workers.shut_down)
        await self._parts.loop.run_in_executor(None, self._removal.finish)
        for key in list(self._waiters):
            self._settle(key)
        unserved = [log for log, _ in self._recovered.values()]
        for opening in self._opening.values():
            future: Future[Any] | None = opening.future
            if future is not None and future.done() and not future.cancelled() and future.exception() is None:
                unserved.append(future.result())
        self._opening.clear()
        self._unopened.clear()
        self._recovered.clear()
        return unserved
