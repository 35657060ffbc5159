"""One replica on an event loop: carries the core's effects out on the real log, store and network.

The core is told something, then ``turn`` does what it wants, in order: appends at once, flushes on a thread, sends what
waits for a flush when that is done. One flush covers everything appended before it began.

The election state (epoch, leader, vote) is written and fsynced on the same thread. Until it is durable the effects
behind it wait, and so does everything the core is to be told: the loop goes on serving clients meanwhile. The same
holds while an effect cannot be carried out because no file descriptor is left: nothing is lost by that, and the effect
is tried again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, assert_never

from kraftlog import host
from kraftlog.errors import ErrorCode, KafkaError, KraftlogError, LogError, OffsetOutOfRangeError
from kraftlog.metrics.raft import RaftMetrics
from kraftlog.metrics.registry import Metrics
from kraftlog.ordered_set import OrderedSet
from kraftlog.raft import messages as raft
from kraftlog.raft.core import RaftConfig, RaftCore
from kraftlog.raft.effects import (
    AbandonSnapshot,
    AppendControlRecords,
    AppendFetched,
    AppendRecords,
    Durability,
    Effect,
    Fault,
    FlushLog,
    HighWatermarkAdvanced,
    InstallSnapshot,
    LeaderChanged,
    LeadershipConfirmed,
    Notice,
    PersistElectionState,
    SendRequest,
    SendResponse,
    TruncateLog,
    WriteSnapshotChunk,
)
from kraftlog.raft.voter_set import LogHistory, VoterSet
from kraftlog.runtime.raft.codec.table import to_core_request, to_wire_response
from kraftlog.runtime.raft.control_records import from_voters_record, to_control_message
from kraftlog.runtime.raft.peer_connections import Peers
from kraftlog.runtime.raft.raft_gauges import RaftGauges
from kraftlog.storage.disk_failure import is_disk_failure
from kraftlog.storage.election_store import ElectionStore
from kraftlog.transport.peer_security import SecurityOf
from kraftlog.types import ElectionState, NodeId, Offset, SnapshotId

if TYPE_CHECKING:
    from kraftlog._kraftlog import FileSlice
    from kraftlog.runtime.raft.log_listener import LogListener
    from kraftlog.runtime.raft.log_threads import LogThreads
    from kraftlog.storage.metadata_log import MetadataLog
    from kraftlog.wire.struct import Message

__all__ = ["RaftDriver"]

logger = logging.getLogger(__name__)

NOTICE_INTERVAL_S = 10.0
MAX_NOTICES = 100  # in that time
RETRY_S = 0.1  # between two tries of an effect for which no descriptor was left


@dataclass(slots=True, eq=False)
class _Source:
    """Where an answer goes."""

    future: asyncio.Future[Message]
    version: int
    listener_name: str


class RaftDriver:
    """Runs a ``RaftCore`` on an event loop. All methods are called on it.

    Args:
        config: Identity and timers.
        log: The opened log.
        voters: Voter sets, from the checkpoint and the log.
        kraft_versions: Levels of kraft.version, likewise.
        listener: Is told what becomes of the log.
        threads: For flushes and the election state.
        metrics: Told what the replica is and does, and closed by ``stop``; made here when None.
        security: What connections to a listener of that name need; gives None where it is PLAINTEXT.
        client_id: Of requests to other replicas; made of the node's id if None.

    Attributes:
        metrics: What can be measured of this replica.
        core: The consensus core; to be read, and told things only by ``tell``.
        told_count: Events so far; while it stays, neither the core nor the log has changed.
    """

    def __init__(
        self,
        config: RaftConfig,
        log: MetadataLog,
        *,
        voters: LogHistory[VoterSet],
        kraft_versions: LogHistory[int],
        listener: LogListener,
        threads: LogThreads,
        metrics: RaftMetrics | None = None,
        security: SecurityOf = lambda _: None,
        client_id: str | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.metrics = RaftMetrics(Metrics()) if metrics is None else metrics
        self.told_count = 0
        self._log = log
        self._listener = listener
        self._threads = threads
        self._store = ElectionStore(log.directory)
        self._persisted = self._store.read() or ElectionState()
        self._flushed_end_offset = Offset(log.log_end_offset)
        self._effects: deque[Effect] = deque()
        self._inputs: deque[Callable[[], object]] = deque()
        self._election_write: asyncio.Future[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._flush_wanted = 0
        self._flush_task: asyncio.Future[int] | None = None
        self._truncations = 0
        self._held: list[SendRequest | SendResponse] = []
        self._unanswered: OrderedSet[_Source] = OrderedSet()
        self._noticed: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self._is_open = True
        self._is_starting = False
        self._is_turning = False
        self.last_append_s = 0.0
        self.core = RaftCore(
            config,
            self._persisted,
            log,
            voters=voters,
            kraft_versions=kraft_versions,
            rng=random.Random(host.random_bits(64)),
            now_ms=self.now_ms(),
        )
        if self.core.epoch > self._persisted.epoch:
            stored = self._persisted
            logger.warning("the log has records of epoch %d: %s is left out", self.core.epoch, stored)
        self._gauges = RaftGauges(self.core)
        self.core.watch_roles(lambda _before, role: self.metrics.on_role(role.name))
        self._measure(host.monotonic_ns())
        self._peers = Peers(
            self.loop,
            listener_name=config.listener_name,
            client_id=client_id or f"raft-client-{config.local_key.node_id}",
            request_timeout_s=config.request_timeout_ms / 1000,
            topic=log.config.topic,
            on_response=self._on_response,
            on_failure=self._on_no_response,
            on_refused=self._on_refused_connection,
            security=security,
        )

    @staticmethod
    def now_ms() -> int:
        """The monotonic clock the core is told (CONN-15)."""
        return host.monotonic_ns() // 1_000_000

    @property
    def stored_state(self) -> ElectionState:
        """The election state on disk; the core's own is newer while it is being written."""
        return self._persisted

    @property
    def flushed_end_offset(self) -> Offset:
        """Exclusive end of what is durable in the log."""
        return self._flushed_end_offset

    @property
    def can_be_succeeded(self) -> bool:
        """Whether so many voters, this one among them, are within reach that they could elect another leader."""
        voters = self.core.voters.ids
        within_reach = [voter for voter in voters if not self._peers.is_gone(voter)]
        return 2 * len(within_reach) > len(voters)

    # Input

    def start(self) -> None:
        """Take up the stored role; a sole voter leads when this returns, its election state written on the loop."""
        self._is_starting = True
        try:
            self.tell(lambda: self.core.handle_timeout(self.now_ms()))
        finally:
            self._is_starting = False

    def tell(self, event: Callable[[], object]) -> None:
        """Let the core handle something, then do what it wants.

        While the election state is being written, or no descriptor is left for an effect, the event waits until that
        is over; if the replica ends before, the event never happens. Failures of the disk end this replica. So does
        whatever stops it half-way through its effects: the rest of them would be missing. What the core itself refuses
        is the caller's.
        """
        if not self._is_open:
            return
        self.told_count += 1
        if self.is_waiting:
            self._inputs.append(event)
            return
        start_ns = host.monotonic_ns()
        try:
            event()
        except (OSError, KraftlogError) as error:
            self.fail(error)
            return
        try:
            self.turn()
        except Exception as error:  # noqa: BLE001 - whatever it was, effects behind it were not carried out
            self.fail(error)
        if not self._is_turning:
            self._measure(start_ns)

    def handle_request(self, request: Message, *, version: int, listener_name: str) -> asyncio.Future[Message]:
        """Answer a peer.

        Raises:
            KafkaError: INCONSISTENT_CLUSTER_ID, which comes before all others (RPC-05); the request is not about the
                one partition; BROKER_NOT_AVAILABLE, this replica does nothing any more. The future fails with the
                last one, too, where that happens before there is an answer (CONN-13, CONN-14).
        """
        if not self._is_open:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        try:
            core_request = to_core_request(request, version, self._log.config.topic)
        except KafkaError:
            cluster_id = self.core.config.cluster_id
            if cluster_id is not None and getattr(request, "cluster_id", None) not in (None, cluster_id):
                raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID) from None
            raise
        source = _Source(self.loop.create_future(), version, listener_name)
        self._unanswered.add(source)
        source.future.add_done_callback(lambda _: self._unanswered.discard(source))
        self.tell(lambda: self._handle_request(source, core_request))
        return source.future

    def _handle_request(self, source: _Source, request: raft.Request) -> None:
        try:
            self.core.handle_request(source, request, self.now_ms())
        except Exception as error:
            if isinstance(error, OSError | KraftlogError):
                raise
            source.future.set_exception(error)  # the requester is answered, also when it is no longer the caller

    def _refuse_unanswered(self) -> None:
        for source in self._unanswered:
            if not source.future.done():
                source.future.set_exception(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "This replica was stopped"))
                source.future.exception()  # who asked may be gone

    def _on_response(self, node_id: NodeId, correlation_id: int, response: raft.Response) -> None:
        self.tell(lambda: self.core.handle_response(node_id, correlation_id, response, self.now_ms()))

    def _on_no_response(self, node_id: NodeId, correlation_id: int, error_code: int) -> None:
        self.tell(lambda: self.core.handle_no_response(node_id, correlation_id, self.now_ms(), error_code=error_code))

    def _on_refused_connection(self, node_id: NodeId) -> None:
        self.tell(lambda: self.core.handle_refused_connection(node_id, self.now_ms()))

    async def stop(self) -> None:
        """Send nothing more and wait for what is being written."""
        self._is_open = False
        for timer in (self._timer, self._retry):
            if timer is not None:
                timer.cancel()
        self._peers.close()
        writing = [task for task in (self._flush_task, self._election_write) if task is not None]
        if writing:
            await asyncio.wait(writing)
        self._inputs.clear()
        self._effects.clear()
        self._held.clear()
        self._refuse_unanswered()
        self.metrics.close()

    def fail(self, error: BaseException) -> None:
        """Nothing is sent or promised any more."""
        self._is_open = False
        self._inputs.clear()
        self._effects.clear()
        self._peers.close()
        for timer in (self._timer, self._retry):
            if timer is not None:
                timer.cancel()
        self._refuse_unanswered()
        self._listener.on_failure(error)

    # Effects

    def turn(self) -> None:
        """Carry out effects until the core wants nothing more, then begin a flush and arm the timer.

        A write of the election state interrupts this; its end goes on with the rest.

        Raises:
            OSError, LogError: The log or the store failed.
        """
        if self._is_turning:
            return  # told by the state machine from within: the loop below gets to it
        self._is_turning = True
        try:
            effects = self._effects
            while self._election_write is None and self._retry is None:
                if not effects:
                    effects.extend(self.core.take_effects())
                    if not effects:
                        break
                effect = effects.popleft()
                try:
                    self._carry_out(effect)
                except OSError as error:
                    # What the listener raises is of the state machine, which may have half applied something.
                    is_told = isinstance(effect, HighWatermarkAdvanced | LeaderChanged | LeadershipConfirmed)
                    if is_told or is_disk_failure(error):
                        raise
                    self._try_again(effect, error)
        finally:
            self._is_turning = False
        self._start_flush()
        self._arm_timer()

    @property
    def is_waiting(self) -> bool:
        """Whether events wait: an election state is being written, or no descriptor is left."""
        return self._election_write is not None or self._retry is not None

    def _try_again(self, effect: Effect, error: OSError) -> None:
        """Carry out an effect, and what follows it, when a descriptor may be left: it has changed nothing yet."""
        self._write_notice(f"no file descriptor is left, the replica waits for one: {error}")
        self._effects.appendleft(effect)
        self._retry = self.loop.call_later(RETRY_S, self._end_wait)

    def _end_wait(self) -> None:
        self._retry = None
        self._go_on()

    def _go_on(self) -> None:
        """Do what waited: the rest of the effects, then the inputs."""
        self.tell(lambda: None)
        while self._inputs and not self.is_waiting:
            try:
                self.tell(self._inputs.popleft())
            except Exception as refused:  # noqa: BLE001 - the caller is gone; the others' events still count
                context = {"message": "the raft core refused a delayed event", "exception": refused}
                self.loop.call_exception_handler(context)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case SendRequest() | SendResponse():
                self._check_persisted(effect.waits_for.election_state)
                self._send_when_durable(effect)
            case AppendRecords() | AppendControlRecords():
                self._append(effect)
            case AppendFetched():
                payloads: list[memoryview] = [batch.payload for batch in effect.batches]  # type: ignore[misc]
                self._log.append_fetched(payloads, epoch=self.core.epoch)
                self.metrics.on_fetched(effect.batches[-1].last_offset + 1 - effect.batches[0].base_offset)
            case FlushLog():
                self._flush_wanted = max(self._flush_wanted, effect.log_end_offset)
            case PersistElectionState():
                if not self._effects or not isinstance(self._effects[0], PersistElectionState):
                    self._persist(effect)  # of several in a row the last one: nothing is promised in between
            case HighWatermarkAdvanced():
                self._start_flush()  # the disk works while what is committed is applied
                self.metrics.on_committed(effect.high_watermark)
                self._listener.on_committed(effect.high_watermark)
            case LeaderChanged():
                self._check_persisted(effect.waits_for.election_state)
                self._listener.on_leader_changed(effect.leader_id, effect.epoch)
            case LeadershipConfirmed():
                self._listener.on_confirmed(effect.round)
            case TruncateLog():
                self._truncate(effect.end_offset)
            case WriteSnapshotChunk():
                self._log.write_snapshot_chunk(effect.snapshot_id, effect.position, effect.payload)  # type: ignore[arg-type]
            case InstallSnapshot():
                self._install(effect.snapshot_id)
            case AbandonSnapshot():
                self._log.abandon_snapshot(effect.snapshot_id)
            case Notice():
                self._write_notice(effect.text)
            case Fault(is_fatal=False):
                logger.error("metadata quorum: %s", effect.reason)
            case Fault():
                raise LogError(effect.reason)
            case _:
                assert_never(effect)

    def _write_notice(self, text: str) -> None:
        """What a peer repeats with every request is not repeated in the log as often."""
        now_s = host.monotonic_s()
        self._noticed = {key: at_s for key, at_s in self._noticed.items() if now_s - at_s < NOTICE_INTERVAL_S}
        if text not in self._noticed and len(self._noticed) < MAX_NOTICES:
            self._noticed[text] = now_s
            logger.warning("replica %d: %s", self.core.config.local_key.node_id, text)

    def _append(self, effect: AppendRecords | AppendControlRecords) -> None:
        self._check_persisted(effect.waits_for.election_state)
        self.last_append_s = host.monotonic_s()
        now_ms = host.wall_ms()
        if isinstance(effect, AppendRecords):
            values: list[bytes] = list(effect.records)  # type: ignore[arg-type]
            self._log.append_values(values, base_offset=effect.base_offset, epoch=effect.epoch, now_ms=now_ms)
            self.metrics.on_appended(effect.base_offset + len(values), len(values))
            self._listener.on_values_appended(effect.base_offset, now_ms)
            return
        messages = [to_control_message(record) for record in effect.records]
        size_bytes = self._log.append_control_records(
            messages, base_offset=effect.base_offset, epoch=effect.epoch, now_ms=now_ms
        )
        last_offset = Offset(effect.base_offset + len(messages) - 1)
        self.metrics.on_appended(last_offset + 1, len(messages))
        self._listener.on_appended(effect.base_offset, last_offset, effect.epoch, size_bytes)

    def _check_persisted(self, needed: ElectionState | None) -> None:
        if needed is not None and needed is not self._persisted and needed != self._persisted:
            raise LogError(f"{needed} was not made durable before it was relied on; stored is {self._persisted}")

    def _send_when_durable(self, effect: SendRequest | SendResponse) -> None:
        wanted = effect.waits_for.log_end_offset
        if wanted is not None and wanted > self._flushed_end_offset:
            # Its election state is durable; until the flush has ended, a later one may be.
            self._held.append(replace(effect, waits_for=Durability(log_end_offset=wanted)))
        else:
            self._send(effect)

    def _send(self, effect: SendRequest | SendResponse) -> None:
        if isinstance(effect, SendRequest):
            if self.core.is_expected(effect.destination.node_id, effect.correlation_id):
                self._peers.send(effect.destination, effect.correlation_id, effect.request)
            return
        source = effect.source
        if not isinstance(source, _Source) or source.future.done():
            return
        response, data = self._with_data(effect.response)
        source.future.set_result(
            to_wire_response(
                response,
                version=source.version,
                listener_name=source.listener_name,
                data=data,
                topic=self._log.config.topic,
            )
        )

    def _with_data(self, response: raft.Response) -> tuple[raft.Response, FileSlice | bytes | None]:
        """The answer, and what it has to carry from the log or a checkpoint."""
        if isinstance(response, raft.FetchResponse) and response.read_offset is not None:
            end_offset = self._log.log_end_offset
            if response.read_offset >= end_offset:
                return response, None
            try:
                data = self._log.read(response.read_offset, max_bytes=response.max_bytes, end_offset=end_offset)
            except OffsetOutOfRangeError:
                # Segments went while the answer waited. The next fetch is told of the snapshot that stands for them.
                return response, None
            return response, data
        if isinstance(response, raft.FetchSnapshotResponse) and response.snapshot_id is not None:
            chunk = self._log.read_snapshot_chunk(response.snapshot_id, response.position, response.read_bytes)
            if chunk is None:
                self.core.on_snapshot_lost(response.snapshot_id)
                return replace(response, snapshot_id=None, error_code=ErrorCode.SNAPSHOT_NOT_FOUND), None
            return response, chunk
        return response, None

    def _truncate(self, end_offset: Offset) -> None:
        self._log.truncate_to(end_offset)
        self._flushed_end_offset = min(self._flushed_end_offset, end_offset)
        self._flush_wanted = min(self._flush_wanted, end_offset)
        self._truncations += 1

    def _install(self, snapshot_id: SnapshotId) -> None:
        snapshot, size_bytes = self._log.install_snapshot(snapshot_id)
        self._flushed_end_offset = snapshot_id.end_offset
        self._flush_wanted = min(self._flush_wanted, snapshot_id.end_offset)
        self._truncations += 1
        self._listener.on_snapshot_loaded(snapshot_id, snapshot)
        self.core.on_snapshot_installed(
            snapshot_id,
            size_bytes,
            kraft_version=snapshot.kraft_version,
            voters=None if snapshot.voters is None else from_voters_record(snapshot.voters),
            now_ms=self.now_ms(),
        )

    def _measure(self, start_ns: int) -> None:
        """Tell the metrics what the replica is after it has worked since ``start_ns``."""
        end_ns = host.monotonic_ns()
        self.metrics.on_turn(self._gauges.state(end_ns // 1_000_000), start_ns, end_ns)

    # Election state

    def _persist(self, effect: PersistElectionState) -> None:
        """Write the state on the thread, but before anybody is served on the loop."""
        write = partial(
            self._store.write, effect.state, kraft_version=effect.kraft_version, voters=self.core.voters.ids
        )
        if self._is_starting:
            write()
            self._persisted = effect.state
            return
        self._election_write = self.loop.run_in_executor(self._threads.log, write)
        self._election_write.add_done_callback(lambda task: self._election_state_written(task, effect))

    def _election_state_written(self, task: asyncio.Future[None], effect: PersistElectionState) -> None:
        self._election_write = None
        error = task.exception()
        if error is not None:
            if self._is_open and isinstance(error, OSError) and not is_disk_failure(error):
                self._try_again(effect, error)
            elif self._is_open:
                self.fail(error)
            return
        self._persisted = effect.state
        self._go_on()

    # Flushing

    def _start_flush(self) -> None:
        if self._flush_task is None and self._flush_wanted > self._flushed_end_offset and self._is_open:
            self._flush_wanted = 0
            truncations = self._truncations
            self._flush_task = self._threads.flush(self._log)
            self._flush_task.add_done_callback(lambda task: self._flushed(task, truncations))

    def _flushed(self, task: asyncio.Future[int], truncations: int) -> None:
        self._flush_task = None
        error = task.exception()
        if error is not None:
            if not isinstance(error, OSError | KraftlogError):
                raise error
            if not is_disk_failure(error):
                self._write_notice(f"no file descriptor is left for a flush, which is tried again: {error}")
                self.loop.call_later(RETRY_S, self._flush_again)
                return
            self.fail(error)
            return
        if not self._is_open:
            return
        if truncations != self._truncations:
            # What it covered may have been cut, and other records may be there now.
            self._flush_again()
            return
        self._flushed_end_offset = max(self._flushed_end_offset, Offset(task.result()))
        self.tell(self._tell_flushed)

    def _flush_again(self) -> None:
        self._flush_wanted = self._log.log_end_offset
        self._start_flush()

    def _tell_flushed(self) -> None:
        self.core.on_flushed(self._flushed_end_offset, self.now_ms())
        held, self._held = self._held, []
        self._effects.extend(held)  # before what the core wants now

    # Timer

    def _arm_timer(self) -> None:
        wanted_ms = self.core.next_timeout_ms()
        if wanted_ms is None or not self._is_open:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = self._timer_ms = None
            return
        if self._timer is not None and self._timer_ms is not None and self._timer_ms <= wanted_ms:
            return  # an earlier one is armed: it will arm the next
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = wanted_ms
        self._timer = self.loop.call_later(max(0, wanted_ms - self.now_ms()) / 1000 + 0.001, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = self._timer_ms = None
        self.tell(lambda: self.core.handle_timeout(self.now_ms()))
