"""Settings of groups, and what a group remembers of a client."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ClientInfo", "GroupConfig"]


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """Who sends: ``client_host`` is what DescribeGroups shows, such as ``/127.0.0.1``."""

    client_id: str
    client_host: str
    api_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Kafka's broker settings for groups, under the names of its keys with underscores (milliseconds, bytes)."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2**31 - 1
    group_initial_rebalance_delay_ms: int = 3_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: int = 600_000
