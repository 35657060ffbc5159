"""How the offsets of a batch are spread over partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraftlog.spark.stream_limits import spread


@given(st.integers(0, 2**62), st.dictionaries(st.integers(0, 50), st.integers(0, 2**62), max_size=12))
def test_shares_use_the_limit_and_follow_the_lags(limit: int, lags: dict[int, int]) -> None:
    shares = spread(limit, lags)
    total = sum(lags.values())
    assert shares.keys() == lags.keys()
    assert sum(shares.values()) == min(limit, total)
    for key, share in shares.items():
        assert 0 <= share <= lags[key]
        if total > limit:
            assert share in {limit * lags[key] // total, limit * lags[key] // total + 1}


def test_no_partition_waits_for_ever() -> None:
    lags = {partition: 1 + partition for partition in range(20)}
    batches = 0
    while any(lags.values()):
        lags = {key: lag - share for (key, lag), share in zip(lags.items(), spread(7, lags).values(), strict=True)}
        batches += 1
    assert batches == 30  # 210 offsets, 7 each


def test_a_partition_that_grows_slowly_is_read_beside_one_that_grows_fast() -> None:
    fast, slow, read = 0, 1, 0
    for _ in range(1000):
        fast += 15
        shares = spread(10, {"fast": fast, "slow": slow})
        fast -= shares["fast"]
        slow -= shares["slow"]
        read += shares["slow"]
        slow += 1
    assert read > 100
