"""A log whose files cannot be opened for want of descriptors refuses the call and is as before it."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

import pytest

from descriptors import no_descriptors
from kraftlog._kraftlog import Log, LogConfig, encode_batch

NOW_MS = 1_700_000_000_000


def append(log: Log, *, epoch: int = 0) -> int:
    batch = encode_batch([(NOW_MS, None, b"x" * 500, [])])
    return log.append_as_leader(batch, leader_epoch=epoch, now_ms=NOW_MS).last_offset


def open_log(path: Path, **options: int) -> Log:
    return Log.open(path, config=LogConfig(segment_bytes=2000, index_interval_bytes=0, **options), now_ms=NOW_MS)


@pytest.mark.parametrize("left", range(6))
def test_roll_without_descriptors_is_refused_and_succeeds_later(tmp_path: Path, left: int) -> None:
    path = tmp_path / "t-0"
    log = open_log(path)
    end = 0
    with no_descriptors(left):
        refused = 0
        for number in range(12):
            try:
                append(log, epoch=number // 4)
                end += 1
            except OSError as error:
                assert error.errno == errno.EMFILE
                refused += 1
            assert log.poisoned is None
            assert log.log_end_offset == end
        with contextlib.suppress(OSError):
            log.flush()
    assert log.poisoned is None
    assert refused or left > 2
    while end < 12:
        assert append(log, epoch=3) == end
        end += 1
    assert log.flush() == end
    log.close()
    again = Log.open(path, config=LogConfig(), now_ms=NOW_MS)
    assert (again.log_start_offset, again.log_end_offset, again.recovery_events) == (0, end, [])


def test_flush_without_descriptors_is_tried_again(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    append(log)
    with no_descriptors(0), pytest.raises(OSError, match="Too many open files"):
        log.flush()
    assert (log.poisoned, log.recovery_point) == (None, 0)
    assert log.flush() == 1


def test_assigning_an_epoch_without_descriptors_is_tried_again(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    with no_descriptors(0), pytest.raises(OSError, match="Too many open files"):
        log.assign_epoch_start(1, 0)
    assert log.poisoned is None
    log.assign_epoch_start(1, 0)
    assert log.epoch_entries() == [(1, 0)]


@pytest.mark.parametrize("left", range(5))
def test_truncation_without_descriptors_is_finished_by_the_next_call(tmp_path: Path, left: int) -> None:
    path = tmp_path / "t-0"
    log = open_log(path)
    for _ in range(12):
        append(log)
    log.flush()
    with no_descriptors(left), contextlib.suppress(OSError):
        log.truncate_to(4)
    assert log.poisoned is None
    log.truncate_to(4)
    assert append(log) == 4
    log.close()
    again = Log.open(path, config=LogConfig(), now_ms=NOW_MS)
    assert (again.log_start_offset, again.log_end_offset, again.recovery_events) == (0, 5, [])
