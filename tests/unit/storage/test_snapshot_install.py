"""A fetched checkpoint takes the place of the log: in which order, what is durable, what a crash leaves."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kraftlog.storage.metadata_log import MetadataLog, MetadataLogConfig
from kraftlog.storage.snapshot_file import Snapshot, encode_snapshot
from kraftlog.types import Epoch, Offset, SnapshotId

CONFIG = MetadataLogConfig(segment_bytes=4096, max_batch_bytes=4096)
FETCHED = SnapshotId(Offset(100), Epoch(3))


def opened(directory):
    return MetadataLog(directory, CONFIG, now_ms=0, clean_shutdown=False)


def log_that_fetched(directory):
    """A log of ten records with a checkpoint at 5, and a checkpoint of the leader that is fetched but not installed."""
    log = opened(directory)
    for _ in range(2):
        log.append_values([b"v"] * 5, base_offset=Offset(log.log_end_offset), epoch=Epoch(1), now_ms=1)
    log.flush()
    own = SnapshotId(Offset(5), Epoch(1))
    with log.create_snapshot(own, epoch=Epoch(1), high_watermark=Offset(10), now_ms=1) as writer:
        writer.append([b"state"])
        writer.freeze()
    content = encode_snapshot(Snapshot(kraft_version=1, values=[b"theirs"]), epoch=Epoch(3), now_ms=1)
    log.write_snapshot_chunk(FETCHED, 0, content)
    return log


class Steps:
    """What the system calls of an installation did, in order; ``stop_before`` raises before that step."""

    def __init__(self, monkeypatch, log, stop_before=None):
        self.done = []
        self._stop_before = stop_before
        fsync, replace, unlink = os.fsync, os.replace, Path.unlink
        engine = log._log

        def traced_fsync(descriptor):
            name = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            self._step("fsync directory" if name.is_dir() else "fsync checkpoint")
            fsync(descriptor)

        def traced_replace(source, target):
            self._step("name checkpoint")
            replace(source, target)

        def traced_unlink(path, missing_ok=False):
            self._step("remove old checkpoint")
            unlink(path, missing_ok=missing_ok)

        steps = self

        class Engine:
            def __getattr__(self, name):
                return getattr(engine, name)

            def truncate_fully_and_start_at(self, offset):
                steps._step("empty log")
                engine.truncate_fully_and_start_at(offset)

        monkeypatch.setattr(os, "fsync", traced_fsync)
        monkeypatch.setattr(os, "replace", traced_replace)
        monkeypatch.setattr(Path, "unlink", traced_unlink)
        log._log = Engine()

    def _step(self, name):
        if len(self.done) == self._stop_before:
            raise InterruptedError(name)
        self.done.append(name)


STEPS = [
    "fsync checkpoint",
    "name checkpoint",
    "fsync directory",
    "empty log",
    "remove old checkpoint",
    "fsync directory",
]


def test_checkpoint_is_durable_under_its_name_before_the_log_is_emptied(tmp_path, monkeypatch):
    log = log_that_fetched(tmp_path / "log")
    steps = Steps(monkeypatch, log)
    log.install_snapshot(FETCHED)
    assert steps.done == STEPS
    assert (log.log_start_offset, log.log_end_offset, log.latest_snapshot_id) == (100, 100, FETCHED)


@pytest.mark.parametrize("stop_before", range(len(STEPS)), ids=lambda number: STEPS[number])
def test_stop_at_any_step_leaves_the_old_log_or_the_new_one(tmp_path, monkeypatch, stop_before):
    log = log_that_fetched(tmp_path / "log")
    with monkeypatch.context() as patched:
        Steps(patched, log, stop_before)
        with pytest.raises(InterruptedError):
            log.install_snapshot(FETCHED)
    left = tmp_path / "left"
    shutil.copytree(tmp_path / "log", left)  # the lock and the files of the first stay with the first
    again = opened(left)
    if stop_before < STEPS.index("name checkpoint") + 1:
        assert (again.log_end_offset, again.latest_snapshot_id) == (10, SnapshotId(Offset(5), Epoch(1)))
        assert list(again.read_latest_snapshot()[1].each_value()) == [b"state"]
    else:
        assert (again.log_start_offset, again.log_end_offset) == (100, 100)
        assert again.latest_snapshot_id == FETCHED
        assert list(again.read_latest_snapshot()[1].each_value()) == [b"theirs"]
        assert [snapshot for snapshot, _ in again.snapshots] == [FETCHED]
    again.close()
    log._log.close()
