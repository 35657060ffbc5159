"""Two raft-only peers of Kafka and a kraftlog replica are a quorum; kraftlog takes each role, all logs are equal.

Kafka's peers are ``kafka.tools.TestRaftServer``: whichever leads appends records. Who leads is decided by who is there
and who is patient: kraftlog either waits for 30 seconds before it stands for election, or a fraction of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from free_ports import free_port
from interop.beside.cluster import eventually
from interop.beside.raft_peer import OurPeer, TheirPeer, epochs_of, log_files
from interop.harness import Java

OURS = 9
ELECTION, FETCH = "controller.quorum.election.timeout.ms", "controller.quorum.fetch.timeout.ms"
THEIRS = {ELECTION: "1000", FETCH: "3000"}
PATIENT = {ELECTION: "30000", FETCH: "30000"}
QUICK = {ELECTION: "300", FETCH: "3000"}
RATE = 500  # records per second of the leader


class Quorum:
    def __init__(self, home: Path, java: Java) -> None:
        ports = {node_id: free_port() for node_id in (1, 2, OURS)}
        self.ours = OurPeer(home / "ours", OURS, ports)
        self.one, self.two = (
            TheirPeer(home / f"p{number}", java, number, ports, THEIRS, rate=RATE) for number in (1, 2)
        )

    def end(self) -> int:
        return self.ours.look(lambda member: member.log_end_offset)

    def is_led_by(self, *node_ids: int) -> bool:
        return self.ours.look(lambda member: member.leader_id) in node_ids

    def lead(self) -> None:
        """kraftlog becomes the leader, and what it proposes is committed."""
        eventually(lambda: self.ours.look(lambda member: member.is_leader), "ours does not lead")
        member = self.ours.member
        assert member is not None
        self.ours.run(member.propose([b"ours %d" % number for number in range(20)]))

    def moves(self) -> None:
        """More is committed than there is at this moment."""
        before = self.end()
        eventually(
            lambda: self.ours.look(lambda member: member.high_watermark) > before + 50,
            f"no more than {before} committed",
        )


@pytest.fixture
def quorum(tmp_path: Path, java: Java) -> Iterator[Quorum]:
    quorum = Quorum(tmp_path, java)
    try:
        yield quorum
    finally:
        quorum.one.kill()
        quorum.two.kill()
        quorum.ours.close()


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_ours_votes_follows_and_leads_beside_two_of_kafkas_peers_and_tails_are_cut_both_ways(quorum: Quorum) -> None:
    ours, one, two = quorum.ours, quorum.one, quorum.two

    # Voter: Kafka's first peer cannot be elected without kraftlog's vote, nor commit without its fetches.
    ours.start(PATIENT)
    one.launch()
    eventually(lambda: quorum.is_led_by(1), "the first of theirs is not elected")
    quorum.moves()
    ours.stop()
    one.kill()

    # Leader: the other peer has nothing and votes for kraftlog. Then no peer hears what kraftlog appends: its tail.
    ours.start(QUICK)
    two.launch()
    quorum.lead()
    two.kill()
    committed = quorum.end()
    ours.look(lambda member: member.append_unseen([b"unseen %d" % number for number in range(40)]))
    eventually(lambda: quorum.end() == committed + 40, "the tail is not appended")
    ours.stop()
    tail_epoch = epochs_of(ours.data_dir)[committed + 39]

    # Follower: Kafka's peers go on without the tail, and kraftlog gives it up.
    # (kraftlog returns resigned and names itself as the leader it was, so they elect a peer of Kafka's first.)
    one.launch()
    two.launch()
    eventually(lambda: max(epochs_of(two.data_dir).values()) > tail_epoch, "theirs elect nobody")
    ours.start(PATIENT)
    eventually(lambda: quorum.is_led_by(1, 2), "none of theirs leads")
    quorum.moves()
    eventually(lambda: quorum.end() > committed + 100, "ours does not follow")
    leader, other = (one, two) if quorum.is_led_by(1) else (two, one)

    # Their tail: the leader is left alone and appends until it notices.
    other.kill()
    quorum.moves()
    ours.stop()
    ours_epochs = epochs_of(ours.data_dir)
    assert ours_epochs[committed - 1] == tail_epoch
    assert all(epoch > tail_epoch for offset, epoch in ours_epochs.items() if offset >= committed)
    eventually(lambda: max(epochs_of(leader.data_dir)) > max(ours_epochs), "the leader appends nothing alone")
    leader.kill()
    lost = epochs_of(leader.data_dir)

    # kraftlog leads and Kafka's peer gives its tail up.
    ours.start(QUICK)
    other.launch()
    quorum.lead()
    leader.launch()
    eventually(lambda: set(ours.look(lambda member: member.ends()).values()) == {quorum.end()}, "they did not catch up")
    for peer in (one, two):
        peer.stop()
    ours.stop()
    kept = epochs_of(leader.data_dir)
    tail = {offset: epoch for offset, epoch in lost.items() if offset not in ours_epochs}
    assert tail
    assert not [offset for offset, epoch in tail.items() if kept.get(offset) == epoch]
    assert kept[max(kept)] > max(lost.values())
    assert log_files(ours.data_dir) == log_files(one.data_dir) == log_files(two.data_dir)
