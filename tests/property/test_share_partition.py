"""Random histories of a share partition: members that crash, late answers, writes that fail, changes of leaders."""

from __future__ import annotations

import contextlib
import random

import pytest

from kraftlog.coordinator.share.share_partition import (
    Acknowledgement,
    AcquireLimits,
    SharePartition,
    SharePartitionSettings,
)
from kraftlog.coordinator.share.state_batches import RecordState, StateBatch, combine
from kraftlog.errors import KafkaError

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
LIMIT, LOCK_MS = 3, 100
MEMBERS = ("A", "B", "C")


class World:
    """A log of batches, a share coordinator that stores what succeeds, and what every member was given."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.settings = SharePartitionSettings(delivery_limit=LIMIT, lock_ms=LOCK_MS, max_locks=40)
        self.log: list[tuple[int, int]] = []
        self.stored: tuple[StateBatch, ...] = ()
        self.stored_start = 0
        self.now = 0
        self.core = SharePartition(lambda: self.settings, 0)
        self.locked: dict[int, tuple[str, int]] = {}
        self.deliveries: dict[int, int] = {}
        self.accepted: set[int] = set()

    def append(self) -> None:
        first = self.log[-1][1] + 1 if self.log else 0
        self.log.append((first, first + self.rng.randrange(6)))

    def fetch(self, member: str) -> None:
        offset = self.core.fetch_offset()
        if offset is None:
            return
        fetched = [(max(first, offset), last) for first, last in self.log if last >= offset]
        limits = AcquireLimits(
            max_records=self.rng.randrange(1, 20),
            batch_size=self.rng.randrange(1, 10),
            is_strict=self.rng.random() < 0.5,
        )
        for part in self.core.acquire(member, fetched, limits, self.now):
            for number in range(part.first, part.last + 1):
                assert number not in self.locked, (number, self.locked[number], member)
                assert number not in self.accepted
                self.locked[number] = (member, self.now + LOCK_MS)
                self.deliveries[number] = self.deliveries.get(number, 0) + 1
                assert part.delivery_count <= LIMIT
        self.write()

    def acknowledge(self, member: str) -> None:
        mine = sorted(number for number, (owner, _) in self.locked.items() if owner == member)
        if not mine:
            return
        first = self.rng.choice(mine)
        last = first
        while last + 1 in mine and self.rng.random() < 0.7:
            last += 1
        kind = self.rng.choice((ACCEPT, ACCEPT, RELEASE, REJECT, RENEW))
        try:
            write_id = self.core.acknowledge(member, [Acknowledgement(first, last, [kind])], self.now)
        except KafkaError as error:
            raise AssertionError(f"{member} has {first}..{last}") from error
        if kind == RENEW:
            for number in range(first, last + 1):
                self.locked[number] = (member, self.now + LOCK_MS)
        elif self.write(write_id):
            for number in range(first, last + 1):
                del self.locked[number]
                if kind == ACCEPT:
                    self.accepted.add(number)

    def write(self, wanted: int | None = None) -> bool:
        """Store what is due; whether the write that somebody waits for succeeded."""
        succeeded = True
        for write in self.core.take_writes():
            fails = write.write_id == wanted and self.rng.random() < 0.2
            self.core.on_written(write.write_id, 1 if fails else 0)
            if fails:
                succeeded = False
            else:
                self.stored_start = max(self.stored_start, write.start_offset)
                self.stored = combine(self.stored, write.batches, self.stored_start)
        return succeeded

    def late_acknowledgement(self, member: str) -> None:
        """A member answers for records that it lost, or never had: nothing changes."""
        others = [number for number in self.deliveries if self.locked.get(number, ("",))[0] != member]
        if others:
            number = self.rng.choice(others)
            before = self.core.complete_count
            with contextlib.suppress(KafkaError):
                self.core.acknowledge(member, [Acknowledgement(number, number, [ACCEPT])], self.now)
            assert (self.core.complete_count, self.core.take_writes()) == (before, [])

    def pass_time(self) -> None:
        self.now += self.rng.randrange(LOCK_MS)
        self.core.handle_timeout(self.now)
        self.write()
        self.locked = {number: lock for number, lock in self.locked.items() if lock[1] > self.now}

    def crash(self, member: str) -> None:
        self.write(self.core.release(member))
        self.locked = {
            number: lock for number, lock in self.locked.items() if lock[0] != member or self._is_held(number)
        }

    def _is_held(self, number: int) -> bool:
        """The write of the release failed: the lock goes on until its time is over."""
        return any(
            run.first <= number <= run.last and run.state is RecordState.ACQUIRED
            for batch in self.core._batches
            for run in batch.runs
        )

    def change_leader(self) -> None:
        self.core = SharePartition(lambda: self.settings, self.stored_start, self.stored)
        self.locked.clear()

    def step(self) -> None:
        member = self.rng.choice(MEMBERS)
        action = self.rng.choices(
            (
                self.append,
                lambda: self.fetch(member),
                lambda: self.acknowledge(member),
                self.pass_time,
                lambda: self.late_acknowledgement(member),
                lambda: self.crash(member),
                self.change_leader,
            ),
            (4, 10, 10, 3, 2, 1, 0.3),
        )[0]
        action()
        assert 0 <= self.core.start_offset <= self.core.next_offset


@pytest.mark.parametrize("seed", range(40))
def test_every_record_is_accepted_or_archived_and_none_is_delivered_while_locked(seed: int) -> None:
    """SHGR-51, SHGR-50."""
    world = World(seed)
    for _ in range(400):
        world.step()
    for _ in range(LIMIT * 400):
        end = world.log[-1][1] + 1 if world.log else 0
        if world.core.start_offset == end:
            break
        world.fetch("A")
        world.now += LOCK_MS
        world.core.handle_timeout(world.now)
        world.write()
        world.locked.clear()
    assert world.core.start_offset == (world.log[-1][1] + 1 if world.log else 0)
    assert world.accepted <= set(world.deliveries)
