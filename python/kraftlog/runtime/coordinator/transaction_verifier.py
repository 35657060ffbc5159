"""Asks transaction coordinators, as the leader of a partition, whether a transaction is open (KIP-890).

Source: ``kafka.server.AddPartitionsToTxnManager``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

from kraftlog.coordinator.transaction.transaction_shard import TransactionShard
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.partitioner import coordinator_partition
from kraftlog.runtime.coordinator.shard_registry import CommittedMetadata, ShardRegistry
from kraftlog.runtime.coordinator.verification_queue import VerificationQueue
from kraftlog.types import TopicPartition
from kraftlog.vocabulary import TRANSACTION_STATE_TOPIC
from kraftlog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest

if TYPE_CHECKING:
    from kraftlog.controller import MetadataImage

__all__ = ["ProducerTransaction", "TransactionVerifier", "Verifying"]

_Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_Codes = Mapping[TopicPartition, int]


class Verifying(Enum):
    """What the coordinator is asked, and what clients of that age understand as an answer."""

    OLD = "verify, with INVALID_TXN_STATE for a partition that is missing"
    ABORTABLE = "verify, with TRANSACTION_ABORTABLE for a partition that is missing"
    ADD = "add the partition"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerTransaction:
    """Who writes."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class BrokerRequests(Protocol):
    """The way to other brokers."""

    def request(self, broker_id: int, message: AddPartitionsToTxnRequest) -> Coroutine[Any, Any, Any]:
        """Ask a broker; KafkaError if there is no answer."""
        ...


class TransactionVerifier:
    """Adds partitions to transactions or verifies that they are in them.

    Args:
        node_id: Of this broker.
        listener_name: The listener that brokers use among each other.
        transactions: The coordinator on this node.
        links: The way to coordinators on other nodes.
        metadata: Knows where they are.
        retry_s: Pause before another attempt while the transaction before is not over.
        retry_max_s: How long such attempts go on.
        on_verified: Hears how many milliseconds each answer took, and how many partitions it refused.
    """

    def __init__(
        self,
        node_id: int,
        transactions: ShardRegistry[TransactionShard],
        links: BrokerRequests,
        metadata: CommittedMetadata,
        *,
        retry_s: float,
        retry_max_s: float,
        on_verified: Callable[[float, int], None] = lambda _duration_ms, _failure_count: None,
    ) -> None:
        self._node_id = node_id
        self._transactions = transactions
        self._links = links
        self._metadata = metadata
        self._retry_s = retry_s
        self._retry_max_s = retry_max_s
        self._on_verified = on_verified
        # A lock is there as long as a request holds it or waits for it.
        self._turns: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        self._queues: dict[int, VerificationQueue] = {}

    def turn(self, producer_id: int) -> asyncio.Lock:
        """One request of a producer is verified at a time: the next finds what the one before has added."""
        turn = self._turns.get(producer_id)
        if turn is None:
            turn = self._turns[producer_id] = asyncio.Lock()
        return turn

    def is_in_turn(self, producer_id: int) -> bool:
        """Whether a request of this producer is being verified, or waits for that."""
        return producer_id in self._turns

    async def verify(
        self, producer: ProducerTransaction, partitions: Iterable[TopicPartition], verifying: Verifying
    ) -> _Codes:
        """The error code of each partition; never raises KafkaError."""
        asked = sorted(set(partitions))
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._retry_max_s
        while True:
            asked_s = loop.time()
            codes = await self._verify_once(producer, asked, verifying)
            self._on_verified((loop.time() - asked_s) * 1000, sum(map(bool, codes.values())))
            is_busy = ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
            if not is_busy or verifying is not Verifying.ADD or loop.time() + self._retry_s > until_s:
                return {partition: _for_client(code, verifying) for partition, code in codes.items()}
            await asyncio.sleep(self._retry_s)

    async def _verify_once(
        self, producer: ProducerTransaction, partitions: Sequence[TopicPartition], verifying: Verifying
    ) -> _Codes:
        count = self._transactions.partition_count()
        coordinator_id = _coordinator_of(self._metadata.image, producer.transactional_id, count)
        if coordinator_id < 0:
            return dict.fromkeys(partitions, int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        try:
            if coordinator_id == self._node_id:
                return await self._verify_here(producer, partitions, verifying)
            return await self._verify_there(coordinator_id, producer, partitions, verifying)
        except KafkaError as error:
            if error.code == ErrorCode.UNSUPPORTED_VERSION:
                # A coordinator that cannot be asked: as before KIP-890.
                return dict.fromkeys(partitions, int(ErrorCode.NONE))
            code = ErrorCode.NETWORK_EXCEPTION if error.code == ErrorCode.BROKER_NOT_AVAILABLE else error.code
            return dict.fromkeys(partitions, int(code))

    async def _verify_here(
        self, producer: ProducerTransaction, partitions: Sequence[TopicPartition], verifying: Verifying
    ) -> _Codes:
        transactional_id = producer.transactional_id
        identity = producer.producer_id, producer.producer_epoch
        runner = self._transactions.runner(transactional_id)
        if verifying is not Verifying.ADD:
            return runner.call(lambda shard, _now: shard.verify_partitions(transactional_id, identity, partitions))
        code: int = await runner.ask(
            lambda shard, future, now_ms: shard.add_partitions(
                future, transactional_id, identity, frozenset(partitions), now_ms, client_version=2
            )
        )
        return dict.fromkeys(partitions, code)

    async def _verify_there(
        self,
        coordinator_id: int,
        producer: ProducerTransaction,
        partitions: Sequence[TopicPartition],
        verifying: Verifying,
    ) -> _Codes:
        topics: dict[str, list[int]] = {}
        for partition in partitions:
            topics.setdefault(partition.topic, []).append(partition.partition)
        transaction = _Transaction(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            verify_only=verifying is not Verifying.ADD,
            topics=[_Topic(name=name, partitions=indexes) for name, indexes in topics.items()],
        )
        queue = self._queues.get(coordinator_id)
        if queue is None:
            queue = VerificationQueue(partial(self._links.request, coordinator_id))
            self._queues[coordinator_id] = queue
        found = await queue.ask(transaction)
        return {partition: found.get(partition, int(ErrorCode.NETWORK_EXCEPTION)) for partition in partitions}


def _for_client(code: int, verifying: Verifying) -> int:
    if code == ErrorCode.PRODUCER_FENCED:
        return int(ErrorCode.INVALID_PRODUCER_EPOCH)
    if code == ErrorCode.TRANSACTION_ABORTABLE and verifying is Verifying.OLD:
        return int(ErrorCode.INVALID_TXN_STATE)
    return code


def _coordinator_of(image: MetadataImage, transactional_id: str, partition_count: int) -> int:
    """The broker that coordinates an id; -1 while there is none."""
    topic = image.topics.by_name(TRANSACTION_STATE_TOPIC)
    if topic is None or not partition_count:
        return -1
    partition = topic.partitions.get(coordinator_partition(transactional_id, partition_count))
    broker = None if partition is None else image.cluster.brokers.get(partition.leader)
    return -1 if broker is None or broker.fenced else broker.broker_id
