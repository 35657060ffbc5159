"""A tail of growing log directories: which offsets a batch has, and what its tasks read. Knows nothing of Spark.

What has to outlive a process is in the offsets that Spark keeps. What is in memory here only spares work or words: a
fixed end of ``Trigger.AvailableNow``, when the last batch began, which losses were told already.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kraftlog._kraftlog import read_transactions
from kraftlog.errors import LogTruncatedError, OffsetOutOfRangeError
from kraftlog.spark.data_loss import DataLoss, report_losses
from kraftlog.spark.options import SourceOptions
from kraftlog.spark.plan import (
    OffsetRange,
    PartitionLog,
    list_partitions,
    pack_ranges,
    resolve_offsets,
    split_ranges,
)
from kraftlog.spark.stream_history import EpochHistory, epoch_before
from kraftlog.spark.stream_limits import spread
from kraftlog.spark.stream_offsets import PartitionKey, Position, StreamOffset
from kraftlog.spark.stream_survey import SurveyedLog, selection, survey

__all__ = ["BatchLimit", "MarkedRange", "Tail"]

logger = logging.getLogger("kraftlog.spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimit:
    """How many offsets a batch has.

    Args:
        most: At most so many; None for all that are there.
        least: Fewer wait, until the last batch is ``maxTriggerDelay`` ago; None never waits.
    """

    most: int | None = None
    least: int | None = None


@dataclass(frozen=True, slots=True)
class MarkedRange:
    """What a task reads of a partition.

    Args:
        offsets: The range.
        end: The end of the whole batch in that partition: the log has to have this still when the range is read.
    """

    offsets: OffsetRange
    end: Position


@dataclass(slots=True)
class _Growth:
    """A partition that a batch may read of."""

    log: SurveyedLog
    start: Position
    end: int
    history: EpochHistory  # read after the end was found: an epoch is noted before its records are written
    topic_id: str | None


class Tail:
    """The source of one streaming query.

    Args:
        options: Of the source.
        clock: Seconds that rise, for ``maxTriggerDelay``.
    """

    def __init__(self, options: SourceOptions, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._clock = clock
        self._target: Mapping[PartitionKey, int] | None = None
        self._last_batch: float | None = None
        self._told: set[str] = set()
        self._available: StreamOffset | None = None

    def initial(self) -> StreamOffset:
        """Where a new query begins, by the options.

        Raises:
            FileNotFoundError, ValueError, LogError: As planning a batch read.
        """
        logs = list_partitions(self._options)
        resolved = resolve_offsets(self._options, logs)
        found = self._survey()
        positions = {}
        for log in logs:
            key = log.topic, log.partition
            if key in found:
                offset = resolved[key][0]
                positions[key] = Position(offset, epoch_before(found[key].history(), offset), found[key].topic_id())
        return StreamOffset(positions, is_initial=True)

    def fix_target(self) -> None:
        """Take what is there now as the end, for ``Trigger.AvailableNow``."""
        self._target = {key: log.end_offset(self._options, known=-1) for key, log in self._survey().items()}

    def latest(self, start: StreamOffset, limit: BatchLimit) -> StreamOffset:
        """The end of a batch that begins at ``start``; ``start`` itself when there is nothing to read.

        Raises:
            LogTruncatedError: A log no longer has what was read of it; with ``failOnDataLoss`` also a topic that was
                deleted and made again.
            FileNotFoundError: A partition is gone, with ``failOnDataLoss``.
            OffsetOutOfRangeError: A new partition does not begin at offset 0, with ``failOnDataLoss``.
        """
        found = self._survey()
        growths = {}
        for key, log in found.items():
            growth = self._growth(log, start.positions.get(key))
            if growth is not None:
                growths[key] = growth
        for key, position in start.positions.items():
            if key not in found:
                self._lose(
                    FileNotFoundError,
                    f"partition {key[0]}-{key[1]}, read up to offset {position.offset}, is gone from"
                    f" {', '.join(self._options.paths)}",
                )
        self._available = StreamOffset({key: Position(growth.end) for key, growth in growths.items()})
        lags = {key: self._target_of(key, growth) - growth.start.offset for key, growth in growths.items()}
        if self._is_delayed(sum(lags.values()), limit):
            lags = dict.fromkeys(lags, 0)
        shares = lags if limit.most is None else spread(limit.most, lags)
        # A partition that is gone keeps its place: it may come back, as when it moves between the directories.
        positions = dict(start.positions)
        for key, growth in growths.items():
            positions[key] = _moved(growth, shares[key])
        if start.is_initial:
            return StreamOffset(positions, batch_start=start.positions)
        return start if positions == start.positions else StreamOffset(positions)

    def available(self) -> StreamOffset:
        """What there was to read when :meth:`latest` looked last, limits and targets aside; looks now before that."""
        if self._available is not None:
            return self._available
        ends = {key: log.end_offset(self._options, known=-1) for key, log in self._survey().items()}
        return StreamOffset({key: Position(end) for key, end in ends.items()})

    def plan(self, start: StreamOffset, end: StreamOffset) -> list[tuple[MarkedRange, ...]]:
        """What each task of a batch reads, together each offset from ``start`` up to, without, ``end`` once.

        Raises:
            LogTruncatedError: A log no longer has the batch or what was before it.
            FileNotFoundError, OffsetOutOfRangeError: Records of the batch are gone, with ``failOnDataLoss``.
        """
        starts = end.starting_at(start)
        moved = {}
        for key, position in end.positions.items():
            begin = starts.get(key)
            if begin is None or _is_other_topic(begin, position.topic_id):
                begin = Position(0)
            if begin.offset != position.offset:
                moved[key] = begin, position
        found = self._survey() if moved else {}
        logs: list[PartitionLog] = []
        offsets: dict[PartitionKey, tuple[int, int]] = {}
        losses: list[DataLoss] = []
        for key, (begin, position) in sorted(moved.items()):
            log = self._log_of_range(key, found.get(key), begin, position, losses)
            if log is not None:
                logs.append(log)
                offsets[key] = max(begin.offset, min(log.log_start_offset, position.offset)), position.offset
        report_losses(self._options, losses)
        tasks = pack_ranges(self._options, split_ranges(self._options, logs, offsets))
        # The mark says what last_epoch would say, and more.
        return [
            tuple(
                MarkedRange(
                    replace(offset_range, last_epoch=None), end.positions[offset_range.topic, offset_range.partition]
                )
                for offset_range in task
            )
            for task in tasks
        ]

    def _survey(self) -> dict[PartitionKey, SurveyedLog]:
        return survey(self._options.paths, selection(self._options))

    def _growth(self, log: SurveyedLog, start: Position | None) -> _Growth | None:
        """How far a partition can be read, after a look whether it is the one that was read before."""
        key = log.topic, log.partition
        if start is None and self._target is not None and key not in self._target:
            return None
        topic_id = log.topic_id()
        if start is not None and _is_other_topic(start, topic_id):
            self._lose(
                LogTruncatedError,
                f"topic {log.topic} was deleted and made again: {log.name} was read up to offset {start.offset} of the"
                f" topic with id {start.topic_id}, its id is {topic_id} now",
            )
            start = None
        if start is None:
            begin = log.log_start_offset()
            if begin > 0:
                self._lose(
                    OffsetOutOfRangeError, f"{log.name} is new and begins at offset {begin}: those before are gone"
                )
            start = Position(begin, epoch_before(log.history(), begin), topic_id)
        end = log.end_offset(self._options, known=start.offset)
        log_end = log.log_end_offset(self._options) if end < start.offset else None
        history = log.history()
        log.check(start, log_end_offset=log_end, history=history)
        return _Growth(log, start, max(end, start.offset), history, topic_id)

    def _target_of(self, key: PartitionKey, growth: _Growth) -> int:
        if self._target is None:
            return growth.end
        return max(min(growth.end, self._target.get(key, 0)), growth.start.offset)

    def _is_delayed(self, lag: int, limit: BatchLimit) -> bool:
        # A first batch never waits, as with Spark's Kafka source. AvailableNow has to come to its end.
        now = self._clock()
        if limit.least is not None and self._target is None and self._last_batch is not None and lag < limit.least:
            waited_ms = (now - self._last_batch) * 1000
            if waited_ms < self._options.max_trigger_delay_ms:
                return True
        if lag:
            self._last_batch = now
        return False

    def _log_of_range(
        self,
        key: PartitionKey,
        log: SurveyedLog | None,
        begin: Position,
        end: Position,
        losses: list[DataLoss],
    ) -> PartitionLog | None:
        """Facts of a partition of which a batch reads; None when all of it is gone and that is no error."""
        name = f"{key[0]}-{key[1]}"
        if end.offset < begin.offset:
            message = f"partition {name}: a batch cannot go back from offset {begin.offset} to {end.offset}"
            raise LogTruncatedError(message)
        batch = f"offsets [{begin.offset}, {end.offset}) of {name} are gone"
        if log is None:
            self._lose(FileNotFoundError, f"{batch}: no such partition in {', '.join(self._options.paths)}")
            losses.append(_loss(key, begin.offset, end.offset, self._options.paths[0], "the partition is gone"))
            return None
        topic_id = log.topic_id()
        if _is_other_topic(end, topic_id):
            reason = f"the topic was deleted and made again, its id was {end.topic_id} and is {topic_id}"
            self._lose(LogTruncatedError, f"{batch}: {reason}")
            losses.append(_loss(key, begin.offset, end.offset, log.path, reason))
            return None
        log_end = log.log_end_offset(self._options)
        history = log.history()
        log.check(begin, log_end_offset=None, history=history)
        log.check(end, log_end_offset=log_end, history=history)
        log_start = log.log_start_offset()
        if log_start > begin.offset:
            gone_to = min(log_start, end.offset)
            reason = f"the log starts at offset {log_start}"
            self._lose(OffsetOutOfRangeError, f"offsets [{begin.offset}, {gone_to}) of {log.name} are gone: {reason}")
            losses.append(_loss(key, begin.offset, gone_to, log.path, reason))
        aborted = None
        if self._options.isolation_level == "read_committed":
            # To the end of the log: the marker of a transaction may lie behind the end of the batch.
            aborted = tuple(read_transactions(log.path, start_offset=begin.offset).aborted)
        return PartitionLog(
            path=log.path,
            topic=log.topic,
            partition=log.partition,
            log_start_offset=log_start,
            high_watermark=None,
            log_end_offset=max(end.offset, log_start),
            aborted=aborted,
        )

    def _lose(self, error: type[Exception], message: str) -> None:
        """What ``failOnDataLoss`` decides: an error, or a warning the first time.

        Raises:
            Exception: ``error``.
        """
        if self._options.fail_on_data_loss:
            message = f"{message}; with failOnDataLoss=false the query goes on without"
            raise error(message)
        if message not in self._told:
            self._told.add(message)
            logger.warning("failOnDataLoss=false: %s", message)


def _moved(growth: _Growth, share: int) -> Position:
    if not share:
        return growth.start
    offset = growth.start.offset + share
    return Position(offset, epoch_before(growth.history, offset), growth.topic_id)


def _is_other_topic(position: Position, topic_id: str | None) -> bool:
    return None not in {position.topic_id, topic_id} and position.topic_id != topic_id


def _loss(key: PartitionKey, start_offset: int, end_offset: int, path: str, reason: str) -> DataLoss:
    return DataLoss(
        topic=key[0], partition=key[1], start_offset=start_offset, end_offset=end_offset, path=path, reason=reason
    )
