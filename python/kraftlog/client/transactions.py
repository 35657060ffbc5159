"""The requests of a transactional producer to its coordinator and to the coordinators of groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from kraftlog.client.config import ClientConfig
from kraftlog.client.connections import Connections
from kraftlog.client.coordinator import GROUP, TRANSACTION, Coordinator
from kraftlog.client.state.cluster_metadata import Node
from kraftlog.client.state.position import OffsetAndMetadata
from kraftlog.client.state.transaction_state import TRANSACTION_VERSION_2, TransactionState, TransactionTracker
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kraftlog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kraftlog.wire.messages.end_txn import EndTxnRequest
from kraftlog.wire.messages.init_producer_id import InitProducerIdRequest
from kraftlog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

__all__ = ["GroupMetadata", "Transactions"]

# Above these a broker takes the request as one of transaction version 2 (KIP-890), or as one of another broker.
END_TXN_VERSION_1 = 4
TXN_OFFSET_COMMIT_VERSION_1 = 4
ADD_PARTITIONS_VERSION_1 = 3
PRODUCE_VERSION_1 = 11
# The first InitProducerId that can ask for a new epoch (KIP-360).
INIT_VERSION_WITH_EPOCH = 3
# The highest without two-phase commit (KIP-939), for which a broker may ask for another permission.
INIT_VERSION_MAX = 5
INIT_PRODUCER_ID_KEY = 22
# The markers of the last transaction are on their way: the next attempt is sent soon, as in Kafka's client.
CONCURRENT_BACKOFF_S = 0.02
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """The membership of a consumer, for offsets that are committed within a transaction.

    Attributes:
        group_id: The group.
        generation: Generation or member epoch; -1 for a consumer that assigns its partitions itself.
        member_id: Empty without a membership.
        instance_id: ``group.instance.id``.
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class Transactions:
    """The transactions of one producer.

    Args:
        config: Settings.
        connections: To the cluster.
        any_node: Gives a node to ask for coordinators.

    Attributes:
        producer: Producer id and epoch.
        tracker: What may be done.
    """

    def __init__(self, config: ClientConfig, connections: Connections, any_node: Callable[[], Awaitable[Node]]) -> None:
        self.transactional_id: str = config["transactional.id"]
        self.tracker = TransactionTracker(self.transactional_id)
        self.producer: tuple[int, int] | None = None
        self._config = config
        self._connections = connections
        self._any_node = any_node
        self._backoff_s: float = config["retry.backoff.ms"] / 1000
        self._block_s: float = config["max.block.ms"] / 1000
        self._coordinator = self._find(self.transactional_id, TRANSACTION)
        self._adding = asyncio.Lock()

    def _find(self, key: str, kind: int) -> Coordinator:
        return Coordinator(key, kind, self._connections, self._any_node, retry_backoff_s=self._backoff_s)

    async def initialize(self) -> None:
        """Take over the transactional id: older producers are fenced and their open transaction is aborted.

        Raises:
            KafkaError: The cluster refuses; PRODUCER_FENCED when another producer came later.
        """
        self.tracker.check_can_initialize()
        await self._retried(lambda: self._init_producer_id((-1, -1)))

    async def _init_producer_id(self, before: tuple[int, int]) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._config["transaction.timeout.ms"],
            producer_id=before[0],
            producer_epoch=before[1],
        )
        answer = await self._coordinator.ask(request, INIT_VERSION_MAX)
        self._check(answer.error_code, "InitProducerId")
        connection = await self._connections.connect(await self._coordinator.coordinator())
        level = connection.finalized_features.get("transaction.version", 0)
        self.producer = (answer.producer_id, answer.producer_epoch)
        self.tracker.needs_new_epoch = False
        self.tracker.initialized(is_version_2=level >= TRANSACTION_VERSION_2)

    async def add_partitions(self, names: Collection[TopicPartition]) -> None:
        """Make partitions part of the transaction before they are produced to.

        With version 2 the produce itself does it.

        Raises:
            KafkaError: The coordinator refuses.
        """
        tracker = self.tracker
        if tracker.is_version_2:
            tracker.partitions |= set(names)
            return
        async with self._adding:
            missing = set(names) - tracker.partitions
            if missing:
                await self._retried(lambda: self._add_partitions(missing))
                tracker.partitions |= missing

    async def _add_partitions(self, names: Collection[TopicPartition]) -> None:
        producer_id, epoch = self._known_producer()
        topics: dict[str, list[int]] = {}
        for name in sorted(names, key=lambda name: (name.topic, name.partition)):
            topics.setdefault(name.topic, []).append(name.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=partitions)
                for topic, partitions in topics.items()
            ],
        )
        answer = await self._coordinator.ask(request, ADD_PARTITIONS_VERSION_1)
        codes = [
            (topic.name, partition.partition_index, partition.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        ]
        # OPERATION_NOT_ATTEMPTED says only that another partition of the request was refused.
        for topic, index, code in sorted(codes, key=lambda found: found[2] == ErrorCode.OPERATION_NOT_ATTEMPTED):
            self._check(code, f"AddPartitionsToTxn of {topic}-{index}")

    async def commit_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        """Commit offsets of a group as part of the transaction.

        Raises:
            KafkaError: A coordinator refuses: the transaction has to be aborted.
        """
        self.tracker.check_can_send()
        group_coordinator = self._find(group.group_id, GROUP)
        try:
            if not self.tracker.is_version_2:
                await self._retried(lambda: self._add_offsets(group.group_id))
            self.tracker.has_offsets = True
            await self._retried(lambda: self._commit_offsets(group_coordinator, offsets, group), group_coordinator)
        except KafkaError as error:
            raise self.tracker.failed(error) from None

    async def _add_offsets(self, group_id: str) -> None:
        producer_id, epoch = self._known_producer()
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id, producer_id=producer_id, producer_epoch=epoch, group_id=group_id
        )
        answer = await self._coordinator.ask(request)
        self._check(answer.error_code, f"AddOffsetsToTxn of group {group_id}")

    async def _commit_offsets(
        self, coordinator: Coordinator, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        producer_id, epoch = self._known_producer()
        topics: dict[str, list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition]] = {}
        for name, offset in offsets.items():
            topics.setdefault(name.topic, []).append(
                TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                    partition_index=name.partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id=group.generation,
            member_id=group.member_id,
            group_instance_id=group.instance_id,
            topics=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)
                for topic, partitions in topics.items()
            ],
        )
        answer = await coordinator.ask(request, None if self.tracker.is_version_2 else TXN_OFFSET_COMMIT_VERSION_1)
        for topic in answer.topics:
            for partition in topic.partitions:
                self._check(partition.error_code, f"offset of {topic.name}-{partition.partition_index}")

    async def end(self, *, is_commit: bool) -> bool:
        """Commit or abort what the tracker says is ending; True when the epoch is a new one, with sequences from 0.

        Raises:
            KafkaError: The coordinator refuses; PRODUCER_FENCED when another producer took over.
        """
        tracker = self.tracker
        before = self.producer
        if tracker.has_content:
            try:
                await self._retried(lambda: self._end_txn(is_commit=is_commit))
            except BaseException:
                tracker.not_ended(is_commit=is_commit)
                raise
        if not is_commit and tracker.needs_new_epoch and not (tracker.is_version_2 and tracker.has_content):
            coordinator = await self._connections.connect(await self._coordinator.coordinator())
            version = coordinator.common_version(INIT_PRODUCER_ID_KEY) or 0
            known = self._known_producer() if version >= INIT_VERSION_WITH_EPOCH else (-1, -1)
            await self._retried(lambda: self._init_producer_id(known))
        elif not tracker.is_version_2 and await self._offers_version_2():
            # The cluster was upgraded meanwhile: a new epoch, and the next transaction is one of version 2.
            await self._retried(lambda: self._init_producer_id(self._known_producer()))
        tracker.needs_new_epoch = False
        tracker.ended()
        return self.producer != before

    async def _offers_version_2(self) -> bool:
        """Whether the coordinator said so when the connection was made; nothing is asked for this alone."""
        connection = await self._connections.connect(await self._coordinator.coordinator())
        has_epochs = (connection.common_version(INIT_PRODUCER_ID_KEY) or 0) >= INIT_VERSION_WITH_EPOCH
        return has_epochs and connection.finalized_features.get("transaction.version", 0) >= TRANSACTION_VERSION_2

    async def _end_txn(self, *, is_commit: bool) -> None:
        producer_id, epoch = self._known_producer()
        request = EndTxnRequest(
            transactional_id=self.transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=is_commit
        )
        answer = await self._coordinator.ask(request, None if self.tracker.is_version_2 else END_TXN_VERSION_1)
        self._check(answer.error_code, "EndTxn")
        if self.tracker.is_version_2 and answer.producer_id >= 0:
            self.producer = (answer.producer_id, answer.producer_epoch)

    def _known_producer(self) -> tuple[int, int]:
        if self.producer is None:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "init_transactions was not awaited")
        return self.producer

    def _check(self, code: int, what: str) -> None:
        if code:
            raise self.tracker.fenced(KafkaError(code, f"{what} (transactional.id {self.transactional_id})"))

    async def _retried(self, work: Callable[[], Awaitable[T]], group: Coordinator | None = None) -> T:
        """What ``work`` gives, tried again within ``max.block.ms``.

        Raises:
            KafkaError: The last error, noted in the tracker when it is fatal.
        """
        coordinator = self._coordinator if group is None else group
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._block_s
        while True:
            try:
                return await work()
            except KafkaError as error:
                may_pass = error.retriable or error.code == ErrorCode.BROKER_NOT_AVAILABLE
                if error.code in {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}:
                    coordinator.forget_coordinator()
                is_concurrent = error.code == ErrorCode.CONCURRENT_TRANSACTIONS
                backoff_s = CONCURRENT_BACKOFF_S if is_concurrent else self._backoff_s
                if not may_pass or loop.time() + backoff_s > deadline:
                    raise self.tracker.failed(error) from None
            await asyncio.sleep(backoff_s)

    @property
    def is_sending(self) -> bool:
        """Whether batches may be sent: not after an error, and not while a transaction ends."""
        return self.tracker.state is TransactionState.OPEN
