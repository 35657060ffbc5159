"""Which batches are appended on a thread, so that the event loop does not look through them."""

from __future__ import annotations

import gzip
from types import SimpleNamespace

import pytest

from kraftlog.runtime.replica.partition import Partition

GZIP = 1


def batch(payload, compression=0):
    records = bytearray(61) + payload
    records[22] = compression
    return bytes(records)


def takes_long(records):
    return Partition._takes_long(SimpleNamespace(config=SimpleNamespace(recompresses=False)), records)


def test_batch_that_holds_megabytes_of_zeros_is_not_appended_on_the_loop():
    bomb = gzip.compress(bytes(32 << 20))
    assert len(bomb) < 64 * 1024
    assert takes_long(batch(bomb, GZIP))


@pytest.mark.parametrize(
    ("size_bytes", "compression", "is_long"), [(194, GZIP, False), (100_000, 0, False), (195, GZIP, True)]
)
def test_small_and_plain_batches_are_appended_on_the_loop(size_bytes, compression, is_long):
    assert takes_long(batch(bytes(size_bytes), compression)) is is_long
