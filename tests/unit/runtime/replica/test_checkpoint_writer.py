"""Checkpoints say nothing of a log that was deleted, as another one of its name would take it for its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog.runtime.replica.checkpoint_writer import CheckpointIntervals, CheckpointWriter
from kraftlog.runtime.replica.log_placement import set_strays_aside
from kraftlog.storage.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from kraftlog.storage.log_dir import LogDir
from kraftlog.types import TopicPartition

NAMES = (RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)
GONE, LEFT = TopicPartition("gone", 0), TopicPartition("left", 0)
INTERVALS = CheckpointIntervals(high_watermark_ms=5000, recovery_point_ms=60_000, log_start_ms=60_000)


@pytest.fixture
def log_dir(tmp_path: Path) -> Iterator[LogDir]:
    made = LogDir(tmp_path)
    yield made
    made.release()


class Writer:
    """A writer whose background work waits until a test runs it."""

    def __init__(self, log_dir: LogDir) -> None:
        self.log_dir = log_dir
        self.partitions = [self.partition(GONE), self.partition(LEFT)]
        self.waiting: list[Callable[[], None]] = []
        loop: Any = None
        self.writer = CheckpointWriter(
            INTERVALS, [log_dir], loop, self.partitions, self.in_background, lambda *_: pytest.fail("it failed")
        )

    def partition(self, key: TopicPartition) -> Any:
        log = SimpleNamespace(recovery_point=7, log_start_offset=3, segments=list)
        return SimpleNamespace(topic_partition=key, log_dir=self.log_dir, high_watermark=7, log=log)

    def in_background(self, work: Callable[..., None], *arguments: Any) -> None:
        self.waiting.append(lambda: work(*arguments))

    def run(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()

    def found(self) -> list[set[TopicPartition]]:
        return [set(read_offset_checkpoint(self.log_dir.path / name)) for name in NAMES]


def test_a_deleted_partition_is_taken_out_at_once(log_dir: LogDir) -> None:
    writer = Writer(log_dir)
    writer.writer.write_soon()
    writer.run()
    assert writer.found() == [{GONE, LEFT}] * 2 + [set()]
    del writer.partitions[0]
    writer.writer.forget(log_dir, [GONE])
    assert writer.found() == [{LEFT}] * 2 + [set()]


def test_offsets_that_were_taken_before_the_deletion_do_not_come_back(log_dir: LogDir) -> None:
    writer = Writer(log_dir)
    writer.writer.write_soon()
    del writer.partitions[0]
    writer.writer.forget(log_dir, [GONE])
    writer.run()
    assert writer.found() == [{LEFT}] * 2 + [set()]
    writer.partitions.append(writer.partition(GONE))  # a new topic of that name
    writer.writer.write_soon()
    writer.run()
    assert writer.found() == [{GONE, LEFT}] * 2 + [set()]


def test_what_the_files_of_the_last_run_say_goes_too(log_dir: LogDir) -> None:
    for name in NAMES:
        write_offset_checkpoint(log_dir.path / name, {GONE: 7, LEFT: 7})
    Writer(log_dir).writer.forget(log_dir, [GONE])
    assert [set(read_offset_checkpoint(log_dir.path / name)) for name in NAMES] == [{LEFT}] * 3


def test_a_damaged_checkpoint_does_not_keep_a_log_from_being_deleted(
    log_dir: LogDir, caplog: pytest.LogCaptureFixture
) -> None:
    (log_dir.path / RECOVERY_POINT_CHECKPOINT).write_text("nonsense")
    writer = Writer(log_dir)
    writer.writer.forget(log_dir, [GONE])
    assert "name deleted partitions" in caplog.text
    del writer.partitions[0]
    writer.writer.write_soon()
    writer.run()
    assert writer.found() == [{LEFT}] * 2 + [set()]


def test_strays_are_taken_out_before_they_are_set_aside(log_dir: LogDir) -> None:
    (log_dir.path / "gone-0").mkdir()
    for name in NAMES:
        write_offset_checkpoint(log_dir.path / name, {GONE: 7, LEFT: 7})
    set_strays_aside([log_dir], {})
    assert [set(read_offset_checkpoint(log_dir.path / name)) for name in NAMES] == [{LEFT}] * 3
    assert not (log_dir.path / "gone-0").exists()
