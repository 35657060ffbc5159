"""The decisions of compaction, by tables."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kraftlog.partition.compaction_policy import (
    Candidate,
    CleaningSettings,
    LogFacts,
    OffsetsToClean,
    candidate,
    choose,
    dirtiest_ratio,
    max_compaction_delay_ms,
    offsets_to_clean,
)

NOW_MS = 1_000_000
DEFAULTS = CleaningSettings()


@dataclass(frozen=True)
class Segment:
    base_offset: int
    size_bytes: int = 100
    largest_timestamp: int = 1000
    first_timestamp: int | None = 900


def facts(
    *bases: int, active: int = 50, start: int = 0, stable: int = 60, end: int = 60, both: bool = False
) -> LogFacts:
    return LogFacts(
        log_start_offset=start,
        log_end_offset=end,
        last_stable_offset=stable,
        active_base_offset=active,
        segments=[Segment(base, largest_timestamp=base * 100, first_timestamp=base * 90) for base in bases],
        is_compact_and_delete=both,
    )


@pytest.mark.parametrize(
    ("log", "checkpoint", "settings", "expected"),
    [
        (facts(0, 10, 20), None, DEFAULTS, (0, 50)),
        (facts(0, 10, 20), 15, DEFAULTS, (15, 50)),
        (facts(0, 10, 20, stable=33), 15, DEFAULTS, (15, 33)),
        (facts(0, 10, 20, stable=7), 15, DEFAULTS, (15, 15)),
        (facts(active=0), None, DEFAULTS, (0, 0)),
        (facts(0, 10, 20, stable=60, active=60), 50, DEFAULTS, (50, 60)),
        # The first dirty segment with something younger than the lag.
        (facts(0, 10, 20, 30), 5, CleaningSettings(min_compaction_lag_ms=NOW_MS - 1999), (5, 20)),
        (facts(0, 10, 20, 30), 5, CleaningSettings(min_compaction_lag_ms=NOW_MS - 2000), (5, 30)),
        (facts(0, 10, 20, 30), 25, CleaningSettings(min_compaction_lag_ms=NOW_MS - 1), (25, 25)),
        (facts(0, 10, 20), 5, CleaningSettings(min_compaction_lag_ms=1), (5, 50)),
    ],
)
def test_the_dirty_range(
    log: LogFacts, checkpoint: int | None, settings: CleaningSettings, expected: tuple[int, int]
) -> None:
    assert offsets_to_clean(log, checkpoint, settings, NOW_MS) == OffsetsToClean(*expected)


@pytest.mark.parametrize(
    ("log", "checkpoint", "warns"),
    [
        (facts(10, 20, start=12), 5, True),
        (facts(10, 20, start=12, both=True), 5, False),
        (facts(10, 20, start=12, both=True), 61, True),
    ],
)
def test_a_checkpoint_outside_of_the_log_is_reset(log: LogFacts, checkpoint: int, warns: bool) -> None:
    found = offsets_to_clean(log, checkpoint, DEFAULTS, NOW_MS)
    assert (found.first_dirty_offset, found.resets_checkpoint, bool(found.warning)) == (12, True, warns)
    assert not offsets_to_clean(log, 60, DEFAULTS, NOW_MS).resets_checkpoint


@pytest.mark.parametrize(
    ("log", "offsets", "expected"),
    [
        # (first uncleanable, clean bytes, cleanable bytes): the bound goes back to the start of its segment.
        (facts(0, 10, 20), OffsetsToClean(0, 50), (50, 0, 300)),
        (facts(0, 10, 20), OffsetsToClean(10, 50), (50, 100, 200)),
        # A segment that is half clean counts on both sides.
        (facts(0, 10, 20), OffsetsToClean(15, 50), (50, 200, 200)),
        (facts(0, 10, 20), OffsetsToClean(0, 15), (10, 0, 100)),
        (facts(0, 10, 20), OffsetsToClean(25, 28), (20, 300, 0)),
        (facts(0, 10, 20, active=30), OffsetsToClean(30, 30), (30, 300, 0)),
        (facts(active=0), OffsetsToClean(0, 0), (0, 0, 0)),
    ],
)
def test_bytes_on_both_sides(log: LogFacts, offsets: OffsetsToClean, expected: tuple[int, int, int]) -> None:
    found = candidate(log, offsets, 0)
    assert (found.first_uncleanable_offset, found.clean_bytes, found.cleanable_bytes) == expected


@pytest.mark.parametrize(
    ("log", "first_dirty", "lag_ms", "expected"),
    [
        (facts(1, 10, 20), 1, 1000, NOW_MS - 1000 - 90),
        (facts(1, 10, 20), 10, 1000, NOW_MS - 1000 - 900),
        (facts(1, 10, 20), 10, NOW_MS, 0),
        # A first timestamp of 0 is none; the active segment does not count.
        (facts(0, 10), 0, 1000, NOW_MS - 1000 - 900),
        (facts(0), 0, 0, 0),
        (facts(1, 10), 50, 0, 0),
    ],
)
def test_how_late_compaction_is(log: LogFacts, first_dirty: int, lag_ms: int, expected: int) -> None:
    settings = CleaningSettings(max_compaction_lag_ms=lag_ms)
    assert max_compaction_delay_ms(log, first_dirty, settings, NOW_MS) == expected


def dirt(clean: int, cleanable: int, *, must: bool = False) -> tuple[Candidate, CleaningSettings]:
    return Candidate(0, 10, clean, cleanable, must), DEFAULTS


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        ([], None),
        ([dirt(0, 0)], None),
        ([dirt(50, 50)], None),
        ([dirt(49, 51)], 0),
        ([dirt(40, 60), dirt(10, 90), dirt(30, 70)], 1),
        ([dirt(90, 10, must=True)], 0),
        ([dirt(90, 0, must=True)], None),
        ([dirt(90, 10, must=True), dirt(40, 60)], 1),
    ],
)
def test_the_filthiest_log_that_is_due_is_chosen(
    candidates: list[tuple[Candidate, CleaningSettings]], expected: int | None
) -> None:
    assert choose(candidates) == expected


def test_the_dirtiest_ratio_counts_logs_that_are_not_due() -> None:
    assert dirtiest_ratio([dirt(75, 25)[0], dirt(90, 10)[0], dirt(0, 0)[0]]) == 0.25
    assert dirtiest_ratio([]) == 0.0
