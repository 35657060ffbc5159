"""Who of a group reads what: Kafka's range, roundrobin and cooperative-sticky assignors, and their wire format."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kraftlog.errors import RemoteProtocolError
from kraftlog.types import TopicPartition

__all__ = [
    "ASSIGNORS",
    "MemberSubscription",
    "cooperative_sticky",
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "encode_subscription",
    "range_assignor",
    "round_robin",
]

Assignment = dict[str, list[TopicPartition]]


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What a member asks for.

    Attributes:
        topics: Names.
        owned: Partitions that it has now; for sticky assignors.
        generation: In which it got them, -1 when it does not say.
        instance_id: Name of a static member.
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    instance_id: str | None = field(default=None)


# ConsumerProtocolSubscription and ConsumerProtocolAssignment, whose versions only add fields.


def encode_subscription(subscription: MemberSubscription) -> bytes:
    """The metadata of a member in version 2 of the protocol (KIP-429, KIP-792)."""
    parts = [struct.pack(">hi", 2, len(subscription.topics))]
    parts.extend(_text(topic) for topic in sorted(subscription.topics))
    parts.append(struct.pack(">i", -1))  # no user data
    parts.append(_partitions(subscription.owned))
    parts.append(struct.pack(">i", subscription.generation))
    return b"".join(parts)


def encode_assignment(partitions: Sequence[TopicPartition]) -> bytes:
    """The assignment of a member."""
    return struct.pack(">h", 2) + _partitions(partitions) + struct.pack(">i", -1)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _partitions(partitions: Sequence[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for name in partitions:
        by_topic.setdefault(name.topic, []).append(name.partition)
    parts = [struct.pack(">i", len(by_topic))]
    for topic, numbers in sorted(by_topic.items()):
        parts.append(_text(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *sorted(numbers)))
    return b"".join(parts)


class _Reader:
    """Reads big-endian fields; no count is believed before the bytes for it are there."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self, kind: str) -> int:
        size = struct.calcsize(kind)
        return int(struct.unpack(">" + kind, self.take(size))[0])

    def take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise RemoteProtocolError(f"{size} bytes at byte {self._position} of {len(self._data)}")
        found = self._data[self._position : end]
        self._position = end
        return found

    def count(self, size_min: int) -> int:
        count = self.number("i")
        if count < 0 or count * size_min > len(self._data) - self._position:
            raise RemoteProtocolError(f"{count} items at byte {self._position} of {len(self._data)}")
        return count

    def text(self) -> str:
        return self.take(self.number("h")).decode("utf-8", "replace")

    def skip_bytes(self) -> None:
        size = self.number("i")
        if size > 0:
            self.take(size)

    def partitions(self) -> tuple[TopicPartition, ...]:
        found = []
        for _ in range(self.count(6)):
            topic = self.text()
            found += [TopicPartition(topic, self.number("i")) for _ in range(self.count(4))]
        return tuple(found)


def decode_subscription(data: bytes, instance_id: str | None = None) -> MemberSubscription:
    """Read the metadata of a member, of any version.

    Raises:
        RemoteProtocolError: The bytes are no subscription.
    """
    reader = _Reader(data)
    version = reader.number("h")
    topics = tuple(reader.text() for _ in range(reader.count(2)))
    reader.skip_bytes()
    owned = reader.partitions() if version >= 1 else ()
    generation = reader.number("i") if version >= 2 else -1
    return MemberSubscription(topics, owned, generation, instance_id)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Read an assignment; no bytes are no partitions.

    Raises:
        RemoteProtocolError: The bytes are no assignment.
    """
    if not data:
        return ()
    reader = _Reader(data)
    reader.number("h")
    return reader.partitions()


def _member_order(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Static members by instance id first, then the others by member id, as Kafka's ``MemberInfo`` compares them."""
    return sorted(members, key=lambda name: (members[name].instance_id is None, members[name].instance_id or name))


def range_assignor(members: Mapping[str, MemberSubscription], counts: Mapping[str, int]) -> Assignment:
    """``RangeAssignor``: of each topic, consecutive partitions to each member in the order of the members."""
    assignment: Assignment = {name: [] for name in members}
    for topic in sorted({topic for member in members.values() for topic in member.topics}):
        interested = [name for name in _member_order(members) if topic in members[name].topics]
        each, extra = divmod(counts.get(topic, 0), len(interested))
        first = 0
        for index, name in enumerate(interested):
            size = each + (index < extra)
            assignment[name] += [TopicPartition(topic, number) for number in range(first, first + size)]
            first += size
    return assignment


def round_robin(members: Mapping[str, MemberSubscription], counts: Mapping[str, int]) -> Assignment:
    """``RoundRobinAssignor``: all partitions in turn to the members that want their topic."""
    assignment: Assignment = {name: [] for name in members}
    order = _member_order(members)
    turn = 0
    for topic in sorted({topic for member in members.values() for topic in member.topics}):
        for number in range(counts.get(topic, 0)):
            while topic not in members[order[turn % len(order)]].topics:
                turn += 1
            assignment[order[turn % len(order)]].append(TopicPartition(topic, number))
            turn += 1
    return assignment


def cooperative_sticky(members: Mapping[str, MemberSubscription], counts: Mapping[str, int]) -> Assignment:
    """A balanced assignment that moves few partitions; one that moves is given to nobody until its owner gave it up.

    Of the properties of ``CooperativeStickyAssignor`` it has these: every partition has one member, the numbers of
    partitions of members with equal subscriptions differ by one at most, and owners of the newest generation keep
    what the balance allows (KIP-429).
    """
    wanted = {
        TopicPartition(topic, number)
        for member in members.values()
        for topic in member.topics
        for number in range(counts.get(topic, 0))
    }
    owner: dict[TopicPartition, str] = {}
    for name in sorted(members, key=lambda name: members[name].generation):
        for partition in members[name].owned:
            if partition in wanted and partition.topic in members[name].topics:
                # A member of an older generation was replaced; two of the same generation cannot both be right.
                owner[partition] = name
    target: Assignment = {name: [] for name in members}
    for partition in sorted(wanted, key=_partition_order):
        if partition in owner:
            target[owner[partition]].append(partition)
    for partition in sorted(wanted - owner.keys(), key=_partition_order):
        able = [name for name in _member_order(members) if partition.topic in members[name].topics]
        target[min(able, key=lambda name: len(target[name]))].append(partition)
    _balance(members, target)
    claimed = {partition: name for name in members for partition in members[name].owned if partition in wanted}
    return {
        name: [partition for partition in partitions if claimed.get(partition, name) == name]
        for name, partitions in target.items()
    }


def _partition_order(partition: TopicPartition) -> tuple[str, int]:
    return partition.topic, partition.partition


def _balance(members: Mapping[str, MemberSubscription], target: Assignment) -> None:
    """Move partitions from the fullest members to emptier ones that want them, until none is two fuller."""
    is_moved = True
    while is_moved:
        is_moved = False
        for giver in sorted(target, key=lambda name: -len(target[name])):
            for taker in sorted(target, key=lambda name: len(target[name])):
                if len(target[giver]) - len(target[taker]) < 2:
                    break
                movable = [partition for partition in target[giver] if partition.topic in members[taker].topics]
                if movable:
                    target[giver].remove(movable[-1])
                    target[taker].append(movable[-1])
                    is_moved = True
                    break
            if is_moved:
                break


ASSIGNORS: Mapping[str, Callable[[Mapping[str, MemberSubscription], Mapping[str, int]], Assignment]] = {
    "range": range_assignor,
    "roundrobin": round_robin,
    "cooperative-sticky": cooperative_sticky,
}
