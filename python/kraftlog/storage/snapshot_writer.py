"""Writes a checkpoint piece by piece, under a name that counts for nothing until everything is durable (KIP-630)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Self

from kraftlog import host
from kraftlog.errors import LogError
from kraftlog.storage.atomic_file import flush_directory
from kraftlog.storage.files import NewFile, create_file, replace
from kraftlog.storage.snapshot_file import (
    SNAPSHOT_RECORDS_PER_BATCH,
    encode_snapshot_footer,
    encode_snapshot_header,
    encode_snapshot_values,
)
from kraftlog.types import SnapshotId
from kraftlog.wire.messages.control_records import VotersRecord

__all__ = ["READ_ONLY", "SnapshotWriter", "new_part_path"]

READ_ONLY = 0o444


def new_part_path(directory: Path, snapshot_id: SnapshotId) -> Path:
    """A name for a checkpoint that is being written or fetched; no two are alike."""
    stem = snapshot_id.file_name.removesuffix(".checkpoint")
    return directory / f"{stem}-{host.random_bits(63)}.checkpoint.part"


class SnapshotWriter:
    """One checkpoint being made. Append values, then ``freeze``; ``close`` without that leaves nothing behind.

    Memory holds one batch at a time, however large the checkpoint gets. May be used on any thread, on one at a time.

    Args:
        directory: Of the log.
        snapshot_id: What it stands for.
        last_contained_log_timestamp: Append time of the last record it stands for, Unix ms.
        kraft_version: Level at its end.
        voters: Voter set at its end; None where none is known.
        now_ms: Unix time given to all batches.
        on_frozen: Called once with the id when the checkpoint is durable under its name, never otherwise.
        naming: Held while the checkpoint gets its name and ``on_frozen`` runs.

    Attributes:
        snapshot_id: As given.
        size_bytes: Written so far.

    Raises:
        ValueError: A voter set at kraft.version 0 (SNAP-08).
        OSError: The file cannot be created.
    """

    def __init__(
        self,
        directory: Path,
        snapshot_id: SnapshotId,
        *,
        last_contained_log_timestamp: int,
        kraft_version: int,
        voters: VotersRecord | None,
        now_ms: int,
        on_frozen: Callable[[SnapshotId], None] = lambda _: None,
        naming: AbstractContextManager[object] | None = None,
    ) -> None:
        header, record_count = encode_snapshot_header(
            last_contained_log_timestamp=last_contained_log_timestamp,
            kraft_version=kraft_version,
            voters=voters,
            epoch=snapshot_id.epoch,
            now_ms=now_ms,
        )
        self.snapshot_id = snapshot_id
        self._directory = directory
        self._now_ms = now_ms
        self._on_frozen = on_frozen
        self._naming = nullcontext() if naming is None else naming
        self._path = new_part_path(directory, snapshot_id)
        self._values: list[bytes] = []
        self._next_offset = record_count
        self.size_bytes = 0
        self._file: NewFile | None = create_file(self._path)
        try:
            self._write(header)
        except OSError:
            self.close()
            raise

    def append(self, values: Iterable[bytes]) -> None:
        """Add values of data records (framed metadata records).

        Raises:
            LogError: It is frozen or closed (SNAP-12).
            OSError: The disk failed.
        """
        self._require_open()
        for value in values:
            self._values.append(value)
            if len(self._values) == SNAPSHOT_RECORDS_PER_BATCH:
                self._write_batch()

    def freeze(self) -> int:
        """Write the footer, make everything durable, and give the checkpoint its name; return its size in bytes.

        Raises:
            LogError: It is frozen or closed already (SNAP-12).
            OSError: The disk failed: there is no checkpoint, and nobody was told of one (SNAP-15).
        """
        file = self._require_open()
        try:
            if self._values:
                self._write_batch()
            self._write(
                encode_snapshot_footer(base_offset=self._next_offset, epoch=self.snapshot_id.epoch, now_ms=self._now_ms)
            )
            self._path.chmod(READ_ONLY)
            file.sync()
            self._file = None
            file.close()
            with self._naming:
                replace(self._path, self._directory / self.snapshot_id.file_name)
                flush_directory(self._directory)
                self._on_frozen(self.snapshot_id)
        except OSError:
            self.close()
            self._path.unlink(missing_ok=True)
            raise
        return self.size_bytes

    def close(self) -> None:
        """Throw away what is not frozen; harmless afterwards."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
            self._path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        """Nothing; ``close`` follows in any case."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _require_open(self) -> NewFile:
        if self._file is None:
            msg = f"checkpoint {self.snapshot_id} is frozen or closed and takes nothing more"
            raise LogError(msg)
        return self._file

    def _write_batch(self) -> None:
        values, self._values = self._values, []
        self._write(
            encode_snapshot_values(
                values, base_offset=self._next_offset, epoch=self.snapshot_id.epoch, now_ms=self._now_ms
            )
        )
        self._next_offset += len(values)

    def _write(self, data: bytes) -> None:
        file = self._require_open()
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
        self.size_bytes += len(data)
