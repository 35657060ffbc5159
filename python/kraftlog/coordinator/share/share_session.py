"""Share sessions: which partitions a member fetches for its share group, and which request comes next.

Source: ``org.apache.kafka.server.share.session.ShareSessionCache`` and ``kafka.server.share.SharePartitionManager``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import Uuid

__all__ = ["FINAL_EPOCH", "INITIAL_EPOCH", "ShareSession", "ShareSessions"]

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1
# Bounds of fetch sessions as well. Kafka has none but the number of sessions.
SESSION_PARTITIONS_MAX: Final = 50_000
ALL_PARTITIONS_MAX: Final = 500_000


class ShareSession:
    """One member's session on this broker.

    Attributes:
        epoch: What the member's next request has to say.
        partitions: In the order in which they are read.
        connection: Whose end ends the session.
    """

    __slots__ = ("connection", "epoch", "group_id", "member_id", "partitions")

    def __init__(self, group_id: str, member_id: str, connection: object) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.connection = connection
        self.epoch = 1
        self.partitions: dict[tuple[Uuid, int], None] = {}

    def add(self, topic_id: Uuid, index: int) -> None:
        """Read a partition from now on, after the others."""
        self.partitions.setdefault((topic_id, index))

    def forget(self, topic_id: Uuid, index: int) -> None:
        """Read a partition no more."""
        self.partitions.pop((topic_id, index), None)

    def rotate(self) -> None:
        """Read another partition first the next time."""
        if len(self.partitions) > 1:
            first = next(iter(self.partitions))
            del self.partitions[first]
            self.partitions[first] = None


class ShareSessions:
    """The sessions of one broker.

    Args:
        limit: group.share.max.share.sessions.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, group_id: str, member_id: str, connection: object) -> ShareSession:
        """Begin a session in place of the member's previous one.

        Raises:
            KafkaError: SHARE_SESSION_LIMIT_REACHED.
        """
        self._sessions.pop((group_id, member_id), None)
        if len(self._sessions) >= self._limit():
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[group_id, member_id] = ShareSession(group_id, member_id, connection)
        return session

    def continue_with(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """The session of a request that is not a member's first or last; its epoch moves on.

        Raises:
            KafkaError: SHARE_SESSION_NOT_FOUND or INVALID_SHARE_SESSION_EPOCH.
        """
        session = self.find(group_id, member_id)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        return session

    def find(self, group_id: str, member_id: str) -> ShareSession:
        """A member's session.

        Raises:
            KafkaError: SHARE_SESSION_NOT_FOUND.
        """
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def get(self, group_id: str, member_id: str) -> ShareSession | None:
        """A member's session, if it has one."""
        return self._sessions.get((group_id, member_id))

    def has_group(self, group_id: str) -> bool:
        """Whether a member of this group has a session."""
        return any(known == group_id for known, _ in self._sessions)

    def has_room(self, session: ShareSession, more: int) -> bool:
        """Whether a session may have so many partitions in addition to those that it has."""
        if not more:
            return True
        known = sum(len(other.partitions) for other in self._sessions.values())
        return len(session.partitions) + more <= SESSION_PARTITIONS_MAX and known + more <= ALL_PARTITIONS_MAX

    def remove(self, session: ShareSession) -> None:
        """End a session."""
        if self._sessions.get((session.group_id, session.member_id)) is session:
            del self._sessions[session.group_id, session.member_id]

    def of_connection(self, connection: object) -> list[ShareSession]:
        """Sessions that end with a connection."""
        return [session for session in self._sessions.values() if session.connection is connection]

    def clear(self) -> list[ShareSession]:
        """End all."""
        sessions = list(self._sessions.values())
        self._sessions.clear()
        return sessions
