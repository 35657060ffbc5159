"""A replicated log with a state machine on top: what the metadata quorum and ``kraftlog.Quorum`` have in common.

It opens the log and its voters, gives out what is committed exactly once and in order (from memory where this replica
proposed it, else from the log), announces leadership once everything from before its epoch is applied, and keeps
checkpoints.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from kraftlog import host
from kraftlog._kraftlog import RecordBatch
from kraftlog.errors import ErrorCode, KafkaError, LogError, NodeClosedError
from kraftlog.metrics.raft import RaftMetrics
from kraftlog.ordered_set import OrderedSet
from kraftlog.raft.config import RaftConfig
from kraftlog.raft.core import RaftCore
from kraftlog.raft.voter_set import VoterSet
from kraftlog.runtime.raft.checkpoint_load import CheckpointLoads, LoadWork
from kraftlog.runtime.raft.checkpoints import Checkpoints
from kraftlog.runtime.raft.driver import RETRY_S, RaftDriver
from kraftlog.runtime.raft.log_machine import LogMachine, Proposed
from kraftlog.runtime.raft.log_threads import LogThreads
from kraftlog.runtime.raft.opened_log import read_opened
from kraftlog.runtime.raft.step_run import TURN_NS, StepRun
from kraftlog.storage.disk_failure import is_disk_failure
from kraftlog.storage.metadata_log import MetadataLog, MetadataLogConfig
from kraftlog.storage.snapshot_file import Snapshot
from kraftlog.transport.peer_security import SecurityOf
from kraftlog.types import Epoch, NodeId, Offset, SnapshotId

__all__ = ["ReplicatedLog"]

logger = logging.getLogger(__name__)

P = TypeVar("P")
P_contra = TypeVar("P_contra", contravariant=True)

STOP_TIMEOUT_S = 5.0
# Who does not lead only stays for its vote, which the election of another one's successor may need.
FOLLOWER_STOP_TIMEOUT_S = 1.0
_LOOK_AGAIN_S = 0.02
_ASK_AGAIN_S = 0.05
# Of batches, applied in one turn of the loop; the batch that exceeds it is applied whole.
APPLY_BYTES_PER_TURN = 256 * 1024
_NO_LIMIT = 2**63


class ReplicatedLog(Generic[P]):
    """One replica of a log, on a running loop.

    Args:
        machine: What is replicated.
        directory: Of the log.
        log_config: Its settings.
        clean_shutdown: Whether the last run closed it.
        static_voters: In force while the log has no Voters record.
        snapshot_max_bytes: metadata.log.max.record.bytes.between.snapshots.
        snapshot_max_interval_ms: metadata.log.max.snapshot.interval.ms.
        snapshot_outgrows_last: Whether as many bytes as the newest checkpoint has are committed before the next one.
        wall_ms: Unix clock.
        name: Of the threads.
        threads: That it shares with others; threads of its own if None.

    Raises:
        LogError: The directory cannot be read or written.
        CorruptRecordError: A record cannot be read.

    Attributes:
        log: The log.
        applied_end_offset: Everything below is in the machine.
        pending: Own proposals that are not applied yet, in order.
        snapshots: The checkpoints.
        on_checkpoint: Called with the size in bytes of each checkpoint made here.
        loads: Of checkpoints that the machine takes in on another thread; nothing is applied meanwhile.
        failure: Why nothing is done any more, None while it works.
    """

    raft: RaftCore
    driver: RaftDriver

    def __init__(
        self,
        machine: LogMachine[P],
        *,
        directory: Path,
        log_config: MetadataLogConfig,
        clean_shutdown: bool,
        static_voters: VoterSet,
        snapshot_max_bytes: int,
        snapshot_max_interval_ms: int,
        snapshot_outgrows_last: bool = False,
        wall_ms: Callable[[], int],
        name: str,
        threads: LogThreads | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._machine = machine
        self._wall_ms = wall_ms
        self.failure: BaseException | None = None
        self.pending: deque[Proposed[P]] = deque()
        self.is_open = False
        self.on_checkpoint: Callable[[int], None] = lambda _: None
        self._offset_waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._unclaimed_epoch: Epoch | None = None
        self._epoch_start_offset = Offset(0)
        self._moved = asyncio.Event()
        self._rounds: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._unbegun_rounds: OrderedSet[asyncio.Future[None]] = OrderedSet()
        self.log = MetadataLog(directory, log_config, now_ms=wall_ms(), clean_shutdown=clean_shutdown)
        self._threads = LogThreads.of_one_log(name) if threads is None else threads
        self.snapshots = Checkpoints(
            self.log,
            self._threads,
            max_bytes=snapshot_max_bytes,
            max_interval_ms=snapshot_max_interval_ms,
            outgrows_last=snapshot_outgrows_last,
            on_written=self._on_snapshot_written,
            on_cleaned=self._on_cleaned,
            on_failure=self._on_checkpoint_failure,
            on_due=self._on_checkpoint_due,
        )
        try:
            self._opened = read_opened(self.log, static_voters)
            self.applied_end_offset = self._opened.start_offset
            self._committed_end_offset = 0
            self._is_apply_scheduled = False
            self._begun: tuple[RecordBatch, StepRun[None]] | None = None
            self.loads = CheckpointLoads(self.snapshots.writer, tell=self._tell, on_loaded=self._on_loaded)
            self._work_at_start: tuple[SnapshotId, Snapshot, LoadWork] | None = None
            self._apply_delay_s = 0.0
            self._applied_epoch, self._applied_timestamp_ms = Epoch(0), 0
            if self._opened.snapshot is not None:
                self._load(*self._opened.snapshot)
        except BaseException:
            self.log.close()
            raise

    def start(
        self,
        config: RaftConfig,
        metrics: RaftMetrics | None = None,
        security: SecurityOf = lambda _: None,
        client_id: str | None = None,
    ) -> None:
        """Take part. A sole voter leads when this returns.

        Args:
            config: Identity and timers.
            metrics: Told what this replica is and does; made here when None.
            security: What connections to a listener of that name need; gives None where it is PLAINTEXT.
            client_id: Of requests to other replicas; made of the node's id if None.
        """
        self.driver = RaftDriver(
            config,
            self.log,
            voters=self._opened.voters,
            kraft_versions=self._opened.kraft_versions,
            listener=self,
            threads=self._threads,
            metrics=metrics,
            security=security,
            client_id=client_id,
        )
        self.raft = self.driver.core
        self.is_open = True
        self.snapshots.start()
        if self._work_at_start is not None:
            self.loads.begin(*self._work_at_start)
            self._work_at_start = None
        self.driver.start()

    async def stop(self, before_closing: Callable[[], None] = lambda: None) -> None:
        """Finish what was proposed, resign, close the log.

        Args:
            before_closing: Called when nothing more is going to be committed here.
        """
        # While a long stop closes the log, the minute may come in which old checkpoints are dropped.
        self.snapshots.close()
        if self.is_open:
            await self._wait_until(lambda: not self.pending, STOP_TIMEOUT_S)
            await self.snapshots.finish()
            # Let somebody else lead, and wait a moment until he does (KIP-595). Where all of a quorum stop together
            # the last one would wait for nobody.
            limit_s = STOP_TIMEOUT_S if self.raft.is_leader else FOLLOWER_STOP_TIMEOUT_S
            self.driver.tell(lambda: self.raft.shut_down(self.driver.now_ms()))
            was_leader = self.raft.role.name in {"leader", "resigned"}
            is_done = await self._wait_until(
                lambda: self.raft.is_shut_down or not self.driver.can_be_succeeded, limit_s
            )
            if was_leader and not is_done:
                logger.warning("nobody else leads %g s after this replica resigned: it stops all the same", limit_s)
        self.is_open = False
        self._fail_rounds()
        await self.loads.stop()
        before_closing()
        self.fail_offset_waiters(NodeClosedError("the node was stopped"))
        if hasattr(self, "driver"):
            await self.driver.stop()
        try:
            await self._loop.run_in_executor(self._threads.log, self.log.close)
        except (OSError, LogError) as error:
            self.on_failure(error)
        self._threads.release()

    async def _wait_until(self, is_so: Callable[[], bool], limit_s: float) -> bool:
        """Whether it came to be so within that time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while not is_so() and self.failure is None:
                    self._moved.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_LOOK_AGAIN_S):  # the end of a connection is no move
                            await self._moved.wait()
        return is_so()

    # Proposals

    @property
    def is_leader(self) -> bool:
        """Whether ``propose`` is allowed."""
        return self.is_open and self.failure is None and self.raft.is_leader

    def propose(self, values: Sequence[bytes], *, size_bytes: int, payload: P) -> Proposed[P]:
        """Append values as one batch; to be called from within ``driver.tell``.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, or MESSAGE_TOO_LARGE; nothing was proposed.
        """
        last_offset = self.raft.propose(values, self.driver.now_ms(), size_bytes=size_bytes)
        base_offset = last_offset - len(values) + 1
        proposed = Proposed(base_offset, last_offset, self.raft.epoch, self._wall_ms(), size_bytes, payload)
        self.pending.append(proposed)
        return proposed

    def await_pending(self, payload: P) -> bool:
        """Have the machine told ``payload`` when all that is proposed now is applied; False when nothing is."""
        if not self.pending:
            return False
        last = self.pending[-1]
        self.pending.append(Proposed(last.last_offset + 1, last.last_offset, last.epoch, last.timestamp_ms, 0, payload))
        return True

    async def wait_for_offset(self, offset: int) -> None:
        """Wait until the record at ``offset`` is applied.

        Raises:
            KraftlogError: This replica failed or was stopped before.
        """
        if self.applied_end_offset <= offset:
            future: asyncio.Future[None] = self._loop.create_future()
            self._offset_waiters.append((offset, future))
            await future

    def fail_offset_waiters(self, error: BaseException) -> None:
        """Tell those who wait for an offset that it will not come."""
        waiters, self._offset_waiters = self._offset_waiters, []
        for _, future in waiters:
            if not future.done():
                future.set_exception(error)
                future.exception()  # a caller that awaits it still gets it; none has to

    # Linearizable reads

    async def confirm_leadership(self) -> None:
        """Wait until a majority says that nobody else had been elected when this was called.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER: this replica does not lead, or no longer does.
        """
        future: asyncio.Future[None] = self._loop.create_future()
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

        def begin() -> None:
            self._unbegun_rounds.discard(future)
            if future.done():
                return
            try:
                self._rounds.append((self.raft.confirm_leadership(self.driver.now_ms()), future))
            except KafkaError as error:  # it has just seen that it no longer leads
                future.set_exception(error)

        self._unbegun_rounds.add(future)
        self.driver.tell(begin)
        await future

    def on_confirmed(self, confirmed_round: int) -> None:
        """This replica led when ``confirmed_round`` was begun, and so when those before it were."""
        while self._rounds and self._rounds[0][0] <= confirmed_round:
            future = self._rounds.popleft()[1]
            if not future.done():
                future.set_result(None)

    def _fail_rounds(self) -> None:
        futures = [future for _, future in self._rounds] + list(self._unbegun_rounds)
        self._rounds.clear()
        self._unbegun_rounds.clear()
        for future in futures:
            if not future.done():
                future.set_exception(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "Leadership ended"))
                future.exception()

    # What the driver tells

    def on_appended(self, base_offset: Offset, last_offset: Offset, epoch: Epoch, size_bytes: int) -> None:
        """Control records were appended between proposals."""
        del base_offset, size_bytes
        self._machine.on_control_appended(last_offset, epoch)

    def on_values_appended(self, base_offset: Offset, timestamp_ms: int) -> None:
        """Own proposals have the timestamp that all replicas find in the log."""
        for proposed in reversed(self.pending):
            if proposed.base_offset < base_offset:
                break
            proposed.timestamp_ms = timestamp_ms

    def on_leader_changed(self, leader_id: NodeId | None, epoch: Epoch) -> None:
        """Begin or end to lead."""
        self._moved.set()
        lost: Sequence[Proposed[P]] = ()
        if self.pending and self.pending[0].base_offset < self._committed_end_offset and self.loads.current is None:
            self._apply(_NO_LIMIT)  # what is committed is not lost
        if leader_id != self.raft.config.local_key.node_id:
            self._unclaimed_epoch = None
            self._fail_rounds()
            lost, self.pending = tuple(self.pending), deque()
        else:
            self._unclaimed_epoch = epoch
            self._epoch_start_offset = self.raft.log.end_offset_for_epoch(Epoch(epoch - 1)).end_offset
        self._machine.on_leader_changed(leader_id, epoch, lost)

    def on_committed(self, high_watermark: Offset) -> None:
        """Apply what is committed: own proposals from memory, everything else from the log (LSTN-06, LSTN-08).

        A long backlog is applied in pieces, a piece per turn of the loop.
        """
        self._committed_end_offset = max(self._committed_end_offset, high_watermark)
        if not self._is_apply_scheduled:
            self._apply(APPLY_BYTES_PER_TURN)

    def _apply(self, limit_bytes: int) -> None:
        """Apply whole batches until ``limit_bytes`` or some ms are used up, then go on in the next turn."""
        if self.loads.current is not None:
            return
        end_ns = math.inf if limit_bytes == _NO_LIMIT else host.monotonic_ns() + TURN_NS
        done: list[Proposed[P]] = []
        pending = self.pending
        end_offset = self._committed_end_offset
        while True:
            first = pending[0] if pending else None
            if first is not None and first.last_offset < self.applied_end_offset:
                done.append(pending.popleft())
            elif self.applied_end_offset >= end_offset or limit_bytes <= 0:
                break
            elif first is not None and first.base_offset == self.applied_end_offset:
                self._machine.apply_proposed(first)
                self._note_applied(first.last_offset, first.epoch, first.timestamp_ms, first.size_bytes)
                limit_bytes -= first.size_bytes
            else:
                limit_bytes = self._apply_from_log(
                    end_offset if first is None else min(end_offset, first.base_offset), limit_bytes, end_ns
                )
        self._machine.on_applied(done)
        self._moved.set()
        if self._offset_waiters:
            self._wake_waiters()
        if (
            self._unclaimed_epoch is not None
            and self.applied_end_offset > self._epoch_start_offset
            and self.raft.is_leader
        ):
            claimed, self._unclaimed_epoch = self._unclaimed_epoch, None
            self._machine.on_leading(claimed)
        if self.applied_end_offset < end_offset:
            self._is_apply_scheduled = True
            delay_s, self._apply_delay_s = self._apply_delay_s, 0.0
            if delay_s:
                self._loop.call_later(delay_s, self._apply_more)
            else:
                self._loop.call_soon(self._apply_more)
        else:
            self._maybe_checkpoint(Offset(end_offset))

    def _apply_from_log(self, end_offset: int, limit_bytes: int, end_ns: float) -> int:
        """Apply batches of the log below ``end_offset``; return what they and the time leave of ``limit_bytes``."""
        if self._begun is not None:
            limit_bytes = self._finish_batch(*self._begun, limit_bytes, end_ns)
        if limit_bytes <= 0 or self.applied_end_offset >= end_offset:
            return limit_bytes
        batches = self.log.batches(self.applied_end_offset, end_offset, read_bytes=APPLY_BYTES_PER_TURN)
        while limit_bytes > 0:
            try:
                batch = next(batches, None)
            except OSError as error:
                if is_disk_failure(error):
                    raise
                self._apply_delay_s = RETRY_S  # no descriptor is left to read with: later
                return 0
            if batch is None:
                break
            steps = self._machine.apply_batch(batch)
            limit_bytes = self._finish_batch(batch, None if steps is None else StepRun(steps), limit_bytes, end_ns)
        return limit_bytes

    def _finish_batch(self, batch: RecordBatch, run: StepRun[None] | None, limit_bytes: int, end_ns: float) -> int:
        """Run the steps that are left of a batch; return what is left of ``limit_bytes``, 0 when the time is over."""
        self._begun = None
        if run is not None and not run.advance(end_ns):
            self._begun = batch, run
            return 0
        self._note_applied(batch.last_offset, batch.partition_leader_epoch, batch.max_timestamp, batch.size_bytes)
        return limit_bytes - batch.size_bytes if host.monotonic_ns() < end_ns else 0

    def _apply_more(self) -> None:
        self._is_apply_scheduled = False
        self.driver.tell(self._apply_piece)

    def _apply_piece(self) -> None:
        try:
            self._apply(APPLY_BYTES_PER_TURN)
        except Exception as error:  # noqa: BLE001 - as in the driver's turn: half of a piece may be applied
            self.driver.fail(error)

    def _note_applied(self, last_offset: int, epoch: int, timestamp_ms: int, size_bytes: int) -> None:
        self.applied_end_offset = Offset(last_offset + 1)
        self._applied_epoch = Epoch(epoch)
        self._applied_timestamp_ms = max(self._applied_timestamp_ms, timestamp_ms)
        self.snapshots.bytes_since_last += size_bytes

    def _wake_waiters(self) -> None:
        reached = [
            offset_waiter for offset_waiter in self._offset_waiters if offset_waiter[0] < self.applied_end_offset
        ]
        for waiter in reached:
            self._offset_waiters.remove(waiter)
            if not waiter[1].done():
                waiter[1].set_result(None)

    def on_snapshot_loaded(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        """The log was replaced by a checkpoint of the leader."""
        self._load(snapshot_id, snapshot)
        self.snapshots.on_loaded()
        self._wake_waiters()
        self._moved.set()

    def _load(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        self._begun = None
        work = self._machine.load_snapshot(snapshot_id, snapshot)
        if work is None:
            self._note_loaded(snapshot_id, snapshot)
        elif self.is_open:
            self.loads.begin(snapshot_id, snapshot, work)
        else:
            self._work_at_start = snapshot_id, snapshot, work
            self.applied_end_offset = Offset(0)

    def _tell(self, event: Callable[[], object]) -> None:
        self.driver.tell(event)

    def _on_loaded(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        self._note_loaded(snapshot_id, snapshot)
        self._wake_waiters()
        self._moved.set()
        self.on_committed(Offset(self._committed_end_offset))

    async def wait_loaded(self) -> None:
        """Wait until the machine has taken in the checkpoint that the log began with.

        Raises:
            Exception: Why this replica does nothing any more.
        """
        while self.loads.current is not None and self.failure is None:
            await self.loads.step()
        if self.failure is not None:
            raise self.failure

    def _note_loaded(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        self.applied_end_offset, self._applied_epoch = snapshot_id.end_offset, snapshot_id.epoch
        self._committed_end_offset = max(self._committed_end_offset, snapshot_id.end_offset)
        self._applied_timestamp_ms = snapshot.last_contained_log_timestamp

    def on_failure(self, error: BaseException) -> None:
        """The log, its directory or the machine failed: nothing is retried, everything that waits is told."""
        self._moved.set()
        self._fail_rounds()
        if self.failure is None:
            self.failure = error
            self._machine.on_failure(error)

    # Checkpoints

    async def checkpoint(self, check_running: Callable[[], None]) -> tuple[SnapshotId, int]:
        """Wait for a checkpoint of everything that is applied now; begin it where there is none yet.

        Args:
            check_running: Raises when none will be written any more.

        Returns:
            Its id and its size in bytes.
        """
        wanted = self.applied_end_offset
        while True:
            check_running()
            found = self.log.snapshots
            if found and found[-1][0].end_offset >= wanted:
                return found[-1]
            await self.snapshots.finish()
            check_running()
            if not self.snapshots.is_busy:
                self.driver.tell(lambda: self._maybe_checkpoint(self.snapshots.high_watermark, is_asked=True))
            if not self.snapshots.is_working:  # the machine has none to give now, or nothing is committed
                await asyncio.sleep(_ASK_AGAIN_S)

    def _maybe_checkpoint(self, high_watermark: Offset, *, is_asked: bool = False) -> None:
        self.snapshots.high_watermark = high_watermark
        if self.loads.current is not None:
            return
        is_wanted = is_asked and self.snapshots.bytes_since_last > 0 and not self.snapshots.is_busy
        if not is_wanted and not self.snapshots.is_due:
            return
        values = self._machine.take_state()
        if values is None:
            return
        snapshot_id = SnapshotId(self.applied_end_offset, self._applied_epoch)
        self.snapshots.begin(snapshot_id, self._applied_timestamp_ms, values, self.raft)

    def _on_checkpoint_due(self) -> None:
        if self.is_open and self.failure is None:
            self.driver.tell(lambda: self._maybe_checkpoint(self.snapshots.high_watermark))

    def _on_checkpoint_failure(self, error: BaseException) -> None:
        self.driver.fail(error)

    def _on_snapshot_written(self, snapshot_id: SnapshotId, size_bytes: int) -> None:
        self.on_checkpoint(size_bytes)
        self.driver.tell(lambda: self._tell_snapshot(snapshot_id, size_bytes))

    def _tell_snapshot(self, snapshot_id: SnapshotId, size_bytes: int) -> None:
        # A lower one is void: another was loaded from the leader meanwhile.
        if self.is_open and snapshot_id.end_offset >= self.log.log_start_offset:
            self.raft.on_snapshot_created(snapshot_id, size_bytes)

    def _on_cleaned(self, oldest: SnapshotId) -> None:
        self.driver.tell(lambda: self._tell_log_start(oldest))

    def _tell_log_start(self, oldest: SnapshotId) -> None:
        if self.is_open and self.log.log_start_offset == oldest.end_offset > self.raft.log.start_offset:
            self.raft.on_log_start_advanced(oldest)
