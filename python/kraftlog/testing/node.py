"""One replica of a simulated cluster: the shell that carries the core's effects out on simulated disk and network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, assert_never

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.raft.core import RaftConfig, RaftCore
from kraftlog.raft.effects import (
    AbandonSnapshot,
    AppendControlRecords,
    AppendFetched,
    AppendRecords,
    Effect,
    Fault,
    FlushLog,
    HighWatermarkAdvanced,
    InstallSnapshot,
    LeaderChanged,
    LeadershipConfirmed,
    PersistElectionState,
    SendRequest,
    SendResponse,
    TruncateLog,
    WriteSnapshotChunk,
)
from kraftlog.raft.messages import (
    FetchedBatch,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Request,
    Response,
    VoteRequest,
)
from kraftlog.raft.voter_set import VoterSet
from kraftlog.testing.disk import DiskFailedError, SimulatedDisk, StoredSnapshot
from kraftlog.types import NodeId, Offset, ReplicaKey, SnapshotId

if TYPE_CHECKING:
    from kraftlog.testing.simulation import Simulation

__all__ = ["SimulatedNode"]

_RECORD_BYTES = 20


class SimulatedNode:
    """A replica that can crash, pause and come back.

    Attributes:
        core: The consensus core while it runs; the last one after a crash.
        disk: What survives crashes.
        is_up: Not crashed.
        is_paused: Its events wait (SIGSTOP).
        applied: What its state machine was given, the records of a loaded snapshot included.
        shown_high_watermark: The greatest of this run of the process.
        clock_rate: Local milliseconds a global one.
        supports_pre_vote: Its Vote has version 2.
    """

    def __init__(
        self, simulation: Simulation, config: RaftConfig, disk: SimulatedDisk, static_voters: VoterSet
    ) -> None:
        self.simulation = simulation
        self.config = config
        self.disk = disk
        self.static_voters = static_voters
        self.node_id = config.local_key.node_id
        self.is_up = False
        self.is_paused = False
        self.clock_rate = 1.0
        self.clock_offset_ms = 0
        self.supports_pre_vote = True
        self.flush_delay_us = (300, 3_000)
        self.run_count = 0
        self.applied: list[object] = []
        self.applied_offset = 0
        self.shown_high_watermark = 0
        self.proposed: dict[int, object] = {}
        self._held: list[SendRequest | SendResponse] = []
        self._waiting: list[partial[None]] = []
        self._requests: dict[object, Request] = {}
        self._flush_wanted = 0
        self._is_flushing = False
        self._timer_generation = 0
        self._timer_us: int | None = None
        self._download: StoredSnapshot | None = None
        self.core: RaftCore

    @property
    def key(self) -> ReplicaKey:
        """Id and directory id."""
        return self.config.local_key

    def now_ms(self) -> int:
        """The local monotonic clock."""
        return int(self.simulation.scheduler.now_us * self.clock_rate) // 1000 + self.clock_offset_ms

    # Life

    def start(self) -> None:
        """Begin, or begin again, with what the disk has."""
        self.run_count += 1
        self.is_up = True
        self.is_paused = False
        voters, kraft_versions = self.disk.quorum_history(self.static_voters)
        self.core = self.simulation.core_type(
            self.config,
            self.disk.election_state,
            self.disk,
            voters=voters,
            kraft_versions=kraft_versions,
            rng=Random(f"{self.simulation.config.seed}/{self.node_id}/{self.run_count}"),
            now_ms=self.now_ms(),
        )
        self._held.clear()
        self._waiting.clear()
        self._requests.clear()
        self._flush_wanted = 0
        self._is_flushing = False
        self._download = None
        self._timer_us = None
        self.shown_high_watermark = 0
        latest = next(reversed(self.disk.stored.values()), None)
        self.applied = [] if latest is None else list(latest.state)
        self.applied_offset = 0 if latest is None else latest.snapshot_id.end_offset
        self.tell(lambda: self.core.handle_timeout(self.now_ms()))

    def crash(self) -> None:
        """Stop at once; what was not flushed is lost, or all but a first part."""
        self.is_up = False
        self._timer_generation += 1
        lost = self.disk.crash(self.simulation.rng)
        if lost:
            self.simulation.counters["unflushed_batches_lost"] += lost

    # Input

    def tell(self, event: partial[None] | object) -> None:
        """Let the core handle something, then do what it wants."""
        if not self.is_up:
            return
        if self.is_paused:
            self._waiting.append(event)  # type: ignore[arg-type]
            return
        role = self.core.role
        event()  # type: ignore[operator]
        try:
            while effects := self.core.take_effects():
                self.simulation.invariants.check_effects(self, effects)
                for effect in effects:
                    self._carry_out(effect)
            self._start_flush()
        except DiskFailedError as error:
            self.simulation.note(self, f"disk failed: {error}")
            self.simulation.counters["disk_failure_stopped_node"] += 1
            self.crash()
            return
        if self.core.role is not role:
            self.simulation.on_role_changed(self, role)
        self.simulation.invariants.check(self)
        self._arm_timer()

    def resume(self) -> None:
        """Go on after a pause with everything that came meanwhile."""
        self.is_paused = False
        waiting, self._waiting = self._waiting, []
        self.tell(lambda: self.core.handle_timeout(self.now_ms()))
        for event in waiting:
            self.tell(event)

    def propose(self, records: Sequence[object]) -> Offset | None:
        """Propose as the leader; None where this node does not lead."""
        if not self.is_up or self.is_paused or not self.core.is_leader:
            return None
        found: list[Offset] = []

        def propose() -> None:
            try:
                found.append(self.core.propose(records, self.now_ms(), size_bytes=_RECORD_BYTES * len(records)))
            except KafkaError:
                return

        self.tell(propose)
        return found[0] if found else None

    def _arm_timer(self) -> None:
        wanted_ms = self.core.next_timeout_ms()
        if wanted_ms is None:
            self._timer_us = None
            self._timer_generation += 1
            return
        delay_us = max(0, int((wanted_ms - self.now_ms()) * 1000 / self.clock_rate))
        due_us = self.simulation.scheduler.now_us + delay_us
        if (
            self._timer_us is not None
            and self._timer_us <= due_us
            and self._timer_us > self.simulation.scheduler.now_us
        ):
            return  # an earlier one is armed: it will arm the next
        self._timer_us = due_us
        self._timer_generation += 1
        self.simulation.scheduler.after(delay_us + 1, partial(self._on_timer, self._timer_generation))

    def _on_timer(self, generation: int) -> None:
        if generation != self._timer_generation or not self.is_up:
            return
        self._timer_us = None
        self.tell(lambda: self.core.handle_timeout(self.now_ms()))

    # Effects

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case SendRequest() | SendResponse():
                self._send_when_durable(effect)
            case FlushLog():
                self._flush_wanted = max(self._flush_wanted, effect.log_end_offset)
            case PersistElectionState():
                self.disk.write_election_state(effect.state)
            case AppendRecords():
                last_offset = Offset(effect.base_offset + len(effect.records) - 1)
                self.disk.append(
                    FetchedBatch(
                        base_offset=effect.base_offset,
                        last_offset=last_offset,
                        epoch=effect.epoch,
                        size_bytes=_RECORD_BYTES * len(effect.records),
                        payload=tuple(effect.records),
                    )
                )
            case AppendControlRecords():
                offsets = (Offset(effect.base_offset + index) for index in range(len(effect.records)))
                self.disk.append(
                    FetchedBatch(
                        base_offset=effect.base_offset,
                        last_offset=Offset(effect.base_offset + len(effect.records) - 1),
                        epoch=effect.epoch,
                        size_bytes=_RECORD_BYTES * len(effect.records),
                        control_records=tuple(zip(offsets, effect.records, strict=True)),
                        payload=tuple(f"control {effect.epoch}" for _ in effect.records),
                    )
                )
            case AppendFetched():
                for batch in effect.batches:
                    self.disk.append(batch)
            case TruncateLog():
                self.simulation.invariants.on_truncate(self, effect.end_offset)
                self.simulation.counters["log_truncated"] += 1
                self.disk.truncate(effect.end_offset)
            case HighWatermarkAdvanced():
                self._apply(effect.high_watermark)
            case LeaderChanged() | LeadershipConfirmed():
                pass
            case WriteSnapshotChunk():
                if isinstance(effect.payload, StoredSnapshot):
                    self._download = effect.payload
            case InstallSnapshot():
                self._install(effect.snapshot_id)
            case AbandonSnapshot():
                self._download = None
                self.simulation.counters["snapshot_abandoned"] += 1
            case Fault():
                self.simulation.on_fault(self, effect)
            case _:
                assert_never(effect)

    def _send_when_durable(self, effect: SendRequest | SendResponse) -> None:
        wanted = effect.waits_for.log_end_offset
        if wanted is not None and wanted > self.disk.flushed_end_offset:
            self._held.append(effect)
        else:
            self._send(effect)

    def _send(self, effect: SendRequest | SendResponse) -> None:
        self.simulation.invariants.check_sent(self, effect)
        if isinstance(effect, SendRequest):
            if self.core.is_expected(effect.destination.node_id, effect.correlation_id):
                self.simulation.send_request(self, effect)
            return
        self._requests.pop(effect.source, None)
        response = effect.response
        if isinstance(response, FetchResponse) and response.read_offset is not None:
            batches = self.disk.read(response.read_offset, response.max_bytes)
            response = replace(response, batches=batches, read_offset=None)
        elif isinstance(response, FetchSnapshotResponse) and response.snapshot_id is not None:
            stored = self.disk.stored.get(response.snapshot_id)
            if stored is None:
                response = replace(response, snapshot_id=None, error_code=ErrorCode.SNAPSHOT_NOT_FOUND)
            else:
                response = replace(response, chunk_bytes=response.read_bytes, payload=stored)
        self.simulation.send_response(self, effect.source, response)

    def _start_flush(self) -> None:
        if self._is_flushing or self._flush_wanted <= self.disk.flushed_end_offset:
            return
        self._is_flushing = True
        low, high = self.flush_delay_us
        delay_us = low + int(self.simulation.rng.random() * (high - low))
        end_offset = self.disk.log_end_offset
        self.simulation.scheduler.after(delay_us, partial(self._flushed, self.run_count, end_offset))

    def _flushed(self, run: int, end_offset: int) -> None:
        if run != self.run_count or not self.is_up:
            return
        if self.is_paused:
            self._waiting.append(partial(self._flushed, run, end_offset))
            return
        self._is_flushing = False
        self.tell(partial(self._on_flushed, end_offset))

    def _on_flushed(self, end_offset: int) -> None:
        try:
            self.disk.flush(end_offset)
        except DiskFailedError as error:
            self.simulation.note(self, f"disk failed: {error}")
            self.simulation.counters["disk_failure_stopped_node"] += 1
            self.crash()
            return
        self.core.on_flushed(self.disk.flushed_end_offset, self.now_ms())
        held, self._held = self._held, []
        for effect in held:
            self._send_when_durable(effect)

    # The state machine

    def _apply(self, high_watermark: Offset) -> None:
        self.simulation.invariants.on_high_watermark(self, high_watermark, self.simulation.nodes.values())
        while self.applied_offset < high_watermark:
            for batch in self.disk.read(self.applied_offset, 1 << 20):
                if batch.last_offset >= high_watermark:
                    return
                records = batch.payload
                if not isinstance(records, tuple):
                    msg = f"batch at {batch.base_offset} has no records"
                    raise TypeError(msg)
                for index, record in enumerate(records):
                    offset = batch.base_offset + index
                    self.simulation.invariants.on_applied(self, offset, batch.epoch, record)
                    self.applied.append((batch.epoch, record))
                self.applied_offset = batch.last_offset + 1

    def _install(self, snapshot_id: SnapshotId) -> None:
        snapshot = self._download
        self._download = None
        if snapshot is None or snapshot.snapshot_id != snapshot_id:
            msg = f"{snapshot_id} is not what was downloaded"
            raise AssertionError(msg)
        if self.core.is_leader:
            self.simulation.invariants.fail("INV-17", self, "the leader loads a snapshot")
        self.disk.install_snapshot(snapshot)
        self.applied = list(snapshot.state)
        self.applied_offset = snapshot_id.end_offset
        self.simulation.counters["snapshot_installed"] += 1
        self.core.on_snapshot_installed(
            snapshot_id,
            snapshot.size_bytes,
            kraft_version=snapshot.kraft_version,
            voters=snapshot.voters,
            now_ms=self.now_ms(),
        )

    def take_snapshot(self) -> None:
        """Write a checkpoint of what was applied, and drop what it stands for."""
        if not self.is_up or self.is_paused or not self.applied:
            return
        end_offset = Offset(self.applied_offset)
        epoch = self.applied[-1][0]  # type: ignore[index]
        snapshot_id = SnapshotId(end_offset, epoch)
        if snapshot_id in self.disk.stored or end_offset <= self.disk.log_start_offset:
            return
        kraft_version = self.core.kraft_version_before(end_offset)
        snapshot = StoredSnapshot(
            snapshot_id,
            tuple(self.applied),
            kraft_version,
            self.core.voters_before(end_offset) if kraft_version else None,
        )
        try:
            self.disk.store_snapshot(snapshot)
        except DiskFailedError:
            self.crash()
            return
        self.simulation.counters["snapshot_taken"] += 1
        self.core.on_snapshot_created(snapshot_id, snapshot.size_bytes)
        if len(self.disk.stored) > 1:
            first = list(self.disk.stored)[1]
            self.disk.drop_before(first)
            self.core.on_log_start_advanced(first)

    # Requests from others

    def receive(self, source: object, request: Request) -> None:
        """A request came."""
        if not self.is_up:
            return
        if isinstance(request, VoteRequest) and request.pre_vote and not self.supports_pre_vote:
            msg = "a peer without Vote version 2 is never sent a pre-vote"
            raise AssertionError(msg)
        self._requests[source] = request
        self.tell(partial(self._handle_request, source, request))

    def _handle_request(self, source: object, request: Request) -> None:
        self.core.handle_request(source, request, self.now_ms())

    def receive_response(self, run: int, node_id: NodeId, correlation_id: int, response: Response) -> None:
        """An answer came."""
        if self.is_up and run == self.run_count:
            self.tell(partial(self._handle_response, node_id, correlation_id, response))

    def _handle_response(self, node_id: NodeId, correlation_id: int, response: Response) -> None:
        self.core.handle_response(node_id, correlation_id, response, self.now_ms())

    def refuse(self, run: int, node_id: NodeId, correlation_id: int, error_code: int) -> None:
        """A request cannot be delivered, and this is known."""
        if self.is_up and run == self.run_count:
            self.tell(
                partial(self._handle_refusal, node_id=node_id, correlation_id=correlation_id, error_code=error_code)
            )

    def _handle_refusal(self, *, node_id: NodeId, correlation_id: int, error_code: int) -> None:
        self.core.handle_no_response(node_id, correlation_id, self.now_ms(), error_code=error_code)

    def asked(self, source: object) -> Request | None:
        """The request that an answer is for."""
        return self._requests.get(source)

    def fetches_under_way(self) -> int:
        """How many Fetch and FetchSnapshot requests wait for an answer."""
        under_way = self.core.requests_under_way(self.now_ms())
        return sum(isinstance(one, FetchRequest | FetchSnapshotRequest) for one in under_way)
