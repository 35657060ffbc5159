"""Compaction of the topics with ``cleanup.policy=compact``: worker threads that clean the filthiest log first.

Follows Kafka's ``LogCleaner`` and ``LogCleanerManager``. What to clean is decided in
:mod:`kraftlog.partition.compaction_policy`; the cleaning itself is ``Log.clean`` of the engine.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from kraftlog import host
from kraftlog._kraftlog import CleanCancel, CleanThrottle
from kraftlog.config_table import broker_config, parse_value
from kraftlog.errors import KraftlogError, LogError
from kraftlog.partition.compaction_policy import (
    Candidate,
    LogFacts,
    candidate,
    choose,
    dirtiest_ratio,
    max_compaction_delay_ms,
    offsets_to_clean,
)
from kraftlog.storage.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from kraftlog.storage.disk_failure import is_disk_failure
from kraftlog.types import TopicPartition

if TYPE_CHECKING:
    from kraftlog._kraftlog import CleanReport
    from kraftlog.host import Worker
    from kraftlog.runtime.replica.partition import Partition
    from kraftlog.storage.log_dir import LogDir

__all__ = ["CleanerSettings", "LogCleaner"]

logger = logging.getLogger(__name__)

_BUFFER_BYTES_MAX = (1 << 31) - 1
_WAIT_S = 0.1


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The ``log.cleaner.*`` keys of the broker; sizes in bytes."""

    enable: bool
    threads: int
    dedupe_buffer_size: int
    load_factor: float
    io_buffer_size: int
    io_max_bytes_per_second: float
    backoff_ms: int

    def altered(self, overrides: Mapping[str, str]) -> CleanerSettings:
        """These settings with dynamic ones over them."""

        def number(key: str, default: float) -> float:
            definition = broker_config(key)
            if key not in overrides or definition is None:
                return default
            value = parse_value(definition, overrides[key])
            return value if isinstance(value, int | float) else default

        return replace(
            self,
            threads=int(number("log.cleaner.threads", self.threads)),
            dedupe_buffer_size=int(number("log.cleaner.dedupe.buffer.size", self.dedupe_buffer_size)),
            load_factor=number("log.cleaner.io.buffer.load.factor", self.load_factor),
            io_buffer_size=int(number("log.cleaner.io.buffer.size", self.io_buffer_size)),
            io_max_bytes_per_second=number("log.cleaner.io.max.bytes.per.second", self.io_max_bytes_per_second),
            backoff_ms=int(number("log.cleaner.backoff.ms", self.backoff_ms)),
        )

    @property
    def dedupe_bytes_per_thread(self) -> int:
        """Memory for keys that each thread may take."""
        return min(self.dedupe_buffer_size // max(self.threads, 1), _BUFFER_BYTES_MAX)

    @property
    def io_bytes_per_thread(self) -> int:
        """Half of a thread's share: as much is read as is written at once."""
        return self.io_buffer_size // max(self.threads, 1) // 2


@dataclass(slots=True)
class _Last:
    """What a thread did last, for the metrics."""

    utilization: float = 0.0
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    max_delay_ms: int = 0


@dataclass(slots=True)
class _Entry:
    """A partition the cleaner knows; guarded by the lock."""

    partition: Partition
    running: CleanCancel | None = None
    pauses: int = 0
    problem: str = ""


@dataclass(slots=True)
class _Task:
    """A log that was chosen."""

    entry: _Entry
    candidate: Candidate
    cancel: CleanCancel
    max_delay_ms: int


@dataclass(slots=True)
class _Cleaner:
    """One of the threads; None until it is started."""

    worker: Worker | None = None
    last: _Last = field(default_factory=_Last)
    is_dead: bool = False


class LogCleaner:
    """Owns the cleaner threads and ``cleaner-offset-checkpoint`` of each data directory.

    Any thread may call. ``add`` and ``remove`` do not wait for a clean, but for its look at the logs and for writes of
    the checkpoint: the node's loop does not call them.

    Args:
        settings: Of the broker.
        now_ms: The clock.
    """

    def __init__(self, settings: CleanerSettings, now_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._now_ms = now_ms
        self._throttle = CleanThrottle(settings.io_max_bytes_per_second)
        # By names "topic-index", which the garbage collector does not track, as there may be many. Entries are of those
        # that are compacted or paused alone.
        self._partitions: dict[str, Partition] = {}
        self._entries: dict[str, _Entry] = {}
        self._checkpoints: dict[LogDir, dict[TopicPartition, int]] = {}
        # Removed while they were worked on: a partition of the same name waits, as it may have the same directory.
        self._ending: set[TopicPartition] = set()
        # Guards the two above and everything in the entries; signalled when a clean ends.
        self._lock = threading.Condition()
        self._cleaners: list[_Cleaner] = []
        self._is_stopped = False
        self._dirtiest_ratio = 0.0
        self._last_run_ms = now_ms()

    @property
    def thread_count(self) -> int:
        """log.cleaner.threads in force."""
        return self._settings.threads

    @property
    def settings(self) -> CleanerSettings:
        """The settings in force."""
        return self._settings

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to clean, if ``log.cleaner.enable``."""
        if self._settings.enable:
            self._start_workers()

    def stop(self) -> None:
        """Abort what runs and wait for the threads."""
        self._is_stopped = True
        self._stop_workers()

    def update_settings(self, settings: CleanerSettings) -> None:
        """Use altered settings; another number of threads or buffers takes effect with each thread's next log."""
        old, self._settings = self._settings, settings
        if settings.io_max_bytes_per_second != old.io_max_bytes_per_second:
            self._throttle.set_rate(settings.io_max_bytes_per_second)
        if settings.enable and self._cleaners and not self._is_stopped:
            self._start_workers()
        self._wake_all()

    def _start_workers(self) -> None:
        """A thread for each number that has none, or whose thread is dead."""
        for number in range(self._settings.threads):
            known = self._cleaners[number : number + 1]
            if any(cleaner.worker is not None and cleaner.worker.is_alive for cleaner in known):
                continue
            cleaner = _Cleaner()
            self._cleaners[number : number + 1] = [cleaner]
            cleaner.worker = host.worker(f"kafka-log-cleaner-thread-{number}", partial(self._step, number, cleaner))

    def _stop_workers(self) -> None:
        with self._lock:
            for entry in self._entries.values():
                if entry.running is not None:
                    entry.running.cancel()
        self._wake_all()
        for cleaner in self._cleaners:
            if cleaner.worker is not None:
                cleaner.worker.join()

    def _wake_all(self) -> None:
        for cleaner in self._cleaners:
            if cleaner.worker is not None:
                cleaner.worker.wake()

    # -- partitions ------------------------------------------------------------------------------------------------

    def add(self, partition: Partition) -> None:
        """A partition was opened."""
        with self._lock:
            self._partitions[str(partition)] = partition
            if partition.log_dir not in self._checkpoints:
                self._checkpoints[partition.log_dir] = _read_checkpoint(partition.log_dir)

    def remove(self, partition: Partition) -> None:
        """A partition is about to go: a clean of it stops by itself, its checkpoint entry is taken out."""
        with self._lock:
            self._partitions.pop(str(partition), None)
            entry = self._entries.pop(str(partition), None)
            if entry is not None and entry.running is not None:
                entry.running.cancel()
                self._ending.add(partition.topic_partition)
            offsets = self._checkpoints.get(partition.log_dir, {})
            if offsets.pop(partition.topic_partition, None) is not None:
                self._write_checkpoint(partition.log_dir)

    def _entry_of(self, partition: Partition) -> _Entry:
        """What is done with a partition; called with the lock."""
        return self._entries.setdefault(str(partition), _Entry(partition))

    def abort(self, key: TopicPartition) -> None:
        """End a running clean of a partition, and wait until it has ended."""
        self.pause(key)
        self.resume(key)

    def pause(self, key: TopicPartition) -> None:
        """End a running clean of a partition, wait until it has ended, and begin none until ``resume``."""
        with self._lock:
            partition = self._partitions.get(str(key))
            if partition is None:
                return
            entry = self._entry_of(partition)
            entry.pauses += 1
            if entry.running is not None:
                entry.running.cancel()
            while entry.running is not None:
                self._lock.wait(_WAIT_S)

    def resume(self, key: TopicPartition) -> None:
        """Undo one ``pause``."""
        with self._lock:
            entry = self._entries.get(str(key))
            if entry is not None and entry.pauses > 0:
                entry.pauses -= 1

    def relocate(self, partition: Partition, source: LogDir) -> None:
        """The log is in another directory than ``source`` now: what was cleaned stays clean. Undoes one ``pause``."""
        key = partition.topic_partition
        with self._lock:
            offset = self._checkpoints.get(source, {}).pop(key, None)
            if partition.log_dir not in self._checkpoints:
                self._checkpoints[partition.log_dir] = _read_checkpoint(partition.log_dir)
            if offset is not None and self._partitions.get(str(key)) is partition:
                self._checkpoints[partition.log_dir][key] = offset
                self._write_checkpoint(partition.log_dir)
                self._write_checkpoint(source)
        self.resume(key)

    def truncate_checkpoint(self, key: TopicPartition, offset: int) -> None:
        """The log was truncated to ``offset``: what comes after it is dirty again."""
        with self._lock:
            partition = self._partitions.get(str(key))
            if partition is None or "compact" not in partition.config.cleanup_policy:
                return
            offsets = self._checkpoints[partition.log_dir]
            if offsets.get(key, 0) > offset:
                offsets[key] = offset
                self._write_checkpoint(partition.log_dir)

    def checkpoint(self, key: TopicPartition) -> int | None:
        """Where the last clean of a partition ended; None when there was none."""
        with self._lock:
            partition = self._partitions.get(str(key))
            return None if partition is None else self._checkpoints[partition.log_dir].get(key)

    def uncleanable(self) -> dict[TopicPartition, str]:
        """Partitions that are no longer cleaned, and why."""
        with self._lock:
            return {entry.partition.topic_partition: entry.problem for entry in self._entries.values() if entry.problem}

    def _write_checkpoint(self, log_dir: LogDir) -> None:
        offsets = self._checkpoints[log_dir]
        for key in [key for key in offsets if str(key) not in self._partitions]:
            del offsets[key]
        try:
            write_offset_checkpoint(log_dir.path / CLEANER_OFFSET_CHECKPOINT, offsets)
        except OSError:
            logger.exception("cannot write %s", log_dir.path / CLEANER_OFFSET_CHECKPOINT)

    # -- cleaning --------------------------------------------------------------------------------------------------

    def _step(self, number: int, cleaner: _Cleaner) -> float | None:
        """Clean one log and do retention; returns the pause until the next round in seconds, None to end."""
        if self._is_stopped or number >= self._settings.threads:
            return None
        try:
            has_cleaned = self.clean_filthiest(cleaner.last)
            self._delete_old_segments()
        except BaseException:
            cleaner.is_dead = True
            raise
        return 0.0 if has_cleaned else self._settings.backoff_ms / 1000

    def clean_filthiest(self, last: _Last | None = None) -> bool:
        """Clean the log that needs it most, on the caller's thread; False when none does."""
        task = self._choose()
        if task is None:
            return False
        last = last if last is not None else _Last()
        last.max_delay_ms = task.max_delay_ms
        started = host.monotonic_s()
        report = None
        problem = ""
        try:
            report = self._clean(task)
        except LogError as error:
            problem = str(error)
            self._tell_of_failure(task.entry.partition, error)
        except OSError as error:
            # Nothing was taken from the log: unless that is poisoned, a full disk may have room the next time.
            if not task.cancel.cancelled:
                logger.error("cleaning %s failed and is tried again later: %s", task.entry.partition, error)
            self._tell_of_failure(task.entry.partition, error)
        if problem and not task.cancel.cancelled and task.entry.partition.log.poisoned is None:
            logger.error("partition %s cannot be cleaned and is left alone: %s", task.entry.partition, problem)
        self._finish(task, report, "" if task.cancel.cancelled else problem)
        if report is not None and report.outcome == "completed":
            last.utilization = report.map_utilization
            last.bytes_read, last.bytes_written = report.bytes_read, report.bytes_written
            last.seconds = host.monotonic_s() - started
            self._tell(task, report, last.seconds)
        return report is not None

    def _choose(self) -> _Task | None:
        now_ms = self._now_ms()
        self._last_run_ms = now_ms
        with self._lock:
            found: list[tuple[_Entry, Candidate]] = []
            max_delay_ms = 0
            for partition in self._partitions.values():
                if "compact" not in partition.config.cleanup_policy:
                    continue
                entry, key = self._entry_of(partition), partition.topic_partition
                if entry.running is not None or entry.pauses or entry.problem or key in self._ending:
                    continue
                try:
                    one, delay_ms = self._look_at(key, partition, now_ms)
                except (KraftlogError, OSError) as error:
                    if not is_disk_failure(error):
                        continue  # looked at again when a descriptor is left
                    if partition.log.poisoned is None:
                        logger.error("partition %s cannot be cleaned and is left alone: %s", partition, error)
                    entry.problem = str(error)
                    continue
                max_delay_ms = max(max_delay_ms, delay_ms)
                found.append((entry, one))
            self._dirtiest_ratio = dirtiest_ratio(candidate for _, candidate in found)
            number = choose((candidate, entry.partition.config.cleaning) for entry, candidate in found)
            if number is None or self._is_stopped:
                return None
            entry, one = found[number]
            entry.running = CleanCancel()
            return _Task(entry, one, entry.running, max_delay_ms)

    def _look_at(self, key: TopicPartition, partition: Partition, now_ms: int) -> tuple[Candidate, int]:
        log, settings = partition.log, partition.config.cleaning
        offsets_of_dir = self._checkpoints[partition.log_dir]
        checkpoint = offsets_of_dir.get(key)
        # Read before the segments: one that is begun meanwhile is then left for the next look.
        active = log.active_segment_base_offset
        first_dirty = max(checkpoint or 0, log.log_start_offset)
        if first_dirty > log.log_end_offset:
            first_dirty = log.log_start_offset
        facts = LogFacts(
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            last_stable_offset=partition.last_stable_offset,
            active_base_offset=active,
            segments=[segment for segment in log.cleanable_segments(first_dirty) if segment.base_offset < active],
            is_compact_and_delete="delete" in partition.config.cleanup_policy,
        )
        offsets = offsets_to_clean(facts, checkpoint, settings, now_ms)
        if offsets.resets_checkpoint:
            if offsets.warning:
                logger.warning("partition %s: %s", partition, offsets.warning)
            offsets_of_dir[key] = offsets.first_dirty_offset
            self._write_checkpoint(partition.log_dir)
        delay_ms = max_compaction_delay_ms(facts, offsets.first_dirty_offset, settings, now_ms)
        return candidate(facts, offsets, delay_ms), delay_ms

    def _clean(self, task: _Task) -> CleanReport:
        settings = self._settings
        partition = task.entry.partition
        return partition.log.clean(
            first_dirty_offset=task.candidate.first_dirty_offset,
            first_uncleanable_offset=task.candidate.first_uncleanable_offset,
            now_ms=self._now_ms(),
            delete_retention_ms=partition.config.cleaning.delete_retention_ms,
            dedupe_buffer_bytes=settings.dedupe_bytes_per_thread,
            load_factor=settings.load_factor,
            io_buffer_bytes=settings.io_bytes_per_thread,
            cancel=task.cancel,
            throttle=self._throttle,
        )

    def _finish(self, task: _Task, report: CleanReport | None, problem: str) -> None:
        partition = task.entry.partition
        with self._lock:
            self._end(task.entry)
            task.entry.problem = problem
            key = partition.topic_partition
            is_known = self._entries.get(str(partition)) is task.entry
            if report is not None and report.outcome == "completed" and not task.cancel.cancelled and is_known:
                self._checkpoints[partition.log_dir][key] = report.next_dirty_offset
                self._write_checkpoint(partition.log_dir)

    def _end(self, entry: _Entry) -> None:
        """Nothing is done with a partition any more; called with the lock."""
        entry.running = None
        if self._entries.get(str(entry.partition)) is not entry:
            self._ending.discard(entry.partition.topic_partition)
        self._lock.notify_all()

    def _delete_old_segments(self) -> None:
        """Retention of compacted logs, which must not meet a clean; also what lies before their log start goes."""
        with self._lock:
            idle = [
                entry
                for partition in self._partitions.values()
                if "compact" in partition.config.cleanup_policy
                and (entry := self._entry_of(partition)).running is None
                and not (entry.pauses or entry.problem or partition.topic_partition in self._ending)
            ]
            for entry in idle:
                entry.running = CleanCancel()
        for entry in idle:
            partition = entry.partition
            try:
                if not self._is_stopped and partition.log.delete_old_segments(self._now_ms(), partition.high_watermark):
                    partition.replica.log_start_moved()  # fetch sessions look only at what moved
            except (LogError, OSError) as error:
                if entry.running is not None and not entry.running.cancelled:
                    logger.error("retention of %s failed: %s", partition, error)
                self._tell_of_failure(partition, error)
            finally:
                with self._lock:
                    self._end(entry)

    @staticmethod
    def _tell_of_failure(partition: Partition, error: Exception) -> None:
        """A log that takes no more writes takes its directory offline, wherever the failure was found."""
        if partition.log.poisoned is not None:
            partition.loop.call_soon_threadsafe(partition.storage_failed, error)

    def _tell(self, task: _Task, report: CleanReport, seconds: float) -> None:
        partition = task.entry.partition
        logger.info(
            "cleaned %s in %.2f s, dirty section [%d, %d): %d of %d bytes and %d of %d messages are left, "
            "%.1f %% of the buffer used",
            partition,
            seconds,
            task.candidate.first_dirty_offset,
            report.next_dirty_offset,
            report.bytes_written,
            report.bytes_read,
            report.messages_retained,
            report.messages_read,
            100 * report.map_utilization,
        )
        if report.invalid_messages:
            logger.warning("partition %s: %d messages without a key were dropped", partition, report.invalid_messages)
        if report.batches_grown:
            logger.warning(
                "partition %s: %d batches are larger than max.message.bytes now", partition, report.batches_grown
            )

    # -- metrics ---------------------------------------------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        """The gauges of Kafka's ``LogCleaner`` and ``LogCleanerManager``, by their names."""
        last = [cleaner.last for cleaner in self._cleaners]
        with self._lock:
            problems = [entry.partition for entry in self._entries.values() if entry.problem]
            uncleanable_bytes = sum(self._dirty_bytes(partition) for partition in problems)
        read = sum(stats.bytes_read for stats in last)
        written = sum(stats.bytes_written for stats in last)
        return {
            "max-buffer-utilization-percent": int(100 * max((stats.utilization for stats in last), default=0)),
            "cleaner-recopy-percent": int(100 * written / max(read, 1)),
            "max-clean-time-secs": int(max((stats.seconds for stats in last), default=0)),
            "max-compaction-delay-secs": max((stats.max_delay_ms for stats in last), default=0) // 1000,
            "DeadThreadCount": sum(cleaner.is_dead for cleaner in self._cleaners),
            "uncleanable-partitions-count": len(problems),
            "uncleanable-bytes": uncleanable_bytes,
            "max-dirty-percent": int(100 * self._dirtiest_ratio),
            "time-since-last-run-ms": self._now_ms() - self._last_run_ms,
        }

    def _dirty_bytes(self, partition: Partition) -> int:
        first_dirty = self._checkpoints[partition.log_dir].get(partition.topic_partition, 0)
        try:
            segments = partition.log.segments()
        except (KraftlogError, OSError):
            return 0
        ends = [segment.base_offset for segment in segments[1:]]
        return sum(segment.size_bytes for segment, end in zip(segments, ends, strict=False) if end > first_dirty)


def _read_checkpoint(log_dir: LogDir) -> dict[TopicPartition, int]:
    """What the last run left; without it everything counts as dirty."""
    try:
        return read_offset_checkpoint(log_dir.path / CLEANER_OFFSET_CHECKPOINT)
    except (LogError, OSError) as error:
        logger.error("%s: all logs there are cleaned from their start", error)
        return {}
