"""Kafka's offset checkpoint files: one text file per log directory, one line per partition.

``recovery-point-offset-checkpoint``, ``replication-offset-checkpoint`` (high watermarks),
``log-start-offset-checkpoint`` and ``cleaner-offset-checkpoint`` share the form: a version line ``0``, a count, then
``topic partition offset``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kraftlog.errors import LogError
from kraftlog.storage.atomic_file import replace_file
from kraftlog.types import TopicPartition

__all__ = [
    "CLEANER_OFFSET_CHECKPOINT",
    "LOG_START_OFFSET_CHECKPOINT",
    "RECOVERY_POINT_CHECKPOINT",
    "REPLICATION_OFFSET_CHECKPOINT",
    "format_offset_checkpoint",
    "parse_offset_checkpoint",
    "read_offset_checkpoint",
    "write_offset_checkpoint",
]

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"


def parse_offset_checkpoint(text: str, *, origin: str) -> dict[TopicPartition, int]:
    """Read the text of a checkpoint.

    Args:
        text: The file's content.
        origin: The file's path, for the error.

    Raises:
        LogError: Not a checkpoint of version 0, or its count and its lines differ; names the line.
    """
    lines = text.splitlines()

    def bad(line: int, reason: str) -> LogError:
        return LogError(f"{origin} line {line}: {reason}")

    version = lines[0] if lines else ""
    if version.strip() != "0":
        raise bad(1, f"checkpoint version {version!r} is not 0")
    try:
        count = int(lines[1])
    except (ValueError, IndexError):
        raise bad(2, f"{lines[1] if len(lines) > 1 else ''!r} is not a count of entries") from None
    entries = [(number, line) for number, line in enumerate(lines[2:], start=3) if line.strip()]
    if count != len(entries):
        raise bad(2, f"{count} entries promised, {len(entries)} found")
    offsets: dict[TopicPartition, int] = {}
    for number, entry in entries:
        try:
            topic, partition, offset = entry.split()
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise bad(number, f"{entry!r} is not a topic, a partition and an offset") from None
    return offsets


def format_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> str:
    """The text Kafka writes for these offsets."""
    lines = ["0", str(len(offsets))]
    lines += [f"{key.topic} {key.partition} {offset}" for key, offset in offsets.items()]
    return "\n".join(lines) + "\n"


def read_offset_checkpoint(path: Path) -> dict[TopicPartition, int]:
    """Read a checkpoint file; an absent or empty one has no entries.

    Raises:
        LogError: The file is not a checkpoint.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        msg = f"{path}: not an offset checkpoint: {error}"
        raise LogError(msg) from error
    return parse_offset_checkpoint(text, origin=str(path)) if text else {}


def write_offset_checkpoint(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace a checkpoint file, durably.

    Raises:
        OSError: The old file is still there.
    """
    replace_file(path, format_offset_checkpoint(offsets).encode("utf-8"))
