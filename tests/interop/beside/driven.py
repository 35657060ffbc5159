"""A controller that is voter 1 of three, and a test that plays voters 2 and 3 and so drives it into each role.

All its timers but the fetch timer are long, so that a role lasts until the test ends it. It is the same whether the
controller is that of kraftlog or of Apache Kafka: nothing here but the process differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from interop.beside import asks
from interop.beside.scripted_peer import Asked, ScriptedPeer
from interop.harness import CLUSTER_ID, Java, KafkaServer, KraftlogServer, Server
from kraftlog.storage.dynamic_voter import DynamicVoter
from kraftlog.storage.formatter import Formatter
from kraftlog.storage.meta_properties import random_uuid
from kraftlog.storage.snapshot_file import (
    BOOTSTRAP_SNAPSHOT_ID,
    encode_snapshot,
    read_snapshot,
)
from kraftlog.types import Epoch, NodeId, Offset, SnapshotId, Uuid
from kraftlog.vocabulary import CLUSTER_METADATA_DIRECTORY
from kraftlog.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlog.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kraftlog.wire.messages.vote import VoteRequest
from raw_client import RawClient

__all__ = ["LISTENER", "ME", "Driven", "controller_of"]

ME = 1
LISTENER = "CONTROLLER"
TIMERS = {
    "controller.quorum.election.timeout.ms": "60000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "controller.quorum.request.timeout.ms": "1000",
}


def controller_of(kind: str, home: Path, java: Java, config: Mapping[str, str]) -> Server:
    """A controller of kraftlog or Kafka, and nothing else, as node 1."""

    class Controller(KafkaServer if kind == "kafka" else KraftlogServer):  # type: ignore[misc]
        def properties(self) -> dict[str, str]:
            return {
                "process.roles": "controller",
                "node.id": str(ME),
                "listeners": f"{LISTENER}://127.0.0.1:{self.port}",
                "advertised.listeners": f"{LISTENER}://127.0.0.1:{self.port}",
                "controller.listener.names": LISTENER,
                "listener.security.protocol.map": f"{LISTENER}:PLAINTEXT",
                "log.dirs": str(self.data_dir),
                **self.config,
            }

    return Controller(home, java, dict(config)) if kind == "kafka" else Controller(home, dict(config))


class Driven:
    """One controller between two voters that a test plays.

    Attributes:
        epoch: Its epoch, as last seen.
        log: Last epoch and end offset of its log, as it told them last.
        pre_votes, votes: What the peers answer: granted or not, None is silence.
        answers_fetches: Whether the leader that peer 2 plays answers.
    """

    def __init__(self, kind: str, home: Path, java: Java, *, is_static: bool = False, config: Any = None) -> None:
        self.kind = kind
        self.directory_id = random_uuid()
        self.peers = {node_id: ScriptedPeer(node_id, random_uuid()) for node_id in (2, 3)}
        addresses = [f"127.0.0.1:{peer.port}" for peer in self.peers.values()]
        settings = {**TIMERS, **(config or {})}
        self.server = controller_of(kind, home, java, settings)
        if is_static:
            voters = [
                f"{ME}@127.0.0.1:{self.server.port}",
                *(f"{key}@{address}" for key, address in zip((2, 3), addresses, strict=True)),
            ]
            self.server.config["controller.quorum.voters"] = ",".join(voters)
        else:
            self.server.config["controller.quorum.bootstrap.servers"] = ",".join(addresses)
        self._format(is_static=is_static)
        self.newcomer = ScriptedPeer(4, random_uuid())  # no voter yet
        self.snapshot: tuple[SnapshotId, bytes] | None = None  # what peer 2 sends as leader instead of records
        self.epoch = 0
        self.log = (0, 0)
        self.pre_votes: bool | None = None
        self.votes: bool | None = None
        self.answers_fetches = True
        self.leading: tuple[int, int] | None = None  # who plays the leader, and of which epoch
        self.state = "unattached"
        self.pre_votes_seen: list[Asked] = []
        self.snapshots_seen: list[Asked] = []
        self.begins_seen: dict[int, Asked] = {}
        self.ends_seen: list[Asked] = []
        self.is_deaf = False
        self.high_watermark = -1  # what peer 2 says as leader
        self.starts: dict[int, int] = {}  # epochs it led with their first offsets
        self._stood_epoch = -1  # the last one in which it asked for pre-votes
        self._let_go_epoch = -1  # fetches of this epoch get an answer that says nothing
        self.records: Callable[[Any], bytes] = lambda _: b""
        for peer in (*self.peers.values(), self.newcomer):
            peer.answer = lambda asked, peer=peer: self._answer(peer, asked)
        self.server.start()
        self.client = RawClient(self.server.bootstrap)

    def _format(self, *, is_static: bool) -> None:
        self.server.data_dir.mkdir()
        keys = {ME: (self.directory_id, self.server.port)}
        keys |= {node_id: (peer.directory_id, peer.port) for node_id, peer in self.peers.items()}
        voters = tuple(
            DynamicVoter(node_id=NodeId(node_id), host="127.0.0.1", port=port, directory_id=directory_id)
            for node_id, (directory_id, port) in keys.items()
        )
        Formatter(
            directories=[self.server.data_dir],
            metadata_directory=self.server.data_dir,
            cluster_id=CLUSTER_ID,
            node_id=NodeId(ME),
            initial_voters=None if is_static else voters,
            has_dynamic_quorum=not is_static,
            new_uuid=lambda: self.directory_id,
            report=lambda _: None,
        ).run()

    def close(self) -> None:
        self.client.sock.close()
        for peer in (*self.peers.values(), self.newcomer):
            peer.close()
        self.server.kill()

    # What it is asked

    def ask(self, request: Any, version: int | None = None) -> Any:
        """Ask it, over one connection that stays."""
        try:
            return self.client.call(request, version)
        except OSError:
            process = self.server.process
            code = None if process is None else process.poll()
            assert code is None, f"it ended with {code}\n{self.server.log_tail()}"
            self.client = RawClient(self.server.bootstrap)
            raise

    def look(self) -> asks.View:
        """Its epoch and leader: a pre-vote in epoch 0 changes nothing."""
        partition = self.ask(asks.vote_request(self, pre_vote=True, epoch=0, last=(0, 0))).topics[0].partitions[0]
        self.epoch = max(self.epoch, partition.leader_epoch)
        return asks.View(partition.leader_epoch, partition.leader_id)

    # What the peers answer

    def _answer(self, peer: ScriptedPeer, asked: Asked) -> Any:
        request = asked.request
        if isinstance(request, VoteRequest):
            partition = asked.partition
            self.log = max(self.log, (partition.last_offset_epoch, partition.last_offset))
            granted = self.pre_votes if partition.pre_vote else self.votes
            if partition.pre_vote:
                self._stood_epoch = partition.replica_epoch
            if granted is None:
                self._wait_for_next_epoch(partition.replica_epoch)
            return asks.vote_response(partition.replica_epoch, granted=bool(granted))
        if isinstance(request, FetchRequest):
            return self._answer_fetch(peer, asked)
        if isinstance(request, FetchSnapshotRequest) and self.snapshot is not None:
            snapshot_id, data = self.snapshot
            self.snapshots_seen.append(asked)
            # In several pieces, whatever it asks for.
            piece = data[asked.partition.position : asked.partition.position + len(data) // 2]
            return asks.snapshot_response(snapshot_id, len(data), asked.partition, leader_id=2, piece=piece)
        if isinstance(request, BeginQuorumEpochRequest | EndQuorumEpochRequest):
            if self.is_deaf and peer.node_id == 2:
                return None
            return asks.acknowledgement(request)
        return None

    def _answer_fetch(self, peer: ScriptedPeer, asked: Asked) -> Any:
        partition = asked.partition
        self.log = max(self.log, (partition.last_fetched_epoch, partition.fetch_offset))
        if self.leading is None:
            time.sleep(0.02)
            return asks.fetch_response(partition.current_leader_epoch, leader_id=-1, error=6)
        leader_id, epoch = self.leading
        if leader_id != peer.node_id or epoch != partition.current_leader_epoch or not self.answers_fetches:
            self._wait_for_next_epoch(partition.current_leader_epoch)
            return asks.fetch_response(partition.current_leader_epoch, leader_id=-1, error=6)
        if self.snapshot is not None and partition.fetch_offset < self.snapshot[0].end_offset:
            return asks.fetch_response(epoch, leader_id=leader_id, snapshot_id=self.snapshot[0])
        records = self.records(partition)
        if not records:
            time.sleep(0.02)
        return asks.fetch_response(epoch, leader_id=leader_id, records=records, high_watermark=self.high_watermark)

    def _wait_for_next_epoch(self, epoch: int) -> None:
        """Be silent for as long as it matters: it asks nothing else of a peer that owes it an answer."""
        deadline = time.monotonic() + 10
        while self.epoch <= epoch and epoch != self._let_go_epoch and time.monotonic() < deadline:
            time.sleep(0.005)

    # Into each role

    def be(self, state: str) -> None:
        """Drive it into a role in a new epoch; what a case left behind is gone."""
        self.state = ""
        getattr(self, f"be_{state}")()
        self.state = state

    def be_unattached(self) -> None:
        """A new epoch, no leader, no vote: adopted from a vote that was meant for another directory (VOTE-18)."""
        view = self.look()
        if (end_offset := self.log_end_offset()) is not None:
            self.log = (view.epoch, end_offset)
        self.leading, self.pre_votes, self.votes, self._let_go_epoch = None, None, None, -1
        self.high_watermark = -1
        self.answers_fetches = True
        self.records = lambda _: b""
        self.ask(asks.vote_request(self, epoch=view.epoch + 1, voter=(ME, random_uuid())))
        self.epoch = view.epoch + 1
        assert self.look() == asks.View(self.epoch, -1)

    def be_voted(self) -> None:
        """Unattached, with a vote given to peer 2."""
        self.be_unattached()
        answer = self.ask(asks.vote_request(self, last=self.log))
        assert answer.topics[0].partitions[0].vote_granted

    def be_follower(self) -> None:
        """Follower of peer 2, whose first fetch nobody has answered."""
        self.be_unattached()
        self._follow(answers_fetches=False)

    def be_fetching(self) -> None:
        """Follower of peer 2 that has fetched."""
        self.be_unattached()
        self._follow(answers_fetches=True)

    def _follow(self, *, answers_fetches: bool) -> None:
        for _ in range(2):
            try:
                return self._follow_in_epoch(answers_fetches=answers_fetches)
            except AssertionError:
                if self._stood_epoch != self.epoch:
                    raise
                # On a busy machine its fetch timeout may run out before the peers answer: in another epoch again.
                votes = self.pre_votes, self.votes
                self.be_unattached()
                self.pre_votes, self.votes = votes
        return self._follow_in_epoch(answers_fetches=answers_fetches)

    def _follow_in_epoch(self, *, answers_fetches: bool) -> None:
        leader = self.peers[2]
        leader.forget()
        self.leading, self.answers_fetches = (2, self.epoch), answers_fetches
        answer = self.ask(asks.begin_request(self))
        assert answer.topics[0].partitions[0].error_code == 0, answer
        for _ in range(3 if answers_fetches else 1):
            leader.next(FetchRequest, where=lambda one: one.partition.current_leader_epoch == self.epoch)

    def be_prospective(self) -> None:
        """Prospective that knows peer 2 as the leader of its epoch."""
        self.be_follower()
        self._stand()
        self.pre_votes_seen.append(self.peers[2].next(VoteRequest))
        self._let_go_epoch = -1

    def _stand(self) -> None:
        """Let it ask for pre-votes: its leader resigns and prefers it."""
        for peer in self.peers.values():
            peer.forget()
        self.ask(asks.end_request(self, preferred=[(ME, self.directory_id)]))
        self._let_go_epoch = self.epoch
        self.pre_votes_seen = [self.peers[3].next(VoteRequest)]

    def be_candidate(self) -> None:
        """Candidate whose votes are out."""
        self.be_unattached()
        self.pre_votes = True
        self._follow(answers_fetches=False)
        self._stand()
        self.peers[3].next(VoteRequest, where=lambda one: not one.partition.pre_vote)
        self.epoch += 1
        assert self.look() == asks.View(self.epoch, -1)

    def be_leader(self) -> None:
        """Leader that no peer has fetched from yet."""
        self.be_unattached()
        self.pre_votes = self.votes = True
        self._follow(answers_fetches=False)
        self._stand()
        self.begins_seen = {node_id: peer.next(BeginQuorumEpochRequest) for node_id, peer in self.peers.items()}
        self.epoch += 1
        assert self.look() == asks.View(self.epoch, ME)
        before, deadline = self.log[1], time.monotonic() + 60
        while (end_offset := self.log_end_offset()) is None or end_offset <= before:
            assert time.monotonic() < deadline, "the new leader appended nothing"
            time.sleep(0.002)
        self.starts[self.epoch] = before
        self.log = (self.epoch, end_offset)

    def be_leading(self) -> None:
        """Leader whose epoch is committed: the active controller."""
        self.be_leader()
        self.commit()

    def be_led(self) -> None:
        """The same, where it leads still; no new epoch."""
        if self.log_end_offset() is None:
            self.be_leading()
        else:
            self.commit()

    def commit(self) -> int:
        """Fetch as peers 2 and 3 until all that there is is committed; return the high watermark."""
        wanted, deadline = self.log_end_offset(), time.monotonic() + 60
        while True:
            partition = self.ask(asks.describe_request()).topics[0].partitions[0]
            if wanted is not None and partition.high_watermark >= wanted:
                return int(partition.high_watermark)
            assert time.monotonic() < deadline, f"{wanted} is not committed: {partition}"
            end_offset = self.log_end_offset()
            for node_id in self.peers:
                self.fetch_as(node_id, offset=end_offset)

    def be_snapshotted(self) -> None:
        """Follower of peer 2 that has loaded a snapshot from it, and whose log begins there."""
        self.be_unattached()
        bootstrap = read_snapshot(self.server.data_dir / CLUSTER_METADATA_DIRECTORY / BOOTSTRAP_SNAPSHOT_ID.file_name)
        snapshot_id = SnapshotId(Offset(self.log[1] + 1000), Epoch(self.epoch))
        self.snapshot = snapshot_id, encode_snapshot(bootstrap, epoch=snapshot_id.epoch, now_ms=1)
        self.starts.clear()
        self.snapshots_seen.clear()
        self._follow(answers_fetches=True)
        # It goes on from the end of the snapshot once it has it.
        self.peers[2].next(FetchRequest, where=lambda one: one.partition.fetch_offset == snapshot_id.end_offset)
        assert self.log == (snapshot_id.epoch, snapshot_id.end_offset)

    def be_resigned(self) -> None:
        """Resigned: no majority fetched in time, peer 3 once; peer 2 does not acknowledge at first."""
        self.be_leader()
        self.ask(asks.fetch_request(self, sender=3, offset=0, last_epoch=0))  # too little for anything to be committed
        self.is_deaf = True
        self.ends_seen = [self.peers[2].next(EndQuorumEpochRequest), self.peers[2].next(EndQuorumEpochRequest)]
        self.is_deaf = False

    def log_end_offset(self) -> int | None:
        """What it has flushed as leader, by its own account; None while it does not lead."""
        partition = self.ask(asks.describe_request()).topics[0].partitions[0]
        return next(
            (
                current_voter.log_end_offset
                for current_voter in partition.current_voters
                if current_voter.replica_id == ME
            ),
            None,
        )

    def fetch_as(self, node_id: int, *, offset: int | None = None, directory_id: Uuid | None = None) -> Any:
        """Fetch as a voter that has all, so that what the leader has counts as replicated."""
        return self.ask(asks.fetch_request(self, sender=node_id, offset=offset, directory_id=directory_id))

    # Places in its log, by names that hold for any run

    def epoch_of_age(self, age: int) -> int:
        """The epochs it led: 0 for the youngest, 1 for the one before it."""
        return sorted(self.starts)[-1 - age]

    def age(self, epoch: int) -> int | str:
        """The other way round."""
        ages = {start: age for age, start in enumerate(sorted(self.starts, reverse=True))}
        return ages.get(epoch, f"epoch {epoch}")

    def offset_of(self, place: str) -> int:
        """``start`` of the youngest epoch, ``end`` of the log, or a number; with a distance."""
        name, _, distance = place.partition("+")
        base = {"start": self.starts[max(self.starts)], "end": self.log[1]}.get(name)
        return (int(name) if base is None else base) + int(distance or 0)

    def place(self, offset: int) -> str:
        """The other way round."""
        names = {self.offset_of("start"): "start", self.log[1]: "end"}
        return names.get(offset, str(offset))
