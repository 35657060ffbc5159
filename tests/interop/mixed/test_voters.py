"""A kraftlog controller is a voter among two Apache Kafka controllers, in a static quorum that becomes dynamic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.harness import Java, environment_flag
from interop.mixed.cluster import KAFKA, KRAFTLOG, MixedCluster, eventually

KRAFTLOG_VOTER = 3
KAFKA_VOTERS = (1, 2)
WHOLE = environment_flag("KRAFTLOG_MIXED")


@pytest.fixture
def cluster(tmp_path: Path, java: Java) -> Iterator[MixedCluster]:
    """Kafka's voters wait longer before they ask for votes, so that the kraftlog one is elected if all have to be."""
    made = MixedCluster(tmp_path, java, is_dynamic=False)
    for node_id in KAFKA_VOTERS:
        # A follower that starts again waits for its fetch timeout, not for its election timeout.
        made.add(
            KAFKA,
            "controller",
            node_id,
            controller_quorum_election_timeout_ms="5000",
            controller_quorum_fetch_timeout_ms="6000",
        )
    made.add(KRAFTLOG, "controller", KRAFTLOG_VOTER, controller_quorum_election_timeout_ms="500")
    made.add(KRAFTLOG, "broker", 4)
    yield made
    made.close()


class Quorum:
    """The voters and what shows that they have a leader which commits."""

    def __init__(self, cluster: MixedCluster) -> None:
        self._cluster = cluster
        self._count = 0

    def commits(self, step: str) -> int:
        """A topic is created; the leader."""
        self._count += 1
        self._cluster.create_topic(f"topic-{self._count}", [4])
        leader = self._cluster.active_controller()
        print(f"{step}: {leader} leads", flush=True)
        return leader

    def kill(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self._cluster.members[node_id].kill()

    def start(self, *node_ids: int) -> None:
        """They return, and all voters follow the leader."""
        for node_id in node_ids:
            self._cluster.members[node_id].launch()
        for node_id in node_ids:
            self._cluster.members[node_id].wait_until_ready()
        self._cluster.wait_until_voters_follow()


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_kraftlog_votes_follows_and_leads_among_kafka_controllers(cluster: MixedCluster) -> None:
    cluster.start()
    quorum = Quorum(cluster)
    quorum.commits("start")
    quorum.kill(*KAFKA_VOTERS)
    quorum.start(*KAFKA_VOTERS)
    assert quorum.commits("both Kafka controllers are killed") == KRAFTLOG_VOTER
    quorum.kill(KAFKA_VOTERS[0])
    assert quorum.commits("a follower is killed") == KRAFTLOG_VOTER
    quorum.start(KAFKA_VOTERS[0])
    quorum.kill(KRAFTLOG_VOTER)
    leader = quorum.commits("the kraftlog leader is killed")
    assert leader in KAFKA_VOTERS
    quorum.start(KRAFTLOG_VOTER)
    quorum.kill(leader)
    assert quorum.commits("the Kafka leader is killed") != leader
    quorum.start(leader)

    def upgraded() -> bool:
        said = cluster.features("upgrade", "--feature", "kraft.version=1", check=False)
        return "kraft.version was upgraded to 1" in said

    eventually(upgraded, "kraft.version 1")  # the first answer may be INVALID_UPDATE_VERSION
    quorum.commits("kraft.version 1")
    if WHOLE:
        quorum.kill(*KAFKA_VOTERS)
        quorum.start(*KAFKA_VOTERS)
        assert quorum.commits("both Kafka controllers are killed") == KRAFTLOG_VOTER
    cluster.members[KRAFTLOG_VOTER].stop()
    assert quorum.commits("the kraftlog voter stops") in KAFKA_VOTERS
    quorum.start(KRAFTLOG_VOTER)

    voter = cluster.members[KRAFTLOG_VOTER]
    directory_id = voter.stored_directory_id()
    cluster.quorum(
        "remove-controller", "--controller-id", str(voter.node_id), "--controller-directory-id", directory_id
    )
    eventually(lambda: cluster.replication_status(voter.node_id) == "Observer", "it is still a voter")
    cluster.quorum("--command-config", str(voter.properties_path), "add-controller")
    eventually(lambda: cluster.replication_status(voter.node_id) == "Follower", "it is no voter again")
    quorum.commits("the kraftlog voter is added again")

    committed = cluster.metadata_sizes()
    cluster.stop()
    cluster.assert_equal_metadata(committed)
    for member in cluster.members.values():
        assert not member.complaints(), member.complaints()[:10]
