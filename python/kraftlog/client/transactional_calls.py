"""The calls of a transactional producer, without its batches."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from kraftlog.client.state.position import OffsetAndMetadata
from kraftlog.client.state.transaction_state import TransactionState
from kraftlog.client.transactions import GroupMetadata, Transactions
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.metrics.producer import ProducerMetrics
from kraftlog.types import TopicPartition

__all__ = ["TransactionalCalls"]


class TransactionalCalls(ABC):
    """Base of :class:`AsyncProducer`."""

    _transactions: Transactions | None = None
    _metrics: ProducerMetrics

    @abstractmethod
    def _take_producer(self, producer: tuple[int, int] | None) -> None:
        """Send with another producer id and epoch from now on."""

    @abstractmethod
    def _discard(self, error: KafkaError) -> None:
        """Fail whatever was not sent yet."""

    @abstractmethod
    async def _settled(self) -> None:
        """Return when nothing that was sent lacks its answer."""

    @abstractmethod
    async def flush(self, *, timeout_s: float | None = None) -> None:
        """Return when all that was sent is delivered."""

    @property
    def is_transaction_open(self) -> bool:
        """Whether there is a transaction to commit or, when it has failed, to abort."""
        states = {TransactionState.OPEN, TransactionState.ABORTABLE}
        return self._transactions is not None and self._transactions.tracker.state in states

    async def init_transactions(self) -> None:
        """Take over ``transactional.id``: older producers are fenced, and what they left open is aborted.

        Raises:
            KafkaError: There is no ``transactional.id``, or the coordinator refuses.
        """
        transactions = self._required()
        with self._metrics.timed("txn-init"):
            await transactions.initialize()
        self._take_producer(transactions.producer)

    def begin_transaction(self) -> None:
        """Begin: what is sent until the commit becomes visible with it, or never.

        Raises:
            KafkaError: INVALID_TXN_STATE: ``init_transactions`` was not awaited, or a transaction is open;
                PRODUCER_FENCED: another producer took over ``transactional.id``.
        """
        self._required().tracker.begin()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition | tuple[str, int], OffsetAndMetadata | int],
        group: GroupMetadata | str,
    ) -> None:
        """Commit offsets of a group with the transaction.

        Args:
            offsets: Of the records that are read next.
            group: ``group_metadata`` of the consumer, or the id of a group whose consumer assigns its partitions
                itself.

        Raises:
            KafkaError: The consumer is no longer a member, or a coordinator refuses; the transaction has to be aborted.
        """
        wanted = {
            name if isinstance(name, TopicPartition) else TopicPartition(*name): OffsetAndMetadata(offset)
            if isinstance(offset, int)
            else offset
            for name, offset in offsets.items()
        }
        metadata = GroupMetadata(group) if isinstance(group, str) else group
        with self._metrics.timed("txn-send-offsets"):
            await self._required().commit_offsets(wanted, metadata)

    async def commit_transaction(self) -> None:
        """Deliver what was sent, and make it visible.

        Raises:
            KafkaError: A batch was not delivered, and the transaction has to be aborted; or the coordinator refuses,
                with PRODUCER_FENCED when another producer took over or the transaction timed out.
        """
        transactions = self._required()
        transactions.tracker.check_can_send()
        await self.flush()
        transactions.tracker.end(is_commit=True)
        await self._end(transactions, is_commit=True)

    async def abort_transaction(self) -> None:
        """Give up what was sent; batches that wait are not sent at all.

        Raises:
            KafkaError: As :meth:`commit_transaction`.
        """
        transactions = self._required()
        transactions.tracker.end(is_commit=False)
        self._discard(KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "the transaction was aborted"))
        await self._settled()
        await self._end(transactions, is_commit=False)

    async def _end(self, transactions: Transactions, *, is_commit: bool) -> None:
        with self._metrics.timed("txn-commit" if is_commit else "txn-abort"):
            has_new_epoch = await transactions.end(is_commit=is_commit)
        if has_new_epoch:
            self._take_producer(transactions.producer)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A transaction as a block: committed at its end, aborted when it raises.

        Raises:
            KafkaError: As the calls themselves.
        """
        self.begin_transaction()
        try:
            yield
            await self.commit_transaction()
        except BaseException:
            if self.is_transaction_open:
                await self.abort_transaction()
            raise

    async def _abort_open(self, timeout_s: float | None) -> None:
        """Abort before the connections end, so that readers need not wait for the transaction's timeout."""
        if not self.is_transaction_open:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self.abort_transaction()
        except TimeoutError as error:
            message = f"the open transaction was not aborted within {timeout_s} s"
            raise TimeoutError(message) from error

    def fail_transaction(self, error: Exception) -> None:
        """Let an open transaction be aborted only: a record of it was lost before it could be sent."""
        if self.is_transaction_open and self._transactions is not None:
            found = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.INVALID_RECORD, str(error))
            self._transactions.tracker.failed(found)

    def _check_can_send(self) -> None:
        if self._transactions is not None:
            self._transactions.tracker.check_can_send()

    def _required(self) -> Transactions:
        if self._transactions is None:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the producer is not running, or has no transactional.id")
        return self._transactions
