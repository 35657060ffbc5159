"""Drives one shard of a coordinator: load, append, answer on commit, timers, unload.

Whatever the shard appends in one turn of the loop becomes as few batches as fit; a request is answered once its records
are committed. The shard decides, the runner carries out: it knows neither groups nor any other kind of coordinator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

from kraftlog._kraftlog import Log, encode_batch
from kraftlog.coordinator.effects import AppendRecords, Effect, Emit, Respond, TransactionEnd
from kraftlog.coordinator.shard import Shard
from kraftlog.errors import ErrorCode, KafkaError, KraftlogError
from kraftlog.ordered_set import OrderedSet
from kraftlog.reply import Reply, TurnCalls
from kraftlog.runtime.coordinator.record_codec import RecordCodec, read_records

__all__ = ["Compression", "CoordinatorMeter", "CoordinatorPartition", "ShardRunner", "ShardShell", "Unmeasured"]

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=Shard)
T = TypeVar("T")
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]

BATCH_BYTES_MAX = 512 * 1024
_RECORD_OVERHEAD_BYTES = 32


class CoordinatorPartition(Protocol):
    """The partition that holds the records of a shard."""

    @property
    def index(self) -> int:
        """Its index in the topic."""
        ...

    @property
    def log(self) -> Log:
        """Its log."""
        ...

    @property
    def is_leader(self) -> bool:
        """Whether this node leads it."""
        ...

    @property
    def leader_epoch(self) -> int:
        """Its leader epoch."""
        ...

    @property
    def high_watermark(self) -> int:
        """Exclusive end of what is committed."""
        ...

    def append_coordinator(self, records: bytes, *, transaction_version: int | None = None) -> asyncio.Future[int]:
        """Append a batch; the future has its last offset once it is committed, or fails with KafkaError.

        ``transaction_version`` is that of a marker.
        """
        ...

    def delete_records(self, offset: int) -> None:
        """Move the log start up to ``offset``, which is at most the high watermark."""
        ...


class CoordinatorMeter(Protocol):
    """Measures the runners of one coordinator; times are nanoseconds of a monotonic clock."""

    @property
    def clock_ns(self) -> Callable[[], int]:
        """The clock."""
        ...

    def begin(self) -> int:
        """A runner begins to work; returns the time."""
        ...

    def end(self, begun_ns: int) -> None:
        """The work that began then has ended."""
        ...

    def on_processed(self, begun_ns: int) -> None:
        """Likewise; it was a request."""
        ...

    def on_flushed(self, *, lingered_ns: int, duration_ns: int) -> None:
        """A batch was written; its first record had waited for ``lingered_ns``."""
        ...

    def on_committed(self, event_count: int, since_ns: int) -> None:
        """A batch of so many appends was committed, or failed; it was written at ``since_ns``."""
        ...

    def on_loaded(self, duration_ms: float) -> None:
        """A shard was loaded."""
        ...


class Unmeasured:
    """Measures nothing."""

    @staticmethod
    def clock_ns() -> int:
        """No time."""
        return 0

    def begin(self) -> int:
        """No time."""
        return 0

    def end(self, begun_ns: int) -> None:
        """Nothing."""

    def on_processed(self, begun_ns: int) -> None:
        """Nothing."""

    def on_flushed(self, *, lingered_ns: int, duration_ns: int) -> None:
        """Nothing."""

    def on_committed(self, event_count: int, since_ns: int) -> None:
        """Nothing."""

    def on_loaded(self, duration_ms: float) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardShell:
    """What every shard of a coordinator shares.

    Attributes:
        codec: Turns the coordinator's records into keys and values and back.
        compression: Of the batches that are appended.
        now_ms: Wall clock, milliseconds since 1970.
        is_batched: Whether appends of one turn share batches; Kafka's transaction log has one record in each.
        on_event: Takes what a shard emits.
        write_timeout_ms: How long a request waits for the commit of its records; it gets COORDINATOR_NOT_AVAILABLE
            then, and the records take effect when they are committed nevertheless, as in Kafka. None: no limit.
        meter: Takes what the runners do and how long that takes.
        turn: Carries out, in one callback of the loop, what all shards decided in the turn before.
    """

    codec: RecordCodec
    compression: Compression
    now_ms: Callable[[], int]
    is_batched: bool = True
    on_event: Callable[[ShardRunner[Any], object], None] | None = None
    write_timeout_ms: int | None = None
    meter: CoordinatorMeter = field(default_factory=Unmeasured)
    turn: TurnCalls = field(default_factory=TurnCalls)


class ShardRunner(Generic[S]):
    """One shard on the running loop.

    Args:
        shard: The state machine, empty.
        partition: Holds the shard's records; this node leads it.
        shell: What all shards of the coordinator share.

    Attributes:
        leader_epoch: In which the shard was loaded; another one ends this runner.
        is_loaded: Whether requests can be asked.
        has_failed: Whether it cannot be loaded.
    """

    def __init__(self, shard: S, partition: CoordinatorPartition, shell: ShardShell) -> None:
        self.shard = shard
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.is_loaded = False
        self.has_failed = False
        self._shell = shell
        self._meter = shell.meter
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms: int | None = None
        self._waiting: OrderedSet[asyncio.Future[Any] | Reply] = OrderedSet()
        self._effects: list[Effect] = []
        self._lingering_since_ns = 0
        self._uncommitted_count = 0
        self._done: list[tuple[Callable[[asyncio.Future[int]], None], asyncio.Future[int]]] = []
        self._writers: dict[int, asyncio.Future[Any] | Reply] = {}

    async def load(self) -> None:
        """Replay the partition; ``is_loaded`` is true afterwards, unless the runner was closed meanwhile.

        Raises:
            KraftlogError: A record cannot be read or decoded.
        """
        loaded_count = 0
        began_s = self._loop.time()
        async for records in read_records(self._loop, self.partition.log, self._shell.codec):
            if self._is_closed:
                return
            now_ms = self._shell.now_ms()
            for record in records:
                self.shard.replay(record, now_ms=now_ms)
            loaded_count += len(records)
        if self._is_closed:
            return
        self.shard.finish_loading(self._shell.now_ms())
        self.is_loaded = True
        self._meter.on_loaded((self._loop.time() - began_s) * 1000)
        self._schedule(self._meter.begin())
        if loaded_count:
            logger.info("loaded %d records from %s", loaded_count, self.partition)

    def ask(self, request: Callable[[S, asyncio.Future[Any], int], None]) -> asyncio.Future[Any]:
        """Ask the shard for something that may have to wait.

        Args:
            request: Called with the shard, the token of the answer and the wall clock in milliseconds.

        Returns:
            A future of the response; it fails with KafkaError NOT_COORDINATOR when the shard is unloaded first, or was
            before: a caller may have waited for another coordinator since it found this one.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._is_closed:
            future.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))
            return future
        future.add_done_callback(self._waiting.discard)
        self._ask(future, request)
        return future

    def post(self, request: Callable[[S, Reply, int], None]) -> Reply:
        """As ``ask``, for requests that are too many for a future each."""
        reply = Reply(self._shell.turn)
        if self._is_closed:
            reply.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))
        else:
            self._ask(reply, request)
        return reply

    def _ask(self, token: Any, request: Callable[[S, Any, int], None]) -> None:
        self._waiting.add(token)
        self._effects += self.shard.take_effects()
        begun_ns = self._meter.begin()
        request(self.shard, token, self._shell.now_ms())
        effects = self.shard.take_effects()
        self._meter.on_processed(begun_ns)
        self._effects += effects
        self._schedule(begun_ns)
        if self._shell.write_timeout_ms is not None:
            for effect in reversed(effects):
                if type(effect) is AppendRecords:
                    self._writers[effect.append_id] = token
                    break

    def call(self, request: Callable[[S, int], T]) -> T:
        """Ask the shard for something that it answers at once; its effects follow.

        Args:
            request: Called with the shard and the wall clock in milliseconds.
        """
        begun_ns = self._meter.begin()
        answer = request(self.shard, self._shell.now_ms())
        self._meter.on_processed(begun_ns)
        self._schedule(begun_ns)
        return answer

    def append_marker(self, batch: bytes, end: TransactionEnd, *, transaction_version: int) -> asyncio.Future[int]:
        """Append the marker that ends a transaction here; the shard replays ``end`` once that is committed.

        Returns:
            A future of the marker's offset; it fails with KafkaError as ``append_coordinator`` does.
        """

        def on_done(future: asyncio.Future[int]) -> None:
            if not self._is_closed and not future.cancelled() and future.exception() is None:
                self.shard.replay(end, now_ms=self._shell.now_ms())
                self._schedule(self._meter.begin())

        # What the shard decided before belongs before the marker.
        self._drive()
        appended = self.partition.append_coordinator(batch, transaction_version=transaction_version)
        appended.add_done_callback(on_done)
        return appended

    def close(self) -> None:
        """Unload: waiting callers have to look for the coordinator again."""
        self._is_closed = True
        self.is_loaded = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))

    def _schedule(self, since_ns: int) -> None:
        """Carry effects out in a later call of the loop, with those that come up until then."""
        if not self._is_scheduled and not self._is_closed:
            self._is_scheduled = True
            self._lingering_since_ns = since_ns
            self._shell.turn.add(self._drive)

    def _drive(self) -> None:
        self._is_scheduled = False
        if self._is_closed:
            return
        begun_ns = self._meter.begin()
        appends = self._carry_out()
        if appends:
            self._append(appends, min(self._lingering_since_ns, begun_ns))
            if self._done:
                # Committed already, as by a leader alone in sync. What that leads to is appended in the next call.
                done, self._done = self._done, []
                for on_done, future in done:
                    on_done(future)
                self._effects += self._carry_out()
                if self._effects:
                    self._schedule(begun_ns)
        self._arm_timer()
        self._meter.end(begun_ns)

    def _carry_out(self) -> list[AppendRecords]:
        """Answer requests and hand out events; what is to be appended."""
        appends: list[AppendRecords] = []
        effects = self.shard.take_effects()
        if self._effects:
            effects = self._effects + effects
            self._effects = []
        for effect in effects:
            match effect:
                case Respond():
                    future: Any = effect.token
                    self._waiting.discard(future)
                    if not future.done():
                        future.set_result(effect.response)
                case AppendRecords():
                    appends.append(effect)
                case Emit() if self._shell.on_event is not None:
                    self._shell.on_event(self, effect.event)
        return appends

    def _append(self, appends: list[AppendRecords], since_ns: int) -> None:
        """Append in order, in as few batches as fit; the first has waited since ``since_ns``."""
        append_ids: list[tuple[int, int]] = []
        records: list[tuple[bytes, bytes | None]] = []
        size_bytes = 0
        producer: tuple[int, int] | None = None
        for append in appends:
            encoded = append.encoded or self._shell.codec.encode(append.records)
            encoded_bytes = sum(len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES for key, value in encoded)
            is_separate = not self._shell.is_batched or append.producer != producer
            if records and (is_separate or size_bytes + encoded_bytes > BATCH_BYTES_MAX):
                self._append_batch(append_ids, records, producer, since_ns)
                append_ids, records, size_bytes = [], [], 0
            producer = append.producer
            records.extend(encoded)
            append_ids.append((append.append_id, len(records)))
            size_bytes += encoded_bytes
        if records:
            self._append_batch(append_ids, records, producer, since_ns)

    def _append_batch(
        self,
        append_ids: list[tuple[int, int]],
        records: list[tuple[bytes, bytes | None]],
        producer: tuple[int, int] | None,
        since_ns: int,
    ) -> None:
        """Append records; ``append_ids`` has each append with the number of records up to its end."""
        now_ms = self._shell.now_ms()
        producer_id, producer_epoch = (-1, -1) if producer is None else producer
        batch = encode_batch(
            [(now_ms, key, value, ()) for key, value in records],
            compression=self._shell.compression,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=producer is not None,
        )
        writers = [append_id for append_id, _ in append_ids if append_id in self._writers]
        timer: asyncio.TimerHandle | None = None
        begun_ns = self._meter.clock_ns()

        def on_done(future: asyncio.Future[int]) -> None:
            error_code = 0 if future.cancelled() else _append_error(future.exception())
            if timer is not None:
                timer.cancel()
            self._meter.on_committed(len(append_ids), begun_ns)
            for append_id in writers:
                self._writers.pop(append_id, None)
            if self._is_closed:
                return
            base_offset = -1 if future.cancelled() or error_code else future.result() - len(records) + 1
            for append_id, end in append_ids:
                self.shard.on_appended(append_id, error_code, base_offset + end - 1 if base_offset >= 0 else -1)

        def on_late(future: asyncio.Future[int]) -> None:
            self._uncommitted_count -= 1
            on_done(future)
            self._drive_unless_scheduled()

        appended = self.partition.append_coordinator(batch)
        written_ns = self._meter.clock_ns()
        self._meter.on_flushed(lingered_ns=begun_ns - since_ns, duration_ns=written_ns - begun_ns)
        if appended.done() and not self._uncommitted_count:
            self._done.append((on_done, appended))
            return
        # The shard hears of appends in their order, so that this one waits for the callbacks of those before it.
        self._uncommitted_count += 1
        if writers and self._shell.write_timeout_ms is not None:
            timer = self._loop.call_later(self._shell.write_timeout_ms / 1000, self._give_up, writers)
        appended.add_done_callback(on_late)

    def _drive_unless_scheduled(self) -> None:
        if not self._is_scheduled:
            self._lingering_since_ns = self._meter.clock_ns()
            self._drive()

    def _give_up(self, append_ids: list[int]) -> None:
        for append_id in append_ids:
            future = self._writers.pop(append_id, None)
            if future is not None and not future.done():
                self._waiting.discard(future)
                text = "The records were not replicated in time."
                future.set_exception(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text))

    def _arm_timer(self) -> None:
        at_ms = self.shard.next_timeout_ms()
        if at_ms == self._timer_at_ms and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at_ms = at_ms
        if at_ms is not None:
            delay_s = max(0, at_ms - self._shell.now_ms()) / 1000
            self._timer = self._loop.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        begun_ns = self._meter.begin()
        self.shard.handle_timeout(self._shell.now_ms())
        self._meter.end(begun_ns)
        self._drive()


def _append_error(error: BaseException | None) -> int:
    """The error for a client when the coordinator could not store something, as Kafka maps it.

    Source: ``CoordinatorOperationExceptionHelper`` and ``CoordinatorRuntime`` of Kafka 4.3.1.
    """
    if error is None:
        return ErrorCode.NONE
    if not isinstance(error, KafkaError):
        return (
            ErrorCode.COORDINATOR_NOT_AVAILABLE if isinstance(error, KraftlogError) else ErrorCode.UNKNOWN_SERVER_ERROR
        )
    match error.code:
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE | ErrorCode.INVALID_FETCH_SIZE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case ErrorCode.NETWORK_EXCEPTION:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        case code:
            return code
