"""The runner of one shard: when requests are answered, and what a commit that does not come leads to."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog.coordinator.effects import TransactionEnd
from kraftlog.coordinator.share.share_key import ShareKey
from kraftlog.coordinator.share.state_shard import PruneLog, ShareStateConfig, ShareStateShard
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.metrics.coordinator import CoordinatorMetrics, ShardCounts
from kraftlog.metrics.groups import ShareStateMetrics
from kraftlog.runtime.coordinator.record_codec import KeyedRecordCodec
from kraftlog.runtime.coordinator.shard_runner import CoordinatorMeter, ShardRunner, ShardShell, Unmeasured
from kraftlog.runtime.coordinator.share_coordinator import _on_event
from kraftlog.types import Uuid
from kraftlog.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from waiting import settle

KEY = ShareKey("g", Uuid(b"t" * 16), 0)


METER = ShareStateMetrics()


class Partition:
    """Holds back commits."""

    index = 7
    leader_epoch = 1
    is_leader = True
    high_watermark = 41
    is_committed_at_once = False

    def __init__(self) -> None:
        self.appended: list[asyncio.Future[int]] = []
        self.deleted_to: list[int] = []
        self.batches: list[bytes] = []
        self.log = SimpleNamespace(log_start_offset=0, log_end_offset=0)

    def append_coordinator(self, records: bytes, *, transaction_version: int = 0) -> asyncio.Future[int]:
        assert transaction_version == 0
        self.batches.append(records)
        self.appended.append(asyncio.get_running_loop().create_future())
        if self.is_committed_at_once:
            self.appended[-1].set_result(len(self.appended) - 1)
        return self.appended[-1]

    def delete_records(self, offset: int) -> None:
        self.deleted_to.append(offset)


async def _runner(
    write_timeout_ms: int, meter: CoordinatorMeter | None = None
) -> tuple[ShardRunner[ShareStateShard], Partition]:
    partition = Partition()
    shard = ShareStateShard(ShareStateConfig(), has_partition=lambda *_: True, has_topic=lambda _: True)
    shell = ShardShell(
        codec=KeyedRecordCodec("share", "the state of share groups"),
        compression="none",
        now_ms=lambda: 0,
        on_event=partial(_on_event, METER, lambda: 0),
        write_timeout_ms=write_timeout_ms,
        meter=meter or Unmeasured(),
    )
    runner = ShardRunner(shard, partition, shell)  # type: ignore[arg-type]
    await runner.load()
    return runner, partition


def _initialize(runner: ShardRunner[ShareStateShard]) -> asyncio.Future[Any]:
    request = InitializeShareGroupStateRequest.PartitionData(partition=0, state_epoch=0, start_offset=5)
    return runner.ask(lambda shard, future, now_ms: shard.initialize(future, KEY, request, now_ms))


def _summarize(runner: ShardRunner[ShareStateShard]) -> asyncio.Future[Any]:
    return runner.ask(lambda shard, future, _now_ms: shard.summarize(future, KEY))


def test_a_write_that_is_not_replicated_in_time_is_answered_and_takes_effect_when_it_is_committed() -> None:
    """CGRP-08; what only waits for earlier records goes on waiting."""
    asyncio.run(_a_write_that_is_not_replicated_in_time_is_answered_and_takes_effect_when_it_is_committed())


async def _a_write_that_is_not_replicated_in_time_is_answered_and_takes_effect_when_it_is_committed() -> None:
    runner, partition = await _runner(write_timeout_ms=20)
    written = _initialize(runner)
    read = _summarize(runner)
    with pytest.raises(KafkaError) as refused:
        await asyncio.wait_for(written, 30)
    assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not read.done()
    partition.appended[0].set_result(0)
    assert (await asyncio.wait_for(read, 30)).start_offset == 5
    runner.close()


def test_a_write_that_is_replicated_in_time_is_answered_once() -> None:
    """CGRP-08."""
    asyncio.run(_a_write_that_is_replicated_in_time_is_answered_once())


async def _a_write_that_is_replicated_in_time_is_answered_once() -> None:
    runner, partition = await _runner(write_timeout_ms=50)
    written = _initialize(runner)
    await settle()
    partition.appended[0].set_result(0)
    assert (await asyncio.wait_for(written, 30)).error_code == 0
    assert runner._writers == {}
    runner._give_up([0])
    assert written.result().error_code == 0
    runner.close()


def test_offsets_of_committed_records_reach_the_shard_and_the_log_start_follows() -> None:
    """SHGR-62: three appends of one batch have three offsets; a partition that is led no more is left alone."""
    asyncio.run(_offsets_of_committed_records_reach_the_shard_and_the_log_start_follows())


async def _offsets_of_committed_records_reach_the_shard_and_the_log_start_follows() -> None:
    runner, partition = await _runner(write_timeout_ms=1_000)
    written = [_initialize(runner) for _ in range(3)]
    await settle()
    assert len(partition.appended) == 1
    partition.appended[0].set_result(42)
    await asyncio.wait_for(asyncio.gather(*written), 30)
    runner.shard.handle_timeout(300_000)
    runner.call(lambda *_: None)
    await settle()
    assert partition.deleted_to == [41], "never beyond the high watermark"
    partition.high_watermark = 60
    _on_event(METER, lambda: 0, runner, PruneLog(42))
    partition.is_leader = False
    _on_event(METER, lambda: 0, runner, PruneLog(50))
    assert partition.deleted_to == [41, 42]
    runner.close()


def test_requests_and_batches_are_measured() -> None:
    asyncio.run(_requests_and_batches_are_measured())


async def _requests_and_batches_are_measured() -> None:
    clock = [0]

    def tick() -> int:
        clock[0] += 1_000_000
        return clock[0]

    measured = CoordinatorMetrics(clock_ns=tick)
    runner, partition = await _runner(write_timeout_ms=1_000, meter=measured)
    written = [_initialize(runner) for _ in range(3)]
    await settle()
    clock[0] += 40_000_000
    partition.appended[0].set_result(42)
    await asyncio.wait_for(asyncio.gather(*written), 30)
    runner.close()
    clock[0] = 30_000_000_000
    found = {reading.name: float(str(reading.value)) for reading in measured.read(ShardCounts())}
    assert found["batch-flush-rate"] == pytest.approx(1 / 30, rel=0.01), "three requests share a batch"
    assert found["event-processing-time-ms-p50"] == pytest.approx(1, rel=0.02)
    assert 1 <= found["batch-linger-time-ms-max"] < 20
    assert found["event-purgatory-time-ms-p50"] == pytest.approx(42, rel=0.1)
    assert found["partition-load-time-max"] >= 0
    assert 0.99 < found["thread-idle-ratio-avg"] < 1


def test_an_append_that_is_committed_at_once_waits_for_those_before_it() -> None:
    asyncio.run(_an_append_that_is_committed_at_once_waits_for_those_before_it())


async def _an_append_that_is_committed_at_once_waits_for_those_before_it() -> None:
    runner, partition = await _runner(write_timeout_ms=1_000)
    order: list[int] = []
    on_appended = runner.shard.on_appended

    def note(append_id: int, error_code: int, last_offset: int = -1) -> None:
        order.append(append_id)
        on_appended(append_id, error_code, last_offset)

    runner.shard.on_appended = note  # type: ignore[method-assign]
    first = _initialize(runner)
    await settle()
    partition.is_committed_at_once = True
    second = _initialize(runner)
    partition.appended[0].set_result(0)  # heard of behind the turn that appends the second
    await asyncio.wait_for(asyncio.gather(first, second), 30)
    assert order == [0, 1]
    third = _initialize(runner)
    await asyncio.wait_for(third, 30)
    assert order == [0, 1, 2]
    runner.close()


def test_a_marker_is_appended_behind_what_the_shard_decided_before() -> None:
    """Else the offsets of a transaction could end up behind its marker."""
    asyncio.run(_a_marker_is_appended_behind_what_the_shard_decided_before())


async def _a_marker_is_appended_behind_what_the_shard_decided_before() -> None:
    runner, partition = await _runner(write_timeout_ms=1_000)
    written = _initialize(runner)
    assert partition.batches == [], "what one turn of the loop decides goes into one batch"
    end = TransactionEnd(producer_id=7, is_commit=True)
    runner.append_marker(b"marker", end, transaction_version=0)
    assert len(partition.batches) == 2
    assert partition.batches[1] == b"marker"
    partition.appended[0].set_result(42)
    assert (await asyncio.wait_for(written, 30)).error_code == 0
    runner.close()
