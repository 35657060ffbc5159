"""What guards grant to the I/O threads, and what they must not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog._kraftlog import GrantTable
from kraftlog.api.context import RequestContext
from kraftlog.api.guards.guard_table import guarded
from kraftlog.security.authorizer import Authorizer
from kraftlog.security.grants import Grants
from kraftlog.security.operation import CLUSTER_NAME, Operation, PatternType, Permission, ResourceKind
from kraftlog.security.principal import Principal
from kraftlog.transport.exchange import PeerContext
from kraftlog.types import Uuid
from kraftlog.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlog.wire.messages.metadata_records import AccessControlEntryRecord
from kraftlog.wire.messages.produce import ProduceRequest, ProduceResponse

ALICE = Principal("User", "alice")
HOST = "192.0.2.1"
IDS = {name: Uuid(name.encode() * 16) for name in "abc"}
READ, WRITE = Operation.READ, Operation.WRITE


class Table:
    """Remembers what it was told, as the table of the threads does."""

    def __init__(self) -> None:
        self.generation = -1
        self.granted: list[tuple[Any, ...]] = []

    def revoke(self, generation: int) -> None:
        self.generation = generation
        self.granted.clear()

    def _allow(self, generation: int, *what: Any) -> bool:
        if generation == self.generation:
            self.granted.append(what)
        return generation == self.generation

    def allow_topics(self, generation: int, principal: str, host: str, topic_ids: bytes, *, to_write: bool) -> bool:
        return self._allow(generation, principal, host, topic_ids, to_write)

    def allow_transactional_id(self, generation: int, principal: str, host: str, transactional_id: str) -> bool:
        return self._allow(generation, principal, host, transactional_id)

    def allow_replication(self, generation: int, principal: str, host: str) -> bool:
        return self._allow(generation, principal, host)


def acl(operation: Operation, name: str, kind: ResourceKind = ResourceKind.TOPIC) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=Uuid(bytes([operation, kind]) + name.encode().ljust(14)),
        resource_type=kind,
        resource_name=name,
        pattern_type=PatternType.LITERAL,
        principal=str(ALICE),
        host="*",
        operation=operation,
        permission_type=Permission.ALLOW,
    )


class Node:
    """The guards of Produce and Fetch before handlers that count, with topics a, b and c."""

    def __init__(self, *acls: AccessControlEntryRecord) -> None:
        self.authorizer = Authorizer()
        self.authorizer.replace(acls)
        self.table = Table()
        self.grants = Grants(self.authorizer, self.table)
        self.names = {topic_id: name for name, topic_id in IDS.items()}
        self.handled = 0
        topics = SimpleNamespace(by_id=self._by_id, by_name=self._by_name)
        self._cluster: Any = SimpleNamespace(image=SimpleNamespace(topics=topics))

    def _by_id(self, topic_id: Uuid) -> Any:
        return SimpleNamespace(name=self.names[topic_id]) if topic_id in self.names else None

    def _by_name(self, name: str) -> Any:
        found = [topic_id for topic_id, known in self.names.items() if known == name]
        return SimpleNamespace(topic_id=found[0]) if found else None

    def start(self, request: Any, version: int, *, is_on_data_path: bool = True) -> Any:
        """What the guard answers: a response or slices."""
        peer = PeerContext("PLAINTEXT", False, ALICE, HOST, f"{HOST}:9", is_on_data_path=is_on_data_path)
        context = RequestContext(request.API_KEY, version, 1, "c", peer)

        def handle(_context: RequestContext, _left: Any) -> Any:
            self.handled += 1
            return ProduceResponse() if request.API_KEY == 0 else FetchResponse()

        return guarded(request.API_KEY, handle, self.authorizer, self._cluster, self.grants)(context, request)


def fetch(*names: str, replica_id: int = -1) -> FetchRequest:
    topics = [FetchRequest.FetchTopic(topic=name, topic_id=IDS.get(name, Uuid.ZERO)) for name in names]
    return FetchRequest(replica_id=replica_id, session_epoch=-1, topics=topics)


def produce(*names: str) -> ProduceRequest:
    topics = [ProduceRequest.TopicProduceData(name=name, topic_id=IDS[name]) for name in names]
    return ProduceRequest(acks=-1, topic_data=topics)


@pytest.mark.parametrize("version", [12, 13, 18])
def test_allowed_topics_are_granted_by_their_ids(version: int) -> None:
    node = Node(acl(READ, "a"), acl(READ, "b"))
    node.start(fetch("a", "b"), version)
    assert node.table.granted == [(str(ALICE), HOST, IDS["a"] + IDS["b"], False)]
    node = Node(acl(WRITE, "a"))
    node.start(produce("a"), {12: 9, 13: 12, 18: 13}[version])
    assert node.table.granted == [(str(ALICE), HOST, bytes(IDS["a"]), True)]


def test_nothing_is_granted_by_a_request_of_which_something_is_refused() -> None:
    node = Node(acl(READ, "a"), acl(WRITE, "b"))
    node.start(fetch("a", "b"), 13)
    node.start(produce("a", "b"), 13)
    assert (node.handled, node.table.granted) == (2, [])


def test_nothing_is_granted_to_clients_and_versions_that_no_thread_serves() -> None:
    node = Node(acl(READ, "a"), acl(WRITE, "a"))
    node.start(fetch("a"), 13, is_on_data_path=False)
    node.start(produce("a"), 13, is_on_data_path=False)
    node.start(fetch("a"), 11)
    node.start(produce("a"), 8)
    assert (node.handled, node.table.granted) == (4, [])


def test_an_id_without_a_topic_is_not_granted() -> None:
    """It counts as allowed, and a topic of that id may come into being before the guard has ended."""
    node = Node(acl(READ, "a"))
    del node.names[IDS["b"]]
    node.start(fetch("a", "b"), 13)
    assert node.table.granted == [(str(ALICE), HOST, bytes(IDS["a"]), False)]
    topics = [FetchRequest.FetchTopic(topic_id=IDS[name]) for name in "b" * 100 + "a" * 10_000]
    slices = node.start(FetchRequest(replica_id=-1, session_epoch=-1, topics=topics), 13)
    next(slices)
    node.names[IDS["b"]] = "b"
    for _ in slices:
        pass
    assert node.table.granted[1:] == [(str(ALICE), HOST, IDS["a"] * 10_000, False)]


def test_a_decision_of_earlier_acls_grants_nothing() -> None:
    """The guard of a large request lets others be served, who may change the ACLs."""
    node = Node(acl(READ, "a"))
    many = FetchRequest(replica_id=-1, session_epoch=-1, topics=[FetchRequest.FetchTopic(topic="a")] * 10_000)
    slices = node.start(many, 12)
    next(slices)
    node.authorizer.add(acl(WRITE, "a"))
    for _ in slices:
        pass
    assert (node.handled, node.table.granted) == (1, [])


def test_each_change_of_the_acls_revokes_all_grants() -> None:
    node = Node(acl(READ, "a"))
    for change in (
        lambda: node.authorizer.add(acl(WRITE, "c")),
        lambda: node.authorizer.remove(acl(WRITE, "c").id),
        lambda: node.authorizer.replace([acl(READ, "a"), acl(READ, "b")]),
        node.authorizer.complete_load,
    ):
        node.start(fetch("a"), 13)
        assert len(node.table.granted) == 1
        change()
        assert node.table.granted == []
        assert node.table.generation == node.authorizer.generation


def test_replicas_that_may_go_on_are_granted_that_at_once() -> None:
    cluster_action = acl(Operation.CLUSTER_ACTION, CLUSTER_NAME, ResourceKind.CLUSTER)
    node = Node(cluster_action)
    node.start(fetch("a", replica_id=2), 13)
    replica = [(str(ALICE), HOST)]
    assert node.table.granted == replica
    node.authorizer.replace([cluster_action, acl(READ, "a")])
    assert node.table.granted == []
    node.grants.renew()
    assert node.table.granted == replica
    node.grants.renew()
    assert node.table.granted == replica, "once for each change"
    node.authorizer.replace([acl(READ, "a")])
    node.grants.renew()
    assert node.table.granted == []
    node.authorizer.replace([cluster_action])
    node.grants.renew()
    assert node.table.granted == [], "it is judged when it asks again"


def test_the_table_of_the_threads_refuses_what_is_no_id_and_what_is_too_much() -> None:
    table = GrantTable()
    assert table.allow_topics(0, str(ALICE), HOST, bytes(16), to_write=False)
    assert not table.allow_topics(1, str(ALICE), HOST, bytes(16), to_write=False)
    table.revoke(1)
    assert table.allow_transactional_id(1, str(ALICE), HOST, "t")
    assert not table.allow_transactional_id(1, str(ALICE), HOST, "t" * (1 << 20))
    assert table.allow_replication(1, str(ALICE), HOST)
    assert not table.allow_topics(1, str(ALICE), HOST, bytes(16 << 20), to_write=True)
    with pytest.raises(ValueError, match="16 bytes each"):
        table.allow_topics(1, str(ALICE), HOST, bytes(17), to_write=True)
