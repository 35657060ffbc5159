"""Where a consumer is in a partition, and which leader it believes in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from kraftlog.types import TopicPartition

__all__ = [
    "FetchPosition",
    "LeaderAndEpoch",
    "OffsetAndEpoch",
    "OffsetAndMetadata",
    "OffsetAndTime",
    "PartitionInput",
    "ResetStrategy",
    "partition_of",
]

PartitionInput: TypeAlias = TopicPartition | tuple[str, int]

# latest, earliest, or milliseconds before now (``by_duration``, KIP-1106).
ResetStrategy: TypeAlias = Literal["earliest", "latest"] | int


@dataclass(frozen=True, slots=True)
class LeaderAndEpoch:
    """A partition's leader as metadata tells it.

    Attributes:
        leader_id: Node id; None when no leader is known.
        epoch: Leader epoch; None when the broker does not report a reliable one.
    """

    leader_id: int | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetAndEpoch:
    """An offset and the leader epoch of the record before it.

    Attributes:
        offset: The offset.
        leader_epoch: None when it is not known.
    """

    offset: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """What a group commits for a partition.

    Attributes:
        offset: The record that is read next, inclusive.
        leader_epoch: Epoch of the last record read; None when it is not known.
        metadata: Any text of the application.
    """

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class OffsetAndTime:
    """The answer to a question by timestamp.

    Attributes:
        offset: First offset whose record has the timestamp or a later one.
        timestamp: Of that record, in milliseconds.
        leader_epoch: Epoch of that record; None when the broker does not report it.
    """

    offset: int
    timestamp: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class FetchPosition:
    """Kafka's ``FetchPosition``.

    Attributes:
        offset: Of the record that is read next.
        offset_epoch: Epoch of the last record read; None when it is not known.
        leader: The leader that the position was validated against, or is to be.
    """

    offset: int
    offset_epoch: int | None = None
    leader: LeaderAndEpoch = LeaderAndEpoch()


def partition_of(partition: PartitionInput) -> TopicPartition:
    """A partition from a pair of topic and number.

    Raises:
        TypeError: It is something else.
    """
    given: object = partition
    if isinstance(given, TopicPartition):
        return given
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        return TopicPartition(*given)
    message = f"a partition is a pair such as ('orders', 0), not {given!r}"
    raise TypeError(message)
