"""A share group whose coordinators and partition leader are three nodes, each killed in turn: no record is lost,
delivered after its acknowledgement, or delivered more often than its delivery count says.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import kraftlog
from kraftlog.errors import ErrorCode
from kraftlog.partitioner import coordinator_partition
from kraftlog.types import Uuid
from kraftlog.vocabulary import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from kraftlog.wire.messages.metadata import MetadataRequest
from raw_client import RawClient
from share_fixture import ACCEPT, CONFIG, RELEASE, Cluster

TOPIC = "orders"
GROUP = "workers"
DEADLINE_S = 60
COUNT = 12
# So many that one of them has its leader, its share coordinator and the group's coordinator on three nodes: ids are
# drawn, and with them the coordinators.
PARTITIONS = 24


class Member:
    """One member that looks for coordinator and leader again whenever one is lost."""

    def __init__(self, cluster: kraftlog.Cluster, place: tuple[Uuid, int]) -> None:
        self.cluster = cluster
        self.place = place
        self.sessions: dict[int, tuple[Cluster, int]] = {}
        self.epoch = 0
        self.delivered: dict[int, list[int]] = defaultdict(list)
        self.accepted: set[int] = set()

    def beat(self) -> Any:
        node = self.cluster.leader(CONSUMER_OFFSETS_TOPIC, coordinator_partition(GROUP, 3))
        return self._connected(
            node, lambda asked: asked.beat(GROUP, "A", self.epoch, *(() if self.epoch else (TOPIC,)))
        )

    def join(self) -> None:
        """Beat until there are partitions, or until the epoch is known to a new coordinator."""

        def is_member() -> bool:
            answer = self.beat()
            if answer.error_code:
                return False
            self.epoch = answer.member_epoch
            return answer.assignment is not None and bool(answer.assignment.topic_partitions)

        _until(is_member)

    def goes_on(self) -> None:
        """The next coordinator knows the member and its epoch."""
        before = self.epoch
        _until(lambda: self.beat().error_code == 0)
        assert self.beat().member_epoch == before

    def fetch(self, count: int) -> list[int]:
        """Acquire records; offsets with an acknowledgement or a higher count than before are wrong."""
        found: list[int] = []

        def is_there() -> bool:
            answer = self._request(
                lambda asked, epoch: asked.fetch(GROUP, "A", epoch, self.place, max_records=count, share_acquire_mode=1)
            )
            partition = None if answer is None else answer.responses[0].partitions[0] if answer.responses else None
            if partition is None or partition.error_code:
                return False
            for part in partition.acquired_records:
                for offset in range(part.first_offset, part.last_offset + 1):
                    assert offset not in self.accepted, f"{offset} was acknowledged and came again"
                    self.delivered[offset].append(part.delivery_count)
                    found.append(offset)
            return bool(found)

        _until(is_there)
        return found

    def say(self, kind: int, *offsets: int) -> int:
        """Acknowledge; the error code."""
        acks = [(offset, offset, (kind,)) for offset in sorted(offsets)]
        answer = self._request(lambda asked, epoch: asked.acknowledge(GROUP, "A", epoch, self.place, *acks))
        if answer is None:
            return int(ErrorCode.NETWORK_EXCEPTION)
        code = int(answer.error_code or answer.responses[0].partitions[0].error_code)
        if kind == ACCEPT and not code:
            self.accepted |= set(offsets)
        return code

    def accept(self, offsets: list[int]) -> None:
        """Accept, again and again until it is stored."""
        _until(lambda: self.say(ACCEPT, *offsets) == 0)

    def _request(self, ask: Callable[[Cluster, int], Any]) -> Any:
        """A request in the session with the leader; None when there is none."""
        node = self.cluster.leader(TOPIC, self.place[1])
        asked, epoch = self.sessions.pop(node, (None, 0))
        try:
            asked = asked or Cluster(self.cluster.nodes[node].bootstrap_server)
            if not epoch:
                asked.fetch(GROUP, "A", 0, self.place, max_wait_ms=0, max_records=0)
                epoch = 1
            answer = ask(asked, epoch)
        except (OSError, KeyError):
            return None
        if not answer.error_code:
            self.sessions[node] = asked, epoch + 1
        return answer

    def _connected(self, node: int, ask: Callable[[Cluster], Any]) -> Any:
        asked = Cluster(self.cluster.nodes[node].bootstrap_server)
        with asked.client:
            return ask(asked)


def _until(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            if is_done():
                return
        except (OSError, KeyError, kraftlog.KafkaError, kraftlog.ClusterError):
            pass
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _topic_id(client: RawClient) -> Uuid:
    topic = MetadataRequest.MetadataRequestTopic(name=TOPIC)
    found: Uuid = client.call(MetadataRequest(topics=[topic], allow_auto_topic_creation=False)).topics[0].topic_id
    return found


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_share_group_outlives_each_of_its_three_nodes(tmp_path: Path) -> None:
    """SHGR-27, SHGR-51."""
    config = CONFIG | {
        "offsets.topic.num.partitions": "3",
        "group.share.record.lock.duration.ms": "20000",
        "group.share.max.record.lock.duration.ms": "60000",
    }
    with kraftlog.Cluster(nodes=3, data_dir=tmp_path / "cluster", timeout_s=90, config=config) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        first = Cluster(cluster.nodes[1].bootstrap_server)
        topic_id = _topic_id(first.client)
        first.find(GROUP)
        assert first.configure(GROUP, auto_offset_reset="earliest") == 0
        asked = FindCoordinatorRequest(key_type=2, coordinator_keys=[f"{GROUP}:{topic_id}:0"])
        first.client.call(asked)
        cluster.wait_for_leaders()

        def roles(index: int) -> tuple[int, int, int]:
            """Nodes of the group coordinator, the share coordinator and the leader of a partition."""
            shard = coordinator_partition(f"{GROUP}:{topic_id}:{index}", 3)
            return (
                cluster.leader(CONSUMER_OFFSETS_TOPIC, coordinator_partition(GROUP, 3)),
                cluster.leader(SHARE_GROUP_STATE_TOPIC, shard),
                cluster.leader(TOPIC, index),
            )

        index = max(range(PARTITIONS), key=lambda index: len(set(roles(index))))
        assert len(set(roles(index))) == 3
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0})
        for value in range(COUNT):
            producer.produce(TOPIC, str(value), partition=index)
        assert producer.flush(DEADLINE_S) == 0
        member = Member(cluster, (topic_id, index))
        member.join()

        other = next(node for node in (1, 2, 3) if node != roles(index)[2])
        answer = Cluster(cluster.nodes[other].bootstrap_server).fetch(GROUP, "B", 0, (topic_id, index))
        refused = answer.responses[0].partitions[0]
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refused.current_leader.leader_id == roles(index)[2]
        assert roles(index)[2] in {node.node_id for node in answer.node_endpoints}

        taken = member.fetch(4)
        assert member.say(ACCEPT, *taken[:3]) == 0
        assert member.say(RELEASE, taken[3]) == 0

        # The share coordinator dies while records are in flight: the leader repeats its write.
        taken = member.fetch(4)
        killed = roles(index)[1]
        cluster.kill(killed)
        member.accept(taken)
        assert member.delivered[taken[0]] == [1, 2]
        _back(cluster, killed)

        # The leader dies: what was acquired and not acknowledged is available at the next one.
        taken = member.fetch(3)
        assert member.say(ACCEPT, taken[0]) == 0
        killed = roles(index)[2]
        cluster.kill(killed)
        again = member.fetch(2)
        assert again == taken[1:]
        assert member.say(ACCEPT, *again) == 0
        _back(cluster, killed)

        # The group coordinator dies: members, epochs and assignments are there at the next one, and fetches go on.
        killed = roles(index)[0]
        cluster.kill(killed)
        while len(member.accepted) < COUNT:
            member.accept(member.fetch(500))
        member.goes_on()
        assert member.accepted == set(range(COUNT))
        assert all(count <= 2 for counts in member.delivered.values() for count in counts)
        _back(cluster, killed)


def _back(cluster: kraftlog.Cluster, node: int) -> None:
    cluster.start_node(node)
    cluster.wait_until_in_sync()
