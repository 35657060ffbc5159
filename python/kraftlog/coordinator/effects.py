"""What a group shard asks its shell to do, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["AppendRecords", "ClientInfo", "Effect", "GroupConfig", "GroupRecord", "Respond"]


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """One record of ``__consumer_offsets``: coordinator-key and coordinator-value messages.

    ``value`` None is a tombstone; ``value_version`` is then without meaning.
    """

    key: Any
    value: Any | None
    value_version: int = 0


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer the request that came with ``token``."""

    token: object
    response: Any


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Append to the shard's partition; report with ``on_appended`` once committed, or failed."""

    append_id: int
    records: tuple[GroupRecord, ...]


Effect = Respond | AppendRecords


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """Who sends: ``client_host`` is what DescribeGroups shows, such as ``/127.0.0.1``."""

    client_id: str
    client_host: str
    api_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Kafka's broker settings for groups; names are theirs with underscores (milliseconds, bytes)."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2**31 - 1
    group_initial_rebalance_delay_ms: int = 3_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: int = 600_000
