"""Truncation is told by leader epochs, whatever became of the replicas."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from kraftlog.errors import LogTruncatedError
from kraftlog.spark.stream_history import check_position, epoch_before
from kraftlog.spark.stream_offsets import Position

HISTORY = [(1, 0), (4, 10), (5, 25)]


@pytest.mark.parametrize(
    ("offset", "epoch"), [(0, -1), (1, 1), (10, 1), (11, 4), (25, 4), (26, 5), (10**15, 5)], ids=str
)
def test_the_epoch_is_that_of_the_record_before(offset: int, epoch: int) -> None:
    assert epoch_before(HISTORY, offset) == epoch


def check(offset: int, epoch: int, history: Any = HISTORY, start: int = 0, end: int | None = 40) -> None:
    check_position(
        "partition t-0 (logs/t-0)",
        Position(offset, epoch),
        history=history,
        log_start_offset=start,
        log_end_offset=end,
    )


def test_what_is_still_there_passes() -> None:
    check(0, -1)
    check(25, 4)
    check(26, 5)
    check(40, 5)
    check(20, -1)  # nothing was known, so nothing can differ


def test_what_retention_took_is_no_truncation() -> None:
    check(5, 1, history=[(4, 12), (5, 25)], start=12)
    check(12, 4, history=[(4, 12), (5, 25)], start=12)
    check(11, 3, history=[(4, 12), (5, 25)], start=10)  # the history begins later than the log
    check(7, 1, history=[], start=30)


@pytest.mark.parametrize(
    ("offset", "epoch", "text"),
    [
        (41, 5, "offset 41 of leader epoch 5 was there, the log ends at 40 of leader epoch 5 now"),
        (30, 4, "before offset 30 was of leader epoch 4 and is of leader epoch 5 now; what was read from offset 25 on"),
        (10, 3, "before offset 10 was of leader epoch 3 and is of leader epoch 1 now"),
        (41, -1, "offset 41 of leader epoch unknown was there"),
    ],
)
def test_the_error_names_offset_and_both_epochs(offset: int, epoch: int, text: str) -> None:
    with pytest.raises(LogTruncatedError, match=r"partition t-0 \(logs/t-0\) was truncated: .*" + text):
        check(offset, epoch)


def test_a_log_without_its_history_is_not_believed() -> None:
    with pytest.raises(LogTruncatedError, match="leader epoch 4 and is of leader epoch unknown now"):
        check(20, 4, history=[])


def test_an_epoch_of_the_history_is_not_excused_by_its_beginning_later() -> None:
    with pytest.raises(LogTruncatedError, match="leader epoch 5 and is of leader epoch unknown now"):
        check(11, 5, history=[(4, 12), (5, 25)], start=10)


class Replica:
    """A log as a list of what was written: (epoch, unique number) by offset."""

    def __init__(self) -> None:
        self.records: list[tuple[int, int]] = []
        self.start = 0

    def history(self) -> list[tuple[int, int]]:
        """What leader-epoch-checkpoint has: retention moves the first entry up to the log start offset."""
        entries: list[tuple[int, int]] = []
        for offset, (epoch, _) in enumerate(self.records):
            if offset >= self.start and (not entries or entries[-1][0] != epoch):
                entries.append((epoch, offset))
        return entries

    def follow(self, leader: Replica, up_to: int) -> None:
        """Truncate to what both have, then fetch."""
        common = 0
        while common < min(len(self.records), len(leader.records)) and self.records[common] == leader.records[common]:
            common += 1
        self.records = leader.records[: max(common, min(up_to, len(leader.records)))]
        self.start = min(max(self.start, leader.start), len(self.records))


def run_history(rng: random.Random) -> Counter[str]:
    """One life of three replicas with elections of any replica, unclean ones too; the first one's directory is read."""
    replicas = [Replica() for _ in range(3)]
    leader, epoch, number = 0, 0, 0
    noted: list[tuple[Position, list[tuple[int, int]]]] = []
    outcomes: Counter[str] = Counter()
    read = replicas[0]
    for _ in range(60):
        match rng.choices(["lead", "append", "follow", "retain", "note"], [2, 4, 4, 0.5, 3])[0]:
            case "lead":
                leader, epoch = rng.randrange(3), epoch + 1
            case "append":
                for _ in range(rng.randrange(1, 4)):
                    number += 1
                    replicas[leader].records.append((epoch, number))
            case "follow":
                follower = rng.choice([0, 0, 1, 2])
                if follower != leader:
                    replicas[follower].follow(replicas[leader], rng.randrange(len(replicas[leader].records) + 1))
            case "retain":
                read.start = max(read.start, rng.randrange(len(read.records) + 1) // 2)
            case "note":
                offset = rng.randrange(read.start, len(read.records) + 1)
                noted.append((Position(offset, epoch_before(read.history(), offset)), read.records[:offset]))
        position, before = rng.choice(noted) if noted else (Position(0), [])
        same = read.records[read.start : position.offset] == before[read.start :]
        try:
            check_position(
                "partition",
                position,
                history=read.history(),
                log_start_offset=read.start,
                log_end_offset=len(read.records),
            )
        except LogTruncatedError:
            assert not same, (position, read.history())
            outcomes["truncated"] += 1
        else:
            # Without an epoch only the length is known: the log began at this offset when it was noted.
            assert same or position.epoch == -1, (position, read.history())
            outcomes["same" if position.offset > read.start else "gone"] += 1
    return outcomes


def test_a_position_passes_if_and_only_if_the_records_before_it_are_the_same() -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(1500):
        outcomes += run_history(random.Random(seed))
    assert min(outcomes[name] for name in ("truncated", "same", "gone")) > 5000, outcomes
