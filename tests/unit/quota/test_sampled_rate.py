"""Rates over windows, and how long a client above its quota waits (KIP-13); figures of Kafka's Rate and QuotaUtils."""

from __future__ import annotations

import pytest

from kraftlog.quota.limits import QuotaLimits
from kraftlog.quota.rate_quota import THROTTLE_MS_MAX, RateQuota
from kraftlog.quota.sampled_rate import SampledRate, Windows

USER = (("user", "alice"),)


def quota(limit: float, **settings: int) -> RateQuota:
    result = RateQuota(Windows(), **settings)
    result.limits = QuotaLimits.of("k", {USER: {"k": limit}})
    return result


def test_a_rate_is_divided_by_all_windows_but_the_current_one_at_least() -> None:
    rate = SampledRate(Windows(1_000, 11))
    assert (rate.rate(5_000), rate.span_ms(5_000)) == (0, 10_000)
    rate.record(1_000, 5_000)
    assert (rate.rate(5_000), rate.span_ms(5_000)) == (100, 10_000)
    rate.record(500, 5_999)
    assert rate.span_ms(5_999) == 10_999
    assert rate.rate(5_999) == pytest.approx(1_500 / 10.999)
    rate.record(500, 6_000)
    assert (rate.span_ms(6_000), rate.rate(6_000)) == (10_000, 200)


def test_a_sample_counts_until_its_last_amount_is_older_than_all_windows() -> None:
    rate = SampledRate(Windows(1_000, 11))
    rate.record(100, 0)
    rate.record(100, 900)
    assert rate.span_ms(11_899) == 11_899
    assert not rate.is_empty(11_899)
    assert rate.is_empty(11_900)
    rate.record(10, 12_000)
    assert (rate.span_ms(12_000), rate.rate(12_000)) == (10_000, 1)


def test_what_is_taken_back_does_not_count() -> None:
    rate = SampledRate(Windows())
    rate.record(100, 0)
    rate.record(700, 1_500)
    rate.record(-700, 1_500)
    assert rate.rate(1_500) == pytest.approx(100 / 10.5)


def test_a_client_waits_as_long_as_its_windows_would_have_to_be_longer() -> None:
    """10 000 bytes in ten seconds are 1 000 a second, 10 000 in 12.5 are the limit of 800."""
    produced = quota(800)
    assert produced.record("alice", "c", 8_000, 0) == 0, "the limit itself is allowed"
    assert produced.record("alice", "c", 2_000, 0) == 2_500
    assert produced.record("bob", "c", 1 << 40, 0) == 0, "there is no quota"
    assert produced.record("alice", "other", 0, 2_500) == 2_000, "the windows are 10.5 s now: Kafka's rate, too"
    assert produced.record("alice", "other", 0, 11_000) == 0, "nothing counts any more"


def test_waiting_is_bounded_by_the_field_or_by_the_caller() -> None:
    assert quota(1e-9).record("alice", "c", 1e15, 0) == THROTTLE_MS_MAX
    assert quota(1, throttle_ms_max=1_000).record("alice", "c", 1e9, 0) == 1_000


def test_records_of_a_throttled_fetch_are_taken_back() -> None:
    fetched = quota(100)
    assert fetched.most_at_once("alice", "c") == 1_000
    assert fetched.most_at_once("bob", "c") is None
    assert fetched.record("alice", "c", 1_100, 50) == 1_000
    fetched.take_back("alice", "c", 1_100, 50)
    assert fetched.record("alice", "c", 1_000, 60) == 0


def test_a_new_limit_judges_what_was_used_before() -> None:
    produced = quota(1_000)
    assert produced.record("alice", "c", 10_000, 0) == 0
    produced.limits = QuotaLimits.of("k", {USER: {"k": 500.0}})
    assert produced.record("alice", "c", 0, 0) == 10_000
    produced.limits = QuotaLimits.of("k", {})
    assert produced.record("alice", "c", 1 << 40, 0) == 0


def test_clients_that_come_and_go_leave_no_rates_behind() -> None:
    produced = RateQuota(Windows())
    produced.limits = QuotaLimits.of("k", {(("client-id", None),): {"k": 1.0}})
    for number in range(10_000):
        produced.record("alice", f"c{number}", 1, number * 1_000)
    assert len(produced) <= 1_024
