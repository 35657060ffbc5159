"""Fetch sessions (KIP-227): what a client asked for is remembered, so requests and responses carry changes only."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kraftlog.errors import ErrorCode
from kraftlog.types import Uuid

__all__ = ["FINAL_EPOCH", "INITIAL_EPOCH", "FetchSession", "FetchSessionCache", "SessionPartition"]

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = 2**31 - 1

PartitionKey = tuple[str | Uuid, int]


# Partitions of one session, and of all of them; a fetch with more goes without a session. Each takes some 400 bytes.
SESSION_PARTITIONS_MAX: Final = 50_000
ALL_SESSIONS_PARTITIONS_MAX: Final = 500_000
# Sessions up to this size are bounded by their number alone.
_SMALL_SESSION_PARTITIONS: Final = 1_000


@dataclass(slots=True)
class SessionPartition:
    """One partition of a fetch, with what the client was told last."""

    topic: str
    topic_id: Uuid
    index: int
    max_bytes: int
    fetch_offset: int
    current_leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int
    told_high_watermark: int = -1
    told_log_start_offset: int = -1

    @property
    def key(self) -> PartitionKey:
        """Topic (name or id, whichever the version uses) and index."""
        return (self.topic or self.topic_id, self.index)

    def update(self, wanted: SessionPartition) -> None:
        """Take over what a later request says of this partition.

        The client may have dropped an answer to an earlier leader epoch. After a change of epoch, the next answer names
        the partition even if nothing else has changed.
        """
        if wanted.current_leader_epoch != self.current_leader_epoch:
            self.told_high_watermark = self.told_log_start_offset = -1
        self.max_bytes = wanted.max_bytes
        self.fetch_offset = wanted.fetch_offset
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.log_start_offset = wanted.log_start_offset


class FetchSession:
    """The partitions one client follows, in the order they are served.

    Attributes:
        epoch: The epoch the next incremental request must carry.
    """

    __slots__ = ("created_ms", "epoch", "is_privileged", "last_used_ms", "partitions", "session_id", "uses_topic_ids")

    def __init__(self, session_id: int, *, is_privileged: bool, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.is_privileged = is_privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.partitions: dict[PartitionKey, SessionPartition] = {}

    def update(self, wanted: Iterable[SessionPartition], forgotten: Iterable[PartitionKey]) -> None:
        """Apply an incremental request."""
        for partition in wanted:
            known = self.partitions.get(partition.key)
            if known is None:
                self.partitions[partition.key] = partition
            else:
                known.update(partition)
        for key in forgotten:
            self.partitions.pop(key, None)

    def move_to_end(self, key: PartitionKey) -> None:
        """Serve this partition last next time, so that a busy one does not starve the others."""
        self.partitions[key] = self.partitions.pop(key)

    def __iter__(self) -> Iterator[SessionPartition]:
        return iter(self.partitions.values())


class FetchSessionCache:
    """All sessions of a node, bounded.

    Args:
        max_slots: ``max.incremental.fetch.session.cache.slots``; 0 turns sessions off.
        eviction_ms: A session unused this long may be evicted, and so
            may a younger one for a privileged (follower's) or larger one.
        rng: Where session ids come from.
        id_step: 2 makes all ids odd: the data path's own sessions have even ones, so that an incremental fetch finds
            its owner by the id.
    """

    def __init__(self, max_slots: int, eviction_ms: int, rng: random.Random, *, id_step: int = 1) -> None:
        self._max_slots = max_slots
        self._eviction_ms = eviction_ms
        self._rng = rng
        self._id_step = id_step
        # Ordered by last use, the oldest first.
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, session_id: int, epoch: int, *, uses_topic_ids: bool, now_ms: int) -> FetchSession | int:
        """The session an incremental request continues, or the error code it gets; the epoch moves on."""
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        session.epoch = next_epoch(epoch)
        session.last_used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def create(
        self, partitions: Iterable[SessionPartition], *, is_privileged: bool, uses_topic_ids: bool, now_ms: int
    ) -> FetchSession | None:
        """Open a session, or None when there is no slot for it: the fetch then goes without."""
        wanted = list(partitions)
        if not wanted or not self.may_hold(0, len(wanted)):
            return None
        if not self._make_room(len(wanted), is_privileged=is_privileged, now_ms=now_ms):
            return None
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = FetchSession(session_id, is_privileged=is_privileged, uses_topic_ids=uses_topic_ids, now_ms=now_ms)
        session.update(wanted, ())
        self._sessions[session_id] = session
        return session

    def _new_id(self) -> int:
        return self._rng.randrange(1, _MAX_EPOCH, self._id_step)

    def may_grow(self, session: FetchSession, wanted: Sequence[SessionPartition]) -> bool:
        """Whether a session may have the partitions of a later request, too."""
        known_count = len(session.partitions)
        if known_count + len(wanted) <= _SMALL_SESSION_PARTITIONS:
            return True
        return self.may_hold(known_count, sum(partition.key not in session.partitions for partition in wanted))

    def may_hold(self, known_count: int, more_count: int) -> bool:
        """Whether a session of so many partitions may have so many more, as far as memory goes.

        Kafka bounds the number of sessions only.
        """
        count = known_count + more_count
        if count <= _SMALL_SESSION_PARTITIONS:
            return True
        others = sum(len(session.partitions) for session in self._sessions.values()) - known_count
        return count <= SESSION_PARTITIONS_MAX and others + count <= ALL_SESSIONS_PARTITIONS_MAX

    def remove(self, session_id: int) -> None:
        """Close a session; an unknown one is nothing to worry about."""
        self._sessions.pop(session_id, None)

    def _make_room(self, partition_count: int, *, is_privileged: bool, now_ms: int) -> bool:
        if len(self._sessions) < self._max_slots:
            return True
        if self._max_slots <= 0:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > self._eviction_ms:
            self.remove(oldest.session_id)
            return True
        # Followers before consumers, then large before small; only sessions that had their time may lose.
        rank = (is_privileged, partition_count)
        candidates = [session for session in self._sessions.values() if now_ms - session.created_ms > self._eviction_ms]
        smallest = min(candidates, key=lambda one: (one.is_privileged, len(one.partitions)), default=None)
        if smallest is not None and (smallest.is_privileged, len(smallest.partitions)) < rank:
            self.remove(smallest.session_id)
            return True
        return False


def next_epoch(epoch: int) -> int:
    """The epoch after ``epoch``; -1 and 0 have other meanings and are skipped."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _MAX_EPOCH else epoch + 1
