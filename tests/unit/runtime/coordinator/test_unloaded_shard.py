"""What becomes of answers that wait for the log when a coordinator loses its partition."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraftlog.coordinator.transaction.config import TransactionConfig
from kraftlog.coordinator.transaction.transaction_shard import TransactionShard
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.reply import Reply
from kraftlog.runtime.coordinator.record_codec import TRANSACTION_RECORDS
from kraftlog.runtime.coordinator.shard_runner import ShardRunner, ShardShell
from kraftlog.wire.messages.init_producer_id import InitProducerIdRequest
from waiting import settle


class Partition:
    """A partition whose appends are answered by the test."""

    is_leader = True
    leader_epoch = 3
    log: Any = None

    def __init__(self) -> None:
        self.appends: list[asyncio.Future[int]] = []

    def append_coordinator(self, records: bytes, *, transaction_version: int = 0) -> asyncio.Future[int]:
        assert records
        assert not transaction_version
        self.appends.append(asyncio.get_running_loop().create_future())
        return self.appends[-1]


async def ask(partition: Partition) -> tuple[ShardRunner[TransactionShard], asyncio.Future[Any]]:
    """A runner, and the answer to an InitProducerId whose record is on its way to the log."""
    shard = TransactionShard(TransactionConfig(), take_producer_id=lambda: 7, transaction_version=lambda: 2)
    shell = ShardShell(codec=TRANSACTION_RECORDS, compression="none", now_ms=lambda: 1_000)
    runner = ShardRunner(shard, partition, shell)
    request = InitProducerIdRequest(
        transactional_id="x", transaction_timeout_ms=1_000, producer_id=-1, producer_epoch=-1
    )
    answer = runner.ask(lambda shard, future, now_ms: shard.init_producer_id(future, request, now_ms))
    await settle()
    assert len(partition.appends) == 1
    return runner, answer


@pytest.mark.spec("TXNC-108")
@pytest.mark.parametrize("is_written", [True, False])
def test_append_that_ends_after_the_coordinator_moved_is_not_coordinator_and_changes_nothing(is_written: bool) -> None:
    async def run() -> None:
        partition = Partition()
        runner, answer = await ask(partition)
        runner.close()
        if is_written:
            partition.appends[0].set_result(0)
        else:
            partition.appends[0].set_exception(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        await settle()
        error = answer.exception()
        assert isinstance(error, KafkaError)
        assert error.code == ErrorCode.NOT_COORDINATOR
        found = runner.shard.get("x")
        assert found is not None
        assert found.producer_epoch == -1

    asyncio.run(run())


@pytest.mark.spec("TXNC-108")
def test_append_that_fails_because_another_node_leads_is_not_coordinator() -> None:
    async def run() -> None:
        partition = Partition()
        runner, answer = await ask(partition)
        partition.appends[0].set_exception(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        await settle()
        assert answer.result().error_code == ErrorCode.NOT_COORDINATOR
        found = runner.shard.get("x")
        assert found is not None
        assert found.producer_epoch == -1

    asyncio.run(run())


def test_a_question_to_an_unloaded_coordinator_is_not_coordinator() -> None:
    """TxnOffsetCommit finds its coordinator, waits for that of the transaction, and asks only then."""

    async def run() -> None:
        runner, answer = await ask(Partition())
        runner.close()
        for refused in (answer, runner.ask(lambda _shard, _future, _now_ms: None)):
            with pytest.raises(KafkaError) as raised:
                await asyncio.wait_for(refused, 30)
            assert raised.value.code == ErrorCode.NOT_COORDINATOR

    asyncio.run(run())


def test_a_reply_hears_of_the_commit_and_of_the_move() -> None:
    """As a future does that ``ask`` returns."""

    async def run() -> None:
        partition = Partition()
        shard = TransactionShard(TransactionConfig(), take_producer_id=lambda: 7, transaction_version=lambda: 2)
        shell = ShardShell(codec=TRANSACTION_RECORDS, compression="none", now_ms=lambda: 1_000)
        runner = ShardRunner(shard, partition, shell)
        told: list[Reply] = []

        def post(transactional_id: str) -> Reply:
            request = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=1_000, producer_id=-1, producer_epoch=-1
            )
            reply = runner.post(lambda shard, reply, now_ms: shard.init_producer_id(reply, request, now_ms))
            reply.add_done_callback(told.append)
            return reply

        committed = post("a")
        await settle()
        moved = post("b")
        await settle()
        assert told == []
        partition.appends[0].set_result(0)
        await settle()
        assert told == [committed]
        assert committed.result().error_code == 0
        runner.close()
        too_late = post("c")
        await settle()
        assert told == [committed, moved, too_late]
        for reply in (moved, too_late):
            error = reply.exception()
            assert isinstance(error, KafkaError)
            assert error.code == ErrorCode.NOT_COORDINATOR

    asyncio.run(run())
