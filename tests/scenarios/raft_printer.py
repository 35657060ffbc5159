"""How a raft scenario prints effects, messages and the state of the replica: one line each, telling fields only."""

from __future__ import annotations

from kraftlog.raft.effects import (
    AbandonSnapshot,
    AppendControlRecords,
    AppendFetched,
    AppendRecords,
    Fault,
    FlushLog,
    HighWatermarkAdvanced,
    InstallSnapshot,
    LeaderChanged,
    Notice,
    PersistElectionState,
    SendRequest,
    SendResponse,
    TruncateLog,
    WriteSnapshotChunk,
)
from kraftlog.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderChange,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
    VotersChange,
)


def or_dash(value):
    return "-" if value is None else value


def show_key(key, directory_of):
    """The id, with the directory id where it is not the one that a scenario gives to this id."""
    if key is None:
        return "-"
    if key.directory_id == directory_of(key.node_id):
        return str(key.node_id)
    return f"{key.node_id}/{key.directory_id[-1] - 200 if any(key.directory_id) else '-'}"


def show_snapshot(snapshot_id):
    return f"{snapshot_id.end_offset}-{snapshot_id.epoch}"


def show_control(record):
    match record:
        case LeaderChange():
            voters, granted = list(record.voters), list(record.granting_voters)
            return f"LeaderChange(leader={record.leader_id} voters={voters} granted={granted})"
        case VotersChange():
            return f"Voters({list(record.voters.ids)})"
        case _:
            return f"KRaftVersion({record.kraft_version})"


def show_request(request, directory_of):
    match request:
        case VoteRequest():
            kind = " pre" if request.pre_vote else ""
            return (
                f"Vote{kind} epoch={request.replica_epoch} last={request.last_epoch}@{request.last_epoch_end_offset}"
                f" voter={show_key(request.voter_key, directory_of)}"
            )
        case BeginQuorumEpochRequest():
            return (
                f"BeginQuorumEpoch epoch={request.leader_epoch} voter={show_key(request.voter_key, directory_of)}"
                f" endpoints={len(request.leader_endpoints)}"
            )
        case EndQuorumEpochRequest():
            preferred = [show_key(key, directory_of) for key in request.preferred_candidates]
            return (
                f"EndQuorumEpoch epoch={request.leader_epoch} preferred=[{' '.join(preferred)}]"
                f" endpoints={len(request.leader_endpoints)}"
            )
        case FetchRequest():
            return (
                f"Fetch epoch={request.current_leader_epoch} offset={request.fetch_offset}"
                f" last={request.last_fetched_epoch} hw={request.high_watermark}"
                f" replica={show_key(request.replica_key, directory_of)} wait={request.max_wait_ms}"
            )
        case FetchSnapshotRequest():
            return (
                f"FetchSnapshot epoch={request.current_leader_epoch} {show_snapshot(request.snapshot_id)}"
                f" position={request.position} max={request.max_bytes}"
            )
        case AddVoterRequest():
            return (
                f"AddVoter {show_key(request.voter_key, directory_of)} endpoints={len(request.endpoints)}"
                f" timeout={request.timeout_ms} ack_when_committed={request.ack_when_committed}"
            )
        case RemoveVoterRequest():
            return f"RemoveVoter {show_key(request.voter_key, directory_of)}"
        case UpdateVoterRequest():
            return (
                f"UpdateVoter {show_key(request.voter_key, directory_of)} epoch={request.current_leader_epoch}"
                f" kraft_version={request.min_kraft_version}-{request.max_kraft_version}"
                f" endpoints={len(request.endpoints)}"
            )
        case _:
            return type(request).__name__.removesuffix("Request")


def show_response(response):
    name = type(response).__name__
    top = response.top_level_error_code
    error = top or getattr(response, "error_code", 0)
    words = [name, f"error={error}"]
    if top and isinstance(response, FetchResponse | FetchSnapshotResponse):
        words.append("top_level")
    if hasattr(response, "leader_epoch"):
        words += [f"epoch={response.leader_epoch}", f"leader={or_dash(response.leader_id)}"]
    match response:
        case VoteResponse():
            words.append(f"granted={response.vote_granted}")
        case FetchResponse() if not error:
            words.append(f"hw={response.high_watermark} start={response.log_start_offset}")
            if response.diverging_epoch is not None:
                words.append(f"diverging={response.diverging_epoch.epoch}@{response.diverging_epoch.end_offset}")
            if response.snapshot_id is not None:
                words.append(f"snapshot={show_snapshot(response.snapshot_id)}")
            if response.read_offset is not None:
                words.append(f"read_from={response.read_offset}")
        case FetchResponse() if not top:
            words.append(f"start={response.log_start_offset}")
        case FetchSnapshotResponse() if not error:
            words.append(
                f"{show_snapshot(response.snapshot_id)} size={response.size_bytes}"
                f" position={response.position} bytes={response.read_bytes}"
            )
        case _:
            pass
    return " ".join(words)


def show_effect(effect, directory_of):
    match effect:
        case PersistElectionState(state=state):
            return (
                f"persist epoch={state.epoch} leader={or_dash(state.leader_id)}"
                f" voted={show_key(state.voted_key, directory_of)} kraft_version={effect.kraft_version}"
            )
        case AppendRecords():
            return f"append {effect.base_offset}+{len(effect.records)} epoch={effect.epoch}"
        case AppendControlRecords():
            return f"append {effect.base_offset} epoch={effect.epoch} {' '.join(map(show_control, effect.records))}"
        case AppendFetched():
            ends = [f"{batch.base_offset}..{batch.last_offset}/{batch.epoch}" for batch in effect.batches]
            return f"append fetched {' '.join(ends)}"
        case TruncateLog():
            return f"truncate end={effect.end_offset}"
        case FlushLog():
            return f"flush end={effect.log_end_offset}"
        case WriteSnapshotChunk():
            return f"write snapshot {show_snapshot(effect.snapshot_id)} position={effect.position}"
        case InstallSnapshot():
            return f"install snapshot {show_snapshot(effect.snapshot_id)}"
        case AbandonSnapshot():
            return f"abandon snapshot {show_snapshot(effect.snapshot_id)}"
        case LeaderChanged():
            return f"leader_changed leader={or_dash(effect.leader_id)} epoch={effect.epoch}"
        case HighWatermarkAdvanced():
            return f"high_watermark {effect.high_watermark}"
        case Notice():
            return f"notice {effect.text}"
        case Fault():
            return f"fault {'fatal ' if effect.is_fatal else ''}{effect.reason}"
        case SendRequest(destination=destination, waits_for=waits):
            flushed = "" if waits.log_end_offset is None else f" after_flush={waits.log_end_offset}"
            return f"ask {destination.node_id} {show_request(effect.request, directory_of)}{flushed}"
        case SendResponse():
            waits = effect.waits_for.election_state
            after = "" if waits is None else f" after_persist={waits.epoch}"
            return f"-> {effect.source} {show_response(effect.response)}{after}"
