"""Settings of groups, and what a group remembers of a client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = [
    "OWNED_TOPICS_MAX",
    "PROTOCOLS_MAX",
    "SUBSCRIBED_NAMES_MAX",
    "ClientInfo",
    "GroupConfig",
    "MigrationPolicy",
]

# A shard handles a request as one event, so that what it names is bounded. Kafka has no such bounds.
PROTOCOLS_MAX: Final = 1_000
SUBSCRIBED_NAMES_MAX: Final = 10_000
OWNED_TOPICS_MAX: Final = 10_000


class MigrationPolicy(Enum):
    """``group.consumer.migration.policy``: which protocol a group with members may change to."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        """Whether a classic group may become a consumer group."""
        return self in {MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL}

    @property
    def allows_downgrade(self) -> bool:
        """Whether a consumer group may become a classic group."""
        return self in {MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL}


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """Who sends: ``client_host`` is what DescribeGroups shows, such as ``/127.0.0.1``.

    Attributes:
        may_describe: Whether the sender may describe the topic of that name; None if everybody may.
    """

    client_id: str
    client_host: str
    api_version: int
    may_describe: Callable[[str], bool] | None = None


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
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_assignment_interval_ms: int = 1_000
    group_consumer_min_assignment_interval_ms: int = 0
    group_consumer_max_assignment_interval_ms: int = 15_000
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    group_share_max_size: int = 200
    group_share_session_timeout_ms: int = 45_000
    group_share_min_session_timeout_ms: int = 45_000
    group_share_max_session_timeout_ms: int = 60_000
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_min_heartbeat_interval_ms: int = 5_000
    group_share_max_heartbeat_interval_ms: int = 15_000
    group_share_assignment_interval_ms: int = 1_000
    group_share_min_assignment_interval_ms: int = 0
    group_share_max_assignment_interval_ms: int = 15_000

    def consumer_setting(self, name: str, group_settings: Mapping[str, str]) -> int:
        """A setting of one consumer group (ms): its own, within the broker's bounds, or else the broker's.

        Args:
            name: ``session_timeout``, ``heartbeat_interval`` or ``assignment_interval``.
            group_settings: Of the group's configuration resource, by key.
        """
        return self._setting("consumer", name, group_settings)

    def share_setting(self, name: str, group_settings: Mapping[str, str]) -> int:
        """As ``consumer_setting``, of a share group."""
        return self._setting("share", name, group_settings)

    def _setting(self, kind: str, name: str, group_settings: Mapping[str, str]) -> int:
        own = group_settings.get(f"{kind}.{name.replace('_', '.')}.ms")
        if own is None:
            return int(getattr(self, f"group_{kind}_{name}_ms"))
        low = int(getattr(self, f"group_{kind}_min_{name}_ms"))
        return min(max(int(own), low), int(getattr(self, f"group_{kind}_max_{name}_ms")))
