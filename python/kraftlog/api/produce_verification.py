"""Transactional Produce requests: which partitions are new in the transaction, and what its coordinator says (KIP-890).

Source: ``kafka.server.ReplicaManager.handleProduceAppend``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kraftlog.api.slices import Pauses, Slices, taking_turns
from kraftlog.errors import ErrorCode, KafkaError, KraftlogError
from kraftlog.runtime.coordinator.transaction_verifier import ProducerTransaction, Verifying
from kraftlog.runtime.replica.partition import AppendTerms, Partition
from kraftlog.runtime.replica.registry import is_internal_topic
from kraftlog.types import TopicPartition

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from kraftlog.api.services import ReplicaService, VerifierService
    from kraftlog.api.settings import ApiSettings
    from kraftlog.wire.messages.produce import ProduceRequest

__all__ = ["ADDING_VERSION", "OPEN", "ProduceTransaction", "ProduceVerification", "Verified", "read_transaction"]

ADDING_VERSION: Final = 12
_ABORTABLE_VERSION: Final = 11
_TOPIC_ID_VERSION: Final = 13
_HEADER_BYTES: Final = 61
_TRANSACTIONAL: Final = 0x10
# What older clients would not retry; this they do, without looking for another leader.
_RETRIED_AS_NOT_ENOUGH_REPLICAS: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Whether a partition's batch may be appended, and on which terms."""

    terms: AppendTerms = AppendTerms()  # noqa: RUF009  a frozen value
    error_code: int = 0
    error_message: str | None = None


OPEN: Final = Verified()
"""Of a batch without a transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceTransaction:
    """The transaction of a request, or why the request is refused."""

    producer: ProducerTransaction
    verifying: Verifying
    by_topic_id: bool
    refusal: tuple[int, str | None] | None = None


def read_transaction(version: int, request: ProduceRequest) -> Slices[ProduceTransaction | None]:
    """The transaction that batches of a request belong to; None if there is none."""
    producers: set[tuple[int, int]] = set()
    pauses = Pauses()
    for topic in request.topic_data:
        if pauses.is_due():
            yield None
        for data in topic.partition_data:
            if pauses.is_due():
                yield None
            if _is_transactional(data.records):
                producers.add(_producer_of(data.records))
    if not producers:
        return None
    refusal: tuple[int, str | None] | None = None
    if request.transactional_id is None:
        refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch without a transactional id"
    elif len(producers) > 1:
        refusal = ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID"
    producer_id, producer_epoch = next(iter(producers))
    if version >= ADDING_VERSION:
        verifying = Verifying.ADD
    else:
        verifying = Verifying.ABORTABLE if version >= _ABORTABLE_VERSION else Verifying.OLD
    return ProduceTransaction(
        producer=ProducerTransaction(
            transactional_id=request.transactional_id or "", producer_id=producer_id, producer_epoch=producer_epoch
        ),
        verifying=verifying,
        by_topic_id=version >= _TOPIC_ID_VERSION,
        refusal=refusal,
    )


def _is_transactional(records: Any) -> bool:
    return (
        records is not None
        and len(records) >= _HEADER_BYTES
        and records[16] == 2
        and bool(records[22] & _TRANSACTIONAL)
    )


def _producer_of(records: Any) -> tuple[int, int]:
    return int.from_bytes(records[43:51], "big", signed=True), int.from_bytes(records[51:53], "big", signed=True)


class ProduceVerification:
    """Finds out which partitions the coordinator has to be asked about, and asks.

    Args:
        transaction: Of the request.
        replicas: The partitions of this node.
        verifier: The way to the coordinator.
        settings: Of this node.
    """

    def __init__(
        self,
        transaction: ProduceTransaction,
        replicas: ReplicaService,
        verifier: VerifierService,
        settings: ApiSettings,
    ) -> None:
        self._transaction = transaction
        self._replicas = replicas
        self._verifier = verifier
        self._is_required = transaction.verifying is Verifying.ADD or settings.transaction_partition_verification_enable
        self._results: dict[TopicPartition, Verified] = {}

    def turn(self) -> asyncio.Lock:
        """Held while the producer's request is verified and appended."""
        return self._verifier.turn(self._transaction.producer.producer_id)

    def result_of(self, partition: Partition) -> Verified:
        """What is known of a partition."""
        found = self._results.get(partition.topic_partition)
        return found or Verified(terms=AppendTerms(requires_verification=self._is_required))

    def is_needed(self, request: ProduceRequest) -> Slices[bool]:
        """Whether the request has to wait: for the coordinator, or for a request before it."""
        if not self._is_required:
            return False
        if self._verifier.is_in_turn(self._transaction.producer.producer_id):
            return True
        return bool((yield from self._begin(request)))

    async def run(self, request: ProduceRequest) -> None:
        """Ask the coordinator about the partitions where the transaction is not open yet."""
        guards = await taking_turns(self._begin(request))
        if not guards:
            return
        codes = await self._verifier.verify(self._transaction.producer, guards, self._transaction.verifying)
        for partition, guard in guards.items():
            self._results[partition] = self._verified(codes[partition], guard)

    def _verified(self, code: int, guard: int) -> Verified:
        if not code:
            return Verified(terms=AppendTerms(guard=guard, requires_verification=True))
        is_old = self._transaction.verifying is not Verifying.ADD
        if code in _RETRIED_AS_NOT_ENOUGH_REPLICAS or (is_old and code == ErrorCode.CONCURRENT_TRANSACTIONS):
            reason = f"the coordinator did not confirm the transaction: {ErrorCode.name_of(code)}"
            return Verified(error_code=ErrorCode.NOT_ENOUGH_REPLICAS, error_message=reason)
        text = "Partition was not added to the transaction" if code == ErrorCode.INVALID_TXN_STATE else None
        return Verified(error_code=code, error_message=text)

    def _begin(self, request: ProduceRequest) -> Slices[dict[TopicPartition, int]]:
        """The partitions where the transaction is not open, each with the guard for its append."""
        producer = self._transaction.producer
        guards: dict[TopicPartition, int] = {}
        for partition, records in self._partitions(request):
            if partition is None:
                yield None
                continue
            try:
                guard = partition.log.begin_verification(
                    producer.producer_id,
                    epoch=producer.producer_epoch,
                    sequence=int.from_bytes(records[53:57], "big", signed=True),
                    supports_epoch_bump=self._transaction.verifying is Verifying.ADD,
                    now_ms=self._replicas.now_ms(),
                )
            except KafkaError as error:
                self._results[partition.topic_partition] = Verified(error_code=error.code, error_message=error.message)
            except KraftlogError as error:
                failed = Verified(error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(error))
                self._results[partition.topic_partition] = failed
            else:
                if guard is not None:
                    guards[partition.topic_partition] = guard
        return guards

    def _partitions(self, request: ProduceRequest) -> Iterator[tuple[Partition | None, Any]]:
        """The partitions led here that get a transactional batch; the others are refused when they are appended to.

        None stands where others may be served.
        """
        pauses = Pauses()
        for topic in request.topic_data:
            if pauses.is_due():
                yield None, None
            for data in topic.partition_data:
                if pauses.is_due():
                    yield None, None
                if self._transaction.by_topic_id:
                    partition = self._replicas.get(topic.topic_id, data.index)
                else:
                    partition = self._replicas.get_by_name(topic.name, data.index)
                is_led = partition is not None and partition.is_leader and not is_internal_topic(partition.topic)
                if partition is not None and is_led and _is_transactional(data.records):
                    yield partition, data.records
