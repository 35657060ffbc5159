"""The metadata quorum: this node's replica of ``__cluster_metadata`` and, while it leads, the active controller.

Operations run one after the other on the loop; what they write is proposed at once and flushed on a thread of its own.
When the high watermark passes an operation's records they go into the committed image, the listeners are told, and
only then is the operation's future completed. A replica that does not lead applies what its log has below the high
watermark. A new leader first applies everything before its epoch: the controller begins from a complete image.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kraftlog.controller import ControllerConfig, ControllerCore, ControllerResult, MetadataDelta, MetadataImage
from kraftlog.controller.image import VersionedRecord
from kraftlog.controller.image_difference import image_difference
from kraftlog.errors import ErrorCode, KafkaError, KraftlogError, LogError, NodeClosedError
from kraftlog.raft.voter_set import Endpoint
from kraftlog.server.metadata_replay import load_snapshot, replay_batch, replay_metadata_log
from kraftlog.server.metadata_snapshots import MetadataSnapshots
from kraftlog.server.quorum_config import ensure_directory_id, metadata_log_config, raft_config, static_voters
from kraftlog.server.quorum_info import QuorumInfo, describe
from kraftlog.server.raft.driver import RaftDriver
from kraftlog.storage.bootstrap import read_bootstrap
from kraftlog.storage.metadata_log import MetadataLog
from kraftlog.storage.snapshot_file import METADATA_PARTITION_NAME, Snapshot
from kraftlog.types import Epoch, NodeId, Offset, SnapshotId, Uuid
from kraftlog.wire.records import encode_metadata_record
from kraftlog.wire.struct import Message

if TYPE_CHECKING:
    from kraftlog.server.node import Node

__all__ = ["MetadataListener", "MetadataQuorum"]

logger = logging.getLogger(__name__)

T = TypeVar("T")
Operation = Callable[[ControllerCore, int], ControllerResult[T]]
MetadataListener = Callable[[MetadataImage, MetadataDelta], None]

_BATCH_OVERHEAD_BYTES = 64
_RECORD_OVERHEAD_BYTES = 24
_MAX_RECORDS_PER_BATCH = 10_000
_STOP_TIMEOUT_S = 5.0


@dataclass(slots=True)
class _Batch:
    """Records that are proposed together, decoded and encoded."""

    records: list[VersionedRecord] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    size_bytes: int = _BATCH_OVERHEAD_BYTES

    def add(self, record: Message, version: int, value: bytes, size_bytes: int) -> None:
        """Take one more."""
        self.records.append((record, version))
        self.values.append(value)
        self.size_bytes += size_bytes


@dataclass(slots=True)
class _Pending:
    """Something that waits until everything up to ``last_offset`` (inclusive) is committed.

    ``records`` are those from ``base_offset`` on; what only waits has none.
    """

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int
    size_bytes: int = 0
    records: Sequence[VersionedRecord] = ()
    future: asyncio.Future[Any] | None = None
    response: object = None


class MetadataQuorum:
    """This node's part in the metadata quorum.

    All methods are called on the node's loop.

    Args:
        node: Gives configuration, the locked data directories and the bound listeners.

    Attributes:
        image: What is committed.
        cluster_id, node_id, directory_id: As in meta.properties.
        failure: What made the metadata log unwritable, None while it works; every operation then fails.
        failed: Set together with ``failure``: the process should end.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self.image = MetadataImage()
        self.cluster_id = node.cluster_id
        self.node_id = NodeId(node.config.node_id)
        self.directory_id = Uuid.ZERO
        self.failure: BaseException | None = None
        self.failed = asyncio.Event()
        self._listeners: list[MetadataListener] = []
        self._operations: deque[tuple[Operation[Any], asyncio.Future[Any]]] = deque()
        self._pending: deque[_Pending] = deque()
        self._applied_end_offset = Offset(0)
        self._controller: ControllerCore | None = None
        self._unclaimed_epoch: Epoch | None = None
        self._epoch_start_offset = Offset(0)
        self._is_turn_scheduled = False
        self._is_open = False
        self._is_stopping = False
        self._leader_changed = asyncio.Event()
        self._offset_waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._idle_timer: asyncio.TimerHandle | None = None

    # What it is

    @property
    def is_leader(self) -> bool:
        """Whether operations can be submitted here."""
        return self._is_open and self._raft.is_leader

    @property
    def is_sole_voter(self) -> bool:
        """Whether this node alone is the quorum."""
        return self._raft.voters.is_only_voter(self._raft.config.local_key)

    @property
    def leader_endpoints(self) -> tuple[Endpoint, ...]:
        """Where the active controller listens, as far as known."""
        return self._raft.leader_endpoints

    @property
    def kraft_version(self) -> int:
        """The level of kraft.version, which the raft layer keeps apart from the image's features."""
        return self._raft.kraft_version

    @property
    def leader_epoch(self) -> int:
        """The current epoch."""
        return self._raft.epoch

    @property
    def leader_id(self) -> int:
        """The leader, -1 when unknown."""
        return -1 if self._raft.leader_id is None else self._raft.leader_id

    @property
    def high_watermark(self) -> int:
        """Exclusive end of what is committed, -1 when unknown."""
        return -1 if self._raft.high_watermark is None else self._raft.high_watermark

    def describe_quorum(self) -> QuorumInfo:
        """The quorum as this node sees it."""
        return describe(self._raft, now_ms=self._driver.now_ms(), wall_ms=self._wall_ms())

    def add_listener(self, listener: MetadataListener) -> None:
        """Call ``listener(image, delta)`` after each commit that changed something, before its futures complete."""
        self._listeners.append(listener)

    # Life

    async def start(self) -> None:
        """Open the log and take part. A sole voter leads and has committed all when this returns.

        Raises:
            LogError: The directory cannot be read or written.
            CorruptRecordError: A record cannot be replayed.
        """
        self._loop = asyncio.get_running_loop()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kraftlog-metadata")
        config = self._node.config
        log_dir = next(one for one in self._node.log_dirs if one.path == config.metadata_log_dir)
        self.directory_id = ensure_directory_id(config.metadata_log_dir)
        self._log = MetadataLog(
            config.metadata_log_dir / METADATA_PARTITION_NAME,
            metadata_log_config(config),
            now_ms=self._wall_ms(),
            clean_shutdown=log_dir.was_clean_shutdown,
        )
        replayed = replay_metadata_log(self._log, static_voters(config))
        self.image, self._applied_end_offset = replayed.image, replayed.applied_end_offset
        self._snapshots = MetadataSnapshots(
            self._log, self._executor, 0, on_written=self._on_snapshot_written, on_failure=self.on_failure
        )
        self._snapshots.max_bytes = config.get_int("metadata.log.max.record.bytes.between.snapshots")
        self._snapshots.max_interval_ms = config.get_int("metadata.log.max.snapshot.interval.ms")
        self._driver = RaftDriver(
            raft_config(self._node, self.directory_id, max_batch_bytes=self._log.config.max_batch_bytes),
            self._log,
            voters=replayed.voters,
            kraft_versions=replayed.kraft_versions,
            machine=self,
            executor=self._executor,
        )
        self._raft = self._driver.core
        self._is_open = True
        self._driver.start()
        if self.is_sole_voter:
            # Nobody has to be waited for: what the log has is committed as soon as this node leads.
            await self.submit(lambda _controller, _now_ms: ControllerResult(None, []))
        self._arm_idle_timer()

    def _new_controller(self) -> ControllerCore:
        config = ControllerConfig(
            cluster_id=self.cluster_id,
            local_node_id=self.node_id,
            static_broker_configs=self._node.config.properties,
            kraft_version=lambda: self._raft.kraft_version,
        )
        return ControllerCore(config, self.image.copy(), rng=random.Random(secrets.randbits(64)))

    async def stop(self) -> None:
        """Finish what was proposed, resign, close the log. Operations not begun fail with NodeClosedError."""
        if self._is_stopping or not hasattr(self, "_executor"):
            return
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._is_stopping = True
        if self._is_open:
            await self._finish_proposals()
            await self._snapshots.finish()
            await self._resign()
        self._is_open = False
        self._fail_waiting(NodeClosedError("the node was stopped"))
        if hasattr(self, "_driver"):
            await self._driver.stop()
        if hasattr(self, "_log"):
            try:
                await self._loop.run_in_executor(self._executor, self._log.close)
            except (OSError, LogError) as error:
                self.on_failure(error)
        self._executor.shutdown(wait=True)

    async def _finish_proposals(self) -> None:
        """Wait a moment for what was proposed to be committed."""
        futures = [pending.future for pending in self._pending if pending.future is not None]
        if futures and self.failure is None:
            await asyncio.wait(futures, timeout=_STOP_TIMEOUT_S)

    async def _resign(self) -> None:
        """Let somebody else lead, and wait a moment until he does (KIP-595)."""
        self._driver.tell(lambda: self._raft.shut_down(self._driver.now_ms()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                while not self._raft.is_shut_down and self.failure is None:
                    self._leader_changed.clear()
                    await self._leader_changed.wait()

    # Other replicas

    def handle_request(self, request: Message, *, version: int, listener_name: str) -> asyncio.Future[Message]:
        """Answer another replica, or whoever adds and removes voters.

        Raises:
            KafkaError: The request is not about the metadata partition, or the node is stopping.
        """
        if not self._is_open or self.failure is not None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        return self._driver.handle_request(request, version=version, listener_name=listener_name)

    # Operations

    def submit(self, operation: Operation[T]) -> asyncio.Future[T]:
        """Run ``operation(controller, now_ms)``; the future has its response once its records are committed.

        The future fails with what the operation raises, with NOT_CONTROLLER where this node does not lead, or with
        NodeClosedError.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        self._operations.append((operation, future))
        self._schedule_turn()
        return future

    def _schedule_turn(self) -> None:
        if not self._is_turn_scheduled:
            self._is_turn_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Run every operation that has been submitted, unless a new leader does not know all yet."""
        self._is_turn_scheduled = False
        has_to_wait = self._is_open and self._raft.is_leader and self._controller is None
        if not has_to_wait or self._is_stopping or self.failure is not None:
            self._run_all()

    def _run_all(self) -> None:
        while self._operations:
            operation, future = self._operations.popleft()
            if self._is_open and self.failure is None:
                self._driver.tell(partial(self._run, operation, future))
            else:
                self._run(operation, future)

    def _run(self, operation: Operation[Any], future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            return
        if self._is_stopping or not self._is_open or self.failure is not None:
            reason = "the node was stopped" if self.failure is None else f"the metadata log failed: {self.failure}"
            future.set_exception(NodeClosedError(reason))
            return
        if self._controller is None or not self._raft.is_leader:
            future.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER, "This is not the correct controller."))
            return
        try:
            result = operation(self._controller, self._wall_ms())
            self._propose(self._to_batches(result), result.response, future)
        except KraftlogError as error:
            # A proposal is refused where this node has just seen that it no longer leads.
            if not future.done():
                future.set_exception(error)

    def _to_batches(self, result: ControllerResult[Any]) -> list[_Batch]:
        """Encode the records: into one batch when they belong together, else into as many as their size asks for.

        Raises:
            KafkaError: POLICY_VIOLATION; what belongs together is larger than a batch may be.
        """
        batches: list[_Batch] = []
        limit_bytes = self._log.config.max_batch_bytes
        for record, version in result.records:
            value = encode_metadata_record(record, version)
            size_bytes = len(value) + _RECORD_OVERHEAD_BYTES
            is_full = bool(batches) and (
                batches[-1].size_bytes + size_bytes > limit_bytes or len(batches[-1].values) == _MAX_RECORDS_PER_BATCH
            )
            if is_full and result.is_atomic and batches[-1].size_bytes + size_bytes > limit_bytes:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION,
                    f"The operation needs {len(result.records)} metadata records at once, more than the {limit_bytes}"
                    " bytes one batch holds",
                )
            if not batches or (is_full and not result.is_atomic):
                batches.append(_Batch())
            batches[-1].add(record, version, value, size_bytes)
        return batches

    def _propose(self, batches: Sequence[_Batch], response: object, future: asyncio.Future[Any]) -> None:
        if not batches:
            # What it read may not be committed yet: its answer waits for that.
            if self._pending:
                last = self._pending[-1]
                self._pending.append(
                    _Pending(
                        last.last_offset + 1,
                        last.last_offset,
                        last.epoch,
                        last.timestamp_ms,
                        future=future,
                        response=response,
                    )
                )
            else:
                future.set_result(response)
            return
        controller = self._controller
        if controller is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        for batch in batches:
            last_offset = self._raft.propose(batch.values, self._driver.now_ms(), size_bytes=batch.size_bytes)
            epoch = self._raft.epoch
            controller.apply(batch.records, last_offset=last_offset, epoch=epoch)
            base_offset = last_offset - len(batch.records) + 1
            self._pending.append(
                _Pending(base_offset, last_offset, epoch, self._wall_ms(), batch.size_bytes, batch.records)
            )
        self._pending[-1].future, self._pending[-1].response = future, response

    # What the driver tells

    def on_appended(self, base_offset: Offset, last_offset: Offset, epoch: Epoch, size_bytes: int) -> None:
        """Control records were appended between those of operations."""
        del base_offset, size_bytes
        if self._controller is not None:
            self._controller.apply((), last_offset=last_offset, epoch=epoch)

    def on_leader_changed(self, leader_id: NodeId | None, epoch: Epoch) -> None:
        """Begin or end to be the active controller."""
        self._leader_changed.set()
        self._node.controllers.leader_changed()
        self._controller = None
        if leader_id != self.node_id:
            logger.info("the leader of epoch %d is %s", epoch, "unknown" if leader_id is None else leader_id)
            self._unclaimed_epoch = None
            # What was proposed may still be committed by the next leader, perhaps this node: only the answers are lost.
            self._fail_waiting(
                NodeClosedError("the node was stopped")
                if self._is_stopping
                else KafkaError(ErrorCode.NOT_CONTROLLER, "This node is no longer the leader.")
            )
            self._pending.clear()
            return
        self._unclaimed_epoch = epoch
        self._epoch_start_offset = self._raft.log.end_offset_for_epoch(Epoch(epoch - 1)).end_offset
        logger.info("leading the metadata quorum in epoch %d from offset %d", epoch, self._epoch_start_offset)

    def on_committed(self, high_watermark: Offset) -> None:
        """Apply what is committed, tell the listeners, complete futures."""
        done: list[_Pending] = []
        delta = MetadataDelta()
        while True:
            pending = self._pending[0] if self._pending else None
            if pending is not None and pending.last_offset < self._applied_end_offset:
                done.append(self._pending.popleft())
            elif self._applied_end_offset >= high_watermark:
                break
            elif pending is not None and pending.base_offset == self._applied_end_offset:
                self._apply_pending(pending, delta)
            else:
                end_offset = high_watermark if pending is None else min(high_watermark, Offset(pending.base_offset))
                self._apply_from_log(end_offset, delta)
        if not delta.is_empty:
            self._tell_listeners(delta)
        for pending in done:
            if pending.future is not None and not pending.future.done():
                pending.future.set_result(pending.response)
        if self._offset_waiters:
            self._wake_waiters()
        if self._unclaimed_epoch is not None and high_watermark > self._epoch_start_offset and self._raft.is_leader:
            self._claim()
        self._snapshots.maybe_begin(self.image, self._raft, high_watermark)

    def _apply_pending(self, pending: _Pending, delta: MetadataDelta) -> None:
        for record, _ in pending.records:
            self.image.replay(record, delta)
        self.image.offset, self.image.epoch = pending.last_offset, pending.epoch
        self.image.timestamp_ms = max(self.image.timestamp_ms, pending.timestamp_ms)
        self._snapshots.bytes_since_last += pending.size_bytes
        self._applied_end_offset = Offset(pending.last_offset + 1)

    def _apply_from_log(self, end_offset: Offset, delta: MetadataDelta) -> None:
        for batch in self._log.batches(self._applied_end_offset, end_offset):
            replay_batch(self._log, batch, self.image, delta)
            self._snapshots.bytes_since_last += batch.size_bytes
            self._applied_end_offset = Offset(batch.last_offset + 1)

    def _claim(self) -> None:
        """The image has everything from before this node's epoch: be the active controller."""
        self._unclaimed_epoch = None
        self._controller = controller = self._new_controller()
        bootstrap = read_bootstrap(self._node.config.metadata_log_dir).records if controller.image.is_empty else ()
        result = controller.activate(bootstrap)
        self._propose(self._to_batches(result), None, self._loop.create_future())
        self._schedule_turn()

    def on_snapshot_loaded(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        """Replace the image; listeners are told the difference."""
        old, self.image = self.image, MetadataImage()
        load_snapshot(self.image, snapshot_id, snapshot)
        self._applied_end_offset = snapshot_id.end_offset
        self._snapshots.bytes_since_last = 0
        delta = image_difference(old, self.image)
        if not delta.is_empty:
            self._tell_listeners(delta)
        self._wake_waiters()

    def _on_snapshot_written(self, snapshot_id: SnapshotId, size_bytes: int, oldest: SnapshotId) -> None:
        if not self._is_open or snapshot_id.end_offset < self._log.log_start_offset:
            return  # another one was loaded from the leader meanwhile
        self._raft.on_snapshot_created(snapshot_id, size_bytes)
        if self._log.log_start_offset >= oldest.end_offset:
            self._raft.on_log_start_advanced(oldest)

    async def wait_for_offset(self, offset: int) -> None:
        """Wait until the record at ``offset`` is in the image."""
        if self._applied_end_offset <= offset:
            future: asyncio.Future[None] = self._loop.create_future()
            self._offset_waiters.append((offset, future))
            await future

    async def wait_for_topics(self, names: Iterable[str]) -> None:
        """Wait until these topics, which the active controller has created, are in the image, or are gone again."""
        end_s = self._loop.time() + _STOP_TIMEOUT_S
        for name in names:
            while self.image.topics.by_name(name) is None and self._loop.time() < end_s:
                await self.wait_for_offset(self._applied_end_offset)

    def _wake_waiters(self) -> None:
        reached = [one for one in self._offset_waiters if one[0] < self._applied_end_offset]
        for waiter in reached:
            self._offset_waiters.remove(waiter)
            if not waiter[1].done():
                waiter[1].set_result(None)

    def _tell_listeners(self, delta: MetadataDelta) -> None:
        for listener in self._listeners:
            listener(self.image, delta)

    def on_failure(self, error: BaseException) -> None:
        """The log or its directory failed: nothing is retried, everything that waits is told."""
        if self.failure is None:
            self.failure = error
            self.failed.set()
            is_known = isinstance(error, OSError | KraftlogError)
            logger.critical(
                "the metadata log failed and takes no more writes: %s", error, exc_info=None if is_known else error
            )
        self._fail_waiting(NodeClosedError(f"the metadata log failed: {error}"))

    def _fail_waiting(self, error: KraftlogError) -> None:
        waiting: list[asyncio.Future[Any] | None] = [pending.future for pending in self._pending]
        waiting += [future for _, future in self._operations]
        if self.failure is not None or self._is_stopping:
            waiting += [future for _, future in self._offset_waiters]
            self._offset_waiters.clear()
        for pending in self._pending:
            pending.future = None
        self._operations.clear()
        for future in waiting:
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()  # whoever awaits it still gets it; nobody has to

    # Timers

    def _arm_idle_timer(self) -> None:
        """Write a NoOp record when nothing else was for metadata.max.idle.interval.ms, so that lag can be seen."""
        interval_s = self._node.config.get_int("metadata.max.idle.interval.ms") / 1000
        if interval_s > 0 and self._is_open:
            idle_s = time.monotonic() - self._driver.last_append_s
            delay_s = interval_s - idle_s if idle_s < interval_s else interval_s
            self._idle_timer = self._loop.call_later(delay_s, self._on_idle, interval_s)

    def _on_idle(self, interval_s: float) -> None:
        if (
            self.is_leader
            and self.failure is None
            and time.monotonic() - self._driver.last_append_s >= interval_s * 0.9
        ):
            self.submit(lambda controller, _: controller.no_op()).add_done_callback(_ignore)
        self._arm_idle_timer()

    def _wall_ms(self) -> int:
        return self._node.now_ms()


def _ignore(future: asyncio.Future[None]) -> None:
    """Nobody waits for a NoOp; its failure has been logged where it happened."""
    if not future.cancelled():
        future.exception()
