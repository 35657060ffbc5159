"""A long poll reads again only what moved."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog.errors import ErrorCode
from kraftlog.runtime.replica import fetch_reader, long_poll
from kraftlog.runtime.replica.fetch_reader import FetchLimits, PartitionRead
from kraftlog.runtime.replica.long_poll import FetchWait


class Partition:
    """A partition with a number of bytes to read."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.waiters: set[FetchWait] = set()
        self.size_bytes = 0
        self.error_code = 0
        self.high_watermark = -1
        self.is_leader = True

    def add_waiter(self, waiter: FetchWait) -> None:
        self.waiters.add(waiter)

    def remove_waiter(self, waiter: FetchWait) -> None:
        self.waiters.discard(waiter)

    def move(self) -> None:
        for waiter in list(self.waiters):
            waiter.partition_moved(self)  # type: ignore[arg-type]


class Bench:
    """Partitions, and how often each was read."""

    def __init__(self, count: int) -> None:
        self.partitions = [Partition(index) for index in range(count)]
        self.counts: Counter[int] = Counter()
        self.asked: list[tuple[int, int, bool]] = []

    def read(self, _replicas: Any, wanted: Any, limits: FetchLimits, left: int, *, is_first: bool) -> PartitionRead:
        partition = self.partitions[wanted.index]
        self.counts[wanted.index] += 1
        self.asked.append((wanted.index, left, is_first))
        read = PartitionRead(wanted)
        read.partition = partition  # type: ignore[assignment]
        is_refused = limits.needs_leader and not partition.is_leader
        read.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_refused else partition.error_code
        read.size_bytes = min(partition.size_bytes, max(left, 1 if is_first else 0))
        return read

    def wait(
        self, *, min_bytes: int, max_bytes: int = 1000, max_wait_ms: int = 60_000, needs_leader: bool = True
    ) -> FetchWait:
        limits = FetchLimits(
            isolation_level=0,
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            uses_topic_ids=False,
            needs_leader=needs_leader,
        )
        wanted: Any = [SimpleNamespace(index=partition.index) for partition in self.partitions]
        reads = [self.read(None, request, limits, max_bytes, is_first=True) for request in wanted]
        assert not fetch_reader.is_enough(reads, limits)
        self.counts.clear()
        self.asked.clear()
        source: Any = None
        return FetchWait(source, wanted, limits, reads, lambda reads: [read.size_bytes for read in reads])


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Bench]:
    def make(count: int) -> Bench:
        made = Bench(count)
        monkeypatch.setattr(long_poll, "read_partition", made.read)
        return made

    return make


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_a_move_between_the_read_and_the_wait_is_not_lost(bench: Callable[[int], Bench]) -> None:
    async def main() -> None:
        one = bench(3)
        one.partitions[1].high_watermark = 1  # the reads are of -1
        waiting = one.wait(min_bytes=1)
        one.partitions[1].size_bytes = 7
        assert await waiting.future == [0, 7, 0]
        assert one.counts == {1: 1}

    asyncio.run(main())


def test_only_the_partition_that_moved_is_read_again(bench: Callable[[int], Bench]) -> None:
    async def main() -> None:
        one = bench(100)
        wait = one.wait(min_bytes=30)
        for size in (10, 20):
            one.partitions[7].size_bytes = size
            one.partitions[7].move()
            one.partitions[7].move()
            await turns()
        assert one.counts == {7: 2}, "once per turn"
        assert not wait.future.done()
        one.partitions[3].size_bytes = 10
        one.partitions[3].move()
        answer = await wait.future
        assert one.counts == {7: 2, 3: 1}
        assert (answer[7], answer[3], sum(answer)) == (20, 10, 30)
        assert not any(partition.waiters for partition in one.partitions)

    asyncio.run(main())


def test_what_others_have_counts_against_the_limit(bench: Callable[[int], Bench]) -> None:
    async def main() -> None:
        one = bench(2)
        wait = one.wait(min_bytes=45, max_bytes=50)
        one.partitions[0].size_bytes = 40
        one.partitions[0].move()
        await turns()
        one.partitions[1].size_bytes = 40
        one.partitions[1].move()
        assert await wait.future == [40, 10]
        assert one.asked == [(0, 50, True), (1, 10, False)]

    asyncio.run(main())


def test_an_error_ends_the_wait(bench: Callable[[int], Bench]) -> None:
    async def main() -> None:
        one = bench(3)
        wait = one.wait(min_bytes=10)
        one.partitions[1].error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        one.partitions[1].move()
        await wait.future
        assert one.counts == {1: 1}

    asyncio.run(main())


def test_a_lost_leadership_ends_the_wait_though_followers_serve_consumers(bench: Callable[[int], Bench]) -> None:
    async def main() -> None:
        one = bench(3)
        one.partitions[0].is_leader = False
        wait = one.wait(min_bytes=10, needs_leader=False)
        one.partitions[0].move()
        await asyncio.sleep(0)
        assert not wait.future.done()
        one.partitions[1].is_leader = False
        one.partitions[1].move()
        await wait.future
        assert [read.error_code for read in wait._reads] == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0]

    asyncio.run(main())


def test_time_that_is_over_answers_with_what_was_read(bench: Callable[[int], Bench]) -> None:
    async def main() -> None:
        one = bench(3)
        wait = one.wait(min_bytes=100, max_wait_ms=20)
        one.partitions[2].size_bytes = 5
        one.partitions[2].move()
        assert await wait.future == [0, 0, 5]
        assert one.counts == {2: 1}

    asyncio.run(main())


def test_a_wait_that_is_cancelled_is_forgotten(bench: Callable[[int], Bench]) -> None:
    async def main() -> None:
        one = bench(3)
        wait = one.wait(min_bytes=100)
        one.partitions[2].move()
        wait.future.cancel()
        await turns()
        assert not any(partition.waiters for partition in one.partitions)
        assert not one.counts

    asyncio.run(main())
