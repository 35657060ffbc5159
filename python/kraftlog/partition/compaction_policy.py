"""What to compact next: pure decisions over facts that :mod:`kraftlog.runtime.replica.compactor` collects.

Follows Kafka's ``LogCleanerManager`` and ``LogToClean``: the same bounds, the same ratio, the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = [
    "Candidate",
    "CleaningSettings",
    "LogFacts",
    "OffsetsToClean",
    "SegmentFacts",
    "candidate",
    "choose",
    "dirtiest_ratio",
    "max_compaction_delay_ms",
    "offsets_to_clean",
]


class SegmentFacts(Protocol):
    """A segment that is not active."""

    @property
    def base_offset(self) -> int:
        """First offset it may hold."""

    @property
    def size_bytes(self) -> int:
        """Bytes of its batches."""

    @property
    def largest_timestamp(self) -> int:
        """Largest timestamp in it, in milliseconds."""

    @property
    def first_timestamp(self) -> int | None:
        """Largest timestamp of its first batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningSettings:
    """A topic's settings on compaction; times in milliseconds."""

    min_cleanable_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = (1 << 63) - 1
    delete_retention_ms: int = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """A log at one moment.

    Attributes:
        last_stable_offset: Exclusive end of what is committed and decided.
        segments: All but the active one, ascending; timestamps from the one that holds the first dirty offset on.
    """

    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    active_base_offset: int
    segments: Sequence[SegmentFacts]
    is_compact_and_delete: bool = False


@dataclass(frozen=True, slots=True)
class OffsetsToClean:
    """The dirty range: first offset, inclusive, and exclusive end.

    Attributes:
        resets_checkpoint: The checkpoint lay outside of the log, and has to be put to the first dirty offset.
        warning: What to tell about that; empty when it is nothing unusual.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    resets_checkpoint: bool = False
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A log that could be cleaned.

    Attributes:
        first_uncleanable_offset: Base offset of the first segment to leave alone.
        needs_compaction_now: ``max.compaction.lag.ms`` has passed for something in it.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    needs_compaction_now: bool

    @property
    def total_bytes(self) -> int:
        """Bytes that a clean would read."""
        return self.clean_bytes + self.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float:
        """Dirty share of the bytes, 0 to 1."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    def is_due(self, settings: CleaningSettings) -> bool:
        """Whether there is enough to do, or something must be done."""
        if self.total_bytes == 0:
            return False
        must = self.needs_compaction_now and self.cleanable_bytes > 0
        return must or self.cleanable_ratio > settings.min_cleanable_ratio


def _from(segments: Sequence[SegmentFacts], offset: int) -> Sequence[SegmentFacts]:
    """The segment that holds ``offset`` and those after it."""
    first = 0
    for index, segment in enumerate(segments):
        if segment.base_offset > offset:
            break
        first = index
    return segments[first:]


def _non_active_from(facts: LogFacts, offset: int) -> Sequence[SegmentFacts]:
    # An offset of the active segment lies in none of these.
    return [] if offset >= facts.active_base_offset else _from(facts.segments, offset)


def offsets_to_clean(
    facts: LogFacts, checkpoint: int | None, settings: CleaningSettings, now_ms: int
) -> OffsetsToClean:
    """The dirty range of a log.

    Args:
        facts: The log.
        checkpoint: Where the last clean ended, None when there was none.
        settings: Of its topic.
        now_ms: Wall clock.
    """
    start = facts.log_start_offset
    first_dirty = start if checkpoint is None else checkpoint
    resets, warning = False, ""
    if first_dirty < start:
        resets = True
        if not facts.is_compact_and_delete:
            warning = (
                f"the cleaner checkpoint {first_dirty} is before the log start offset {start}, where it begins anew"
            )
        first_dirty = start
    elif first_dirty > facts.log_end_offset:
        resets = True
        warning = (
            f"the cleaner checkpoint {first_dirty} is beyond the log end offset {facts.log_end_offset}; "
            f"all is taken as dirty from {start} on"
        )
        first_dirty = start
    bounds = [facts.last_stable_offset, facts.active_base_offset]
    min_lag_ms = max(settings.min_compaction_lag_ms, 0)
    if min_lag_ms > 0:
        young = (
            segment.base_offset
            for segment in _non_active_from(facts, first_dirty)
            if segment.largest_timestamp > now_ms - min_lag_ms
        )
        bounds.extend(base for base in [next(young, None)] if base is not None)
    return OffsetsToClean(first_dirty, max(first_dirty, min(bounds)), resets, warning)


def max_compaction_delay_ms(facts: LogFacts, first_dirty_offset: int, settings: CleaningSettings, now_ms: int) -> int:
    """How long ago ``max.compaction.lag.ms`` passed for the oldest dirty segment; 0 when it has not."""
    stamps = [segment.first_timestamp for segment in _non_active_from(facts, first_dirty_offset)]
    earliest = min((stamp for stamp in stamps if stamp is not None and stamp > 0), default=None)
    if earliest is None:
        return 0
    return max(now_ms - max(settings.max_compaction_lag_ms, 0) - earliest, 0)


def candidate(facts: LogFacts, offsets: OffsetsToClean, delay_ms: int) -> Candidate:
    """What a clean of this log would do."""
    after = _non_active_from(facts, offsets.first_uncleanable_offset)
    first_uncleanable = after[0].base_offset if after else facts.active_base_offset
    dirty_from = min(offsets.first_dirty_offset, first_uncleanable)
    dirty = _from(facts.segments, dirty_from) if dirty_from < first_uncleanable else []
    return Candidate(
        first_dirty_offset=offsets.first_dirty_offset,
        first_uncleanable_offset=first_uncleanable,
        clean_bytes=sum(
            segment.size_bytes for segment in facts.segments if segment.base_offset < offsets.first_dirty_offset
        ),
        cleanable_bytes=sum(segment.size_bytes for segment in dirty if segment.base_offset < first_uncleanable),
        needs_compaction_now=delay_ms > 0,
    )


def choose(candidates: Iterable[tuple[Candidate, CleaningSettings]]) -> int | None:
    """The number of the filthiest log that is due; None when none is."""
    due = [
        (candidate.cleanable_ratio, number)
        for number, (candidate, settings) in enumerate(candidates)
        if candidate.is_due(settings)
    ]
    return max(due)[1] if due else None


def dirtiest_ratio(candidates: Iterable[Candidate]) -> float:
    """Dirty share of the dirtiest log, whether it is due or not."""
    return max((candidate.cleanable_ratio for candidate in candidates if candidate.total_bytes), default=0.0)
