"""The replica fetchers of a broker: which leader each partition follows, and through which loop."""

from __future__ import annotations

import asyncio
import logging
from functools import cache
from typing import TYPE_CHECKING, Final

from kraftlog import host
from kraftlog.ordered_set import OrderedSet
from kraftlog.partition.replica_fetcher import FetchStart
from kraftlog.runtime.replica.fetcher_loop import ConnectionLost, FetcherLoop, FetcherSettings, FetcherShell
from kraftlog.runtime.replica.leader_link import BrokerAddress, LeaderLink

if TYPE_CHECKING:
    from collections.abc import Callable

    from kraftlog.controller import MetadataDelta, MetadataImage
    from kraftlog.runtime.replica.partition import Partition
    from kraftlog.runtime.replica.registry import PartitionKey, Partitions
    from kraftlog.storage.log_dir import LogDir
    from kraftlog.transport.peer_security import PeerSecurity

__all__ = ["ReplicaFetchers", "fetcher_index"]

logger = logging.getLogger(__name__)

_THREADS: Final = 8
# (lowest level of metadata.version, version), the newest first: MetadataVersion.fetchRequestVersion.
_FETCH_VERSIONS: Final = ((27, 18), (21, 17), (19, 16), (10, 15), (9, 14), (0, 13))
_LIST_OFFSETS_VERSIONS: Final = ((29, 11), (25, 10), (21, 9), (0, 8))


@cache
def _version_at(level: int, versions: tuple[tuple[int, int], ...]) -> int:
    return next(version for lowest, version in versions if level >= lowest)


def fetcher_index(topic: str, partition: int, fetchers_per_leader: int) -> int:
    """Which fetcher of a leader has a partition (Kafka's ``AbstractFetcherManager.getFetcherId``)."""
    number = 0
    for character in topic:
        number = (31 * number + ord(character)) & 0xFFFF_FFFF
    number = (31 * number + partition) & 0xFFFF_FFFF
    if number >= 1 << 31:
        # The smallest int has no absolute value in Java; Kafka takes 0.
        number = ((1 << 32) - number) & 0x7FFF_FFFF
    return number % fetchers_per_leader


class ReplicaFetchers:
    """Follows the assignments of this broker's partitions. All methods are called on the loop.

    Args:
        settings: How to follow.
        partitions: Of this broker.
        image: The committed metadata.
        listener_name: inter.broker.listener.name.
        broker_epoch: Gives the epoch of this broker's registration.
        keep_recovery_point: Writes the recovery points of a directory; any thread may call.
        security: Makes what a connection to another broker needs.
        connection_lost: Told of leaders that cannot be reached.
    """

    def __init__(
        self,
        settings: FetcherSettings,
        *,
        partitions: Partitions,
        image: Callable[[], MetadataImage],
        listener_name: str,
        broker_epoch: Callable[[], int],
        keep_recovery_point: Callable[[LogDir], None],
        security: Callable[[], PeerSecurity | None],
        connection_lost: ConnectionLost,
    ) -> None:
        self._settings = settings
        self._fetchers_per_leader = settings.fetchers_per_leader
        self._partitions = partitions
        self._image = image
        self._listener_name = listener_name
        self._security = security
        self._threads = host.executor("kraftlog-replica-fetch", _THREADS)
        self._shell = FetcherShell(
            settings=settings,
            partitions=partitions,
            broker_epoch=broker_epoch,
            fetch_version=lambda: self._version(_FETCH_VERSIONS),
            list_offsets_version=lambda: self._version(_LIST_OFFSETS_VERSIONS),
            keep_recovery_point=keep_recovery_point,
            threads=self._threads,
            connection_lost=connection_lost,
        )
        self._loops: dict[tuple[int, int], FetcherLoop] = {}
        self._by_partition: dict[PartitionKey, tuple[int, int]] = {}
        self._ending: OrderedSet[asyncio.Task[None]] = OrderedSet()
        self._is_leaving = False
        self._is_stopped = False

    def _version(self, versions: tuple[tuple[int, int], ...]) -> int:
        return _version_at(self._image().metadata_version.feature_level, versions)

    @property
    def loops(self) -> list[FetcherLoop]:
        """One for each leader and index that has partitions here."""
        return list(self._loops.values())

    @property
    def max_lag(self) -> int:
        """The largest number of committed records that any partition does not have yet."""
        return max((loop.fetcher.max_lag for loop in self.loops), default=0)

    @property
    def min_fetch_rate(self) -> float:
        """Requests per second of the loop that sends the fewest, over the last minute."""
        return min((loop.fetch_rate for loop in self.loops), default=0.0)

    @property
    def dead_count(self) -> int:
        """Loops that ended by a defect."""
        return sum(loop.is_dead for loop in self.loops)

    @property
    def failed_count(self) -> int:
        """Partitions that wait for another leader epoch."""
        return sum(loop.fetcher.failed_count for loop in self.loops)

    # -- assignments ---------------------------------------------------------------------------------------------

    def partition_changed(self, partition: Partition) -> None:
        """A partition was opened, got an assignment, or was taken out."""
        if self._is_stopped:
            return
        key = (partition.topic_id, partition.index)
        is_here = self._partitions.get(*key) is partition
        leader_id = partition.leader_id
        if not is_here or leader_id < 0 or leader_id == self._settings.node_id or not self._may_follow(key):
            self._remove(key)
            return
        wanted = (leader_id, fetcher_index(partition.topic, partition.index, self._fetchers_per_leader))
        current = self._by_partition.get(key)
        if current == wanted and self._loops[wanted].fetcher.leader_epoch(key) == partition.leader_epoch:
            return  # the same leader in the same epoch: the fetch goes on untouched (RDLT-06)
        # Only then its position is taken: nothing is appended for the old leader any more (RFET-24).
        self._remove(key)
        loop = self._loop_of(wanted)
        if loop is None:
            return  # no address: a change of that broker, or the next leader epoch, brings it (RDLT-29)
        log = partition.log
        latest_epoch = log.latest_epoch
        self._by_partition[key] = wanted
        loop.add(
            FetchStart(
                key=key,
                leader_epoch=partition.leader_epoch,
                log_end_offset=log.log_end_offset,
                log_start_offset=log.log_start_offset,
                high_watermark=partition.high_watermark,
                last_epoch=-1 if latest_epoch is None else latest_epoch,
                is_acknowledgeable=not self._settings.flush_on_ack
                or partition.replica.flushed_offset >= log.log_end_offset,
            )
        )

    def leave(self) -> None:
        """The controlled shutdown of this broker begins: what has left an in-sync set is followed no more."""
        self._is_leaving = True

    def _may_follow(self, key: PartitionKey) -> bool:
        """Not once the controller took a leaving broker out of the in-sync set: it would join again (RDLT-32)."""
        if not self._is_leaving:
            return True
        topic = self._image().topics.by_id(key[0])
        wanted = None if topic is None else topic.partitions.get(key[1])
        return wanted is not None and self._settings.node_id in wanted.isr

    def remove(self, key: PartitionKey) -> None:
        """End the fetches of a partition, whose replica is about to go."""
        self._remove(key)

    def resize(self, fetchers_per_leader: int) -> None:
        """Follow num.replica.fetchers: partitions whose loop is another one now move to it (RFET-04)."""
        if self._is_stopped or fetchers_per_leader == self._fetchers_per_leader:
            return
        logger.info("fetchers per leader: %d instead of %d", fetchers_per_leader, self._fetchers_per_leader)
        self._fetchers_per_leader = fetchers_per_leader
        for partition in list(self._partitions):
            if (partition.topic_id, partition.index) in self._by_partition:
                self.partition_changed(partition)

    def apply(self, delta: MetadataDelta) -> None:
        """Brokers may have come, or have other addresses."""
        if self._is_stopped or not delta.changed_brokers:
            return
        moved: list[PartitionKey] = []
        for (leader_id, index), loop in list(self._loops.items()):
            if leader_id in delta.changed_brokers and self._address(leader_id) != loop.link.address:
                moved += loop.fetcher
                self._end((leader_id, index))
        for key in moved:
            self._by_partition.pop(key, None)
        for partition in self._partitions:
            key = (partition.topic_id, partition.index)
            if partition.leader_id in delta.changed_brokers and key not in self._by_partition:
                self.partition_changed(partition)

    def _address(self, broker_id: int) -> BrokerAddress | None:
        broker = self._image().cluster.brokers.get(broker_id)
        if broker is None:
            return None
        for end_point in broker.end_points:
            if end_point.name == self._listener_name:
                return BrokerAddress(broker_id, end_point.host, end_point.port)
        return None

    def _loop_of(self, wanted: tuple[int, int]) -> FetcherLoop | None:
        loop = self._loops.get(wanted)
        address = self._address(wanted[0])
        if loop is not None and loop.link.address == address:
            return loop
        if address is None:
            return None
        if loop is not None:
            for key in loop.fetcher:
                self._by_partition.pop(key, None)
            self._end(wanted)
        name = f"replica fetcher {wanted[1]} of broker {wanted[0]}"
        link = LeaderLink(
            address,
            f"broker-{self._settings.node_id}-fetcher-{wanted[1]}",
            self._settings.socket_timeout_ms / 1000,
            self._security,
        )
        loop = self._loops[wanted] = FetcherLoop(link, self._shell, name)
        return loop

    def _remove(self, key: PartitionKey) -> None:
        where = self._by_partition.pop(key, None)
        if where is None:
            return
        loop = self._loops[where]
        loop.remove(key)
        if not len(loop.fetcher):
            self._end(where)

    def _end(self, where: tuple[int, int]) -> None:
        task = asyncio.get_running_loop().create_task(self._loops.pop(where).stop())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    # -- stop ----------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """End every loop; what is being appended is finished."""
        self._is_stopped = True
        for where in list(self._loops):
            self._end(where)
        self._by_partition.clear()
        if self._ending:
            await asyncio.gather(*self._ending, return_exceptions=True)
        self._threads.shutdown(wait=True)
