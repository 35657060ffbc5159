"""The markers of decided transactions on their way to the leaders of their partitions."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog.coordinator.transaction.markers import MarkersDue
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.runtime.coordinator import marker_sender
from kraftlog.runtime.coordinator.marker_sender import MarkerSender
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from waiting import settle, until

_Result = WriteTxnMarkersResponse.WritableTxnMarkerResult


class Runner:
    """The shard's runner, as far as the sender uses it."""

    def __init__(self) -> None:
        self.leader_epoch = 5
        self.is_loaded = True
        self.finished: list[Any] = []

    def call(self, request: Any) -> None:
        request(SimpleNamespace(on_markers_written=lambda due, _now_ms: self.finished.append(due)), 0)


class Brokers:
    """Nodes 1 (this one) to 3: what each was sent, and what it answers."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, dict[TopicPartition, int]]] = []
        self.codes: dict[TopicPartition, list[int]] = {}
        self.silent: set[int] = set()
        self.leaders = {TopicPartition("t", index): leader for index, leader in enumerate((1, 2, 2, 3))}
        self.fenced: set[int] = set()
        self.gate: asyncio.Event | None = None

    async def request(self, broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        if self.gate is not None:
            await self.gate.wait()
        if broker_id in self.silent:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        return self.answer(broker_id, request)

    def write_here(self, request: WriteTxnMarkersRequest) -> asyncio.Future[WriteTxnMarkersResponse]:
        future: asyncio.Future[WriteTxnMarkersResponse] = asyncio.get_running_loop().create_future()
        future.set_result(self.answer(1, request))
        return future

    def answer(self, broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        seen: dict[TopicPartition, int] = {}
        markers = []
        for marker in request.markers:
            topics = []
            for topic in marker.topics:
                results = []
                for index in topic.partition_indexes:
                    partition = TopicPartition(topic.name, index)
                    seen[partition] = marker.coordinator_epoch
                    codes = self.codes.get(partition, [])
                    results.append(
                        WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(
                            partition_index=index, error_code=codes.pop(0) if codes else 0
                        )
                    )
                topics.append(WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
            markers.append(_Result(producer_id=marker.producer_id, topics=topics))
        self.requests.append((broker_id, seen))
        return WriteTxnMarkersResponse(markers=markers)

    @property
    def image(self) -> Any:
        def by_name(name: str) -> Any:
            found = {
                p.partition: SimpleNamespace(leader=leader) for p, leader in self.leaders.items() if p.topic == name
            }
            return SimpleNamespace(partitions=found) if found else None

        brokers = {number: SimpleNamespace(fenced=number in self.fenced) for number in (1, 2, 3)}
        return SimpleNamespace(topics=SimpleNamespace(by_name=by_name), cluster=SimpleNamespace(brokers=brokers))


class Tasks:
    def __init__(self) -> None:
        self.running: set[asyncio.Task[Any]] = set()

    def spawn(self, coroutine: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        return task


def due(key: str = "x", *indexes: int, topic: str = "t") -> MarkersDue:
    return MarkersDue(
        transactional_id=key,
        producer_id=7,
        producer_epoch=1,
        is_commit=True,
        partitions=frozenset(TopicPartition(topic, index) for index in indexes),
        transaction_version=2,
    )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_sender, "_RETRY_S", 0)


def sender(brokers: Brokers) -> MarkerSender:
    return MarkerSender(1, brokers.write_here, brokers, brokers, Tasks())


def test_one_request_per_leader_and_completion_after_all() -> None:
    """TXNC-79."""

    async def run() -> None:
        brokers, runner = Brokers(), Runner()
        brokers.silent.add(3)
        sender(brokers).send(runner, due("x", 0, 1, 2, 3))
        await until(lambda: len(brokers.requests) == 2)
        await settle()
        assert runner.finished == []
        sent = {broker: set(seen) for broker, seen in brokers.requests}
        assert sent == {1: {TopicPartition("t", 0)}, 2: {TopicPartition("t", 1), TopicPartition("t", 2)}}
        brokers.silent.clear()
        await until(lambda: runner.finished)
        assert brokers.requests[-1] == (3, {TopicPartition("t", 3): 5})
        assert len(runner.finished) == 1

    asyncio.run(run())


def test_transactions_that_wait_for_a_request_share_the_next() -> None:
    """TXNC-79: as in Kafka, what queues up for a broker goes out together."""

    async def run() -> None:
        brokers, runner = Brokers(), Runner()
        brokers.gate = asyncio.Event()
        sends = sender(brokers)
        sends.send(runner, due("a", 1))
        await settle()
        for key in ("b", "c"):
            sends.send(runner, due(key, 2))
        brokers.gate.set()
        await until(lambda: len(runner.finished) == 3)
        assert [broker for broker, _ in brokers.requests] == [2, 2]

    asyncio.run(run())


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_only_partitions_that_failed_are_asked_again(code: int) -> None:
    """TXNC-80."""

    async def run() -> None:
        brokers, runner = Brokers(), Runner()
        failing = TopicPartition("t", 2)
        brokers.codes[failing] = [code, code]
        sender(brokers).send(runner, due("x", 1, 2))
        await until(lambda: runner.finished)
        assert [set(seen) for _, seen in brokers.requests[1:]] == [{failing}, {failing}]

    asyncio.run(run())


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_markers_of_a_fenced_transaction_are_not_sent_again(code: int) -> None:
    """TXNC-81."""

    async def run() -> None:
        brokers, runner = Brokers(), Runner()
        brokers.codes[TopicPartition("t", 1)] = [code]
        brokers.codes[TopicPartition("t", 2)] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        sender(brokers).send(runner, due("x", 1, 2))
        await until(lambda: brokers.requests)
        await settle()
        assert (len(brokers.requests), runner.finished) == (1, [])

    asyncio.run(run())


def test_deleted_partitions_are_dropped() -> None:
    """TXNC-82: a transaction completes without those that exist no more."""

    async def run() -> None:
        brokers, runner = Brokers(), Runner()
        sends = sender(brokers)
        sends.send(runner, due("gone", 0, topic="deleted"))
        assert [found.transactional_id for found in runner.finished] == ["gone"]
        brokers.codes[TopicPartition("t", 1)] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        sends.send(runner, due("x", 1))
        await until(lambda: brokers.requests)
        del brokers.leaders[TopicPartition("t", 1)]
        await until(lambda: len(runner.finished) == 2)

    asyncio.run(run())


@pytest.mark.parametrize("is_fenced", [True, False])
def test_markers_wait_for_a_leader_that_is_away(is_fenced: bool) -> None:
    """TXNC-83: without a leader, or with one that is fenced."""

    async def run() -> None:
        brokers, runner = Brokers(), Runner()
        partition = TopicPartition("t", 3)
        if is_fenced:
            brokers.fenced.add(3)
        else:
            brokers.leaders[partition] = -1
        markers = sender(brokers)
        markers.send(runner, due("x", 1, 3))
        await until(lambda: brokers.requests)
        await settle()
        assert (len(brokers.requests), runner.finished, markers.without_leader_count) == (1, [], 1)
        brokers.fenced.clear()
        brokers.leaders[partition] = 3
        await until(lambda: runner.finished)
        assert markers.without_leader_count == 0

    asyncio.run(run())


def test_markers_of_an_unloaded_shard_go() -> None:
    """TXNC-107: the next coordinator finds the decision in its log and sends them."""

    async def run() -> None:
        brokers, runner = Brokers(), Runner()
        brokers.silent.add(2)
        sender(brokers).send(runner, due("x", 1))
        await settle()
        runner.is_loaded = False
        brokers.silent.clear()
        await settle()
        assert (brokers.requests, runner.finished) == ([], [])

    asyncio.run(run())
