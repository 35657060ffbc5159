"""What a follower does: fetch, append, truncate, load snapshots, and see that the voter set is right about it."""

from __future__ import annotations

from collections.abc import Sequence

from kraftlog.errors import ErrorCode
from kraftlog.raft.connections import Destination
from kraftlog.raft.effects import AppendFetched, FlushLog, InstallSnapshot, TruncateLog, WriteSnapshotChunk
from kraftlog.raft.elections import Elections
from kraftlog.raft.messages import (
    UNKNOWN_OFFSET,
    AddVoterRequest,
    AddVoterResponse,
    FetchedBatch,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
    Request,
    UpdateVoterRequest,
    UpdateVoterResponse,
)
from kraftlog.raft.replica_state import ReplicaState
from kraftlog.raft.roles.follower import Download, Follower
from kraftlog.raft.roles.unattached import Unattached
from kraftlog.raft.voter_set import VoterSet
from kraftlog.types import EpochEndOffset, NodeId, Offset, SnapshotId

__all__ = ["Followership"]

_ADD_ENDED = frozenset({0, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.DUPLICATE_VOTER})
_REMOVE_ENDED = frozenset({0, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.VOTER_NOT_FOUND})
_REFUSALS_NEEDED = 2


class Followership:
    """The part of the core that acts while somebody else leads, or nobody is known to."""

    def __init__(self, replica: ReplicaState, elections: Elections) -> None:
        self._replica = replica
        self._elections = elections
        self._last_fetch: FetchRequest | None = None
        self._led_as: Follower | None = None
        self._led_from: Destination | None = None
        self._voters_to_ask: VoterSet | None = None
        self._to_ask: tuple[Destination, ...] = ()
        self._ids_to_ask: tuple[NodeId, ...] = ()
        self._early_epoch = -1
        self._early_elections = 0

    # What to ask next

    def poll_unattached(self, role: Unattached, now_ms: int) -> None:
        """Look for the leader, or stand for election when the timer is over."""
        replica = self._replica
        deadline_ms = role.deadline_ms
        if deadline_ms is not None and now_ms >= deadline_ms and replica.may_stand:
            replica.become_prospective(now_ms)
            return
        if not (replica.is_shutting_down and replica.is_voter):
            self._fetch_from_bootstrap(now_ms)

    def poll_follower(self, role: Follower, now_ms: int) -> None:
        """Fetch; or tell the leader what the voter set has wrong; or stand for election."""
        replica = self._replica
        if now_ms >= role.fetch_deadline_ms:
            if replica.may_stand:
                replica.become_prospective(now_ms)
                return
            # An observer follows on; but it may be a voter in a longer log, whose holder needs its pre-vote.
            role.has_fetched = False
        if replica.is_shutting_down:
            return
        if now_ms >= role.update_voter_deadline_ms:
            request = self._correction(role)
            if request is None:
                role.update_voter_deadline_ms = now_ms + replica.config.fetch_timeout_ms
            elif self._send_correction(role, request, now_ms) or replica.connections.is_busy(now_ms):
                return
        self._fetch(role, now_ms)

    def _send_correction(self, role: Follower, request: Request, now_ms: int) -> bool:
        replica = self._replica
        leader = self._leader(role)
        if leader is None or replica.connections.is_busy(now_ms):
            return False
        if not replica.connections.is_ready(leader.node_id, now_ms):
            return False
        replica.send(leader, request, now_ms)
        role.update_voter_deadline_ms = now_ms + replica.config.fetch_timeout_ms
        return True

    def _correction(self, role: Follower) -> Request | None:
        """What the voter set should be told about this replica, if anything (RCFG-54, RCFG-55, JOIN-01 to JOIN-13)."""
        replica = self._replica
        config = replica.config
        voters = replica.voters.latest
        if replica.is_voter:
            known = voters.get(replica.local_key.node_id)
            is_right = role.has_updated_leader if replica.kraft_version == 0 else known == replica.local_voter
            if is_right or not config.local_endpoints:
                return None
            return UpdateVoterRequest(
                cluster_id=config.cluster_id,
                current_leader_epoch=replica.epoch,
                voter_key=replica.local_key,
                min_kraft_version=config.min_kraft_version,
                max_kraft_version=config.max_kraft_version,
                endpoints=config.local_endpoints,
            )
        if not (config.auto_join and config.can_become_voter and replica.kraft_version > 0 and config.local_endpoints):
            return None
        old = voters.get(replica.local_key.node_id)
        if old is not None:
            return RemoveVoterRequest(cluster_id=config.cluster_id, voter_key=old.key)
        return AddVoterRequest(
            cluster_id=config.cluster_id,
            voter_key=replica.local_key,
            endpoints=config.local_endpoints,
            timeout_ms=config.request_timeout_ms,
            ack_when_committed=False,
        )

    def _fetch(self, role: Follower, now_ms: int) -> None:
        """Ask the leader, or where it does not answer somebody else (FTCH-48, CONN-27)."""
        connections = self._replica.connections
        leader = self._leader(role)
        if leader is None:
            self._fetch_from_bootstrap(now_ms)
        elif connections.has_timed_out(leader.node_id, now_ms):
            connections.forget(leader.node_id)
            if not self._fetch_from_bootstrap(now_ms, but=role.leader_id):
                self._ask(leader, role, now_ms)
        elif connections.is_backing_off(leader.node_id, now_ms):
            self._fetch_from_bootstrap(now_ms)
        elif not connections.is_busy(now_ms):
            self._ask(leader, role, now_ms)

    def on_refused_connection(self, node_id: NodeId, now_ms: int) -> None:
        """After the second refusal of the leader, grant pre-votes at once and stand for election soon.

        A leader that a majority still fetches from keeps its epoch: that majority grants no pre-vote (KIP-996).
        """
        replica = self._replica
        role = replica.role
        if not isinstance(role, Follower) or role.leader_id != node_id:
            return
        role.refusals += 1
        if role.refusals != _REFUSALS_NEEDED:
            return
        role.has_fetched = False
        if replica.is_voter:
            role.fetch_deadline_ms = min(role.fetch_deadline_ms, now_ms + self._early_delay_ms(role))

    def _early_delay_ms(self, role: Follower) -> int:
        """Each voter waits in a slot of its own, so that seldom two stand at once; longer if the last time was in vain.

        The voter with the lowest id waits for half a slot at least: the others notice the end of the leader by then.
        """
        replica = self._replica
        if self._early_epoch != role.epoch:
            self._early_epoch, self._early_elections = role.epoch, 0
        slot_ms = max(2, replica.config.election_timeout_ms // 8)
        others = sorted(voter_id for voter_id in replica.voters.latest.ids if voter_id != role.leader_id)
        delay_ms = (
            slot_ms * others.index(replica.local_key.node_id) + slot_ms // 2 + replica.rng.randrange(slot_ms // 2)
        )
        delay_ms = min(delay_ms << min(self._early_elections, 16), replica.config.fetch_timeout_ms)
        self._early_elections += 1
        return delay_ms

    def _leader(self, role: Follower) -> Destination | None:
        if role is not self._led_as:
            self._led_as = role
            self._led_from = self._elections.destination(role.leader_id, role.leader_endpoints)
        return self._led_from

    def _fetch_from_bootstrap(self, now_ms: int, *, but: NodeId | None = None) -> bool:
        replica = self._replica
        if replica.connections.is_busy(now_ms):
            return False
        others: Sequence[Destination] = self._whom_to_ask()
        if but is not None:
            others = [other for other in others if other.node_id != but]
        destination = replica.connections.choose(others, now_ms, replica.rng)
        if destination is None:
            return False
        self._ask(destination, None, now_ms)
        return True

    def _whom_to_ask(self) -> tuple[Destination, ...]:
        """The bootstrap servers, and the other voters as far as they are known.

        Kafka asks bootstrap servers alone; where those were all removed from the voter set and lost the leader, they
        would ask each other for ever.
        """
        replica = self._replica
        voters = replica.voters.latest
        if voters is not self._voters_to_ask:
            found = (
                self._elections.destination(voter.key.node_id, voter.endpoints)
                for voter in voters
                if voter.key.node_id != replica.local_key.node_id
            )
            self._voters_to_ask = voters
            self._to_ask = (*replica.bootstrap, *(key for key in found if key is not None))
            self._ids_to_ask = tuple(peer.node_id for peer in self._to_ask)
        return self._to_ask

    def _ask(self, destination: Destination, role: Follower | None, now_ms: int) -> None:
        replica = self._replica
        config = replica.config
        if not replica.connections.is_ready(destination.node_id, now_ms):
            return
        local_key = replica.local_key
        key = local_key if local_key.node_id >= 0 else None
        download = None if role is None else role.download
        if download is not None:
            if download.is_complete:
                return
            snapshot = FetchSnapshotRequest(
                cluster_id=config.cluster_id,
                replica_key=key,
                current_leader_epoch=replica.epoch,
                snapshot_id=download.snapshot_id,
                position=download.position,
                max_bytes=config.fetch_snapshot_max_bytes,
            )
            replica.send(destination, snapshot, now_ms)
            return
        log, epoch = replica.log, replica.role.epoch
        known = UNKNOWN_OFFSET if replica.high_watermark is None else replica.high_watermark
        request = self._last_fetch
        if (
            request is None
            or request.fetch_offset != log.end_offset
            or request.current_leader_epoch != epoch
            or request.high_watermark != known
            or request.last_fetched_epoch != log.last_epoch
        ):  # else it is the same question again, as it mostly is without a leader or without proposals
            self._last_fetch = request = FetchRequest(
                cluster_id=config.cluster_id,
                replica_key=key,
                current_leader_epoch=epoch,
                fetch_offset=log.end_offset,
                last_fetched_epoch=log.last_epoch,
                max_wait_ms=config.fetch_max_wait_ms,
                max_bytes=config.fetch_max_bytes,
                high_watermark=known,
            )
        # The fetch offset says what this replica holds: a voter holds what is on disk (KAFKA-10533).
        flushed_to = log.end_offset if config.can_become_voter or replica.is_voter else None
        replica.send(destination, request, now_ms, flushed_to=flushed_to)

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """When to poll again, answers aside."""
        replica = self._replica
        role = replica.role
        connections = replica.connections
        soonest_ms: int | None = None
        if isinstance(role, Follower):
            if replica.is_shutting_down:
                return None
            if replica.is_voter:
                soonest_ms = role.fetch_deadline_ms
            update_ms = role.update_voter_deadline_ms
            if update_ms > now_ms and (soonest_ms is None or update_ms < soonest_ms):
                soonest_ms = update_ms
            if role.download is not None and role.download.is_complete:
                return soonest_ms
        elif replica.is_voter:
            if replica.is_shutting_down:
                return None  # it neither fetches nor stands for election (CQ-22)
            soonest_ms = role.deadline_ms
        asks_ms = connections.busy_end_ms(now_ms)
        if asks_ms is None:
            self._whom_to_ask()
            candidates = self._ids_to_ask
            if isinstance(role, Follower):
                candidates = (*candidates, role.leader_id)
            asks_ms = connections.next_ready_ms(candidates, now_ms)
            if asks_ms is None:
                return soonest_ms
            if asks_ms <= now_ms:
                asks_ms = now_ms + 1
        return asks_ms if soonest_ms is None or asks_ms < soonest_ms else soonest_ms

    # Answers

    def handle_fetch_response(self, request: FetchRequest, response: FetchResponse, now_ms: int) -> bool:
        """Append, truncate or begin a snapshot; return False when the peer should be left alone for a moment."""
        replica = self._replica
        role = replica.role
        if not isinstance(role, Follower) or response.error_code:
            # Who is still unattached has not learned where the leader is: it does not ask again at once.
            return not response.error_code and not isinstance(role, Unattached)
        if request.fetch_offset != replica.log.end_offset or request.current_leader_epoch > role.epoch:
            return True  # the log moved on since the question was asked
        if response.diverging_epoch is not None:
            return self._truncate(role, response.diverging_epoch, now_ms)
        if response.snapshot_id is not None:
            return self._begin_download(role, response.snapshot_id, now_ms)
        if response.batches:
            self._append(response)
        high_watermark = role.known_high_watermark(
            replica.high_watermark, response.high_watermark, replica.log.end_offset
        )
        role.on_fetched(now_ms, replica.config.fetch_timeout_ms)
        if high_watermark is not None and high_watermark != replica.high_watermark:
            replica.advance_high_watermark(high_watermark)
        return True

    def _append(self, response: FetchResponse) -> None:
        """Take the batches that continue the log and are not of a later epoch than this replica's (FTCH-39 to 41)."""
        replica = self._replica
        accepted: list[FetchedBatch] = []
        for batch in response.batches:
            if (
                batch.base_offset != replica.log.end_offset
                or not replica.log.last_epoch <= batch.epoch <= replica.epoch
            ):
                break
            accepted.append(batch)
            replica.log.append(batch.epoch, batch.last_offset - batch.base_offset + 1)
        if not accepted:
            return
        replica.effects.append(AppendFetched(batches=tuple(accepted)))
        for batch in accepted:
            for offset, record in batch.control_records:
                replica.apply_control(offset, record)
        if replica.is_voter or replica.config.can_become_voter:
            replica.effects.append(FlushLog(log_end_offset=replica.log.end_offset))

    def _truncate(self, role: Follower, diverging: EpochEndOffset, now_ms: int) -> bool:
        replica = self._replica
        if diverging.epoch < 0 or diverging.end_offset < 0:
            return False
        end_offset = replica.log.truncation_offset(diverging)
        if end_offset < replica.committed_end_offset:
            replica.fault(
                f"Leader {role.leader_id} of epoch {role.epoch} asks to truncate to {end_offset}, below the high"
                f" watermark {replica.committed_end_offset}",
                is_fatal=True,
            )
            return False
        if end_offset < replica.log.end_offset:
            replica.log.truncate_to(end_offset)
            replica.voters.truncate_to(end_offset)
            replica.kraft_versions.truncate_to(end_offset)
            replica.effects.append(TruncateLog(end_offset=end_offset))
        role.on_fetched(now_ms, replica.config.fetch_timeout_ms)
        return True

    def _begin_download(self, role: Follower, snapshot_id: SnapshotId, now_ms: int) -> bool:
        if snapshot_id.end_offset <= 0 or snapshot_id.epoch < 0:  # no leader offers one of nothing
            return False
        known = self._replica.committed_end_offset
        if snapshot_id.end_offset < known:
            self._replica.fault(
                f"Leader {role.leader_id} of epoch {role.epoch} asks to replace the log by {snapshot_id}, which ends"
                f" below the high watermark {known}",
                is_fatal=True,
            )
            return False
        role.on_fetched(now_ms, self._replica.config.fetch_timeout_ms)
        if role.download is not None and role.download.snapshot_id == snapshot_id:
            return True
        self._abandon(role)
        if self._replica.log.snapshot_size_bytes(snapshot_id) is None:
            role.download = Download(snapshot_id)
        return True

    def handle_fetch_snapshot_response(
        self, request: FetchSnapshotRequest, response: FetchSnapshotResponse, now_ms: int
    ) -> bool:
        """Take a piece; with the last one the log is replaced (SNAP-35 to SNAP-44)."""
        replica = self._replica
        role = replica.role
        if not isinstance(role, Follower) or role.download is None or role.download.snapshot_id != request.snapshot_id:
            return True
        download = role.download
        lost = {ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE}
        found = response.snapshot_id
        if response.error_code in lost or (not response.error_code and (found is None or found.end_offset < 0)):
            self._abandon(role)
            role.on_fetched(now_ms, replica.config.fetch_timeout_ms)
            return True
        if response.error_code:
            return False
        if found != download.snapshot_id or response.position != download.position:
            replica.fault(
                f"Asked for {download.snapshot_id} from byte {download.position}, got {found} from {response.position}",
                is_fatal=False,
            )
            self._abandon(role)
            return False
        role.on_fetched(now_ms, replica.config.fetch_timeout_ms)
        replica.effects.append(
            WriteSnapshotChunk(snapshot_id=download.snapshot_id, position=download.position, payload=response.payload)
        )
        download.position += response.chunk_bytes
        if download.position == response.size_bytes:
            download.is_complete = True
            replica.effects.append(InstallSnapshot(snapshot_id=download.snapshot_id))
        elif response.chunk_bytes == 0 or download.position > response.size_bytes:
            self._abandon(role)
            return False
        return True

    def _abandon(self, role: Follower) -> None:
        if role.download is not None:
            self._replica.abandon_snapshot(role.download.snapshot_id)
            role.download = None

    def abandon_download(self) -> None:
        """Kafka answers partition errors of FetchSnapshot as -1 for the whole request: begin again with Fetch."""
        role = self._replica.role
        if isinstance(role, Follower) and role.download is not None and not role.download.is_complete:
            self._abandon(role)

    def on_snapshot_installed(
        self, snapshot_id: SnapshotId, size_bytes: int, kraft_version: int, voters: VoterSet | None
    ) -> None:
        """The snapshot is on disk and the log starts behind it (SNAP-38)."""
        replica = self._replica
        role = replica.role
        last_offset = Offset(snapshot_id.end_offset - 1)
        replica.log.restart_at(snapshot_id, size_bytes)
        replica.voters.restart_at(last_offset, voters)
        replica.kraft_versions.restart_at(last_offset, kraft_version or None)
        if isinstance(role, Follower):
            role.download = None
        if not replica.config.min_kraft_version <= kraft_version <= replica.config.max_kraft_version:
            replica.fault(f"kraft.version {kraft_version} of snapshot {snapshot_id} is unknown", is_fatal=True)
        if replica.high_watermark is None or snapshot_id.end_offset > replica.high_watermark:
            replica.advance_high_watermark(snapshot_id.end_offset)

    def handle_update_voter_response(self, response: UpdateVoterResponse, now_ms: int) -> bool:
        """The leader took the update, or cannot (RCFG-55, RCFG-58)."""
        role = self._replica.role
        error = response.top_level_error_code
        if not isinstance(role, Follower):
            return True
        if error in (0, ErrorCode.UNSUPPORTED_VERSION):
            role.has_updated_leader = True
            role.on_fetched(now_ms, self._replica.config.fetch_timeout_ms)
            return True
        self._replica.note(f"Leader {role.leader_id} refuses to update the voter: {ErrorCode.name_of(error)}")
        return error == ErrorCode.REQUEST_TIMED_OUT  # another change is under way: nothing to wait for but the period

    def handle_voter_change_response(self, response: AddVoterResponse | RemoveVoterResponse, now_ms: int) -> bool:
        """The leader joined or removed a voter on this replica's wish, or will be asked again (JOIN-04 to JOIN-06)."""
        role = self._replica.role
        if isinstance(role, Follower):
            role.update_voter_deadline_ms = now_ms + self._replica.config.fetch_timeout_ms
        is_addition = isinstance(response, AddVoterResponse)
        error = response.top_level_error_code
        if error in (_ADD_ENDED if is_addition else _REMOVE_ENDED):
            return True
        wish = "make this replica a voter" if is_addition else "remove the voter that has this replica's id"
        text = "" if response.error_message is None else f": {response.error_message}"
        self._replica.note(f"The leader refuses to {wish}, {ErrorCode.name_of(error)}{text}")
        return False
