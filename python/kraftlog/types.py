"""The vocabulary every room shares: plain values with the field's own names.

An ``offset`` counts records, a ``position`` counts bytes, an ``index`` counts list entries.
Names that begin with ``end_`` (and ``log_end_offset``, ``high_watermark``) are exclusive; names that
begin with ``last_`` are inclusive.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import NewType, Self

from kraftlog.vocabulary import CLUSTER_METADATA_TOPIC

__all__ = [
    "METADATA_LOG",
    "ElectionState",
    "Epoch",
    "EpochEndOffset",
    "LogTopic",
    "NodeId",
    "Offset",
    "ReplicaKey",
    "SnapshotId",
    "TopicPartition",
    "Uuid",
]

NodeId = NewType("NodeId", int)
Epoch = NewType("Epoch", int)
Offset = NewType("Offset", int)

_SNAPSHOT_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class Uuid(bytes):
    """A 16-byte id that prints as Kafka prints it: 22 characters of URL-safe base64."""

    __slots__ = ()

    ZERO: Uuid
    METADATA_TOPIC_ID: Uuid

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read Kafka's text form (``Uuid.fromString``).

        Raises:
            ValueError: The text is longer than 24 characters or does not decode to 16 bytes.
        """
        if len(text) > 24:
            msg = f"Input string with prefix `{text[:24]}` is too long to be decoded as a base64 UUID"
            raise ValueError(msg)
        digits = text.rstrip("=")
        try:
            if "+" in digits or "/" in digits:  # b64decode takes both alphabets, Kafka's decoder the URL-safe one only
                raise binascii.Error
            data = base64.b64decode(digits + "=" * (-len(digits) % 4), b"-_", validate=True)
        except binascii.Error as error:
            msg = f"Input string `{text}` is not URL-safe base64"
            raise ValueError(msg) from error
        if len(data) != 16:
            msg = (
                f"Input string `{text}` decoded as {len(data)} bytes, which is not equal to the expected 16 bytes "
                "of a base64-encoded UUID"
            )
            raise ValueError(msg)
        return cls(data)

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self).rstrip(b"=").decode("ascii")

    def __repr__(self) -> str:
        return f"Uuid({str(self)!r})"


Uuid.ZERO = Uuid(bytes(16))
Uuid.METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")


@dataclass(frozen=True, slots=True)
class LogTopic:
    """The topic whose partition 0 a replicated log is."""

    name: str
    topic_id: Uuid


METADATA_LOG = LogTopic(CLUSTER_METADATA_TOPIC, Uuid.METADATA_TOPIC_ID)


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition by topic name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class ReplicaKey:
    """A voter's identity (KIP-853): node id and the id of its log directory."""

    node_id: NodeId
    directory_id: Uuid = Uuid.ZERO

    def __str__(self) -> str:
        directory_id = "<undefined>" if self.directory_id == Uuid.ZERO else self.directory_id
        return f"ReplicaKey(id={self.node_id}, directoryId={directory_id})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionState:
    """What a replica has promised and must never forget: its epoch, that epoch's leader, its vote."""

    epoch: Epoch = Epoch(0)
    leader_id: NodeId | None = None
    voted_key: ReplicaKey | None = None

    def __post_init__(self) -> None:
        if self.epoch < 0:
            msg = f"Epoch {self.epoch} is negative"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class EpochEndOffset:
    """An epoch and its exclusive end in some log."""

    epoch: Epoch
    end_offset: Offset


@dataclass(frozen=True, slots=True, order=True)
class SnapshotId:
    """What a checkpoint stands for: every record below ``end_offset``, the last of them written in ``epoch``."""

    end_offset: Offset
    epoch: Epoch

    @property
    def file_name(self) -> str:
        """``00000000000000000045-0000000001.checkpoint``."""
        return f"{self.end_offset:020}-{self.epoch:010}.checkpoint"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Read a file name; None when it is not that of a finished checkpoint."""
        match = _SNAPSHOT_NAME.fullmatch(name)
        return None if match is None else cls(Offset(int(match[1])), Epoch(int(match[2])))

    def __str__(self) -> str:
        return f"{self.end_offset}-{self.epoch}"
