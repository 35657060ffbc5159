"""The offset of a streaming query: how far each partition was read, and of which log that is true."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["NO_EPOCH", "PartitionKey", "Position", "StreamOffset"]

PartitionKey: TypeAlias = tuple[str, int]

NO_EPOCH = -1
_VERSION = 1
_OFFSET_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the log of one partition.

    Args:
        offset: The next offset to be read, so an exclusive end.
        epoch: Leader epoch of the last record before ``offset``, as KIP-320 compares it; -1 where none is known.
        topic_id: Text form of the topic's id, which tells a topic from a later one of the same name; None if unknown.
    """

    offset: int
    epoch: int = NO_EPOCH
    topic_id: str | None = None


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """Positions of all partitions, as Spark keeps them in the offset log of a checkpoint.

    Args:
        positions: By topic and partition.
        is_initial: It answers where a query begins. Spark asks that again until the first batch is committed, and the
            answer may be another each time.
        batch_start: Of the end of the first batch: the positions that it began at. They hold when the batch is run
            again, whatever is answered as the initial offset then.
    """

    positions: Mapping[PartitionKey, Position]
    is_initial: bool = False
    batch_start: Mapping[PartitionKey, Position] | None = None

    def to_json(self) -> dict[str, Any]:
        """What is given to Spark. The member ``offsets`` has the form of the option ``startingOffsets``."""
        document: dict[str, Any] = {"version": _VERSION, **_members(self.positions)}
        if self.is_initial:
            document["initial"] = True
        if self.batch_start is not None:
            document["from"] = _members(self.batch_start)
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> StreamOffset:
        """What Spark gives back.

        Raises:
            ValueError: It was written by a later version, or is no offset of this source; names what is wrong.
        """
        version = document.get("version")
        if version != _VERSION:
            message = (
                f"an offset of version {version!r} is in the checkpoint; this version of kraftlog knows {_VERSION}"
            )
            raise ValueError(message)
        start = document.get("from")
        return cls(
            _positions(document),
            is_initial=document.get("initial") is True,
            batch_start=None if start is None else _positions(start),
        )

    def starting_at(self, start: StreamOffset) -> Mapping[PartitionKey, Position]:
        """Where a batch begins that ends here, when Spark says that it begins at ``start``."""
        if start.is_initial and self.batch_start is not None:
            return self.batch_start
        return start.positions


def _members(positions: Mapping[PartitionKey, Position]) -> dict[str, Any]:
    offsets: dict[str, dict[str, int]] = {}
    epochs: dict[str, dict[str, int]] = {}
    topic_ids: dict[str, str] = {}
    for (topic, partition), position in sorted(positions.items()):
        offsets.setdefault(topic, {})[str(partition)] = position.offset
        if position.epoch != NO_EPOCH:
            epochs.setdefault(topic, {})[str(partition)] = position.epoch
        if position.topic_id is not None and topic_ids.setdefault(topic, position.topic_id) != position.topic_id:
            message = (
                f"topic {topic} has the ids {topic_ids[topic]} and {position.topic_id}:"
                " the directories hold partitions of two topics of that name"
            )
            raise ValueError(message)
    return {"offsets": offsets, "epochs": epochs, "topicIds": topic_ids}


def _positions(members: Mapping[str, Any]) -> dict[PartitionKey, Position]:
    topic_ids = members.get("topicIds", {})
    epochs = members.get("epochs", {})
    found: dict[PartitionKey, Position] = {}
    try:
        for topic, offsets in members["offsets"].items():
            topic_epochs = epochs.get(topic, {})
            topic_id = topic_ids.get(topic)
            for partition, offset in offsets.items():
                found[topic, int(partition)] = _position(offset, topic_epochs.get(partition, NO_EPOCH), topic_id)
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        message = f"no offset of the kraftlog source is in the checkpoint: {type(error).__name__}: {error}"
        raise ValueError(message) from error
    return found


def _position(offset: Any, epoch: Any, topic_id: Any) -> Position:
    if type(offset) is not int or not 0 <= offset <= _OFFSET_MAX:
        message = f"offset {offset!r}"
        raise ValueError(message)
    if type(epoch) is not int or epoch < NO_EPOCH:
        message = f"epoch {epoch!r}"
        raise ValueError(message)
    if topic_id is not None and not isinstance(topic_id, str):
        message = f"topic id {topic_id!r}"
        raise TypeError(message)
    return Position(offset, epoch, topic_id)
