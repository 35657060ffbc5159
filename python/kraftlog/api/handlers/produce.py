"""Produce (key 0), versions 3-13: append one batch per partition and answer when acks says so.

v3: record batches v2, transactional id (KIP-98). v5: log start offset. v7: zstd allowed (KIP-110). v8: record errors
and a message (KIP-467). v9: flexible. v10: leader hints (KIP-951). v11, v12: transaction version 2 (KIP-890). v13:
topic ids instead of names (KIP-516). Version 0 is advertised for old librdkafka, yet versions below 3 close the
connection, as Kafka 4 does.

acks=0 gets no answer, and a closed connection on any error; acks=1 is answered once appended; acks=all once the
in-sync replicas have it, durably where log.flush.on.ack says so, or with REQUEST_TIMED_OUT after the client's timeout.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from kraftlog.api.leader_hint import leader_addresses, leader_hint
from kraftlog.api.produce_verification import ADDING_VERSION, OPEN, ProduceVerification, Verified, read_transaction
from kraftlog.api.slices import ENTRIES_PER_SLICE, LARGE_ENTRIES, Slices, at_once, in_slices, taking_turns
from kraftlog.errors import CorruptRecordError, ErrorCode, KafkaError, KraftlogError
from kraftlog.runtime.replica.registry import is_internal_topic
from kraftlog.transport.exchange import CloseConnection
from kraftlog.types import Uuid
from kraftlog.wire.messages.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kraftlog._kraftlog import Appended
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService, ReplicaService, TaskService, VerifierService
    from kraftlog.api.settings import ApiSettings
    from kraftlog.runtime.replica.partition import Partition

__all__ = ["handle"]

logger = logging.getLogger(__name__)

PartitionResponse = ProduceResponse.PartitionProduceResponse
RecordError = ProduceResponse.BatchIndexAndErrorMessage

_BATCH_OVERHEAD_BYTES = 61
_LENGTH_PREFIX_BYTES = 12
_ZSTD = 4
_ADMIN_CLIENT_ID = "__admin_client"


def handle(
    context: RequestContext,
    request: ProduceRequest,
    *,
    cluster: ClusterService,
    replicas: ReplicaService,
    verifier: VerifierService,
    settings: ApiSettings,
    tasks: TaskService,
) -> ProduceResponse | asyncio.Future[Any] | CloseConnection | Slices[Any] | None:
    """Append every partition's batch, in the order of the request."""
    answer = _answer(cluster, replicas, context, request, verifier, settings, tasks)
    return answer if _is_large(request) else at_once(answer)


def _answer(
    cluster: ClusterService,
    replicas: ReplicaService,
    context: RequestContext,
    request: ProduceRequest,
    verifier: VerifierService,
    settings: ApiSettings,
    tasks: TaskService,
) -> Slices[ProduceResponse | asyncio.Future[Any] | CloseConnection | Slices[Any] | None]:
    refused = _refuse_whole_request(request)
    transaction = (yield from read_transaction(context.api_version, request)) if refused is None else None
    if transaction is None:
        return (yield from _handle_verified(cluster, replicas, context, request, _no_verification, refused))
    refused = transaction.refusal or _refuse_version(cluster, context)
    verification = ProduceVerification(transaction, replicas, verifier, settings)
    if refused is None and (yield from verification.is_needed(request)):
        verified = tasks.spawn(_verify_and_append(cluster, replicas, context, request, verification))
        return verified if _is_large(request) else _alone(verified)
    return (yield from _handle_verified(cluster, replicas, context, request, verification.result_of, refused))


def _alone(answer: asyncio.Task[Any]) -> Slices[asyncio.Task[Any]]:
    """In slices, so that later requests of the connection wait for the answer, as they do in Kafka.

    The I/O threads append to an open transaction on their own. They must not append a producer's next batches while
    batches before them wait to be verified.
    """
    yield from ()
    return answer


def _is_large(request: ProduceRequest) -> bool:
    topics = request.topic_data
    return len(topics) > LARGE_ENTRIES or sum([len(topic.partition_data) for topic in topics]) > LARGE_ENTRIES


async def _verify_and_append(
    cluster: ClusterService,
    replicas: ReplicaService,
    context: RequestContext,
    request: ProduceRequest,
    verification: ProduceVerification,
) -> Any:
    """Ask the coordinator of a transaction about the partitions that are new in it, then append."""
    async with verification.turn():
        await verification.run(request)
        slices = _handle_verified(cluster, replicas, context, request, verification.result_of, None)
        answer = await taking_turns(slices)
    return await answer if isinstance(answer, asyncio.Future) else answer


def _handle_verified(
    cluster: ClusterService,
    replicas: ReplicaService,
    context: RequestContext,
    request: ProduceRequest,
    verified: Callable[[Partition], Verified],
    refused: tuple[int, str | None] | None,
) -> Slices[ProduceResponse | asyncio.Future[Any] | CloseConnection | None]:
    results = yield from in_slices(_append_all(cluster, replicas, context, request, verified, refused))
    if request.acks == 0:
        return _close_on_error(results)
    if not _is_large(request):
        if _must_wait(request, results):
            wait = _ProduceWait(request, results, lambda: at_once(_response(cluster, context, results)))
            at_once(wait.begin())
            return wait.future
        return at_once(_response(cluster, context, results))
    wait = _ProduceWait(request, results, lambda: None)
    yield from wait.begin()
    if not wait.future.done():
        yield wait.future
    return (yield from _response(cluster, context, results))


def _append_all(
    cluster: ClusterService,
    replicas: ReplicaService,
    context: RequestContext,
    request: ProduceRequest,
    verified: Callable[[Partition], Verified],
    refused: tuple[int, str | None] | None,
) -> Iterator[_Result]:
    """Append the next batch whenever the iterator is asked for its result."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            result = _Result(topic.name, topic.topic_id, data.index)
            if refused is not None:
                result.error_code, result.error_message = refused
            else:
                _append(cluster, replicas, context, result, data.records, request.acks, verified)
            yield result


def _must_wait(request: ProduceRequest, results: list[_Result]) -> bool:
    is_all = request.acks == -1
    return any(result.is_appending or (is_all and result.is_uncommitted) for result in results)


class _Result:
    """The outcome of one partition while it is being found out."""

    __slots__ = (
        "_info",
        "base_offset",
        "end_offset",
        "error_code",
        "error_message",
        "index",
        "is_appending",
        "log_append_time_ms",
        "log_start_offset",
        "on_appended",
        "partition",
        "record_errors",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: Uuid, index: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.error_code: int = 0
        self.error_message: str | None = None
        self.record_errors: tuple[tuple[int, str | None], ...] = ()
        self.base_offset = -1
        self.end_offset = -1
        self.log_append_time_ms = -1
        self.log_start_offset = -1
        self.partition: Partition | None = None
        self.is_appending = False
        self.on_appended: Callable[[_Result], None] | None = None
        self._info: Appended | None = None

    @property
    def is_uncommitted(self) -> bool:
        return self.partition is not None and self.partition.high_watermark < self.end_offset

    def appended(self, info: Appended) -> None:
        self._info = info
        self.base_offset = info.first_offset
        self.end_offset = info.last_offset + 1
        self.log_append_time_ms = info.log_append_time_ms
        self.log_start_offset = info.log_start_offset

    def wait_for_commit(self, completed: Callable[[int], None]) -> None:
        if self.partition is not None and self._info is not None:
            self.partition.wait_for_ack(self._info, completed)

    def fail(self, error_code: int, message: str | None = None) -> None:
        """What was appended before stays in the log and may be committed later: the answer keeps its offset."""
        self.error_code = error_code
        self.error_message = message

    def fail_with(self, error: KraftlogError | None) -> None:
        if isinstance(error, KafkaError):
            self.fail(error.code, error.message)
            self.record_errors = tuple(error.record_errors)
            if self.partition is not None and (error.code == ErrorCode.INVALID_TIMESTAMP or self.record_errors):
                self.log_start_offset = self.partition.log.log_start_offset
        elif isinstance(error, CorruptRecordError):
            self.fail(ErrorCode.CORRUPT_MESSAGE, str(error))
        else:
            logger.error("append to %s failed: %s", self.partition, error)
            self.fail(ErrorCode.KAFKA_STORAGE_ERROR)

    def append_ended(self, info: Appended | None, error: KraftlogError | None) -> None:
        """A batch that was appended on a thread is done."""
        self.is_appending = False
        if info is not None:
            self.appended(info)
        else:
            self.fail_with(error)
        if self.on_appended is not None:
            self.on_appended(self)


def _refuse_whole_request(request: ProduceRequest) -> tuple[int, str | None] | None:
    if request.acks not in (-1, 0, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS, None
    return None


def _refuse_version(cluster: ClusterService, context: RequestContext) -> tuple[int, str | None] | None:
    """Producers of transaction version 2 need the level of that feature that gives their state a place."""
    if context.api_version >= ADDING_VERSION and not cluster.image.features.get("transaction.version", 0):
        return ErrorCode.UNSUPPORTED_VERSION, "transaction.version is 0"
    return None


def _no_verification(_partition: Partition) -> Verified:
    return OPEN


def _append(
    cluster: ClusterService,
    replicas: ReplicaService,
    context: RequestContext,
    result: _Result,
    records: Any,
    acks: int,
    verified: Callable[[Partition], Verified],
) -> None:
    if context.api_version >= 13:
        partition = replicas.get(result.topic_id, result.index)
    else:
        partition = replicas.get_by_name(result.topic, result.index)
    if partition is None:
        result.error_code = _missing_partition_error(cluster, replicas, context.api_version, result)
        return
    result.topic_id = partition.topic_id
    refusal = _refuse_batch(context, partition, records)
    if refusal is not None:
        result.error_code, result.error_message = refusal
        return
    result.partition = partition
    found = verified(partition)
    if found.error_code:
        result.fail(found.error_code, found.error_message)
        return
    try:
        info = partition.append_as_leader(records, acks=acks, completed=result.append_ended, terms=found.terms)
    except KraftlogError as error:
        result.fail_with(error)
        return
    if info is None:
        result.is_appending = True
    else:
        result.appended(info)


def _missing_partition_error(cluster: ClusterService, replicas: ReplicaService, version: int, result: _Result) -> int:
    topics = cluster.image.topics
    topic = topics.by_id(result.topic_id) if version >= 13 else topics.by_name(result.topic)
    if topic is not None:
        result.topic_id = topic.topic_id
    if version >= 13:
        return replicas.missing_error_by_id(result.topic_id, result.index)
    return replicas.missing_error(result.topic, result.index)


def _refuse_batch(context: RequestContext, partition: Partition, records: Any) -> tuple[int, str | None] | None:
    """What a Produce request may carry: exactly one batch, magic 2, and zstd from version 7 on."""
    version = context.api_version
    if is_internal_topic(partition.topic) and context.client_id != _ADMIN_CLIENT_ID:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {partition.topic}"
    size_bytes = len(records) if records is not None else 0
    if size_bytes == 0:
        return (
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {version} must have at least one record batch per partition",
        )
    if size_bytes < _BATCH_OVERHEAD_BYTES:
        return None  # the engine tells a cut batch from a damaged one
    if records[16] in {0, 1}:  # what no version had is damage, which the engine names
        return (
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {version} are only allowed to contain record batches with magic version 2",
        )
    batch_bytes = _LENGTH_PREFIX_BYTES + int.from_bytes(records[8:12], "big", signed=True)
    if batch_bytes < size_bytes and batch_bytes >= _BATCH_OVERHEAD_BYTES:
        return (
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {version} are allowed exactly one record batch per partition",
        )
    attributes = records[22]
    if version < 7 and attributes & 7 == _ZSTD:
        return (
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {version} are not allowed to use ZStandard compression",
        )
    return None


def _close_on_error(results: list[_Result]) -> CloseConnection | asyncio.Future[CloseConnection | None] | None:
    """acks=0 has no other way to report an error; a batch that is appended on a thread is waited for."""
    appending = [result for result in results if result.is_appending]
    if not appending or any(result.error_code for result in results):
        return _reason_to_close(results)
    future: asyncio.Future[CloseConnection | None] = asyncio.get_running_loop().create_future()
    remaining = len(appending)

    def appended(result: _Result) -> None:
        nonlocal remaining
        remaining -= 1
        if (result.error_code or not remaining) and not future.done():
            future.set_result(_reason_to_close(results))

    for result in appending:
        result.on_appended = appended
    return future


def _reason_to_close(results: list[_Result]) -> CloseConnection | None:
    failed = [result for result in results if result.error_code]
    if not failed:
        return None
    first = failed[0]
    name = ErrorCode.name_of(first.error_code)
    text = f"{first.topic or first.topic_id}-{first.index}: {name} {first.error_message or ''}".rstrip()
    return CloseConnection(f"Produce with acks=0 failed for {len(failed)} partition(s); {text}")


class _ProduceWait:
    """Waits until every batch is appended and, with acks=all, committed; at most for the client's timeout."""

    __slots__ = ("_acks", "_remaining", "_respond", "_results", "_timer", "future")

    def __init__(self, request: ProduceRequest, results: list[_Result], respond: Callable[[], Any]) -> None:
        self._respond = respond
        self._acks = request.acks
        self._results = results
        # One for ``begin``.
        self._remaining = 1
        loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = loop.create_future()
        self._timer = loop.call_later(max(request.timeout_ms, 0) / 1000, self._time_out)

    def begin(self) -> Slices[None]:
        """Wait for each result that is not final."""
        for number, result in enumerate(self._results, 1):
            if not number % ENTRIES_PER_SLICE:
                yield None
            if result.is_appending:
                self._remaining += 1
                result.on_appended = self._appended
            elif self._acks == -1 and result.is_uncommitted:
                self._remaining += 1
                self._wait_for_commit(result)
        self._one_less()

    def _wait_for_commit(self, result: _Result) -> None:
        result.wait_for_commit(partial(self._committed, result))

    def _appended(self, result: _Result) -> None:
        if self._acks == -1 and not result.error_code:
            self._wait_for_commit(result)
        else:
            self._one_less()

    def _committed(self, result: _Result, error_code: int) -> None:
        if error_code and not self.future.done():
            result.fail(error_code)
        self._one_less()

    def _one_less(self) -> None:
        self._remaining -= 1
        if self._remaining == 0 and not self.future.done():
            self._finish()

    def _time_out(self) -> None:
        if self.future.done():
            return
        for result in self._results:
            if not result.error_code and (result.is_appending or (self._acks == -1 and result.is_uncommitted)):
                result.fail(ErrorCode.REQUEST_TIMED_OUT)
        self._finish()

    def _finish(self) -> None:
        self._timer.cancel()
        self.future.set_result(self._respond())


def _response(cluster: ClusterService, context: RequestContext, results: list[_Result]) -> Slices[ProduceResponse]:
    version = context.api_version
    responses: list[ProduceResponse.TopicProduceResponse] = []
    by_topic: dict[str | Uuid, list[Any]] = {}
    leaders: set[int] = set()
    for number, result in enumerate(results, 1):
        if not number % ENTRIES_PER_SLICE:
            yield None
        partitions = by_topic.get(result.topic or result.topic_id)
        if partitions is None:
            partitions = by_topic[result.topic or result.topic_id] = []
            responses.append(
                ProduceResponse.TopicProduceResponse(
                    name=result.topic, topic_id=result.topic_id, partition_responses=partitions
                )
            )
        if result.error_code:
            partitions.append(_failed_partition(cluster, result, version, leaders))
        else:
            partitions.append(
                PartitionResponse(
                    index=result.index,
                    base_offset=result.base_offset,
                    log_append_time_ms=result.log_append_time_ms,
                    log_start_offset=result.log_start_offset,
                )
            )
    if leaders:
        end_points = [
            ProduceResponse.NodeEndpoint(
                node_id=leader_address.broker_id,
                host=leader_address.host,
                port=leader_address.port,
                rack=leader_address.rack,
            )
            for leader_address in leader_addresses(cluster.image, leaders, context.listener_name)
        ]
        return ProduceResponse(responses=responses, node_endpoints=end_points)
    return ProduceResponse(responses=responses)


def _failed_partition(cluster: ClusterService, result: _Result, version: int, leaders: set[int]) -> Any:
    hint = leader_hint(cluster.image, result.topic_id, result.index, result.error_code) if version >= 10 else None
    fields: dict[str, Any] = {}
    if hint is not None:
        leaders.add(hint.leader_id)
        fields["current_leader"] = ProduceResponse.LeaderIdAndEpoch(
            leader_id=hint.leader_id, leader_epoch=hint.leader_epoch
        )
    return PartitionResponse(
        index=result.index,
        error_code=result.error_code,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
        record_errors=[
            RecordError(batch_index=batch_index, batch_index_error_message=message)
            for batch_index, message in result.record_errors
        ],
        error_message=result.error_message,
        **fields,
    )
