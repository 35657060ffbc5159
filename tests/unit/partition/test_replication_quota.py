"""Throttles of replication: the replicas they hold and the rate they measure (KIP-73)."""

from __future__ import annotations

import pytest

from kraftlog.partition.replication_quota import UNLIMITED, ReplicationQuota, ThrottledReplicas


@pytest.mark.parametrize(
    ("entries", "throttled"),
    [
        (("*",), {(0, 1), (0, 2), (1, 1), (1, 2)}),
        (("0:1", "1:2"), {(0, 1), (1, 2)}),
        (("0:2",), {(0, 2)}),
        ((), set()),
    ],
)
def test_entries_name_partitions_and_brokers(entries, throttled):
    """RFET-72."""
    replicas = ThrottledReplicas.parse(entries)
    assert {(index, broker) for index in (0, 1) for broker in (1, 2) if replicas.has(index, broker)} == throttled


def test_rate_is_over_the_last_windows():
    """RFET-73: eleven windows of a second; the time is at least one of them."""
    quota = ReplicationQuota()
    assert not quota.is_exceeded(0)
    quota.bytes_per_second = 1_000
    quota.record(900, 0)
    assert (quota.rate(0), quota.is_exceeded(0)) == (900, False)
    quota.record(200, 500)
    assert (quota.rate(500), quota.is_exceeded(500)) == (1_100, True)
    assert (quota.rate(1_100), quota.is_exceeded(1_100)) == (1_000, False), "the rate itself is allowed"
    quota.record(10_000, 2_000)
    assert quota.is_exceeded(2_000)
    assert quota.is_exceeded(10_999)
    assert quota.rate(11_000) == pytest.approx(10_000 / 9)
    assert quota.rate(13_000) == 0
    quota.record(1 << 40, 20_000)
    quota.bytes_per_second = UNLIMITED
    assert not quota.is_exceeded(20_000)


def test_throttled_copy_takes_as_long_as_its_rate_says():
    """RFET-78: a copy of n bytes at a rate of q takes about n/q seconds, within a half."""
    quota, rate, total, chunk = ReplicationQuota(), 100_000, 5_000_000, 20_000
    quota.bytes_per_second = rate
    now_ms = copied = 0
    while copied < total:
        if not quota.is_exceeded(now_ms):
            quota.record(chunk, now_ms)
            copied += chunk
        now_ms += 10
    assert 0.5 < now_ms / 1000 / (total / rate) < 1.5
