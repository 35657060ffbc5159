"""The state of one consumer group (KIP-848), as its records say.

Source: ``org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroup``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from kraftlog.coordinator.group.assignors import Assignment
from kraftlog.coordinator.group.assignors.java_order import string_order
from kraftlog.coordinator.group.consumer_member import STATIC_LEAVE_EPOCH, ConsumerMember, PartitionEpochs
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import Uuid

__all__ = ["ConsumerGroup", "ConsumerGroupState", "ResolvedRegex"]

_EPOCH_COMMIT_VERSION = 9  # of OffsetCommit


class ConsumerGroupState(Enum):
    """Names as ConsumerGroupDescribe and ListGroups print them."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """Topics that matched a regular expression; ``version`` is the offset of the metadata, the time in ms."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup:
    """Members, epochs, target assignment and owners of one group.

    Attributes:
        epoch: Rises with every change of membership, subscriptions or topics; a new group begins with 1.
        metadata_hash: Over the subscribed topics when ``epoch`` rose last.
        target_epoch: The group epoch for which ``targets`` was computed.
        target_timestamp_ms: When that was.
        is_stored: Whether a record with the epoch exists.
        checked_version: Version of the topics at the last comparison of ``metadata_hash``.
    """

    __slots__ = (
        "_owners",
        "_regex_counts",
        "_topic_counts",
        "checked_version",
        "epoch",
        "group_id",
        "is_stored",
        "members",
        "metadata_hash",
        "regexes",
        "static_members",
        "target_epoch",
        "target_timestamp_ms",
        "targets",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 1
        self.metadata_hash = 0
        self.target_epoch = 0
        self.target_timestamp_ms = 0
        self.is_stored = False
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.targets: dict[str, Assignment] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.checked_version = -1
        self._topic_counts: Counter[str] = Counter()
        self._regex_counts: Counter[str] = Counter()
        self._owners: dict[tuple[Uuid, int], tuple[int, str]] = {}

    # -- members ------------------------------------------------------------------------------------------------

    def put(self, member: ConsumerMember) -> None:
        """Add a member, or take in its new state."""
        self._forget(self.members.get(member.member_id))
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._topic_counts.update(member.topics)
        if member.regex:
            self._regex_counts[member.regex] += 1
        for topic_id, partition in _partitions(member.assigned, member.pending_revocation):
            # Compaction may leave a new owner's record before the last one of the old owner: the newer epoch counts.
            known = self._owners.get((topic_id, partition))
            if known is None or known[0] <= member.epoch or known[1] not in self.members:
                self._owners[topic_id, partition] = (member.epoch, member.member_id)

    def remove(self, member_id: str) -> None:
        """Take out a member, if it is there."""
        member = self.members.pop(member_id, None)
        self._forget(member)
        if member is not None and self.static_members.get(member.instance_id or "") == member_id:
            del self.static_members[member.instance_id or ""]

    def _forget(self, member: ConsumerMember | None) -> None:
        if member is None:
            return
        _subtract(self._topic_counts, member.topics)
        if member.regex:
            _subtract(self._regex_counts, (member.regex,))
        for key in _partitions(member.assigned, member.pending_revocation):
            if self._owners.get(key, (0, ""))[1] == member.member_id:
                del self._owners[key]

    def member(self, member_id: str) -> ConsumerMember:
        """A member by id.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID.
        """
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member with an instance id."""
        member_id = self.static_members.get(instance_id or "")
        return None if member_id is None else self.members[member_id]

    def is_owned(self, topic_id: Uuid, partition: int) -> bool:
        """Whether a member has a partition, assigned or still to be given up."""
        return (topic_id, partition) in self._owners

    @property
    def classic_count(self) -> int:
        """Members that use the classic protocol."""
        return sum(member.classic is not None for member in self.members.values())

    # -- subscriptions ------------------------------------------------------------------------------------------

    @property
    def subscribed_regexes(self) -> Mapping[str, int]:
        """Regular expressions with the number of their subscribers."""
        return self._regex_counts

    def subscribed_names(self) -> frozenset[str]:
        """Every topic that a member names or whose name matches a member's regular expression."""
        names = set(self._topic_counts)
        for regex in self._regex_counts:
            resolved = self.regexes.get(regex)
            names |= frozenset() if resolved is None else resolved.topics
        return frozenset(names)

    def names_of(self, member: ConsumerMember) -> frozenset[str]:
        """What one member subscribes to; a regular expression that is not resolved yet matches nothing."""
        resolved = self.regexes.get(member.regex)
        return frozenset(member.topics) | (frozenset() if resolved is None else resolved.topics)

    def is_homogeneous(self) -> bool:
        """Whether all members name the same topics, or all give the same regular expression and no names."""
        count = len(self.members)
        if self._regex_counts:
            return not self._topic_counts and list(self._regex_counts.values()) == [count]
        return all(subscribers == count for subscribers in self._topic_counts.values())

    def preferred_assignor(self) -> str | None:
        """The server-side assignor that most members name."""
        counts = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        best: str | None = None
        for name in string_order(counts):
            if best is None or counts[name] > counts[best]:
                best = name
        return best

    @property
    def last_refresh_ms(self) -> int | None:
        """When a regular expression was resolved last."""
        return max((resolved.timestamp_ms for resolved in self.regexes.values()), default=None)

    # -- state --------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        """Follows from members and epochs."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def commit_error(
        self,
        member_id: str,
        epoch: int,
        *,
        api_version: int,
        is_transactional: bool = False,
        partitions: Iterable[tuple[Uuid, int]] = (),
    ) -> int:
        """Whether a commit with this member id and epoch is accepted; a code is for all of its partitions.

        An older epoch will do if the member has had every partition since then (KIP-1251).
        """
        if epoch < 0 and (not self.members or (is_transactional and not member_id)):
            return int(ErrorCode.NONE)
        member = self.members.get(member_id)
        if member is None:
            return int(ErrorCode.UNKNOWN_MEMBER_ID)
        if not is_transactional and member.classic is None and api_version < _EPOCH_COMMIT_VERSION:
            return int(ErrorCode.UNSUPPORTED_VERSION)
        if epoch == member.epoch:
            return int(ErrorCode.NONE)
        if epoch < member.epoch and all(
            (since := member.assignment_epoch(topic_id, partition)) is not None and since <= epoch
            for topic_id, partition in partitions
        ):
            return int(ErrorCode.NONE)
        return int(ErrorCode.ILLEGAL_GENERATION if is_transactional or member.classic else ErrorCode.STALE_MEMBER_EPOCH)

    def fetch_error(self, member_id: str | None, epoch: int) -> int:
        """Whether a member may read offsets; an administrator gives no member id and a negative epoch."""
        if member_id is None and epoch < 0:
            return int(ErrorCode.NONE)
        member = self.members.get(member_id or "")
        if member is None:
            return int(ErrorCode.UNKNOWN_MEMBER_ID)
        if epoch == member.epoch:
            return int(ErrorCode.NONE)
        return int(ErrorCode.ILLEGAL_GENERATION if member.classic else ErrorCode.STALE_MEMBER_EPOCH)

    def is_away(self, member: ConsumerMember) -> bool:
        """Whether a static member has left for a while."""
        return member.epoch == STATIC_LEAVE_EPOCH


def _partitions(*parts: PartitionEpochs) -> Iterable[tuple[Uuid, int]]:
    return ((topic_id, partition) for part in parts for topic_id, epochs in part.items() for partition in epochs)


def _subtract(counts: Counter[str], names: Iterable[str]) -> None:
    for name in names:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]
