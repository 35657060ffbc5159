"""Runs a raft scenario: a text of commands, each followed by ``----`` and what it prints.

    # A sentence of intent. Conformance rules it shows: ELEC-12 VOTE-26
    start id=1 voters=1 dynamic
    ----
    1 unattached epoch=0 timeout=0

Commands: start, timeout, propose, flushed, vote, begin, end, resign, shut_down. Effects are printed in order,
one a line, then the replica: role, epoch, leader, high watermark, log end, next timeout.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from kraftlog.errors import KraftlogError
from kraftlog.raft.core import RaftConfig, RaftCore
from kraftlog.raft.effects import (
    AppendControlRecords,
    AppendRecords,
    Fault,
    FlushLog,
    HighWatermarkAdvanced,
    LeaderChanged,
    PersistElectionState,
    SendRequest,
    SendResponse,
)
from kraftlog.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    LeaderChange,
    VoteRequest,
    VoteResponse,
    VotersChange,
)
from kraftlog.raft.voter_set import BOOTSTRAP_OFFSET, LogHistory, Voter, VoterSet
from kraftlog.types import ElectionState, Epoch, NodeId, Offset, ReplicaKey, Uuid

SEPARATOR = "----"


def directory_of(node_id):
    return Uuid(bytes(15) + bytes([200 + node_id]))


def key_of(node_id):
    return ReplicaKey(NodeId(node_id), directory_of(node_id))


@dataclass
class FakeLog:
    log_end_offset: int = 0
    last_epoch: int = 0
    log_start_offset: int = 0
    snapshots: tuple = ()

    @property
    def leader_epochs(self):
        return [(self.last_epoch, 0)] if self.log_end_offset else []


class RaftScenario:
    """One replica and its clock."""

    def __init__(self):
        self.now_ms = 0

    def run(self, line):
        name, *words = line.split()
        flags = {word for word in words if "=" not in word}
        values = dict(word.split("=", 1) for word in words if "=" in word)
        self.now_ms = int(values.pop("at", self.now_ms))
        numbers = {key: int(value) for key, value in values.items() if value.lstrip("-").isdigit()}
        try:
            getattr(self, f"do_{name}")(values, numbers, flags)
        except KraftlogError as error:
            return [f"error: {error.args}"]
        return [*self.effects(), self.state()]

    def do_start(self, values, numbers, flags):
        self.local = numbers["id"]
        ids = [int(part) for part in values["voters"].split(",")] if values.get("voters") else []
        is_dynamic = "dynamic" in flags
        voters = VoterSet(Voter(key_of(one) if is_dynamic else ReplicaKey(NodeId(one)), (), 0, 1) for one in ids)
        history, kraft_versions = LogHistory(VoterSet() if is_dynamic else voters), LogHistory(0)
        if is_dynamic:
            offset = Offset(1) if numbers.get("end", 0) else BOOTSTRAP_OFFSET
            history.add(offset, voters)
            kraft_versions.add(offset, 1)
        stored = None
        if "epoch" in numbers:
            leader, voted = numbers.get("leader"), numbers.get("voted")
            stored = ElectionState(
                epoch=Epoch(numbers["epoch"]),
                leader_id=None if leader is None else NodeId(leader),
                voted_key=None if voted is None else key_of(voted),
            )
        self.core = RaftCore(
            RaftConfig(cluster_id="c", local_key=key_of(self.local), election_timeout_ms=1000),
            stored,
            FakeLog(numbers.get("end", 0), numbers.get("last_epoch", 0)),
            voters=history,
            kraft_versions=kraft_versions,
            rng=random.Random(1),
            now_ms=self.now_ms,
        )

    def do_timeout(self, values, numbers, flags):
        self.core.handle_timeout(self.now_ms)

    def do_propose(self, values, numbers, flags):
        self.core.propose([object()] * numbers.get("count", 1), self.now_ms)

    def do_flushed(self, values, numbers, flags):
        self.core.on_flushed(numbers["end"])

    def do_resign(self, values, numbers, flags):
        self.core.resign(self.now_ms)

    def do_shut_down(self, values, numbers, flags):
        self.core.shut_down(self.now_ms)

    def do_vote(self, values, numbers, flags):
        voter = numbers.get("voter", self.local)
        request = VoteRequest(
            cluster_id=values.get("cluster", "c"),
            voter_key=key_of(voter),
            replica_key=ReplicaKey(NodeId(numbers["from"]), directory_of(numbers.get("directory", numbers["from"]))),
            replica_epoch=Epoch(numbers["epoch"]),
            last_epoch=Epoch(numbers.get("last_epoch", 0)),
            last_epoch_end_offset=Offset(numbers.get("end", 0)),
            pre_vote="pre" in flags,
        )
        self.core.handle_request(numbers["from"], request, self.now_ms)

    def do_begin(self, values, numbers, flags):
        request = BeginQuorumEpochRequest(leader_id=NodeId(numbers["from"]), leader_epoch=Epoch(numbers["epoch"]))
        self.core.handle_request(numbers["from"], request, self.now_ms)

    def do_end(self, values, numbers, flags):
        request = EndQuorumEpochRequest(leader_id=NodeId(numbers["from"]), leader_epoch=Epoch(numbers["epoch"]))
        self.core.handle_request(numbers["from"], request, self.now_ms)

    def effects(self):
        return [self.show(effect) for effect in self.core.take_effects()]

    def show(self, effect):
        match effect:
            case PersistElectionState(state=state):
                voted = "-" if state.voted_key is None else state.voted_key.node_id
                leader = "-" if state.leader_id is None else state.leader_id
                return f"persist epoch={state.epoch} leader={leader} voted={voted} kraft_version={effect.kraft_version}"
            case AppendRecords():
                return f"append {effect.base_offset}+{len(effect.records)} epoch={effect.epoch}"
            case AppendControlRecords():
                return f"append {effect.base_offset} epoch={effect.epoch} {' '.join(map(show_control, effect.records))}"
            case FlushLog():
                return f"flush end={effect.log_end_offset}"
            case LeaderChanged():
                leader = "-" if effect.leader_id is None else effect.leader_id
                return f"leader_changed leader={leader} epoch={effect.epoch}"
            case HighWatermarkAdvanced():
                return f"high_watermark {effect.high_watermark}"
            case Fault():
                return f"fault {'fatal ' if effect.is_fatal else ''}{effect.reason}"
            case SendRequest():
                return f"ask {effect.destination.node_id} {type(effect.request).__name__}"
            case SendResponse(response=response):
                leader = "-" if response.leader_id is None else response.leader_id
                granted = f" granted={response.vote_granted}" if isinstance(response, VoteResponse) else ""
                waits = effect.waits_for.election_state
                after = "" if waits is None else f" after_persist={waits.epoch}"
                error = response.top_level_error_code or response.error_code
                return (
                    f"-> {effect.source} {type(response).__name__} error={error}"
                    f" epoch={response.leader_epoch} leader={leader}{granted}{after}"
                )

    def state(self):
        core = self.core
        leader = "-" if core.leader_id is None else core.leader_id
        high_watermark = "-" if core.high_watermark is None else core.high_watermark
        timeout = core.next_timeout_ms()
        return (
            f"{self.local} {core.role.name} epoch={core.epoch} leader={leader} high_watermark={high_watermark}"
            f" end={core.log_end_offset} timeout={'-' if timeout is None else timeout}"
        )


def show_control(record):
    match record:
        case LeaderChange():
            voters, granted = list(record.voters), list(record.granting_voters)
            return f"LeaderChange(leader={record.leader_id} voters={voters} granted={granted})"
        case VotersChange():
            return f"Voters({list(record.voters.ids)})"
        case _:
            return f"KRaftVersion({record.kraft_version})"


def run_scenario(text):
    """Return the text with every output replaced by what the commands print now."""
    scenario = RaftScenario()
    result, lines = [], iter(text.splitlines())
    for line in lines:
        if not line.strip() or line.startswith("#"):
            result.append(line)
            continue
        result += [line, SEPARATOR, *scenario.run(line)]
        for skipped in lines:
            if not skipped.strip():
                result.append("")
                break
    return "\n".join(result).rstrip() + "\n"
