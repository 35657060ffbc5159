"""Share sessions and share partitions of one node, and fetches that wait for records.

Source: ``kafka.server.share.SharePartitionManager`` and ``DelayedShareFetch`` of Kafka 4.3.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from kraftlog.coordinator.share.share_key import ShareKey
from kraftlog.coordinator.share.share_partition import Acknowledgement, Acquired, AcquireLimits
from kraftlog.coordinator.share.share_session import ShareSession, ShareSessions
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.runtime.share.group_settings import ShareBrokerSettings, duration_ms, is_read_committed, reset_of
from kraftlog.runtime.share.live_partition import LivePartition, PartitionMeter
from kraftlog.types import Uuid
from kraftlog.vocabulary import ConfigResourceType

if TYPE_CHECKING:
    from kraftlog._kraftlog import FileSlice
    from kraftlog.controller.delta import MetadataDelta
    from kraftlog.controller.image import MetadataImage
    from kraftlog.runtime.coordinator.shard_registry import CommittedMetadata, ShardRegistry, TaskGroup
    from kraftlog.runtime.replica.partition import Partition
    from kraftlog.runtime.share.persister import ShareStatePersister
    from kraftlog.transport.exchange import PeerLoss

__all__ = ["ShareFetchLimits", "ShareMeter", "ShareService", "SharedPartition"]

SHARE_VERSION = "share.version"
_Place = tuple[Uuid, int]
# Partitions of one fetch that are looked at in one turn of the loop.
_PARTITIONS_PER_TURN = 64


class Replicas(Protocol):
    """The replicas of topic partitions on this node."""

    def get(self, topic_id: Uuid, index: int) -> Partition | None:
        """The partition with this topic id, if it is on this node."""
        ...

    def missing_error_by_id(self, topic_id: Uuid, index: int) -> int:
        """The error code for a client when ``get`` found nothing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFetchLimits:
    """The numbers of one ShareFetch request."""

    acquire: AcquireLimits
    max_wait_ms: int
    min_bytes: int
    max_bytes: int


@dataclass(slots=True)
class SharedPartition:
    """What one partition answers to a fetch."""

    error_code: int = 0
    records: FileSlice | None = None
    acquired: Sequence[Acquired] = ()


class _Wait:
    """Wakes a fetch."""

    __slots__ = ("_event",)

    def __init__(self, event: asyncio.Event) -> None:
        self._event = event

    def partition_moved(self, _partition: Partition) -> None:
        """The high watermark, the leader or the log start of a partition changed."""
        self._event.set()


class ShareMeter(Protocol):
    """Measures the share partitions of a broker."""

    def make_meter(self) -> PartitionMeter:
        """The meter of a share partition that begins."""
        ...

    def on_loaded(self, duration_ms: float) -> None:
        """The state of a share partition was read."""
        ...

    def on_acknowledged(self, kind: int, record_count: int) -> None:
        """A member acknowledged so many records with this type."""
        ...


class ShareService:
    """Everything that share groups need on a broker beside the coordinators.

    Args:
        settings: Of the broker.
        replicas: Partitions of this node.
        persister: The way to the share coordinator.
        metadata: Settings of groups, and the feature level.
        tasks: Run requests to the share coordinator.
        now_ms: Wall clock.
        meter: Measures them.

    Attributes:
        sessions: Share sessions of this broker.
        persister: The way to the share coordinator.
        coordinator: Shards of the share coordinator on this node.
    """

    def __init__(
        self,
        settings: ShareBrokerSettings,
        *,
        replicas: Replicas,
        coordinator: ShardRegistry[Any],
        persister: ShareStatePersister,
        metadata: CommittedMetadata,
        tasks: TaskGroup,
        now_ms: Callable[[], int],
        meter: ShareMeter,
    ) -> None:
        self._settings = settings
        self._replicas = replicas
        self._metadata = metadata
        self._tasks = tasks
        self._now_ms = now_ms
        self._meter = meter
        self.coordinator = coordinator
        self.persister = persister
        self.sessions = ShareSessions(lambda: settings.max_share_sessions)
        self._live: dict[ShareKey, LivePartition] = {}

    def start(self) -> None:
        """Load the shards of the share coordinator and follow the metadata."""
        self.coordinator.start()
        self._metadata.add_listener(self._on_metadata)

    def stop(self) -> None:
        """Unload everything."""
        self.coordinator.stop()
        self._clear(int(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    @property
    def is_enabled(self) -> bool:
        """Whether the cluster's feature level has share groups."""
        return bool(self._metadata.image.features.get(SHARE_VERSION))

    def lock_ms(self, group_id: str) -> int:
        """How long a member of a group has records."""
        return self._settings.of_group(self._own(group_id)).lock_ms

    def _own(self, group_id: str) -> Mapping[str, str]:
        return self._metadata.image.configs.get(ConfigResourceType.GROUP, group_id)

    # -- share partitions ---------------------------------------------------------------------------------------

    def live(self, key: ShareKey) -> LivePartition | int:
        """A share partition whose partition this node leads, loaded or loading; or the error code for a member."""
        partition = self._replicas.get(key.topic_id, key.partition)
        if partition is None:
            return self._replicas.missing_error_by_id(key.topic_id, key.partition)
        if not partition.is_leader:
            return int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        known = self._live.get(key)
        if known is not None and (known.partition is not partition or known.leader_epoch != partition.leader_epoch):
            known.fence(int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            known = None
        if known is None:
            known = self._live[key] = LivePartition(
                key,
                partition,
                settings=lambda: self._settings.of_group(self._own(key.group_id)),
                is_read_committed=lambda: is_read_committed(self._own(key.group_id)),
                start_offset=lambda led: self._first_offset(key.group_id, led),
                persister=self.persister,
                tasks=self._tasks,
                now_ms=self._now_ms,
                on_fenced=self._on_fenced,
                on_loaded=self._meter.on_loaded,
                meter=self._meter.make_meter(),
            )
        return known

    def live_partitions(self) -> tuple[LivePartition, ...]:
        """The share partitions in use on this node; any thread may ask."""
        return tuple(self._live.values())

    def _first_offset(self, group_id: str, partition: Partition) -> int:
        reset = reset_of(self._own(group_id))
        if reset == "earliest":
            return partition.log.log_start_offset
        before_ms = duration_ms(reset)
        if before_ms is not None:
            found = partition.log.offset_for_timestamp(self._now_ms() - before_ms)
            if found is not None:
                return min(found[0], partition.high_watermark)
        return partition.high_watermark

    def _on_fenced(self, live: LivePartition) -> None:
        if self._live.get(live.key) is live:
            del self._live[live.key]

    def on_partition_changed(self, partition: Partition) -> None:
        """A partition got another leader or epoch, or is gone: its share partitions are of no use any more."""
        for key, live in list(self._live.items()):
            if live.partition is partition and (
                not partition.is_leader
                or live.leader_epoch != partition.leader_epoch
                or self._replicas.get(key.topic_id, key.partition) is not partition
            ):
                live.fence(int(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _on_metadata(self, _image: MetadataImage, _delta: MetadataDelta) -> None:
        if not self.is_enabled and (self._live or len(self.sessions)):
            self._clear(int(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _clear(self, error_code: int) -> None:
        self.sessions.clear()
        for live in list(self._live.values()):
            live.fence(error_code)

    # -- sessions -----------------------------------------------------------------------------------------------

    def open_session(self, group_id: str, member_id: str, connection: object, loss: PeerLoss | None) -> ShareSession:
        """Begin a member's session, which ends with its connection at the latest.

        Raises:
            KafkaError: SHARE_SESSION_LIMIT_REACHED.
        """
        is_watched = bool(self.sessions.of_connection(connection))
        session = self.sessions.open(group_id, member_id, connection)
        if loss is not None and not is_watched:
            loss.add(lambda: self._connection_lost(connection))
        return session

    def _connection_lost(self, connection: object) -> None:
        for session in self.sessions.of_connection(connection):
            self.end_session(session)

    def end_session(self, session: ShareSession) -> list[asyncio.Future[int]]:
        """End a session: what its member acquired is available again; the last one takes the group's partitions along.

        Returns:
            Writes on their way.
        """
        self.sessions.remove(session)
        mine = [live for key, live in self._live.items() if key.group_id == session.group_id]
        released = [released for live in mine if not isinstance(released := live.release(session.member_id), int)]
        if not self.sessions.has_group(session.group_id):
            self._tasks.spawn(self._drop_group(session.group_id, released))
        return released

    async def _drop_group(self, group_id: str, released: Sequence[asyncio.Future[int]]) -> None:
        if released:
            await asyncio.wait(released)
        if self.sessions.has_group(group_id):
            return
        for key, live in list(self._live.items()):
            if key.group_id == group_id:
                live.fence(int(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    # -- requests -----------------------------------------------------------------------------------------------

    def acknowledge(
        self, key: ShareKey, member_id: str, batches: Sequence[Acknowledgement]
    ) -> asyncio.Future[int] | int:
        """Take a member's acknowledgements: the error code, or a future of it."""
        known = self._live.get(key)
        if known is not None and known.partition.is_leader:
            outcome = known.acknowledge(member_id, batches)
            if not isinstance(outcome, int) or not outcome:
                for batch in batches:
                    for first, last, kind in batch.parts():
                        self._meter.on_acknowledged(kind, last - first + 1)
            return outcome
        partition = self._replicas.get(key.topic_id, key.partition)
        if partition is None:
            return self._replicas.missing_error_by_id(key.topic_id, key.partition)
        # Nothing of it was acquired here.
        return int(ErrorCode.INVALID_RECORD_STATE if partition.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def fetch(
        self, session: ShareSession, places: Sequence[_Place], limits: ShareFetchLimits
    ) -> dict[_Place, SharedPartition]:
        """Acquire records of a session's partitions, waiting for them up to the limit.

        Returns:
            What each partition has; one that has nothing and no error is missing.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + limits.max_wait_ms / 1000
        event = asyncio.Event()
        wait = _Wait(event)
        watched: dict[_Place, LivePartition] = {}
        try:
            while True:
                event.clear()
                found, is_enough = await self._look(session, places, limits, watched, wait, event.set)
                is_over = loop.time() >= deadline_s
                if any(shared.error_code for shared in found.values()) or is_enough or is_over:
                    await self._acquire(session, places, limits, found)
                    if found or is_over:
                        return found
                try:
                    async with asyncio.timeout_at(deadline_s):
                        await event.wait()
                except TimeoutError:
                    pass
        finally:
            for live in watched.values():
                live.remove_waiter(event.set)
                live.partition.remove_waiter(wait)

    async def _look(
        self,
        session: ShareSession,
        places: Iterable[_Place],
        limits: ShareFetchLimits,
        watched: dict[_Place, LivePartition],
        wait: _Wait,
        wake: Callable[[], None],
    ) -> tuple[dict[_Place, SharedPartition], bool]:
        """Errors, and whether there is enough to acquire."""
        found: dict[_Place, SharedPartition] = {}
        size_bytes = 0
        for number, (topic_id, index) in enumerate(places, 1):
            if not number % _PARTITIONS_PER_TURN:
                await asyncio.sleep(0)
            # The error of one that ends while the fetch waits is the answer, not a reason to load it again.
            live = watched.get((topic_id, index)) or self.live(ShareKey(session.group_id, topic_id, index))
            code = live if isinstance(live, int) else live.error_code
            if code or isinstance(live, int):
                found[topic_id, index] = SharedPartition(error_code=code)
                continue
            if (topic_id, index) not in watched:
                watched[topic_id, index] = live
                live.add_waiter(wake)
                live.partition.add_waiter(wait)
            try:
                records = live.readable(limits.max_bytes)
            except KafkaError as error:
                found[topic_id, index] = SharedPartition(error_code=error.code)
            else:
                size_bytes += 0 if records is None else records.size_bytes
        return found, size_bytes >= max(1, limits.min_bytes)

    async def _acquire(
        self,
        session: ShareSession,
        places: Iterable[_Place],
        limits: ShareFetchLimits,
        found: dict[_Place, SharedPartition],
    ) -> None:
        remaining, remaining_bytes = limits.acquire.max_records, limits.max_bytes
        for number, place in enumerate(places, 1):
            if not number % _PARTITIONS_PER_TURN:
                await asyncio.sleep(0)
            if self.sessions.get(session.group_id, session.member_id) is not session:
                return  # the member is gone, and nobody would read what it acquires
            live = self._live.get(ShareKey(session.group_id, *place))
            if place in found or live is None or not live.is_loaded or remaining <= 0 or remaining_bytes <= 0:
                continue
            try:
                shared = live.acquire(
                    session.member_id, replace(limits.acquire, max_records=remaining), remaining_bytes
                )
            except KafkaError as error:
                found[place] = SharedPartition(error_code=error.code)
                continue
            if shared.records is not None:
                found[place] = SharedPartition(records=shared.records, acquired=shared.acquired)
                remaining -= sum(part.last - part.first + 1 for part in shared.acquired)
                remaining_bytes -= shared.records.size_bytes
        session.rotate()
