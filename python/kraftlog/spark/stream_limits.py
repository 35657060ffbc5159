"""How much of what is there one batch takes: ``maxOffsetsPerTrigger`` and ``minOffsetsPerTrigger``."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TypeVar

__all__ = ["spread"]

K = TypeVar("K")


def spread(limit: int, lags: Mapping[K, int]) -> dict[K, int]:
    """How many offsets of each partition a batch takes, in proportion to their lags.

    As Spark's Kafka source does it, but never more than ``limit`` altogether: shares are rounded down, and what is left
    goes one by one to the largest remainders. A partition that gets nothing has a larger share of the lag next time.

    Args:
        limit: At most so many offsets, at least 0.
        lags: Offsets that are there and not read, none negative.

    Returns:
        A share for each key, at most its lag; their sum is ``limit``, or the sum of the lags when that is less.
    """
    total = sum(lags.values())
    if total <= limit:
        return dict(lags)
    exact = {key: Fraction(limit * lag, total) for key, lag in lags.items()}
    shares = {key: int(share) for key, share in exact.items()}
    left = limit - sum(shares.values())
    by_remainder = sorted(exact, key=lambda key: (exact[key] - shares[key], lags[key]), reverse=True)
    for key in by_remainder[:left]:
        shares[key] += 1
    return shares
