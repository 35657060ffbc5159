"""What a leader does: take proposals, feed its followers, decide what is committed (KIP-595, KIP-630)."""

from __future__ import annotations

from collections.abc import Sequence

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.raft.effects import LeadershipConfirmed
from kraftlog.raft.log import BOOTSTRAP_SNAPSHOT_ID
from kraftlog.raft.messages import (
    UNKNOWN_OFFSET,
    BeginQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from kraftlog.raft.replica_state import ReplicaState
from kraftlog.raft.roles.leader import DeferredFetch, Leader
from kraftlog.types import Epoch, EpochEndOffset, NodeId, Offset, SnapshotId

__all__ = ["Leadership"]


class Leadership:
    """The part of the core that acts while this replica leads, and refuses while it does not.

    Attributes:
        open_records: Proposed and not yet given out as a batch.
    """

    def __init__(self, replica: ReplicaState) -> None:
        self._replica = replica
        self.open_records: list[object] = []
        self._open_bytes = 0
        self._open_epoch = Epoch(0)
        self._linger_end_ms = 0

    # Proposals

    @property
    def open_record_count(self) -> int:
        """Records proposed and not yet given out as a batch."""
        return len(self.open_records)

    def propose(self, records: Sequence[object], size_bytes: int, epoch: Epoch | None, now_ms: int) -> Offset:
        """Take records of one batch; return the last offset they get (APPD-01 to APPD-09).

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, or MESSAGE_TOO_LARGE; no offset was used.
            ValueError: No records, or an epoch this replica has not reached.
        """
        replica = self._replica
        if not isinstance(replica.role, Leader) or replica.is_halted or (epoch is not None and epoch < replica.epoch):
            reason = f"Replica is {replica.role.name} in epoch {replica.epoch}"
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason)
        if epoch is not None and epoch > replica.epoch:
            msg = f"Epoch {epoch} is above the current epoch {replica.epoch}"
            raise ValueError(msg)
        if not records:
            msg = "An empty batch cannot be appended"
            raise ValueError(msg)
        limit_bytes = replica.config.max_batch_bytes
        if size_bytes > limit_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE, f"A batch of {size_bytes} bytes is above the limit of {limit_bytes}"
            )
        if self._open_epoch != replica.epoch:
            self.discard()
            self._open_epoch = replica.epoch
        if self.open_records and self._open_bytes + size_bytes > limit_bytes:
            self._close_batch()
        if not self.open_records:
            self._linger_end_ms = now_ms + replica.config.append_linger_ms
        self.open_records.extend(records)
        self._open_bytes += size_bytes
        return Offset(replica.log.end_offset + len(self.open_records) - 1)

    def drain(self, now_ms: int) -> None:
        """Append what was proposed, unless it may wait for a flush under way to end (APPD-10)."""
        replica = self._replica
        if not self.open_records:
            return
        if not isinstance(replica.role, Leader) or self._open_epoch != replica.epoch:
            self.discard()
            return
        is_flushing = replica.log.flushed_end_offset < replica.log.end_offset
        if not is_flushing or now_ms >= self._linger_end_ms:
            self.force_drain()

    def force_drain(self) -> None:
        """Append what was proposed: nothing else may come before it (APPD-14)."""
        if self.open_records:
            self._close_batch()
            self.serve_deferred(self._replica.role)

    def force_drain_if_leader(self) -> None:
        """Append what was proposed before a follower is told that there is nothing new."""
        if self.open_records and isinstance(self._replica.role, Leader) and self._open_epoch == self._replica.epoch:
            self.force_drain()

    def _close_batch(self) -> None:
        records, self.open_records, self._open_bytes = self.open_records, [], 0
        self._replica.append(records)

    def discard(self) -> None:
        """Forget what was proposed in an epoch that is over (APPD-17)."""
        self.open_records, self._open_bytes = [], 0

    @property
    def linger_end_ms(self) -> int | None:
        """When ``drain`` has to append at the latest; None with nothing proposed."""
        return self._linger_end_ms if self.open_records else None

    # Fetch

    def handle_fetch(self, source: object, request: FetchRequest, now_ms: int) -> None:
        """Answer a fetch now, or once there is something to say (FTCH-06 to FTCH-34)."""
        replica = self._replica
        if replica.is_other_cluster(request.cluster_id):
            replica.respond(source, FetchResponse(top_level_error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
            return
        if (
            request.max_wait_ms < 0
            or request.fetch_offset < 0
            or not 0 <= request.last_fetched_epoch <= request.current_leader_epoch
        ):
            replica.respond(source, self._fetch_error(ErrorCode.INVALID_REQUEST))
            return
        response = self._read(request, now_ms)
        role = replica.role
        if (
            request.max_wait_ms == 0
            or not isinstance(role, Leader)
            or response.error_code
            or response.read_offset is not None
            or response.diverging_epoch is not None
            or response.snapshot_id is not None
            or (role.high_watermark is not None and request.high_watermark < role.high_watermark)
        ):
            replica.respond(source, response)
            return
        role.deferred.append(DeferredFetch(source, request, response, now_ms + request.max_wait_ms))

    def _read(self, request: FetchRequest, now_ms: int) -> FetchResponse:
        """What a fetch is answered with at this moment; a valid one tells how far its sender is."""
        replica = self._replica
        error = self._check_leader_request(request.current_leader_epoch)
        if error:
            return self._fetch_error(error)
        role = replica.role
        if not isinstance(role, Leader):
            return self._fetch_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = replica.log
        found = log.check_fetch(request.fetch_offset, request.last_fetched_epoch)
        if found is not None:
            return self._fetch_response(role, request, found)
        key = request.replica_key
        if key is not None:
            if key.node_id == replica.local_key.node_id:
                # Nobody else can have this id: the sender is misconfigured (FTCH-13).
                replica.note(f"A replica fetches with the id of the leader, {key}")
                return self._fetch_error(ErrorCode.UNKNOWN_SERVER_ERROR)
            known = role.fetched_end_offset(key)
            if known is not None and request.fetch_offset < known:
                replica.note(f"{key} fetches from {request.fetch_offset} after {known}: has it lost its disk?")
            if role.on_fetch(key, request.fetch_offset, log.end_offset, now_ms):
                self.on_high_watermark(now_ms)
        return self._fetch_response(role, request, None)

    def _fetch_response(
        self, role: Leader, request: FetchRequest, found: EpochEndOffset | SnapshotId | None
    ) -> FetchResponse:
        """What to do where the logs part, or records, if there are any; a leader that resigned meanwhile is named."""
        replica = self._replica
        high_watermark = role.high_watermark
        has_records = found is None and request.fetch_offset < replica.log.end_offset
        return FetchResponse(
            leader_id=replica.local_key.node_id,
            leader_epoch=role.epoch,
            leader_endpoints=replica.config.local_endpoints,
            high_watermark=UNKNOWN_OFFSET if high_watermark is None else high_watermark,
            log_start_offset=replica.log.start_offset,
            diverging_epoch=found if isinstance(found, EpochEndOffset) else None,
            snapshot_id=found if isinstance(found, SnapshotId) else None,
            read_offset=request.fetch_offset if has_records else None,
            max_bytes=request.max_bytes if has_records else 0,
        )

    def _fetch_error(self, error: int) -> FetchResponse:
        replica = self._replica
        return replica.refusals.of_fetch(error, replica.log.start_offset)

    def _check_leader_request(self, epoch: Epoch) -> int:
        """What every request to a leader has to be right about (FTCH-09 to FTCH-12)."""
        replica = self._replica
        role = replica.role
        if epoch < role.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > role.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not isinstance(role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.BROKER_NOT_AVAILABLE if replica.is_shutting_down else 0

    def serve_deferred(self, role: object, *, now_ms: int | None = None) -> None:
        """Answer the fetches that wait, if there is something new for them.

        Args:
            role: The leader, as it is now; nothing happens for another role.
            now_ms: Given when the high watermark moved, which every one of them is told.
        """
        replica = self._replica
        if not isinstance(role, Leader) or not role.deferred:
            return
        waiting, role.deferred = role.deferred, []
        for fetch in waiting:
            if role is not replica.role:
                replica.respond(fetch.source, self._fetch_error(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            elif now_ms is None and fetch.request.fetch_offset >= replica.log.end_offset:
                role.deferred.append(fetch)
            else:
                replica.respond(fetch.source, self._reread(fetch, role))

    def _reread(self, fetch: DeferredFetch, role: Leader) -> FetchResponse:
        """The answer now; what the sender told when it asked has been noted then."""
        request = fetch.request
        found = self._replica.log.check_fetch(request.fetch_offset, request.last_fetched_epoch)
        return self._fetch_response(role, request, found)

    def expire_deferred(self, role: Leader, now_ms: int) -> None:
        """Answer the fetches that have waited long enough with what could be said when they came (FTCH-32)."""
        for fetch in role.deferred:
            if fetch.deadline_ms <= now_ms:
                break
        else:
            return
        waiting, role.deferred = role.deferred, []
        for fetch in waiting:
            if fetch.deadline_ms <= now_ms:
                self._replica.respond(fetch.source, fetch.response)
            else:
                role.deferred.append(fetch)

    # FetchSnapshot

    def handle_fetch_snapshot(self, source: object, request: FetchSnapshotRequest, now_ms: int) -> None:
        """Answer with a piece of a snapshot (SNAP-27 to SNAP-34)."""
        replica = self._replica
        if replica.is_other_cluster(request.cluster_id):
            replica.respond(source, FetchSnapshotResponse(top_level_error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
            return
        error = self._check_leader_request(request.current_leader_epoch)
        size_bytes = None
        if not error:
            if request.snapshot_id != BOOTSTRAP_SNAPSHOT_ID:
                size_bytes = replica.log.snapshot_size_bytes(request.snapshot_id)
            if size_bytes is None:
                error = ErrorCode.SNAPSHOT_NOT_FOUND
            elif not 0 <= request.position < size_bytes:
                error = ErrorCode.POSITION_OUT_OF_RANGE
        role = replica.role
        if error or size_bytes is None or not isinstance(role, Leader):
            replica.respond(
                source,
                FetchSnapshotResponse(
                    error_code=error,
                    leader_id=replica.named_leader_id,
                    leader_epoch=replica.epoch,
                    leader_endpoints=replica.named_leader_endpoints,
                ),
            )
            return
        if request.replica_key is not None:
            role.on_heard(request.replica_key, now_ms)
        replica.respond(
            source,
            FetchSnapshotResponse(
                leader_id=replica.named_leader_id,
                leader_epoch=replica.epoch,
                leader_endpoints=replica.named_leader_endpoints,
                snapshot_id=request.snapshot_id,
                size_bytes=size_bytes,
                position=request.position,
                read_bytes=min(max(0, request.max_bytes), size_bytes - request.position),
            ),
        )

    # What is committed

    def on_flushed(self, now_ms: int) -> None:
        """This replica's log is durable further than before."""
        role = self._replica.role
        if isinstance(role, Leader) and role.update_local_end_offset(self._replica.log.flushed_end_offset):
            self.on_high_watermark(now_ms)

    def on_high_watermark(self, now_ms: int) -> None:
        """The high watermark moved: those that wait for it are told, in the order of HWM-17."""
        replica = self._replica
        role = replica.role
        if not isinstance(role, Leader) or role.high_watermark is None:
            return
        high_watermark = role.high_watermark
        change = role.voter_change
        if change is not None and change.last_offset is not None and change.last_offset < high_watermark:
            role.voter_change = None
            replica.answer_voter_change(change, 0)
        replica.advance_high_watermark(high_watermark)
        self.serve_deferred(role, now_ms=now_ms)
        last_voters_offset = replica.voters.latest_offset
        if not role.is_voter and last_voters_offset is not None and last_voters_offset < high_watermark:
            # Its own removal is committed: the new voters go on without it (RCFG-42).
            replica.become_resigned(now_ms)

    # By itself

    def poll(self, role: Leader, now_ms: int) -> bool:
        """Look after the timers of a leader; return False when it has resigned."""
        replica = self._replica
        if replica.is_shutting_down:
            replica.become_resigned(now_ms)  # elected while it was shutting down (CQ-21)
            return False
        role.keep_alone(now_ms)
        if now_ms >= role.check_quorum_deadline_ms:
            replica.become_resigned(now_ms)
            return False
        self.expire_deferred(role, now_ms)
        change = role.voter_change
        if change is not None and now_ms >= change.deadline_ms:
            role.voter_change = None
            replica.answer_voter_change(change, ErrorCode.REQUEST_TIMED_OUT)
        self._announce_confirmation(role)
        return True

    def next_deadline_ms(self, role: Leader, now_ms: int) -> int | None:
        """When ``poll`` is wanted."""
        soonest_ms = role.deadline_ms
        for fetch in role.deferred:
            if soonest_ms is None or fetch.deadline_ms < soonest_ms:
                soonest_ms = fetch.deadline_ms
        change = role.voter_change
        if not self.open_records and change is None and role.announced_round == role.wanted_round:
            return soonest_ms
        ends_ms = (soonest_ms, self.linger_end_ms, None if change is None else change.deadline_ms)
        deadlines = [end_ms for end_ms in ends_ms if end_ms is not None]
        connections = self._replica.connections
        deadlines += [max(now_ms + 1, connections.ready_ms(destination, now_ms)) for destination in self._askable(role)]
        return min(deadlines, default=None)

    # Whether nobody else leads

    def confirm(self) -> int:
        """Begin a round of confirmation; return its number.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER.
        """
        replica = self._replica
        role = replica.role
        if not isinstance(role, Leader) or replica.is_halted:
            reason = f"Replica is {role.name} in epoch {replica.epoch}"
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason)
        role.wanted_round += 1
        return role.wanted_round

    def on_begin_epoch_answered(self, role: Leader, voter_id: NodeId, response: BeginQuorumEpochResponse) -> None:
        """A voter knows who leads; where it says that it still follows, that counts for rounds begun before."""
        role.acknowledge(voter_id)
        replica = self._replica
        if response.leader_epoch == replica.epoch and response.leader_id == replica.local_key.node_id:
            role.on_confirmed(voter_id)

    def _announce_confirmation(self, role: Leader) -> None:
        if role.announced_round < role.wanted_round and role.confirmed_round > role.announced_round:
            role.announced_round = role.confirmed_round
            self._replica.effects.append(LeadershipConfirmed(round=role.confirmed_round))

    def _askable(self, role: Leader) -> list[NodeId]:
        name = self._replica.config.listener_name
        return [
            unconfirmed_voter
            for unconfirmed_voter in role.unconfirmed_voters()
            if role.voters.endpoint(unconfirmed_voter, name) is not None
        ]
