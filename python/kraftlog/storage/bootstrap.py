"""``bootstrap.checkpoint``: the records a new cluster's first controller writes into its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kraftlog.errors import LogError
from kraftlog.features import (
    KRAFT_VERSION,
    LATEST_PRODUCTION,
    METADATA_VERSION,
    MetadataVersion,
    default_levels,
    metadata_version,
)
from kraftlog.storage.atomic_file import replace_file
from kraftlog.storage.snapshot_file import Snapshot, encode_snapshot, read_snapshot
from kraftlog.types import Epoch
from kraftlog.wire.messages.metadata_records import FeatureLevelRecord
from kraftlog.wire.records import decode_metadata_record, encode_metadata_record
from kraftlog.wire.struct import Message

__all__ = ["BOOTSTRAP_NAME", "BootstrapMetadata", "read_bootstrap", "write_bootstrap"]

BOOTSTRAP_NAME = "bootstrap.checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapMetadata:
    """Initial metadata records and where they came from."""

    records: Sequence[Message]
    source: str

    @property
    def metadata_version(self) -> MetadataVersion:
        """The level of the records' metadata.version.

        Raises:
            LogError: There is no such record, or its level is unknown.
        """
        for record in self.records:
            if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
                try:
                    return metadata_version(record.feature_level)
                except ValueError as error:
                    raise LogError(str(error)) from error
        msg = f"No FeatureLevelRecord for {METADATA_VERSION} was found in the bootstrap metadata from {self.source}"
        raise LogError(msg)

    @classmethod
    def from_levels(cls, levels: Mapping[str, int], *, source: str, extra: Sequence[Message] = ()) -> BootstrapMetadata:
        """Records that set these levels: metadata.version first, then by name; no zeros, no kraft.version."""
        records: list[Message] = [FeatureLevelRecord(name=METADATA_VERSION, feature_level=levels[METADATA_VERSION])]
        records += [
            FeatureLevelRecord(name=name, feature_level=level)
            for name, level in sorted(levels.items())
            if level > 0 and name not in (METADATA_VERSION, KRAFT_VERSION)
        ]
        return cls(records=(*records, *extra), source=source)


def read_bootstrap(directory: Path) -> BootstrapMetadata:
    """Read ``bootstrap.checkpoint`` of a metadata directory; the newest production levels when there is none."""
    path = directory / BOOTSTRAP_NAME
    try:
        snapshot = read_snapshot(path)
    except FileNotFoundError:
        return BootstrapMetadata.from_levels(default_levels(LATEST_PRODUCTION), source="the default bootstrap")
    records = [decode_metadata_record(value)[0] for value in snapshot.values]
    return BootstrapMetadata(records=records, source=f"the binary bootstrap metadata file: {path}")


def write_bootstrap(directory: Path, bootstrap: BootstrapMetadata, *, now_ms: int) -> None:
    """Write ``bootstrap.checkpoint`` durably.

    Raises:
        OSError: It could not be made durable.
    """
    values = [encode_metadata_record(record, 0) for record in bootstrap.records]
    replace_file(directory / BOOTSTRAP_NAME, encode_snapshot(Snapshot(values=values), epoch=Epoch(0), now_ms=now_ms))
