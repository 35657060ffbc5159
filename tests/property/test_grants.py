"""A node whose I/O threads serve what was granted answers as one whose guards judge each request.

Two nodes have the same topics, get the same ACLs, and the same requests of two users at two addresses: one serves them
by its data path, the other on its event loop. Each answer to a change of ACLs is followed by requests at once, so that
a grant that outlives its ACL shows as a difference.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kraftlog
from guarded_node import GUARDED, OPERATOR, PLAIN, GuardedNode
from kraftlog._kraftlog import encode_batch
from kraftlog.errors import ErrorCode
from kraftlog.security.operation import Operation, PatternType, Permission, ResourceKind
from kraftlog.transport.native_connection import NativeConnection
from kraftlog.types import Uuid
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.produce import ProduceRequest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")

CLIENTS = (("alice", "127.0.0.2"), ("alice", "127.0.0.3"), ("bob", "127.0.0.2"))
"""User and address."""
TOPICS = ("a", "ab", "b")
NOW_MS = time.time_ns() // 1_000_000
"""Of all records: both nodes have the same bytes, and neither deletes them as too old."""
numbers = itertools.count()
asked: Counter[GuardedNode] = Counter()
"""Produce and Fetch requests that a node got."""


class Consumer:
    """A client of one node: what it has read, and its fetch session, as Kafka's consumers keep it."""

    def __init__(self, node: GuardedNode, user: str, host: str, prefix: str) -> None:
        self.node = node
        self.prefix = prefix
        self.client = node.connect(host, user)
        self.positions = dict.fromkeys(TOPICS, 0)
        self.session_id = 0
        self.epoch = 0
        self.asked: dict[str, int] = {}

    def _call(self, request: Any, version: int) -> Any:
        asked[self.node] += 1
        return self.client.call(request, version)

    def id_of(self, topic: str) -> Uuid:
        return self.node.ids[self.prefix + topic]

    def produce(self, version: int, topics: list[str]) -> dict[str, tuple[int, int]]:
        """Error code and offset by topic."""
        data = ProduceRequest.PartitionProduceData(index=0, records=encode_batch([(NOW_MS, None, b"v", [])]))
        named: list[Any] = [
            ProduceRequest.TopicProduceData(topic_id=self.id_of(topic), partition_data=[data])
            if version >= 13
            else ProduceRequest.TopicProduceData(name=self.prefix + topic, partition_data=[data])
            for topic in topics
        ]
        answer = self._call(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=named), version)
        found = {}
        for topic, response in self._topics(answer.responses, "name"):
            (partition,) = response.partition_responses
            found[topic] = (partition.error_code, partition.base_offset)
        return found

    def _topics(self, responses: Any, name: str) -> list[tuple[str, Any]]:
        by_id = {self.id_of(topic): topic for topic in TOPICS}
        return [
            (getattr(response, name).removeprefix(self.prefix) or by_id[response.topic_id], response)
            for response in responses
        ]

    def fetch(self, version: int, topics: list[str], replica_id: int) -> dict[str, tuple[int, bytes]]:
        """Error code and records by topic, without a session."""
        request = self._request(version, topics, session_epoch=-1, replica_id=replica_id)
        return self._records(self._call(request, version))

    def poll(self, topics: list[str]) -> dict[str, tuple[int, bytes]]:
        """Error code and records by topic, in the session if there is one; the positions move on."""
        found = self._poll(topics)
        while found is None:
            found = self._poll(topics)
        for topic, (_, records) in found.items():
            self.positions[topic] += _record_count(records)
        # What a session does not mention has no news.
        return {topic: found.get(topic, (0, b"")) for topic in topics}

    def _poll(self, topics: list[str]) -> dict[str, tuple[int, bytes]] | None:
        in_session = self.session_id != 0
        forgotten = [topic for topic in self.asked if topic not in topics]
        changed = [topic for topic in topics if not in_session or self.asked.get(topic) != self.positions[topic]]
        request = self._request(
            13,
            changed,
            session_id=self.session_id,
            session_epoch=self.epoch,
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(topic_id=self.id_of(topic), partitions=[0])
                for topic in (forgotten if in_session else ())
            ],
        )
        answer = self._call(request, 13)
        if answer.error_code:
            assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            assert in_session
            self.session_id = self.epoch = 0
            return None
        self.session_id = answer.session_id
        self.epoch = self.epoch + 1 if answer.session_id else 0
        self.asked = {topic: self.positions[topic] for topic in topics} if answer.session_id else {}
        return self._records(answer)

    def _request(self, version: int, topics: list[str], **fields: Any) -> FetchRequest:
        named = []
        for topic in topics:
            partition = FetchRequest.FetchPartition(
                partition=0, fetch_offset=self.positions[topic], partition_max_bytes=1 << 20
            )
            name = {"topic_id": self.id_of(topic)} if version >= 13 else {"topic": self.prefix + topic}
            named.append(FetchRequest.FetchTopic(partitions=[partition], **name))
        if version >= 15 and "replica_id" in fields:
            state = FetchRequest.ReplicaState(replica_id=fields.pop("replica_id"))
            fields["replica_state"] = state
        return FetchRequest(max_bytes=1 << 20, topics=named, **fields)

    def _records(self, answer: Any) -> dict[str, tuple[int, bytes]]:
        assert answer.error_code == 0
        found = {}
        for topic, response in self._topics(answer.responses, "topic"):
            (partition,) = response.partitions
            found[topic] = (partition.error_code, bytes(partition.records or b""))
        return found


def _record_count(records: bytes) -> int:
    """Batches have one record each."""
    count, position = 0, 0
    while position < len(records):
        position += 12 + int.from_bytes(records[position + 8 : position + 12], "big")
        count += 1
    return count


class Twins:
    """The two nodes, native and not, with topics and clients of one example."""

    def __init__(self, nodes: tuple[GuardedNode, GuardedNode]) -> None:
        self.nodes = nodes
        self.prefix = f"e{next(numbers)}-"
        self.acls: list[tuple[Any, ...]] = []
        for node in nodes:
            node.create(*(self.prefix + topic for topic in TOPICS))
        self.clients = {client: [Consumer(node, *client, self.prefix) for node in nodes] for client in CLIENTS}

    def allow(self, client: tuple[str, str], operation: Operation, resource: str, permission: Permission) -> None:
        acl = (client, operation, resource, permission)
        if acl not in self.acls:
            self.acls.append(acl)
            for node in self.nodes:
                name, kind, pattern = self._resource(resource)
                user, host = client
                node.grant(operation, kind, name, user=user, host=host, pattern=pattern, permission=permission)

    def remove(self, number: int) -> None:
        if not self.acls:
            return
        (user, host), operation, resource, permission = self.acls.pop(number % len(self.acls))
        for node in self.nodes:
            name, kind, pattern = self._resource(resource)
            node.revoke(kind, name, user=user, host=host, pattern=pattern, operation=operation, permission=permission)

    def _resource(self, resource: str) -> tuple[str, ResourceKind, PatternType]:
        match resource:
            case "*":
                return "*", ResourceKind.TOPIC, PatternType.LITERAL
            case "cluster":
                return "kafka-cluster", ResourceKind.CLUSTER, PatternType.LITERAL
            case "a...":
                return self.prefix + "a", ResourceKind.TOPIC, PatternType.PREFIXED
        return self.prefix + resource, ResourceKind.TOPIC, PatternType.LITERAL

    def ask(self, client: tuple[str, str], method: str, *arguments: Any) -> None:
        """Ask both nodes, and twice more: what the first request was allowed the others are granted.

        Then the other clients ask the same, which nobody but they may be granted.
        """
        others = [other for other in CLIENTS if other != client]
        for each in (client, client, client, *others):
            native, judged = (getattr(twin, method)(*arguments) for twin in self.clients[each])
            assert native == judged

    def remove_all(self) -> None:
        """From then on nothing is allowed."""
        while self.acls:
            self.remove(0)

    def close(self) -> None:
        """Leave neither ACLs nor topics to the next example."""
        self.remove_all()
        for client in itertools.chain(*self.clients.values()):
            client.client.sock.close()
        for node in self.nodes:
            for topic in TOPICS:
                node.delete(self.prefix + topic)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory):
    handed_over: list[int] = []
    frame_received = NativeConnection.frame_received

    def counted(connection, number, frame):
        if connection.context.client_host != OPERATOR:
            handed_over.append(number)
        frame_received(connection, number, frame)

    directories = [tmp_path_factory.mktemp(name) for name in ("native", "python")]
    options: dict[str, Any] = {**GUARDED, "log_flush_on_ack": False, "config": PLAIN}
    with (
        pytest.MonkeyPatch.context() as patch,
        kraftlog.Broker(directories[0], kraftlog_data_path="native", **options) as native,
        kraftlog.Broker(directories[1], kraftlog_data_path="python", **options) as judging,
    ):
        patch.setattr(NativeConnection, "frame_received", counted)
        made = (GuardedNode(native, "operator"), GuardedNode(judging, "operator"))
        yield made
        served = asked[made[0]] - len(handed_over)
        assert asked[made[0]] // 5 < served < asked[made[0]], (served, asked[made[0]])
        for node in made:
            node.close()


clients = st.sampled_from(CLIENTS)
topics = st.lists(st.sampled_from(TOPICS), min_size=1, max_size=3, unique=True)
operations = st.sampled_from([Operation.READ, Operation.WRITE, Operation.ALL])
allows = st.tuples(
    st.just("allow"),
    st.sampled_from([*CLIENTS, *CLIENTS, ("*", "127.0.0.2"), ("alice", "*")]),
    operations,
    st.sampled_from(["a", "b", "*", "a..."]),
    st.sampled_from([Permission.ALLOW] * 5 + [Permission.DENY]),
)
replicas = st.tuples(
    st.just("allow"), clients, st.just(Operation.CLUSTER_ACTION), st.just("cluster"), st.just(Permission.ALLOW)
)
removals = st.tuples(st.just("remove"), st.integers(0, 9))
polls = st.tuples(st.just("ask"), clients, st.just("poll"), topics)
requests = st.one_of(
    st.tuples(st.just("ask"), clients, st.just("produce"), st.integers(9, 13), topics),
    st.tuples(st.just("ask"), clients, st.just("fetch"), st.integers(12, 18), topics, st.sampled_from([-1, -1, -1, 7])),
    polls,
    polls,
)
steps = st.lists(st.one_of(allows, replicas, removals, requests, requests, requests), min_size=10, max_size=40)


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps)
def test_answers_equal_those_of_a_node_that_judges_each_request(nodes, steps):
    twins = Twins(nodes)
    try:
        for client in CLIENTS:
            twins.allow(client, Operation.ALL, "*", Permission.ALLOW)
        # However little the draws allow, the I/O threads have their share of the requests.
        for client in CLIENTS:
            twins.ask(client, "produce", 13, list(TOPICS))
        for name, *arguments in steps:
            getattr(twins, name)(*arguments)
        twins.remove_all()
        for client in CLIENTS:
            twins.ask(client, "produce", 13, list(TOPICS))
    finally:
        twins.close()
