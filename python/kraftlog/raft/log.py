"""What the core asks of a log; ``storage.metadata_log.MetadataLog`` fits by shape."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Log"]


class Log(Protocol):
    """Facts about the log of one replica. The core only reads them; writing is done through effects."""

    @property
    def log_end_offset(self) -> int:
        """Offset the next record gets (exclusive end)."""

    @property
    def last_fetched_epoch(self) -> int:
        """Epoch of the last record, or of the snapshot the log starts at; 0 for an empty replica."""
