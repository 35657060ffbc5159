"""Runs a raft scenario: a text of commands, each followed by ``----`` and what it prints.

    # A sentence of intent. Conformance rules it shows: ELEC-12 VOTE-26
    start id=1 voters=1 dynamic
    ----
    1 unattached epoch=0 timeout=0

One replica, its clock (``at=``, ``after=``), and whatever its peers say:

    start id= voters=1,2,3 [dynamic] [set_at=OFFSET] [log=1,1,2] [log_start=] [snapshots=4-2,9-3]
          [epoch= leader= voted=] [bootstrap=N] [observer] [auto_join] [endpoints=N] [fetch_timeout=] [linger=]
          [max_kraft_version=]
    timeout  propose [count= bytes= epoch=]  flushed [end=]  resign [epoch=]  shut_down  is_shut_down
    upgrade level= [epoch=] [dry_run]  snapshot_installed  snapshot_created  progress  voters
    vote begin end fetch fetch_snapshot add_voter remove_voter update_voter    a request, ``from=`` a peer
    vote_response fetch_response ... no_response    the answer to what ``from=`` was last asked; ``late``: before that;
        ``from=last`` is the replica that was asked last

A directory id is the one of the id unless ``directory=`` says otherwise, 0 for none. Effects are printed in order,
one per line, then the replica: role, epoch, leader, high watermark, log end, next timeout.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from kraftlog.errors import ErrorCode, KraftlogError
from kraftlog.raft import messages
from kraftlog.raft.core import RaftConfig, RaftCore
from kraftlog.raft.effects import SendRequest
from kraftlog.raft.messages import FetchedBatch, KRaftVersionChange, VotersChange
from kraftlog.raft.voter_set import Endpoint, LogHistory, Voter, VoterSet
from kraftlog.types import ElectionState, Epoch, EpochEndOffset, NodeId, Offset, ReplicaKey, SnapshotId, Uuid
from scenarios.raft_printer import or_dash, show_effect, show_key

SEPARATOR = "----"


def directory_of(node_id):
    return Uuid(bytes(15) + bytes([200 + node_id])) if node_id >= 0 else Uuid.ZERO


def key_of(node_id, directory=None):
    """The key of a replica; directory 0 is none at all."""
    if directory == 0:
        return ReplicaKey(NodeId(node_id))
    return ReplicaKey(NodeId(node_id), directory_of(node_id if directory is None else directory))


def endpoints_of(node_id, count=1):
    names = ("CONTROLLER", "SECOND", "THIRD")
    return tuple(Endpoint(names[index], f"node{node_id}", 9000 + index) for index in range(count))


def keys_of(text):
    """``1,2/9``: ids, with directories where they are not those of the ids."""
    parts = [part.partition("/") for part in text.split(",") if part]
    return tuple(key_of(int(node_id), int(directory) if directory else None) for node_id, _, directory in parts)


def voters_of(text, *, is_dynamic=True):
    """A voter set from the same form; without directory ids unless it is dynamic."""
    keys = keys_of(text) if is_dynamic else [ReplicaKey(key.node_id) for key in keys_of(text)]
    return VoterSet(Voter(key, endpoints_of(key.node_id), 0, 1) for key in keys)


def snapshot_of(text):
    end_offset, epoch = (-1, -1) if text == "none" else text.split("-")
    return SnapshotId(Offset(int(end_offset)), Epoch(int(epoch)))


@dataclass
class FoundLog:
    """What a replica finds on its disk."""

    epochs: tuple = ()
    log_start_offset: int = 0
    snapshots: tuple = ()

    @property
    def log_end_offset(self):
        return self.log_start_offset + len(self.epochs)

    @property
    def leader_epochs(self):
        found = []
        for offset, epoch in enumerate(self.epochs, self.log_start_offset):
            if not found or found[-1][0] != epoch:
                found.append((epoch, offset))
        return found


class RaftScenario:
    """One replica and its clock."""

    def __init__(self):
        self.now_ms = 0
        self.asked = {}

    def run(self, line):
        name, *words = line.split()
        flags = {word for word in words if "=" not in word}
        values = dict(word.split("=", 1) for word in words if "=" in word)
        self.now_ms = int(values.pop("at", self.now_ms)) + int(values.pop("after", 0))
        numbers = {key: int(value) for key, value in values.items() if value.lstrip("-").isdigit()}
        extra = []
        try:
            if name.endswith("_response"):
                self.answer(name.removesuffix("_response"), values, numbers, flags)
            else:
                extra = getattr(self, f"do_{name}")(values, numbers, flags) or []
        except KraftlogError as error:
            return [f"error: {error.args}"]
        except (RuntimeError, ValueError) as error:
            return [f"refused: {error}"]
        return [*extra, *self.effects(), self.state()]

    # The replica's own

    def do_start(self, values, numbers, flags):
        self.local = numbers["id"]
        self.asked = {}
        is_dynamic = "dynamic" in flags
        voters = voters_of(values.get("voters", ""), is_dynamic=is_dynamic)
        epochs = tuple(int(part) for part in values.get("log", "").split(",") if part)
        if "end" in numbers:
            epochs = (numbers["last_epoch"],) * numbers["end"]
        history, kraft_versions = LogHistory(VoterSet() if is_dynamic else voters), LogHistory(0)
        if is_dynamic:
            offset = Offset(numbers.get("set_at", min(1, len(epochs) - 1)))
            history.add(offset, voters)
            kraft_versions.add(offset, 1)
        stored = None
        if "epoch" in numbers:
            leader, voted = numbers.get("leader"), numbers.get("voted")
            stored = ElectionState(
                epoch=Epoch(numbers["epoch"]),
                leader_id=None if leader is None else NodeId(leader),
                voted_key=None if voted is None else key_of(voted, numbers.get("voted_directory")),
            )
        config = RaftConfig(
            cluster_id="c",
            local_key=key_of(self.local, numbers.get("directory", 99 if self.local < 0 else None)),
            can_become_voter="observer" not in flags,
            local_endpoints=endpoints_of(self.local, numbers.get("endpoints", 1)),
            bootstrap_servers=tuple(
                Endpoint("CONTROLLER", "bootstrap", 9000 + index) for index in range(numbers.get("bootstrap", 0))
            ),
            auto_join="auto_join" in flags,
            election_timeout_ms=1000,
            fetch_timeout_ms=numbers.get("fetch_timeout", 2000),
            append_linger_ms=numbers.get("linger", 0),
            max_batch_bytes=1000,
            fetch_snapshot_max_bytes=100,
            max_kraft_version=numbers.get("max_kraft_version", 1),
        )
        snapshots = tuple((snapshot_of(part), 250) for part in values.get("snapshots", "").split(",") if part)
        self.core = RaftCore(
            config,
            stored,
            FoundLog(epochs, numbers.get("log_start", 0), snapshots),
            voters=history,
            kraft_versions=kraft_versions,
            rng=random.Random(1),
            now_ms=self.now_ms,
        )

    def do_timeout(self, values, numbers, flags):
        self.core.handle_timeout(self.now_ms)

    def do_propose(self, values, numbers, flags):
        epoch = Epoch(numbers["epoch"]) if "epoch" in numbers else None
        records = [object()] * numbers.get("count", 1)
        last = self.core.propose(records, self.now_ms, size_bytes=numbers.get("bytes", 0), epoch=epoch)
        return [f"last_offset={last}"] if "epoch" in numbers or "bytes" in numbers else []

    def do_flushed(self, values, numbers, flags):
        self.core.on_flushed(numbers.get("end", self.core.log.end_offset), self.now_ms)

    def do_resign(self, values, numbers, flags):
        if "epoch" in numbers:
            self.core.resign(self.now_ms, epoch=Epoch(numbers["epoch"]))
        else:
            self.core.resign(self.now_ms)

    def do_shut_down(self, values, numbers, flags):
        self.core.shut_down(self.now_ms)

    def do_is_shut_down(self, values, numbers, flags):
        return [f"shut down: {self.core.is_shut_down}"]

    def do_upgrade(self, values, numbers, flags):
        epoch = Epoch(numbers["epoch"]) if "epoch" in numbers else None
        last = self.core.update_kraft_version(numbers["level"], self.now_ms, epoch=epoch, is_dry_run="dry_run" in flags)
        return [f"last_offset={or_dash(last)} kraft_version={self.core.kraft_version}"]

    def do_snapshot_installed(self, values, numbers, flags):
        self.core.on_snapshot_installed(
            snapshot_of(values["snapshot"]),
            250,
            kraft_version=1 if "voters" in values else 0,
            voters=voters_of(values["voters"]) if "voters" in values else None,
            now_ms=self.now_ms,
        )

    def do_snapshot_created(self, values, numbers, flags):
        self.core.on_snapshot_created(snapshot_of(values["snapshot"]), 250)

    def do_progress(self, values, numbers, flags):
        found = [("voter", progress) for progress in self.core.progress(self.now_ms)]
        found += [("observer", progress) for progress in self.core.observer_progress(self.now_ms)]
        return [
            f"{kind} {show_key(progress.key, directory_of)} end={or_dash(progress.log_end_offset)}"
            f" fetched={or_dash(progress.last_fetch_ms)} caught_up={or_dash(progress.last_caught_up_ms)}"
            for kind, progress in found
        ]

    def do_voters(self, values, numbers, flags):
        core = self.core
        ids = [f"{show_key(voter.key, directory_of)}+{len(voter.endpoints)}" for voter in core.voters]
        return [f"voters [{' '.join(ids)}] at={or_dash(core.voters_offset)} kraft_version={core.kraft_version}"]

    # Requests of peers

    def do_vote(self, values, numbers, flags):
        voter = numbers.get("voter", self.local)
        request = messages.VoteRequest(
            cluster_id=values.get("cluster", "c"),
            voter_key=None if voter < 0 else key_of(voter, numbers.get("voter_directory")),
            replica_key=key_of(numbers["from"], numbers.get("directory")),
            replica_epoch=Epoch(numbers["epoch"]),
            last_epoch=Epoch(numbers.get("last_epoch", 0)),
            last_epoch_end_offset=Offset(numbers.get("end", 0)),
            pre_vote="pre" in flags,
        )
        self.core.handle_request(numbers["from"], request, self.now_ms)

    def do_begin(self, values, numbers, flags):
        voter = numbers.get("voter")
        request = messages.BeginQuorumEpochRequest(
            cluster_id=values.get("cluster"),
            voter_key=None if voter is None else key_of(voter, numbers.get("voter_directory")),
            leader_id=NodeId(numbers["from"]),
            leader_epoch=Epoch(numbers["epoch"]),
            leader_endpoints=endpoints_of(numbers["from"], numbers.get("endpoints", 0)),
        )
        self.core.handle_request(numbers["from"], request, self.now_ms)

    def do_end(self, values, numbers, flags):
        request = messages.EndQuorumEpochRequest(
            cluster_id=values.get("cluster"),
            leader_id=NodeId(numbers["from"]),
            leader_epoch=Epoch(numbers["epoch"]),
            leader_endpoints=endpoints_of(numbers["from"], numbers.get("endpoints", 0)),
            preferred_candidates=keys_of(values.get("preferred", "")),
        )
        self.core.handle_request(numbers["from"], request, self.now_ms)

    def do_fetch(self, values, numbers, flags):
        sender = numbers["from"]
        request = messages.FetchRequest(
            cluster_id=values.get("cluster"),
            replica_key=None if sender < 0 else key_of(sender, numbers.get("directory")),
            current_leader_epoch=Epoch(numbers.get("epoch", self.core.epoch)),
            fetch_offset=Offset(numbers["offset"]),
            last_fetched_epoch=Epoch(numbers.get("last", numbers.get("epoch", self.core.epoch))),
            max_wait_ms=numbers.get("wait", 0),
            high_watermark=Offset(numbers.get("hw", messages.HIGH_WATERMARK_NOT_SENT)),
        )
        self.core.handle_request(sender, request, self.now_ms)

    def do_fetch_snapshot(self, values, numbers, flags):
        request = messages.FetchSnapshotRequest(
            cluster_id=values.get("cluster"),
            replica_key=key_of(numbers["from"], numbers.get("directory")),
            current_leader_epoch=Epoch(numbers.get("epoch", self.core.epoch)),
            snapshot_id=snapshot_of(values["snapshot"]),
            position=numbers.get("position", 0),
            max_bytes=numbers.get("max", 100),
        )
        self.core.handle_request(numbers["from"], request, self.now_ms)

    def do_add_voter(self, values, numbers, flags):
        voter = numbers["voter"]
        request = messages.AddVoterRequest(
            cluster_id=values.get("cluster"),
            voter_key=key_of(voter, numbers.get("directory")),
            endpoints=endpoints_of(voter, numbers.get("endpoints", 1)),
            timeout_ms=numbers.get("timeout", 1000),
            ack_when_committed="ack_when_appended" not in flags,
        )
        self.core.handle_request("admin", request, self.now_ms)

    def do_remove_voter(self, values, numbers, flags):
        request = messages.RemoveVoterRequest(
            cluster_id=values.get("cluster"), voter_key=key_of(numbers["voter"], numbers.get("directory"))
        )
        self.core.handle_request("admin", request, self.now_ms)

    def do_update_voter(self, values, numbers, flags):
        sender = numbers["from"]
        request = messages.UpdateVoterRequest(
            cluster_id=values.get("cluster"),
            current_leader_epoch=Epoch(numbers.get("epoch", self.core.epoch)),
            voter_key=key_of(sender, numbers.get("directory")),
            min_kraft_version=numbers.get("min", 0),
            max_kraft_version=numbers.get("max", 1),
            endpoints=endpoints_of(sender, numbers.get("endpoints", 1)),
        )
        self.core.handle_request(sender, request, self.now_ms)

    def do_refused(self, values, numbers, flags):
        self.core.handle_refused_connection(NodeId(numbers["by"]), self.now_ms)

    # Answers of peers

    def answer(self, kind, values, numbers, flags):
        peer = self.last_asked if values["from"] == "last" else numbers["from"]
        correlation_id = self.asked[peer][-2 if "late" in flags else -1]
        if kind == "no":
            code = numbers.get("error", ErrorCode.BROKER_NOT_AVAILABLE)
            self.core.handle_no_response(peer, correlation_id, self.now_ms, error_code=code)
            return
        response = getattr(self, f"{kind}_response")(values, numbers, flags)
        self.core.handle_response(peer, correlation_id, response, self.now_ms)

    def common(self, numbers, flags):
        """Error, epoch and leader, as nearly every answer has them; the replica's own epoch unless said otherwise."""
        leader = numbers.get("leader")
        code = {"top_level_error_code" if "top" in flags else "error_code": numbers.get("error", 0)}
        return code | {
            "leader_id": None if leader is None else NodeId(leader),
            "leader_epoch": Epoch(numbers.get("epoch", self.core.epoch)),
            "leader_endpoints": () if leader is None else endpoints_of(leader, numbers.get("endpoints", 1)),
        }

    def vote_response(self, values, numbers, flags):
        return messages.VoteResponse(**self.common(numbers, flags), vote_granted="granted" in flags)

    def begin_response(self, values, numbers, flags):
        return messages.BeginQuorumEpochResponse(**self.common(numbers, flags))

    def end_response(self, values, numbers, flags):
        return messages.EndQuorumEpochResponse(**self.common(numbers, flags))

    def fetch_response(self, values, numbers, flags):
        """``records=2,2`` are their epochs, one batch each, from ``base=`` on; control records follow."""
        base = numbers.get("base", self.core.log.end_offset)
        epochs = [int(part) for part in values.get("records", "").split(",") if part]
        batches = [
            FetchedBatch(base_offset=Offset(base + index), last_offset=Offset(base + index), epoch=Epoch(epoch))
            for index, epoch in enumerate(epochs)
        ]
        control = [KRaftVersionChange(kraft_version=numbers["kraft_version"])] if "kraft_version" in numbers else []
        control += [VotersChange(voters=voters_of(values["voters"]))] if "voters" in values else []
        if control:
            first = Offset(base + len(batches))
            batches.append(
                FetchedBatch(
                    base_offset=first,
                    last_offset=Offset(first + len(control) - 1),
                    epoch=self.core.epoch,
                    control_records=tuple((Offset(first + index), record) for index, record in enumerate(control)),
                )
            )
        diverging = [int(part) for part in values["diverging"].split("@")] if "diverging" in values else None
        snapshot = [int(part) for part in values["snapshot"].split("@")] if "snapshot" in values else None
        return messages.FetchResponse(
            **self.common(numbers, flags),
            high_watermark=Offset(numbers.get("hw", -1)),
            diverging_epoch=None if diverging is None else EpochEndOffset(Epoch(diverging[0]), Offset(diverging[1])),
            snapshot_id=None if snapshot is None else SnapshotId(Offset(snapshot[1]), Epoch(snapshot[0])),
            batches=tuple(batches),
        )

    def fetch_snapshot_response(self, values, numbers, flags):
        return messages.FetchSnapshotResponse(
            **self.common(numbers, flags),
            snapshot_id=snapshot_of(values["snapshot"]) if "snapshot" in values else None,
            size_bytes=numbers.get("size", 250),
            position=numbers.get("position", 0),
            chunk_bytes=numbers.get("bytes", 100),
        )

    def update_voter_response(self, values, numbers, flags):
        return messages.UpdateVoterResponse(**self.common(numbers, flags | {"top"}))

    def add_voter_response(self, values, numbers, flags):
        return messages.AddVoterResponse(top_level_error_code=numbers.get("error", 0))

    def remove_voter_response(self, values, numbers, flags):
        return messages.RemoveVoterResponse(top_level_error_code=numbers.get("error", 0))

    def api_versions_response(self, values, numbers, flags):
        return messages.ApiVersionsResponse(
            top_level_error_code=numbers.get("error", 0),
            min_kraft_version=None if "none" in flags else numbers.get("min", 0),
            max_kraft_version=None if "none" in flags else numbers.get("max", 1),
        )

    # What is printed

    def effects(self):
        effects = self.core.take_effects()
        for effect in effects:
            if isinstance(effect, SendRequest):
                self.last_asked = effect.destination.node_id
                self.asked.setdefault(effect.destination.node_id, []).append(effect.correlation_id)
        return [show_effect(effect, directory_of) for effect in effects]

    def state(self):
        core = self.core
        timeout = core.next_timeout_ms()
        voted = core.role.voted_key
        return (
            f"{self.local} {core.role.name} epoch={core.epoch} leader={or_dash(core.leader_id)}"
            f"{'' if voted is None else f' voted={show_key(voted, directory_of)}'}"
            f" high_watermark={or_dash(core.high_watermark)} end={core.log_end_offset} timeout={or_dash(timeout)}"
        )


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
