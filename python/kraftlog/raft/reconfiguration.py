"""Who may vote, changed while running: one voter at a time, by the leader (KIP-853)."""

from __future__ import annotations

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.raft.connections import Destination
from kraftlog.raft.control_records import ControlRecord, KRaftVersionChange, VotersChange
from kraftlog.raft.leadership import Leadership
from kraftlog.raft.messages import (
    AddVoterRequest,
    AddVoterResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
    UpdateVoterRequest,
    UpdateVoterResponse,
)
from kraftlog.raft.replica_state import ReplicaState
from kraftlog.raft.roles.leader import Leader, VoterChange
from kraftlog.raft.voter_set import Endpoint, Voter, VoterSet, find_endpoint, has_distinct_listeners
from kraftlog.types import Epoch, NodeId, Offset, Uuid

__all__ = ["Reconfiguration"]

_Refusal = tuple[int, str]

_NO_VERSIONS = "Aborted add voter operation for since API_VERSIONS returned an error {}"  # Kafka's words


def _keys_text(voters: VoterSet) -> str:
    """A voter set as Kafka's messages print it."""
    return f"[{', '.join(str(voter.key) for voter in voters)}]"


def _endpoints_text(endpoints: tuple[Endpoint, ...]) -> str:
    """Endpoints as Kafka's messages print them."""
    listed = ", ".join(
        f"ListenerName({endpoint.name})={endpoint.host}/<unresolved>:{endpoint.port}" for endpoint in endpoints
    )
    return f"Endpoints(endpoints={{{listed}}})"


class Reconfiguration:
    """The part of the core that changes the voter set and kraft.version."""

    def __init__(self, replica: ReplicaState, leadership: Leadership) -> None:
        self._replica = replica
        self._leadership = leadership

    # AddRaftVoter

    def handle_add_voter(self, source: object, request: AddVoterRequest, now_ms: int) -> None:
        """Begin to make a replica a voter: ask it what it can run (RCFG-13 to RCFG-33)."""
        replica, role = self._replica, self._replica.role
        refusal = self._refusal_of_add(request, now_ms)
        if refusal is not None:
            code, message = refusal
            replica.respond(source, AddVoterResponse(top_level_error_code=code, error_message=message))
            return
        endpoint = find_endpoint(request.endpoints, replica.config.listener_name)
        assert isinstance(role, Leader)
        assert endpoint is not None
        change = VoterChange(source, now_ms + replica.config.request_timeout_ms, addition=request)
        role.voter_change = change
        destination = Destination(request.voter_key.node_id, endpoint)
        change.correlation_id = replica.send(destination, ApiVersionsRequest(), now_ms)

    def _refusal_of_add(self, request: AddVoterRequest, now_ms: int) -> _Refusal | None:
        """Why a replica may not become a voter now, in Kafka's order (``AddVoterHandler.handleAddVoterRequest``)."""
        replica = self._replica
        key, listener_name, voters = request.voter_key, replica.config.listener_name, replica.voters.latest
        refusal = self._check_cluster_and_leader(request.cluster_id)
        if refusal is not None:
            return refusal
        if key.node_id < 0 or key.directory_id == Uuid.ZERO:
            return ErrorCode.INVALID_REQUEST, "Add voter request didn't include a valid voter"
        if find_endpoint(request.endpoints, listener_name) is None:
            return (
                ErrorCode.INVALID_REQUEST,
                f"Add voter request didn't include the endpoint ({_endpoints_text(request.endpoints)}) for the default"
                f" listener ListenerName({listener_name})",
            )
        if not has_distinct_listeners(request.endpoints):
            return ErrorCode.INVALID_REQUEST, "Add voter request has two endpoints of one listener"
        refusal = self._check_no_change_under_way(wish="adding")
        if refusal is not None:
            return refusal
        if voters.get(key.node_id) is not None:
            return (
                ErrorCode.DUPLICATE_VOTER,
                f"The voter id for {key} is already part of the set of voters {_keys_text(voters)}.",
            )
        if not replica.connections.is_ready(key.node_id, now_ms):
            return ErrorCode.REQUEST_TIMED_OUT, f"New voter {key} is not ready to receive requests"
        return None

    def handle_api_versions_response(self, node_id: NodeId, response: ApiVersionsResponse, now_ms: int) -> bool:
        """The replica that is to become a voter told what it runs: add it, if that and its log are good enough."""
        role = self._replica.role
        change = role.voter_change if isinstance(role, Leader) else None
        request = None if change is None else change.addition
        if not isinstance(role, Leader) or change is None or request is None or change.last_offset is not None:
            return True
        if request.voter_key.node_id != node_id:
            return True
        refusal = self._check_new_voter(role, request, response, now_ms)
        if refusal is not None:
            role.voter_change = None
            self._replica.answer_voter_change(change, *refusal)
            return not response.top_level_error_code
        voter = Voter(
            request.voter_key, request.endpoints, response.min_kraft_version or 0, response.max_kraft_version or 0
        )
        voters = self._replica.voters.latest.with_added(voter)
        if voters is None:
            role.voter_change = None
            self._replica.answer_voter_change(change, ErrorCode.DUPLICATE_VOTER, f"{voter.key} is a voter already")
            return True
        change.last_offset = self._append([VotersChange(voters=voters)])
        if not request.ack_when_committed:
            self._replica.answer_voter_change(change, 0)
        return True

    def _check_new_voter(
        self, role: Leader, request: AddVoterRequest, response: ApiVersionsResponse, now_ms: int
    ) -> _Refusal | None:
        key, level = request.voter_key, self._replica.kraft_version
        if response.top_level_error_code:
            code = response.top_level_error_code
            return (
                ErrorCode.REQUEST_TIMED_OUT,
                _NO_VERSIONS.format(ErrorCode.name_of(code)),
            )
        low, high = response.min_kraft_version, response.max_kraft_version
        if low is None or high is None or not low <= level <= high:
            return (
                ErrorCode.INVALID_REQUEST,
                f"Aborted add voter operation for {key} since kraft.version range {low} to {high} doesn't support the"
                f" finalized version {level}",
            )
        if not role.is_caught_up(key, now_ms):
            return (
                ErrorCode.REQUEST_TIMED_OUT,
                f"Aborted add voter operation for {key} since it is lagging behind",
            )
        return None

    def handle_no_api_versions(self, correlation_id: int, error_code: int) -> None:
        """The replica that is to become a voter did not answer (RCFG-23)."""
        role = self._replica.role
        change = role.voter_change if isinstance(role, Leader) else None
        if isinstance(role, Leader) and change is not None and change.correlation_id == correlation_id:
            role.voter_change = None
            self._replica.answer_voter_change(
                change,
                ErrorCode.REQUEST_TIMED_OUT,
                _NO_VERSIONS.format(ErrorCode.name_of(error_code)),
            )

    # RemoveRaftVoter

    def handle_remove_voter(self, source: object, request: RemoveVoterRequest, now_ms: int) -> None:
        """Make a voter an observer; the new set is in force at once, the answer comes with the commit."""
        replica, role = self._replica, self._replica.role
        refusal = self._refusal_of_remove(request)
        if refusal is not None:
            code, message = refusal
            replica.respond(source, RemoveVoterResponse(top_level_error_code=code, error_message=message))
            return
        voters = replica.voters.latest.with_removed(request.voter_key)
        assert isinstance(role, Leader)
        assert voters is not None
        change = VoterChange(source, now_ms + replica.config.request_timeout_ms)
        role.voter_change = change
        change.last_offset = self._append([VotersChange(voters=voters)])

    def _refusal_of_remove(self, request: RemoveVoterRequest) -> _Refusal | None:
        """Why a voter may not be removed now, in Kafka's order (``RemoveVoterHandler.handleRemoveVoterRequest``)."""
        key, voters = request.voter_key, self._replica.voters.latest
        refusal = self._check_cluster_and_leader(request.cluster_id)
        if refusal is not None:
            return refusal
        if key.node_id < 0 or key.directory_id == Uuid.ZERO:
            return ErrorCode.INVALID_REQUEST, "Remove voter request didn't include a valid voter"
        refusal = self._check_no_change_under_way(wish="removing")
        if refusal is not None:
            return refusal
        if voters.with_removed(key) is None:
            return (
                ErrorCode.VOTER_NOT_FOUND,
                f"Cannot remove voter {key} from the set of voters {_keys_text(voters)}",
            )
        return None

    # UpdateRaftVoter

    def handle_update_voter(self, source: object, request: UpdateVoterRequest, now_ms: int) -> None:
        """Note where a voter listens and what it runs; answered once appended (RCFG-45 to RCFG-53)."""
        error = self._update_voter(request, now_ms)
        replica = self._replica
        replica.respond(
            source,
            UpdateVoterResponse(
                top_level_error_code=error,
                leader_id=replica.named_leader_id,
                leader_epoch=replica.epoch,
                leader_endpoints=replica.named_leader_endpoints,
            ),
        )

    def _update_voter(self, request: UpdateVoterRequest, now_ms: int) -> int:
        replica = self._replica
        key, level = request.voter_key, replica.kraft_version
        if replica.is_other_cluster(request.cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if request.current_leader_epoch != replica.epoch:
            is_old = request.current_leader_epoch < replica.epoch
            return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
        refusal = self._check_cluster_and_leader(None)
        if refusal is not None:
            return refusal[0]
        low, high = request.min_kraft_version, request.max_kraft_version
        if (
            key.node_id < 0
            or key.directory_id == Uuid.ZERO
            or find_endpoint(request.endpoints, replica.config.listener_name) is None
            or not has_distinct_listeners(request.endpoints)
            or not 0 <= low <= high
        ):
            return ErrorCode.INVALID_REQUEST
        refusal = self._check_no_change_under_way()
        if refusal is not None:
            return refusal[0]
        if not low <= level <= high:
            return ErrorCode.INVALID_REQUEST
        role = replica.role
        if not isinstance(role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        voter = Voter(key, request.endpoints, low, high)
        voters = role.voters.with_updated(voter, ignores_directory_id=level == 0)
        if voters is None:
            return ErrorCode.VOTER_NOT_FOUND
        if level == 0:
            # Nothing in the log can say it yet: the leader remembers, for the upgrade (RCFG-51).
            role.set_voters(voters)
            role.updated_voters.add(key.node_id)
        else:
            self._append([VotersChange(voters=voters)])
        role.on_heard(key, now_ms)
        return 0

    # kraft.version

    def update_kraft_version(self, level: int, epoch: Epoch, *, is_dry_run: bool) -> Offset | None:
        """Raise kraft.version; every voter has to support it and be known with its directory id (KVER-04 to KVER-13).

        Returns:
            The last offset of what was appended (inclusive); None when nothing had to be.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, or INVALID_UPDATE_VERSION with the reason.
            ValueError: An epoch this replica has not reached.
        """
        replica = self._replica
        role = replica.role
        if epoch > replica.epoch:
            msg = f"Epoch {epoch} is above the current epoch {replica.epoch}"
            raise ValueError(msg)
        if not isinstance(role, Leader) or epoch < replica.epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Replica is {role.name} in epoch {replica.epoch}")
        current = replica.kraft_version
        if level == current:
            return None
        if level < current:
            reason = f"kraft.version {current} cannot be lowered to {level}"
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, reason)
        if not replica.config.min_kraft_version <= level <= replica.config.max_kraft_version:
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"kraft.version {level} is not supported here")
        refusal = self._check_no_change_under_way()
        if refusal is not None:
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, refusal[1])
        voters = role.voters.with_updated(replica.local_voter, ignores_directory_id=True) or role.voters
        for voter in voters:
            is_known = voter.key.node_id in role.updated_voters and voter.key.directory_id != Uuid.ZERO
            if not is_known or not voter.min_kraft_version <= level <= voter.max_kraft_version:
                raise KafkaError(
                    ErrorCode.INVALID_UPDATE_VERSION,
                    f"Voter {voter.key.node_id} is not known to support kraft.version {level}",
                )
        if is_dry_run:
            return None
        return self._append([KRaftVersionChange(kraft_version=level), VotersChange(voters=voters)])

    # What they share

    def _append(self, records: list[ControlRecord]) -> Offset:
        self._leadership.force_drain()
        last_offset = self._replica.append_control(records)
        self._leadership.serve_deferred(self._replica.role)
        return last_offset

    def _check_cluster_and_leader(self, cluster_id: str | None) -> _Refusal | None:
        replica = self._replica
        if replica.is_other_cluster(cluster_id):
            return (
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f'The given id "{cluster_id}" doesn\'t match the cluster id "{replica.config.cluster_id}"',
            )
        if not isinstance(replica.role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, ""  # without a message, as Kafka
        if replica.is_shutting_down:
            return ErrorCode.BROKER_NOT_AVAILABLE, "The leader is shutting down"
        return None

    def _check_no_change_under_way(self, *, wish: str | None = None) -> _Refusal | None:
        """One change at a time, and none before this epoch has committed (RCFG-17 to RCFG-20, RCFG-62, RCFG-63).

        Args:
            wish: "adding" or "removing" a voter, which needs kraft.version 1; None for what does not.
        """
        replica = self._replica
        role = replica.role
        if not isinstance(role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Replica is {role.name} in epoch {replica.epoch}"
        if role.voter_change is not None:
            return (
                ErrorCode.REQUEST_TIMED_OUT,
                "Request timed out waiting for leader to handle previous voter change request",
            )
        if role.high_watermark is None:
            return (
                ErrorCode.REQUEST_TIMED_OUT,
                "Request timed out waiting for leader to establish HWM and fence previous voter changes",
            )
        if wish is not None and replica.kraft_version == 0:
            return (
                ErrorCode.UNSUPPORTED_VERSION,
                f"Cluster doesn't support {wish} voter because the kraft.version feature is 0",
            )
        last_offset = replica.voters.latest_offset
        if last_offset is not None and last_offset >= role.high_watermark:
            return (
                ErrorCode.REQUEST_TIMED_OUT,
                f"Request timed out waiting for voters to commit the latest voter change at {last_offset} with HWM"
                f" {role.high_watermark}",
            )
        return None

    def is_change_uncommitted(self) -> bool:
        """Whether a voter set is in force that is not committed yet; the leader knows."""
        role = self._replica.role
        last_offset = self._replica.voters.latest_offset
        if not isinstance(role, Leader) or last_offset is None:
            return False
        return role.high_watermark is None or last_offset >= role.high_watermark
