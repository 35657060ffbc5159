"""Partition directories written file by file, for tests that change them under a reader."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from kraftlog._kraftlog import encode_batch

BATCH_RECORDS = 10


def make_batch(base_offset: int, count: int = BATCH_RECORDS, *, epoch: int = 0, value: bytes = b"v" * 200) -> bytes:
    """Records with timestamp 1000 + offset and a key of seven bytes."""
    records = [(1000 + at, b"k%06d" % at, value, []) for at in range(base_offset, base_offset + count)]
    return encode_batch(records, base_offset=base_offset, partition_leader_epoch=epoch)


def write_segment(directory: Path, batches: Sequence[bytes], *, suffix: str = "") -> Path:
    """A segment with an index entry for each batch but the first."""
    directory.mkdir(parents=True, exist_ok=True)
    (base_offset,) = struct.unpack_from(">q", batches[0])
    path = directory / f"{base_offset:020}.log{suffix}"
    path.write_bytes(b"".join(batches))
    entries, position = [], 0
    for batch in batches:
        if position:
            entries.append(struct.pack(">II", struct.unpack_from(">q", batch)[0] - base_offset, position))
        position += len(batch)
    (directory / f"{base_offset:020}.index{suffix}").write_bytes(b"".join(entries))
    return path


def write_log(directory: Path, *, start: int = 0, end: int = 3000, segment: int = 1000, epoch: int = 0) -> Path:
    """Segments of ``segment`` records in batches of ten."""
    for base in range(start, end, segment):
        batches = [make_batch(at, epoch=epoch) for at in range(base, min(base + segment, end), BATCH_RECORDS)]
        write_segment(directory, batches)
    return directory


def write_checkpoint(log_dir: Path, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """One of the broker's files of offsets, such as ``replication-offset-checkpoint``."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    (log_dir / name).write_text("\n".join(["0", str(len(lines)), *lines, ""]))


def write_epochs(directory: Path, epochs: Mapping[int, int]) -> None:
    """``leader-epoch-checkpoint``: first offset by epoch."""
    lines = [f"{epoch} {start}" for epoch, start in epochs.items()]
    (directory / "leader-epoch-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))


def damage(path: Path, position: int) -> None:
    """Flips a bit."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
