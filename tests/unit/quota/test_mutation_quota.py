"""The quota of changes at the controller (KIP-599): a bucket of eleven seconds, strict or permissive."""

from __future__ import annotations

import pytest

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.quota.limits import QuotaLimits
from kraftlog.quota.mutation_quota import MutationCharge, MutationQuota
from kraftlog.quota.sampled_rate import Windows


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


def mutations(limit: float) -> MutationQuota:
    result = MutationQuota(Windows())
    result.limits = QuotaLimits.of("k", {(("user", None),): {"k": limit}})
    return result


def charge(quota: MutationQuota, clock: Clock, *, is_strict: bool = True, user: str = "alice") -> MutationCharge:
    found = quota.charge(user, "c", is_strict=is_strict, clock_ms=clock)
    assert found is not None
    return found


def test_a_strict_charge_refuses_once_the_bucket_is_overdrawn(clock: Clock) -> None:
    quota = mutations(2)
    first = charge(quota, clock)
    first(30)  # 22 are there, and the first charge is not refused
    assert first.throttle_ms() == 0
    with pytest.raises(KafkaError) as raised:
        first(1)
    assert raised.value.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert raised.value.message is None, "Kafka sends no text that only repeats the code"
    assert first.throttle_ms() == 4_000, "8 tokens at 2 a second"
    clock.now_ms += 1_500
    assert first.throttle_ms() == 2_500
    clock.now_ms += 2_500
    charge(quota, clock)(1)
    with pytest.raises(KafkaError):
        charge(quota, clock)(1)
    charge(quota, clock, user="bob")(1)


def test_a_permissive_charge_lets_the_client_wait(clock: Clock) -> None:
    quota = mutations(2)
    old = charge(quota, clock, is_strict=False)
    old(22)
    assert old.throttle_ms() == 0
    old(10)
    old(2)
    assert old.throttle_ms() == 6_000


def test_the_bucket_is_full_again_after_all_windows(clock: Clock) -> None:
    quota = mutations(2)
    charge(quota, clock)(22)
    clock.now_ms += 3_600_000
    late = charge(quota, clock)
    late(22)
    late(1)
    with pytest.raises(KafkaError):
        late(1)


def test_nobody_is_charged_without_a_quota(clock: Clock) -> None:
    quota = MutationQuota(Windows())
    assert quota.charge("alice", "c", is_strict=True, clock_ms=clock) is None


def test_clients_that_come_and_go_leave_no_buckets_behind(clock: Clock) -> None:
    quota = mutations(1)
    for number in range(5_000):
        charge(quota, clock, user=f"u{number}")(1)
        clock.now_ms += 1_000
    assert len(quota) <= 1_024
