"""Names and checkpoint files in a log directory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias, TypeVar

from kraftlog.errors import LogError
from kraftlog.reading.facts import LeaderEpoch
from kraftlog.storage.checkpoints import read_offset_checkpoint
from kraftlog.types import TopicPartition

__all__ = [
    "CLEANER_OFFSET_CHECKPOINT",
    "MARKED_DIRECTORY",
    "StrPath",
    "check_directory",
    "directory_bytes",
    "entries_text",
    "parse_leader_epochs",
    "partition_of",
    "read_checkpoint",
    "read_leader_epochs",
]

StrPath: TypeAlias = str | os.PathLike[str]

CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
MARKED_DIRECTORY = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>[0-9]+)\.[0-9a-f]{32}-(?P<mark>delete|future|stray)\Z"
)

T = TypeVar("T")

_OFFSET_MAX = 2**63 - 1
_SHOWN_MAX = 3
_PARTITION_MAX = 2**31 - 1


def partition_of(directory_name: str) -> tuple[str, int] | None:
    """Topic and partition in the name of a directory; None for what Kafka deletes, moves or found astray."""
    topic, dash, partition = directory_name.rpartition("-")
    if not (topic and dash and partition.isascii() and partition.isdigit() and len(partition) <= 10):
        return None
    number = int(partition)
    return (topic, number) if number <= _PARTITION_MAX else None


def check_directory(path: Path) -> None:
    """Raise unless a path is a directory, with what it is instead.

    Raises:
        FileNotFoundError: There is nothing.
        NotADirectoryError: It is a file; for a segment the text names the directory to give.
    """
    if path.is_dir():
        return
    if not path.exists():
        message = f"no directory {path}"
        raise FileNotFoundError(message)
    message = f"{path} is a file; give a log directory or the directory of a partition"
    if path.suffix == ".log" and partition_of(path.resolve().parent.name) is not None:
        message += f", such as {path.parent}, or read the file by kraftlog dump-log"
    raise NotADirectoryError(message)


def entries_text(directory: Path) -> str:
    """What a directory has in it, for an error: how many entries, and the first few by name."""
    names = sorted(entry.name for entry in directory.iterdir())
    if not names:
        return "it is empty"
    shown = ", ".join(names[:_SHOWN_MAX])
    if len(names) > _SHOWN_MAX:
        return f"it has {len(names)} entries, such as {shown}"
    return f"it has {shown}"


def read_checkpoint(path: Path) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint file; none without the file.

    Raises:
        LogError: The file is not a checkpoint, or an offset is none.
    """
    offsets = _read(path, read_offset_checkpoint)
    for key, offset in offsets.items():
        if not 0 <= offset <= _OFFSET_MAX:
            message = f"{path}: offset {offset} of {key}"
            raise LogError(message)
    return offsets


def read_leader_epochs(directory: Path) -> tuple[LeaderEpoch, ...]:
    """Each leader epoch of a partition with its first offset; empty without a checkpoint of them.

    Raises:
        LogError: The file is not such a checkpoint.
    """
    path = directory / LEADER_EPOCH_CHECKPOINT
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return ()
    return parse_leader_epochs(data, origin=str(path))


def parse_leader_epochs(data: bytes, *, origin: str) -> tuple[LeaderEpoch, ...]:
    """The epochs in the bytes of a checkpoint of them, which ``origin`` names in errors.

    Raises:
        LogError: They are not such a checkpoint.
    """
    try:
        lines = data.decode("utf-8").split("\n")
        version, count, *rows = [line for line in lines if line] or ["0", "0"]
        epochs = tuple(LeaderEpoch(int(epoch), int(start_offset)) for epoch, start_offset in map(str.split, rows))
        if int(version) != 0 or int(count) != len(epochs):
            message = f"version {version}, {count} entries promised, {len(epochs)} found"
            raise ValueError(message)
    except ValueError as error:
        message = f"{origin}: not a checkpoint: {error}"
        raise LogError(message) from error
    return epochs


def directory_bytes(directory: Path) -> int:
    """Bytes of the ``.log`` files in a directory, which is what Kafka calls the size of a partition."""
    total = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(".log"):
                try:
                    total += entry.stat().st_size
                except FileNotFoundError:  # deleted since it was listed
                    continue
    return total


def _read(path: Path, read: Callable[[Path], T]) -> T:
    try:
        return read(path)
    except ValueError as error:  # text that is not UTF-8, numbers that are none
        message = f"{path}: not a checkpoint: {error}"
        raise LogError(message) from error
