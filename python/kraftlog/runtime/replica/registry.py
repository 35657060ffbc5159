"""The partitions of this node by topic id and by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from kraftlog._kraftlog import Partitions as NativePartitions
from kraftlog.errors import ErrorCode
from kraftlog.partition.replication_quota import ReplicationQuota
from kraftlog.runtime.replica.follower_polls import FollowerPolls
from kraftlog.types import Uuid
from kraftlog.vocabulary import INTERNAL_TOPICS

if TYPE_CHECKING:
    from kraftlog._kraftlog import Log
    from kraftlog.controller import MetadataImage
    from kraftlog.controller.topic_image import TopicImage
    from kraftlog.runtime.replica.partition import Partition
    from kraftlog.storage.log_dir import LogDir

__all__ = ["PartitionKey", "PartitionListener", "Partitions", "ReplicationTraffic", "is_internal_topic"]

PartitionKey = tuple[Uuid, int]
PartitionListener = Callable[["Partition"], None]


def is_internal_topic(topic: str) -> bool:
    """Whether only the broker itself writes to this topic."""
    return topic in INTERNAL_TOPICS


def _is_late(log: Log, before_ms: int) -> bool:
    if log.first_unstable_offset is None:
        return False
    opened = [producer for producer in log.active_producers() if producer.current_txn_first_offset is not None]
    oldest = min(opened, key=lambda producer: producer.current_txn_first_offset or 0, default=None)
    return oldest is not None and 0 < oldest.last_timestamp < before_ms


class ReplicationTraffic(Protocol):
    """Measures what brokers replicate from each other."""

    def on_replicated_in(self, size_bytes: int, *, is_reassignment: bool) -> None:
        """Bytes of a leader were appended here; of a reassignment if it adds this broker to the replicas."""

    def on_replicated_out(self, size_bytes: int, *, is_reassignment: bool) -> None:
        """A follower was answered with so many bytes."""


class Partitions:
    """The registry of :class:`Partition`. All methods are called on the node's loop.

    A partition is here while its log is open. One that is being opened is missing for clients with
    NOT_LEADER_OR_FOLLOWER, as on a Kafka broker that has not applied the metadata yet; one whose log cannot be opened
    is offline.

    Args:
        image: The committed metadata.
        clock_ms: Wall clock.

    Attributes:
        native: Where I/O threads find the same partitions.
        leader_quota: What throttled replicas take from this broker.
        follower_quota: What this broker's throttled replicas take from their leaders.
        traffic: Measures all that is replicated; None on a node that is no broker.
        now_ms: Wall clock, milliseconds since 1970.
        follower_polls: Fetches of followers that wait on the event loop; ``native`` has those of the I/O threads.
    """

    def __init__(self, image: Callable[[], MetadataImage], clock_ms: Callable[[], int]) -> None:
        self._image = image
        self.now_ms = clock_ms
        self.native = NativePartitions()
        self.leader_quota = ReplicationQuota()
        self.follower_quota = ReplicationQuota()
        self.follower_polls = FollowerPolls()
        # Maps of maps: the garbage collector would track a pair of topic id and index for each partition.
        self.traffic: ReplicationTraffic | None = None
        self._by_id: dict[Uuid, dict[int, Partition]] = {}
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._count = 0
        self._offline: set[PartitionKey] = set()
        self._reassigning: set[PartitionKey] = set()
        # The replicas that a reassignment adds, of partitions where there are any.
        self._adding: dict[PartitionKey, Sequence[int]] = {}
        self._listeners: list[PartitionListener] = []

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._by_id.values():
            yield from partitions.values()

    def __len__(self) -> int:
        return self._count

    def get(self, topic_id: Uuid, index: int) -> Partition | None:
        """The partition with this topic id, if it is on this node."""
        partitions = self._by_id.get(topic_id)
        return None if partitions is None else partitions.get(index)

    def get_by_name(self, topic: str, index: int) -> Partition | None:
        """The partition with this topic name, if it is on this node."""
        partitions = self._by_name.get(topic)
        return None if partitions is None else partitions.get(index)

    def in_directory(self, log_dir: LogDir) -> list[Partition]:
        """The partitions whose logs are in a data directory."""
        return [partition for partition in self if partition.log_dir is log_dir]

    # -- changes -------------------------------------------------------------------------------------------------

    def add_listener(self, listener: PartitionListener) -> None:
        """Call ``listener(partition)`` when one was opened, got an assignment or was taken out."""
        self._listeners.append(listener)

    def add(self, partition: Partition) -> None:
        """A partition's log was opened; the assignment that follows tells the listeners."""
        self._by_id.setdefault(partition.topic_id, {})[partition.index] = partition
        self._by_name.setdefault(partition.topic, {})[partition.index] = partition
        self._count += 1
        self.native.add(partition.replica)

    def remove(self, partition: Partition) -> None:
        """A partition is deleted, or its directory failed."""
        by_index = self._by_id[partition.topic_id]
        del by_index[partition.index]
        if not by_index:
            del self._by_id[partition.topic_id]
        by_index = self._by_name.get(partition.topic, {})
        by_index.pop(partition.index, None)
        if not by_index:
            self._by_name.pop(partition.topic, None)
        self._count -= 1
        self._reassigning.discard((partition.topic_id, partition.index))
        self._adding.pop((partition.topic_id, partition.index), None)
        self.native.remove(partition.replica)
        self.notify(partition)

    def notify(self, partition: Partition) -> None:
        """Tell the listeners of a partition."""
        for listener in self._listeners:
            listener(partition)

    def set_offline(self, key: PartitionKey) -> None:
        """The log of a partition cannot be opened, or takes no more writes."""
        self._offline.add(key)

    def clear_offline(self, key: PartitionKey) -> None:
        """A partition is not on this node any more, or is about to be opened."""
        self._offline.discard(key)

    def is_offline(self, key: PartitionKey) -> bool:
        """Whether the log of a partition cannot be used until the node starts again."""
        return key in self._offline

    @property
    def offline_count(self) -> int:
        """Replicas whose logs cannot be used."""
        return len(self._offline)

    def set_reassigning(self, partition: Partition, *, is_reassigning: bool) -> None:
        """Whether replicas of a partition that is led here are being added or removed."""
        key = (partition.topic_id, partition.index)
        if is_reassigning:
            self._reassigning.add(key)
        else:
            self._reassigning.discard(key)

    def set_adding(self, partition: Partition, broker_ids: Sequence[int]) -> None:
        """Which replicas a reassignment adds."""
        key = (partition.topic_id, partition.index)
        if list(broker_ids) != list(self._adding.get(key, ())):
            partition.replica.set_adding(list(broker_ids))
        if broker_ids:
            self._adding[key] = broker_ids
        else:
            self._adding.pop(key, None)

    def replicated_in(self, partition: Partition, broker_id: int, size_bytes: int) -> None:
        """Bytes of the leader were appended to the replica of this broker."""
        if self.traffic is not None:
            self.traffic.on_replicated_in(size_bytes, is_reassignment=self._is_adding(partition, broker_id))

    def replicated_out(self, partition: Partition, broker_id: int, size_bytes: int) -> None:
        """A follower was answered with so many bytes."""
        if self.traffic is not None:
            self.traffic.on_replicated_out(size_bytes, is_reassignment=self._is_adding(partition, broker_id))

    def lead(self, partition: Partition, follower_ids: Sequence[int]) -> None:
        """This broker begins to lead a partition that these brokers follow: their fetches that wait are answered."""
        self.follower_polls.leads(partition.topic_id, partition.index, follower_ids)
        self.native.lead(partition.topic_id, partition.index, follower_ids)

    def take_replicated_out(self) -> None:
        """Count what I/O threads have sent to followers."""
        size_bytes, reassigned_bytes = self.native.take_replicated_out()
        if self.traffic is not None:
            self.traffic.on_replicated_out(size_bytes - reassigned_bytes, is_reassignment=False)
            self.traffic.on_replicated_out(reassigned_bytes, is_reassignment=True)

    def _is_adding(self, partition: Partition, broker_id: int) -> bool:
        return broker_id in self._adding.get((partition.topic_id, partition.index), ())

    @property
    def reassigning_count(self) -> int:
        """Partitions led here that are being reassigned."""
        return len(self._reassigning)

    def late_transaction_count(self, before_ms: int) -> int:
        """Partitions led here whose oldest open transaction wrote nothing since ``before_ms``; on any thread."""
        found = [partition for by_index in list(self._by_id.values()) for partition in list(by_index.values())]
        return sum(partition.is_leader and _is_late(partition.log, before_ms) for partition in found)

    # -- errors --------------------------------------------------------------------------------------------------

    def missing_error(self, topic: str, index: int) -> int:
        """Why ``get_by_name`` found nothing: the error for the client (LEPO-07)."""
        found = self._image().topics.by_name(topic)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else self._missing_error(found, index)

    def missing_error_by_id(self, topic_id: Uuid, index: int) -> int:
        """Why ``get`` found nothing: the error for the client."""
        found = self._image().topics.by_id(topic_id)
        return ErrorCode.UNKNOWN_TOPIC_ID if found is None else self._missing_error(found, index)

    def is_inconsistent(self, topic_id: Uuid, index: int) -> bool:
        """Whether the log of that name is still the one of an earlier topic: Kafka's INCONSISTENT_TOPIC_ID on Fetch."""
        topic = self._image().topics.by_id(topic_id)
        found = None if topic is None else self.get_by_name(topic.name, index)
        return found is not None and found.topic_id != topic_id

    def _missing_error(self, topic: TopicImage, index: int) -> int:
        if index not in topic.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if (topic.topic_id, index) in self._offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
