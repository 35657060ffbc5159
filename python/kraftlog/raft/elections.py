"""Who leads: votes and pre-votes, the beginning and the end of an epoch (KIP-595, KIP-853, KIP-996)."""

from __future__ import annotations

from typing import TypeAlias

from kraftlog.errors import ErrorCode
from kraftlog.raft.connections import Destination
from kraftlog.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchResponse,
    FetchSnapshotResponse,
    UpdateVoterResponse,
    VoteRequest,
    VoteResponse,
)
from kraftlog.raft.replica_state import ReplicaState
from kraftlog.raft.roles.candidate import Candidate
from kraftlog.raft.roles.follower import Follower
from kraftlog.raft.roles.leader import Leader
from kraftlog.raft.roles.prospective import Prospective
from kraftlog.raft.roles.resigned import Resigned
from kraftlog.raft.roles.unattached import Unattached
from kraftlog.raft.voter_set import Endpoint, find_endpoint
from kraftlog.types import Epoch, NodeId, ReplicaKey

__all__ = ["Elections"]

_Informative = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | UpdateVoterResponse
)
_ABOUT_LEADERSHIP = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER})
_Answer: TypeAlias = type[VoteResponse] | type[BeginQuorumEpochResponse] | type[EndQuorumEpochResponse]


class Elections:
    """The part of the core that decides about leadership."""

    def __init__(self, replica: ReplicaState) -> None:
        self._replica = replica

    # Requests of others

    def handle_vote(self, source: object, request: VoteRequest, now_ms: int) -> None:
        """Answer a vote or a pre-vote; a vote is durable before its answer leaves."""
        replica = self._replica
        error, is_top_level = self._check_vote(request)
        if error:
            self._answer(VoteResponse, source, error, is_top_level=is_top_level)
            return
        if request.replica_epoch > replica.epoch:
            replica.become_unattached(request.replica_epoch, now_ms)
        if not replica.is_local(request.voter_key):
            self._answer(VoteResponse, source, ErrorCode.INVALID_VOTER_KEY)
            return
        role = replica.role
        up_to_date = replica.is_log_up_to_date(request.last_epoch, request.last_epoch_end_offset)
        granted = role.can_grant_vote(request.replica_key, is_log_up_to_date=up_to_date, pre_vote=request.pre_vote)
        if not request.pre_vote and request.replica_key.node_id == replica.local_key.node_id:
            granted = False  # nobody else can have this id: the sender is misconfigured (VOTE-20)
        if granted and not request.pre_vote and role.voted_key is None:
            replica.add_vote(request.replica_key, now_ms)
        replica.respond(
            source,
            VoteResponse(
                leader_id=replica.named_leader_id,
                leader_epoch=replica.epoch,
                leader_endpoints=replica.named_leader_endpoints,
                vote_granted=granted,
            ),
        )

    def _check_vote(self, request: VoteRequest) -> tuple[int, bool]:
        replica = self._replica
        if replica.is_other_cluster(request.cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID, True
        highest_last_epoch = request.replica_epoch if request.pre_vote else request.replica_epoch - 1
        if request.last_epoch_end_offset < 0 or not 0 <= request.last_epoch <= highest_last_epoch:
            return ErrorCode.INVALID_REQUEST, False
        return self._check_voter_request(request.replica_epoch, request.replica_key.node_id), False

    def _check_voter_request(self, epoch: Epoch, sender_id: NodeId) -> int:
        if epoch < self._replica.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.INVALID_REQUEST if sender_id < 0 else 0

    def handle_begin_quorum_epoch(self, source: object, request: BeginQuorumEpochRequest, now_ms: int) -> None:
        """Follow the leader that says it was elected."""
        error, is_top_level = self._follow(
            request.cluster_id, request.leader_id, request.leader_epoch, request.leader_endpoints, now_ms
        )
        if not error and not self._replica.is_local(request.voter_key):
            error = ErrorCode.INVALID_VOTER_KEY
        self._answer(BeginQuorumEpochResponse, source, error, is_top_level=is_top_level)

    def handle_end_quorum_epoch(self, source: object, request: EndQuorumEpochRequest, now_ms: int) -> None:
        """Stand for election soon, the sooner the better this replica's place among those named (ELEC-48 to 52)."""
        replica = self._replica
        error, is_top_level = self._follow(
            request.cluster_id, request.leader_id, request.leader_epoch, request.leader_endpoints, now_ms
        )
        role = replica.role
        if not error and isinstance(role, Follower) and role.leader_id == request.leader_id:
            role.fetch_deadline_ms = now_ms + self._backoff_ms(request.preferred_candidates)
        self._answer(EndQuorumEpochResponse, source, error, is_top_level=is_top_level)

    def _backoff_ms(self, candidates: tuple[ReplicaKey, ...]) -> int:
        position = next((index for index, key in enumerate(candidates) if self._replica.is_local(key)), None)
        longest_ms = self._replica.config.election_backoff_max_ms
        if position is None:
            return longest_ms
        if position == 0:
            return 0
        return min(longest_ms, (longest_ms >> (len(candidates) - 1)) << (position - 1))

    def _follow(
        self,
        cluster_id: str | None,
        leader_id: NodeId,
        leader_epoch: Epoch,
        endpoints: tuple[Endpoint, ...],
        now_ms: int,
    ) -> tuple[int, bool]:
        """Check a request that a leader sent, then follow it; return the error and whether it is a top-level one."""
        replica = self._replica
        if replica.is_other_cluster(cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID, True
        error = self._check_voter_request(leader_epoch, leader_id)
        if error:
            return error, False
        if not self.is_consistent(leader_id, leader_epoch):
            # Two leaders in one epoch cannot both be right; Kafka's controller halts here, we refuse and stay.
            reason = f"{leader_id} claims epoch {leader_epoch}, which {replica.role.leader_id} leads"
            replica.fault(reason, is_fatal=False)
            return ErrorCode.INVALID_REQUEST, False
        if replica.role.leader_id is None or leader_epoch > replica.epoch:
            endpoints = endpoints or replica.voters.latest.endpoints_of(leader_id)
            if not endpoints:
                # No replica could follow it. Another replica may name its address: this replica goes on asking.
                replica.note(f"{leader_id} claims epoch {leader_epoch}, and where it listens is unknown")
                return ErrorCode.UNKNOWN_SERVER_ERROR, False
        self.learn_leader(leader_id, leader_epoch, endpoints, now_ms)
        return 0, False

    def _answer(self, kind: _Answer, source: object, error: int, *, is_top_level: bool = False) -> None:
        replica = self._replica
        if is_top_level:
            replica.respond(source, kind(top_level_error_code=error))
            return
        replica.respond(source, replica.refusals.get(kind, error))

    # What any message tells about the leader

    def is_consistent(self, leader_id: NodeId | None, epoch: Epoch) -> bool:
        """Whether a leader that somebody names can be one, by what is known here (RPC-29, ELEC-35)."""
        replica = self._replica
        role = replica.role
        local_epoch = role.epoch
        if leader_id is None or epoch < local_epoch:
            return True
        if leader_id == replica.local_key.node_id:
            # Led or resigned in this epoch: true. Of a higher epoch this replica would know.
            return epoch == local_epoch and isinstance(role, (Leader, Resigned))
        return epoch > local_epoch or role.leader_id in (None, leader_id)

    def learn_leader(
        self, leader_id: NodeId | None, epoch: Epoch, endpoints: tuple[Endpoint, ...], now_ms: int
    ) -> None:
        """Go by an epoch and a leader at least as new as the known ones (``KafkaRaftClient.maybeTransition``)."""
        replica = self._replica
        if leader_id is not None and not endpoints:
            endpoints = replica.voters.latest.endpoints_of(leader_id)
        if epoch > replica.epoch:
            if leader_id is not None and endpoints:
                replica.become_follower(epoch, leader_id, endpoints, now_ms)
            else:
                replica.become_unattached(epoch, now_ms, leader_id=leader_id)
            return
        role = replica.role
        if leader_id is None or leader_id == replica.local_key.node_id:
            return
        if isinstance(role, Follower):
            if len(endpoints) > len(role.leader_endpoints):
                replica.become_follower(epoch, leader_id, endpoints, now_ms)
        elif isinstance(role, Unattached | Prospective | Candidate):
            if endpoints and (role.leader_id is None or len(endpoints) > len(replica.leader_endpoints)):
                replica.become_follower(epoch, leader_id, endpoints, now_ms)
            elif role.leader_id is None:
                replica.become_unattached(epoch, now_ms, leader_id=leader_id)

    # Answers to our requests

    def learn_from(self, node_id: NodeId, response: _Informative, now_ms: int) -> bool | None:
        """What every answer tells of the leader (``maybeHandleCommonResponse``); None: go on with the rest of it."""
        replica = self._replica
        role = replica.role
        epoch, leader_id = response.leader_epoch, response.leader_id
        error = response.top_level_error_code if isinstance(response, UpdateVoterResponse) else response.error_code
        if epoch < role.epoch or error == ErrorCode.UNKNOWN_LEADER_EPOCH:
            # Kafka asks again at once. Without a leader that would go on without a pause: a voter that was down does
            # not learn a newer epoch from fetches.
            return not isinstance(response, FetchResponse) or role.leader_id == node_id
        if not self.is_consistent(leader_id, epoch):
            replica.fault(
                f"An answer names {leader_id} as leader of epoch {epoch}, known is {role.leader_id}"
                f" in epoch {role.epoch} as {role.name}",
                is_fatal=False,
            )
            return False
        if epoch > role.epoch or error in _ABOUT_LEADERSHIP:
            self.learn_leader(leader_id, epoch, response.leader_endpoints, now_ms)
            # Who has nothing to tell is not asked again at once: without a leader that would go on without a pause.
            return replica.role is not role
        # An unattached replica may remember who leads and not where: its log, and the voters in it, are gone.
        if leader_id is not None and (role.leader_id is None or isinstance(role, Unattached)):
            self.learn_leader(leader_id, epoch, response.leader_endpoints, now_ms)
            return True if error else None
        if not error:
            return None
        if error == ErrorCode.BROKER_NOT_AVAILABLE:
            return False
        name = type(response).__name__.removesuffix("Response")
        if error == ErrorCode.INVALID_REQUEST:
            replica.fault(f"A peer calls a {name} invalid", is_fatal=False)
            return False
        if error == ErrorCode.INVALID_VOTER_KEY:
            replica.note(f"{node_id} does not have the directory id that the voter set has: it refuses a {name}")
            return True
        if isinstance(response, VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse):
            # It neither granted nor rejected nor acknowledged anything.
            replica.note(f"{node_id} answers a {name} with {ErrorCode.name_of(error)}")
            return False
        return None

    def handle_vote_response(self, voter_id: NodeId, request: VoteRequest, response: VoteResponse, now_ms: int) -> bool:
        """Count a vote or a pre-vote; return whether the peer may be asked again at once."""
        replica = self._replica
        role = replica.role
        if isinstance(role, Prospective) and request.pre_vote and role.election.is_voter(voter_id):
            role.election.record(voter_id, granted=response.vote_granted)
            if role.election.is_granted:
                replica.become_candidate(now_ms)
            elif role.election.is_rejected and not replica.is_shutting_down:
                self.lose_pre_vote(now_ms)
        elif isinstance(role, Candidate) and not request.pre_vote and role.election.is_voter(voter_id):
            known = role.election.answer(voter_id)
            if known is not None and known != response.vote_granted:
                replica.fault(f"{voter_id} changed its vote in epoch {role.epoch}", is_fatal=False)
                return True
            role.election.record(voter_id, granted=response.vote_granted)
            if role.election.is_granted:
                replica.become_leader(now_ms)
        return True

    def handle_pre_vote_unsupported(self, request: VoteRequest, now_ms: int) -> None:
        """A voter's Vote has no pre-vote: go on with a standard election (PREV-11)."""
        replica = self._replica
        if request.pre_vote and isinstance(replica.role, Prospective):
            replica.become_candidate(now_ms)

    def lose_pre_vote(self, now_ms: int) -> None:
        """No majority would vote: back to the leader that was known, or to looking for one (PREV-05 to PREV-08)."""
        replica = self._replica
        role = replica.role
        if not isinstance(role, Prospective):
            return
        if role.leader_id is not None and role.leader_endpoints:
            replica.become_follower(role.epoch, role.leader_id, role.leader_endpoints, now_ms)
        else:
            replica.become_unattached(role.epoch, now_ms, leader_id=role.leader_id)

    # What the roles do by themselves

    def poll_prospective(self, role: Prospective, now_ms: int) -> None:
        """Ask those who have not answered, or give up when the election timer is over."""
        replica = self._replica
        if now_ms >= (role.deadline_ms or now_ms) and not replica.is_shutting_down:
            self.lose_pre_vote(now_ms)
            return
        if role.election.is_rejected:
            return  # only while shutting down (PREV-14)
        for voter in role.election.unanswered:
            self._ask_for_vote(voter.key, voter.endpoints, pre_vote=True, now_ms=now_ms)

    def poll_candidate(self, role: Candidate, now_ms: int) -> None:
        """Ask those who have not answered; when the election timer is over ask for pre-votes first (ELEC-20, 21)."""
        replica = self._replica
        if role.election.is_granted:
            replica.become_leader(now_ms)
            return
        if now_ms >= (role.deadline_ms or now_ms) and not replica.is_shutting_down:
            replica.become_prospective(now_ms)
            return
        if role.election.is_rejected:
            return
        for voter in role.election.unanswered:
            self._ask_for_vote(voter.key, voter.endpoints, pre_vote=False, now_ms=now_ms)

    def _ask_for_vote(self, key: ReplicaKey, endpoints: tuple[Endpoint, ...], *, pre_vote: bool, now_ms: int) -> None:
        replica = self._replica
        if not replica.connections.is_ready(key.node_id, now_ms):
            return
        destination = self.destination(key.node_id, endpoints)
        if destination is None:
            return
        request = VoteRequest(
            cluster_id=replica.config.cluster_id,
            voter_key=key,
            replica_key=replica.local_key,
            replica_epoch=replica.epoch,
            last_epoch=replica.log.last_epoch,
            last_epoch_end_offset=replica.log.end_offset,
            pre_vote=pre_vote,
        )
        replica.send(destination, request, now_ms, flushed_to=replica.log.end_offset)

    def poll_resigned(self, role: Resigned, now_ms: int) -> None:
        """Tell the voters; when the election timer is over leave the epoch, never to follow itself (ELEC-39)."""
        replica = self._replica
        if role.deadline_ms is not None and now_ms >= role.deadline_ms and not replica.is_shutting_down:
            if not replica.has_run and replica.voters.latest.is_only_voter(replica.local_key):
                replica.become_prospective(now_ms)
            else:
                deadline_ms = now_ms if replica.may_stand else None
                replica.become_unattached(Epoch(role.epoch + 1), now_ms, deadline_ms=deadline_ms)
            return
        for voter_id in list(role.unacknowledged):
            voter = replica.voters.latest.get(voter_id)
            destination = None if voter is None else self.destination(voter_id, voter.endpoints)
            if destination is None or not replica.connections.is_ready(voter_id, now_ms):
                continue
            request = EndQuorumEpochRequest(
                cluster_id=replica.config.cluster_id,
                leader_id=replica.local_key.node_id,
                leader_epoch=replica.epoch,
                preferred_candidates=role.preferred_candidates,
            )
            replica.send(destination, request, now_ms)

    def poll_leader(self, role: Leader, now_ms: int) -> None:
        """Tell voters that do not fetch (CQ-09, every half fetch timeout), or have to confirm it, who leads."""
        replica = self._replica
        for voter_id in role.unconfirmed_voters():
            self._tell_voter(role, voter_id, now_ms)
        if now_ms < role.begin_epoch_deadline_ms:
            return
        period_ms = max(1, replica.config.fetch_timeout_ms // 2)
        role.begin_epoch_deadline_ms = now_ms + period_ms
        for voter_id in role.silent_voters(now_ms, period_ms):
            self._tell_voter(role, voter_id, now_ms)

    def _tell_voter(self, role: Leader, voter_id: NodeId, now_ms: int) -> None:
        replica = self._replica
        voter = role.voters.get(voter_id)
        destination = None if voter is None else self.destination(voter_id, voter.endpoints)
        if voter is None or destination is None or not replica.connections.is_ready(voter_id, now_ms):
            return
        request = BeginQuorumEpochRequest(
            cluster_id=replica.config.cluster_id,
            voter_key=voter.key,
            leader_id=replica.local_key.node_id,
            leader_epoch=replica.epoch,
            leader_endpoints=replica.config.local_endpoints,
        )
        replica.send(destination, request, now_ms)
        role.on_asked(voter_id)

    def destination(self, node_id: NodeId, endpoints: tuple[Endpoint, ...]) -> Destination | None:
        """Where a replica listens for the others; None when it has no endpoint of the listener (ENDP-09)."""
        endpoint = find_endpoint(endpoints, self._replica.config.listener_name)
        return None if endpoint is None else Destination(node_id, endpoint)
