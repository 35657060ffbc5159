"""The shell of the metadata quorum: drives the raft core and the controller on the node's loop over the real log.

Operations run one after the other on the loop; what they write is proposed at once and flushed on a thread of its own.
One flush covers everything appended before it began. When the high watermark passes an operation's records they go into
the committed image, the listeners are told, and only then is the operation's future completed.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from kraftlog.controller import ControllerConfig, ControllerCore, ControllerResult, MetadataDelta, MetadataImage
from kraftlog.controller.image import VersionedRecord
from kraftlog.errors import ErrorCode, KafkaError, KraftlogError, LogError, NodeClosedError
from kraftlog.features import supported_ranges
from kraftlog.raft.core import RaftConfig, RaftCore
from kraftlog.raft.effects import (
    AppendControlRecords,
    AppendRecords,
    Effect,
    Fault,
    FlushLog,
    HighWatermarkAdvanced,
    LeaderChanged,
    PeerEffect,
    PersistElectionState,
    SendResponse,
)
from kraftlog.raft.voter_set import Endpoint, Voter, VoterSet
from kraftlog.server.metadata_replay import replay_metadata_log
from kraftlog.server.metadata_snapshots import MetadataSnapshots
from kraftlog.server.quorum_info import QuorumInfo, ReplicaInfo
from kraftlog.server.raft_records import to_control_message
from kraftlog.storage.bootstrap import read_bootstrap
from kraftlog.storage.election_store import ElectionStore
from kraftlog.storage.meta_properties import random_uuid, read_meta_properties, write_meta_properties
from kraftlog.storage.metadata_log import MetadataLog, MetadataLogConfig
from kraftlog.storage.snapshot_file import METADATA_PARTITION_NAME
from kraftlog.types import ElectionState, Epoch, NodeId, Offset, ReplicaKey, Uuid
from kraftlog.wire.messages.controller_registration import ControllerRegistrationRequest
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
    """Something that waits until everything up to ``last_offset`` (inclusive) is committed."""

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
        self._incarnation_id = random_uuid()
        self._listeners: list[MetadataListener] = []
        self._operations: deque[tuple[Operation[Any], asyncio.Future[Any]]] = deque()
        self._pending: deque[_Pending] = deque()
        self._is_turn_scheduled = False
        self._is_open = False
        self._is_stopping = False
        self._flush_wanted = 0
        self._flush_task: asyncio.Future[int] | None = None
        self._persisted: ElectionState | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._last_append_s = 0.0

    # What it is

    @property
    def is_leader(self) -> bool:
        """Whether operations can be submitted here."""
        return self._is_open and self._raft.is_leader

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
        now_ms = self._clock_ms()
        wall_ms = self._wall_ms()
        progress = {replica.key.node_id: replica for replica in self._raft.progress(now_ms)}
        voters: list[ReplicaInfo] = []
        for voter in self._raft.voters:
            found = progress.get(voter.key.node_id)
            fetched = None if found is None else found.last_fetch_ms
            caught_up = None if found is None else found.last_caught_up_ms
            end_offset = None if found is None else found.log_end_offset
            voters.append(
                ReplicaInfo(
                    replica_id=voter.key.node_id,
                    directory_id=voter.key.directory_id,
                    log_end_offset=-1 if end_offset is None else end_offset,
                    last_fetch_timestamp=-1 if fetched is None else wall_ms - (now_ms - fetched),
                    last_caught_up_timestamp=-1 if caught_up is None else wall_ms - (now_ms - caught_up),
                    listeners=voter.endpoints,
                )
            )
        return QuorumInfo(
            leader_id=self.leader_id,
            leader_epoch=self.leader_epoch,
            high_watermark=self.high_watermark,
            voters=tuple(voters),
            observers=(),
        )

    def add_listener(self, listener: MetadataListener) -> None:
        """Call ``listener(image, delta)`` after each commit that changed something, before its futures complete."""
        self._listeners.append(listener)

    # Life

    async def start(self) -> None:
        """Replay the log, lead the quorum, write what a new leader writes; returns once that is committed.

        Raises:
            LogError: The directory cannot be read or written.
            KraftlogError: The quorum has other voters than this node.
        """
        self._loop = asyncio.get_running_loop()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kraftlog-metadata")
        config = self._node.config
        log_dir = next(one for one in self._node.log_dirs if one.path == config.metadata_log_dir)
        self.directory_id = self._ensure_directory_id()
        self._log = MetadataLog(
            config.metadata_log_dir / METADATA_PARTITION_NAME,
            MetadataLogConfig(
                segment_bytes=config.get_optional_int("internal.metadata.log.segment.bytes")
                or config.get_int("metadata.log.segment.bytes"),
                segment_ms=config.get_int("metadata.log.segment.ms"),
                max_batch_bytes=config.get_int("internal.metadata.max.batch.size.in.bytes"),
                retention_bytes=config.get_int("metadata.max.retention.bytes"),
                retention_ms=config.get_int("metadata.max.retention.ms"),
            ),
            now_ms=self._wall_ms(),
            clean_shutdown=log_dir.was_clean_shutdown,
        )
        replayed = replay_metadata_log(self._log, self._static_voters())
        local_key = ReplicaKey(self.node_id, self.directory_id)
        if not replayed.voters.latest.is_only_voter(local_key):
            ids = ", ".join(str(voter_id) for voter_id in replayed.voters.latest.ids) or "none"
            raise KraftlogError(
                f"the voters of the metadata quorum are {ids}: this version runs a quorum whose only voter is this node"
                f" (node.id={self.node_id}, directory.id={self.directory_id})"
            )
        self.image = replayed.image
        self._snapshots = MetadataSnapshots(
            self._log, self._executor, replayed.bytes_since_snapshot, on_failure=self.fail
        )
        self._snapshots.max_bytes = config.get_int("metadata.log.max.record.bytes.between.snapshots")
        self._snapshots.max_interval_ms = config.get_int("metadata.log.max.snapshot.interval.ms")
        self._store = ElectionStore(self._log.directory)
        self._persisted = self._store.read()
        self._raft = RaftCore(
            RaftConfig(
                cluster_id=self.cluster_id,
                local_key=local_key,
                election_timeout_ms=config.get_int("controller.quorum.election.timeout.ms"),
                max_batch_bytes=self._log.config.max_batch_bytes,
            ),
            self._persisted,
            self._log,
            voters=replayed.voters,
            kraft_versions=replayed.kraft_versions,
            rng=random.Random(secrets.randbits(64)),
            now_ms=self._clock_ms(),
        )
        self._controller = self._new_controller()
        self._is_open = True
        started = self._loop.create_future()
        self._operations.append((self._register_controller, started))
        self._raft.handle_timeout(self._clock_ms())
        self._turn()
        await started
        self._arm_idle_timer()

    def _new_controller(self) -> ControllerCore:
        config = ControllerConfig(
            cluster_id=self.cluster_id,
            local_node_id=self.node_id,
            static_broker_configs=self._node.config.properties,
            kraft_version=lambda: self._raft.kraft_version,
        )
        return ControllerCore(config, self.image.copy(), rng=random.Random(secrets.randbits(64)))

    def _ensure_directory_id(self) -> Uuid:
        """The id in meta.properties; one is drawn and stored where an older format left none (BOOT-32)."""
        directory = self._node.config.metadata_log_dir
        properties = read_meta_properties(directory)
        if properties is None:
            raise LogError(f"{directory} is not formatted")
        if properties.directory_id is not None:
            return properties.directory_id
        directory_id = random_uuid()
        changed = type(properties)(
            cluster_id=properties.cluster_id,
            node_id=properties.node_id,
            directory_id=directory_id,
            version=properties.version,
            other=properties.other,
        )
        write_meta_properties(directory, changed)
        return directory_id

    def _static_voters(self) -> VoterSet:
        """controller.quorum.voters: no directory ids, kraft.version 0 only."""
        names = self._node.config.controller_listener_names
        voters: list[Voter] = []
        for entry in self._node.config.get_list("controller.quorum.voters"):
            node_id, _, address = entry.partition("@")
            host, _, port = address.rpartition(":")
            endpoint = Endpoint(names[0] if names else "CONTROLLER", host.strip("[]"), int(port))
            voters.append(Voter(ReplicaKey(NodeId(int(node_id))), (endpoint,)))
        return VoterSet(voters)

    def _register_controller(self, controller: ControllerCore, now_ms: int) -> ControllerResult[Any]:
        del now_ms
        names = self._node.config.controller_listener_names
        request = ControllerRegistrationRequest(
            controller_id=self.node_id,
            incarnation_id=self._incarnation_id,
            zk_migration_ready=False,
            listeners=tuple(
                ControllerRegistrationRequest.Listener(
                    name=one.listener_name, host=one.host, port=one.port, security_protocol=0
                )
                for one in self._node.advertised_end_points()
                if one.listener_name in names
            ),
            features=tuple(
                ControllerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in supported_ranges().items()
            ),
        )
        return controller.register_controller(request)

    async def stop(self) -> None:
        """Finish what was proposed, resign, close the log. Operations not begun fail with NodeClosedError."""
        if self._is_stopping or not hasattr(self, "_executor"):
            return
        for timer in (self._timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        self._is_stopping = True
        while self._is_open and self.failure is None and (self._pending or self._flush_task is not None):
            if self._flush_task is None:
                break
            await asyncio.wait([self._flush_task])
            await asyncio.sleep(0)
        if self._is_open:
            await self._snapshots.finish()
        if self._is_open:
            self._raft.shut_down(self._clock_ms())
            self._raft.take_effects()
        self._is_open = False
        self._fail_waiting(NodeClosedError("the node was stopped"))
        if hasattr(self, "_log"):
            try:
                await self._loop.run_in_executor(self._executor, self._log.close)
            except (OSError, LogError) as error:
                self.fail(error)
        self._executor.shutdown(wait=True)

    # Operations

    def submit(self, operation: Operation[T]) -> asyncio.Future[T]:
        """Run ``operation(controller, now_ms)``; the future has its response once its records are committed.

        The future fails with what the operation raises, with NOT_CONTROLLER where this node does not lead, or with
        NodeClosedError.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        self._operations.append((operation, future))
        if not self._is_turn_scheduled:
            self._is_turn_scheduled = True
            self._loop.call_soon(self._turn)
        return future

    def _turn(self) -> None:
        """Carry out what raft wants, then every operation that has been submitted meanwhile."""
        self._is_turn_scheduled = False
        try:
            self._carry_out()
            while self._operations:
                self._run(*self._operations.popleft())
                self._carry_out()
            self._start_flush()
        except (OSError, KraftlogError) as error:
            self.fail(error)
        self._arm_timer()

    def _run(self, operation: Operation[Any], future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            return
        if self._is_stopping or not self._is_open or self.failure is not None:
            reason = "the node was stopped" if self.failure is None else f"the metadata log failed: {self.failure}"
            future.set_exception(NodeClosedError(reason))
            return
        if not self._raft.is_leader:
            future.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER, "This is not the correct controller."))
            return
        try:
            result = operation(self._controller, self._wall_ms())
            batches = self._to_batches(result)
        except KraftlogError as error:
            future.set_exception(error)
            return
        self._propose(batches, result.response, future)

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
                    _Pending(last.last_offset, last.epoch, last.timestamp_ms, future=future, response=response)
                )
            else:
                future.set_result(response)
            return
        for batch in batches:
            last_offset = self._raft.propose(batch.values, self._clock_ms(), size_bytes=batch.size_bytes)
            self._controller.apply(batch.records, last_offset=last_offset, epoch=self._raft.epoch)
            self._pending.append(
                _Pending(last_offset, self._raft.epoch, self._wall_ms(), batch.size_bytes, batch.records)
            )
        self._pending[-1].future, self._pending[-1].response = future, response

    # Effects

    def _carry_out(self) -> None:
        """Carry out effects until raft wants nothing more."""
        while effects := self._raft.take_effects():
            for index, effect in enumerate(effects):
                following = effects[index + 1] if index + 1 < len(effects) else None
                self._carry_out_one(effect, following)

    def _carry_out_one(self, effect: Effect, following: Effect | None) -> None:
        if isinstance(effect, PeerEffect):
            raise LogError(f"the only voter of its quorum wants {type(effect).__name__}, which is for several")
        match effect:
            case PersistElectionState():
                if isinstance(following, PersistElectionState):
                    return  # nothing was promised in between
                voters = self._raft.voters.ids
                self._store.write(effect.state, kraft_version=effect.kraft_version, voters=voters)
                self._persisted = effect.state
            case AppendRecords():
                self._check_persisted(effect.waits_for.election_state)
                self._last_append_s = time.monotonic()
                values: list[bytes] = list(effect.records)  # type: ignore[arg-type]
                self._log.append_values(
                    values, base_offset=effect.base_offset, epoch=effect.epoch, now_ms=self._wall_ms()
                )
            case AppendControlRecords():
                self._check_persisted(effect.waits_for.election_state)
                messages = [to_control_message(record) for record in effect.records]
                now_ms = self._wall_ms()
                size_bytes = self._log.append_control_records(
                    messages, base_offset=effect.base_offset, epoch=effect.epoch, now_ms=now_ms
                )
                last_offset = effect.base_offset + len(messages) - 1
                self._controller.apply((), last_offset=last_offset, epoch=effect.epoch)
                self._pending.append(_Pending(last_offset, effect.epoch, now_ms, size_bytes=size_bytes))
            case FlushLog():
                self._flush_wanted = max(self._flush_wanted, effect.log_end_offset)
            case LeaderChanged():
                self._check_persisted(effect.waits_for.election_state)
                self._change_leader(effect.leader_id, effect.epoch)
            case HighWatermarkAdvanced():
                self._commit(effect.high_watermark)
            case SendResponse():
                self._check_persisted(effect.waits_for.election_state)
            case Fault(is_fatal=False):
                logger.error("metadata quorum: %s", effect.reason)
            case Fault():
                raise LogError(effect.reason)
            case _:
                assert_never(effect)

    def _check_persisted(self, needed: ElectionState | None) -> None:
        if needed is not None and needed != self._persisted:
            raise LogError(f"{needed} was not made durable before it was relied on; stored is {self._persisted}")

    def _change_leader(self, leader_id: NodeId | None, epoch: Epoch) -> None:
        if leader_id != self.node_id:
            logger.info("the leader of epoch %d is %s", epoch, "unknown" if leader_id is None else leader_id)
            # What was proposed may still be committed by the next leader, perhaps this node: only the answers are lost.
            self._fail_waiting(KafkaError(ErrorCode.NOT_CONTROLLER, "This node is no longer the leader."))
            return
        logger.info("leading the metadata quorum in epoch %d from offset %d", epoch, self._raft.log_end_offset)
        bootstrap = (
            read_bootstrap(self._node.config.metadata_log_dir).records if self._controller.image.is_empty else ()
        )
        result = self._controller.activate(bootstrap)
        self._propose(self._to_batches(result), None, self._loop.create_future())

    def _start_flush(self) -> None:
        if self._flush_task is None and self._flush_wanted and self.failure is None:
            self._flush_wanted = 0
            self._flush_task = self._loop.run_in_executor(self._executor, self._log.flush)
            self._flush_task.add_done_callback(self._flushed)

    def _flushed(self, task: asyncio.Future[int]) -> None:
        self._flush_task = None
        try:
            self._raft.on_flushed(task.result())
        except (OSError, KraftlogError) as error:
            self.fail(error)
            return
        self._turn()

    def _commit(self, high_watermark: Offset) -> None:
        done: list[_Pending] = []
        delta = MetadataDelta()
        while self._pending and self._pending[0].last_offset < high_watermark:
            pending = self._pending.popleft()
            for record, _ in pending.records:
                self.image.replay(record, delta)
            self.image.offset, self.image.epoch = pending.last_offset, pending.epoch
            self.image.timestamp_ms = max(self.image.timestamp_ms, pending.timestamp_ms)
            self._snapshots.bytes_since_last += pending.size_bytes
            done.append(pending)
        if not delta.is_empty:
            for listener in self._listeners:
                listener(self.image, delta)
        for pending in done:
            if pending.future is not None and not pending.future.done():
                pending.future.set_result(pending.response)
        self._snapshots.maybe_begin(self.image, self._raft, high_watermark)

    def fail(self, error: BaseException) -> None:
        """The log or its directory failed: nothing is retried, everything that waits is told."""
        if self.failure is None:
            self.failure = error
            self.failed.set()
            logger.critical("the metadata log failed and takes no more writes: %s", error)
        self._fail_waiting(NodeClosedError(f"the metadata log failed: {error}"))

    def _fail_waiting(self, error: KraftlogError) -> None:
        waiting = [pending.future for pending in self._pending] + [future for _, future in self._operations]
        for pending in self._pending:
            pending.future = None
        self._operations.clear()
        for future in waiting:
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()  # whoever awaits it still gets it; nobody has to

    # Timers

    def _arm_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wanted_ms = self._raft.next_timeout_ms()
        if wanted_ms is not None and self._is_open:
            delay_s = max(0, wanted_ms - self._clock_ms()) / 1000
            self._timer = self._loop.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._raft.handle_timeout(self._clock_ms())
        self._turn()

    def _arm_idle_timer(self) -> None:
        """Write a NoOp record when nothing else was for metadata.max.idle.interval.ms, so that lag can be seen."""
        interval_s = self._node.config.get_int("metadata.max.idle.interval.ms") / 1000
        if interval_s > 0 and self._is_open:
            idle_s = time.monotonic() - self._last_append_s
            delay_s = interval_s - idle_s if idle_s < interval_s else interval_s
            self._idle_timer = self._loop.call_later(delay_s, self._on_idle, interval_s)

    def _on_idle(self, interval_s: float) -> None:
        if self.is_leader and self.failure is None and time.monotonic() - self._last_append_s >= interval_s * 0.9:
            self.submit(lambda controller, _: controller.no_op()).add_done_callback(_ignore)
        self._arm_idle_timer()

    def _clock_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def _wall_ms(self) -> int:
        return self._node.now_ms()


def _ignore(future: asyncio.Future[None]) -> None:
    """Nobody waits for a NoOp; its failure has been logged where it happened."""
    if not future.cancelled():
        future.exception()
