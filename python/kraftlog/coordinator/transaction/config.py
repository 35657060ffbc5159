"""Limits and times of transactions."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TransactionConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Settings of the transaction coordinator.

    Attributes:
        max_timeout_ms: transaction.max.timeout.ms.
        abort_check_interval_ms: transaction.abort.timed.out.transaction.cleanup.interval.ms.
        expiration_ms: transactional.id.expiration.ms.
        expiration_check_interval_ms: transaction.remove.expired.transaction.cleanup.interval.ms.
        two_phase_commit_enable: transaction.two.phase.commit.enable.
    """

    max_timeout_ms: int = 900_000
    abort_check_interval_ms: int = 10_000
    expiration_ms: int = 604_800_000
    expiration_check_interval_ms: int = 3_600_000
    two_phase_commit_enable: bool = False
