"""Settings of share groups: a group's configuration resource within the broker's bounds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kraftlog.coordinator.share.share_partition import SharePartitionSettings

__all__ = ["ShareBrokerSettings", "duration_ms"]

_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(T(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+)(?:[.,](\d{0,9}))?S)?)?", re.IGNORECASE
)
_BY_DURATION = "by_duration:"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareBrokerSettings:
    """The broker's settings for share groups, under the names of its keys (``group.share.*``) with underscores.

    Attributes:
        max_share_sessions: Most share sessions of this broker.
    """

    delivery_count_limit: int = 5
    min_delivery_count_limit: int = 2
    max_delivery_count_limit: int = 10
    record_lock_duration_ms: int = 30_000
    min_record_lock_duration_ms: int = 15_000
    max_record_lock_duration_ms: int = 60_000
    partition_max_record_locks: int = 2_000
    min_partition_max_record_locks: int = 100
    max_partition_max_record_locks: int = 4_000
    max_share_sessions: int = 2_000

    def of_group(self, own: Mapping[str, str]) -> SharePartitionSettings:
        """What holds for a group with these settings of its own."""
        return SharePartitionSettings(
            delivery_limit=self._bounded(own.get("share.delivery.count.limit"), "delivery_count_limit"),
            lock_ms=self._bounded(own.get("share.record.lock.duration.ms"), "record_lock_duration_ms"),
            max_locks=self._bounded(own.get("share.partition.max.record.locks"), "partition_max_record_locks"),
            is_renewable=own.get("share.renew.acknowledge.enable", "true").strip().lower() == "true",
        )

    def _bounded(self, text: str | None, name: str) -> int:
        if text is None:
            return int(getattr(self, name))
        low, high = int(getattr(self, f"min_{name}")), int(getattr(self, f"max_{name}"))
        return min(max(int(text), low), high)


def is_read_committed(own: Mapping[str, str]) -> bool:
    """share.isolation.level of a group."""
    return own.get("share.isolation.level", "read_uncommitted").strip().lower() == "read_committed"


def reset_of(own: Mapping[str, str]) -> str:
    """share.auto.offset.reset of a group."""
    return own.get("share.auto.offset.reset", "latest").strip().lower()


def duration_ms(reset: str) -> int | None:
    """Milliseconds of ``by_duration:PnDTnHnMn.nS``; None for other texts, which a group cannot have set."""
    if not reset.startswith(_BY_DURATION):
        return None
    match = _DURATION.fullmatch(reset.removeprefix(_BY_DURATION))
    if match is None:
        return None
    sign, days, _, hours, minutes, seconds, fraction = match.groups()
    whole_ms = (
        int(days or 0) * 86_400_000
        + int(hours or 0) * 3_600_000
        + int(minutes or 0) * 60_000
        + int(seconds or 0) * 1_000
    )
    total_ms = whole_ms + int((fraction or "").ljust(3, "0")[:3] or 0)
    return -total_ms if sign == "-" else total_ms
