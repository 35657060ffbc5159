"""CRC-32C: bytes per second at the sizes of batches, beside google-crc32c and the peers' own.

Expected: 30 to 120 GB/s while the data are in cache, the memory's 10 to 30 GB/s beyond; a call costs about 0.1 us.

    python -m pytest benches/test_crc.py --benchmark-enable --benchmark-group-by=group
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import google_crc32c
import pytest
from aiokafka.record._crecords import crc32c_cython
from kafka.record.util import calc_crc32c

from kraftlog._kraftlog import build_profile, crc32c

SIZES = pytest.mark.parametrize("size", [100, 1 << 10, 16 << 10, 1 << 20, 64 << 20], ids="{}B".format)


@pytest.fixture(autouse=True)
def _optimised_build() -> None:
    assert build_profile == "release", "a debug build says nothing about speed"


def run(benchmark: Any, size: int, checksum: Callable[[bytes], int]) -> None:
    data = random.Random(size).randbytes(size)
    benchmark.group = f"CRC-32C of {size} B"
    benchmark.extra_info.update(bytes=size, records=1)
    assert benchmark(checksum, data) == google_crc32c.value(data)


@SIZES
def test_crc32c(benchmark: Any, size: int) -> None:
    run(benchmark, size, crc32c)


@SIZES
def test_crc32c_google(benchmark: Any, size: int) -> None:
    run(benchmark, size, google_crc32c.value)


@SIZES
def test_crc32c_aiokafka(benchmark: Any, size: int) -> None:
    run(benchmark, size, crc32c_cython)


@pytest.mark.parametrize("size", [100, 1 << 10], ids="{}B".format)
def test_crc32c_kafka_python(benchmark: Any, size: int) -> None:
    run(benchmark, size, calc_crc32c)
