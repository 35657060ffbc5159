"""The quota of changes at the controller: partitions created and deleted (KIP-599)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.quota.limits import Match, QuotaLimits
from kraftlog.quota.rate_quota import THROTTLE_MS_MAX
from kraftlog.quota.sampled_rate import Windows
from kraftlog.quota.token_bucket import TokenBucket

__all__ = ["MutationCharge", "MutationQuota"]

_SWEEP_AT_LEAST: Final = 1024


class MutationQuota:
    """What is left of ``controller_mutation_rate`` for each client.

    Args:
        windows: controller.quota.window.size.seconds and controller.quota.window.num.

    Attributes:
        limits: In force; may be replaced at any time.

    Source: Kafka's ``ControllerMutationQuotaManager``.
    """

    def __init__(self, windows: Windows) -> None:
        self.limits = QuotaLimits({})
        self._windows = windows
        self._buckets: dict[tuple[str, str], TokenBucket] = {}
        self._sweep_at = _SWEEP_AT_LEAST

    def __len__(self) -> int:
        """Buckets in memory."""
        return len(self._buckets)

    def charge(
        self, user: str, client_id: str, *, is_strict: bool, clock_ms: Callable[[], int]
    ) -> MutationCharge | None:
        """What the changes of a request are charged to; None if no quota applies.

        Args:
            user: Name of the principal.
            client_id: Empty if the request has none.
            is_strict: Whether the request can be refused.
            clock_ms: A clock that never goes back.
        """
        match = self.limits.find(user, client_id)
        if match is None:
            return None
        return MutationCharge(self._bucket_of(match, clock_ms()), match.limit, is_strict=is_strict, clock_ms=clock_ms)

    def _bucket_of(self, match: Match, now_ms: int) -> TokenBucket:
        bucket = self._buckets.get(match.sharing)
        if bucket is None:
            if len(self._buckets) >= self._sweep_at:
                self._sweep(now_ms)
            bucket = self._buckets[match.sharing] = TokenBucket(self._windows, match.limit, now_ms)
        return bucket

    def _sweep(self, now_ms: int) -> None:
        kept: dict[tuple[str, str], TokenBucket] = {}
        for sharing, bucket in self._buckets.items():
            match = self.limits.find(*sharing)
            if match is not None and match.sharing == sharing and not bucket.is_full(match.limit, now_ms):
                kept[sharing] = bucket
        self._buckets = kept
        self._sweep_at = max(_SWEEP_AT_LEAST, 2 * len(kept))


class MutationCharge:
    """The changes of one request.

    A strict one refuses what comes once the bucket is overdrawn, and accepts any number of changes before. A
    permissive one, for clients that do not know the error, accepts all and lets the client wait.

    Source: Kafka's ``StrictControllerMutationQuota`` and ``PermissiveControllerMutationQuota``.
    """

    __slots__ = ("_bucket", "_clock_ms", "_is_strict", "_limit", "_until_ms")

    def __init__(self, bucket: TokenBucket, limit: float, *, is_strict: bool, clock_ms: Callable[[], int]) -> None:
        self._bucket = bucket
        self._limit = limit
        self._is_strict = is_strict
        self._clock_ms = clock_ms
        self._until_ms = 0

    def __call__(self, count: int) -> None:
        """Charge a change of so many partitions.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED; nothing was charged.
        """
        now_ms = self._clock_ms()
        if not self._is_strict:
            self._bucket.take(count, self._limit, now_ms)
        wait_ms = self._bucket.wait_ms(self._limit, now_ms)
        if wait_ms:
            self._until_ms = now_ms + wait_ms
            if self._is_strict:
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if self._is_strict:
            self._bucket.take(count, self._limit, now_ms)

    def throttle_ms(self) -> int:
        """Milliseconds that the client has to wait from now on."""
        return min(max(0, self._until_ms - self._clock_ms()), THROTTLE_MS_MAX)
