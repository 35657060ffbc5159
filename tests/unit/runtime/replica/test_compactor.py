"""The scheduler of compaction over real logs."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from descriptors import no_descriptors
from kraftlog._kraftlog import Log, LogConfig, encode_batch, read_batches
from kraftlog.node.config import NodeConfig
from kraftlog.node.settings import cleaner_settings
from kraftlog.partition.compaction_policy import CleaningSettings
from kraftlog.runtime.replica.compactor import CleanerSettings, LogCleaner
from kraftlog.storage.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from kraftlog.types import TopicPartition
from waiting import until_true

NOW_MS = 10_000
SETTINGS = CleanerSettings(
    enable=True,
    threads=1,
    dedupe_buffer_size=1 << 20,
    load_factor=0.9,
    io_buffer_size=1 << 16,
    io_max_bytes_per_second=float("inf"),
    backoff_ms=10,
)


@dataclass(frozen=True)
class Directory:
    path: Path


class Partition(SimpleNamespace):
    """As much of a partition as the cleaner looks at."""

    def __str__(self) -> str:
        return str(self.topic_partition)

    @property
    def last_stable_offset(self) -> int:
        return int(self.log.log_end_offset)

    @property
    def high_watermark(self) -> int:
        return int(self.log.log_end_offset)


MakePartition = Callable[..., Any]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakePartition]:
    log_dir = Directory(tmp_path)
    logs: list[Log] = []

    def make(name: str = "t", policy: str = "compact", **cleaning: Any) -> Partition:
        config = LogConfig(segment_bytes=1000, cleanup_policy=policy)
        log = Log.open(tmp_path / f"{name}-0", config=config, now_ms=NOW_MS)
        logs.append(log)
        moves: list[str] = []
        return Partition(
            moves=moves,
            replica=SimpleNamespace(log_start_moved=lambda: moves.append("log start")),
            topic_partition=TopicPartition(name, 0),
            log=log,
            log_dir=log_dir,
            config=SimpleNamespace(cleanup_policy=frozenset(policy.split(",")), cleaning=CleaningSettings(**cleaning)),
        )

    yield make
    for log in logs:
        log.close()


def fill(partition: Any, count: int, *, keys: int = 3, from_ms: int = 5000) -> None:
    for number in range(count):
        data = encode_batch([(from_ms, b"k%d" % (number % keys), b"v" * 50, [])])
        partition.log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
    partition.log.roll(NOW_MS)


def record_count(log: Log) -> int:
    count = 0
    offset = log.log_start_offset
    while data := log.read(offset, max_bytes=1 << 20, end_offset=log.log_end_offset).read():
        for batch in read_batches(data):
            count += batch.record_count
            offset = batch.last_offset + 1
    return count


def cleaner(*partitions: Any, settings: CleanerSettings = SETTINGS) -> LogCleaner:
    made = LogCleaner(settings, lambda: NOW_MS)
    for partition in partitions:
        made.add(partition)
    return made


def test_the_dirty_log_is_cleaned_once_and_the_checkpoint_written(make: MakePartition, tmp_path: Path) -> None:
    dirty, plain = make("dirty"), make("plain", policy="delete")
    fill(dirty, 40)
    fill(plain, 40)
    one = cleaner(dirty, plain)
    assert one.clean_filthiest()
    assert not one.clean_filthiest()
    assert (record_count(dirty.log), record_count(plain.log)) == (3, 40)
    assert one.checkpoint(dirty.topic_partition) == 40
    text = (tmp_path / "cleaner-offset-checkpoint").read_text()
    assert text == "0\n1\ndirty 0 40\n"
    fill(dirty, 2)  # not half of the log
    assert not one.clean_filthiest()
    fill(dirty, 5)
    again = cleaner(dirty)
    assert again.clean_filthiest()
    assert again.checkpoint(dirty.topic_partition) == 47


def test_the_filthiest_goes_first_and_lags_are_honoured(make: MakePartition) -> None:
    half, full = make("half"), make("full")
    young = make("young", min_compaction_lag_ms=6000)
    late = make("late", min_cleanable_ratio=1.0, max_compaction_lag_ms=1000)
    for partition in (half, full, young, late):
        fill(partition, 30)
    one = cleaner(half)
    one.clean_filthiest()
    fill(half, 30)
    for partition in (full, young, late):
        one.add(partition)
    cleaned = []
    while one.clean_filthiest():
        cleaned += [
            str(partition)
            for partition in (half, full, young, late)
            if str(partition) not in cleaned and record_count(partition.log) == 3
        ]
    assert sorted(cleaned) == ["full-0", "half-0", "late-0"]
    assert cleaned[-1] == "half-0"


def test_a_damaged_log_is_left_alone_and_others_go_on(
    make: MakePartition, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = make("bad"), make("good")
    fill(bad, 60)
    fill(good, 30)
    path = tmp_path / "bad-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    one = cleaner(bad, good)
    while one.clean_filthiest():
        pass
    while one.clean_filthiest():
        pass
    assert "bad-0" in caplog.text
    assert f"{0:020}.log" in one.uncleanable()[bad.topic_partition]
    assert record_count(good.log) == 3
    metrics = one.metrics()
    assert metrics["uncleanable-partitions-count"] == 1
    assert metrics["uncleanable-bytes"] > 0


@pytest.mark.parametrize("left", range(8))
def test_a_clean_without_descriptors_is_done_later(make: MakePartition, left: int) -> None:
    partition = make()
    fill(partition, 60)
    partition.log.flush()
    one = cleaner(partition)
    with no_descriptors(left):
        one.clean_filthiest()
    assert partition.log.poisoned is None
    assert one.uncleanable() == {}
    one.clean_filthiest()
    assert record_count(partition.log) == 3


def test_a_clean_that_cannot_swap_its_segments_takes_the_directory_offline(make: MakePartition, tmp_path: Path) -> None:
    partition = make()
    told: list[Exception] = []
    partition.loop = SimpleNamespace(call_soon_threadsafe=lambda call, error: call(error))
    partition.storage_failed = told.append
    fill(partition, 40)
    (tmp_path / "t-0" / f"{0:020}.log.swap").mkdir()
    assert not cleaner(partition).clean_filthiest()
    assert partition.log.poisoned is not None
    assert len(told) == 1


def test_threads_clean_in_the_background_and_show_in_the_metrics(make: MakePartition) -> None:
    partition = make()
    fill(partition, 30)
    one = cleaner(partition)
    one.start()
    until_true(lambda: one.checkpoint(partition.topic_partition) == 30)
    # Bytes were written; a second round finds nothing, and the figures of the last clean stay.
    until_true(lambda: one.metrics()["max-dirty-percent"] == 0)
    metrics = one.metrics()
    assert 0 < metrics["cleaner-recopy-percent"] < 50
    assert metrics["DeadThreadCount"] == 0
    one.update_settings(dataclasses.replace(SETTINGS, threads=2))
    names = [thread.name for thread in threading.enumerate()]
    assert {"kafka-log-cleaner-thread-0", "kafka-log-cleaner-thread-1"} <= set(names)
    one.stop()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kafka-log-cleaner")]


def test_pause_ends_a_running_clean_and_keeps_others_off(make: MakePartition) -> None:
    partition = make()
    fill(partition, 2000)
    slow = cleaner(partition, settings=dataclasses.replace(SETTINGS, io_max_bytes_per_second=20_000.0))
    slow.start()
    until_true(lambda: slow._entries[str(partition)].running is not None)
    started = time.monotonic()
    slow.pause(partition.topic_partition)
    assert time.monotonic() - started < 5
    assert slow.checkpoint(partition.topic_partition) is None
    assert not slow.clean_filthiest()
    assert slow._entries[str(partition)].running is None
    slow.update_settings(SETTINGS)
    slow.resume(partition.topic_partition)
    until_true(lambda: slow.checkpoint(partition.topic_partition) == 2000)
    slow.stop()


def test_a_partition_may_be_deleted_while_it_is_cleaned(
    make: MakePartition, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    partition = make()
    fill(partition, 2000)
    slow = cleaner(partition, settings=dataclasses.replace(SETTINGS, io_max_bytes_per_second=20_000.0))
    slow.start()
    entry = slow._entries[str(partition)]
    until_true(lambda: entry.running is not None)
    slow.remove(partition)
    partition.log.close()
    (tmp_path / "t-0").rename(tmp_path / "t-0.deleted")
    until_true(lambda: entry.running is None)
    again = make()
    fill(again, 30)
    slow.update_settings(SETTINGS)
    slow.add(again)
    until_true(lambda: slow.checkpoint(again.topic_partition) == 30)
    slow.stop()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert not list((tmp_path / "t-0.deleted").glob("*.swap"))


def test_truncation_and_deletion_cut_the_checkpoint(make: MakePartition, tmp_path: Path) -> None:
    write_offset_checkpoint(tmp_path / "cleaner-offset-checkpoint", {TopicPartition("gone", 0): 5})
    partition = make()
    fill(partition, 30)
    one = cleaner(partition)
    one.clean_filthiest()
    one.truncate_checkpoint(partition.topic_partition, 31)
    assert one.checkpoint(partition.topic_partition) == 30
    one.truncate_checkpoint(partition.topic_partition, 12)
    path = tmp_path / "cleaner-offset-checkpoint"
    assert read_offset_checkpoint(path) == {partition.topic_partition: 12}
    one.remove(partition)
    assert read_offset_checkpoint(path) == {}


def test_a_checkpoint_beyond_the_log_begins_anew(make: MakePartition, tmp_path: Path) -> None:
    partition = make()
    fill(partition, 30)
    write_offset_checkpoint(tmp_path / "cleaner-offset-checkpoint", {partition.topic_partition: 31})
    one = cleaner(partition)
    assert one.clean_filthiest()
    assert one.checkpoint(partition.topic_partition) == 30
    (tmp_path / "cleaner-offset-checkpoint").write_text("nonsense")
    assert cleaner(partition).checkpoint(partition.topic_partition) is None


def test_retention_of_a_compacted_and_deleted_log_is_the_cleaners(make: MakePartition) -> None:
    partition = make(policy="compact,delete")
    fill(partition, 30)
    partition.log.advance_log_start_offset(20)
    one = cleaner(partition)
    one._delete_old_segments()
    assert partition.log.segments()[0].base_offset > 0
    assert partition.moves == ["log start"], "fetch sessions look only at what moved"
    one._delete_old_segments()
    assert len(partition.moves) == 1


def test_settings_come_from_the_file_and_what_was_altered() -> None:
    config = NodeConfig(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
            "log.dirs": "data",
            "log.cleaner.threads": "2",
            "log.cleaner.io.buffer.size": "1048576",
        }
    )
    settings = cleaner_settings(config).altered(
        {"log.cleaner.dedupe.buffer.size": "1000000", "log.cleaner.backoff.ms": "7"}
    )
    assert (settings.threads, settings.backoff_ms, settings.load_factor) == (2, 7, 0.9)
    assert settings.dedupe_bytes_per_thread == 500_000
    assert settings.io_bytes_per_thread == 262_144
