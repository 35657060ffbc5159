"""Opening a log after a clean and after an unclean stop.

Expected: clean, some 100 us however large the log is; unclean, every byte is read once and checked: 3 to 6 GB/s from
the page cache for large batches, a few million batches a second for small ones.

    python -m pytest benches/test_recover.py --benchmark-enable --benchmark-group-by=group
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlog._kraftlog import Log, LogConfig, build_profile, encode_values

NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=64 << 20)
SHAPES = {"1 x 100 B": (1, 100, 50_000), "160 x 100 B": (160, 100, 4000), "100 x 1 kB": (100, 1000, 1000)}


@pytest.fixture(scope="module", params=SHAPES)
def stored(request: pytest.FixtureRequest) -> Iterator[tuple[str, Path, int, int]]:
    """(shape, directory, bytes, end offset)."""
    assert build_profile == "release", "a debug build says nothing about speed"
    records, value_bytes, batches = SHAPES[request.param]
    path = Path(tempfile.mkdtemp(prefix="kraftlog-bench-"))
    log = Log.open(path / "bench-0", config=CONFIG, now_ms=NOW_MS)
    batch = encode_values([bytes(value_bytes)] * records, timestamps=NOW_MS)
    for _ in range(batches):
        log.append_as_leader(batch, leader_epoch=1, now_ms=NOW_MS)
    size, end = log.size_bytes, log.log_end_offset
    log.close()
    yield request.param, path / "bench-0", size, end
    shutil.rmtree(path)


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "unclean"])
def test_open(benchmark: Any, stored: tuple[str, Path, int, int], is_clean: bool) -> None:
    shape, directory, size, end = stored
    benchmark.group = f"open after {'a clean' if is_clean else 'an unclean'} stop"
    benchmark.extra_info.update(bytes=size, records=end, shape=shape)

    def open_log() -> Log:
        return Log.open(directory, config=CONFIG, now_ms=NOW_MS, clean_shutdown=is_clean)

    assert benchmark.pedantic(open_log, rounds=5, warmup_rounds=1).log_end_offset == end
