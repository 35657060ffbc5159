"""The metadata quorum: this node's replica of ``__cluster_metadata`` and, while it leads, the active controller.

Operations run one after the other on the loop; what they write is proposed at once and flushed on a thread of its own.
When the high watermark passes an operation's records they go into the committed image, the listeners are told, and
only then is the operation's future completed. A replica that does not lead applies what its log has below the high
watermark. A new leader first applies everything before its epoch: the controller begins from a complete image.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kraftlog._kraftlog import RecordBatch
from kraftlog.controller import ControllerConfig, ControllerCore, ControllerResult, MetadataDelta, MetadataImage
from kraftlog.controller.image import VersionedRecord
from kraftlog.controller.image_difference import image_difference
from kraftlog.controller.operations import operation_of
from kraftlog.errors import ErrorCode, KafkaError, KraftlogError, NodeClosedError
from kraftlog.raft.core import RaftCore
from kraftlog.raft.voter_set import Endpoint
from kraftlog.runtime.metadata.metadata_metrics import MetadataMetrics
from kraftlog.runtime.metadata.operation_queue import Operation, OperationQueue, SubmittedOperation
from kraftlog.runtime.metadata.quorum_config import ensure_directory_id, metadata_log_config, raft_config, static_voters
from kraftlog.runtime.metadata.quorum_info import QuorumInfo, describe
from kraftlog.runtime.metadata.replay import load_snapshot, replay_batch
from kraftlog.runtime.raft.driver import RaftDriver
from kraftlog.runtime.raft.replicated_log import Proposed, ReplicatedLog
from kraftlog.storage.bootstrap import read_bootstrap
from kraftlog.storage.snapshot_file import METADATA_PARTITION_NAME, Snapshot
from kraftlog.types import Epoch, NodeId, Offset, SnapshotId, Uuid
from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftlog.wire.records import encode_metadata_record
from kraftlog.wire.struct import Message

if TYPE_CHECKING:
    from kraftlog.node.node import Node

__all__ = ["MetadataListener", "MetadataQuorum"]

logger = logging.getLogger(__name__)

T = TypeVar("T")
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
class _Answer:
    """What an operation wrote, and its answer once that is committed."""

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
        self._session_timer: asyncio.TimerHandle | None = None
        self._controller: ControllerCore | None = None
        self._delta = MetadataDelta()
        self._apply_start_ns = 0
        self._is_open = False
        self._is_stopping = False
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
        config = self._node.config
        log_dir = next(one for one in self._node.log_dirs if one.path == config.metadata_log_dir)
        self.directory_id = ensure_directory_id(config.metadata_log_dir)
        self._metrics = MetadataMetrics(self._node)
        self._operations = OperationQueue(self._loop, self._turn, self._metrics.on_operation_timed_out)
        self._replicated = ReplicatedLog(
            self,
            directory=config.metadata_log_dir / METADATA_PARTITION_NAME,
            log_config=metadata_log_config(config),
            clean_shutdown=log_dir.was_clean_shutdown,
            static_voters=static_voters(config),
            snapshot_max_bytes=config.get_int("metadata.log.max.record.bytes.between.snapshots"),
            snapshot_max_interval_ms=config.get_int("metadata.log.max.snapshot.interval.ms"),
            wall_ms=self._wall_ms,
            name="kraftlog-metadata",
        )
        self._log = self._replicated.log
        self._snapshots = self._replicated.snapshots
        self._replicated.on_checkpoint = self._metrics.on_snapshot_written
        self._replicated.start(
            raft_config(self._node, self.directory_id, max_batch_bytes=self._log.config.max_batch_bytes),
            metrics=self._metrics.raft,
            tls=config.client_tls,
        )
        self._is_open = True
        self._note_progress()
        if self.is_sole_voter:
            # Nobody has to be waited for: what the log has is committed as soon as this node leads.
            await self.submit(lambda _controller, _now_ms: ControllerResult(None, []))
        self._arm_idle_timer()

    def _new_controller(self) -> ControllerCore:
        config = ControllerConfig(
            cluster_id=self.cluster_id,
            local_node_id=self.node_id,
            static_broker_configs=self._node.config.properties,
            broker_session_timeout_ms=self._node.config.get_int("broker.session.timeout.ms"),
            kraft_version=lambda: self._raft.kraft_version,
            raise_kraft_version=lambda level, is_dry_run: self._raft.update_kraft_version(
                level, self._driver.now_ms(), is_dry_run=is_dry_run
            ),
        )
        return ControllerCore(config, self.image.copy(), rng=random.Random(secrets.randbits(64)))

    async def stop(self) -> None:
        """Finish what was proposed, resign, close the log. Operations not begun fail with NodeClosedError."""
        if self._is_stopping or not hasattr(self, "_replicated"):
            if hasattr(self, "_metrics"):
                self._metrics.close()
            return
        for timer in (self._idle_timer, self._session_timer):
            if timer is not None:
                timer.cancel()
        self._is_stopping = True
        await self._replicated.stop(self._close_operations)
        self._metrics.close()

    def _close_operations(self) -> None:
        self._is_open = False
        self._fail_operations(NodeClosedError("the node was stopped"))

    @property
    def _raft(self) -> RaftCore:
        return self._replicated.raft

    @property
    def _driver(self) -> RaftDriver:
        return self._replicated.driver

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

    def submit(self, operation: Operation[T], *, timeout_s: float | None = None) -> asyncio.Future[T]:
        """Run ``operation(controller, now_ms)``; the future has its response once its records are committed.

        Args:
            operation: Told the monotonic clock.
            timeout_s: How long it may wait until it is begun; as long as it takes when None.

        The future fails with what the operation raises, with NOT_CONTROLLER where this node does not lead, with
        REQUEST_TIMED_OUT, or with NodeClosedError.
        """
        return self._operations.submit(operation, timeout_s=timeout_s)

    def submit_request(self, request: Message, *, timeout_s: float | None = None) -> asyncio.Future[Any]:
        """Run the operation that ``request`` asks for; the future has the response once its records are committed.

        Args:
            request: One that ``controller.operations`` has.
            timeout_s: How long it may wait until it is begun. When None as long as it takes, for a heartbeat at most
                half the time in which a broker sends its next one.

        If the response has a place for errors at each topic or resource, it carries those of the whole request there.
        NOT_CONTROLLER fails the future in any case, so that who forwards requests can ask the next controller.

        Raises:
            TypeError: The controller does not serve such requests.
        """
        operation = operation_of(request)
        is_heartbeat = type(request) is BrokerHeartbeatRequest
        if timeout_s is None and is_heartbeat:
            timeout_s = self._node.config.get_int("broker.heartbeat.interval.ms") / 2000
        refuse = None if operation.refuse is None else partial(operation.refuse, request)
        future: asyncio.Future[Any] = self._operations.submit(
            lambda core, now_ms: operation.run(core, request, now_ms), timeout_s=timeout_s, refuse=refuse
        )
        if is_heartbeat:
            future.add_done_callback(self._count_heartbeat)
        return future

    def submit_heartbeat(self, operation: Operation[T]) -> asyncio.Future[T]:
        """As ``submit``, for at most half the time in which a broker sends its next one."""
        timeout_s = self._node.config.get_int("broker.heartbeat.interval.ms") / 2000
        future = self.submit(operation, timeout_s=timeout_s)
        future.add_done_callback(self._count_heartbeat)
        return future

    def _count_heartbeat(self, future: asyncio.Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        if isinstance(error, KafkaError) and error.code == ErrorCode.REQUEST_TIMED_OUT:
            self._metrics.on_heartbeat_timed_out()

    def _turn(self) -> None:
        """Run what has been submitted by now, each operation as an event of its own.

        An operation stays in the queue until it is run: the driver delays events while it writes the election state,
        and drops them when the replica ends.
        """
        for _ in range(len(self._operations)):
            if self._is_open and self.failure is None:
                self._driver.tell(self._run_next)
            else:
                self._run_next()

    def _run_next(self) -> None:
        """Run the first operation, unless a new leader does not know all yet."""
        can_run = self._is_open and not self._is_stopping and self.failure is None
        if can_run and self._raft.is_leader and self._controller is None:
            return
        entry = self._operations.take()
        if entry is not None:
            started_ns = time.monotonic_ns()
            self._run(entry)
            if can_run:
                self._metrics.on_operation(entry.submitted_ns, started_ns)

    def _run(self, entry: SubmittedOperation) -> None:
        if entry.future.cancelled():
            return
        if self._is_stopping or not self._is_open or self.failure is not None:
            reason = "the node was stopped" if self.failure is None else f"the metadata log failed: {self.failure}"
            entry.fail(NodeClosedError(reason))
            return
        if self._controller is None or not self._raft.is_leader:
            entry.fail(KafkaError(ErrorCode.NOT_CONTROLLER, "This is not the correct controller."))
            return
        try:
            result = entry.run(self._controller, self._driver.now_ms())
            batches = self._to_batches(result)
        except KraftlogError as error:
            entry.fail(error)
            return
        except Exception as error:
            # Nothing is proposed yet, and the image is as it was: only this request is lost.
            logger.exception("an operation of the controller failed")
            unexpected = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}")
            unexpected.__cause__ = error
            entry.fail(unexpected)
            return
        try:
            self._propose(batches, result.response, entry.future)
        except KraftlogError as error:
            # A proposal is refused where this node has just seen that it no longer leads.
            entry.fail(error)
        except Exception as error:  # noqa: BLE001 - whatever it was, the controller's image and the log may differ
            entry.fail(NodeClosedError(f"the active controller failed: {error}"))
            self._driver.fail(error)

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
            if not self._replicated.await_pending(_Answer((), future, response)):
                future.set_result(response)
            return
        controller = self._controller
        if controller is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        answer = _Answer()
        for batch in batches:
            answer = _Answer(batch.records)
            proposed = self._replicated.propose(batch.values, size_bytes=batch.size_bytes, payload=answer)
            controller.apply(batch.records, last_offset=proposed.last_offset, epoch=proposed.epoch)
        answer.future, answer.response = future, response

    # What the log tells

    def on_control_appended(self, last_offset: Offset, epoch: Epoch) -> None:
        """Control records were appended between those of operations."""
        # An operation that raised kraft.version has proposed its own record behind them already.
        if self._controller is not None and last_offset >= self._controller.next_offset:
            self._controller.apply((), last_offset=last_offset, epoch=epoch)
            self._note_progress()

    def on_leader_changed(self, leader_id: NodeId | None, epoch: Epoch, lost: Sequence[Proposed[_Answer]]) -> None:
        """End to be the active controller, or begin once ``on_leading`` is called."""
        self._node.controllers.leader_changed()
        self._controller = None
        self._metrics.on_leader_changed(leader_id)
        self._note_progress()
        if leader_id == self.node_id:
            logger.info("leading the metadata quorum in epoch %d", epoch)
            return
        logger.info("the leader of epoch %d is %s", epoch, "unknown" if leader_id is None else leader_id)
        # What was proposed may still be committed by the next leader, perhaps this node: only the answers are lost.
        error: KraftlogError = (
            NodeClosedError("the node was stopped")
            if self._is_stopping
            else KafkaError(ErrorCode.NOT_CONTROLLER, "This node is no longer the leader.")
        )
        _fail([one.payload.future for one in lost], error)
        self._fail_operations(error)

    def apply_proposed(self, proposed: Proposed[_Answer]) -> None:
        """Put an operation's records into the image."""
        self._apply_start_ns = self._apply_start_ns or time.monotonic_ns()
        for record, _ in proposed.payload.records:
            self.image.replay(record, self._delta)
        self.image.offset, self.image.epoch = proposed.last_offset, proposed.epoch
        self.image.timestamp_ms = max(self.image.timestamp_ms, proposed.timestamp_ms)

    def apply_batch(self, batch: RecordBatch) -> None:
        """Put a batch of the log into the image."""
        self._apply_start_ns = self._apply_start_ns or time.monotonic_ns()
        replay_batch(self._replicated.log, batch, self.image, self._delta)

    def on_applied(self, done: Sequence[Proposed[_Answer]]) -> None:
        """Tell the listeners what changed, then complete futures."""
        delta, self._delta = self._delta, MetadataDelta()
        if not delta.is_empty:
            self._metrics.on_changed(self.image, delta, self._raft)
            try:
                self._tell_listeners(delta)
            except Exception as error:
                # They are committed, but this node can say nothing any more.
                lost = NodeClosedError(f"what was committed cannot be acted on: {error}")
                _fail([one.payload.future for one in done], lost)
                raise
        for proposed in done:
            answer = proposed.payload
            if answer.future is not None and not answer.future.done():
                answer.future.set_result(answer.response)
        self._note_progress()
        if self._apply_start_ns:
            self._metrics.on_batch(self._apply_start_ns)
            self._apply_start_ns = 0

    def _note_progress(self) -> None:
        active_end_offset = None if self._controller is None else self._controller.next_offset
        self._metrics.on_applied(self.image, self._raft, active_end_offset=active_end_offset)

    def on_leading(self, epoch: Epoch) -> None:
        """The image has everything from before this node's epoch: be the active controller."""
        del epoch
        self._controller = controller = self._new_controller()
        bootstrap = read_bootstrap(self._node.config.metadata_log_dir).records if controller.image.is_empty else ()
        result = controller.activate(bootstrap, self._driver.now_ms())
        self._propose(self._to_batches(result), None, self._loop.create_future())
        self._arm_session_timer()
        self._note_progress()
        self._operations.schedule_turn()

    def load_snapshot(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        """Replace the image; listeners are told the difference."""
        old, self.image = self.image, MetadataImage()
        load_snapshot(self.image, snapshot_id, snapshot)
        self._metrics.on_snapshot_loaded(self.image)
        if self._listeners:
            delta = image_difference(old, self.image)
            if not delta.is_empty:
                self._tell_listeners(delta)

    def take_state(self) -> Sequence[bytes] | None:
        """The records of a checkpoint, unless a transaction of metadata is open."""
        if self.image.is_in_transaction:
            return None
        return [encode_metadata_record(record, version) for record, version in self.image.to_records()]

    async def wait_for_offset(self, offset: int) -> None:
        """Wait until the record at ``offset`` is in the image."""
        await self._replicated.wait_for_offset(offset)

    async def wait_for_topics(self, names: Iterable[str]) -> None:
        """Wait until these topics, which the active controller has created, are in the image, or are gone again."""
        end_s = self._loop.time() + _STOP_TIMEOUT_S
        for name in names:
            while self.image.topics.by_name(name) is None and self._loop.time() < end_s:
                await self.wait_for_offset(self._replicated.applied_end_offset)

    def _tell_listeners(self, delta: MetadataDelta) -> None:
        try:
            for listener in self._listeners:
                listener(self.image, delta)
        except Exception:
            self._metrics.on_apply_error()
            raise

    def on_failure(self, error: BaseException) -> None:
        """The log or its directory failed: nothing is retried, everything that waits is told."""
        self.failure = error
        self.failed.set()
        self._metrics.on_failure(error)
        is_known = isinstance(error, OSError | KraftlogError)
        logger.critical(
            "the metadata log failed and takes no more writes: %s", error, exc_info=None if is_known else error
        )
        self._fail_operations(NodeClosedError(f"the metadata log failed: {error}"))

    def _fail_operations(self, error: KraftlogError) -> None:
        """Tell those who submitted an operation that its answer will not come."""
        waiting: list[asyncio.Future[Any] | None] = [one.payload.future for one in self._replicated.pending]
        waiting += [entry.future for entry in self._operations.take_all()]
        if self.failure is not None or self._is_stopping:
            self._replicated.fail_offset_waiters(error)
        _fail(waiting, error)

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

    def _arm_session_timer(self) -> None:
        """Fence brokers that have been silent for broker.session.timeout.ms, as long as this node is active."""
        if self._session_timer is not None:
            self._session_timer.cancel()
        if self._controller is not None and self._is_open and not self._is_stopping:
            interval_s = self._controller.sessions.look_interval_ms / 1000
            self._session_timer = self._loop.call_later(interval_s, self._look_at_sessions)

    def _look_at_sessions(self) -> None:
        controller = self._controller
        if controller is not None and self.failure is None and controller.sessions.has_expired(self._driver.now_ms()):
            self.submit(lambda core, now_ms: core.fence_silent_broker(now_ms)).add_done_callback(self._on_fenced)
        self._arm_session_timer()

    def _on_fenced(self, future: asyncio.Future[int | None]) -> None:
        if future.cancelled() or future.exception() is not None:
            return  # the next active controller begins with whole sessions
        broker_id = future.result()
        if broker_id is not None:
            logger.warning("broker %d has sent no heartbeat for its session timeout and is fenced", broker_id)
        if self._controller is not None:
            self._look_at_sessions()  # one at a time

    def _wall_ms(self) -> int:
        return self._node.now_ms()


def _ignore(future: asyncio.Future[None]) -> None:
    """Nobody waits for a NoOp; its failure has been logged where it happened."""
    if not future.cancelled():
        future.exception()


def _fail(waiting: Iterable[asyncio.Future[Any] | None], error: KraftlogError) -> None:
    for future in waiting:
        if future is not None and not future.done():
            future.set_exception(error)
            future.exception()  # whoever awaits it still gets it; nobody has to
