"""Clients of a listener with SASL that I/O threads serve once they are authenticated."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import kraftlog
from kraftlog._kraftlog import encode_batch, read_batches
from kraftlog.errors import ErrorCode
from kraftlog.security.operation import Operation, PatternType, Permission, ResourceKind
from kraftlog.transport.native_connection import NativeConnection
from kraftlog.types import Uuid
from kraftlog.wire.frame import encode_request
from kraftlog.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftlog.wire.messages.create_acls import CreateAclsRequest
from kraftlog.wire.messages.delete_acls import DeleteAclsRequest
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.metadata import MetadataRequest
from kraftlog.wire.messages.produce import ProduceRequest
from kraftlog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kraftlog.wire.messages.sasl_handshake import SaslHandshakeRequest
from raw_client import RawClient
from waiting import until_true

PRODUCE, FETCH, METADATA, SASL_HANDSHAKE, SASL_AUTHENTICATE = 0, 1, 3, 17, 36
NATIVE, BY_PYTHON = 11, 8  # versions of Produce that an I/O thread serves, and that it hands over
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = {"admin": "admin", "alice": "secret", "bob": "b0b"}
CONFIG = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.jaas.config": f"{PLAIN_MODULE} required "
    + " ".join(f'user_{user}="{password}"' for user, password in USERS.items())
    + ";",
    "kraftlog.data.path": "native",
}


@pytest.fixture
def handed_over(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """API keys of the requests that I/O threads handed over."""
    keys: list[int] = []
    frame_received: Callable[..., None] = NativeConnection.frame_received

    def counted(connection: NativeConnection, number: int, frame: bytes | memoryview) -> None:
        keys.append(int.from_bytes(frame[:2], "big"))
        frame_received(connection, number, frame)

    monkeypatch.setattr(NativeConnection, "frame_received", counted)
    return keys


def running(path: Path, settings: dict[str, str] | None = None) -> kraftlog.Broker:
    return kraftlog.Broker(path, config={**CONFIG, **(settings or {})}, log_flush_on_ack=False)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[kraftlog.Broker]:
    with running(tmp_path) as broker:
        broker.create_topic("t")
        yield broker


def connected(broker: kraftlog.Broker, user: str = "alice", **settings: Any) -> RawClient:
    client = RawClient(broker.bootstrap_servers, **settings)
    assert client.authenticate(user, USERS[user]).error_code == 0
    return client


def produce_request(value: bytes = b"v", topic: str = "t") -> ProduceRequest:
    records = encode_batch([(1_700_000_000_000, None, value, [])])
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    topics = [ProduceRequest.TopicProduceData(name=topic, topic_id=Uuid.ZERO, partition_data=[data])]
    return ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=topics)


def produce(client: RawClient, *, version: int = NATIVE) -> int:
    code: int = client.call(produce_request(), version).responses[0].partition_responses[0].error_code
    return code


def fetch(client: RawClient, *, version: int = 12) -> tuple[int, list[bytes]]:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchRequest.FetchTopic(topic="t", partitions=[partition])]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 26, session_epoch=-1, topics=topics)
    answer = client.call(request, version).responses[0].partitions[0]
    batches = read_batches(answer.records) if answer.records else []
    return answer.error_code, [value for batch in batches for _, _, _, value, _ in batch.records()]


def test_produce_and_fetch_of_an_authenticated_client_do_not_come_to_python(
    node: kraftlog.Broker, handed_over: list[int]
) -> None:
    with connected(node) as client:
        for _ in range(3):
            assert produce(client) == 0
        assert fetch(client) == (0, [b"v"] * 3)
        assert handed_over == []
        client.call(MetadataRequest(topics=None))
        assert handed_over == [METADATA]


def test_a_client_library_is_served_by_the_threads(node: kraftlog.Broker, handed_over: list[int]) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    config = {
        "bootstrap.servers": node.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "secret",
    }
    producer = confluent.Producer(config)
    for number in range(100):
        producer.produce("t", b"%d" % number)
    assert producer.flush(30) == 0
    consumer = confluent.Consumer({**config, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([confluent.TopicPartition("t", 0, 0)])
    values: list[bytes] = []
    until_true(lambda: values.extend(message.value() for message in consumer.consume(100, 0.1)) or len(values) == 100)
    consumer.close()
    assert values == [b"%d" % number for number in range(100)]
    assert METADATA in handed_over
    assert PRODUCE not in handed_over
    assert FETCH not in handed_over


def framed(request: Any, version: int) -> bytes:
    """What a client sends, which ``RawClient`` would send by itself."""
    return b"".join(map(bytes, encode_request(request.API_KEY, version, 7, "raw", request)))


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 100, 600_000])
def test_requests_behind_the_last_token_are_served_wherever_they_are_cut(
    node: kraftlog.Broker, handed_over: list[int], cut: int
) -> None:
    """One of them is larger than any frame may be before authentication."""
    token = SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
    before = framed(SaslHandshakeRequest(mechanism="PLAIN"), 1) + framed(token, 2)
    behind = framed(produce_request(b"1"), NATIVE) + framed(produce_request(bytes(700_000)), NATIVE)
    behind += framed(produce_request(b"3"), NATIVE)
    with RawClient(node.bootstrap_servers) as client:
        client.sock.sendall(before + behind[:cut])
        assert client.receive(SASL_HANDSHAKE, 1)[1].error_code == 0
        assert client.receive(SASL_AUTHENTICATE, 2)[1].error_code == 0
        client.sock.sendall(behind[cut:])
        answers = [client.receive(PRODUCE, NATIVE)[1].responses[0].partition_responses[0] for _ in range(3)]
        assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 0), (0, 1), (0, 2)]
        assert handed_over == []


def test_both_paths_judge_the_user_and_a_removed_acl_holds_for_the_next_request(
    tmp_path: Path, handed_over: list[int]
) -> None:
    settings = {"authorizer.class.name": STANDARD, "super.users": "User:admin"}
    with running(tmp_path, settings) as broker, ExitStack() as clients:
        broker.create_topic("t")
        admin, alice, bob = (clients.enter_context(connected(broker, user)) for user in ("admin", "alice", "bob"))
        for _ in range(20):
            creation = CreateAclsRequest.AclCreation(
                resource_type=ResourceKind.TOPIC,
                resource_name="t",
                resource_pattern_type=PatternType.LITERAL,
                principal="User:alice",
                host="*",
                operation=Operation.WRITE,
                permission_type=Permission.ALLOW,
            )
            assert admin.call(CreateAclsRequest(creations=[creation])).results[0].error_code == 0
            del handed_over[:]
            assert [produce(alice) for _ in range(3)] == [0, 0, 0]
            assert handed_over == [PRODUCE], "the first one is judged"
            assert produce(alice, version=BY_PYTHON) == 0
            assert [produce(bob, version=version) for version in (NATIVE, BY_PYTHON)] == [REFUSED, REFUSED]
            assert fetch(alice) == (REFUSED, [])
            filters = DeleteAclsRequest.DeleteAclsFilter(
                resource_type_filter=ResourceKind.TOPIC,
                resource_name_filter="t",
                pattern_type_filter=PatternType.LITERAL,
                principal_filter="User:alice",
                host_filter=None,
                operation=Operation.WRITE,
                permission_type=Permission.ALLOW,
            )
            assert admin.call(DeleteAclsRequest(filters=[filters])).filter_results[0].matching_acls
            assert [produce(alice, version=version) for version in (NATIVE, BY_PYTHON)] == [REFUSED, REFUSED]
        del handed_over[:]
        assert [produce(admin) for _ in range(3)] == [0, 0, 0]
        assert handed_over == [PRODUCE], "threads know what super users may do, too"


def test_a_quota_of_one_user_holds_for_that_user(node: kraftlog.Broker, handed_over: list[int]) -> None:
    def alter(limit: float | None) -> None:
        alteration = AlterClientQuotasRequest
        entity = [alteration.EntityData(entity_type="user", entity_name="alice")]
        ops = [alteration.OpData(key="producer_byte_rate", value=limit or 0.0, remove=limit is None)]
        entry = alteration.EntryData(entity=entity, ops=ops)
        assert admin.call(alteration(entries=[entry])).entries[0].error_code == 0

    with connected(node, "admin") as admin, connected(node) as alice, connected(node, "bob") as bob:
        assert produce(alice) == 0
        alter(1000.0)
        del handed_over[:]
        large = produce_request(bytes(12_000))
        assert bob.call(large, NATIVE).throttle_time_ms == 0
        throttle_ms = alice.call(large, NATIVE).throttle_time_ms
        assert throttle_ms > 0
        began_s = time.monotonic()
        assert produce(bob) == 0
        assert produce(alice) == 0
        assert time.monotonic() - began_s >= throttle_ms / 1000 - 0.01, "the connection was muted"
        assert handed_over == [PRODUCE] * 4
        alter(None)
        del handed_over[:]
        assert produce(alice) == 0
        assert handed_over == []


def test_a_client_authenticates_again_and_returns_to_the_threads(tmp_path: Path, handed_over: list[int]) -> None:
    with running(tmp_path, {"connections.max.reauth.ms": "600000"}) as broker:
        broker.create_topic("t")
        with connected(broker) as client:
            for _ in range(3):
                del handed_over[:]
                assert produce(client) == 0
                assert handed_over == []
                answer = client.authenticate("alice", "secret")
                assert (answer.error_code, answer.session_lifetime_ms) == (0, 600_000)
                assert produce(client) == 0
                assert handed_over == [SASL_HANDSHAKE, SASL_AUTHENTICATE]
                # Not more often than once per second: then it is an ordinary request, and changes nothing.
                again = client.call(SaslHandshakeRequest(mechanism="PLAIN"))
                assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
                assert produce(client) == 0
                assert handed_over == [SASL_HANDSHAKE, SASL_AUTHENTICATE, SASL_HANDSHAKE]
                time.sleep(1.0)


def test_an_old_client_authenticates_again_with_bare_tokens(tmp_path: Path, handed_over: list[int]) -> None:
    token = b"\0alice\0secret"
    with running(tmp_path, {"connections.max.reauth.ms": "600000"}) as broker:
        broker.create_topic("t")
        with RawClient(broker.bootstrap_servers) as client:
            for _ in range(2):
                client.send(SaslHandshakeRequest(mechanism="PLAIN"), 0)
                assert client.receive(SASL_HANDSHAKE, 0)[1].error_code == 0
                client.sock.sendall(len(token).to_bytes(4, "big") + token)
                assert client.sock.recv(4) == bytes(4), "the answer of PLAIN is empty"
                assert produce(client) == 0
            # The token has no API key; these are its first two bytes.
            assert handed_over == [SASL_HANDSHAKE, int.from_bytes(token[:2], "big")]


def test_a_follower_is_served_by_the_threads_if_its_user_may_replicate(tmp_path: Path, handed_over: list[int]) -> None:
    settings = {"authorizer.class.name": STANDARD, "super.users": "User:admin"}
    with running(tmp_path, settings) as broker, connected(broker, "admin") as admin, connected(broker) as alice:
        broker.create_topic("t")
        assert produce(admin) == 0
        partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = [FetchRequest.FetchTopic(topic="t", partitions=[partition])]
        request = FetchRequest(replica_id=7, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=topics)
        del handed_over[:]
        # Replica 7 is none of the partition, which is the partition's answer and not that of a guard.
        codes = [admin.call(request, 12).responses[0].partitions[0].error_code for _ in range(3)]
        assert handed_over == [FETCH]
        assert len(set(codes)) == 1
        assert REFUSED not in codes
        answers = [alice.call(request, 12).responses[0].partitions[0].error_code for _ in range(2)]
        assert answers == [REFUSED, REFUSED]
        assert handed_over == [FETCH, FETCH, FETCH]


def test_requests_sent_behind_another_authentication_keep_their_order(tmp_path: Path, handed_over: list[int]) -> None:
    token = SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
    with running(tmp_path, {"connections.max.reauth.ms": "600000"}) as broker:
        broker.create_topic("t")
        with connected(broker) as client:
            requests = [produce_request(b"0"), SaslHandshakeRequest(mechanism="PLAIN"), token]
            requests += [produce_request(b"%d" % number) for number in range(1, 50)]
            versions = {PRODUCE: NATIVE, SASL_HANDSHAKE: 1, SASL_AUTHENTICATE: 2}
            client.sock.sendall(b"".join(framed(request, versions[request.API_KEY]) for request in requests))
            for request in requests:
                _, answer = client.receive(request.API_KEY, versions[request.API_KEY])
                assert request.API_KEY == PRODUCE or answer.error_code == 0
            assert fetch(client) == (0, [b"%d" % number for number in range(50)])


def test_a_wrong_password_of_another_authentication_is_told_before_the_connection_ends(tmp_path: Path) -> None:
    with running(tmp_path, {"connections.max.reauth.ms": "600000"}) as broker, connected(broker) as client:
        assert client.call(SaslHandshakeRequest(mechanism="PLAIN")).error_code == 0
        answer = client.call(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed_by_peer()


@pytest.mark.parametrize("version", [NATIVE, BY_PYTHON])
def test_a_produce_after_the_end_of_the_session_closes_the_connection_and_appends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    with running(tmp_path, {"connections.max.reauth.ms": "700"}) as broker:
        broker.create_topic("t")
        with connected(broker) as client:
            assert produce(client) == 0
            time.sleep(1.0)
            with caplog.at_level(logging.WARNING, "kraftlog.transport"):
                client.send(produce_request(), version)
                assert client.is_closed_by_peer()
                until_true(lambda: caplog.records)
            (line,) = (record.getMessage() for record in caplog.records)
            assert "did not authenticate again" in line
        with connected(broker) as client:
            assert fetch(client) == (0, [b"v"])


def test_connections_are_counted_once_and_their_places_given_back(tmp_path: Path) -> None:
    with running(tmp_path, {"max.connections.per.ip": "12"}) as broker:
        broker.create_topic("t")
        connections = broker._embedded.running._connections
        assert connections is not None
        # The node connects to itself as well, as a client of its controller.
        before, kept_before = connections.admission.open, len(connections)
        room = 12 - before
        clients = [connected(broker) for _ in range(room)]
        assert connections.admission.open == before + room
        assert len(connections) == kept_before + room
        with RawClient(broker.bootstrap_servers) as refused:
            assert refused.is_closed_by_peer()
        for client in clients:
            assert produce(client) == 0
            client.sock.close()
        until_true(lambda: connections.admission.open == before and len(connections) == kept_before)
        # Peers that leave in the middle of it, or right behind the last token.
        for number in range(room):
            client = RawClient(broker.bootstrap_servers)
            client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            if number % 2:
                client.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2)
            client.sock.close()
        # One that is served was accepted behind all of them.
        until_true(lambda: is_served(broker))
        until_true(lambda: connections.admission.open == before and len(connections) == kept_before)


def is_served(broker: kraftlog.Broker) -> bool:
    try:
        with connected(broker) as client:
            return produce(client) == 0
    except ConnectionError:
        return False


def test_a_silent_connection_is_closed(tmp_path: Path) -> None:
    with running(tmp_path, {"connections.max.idle.ms": "500"}) as broker:
        broker.create_topic("t")
        with connected(broker) as client:
            assert produce(client) == 0
            began_s = time.monotonic()
            assert client.is_closed_by_peer()
            assert time.monotonic() - began_s >= 0.4


def test_a_node_stops_while_clients_authenticate_and_produce(tmp_path: Path) -> None:
    """Each connection ends, whichever thread owns it at that moment."""
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            try:
                with RawClient(bootstrap_servers) as client:
                    client.authenticate("alice", "secret")
                    produce(client)
            except ConnectionError:
                return

    broker = running(tmp_path)
    broker.start()
    broker.create_topic("t")
    bootstrap_servers = broker.bootstrap_servers
    connections = broker._embedded.running._connections
    assert connections is not None
    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    time.sleep(0.3)
    with connected(broker) as idle:
        broker.close()
        assert idle.is_closed_by_peer()
    is_over.set()
    for worker in workers:
        worker.join(30)
        assert not worker.is_alive()
    assert (len(connections), connections.admission.open) == (0, 0)
