"""Connections between replicas: what the core is told when a peer is gone, deaf, older than we are, or lies."""

from __future__ import annotations

import asyncio
import selectors
import ssl
import threading
import time

import pytest

from certificates import Authority
from kraftlog._kraftlog import encode_values
from kraftlog.errors import CorruptRecordError, ErrorCode
from kraftlog.raft import messages as raft
from kraftlog.raft.connections import Destination
from kraftlog.raft.voter_set import Endpoint
from kraftlog.runtime.raft.codec.table import CODECS, to_core_response
from kraftlog.runtime.raft.peer_connections import Peers
from kraftlog.transport.peer_security import PeerSecurity
from kraftlog.types import METADATA_LOG, Epoch, NodeId, Offset, ReplicaKey, SnapshotId, Uuid
from kraftlog.wire.frame import decode_request, encode_response
from kraftlog.wire.messages.api_versions import ApiVersionsResponse
from kraftlog.wire.messages.fetch import FetchResponse
from kraftlog.wire.messages.vote import VoteResponse
from waiting import TIMEOUT_S, settle, until

KEY = ReplicaKey(NodeId(2), Uuid(bytes([2] * 16)))
ENDPOINTS = (Endpoint("CONTROLLER", "localhost", 9),)
REQUESTS = [
    raft.FetchRequest(
        replica_key=KEY, current_leader_epoch=Epoch(1), fetch_offset=Offset(0), last_fetched_epoch=Epoch(0)
    ),
    raft.ApiVersionsRequest(),
    raft.VoteRequest(
        replica_key=KEY, replica_epoch=Epoch(1), last_epoch=Epoch(0), last_epoch_end_offset=Offset(0), voter_key=KEY
    ),
    raft.BeginQuorumEpochRequest(leader_id=NodeId(2), leader_epoch=Epoch(1), leader_endpoints=ENDPOINTS),
    raft.EndQuorumEpochRequest(leader_id=NodeId(2), leader_epoch=Epoch(1), leader_endpoints=ENDPOINTS),
    raft.FetchSnapshotRequest(
        replica_key=KEY,
        current_leader_epoch=Epoch(1),
        snapshot_id=SnapshotId(Offset(5), Epoch(1)),
        position=0,
        max_bytes=100,
    ),
    raft.AddVoterRequest(voter_key=KEY, endpoints=ENDPOINTS, timeout_ms=1000),
    raft.RemoveVoterRequest(voter_key=KEY),
    raft.UpdateVoterRequest(
        voter_key=KEY,
        current_leader_epoch=Epoch(1),
        endpoints=ENDPOINTS,
        min_kraft_version=0,
        max_kraft_version=1,
    ),
]
VOTE = REQUESTS[2]
ALL_VERSIONS = [(1, 0, 18), (18, 0, 4)] + [(key, 0, 2) for key in (52, 53, 54, 59, 80, 81, 82)]


class Peer:
    """A node that tells what it speaks and answers other requests as ``answer`` says: None for silence."""

    def __init__(self, answer=lambda _: None, versions=ALL_VERSIONS):
        self.answer = answer
        self.versions = versions
        self.asked = []
        self.was_asked = asyncio.Event()
        self.writers = []

    async def open(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def _serve(self, reader, writer):
        self.writers.append(writer)
        while size := await reader.read(4):
            header, request = decode_request(await reader.readexactly(int.from_bytes(size, "big")))
            if header.request_api_key == 18:
                keys = [
                    ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
                    for key, low, high in self.versions
                ]
                response = ApiVersionsResponse(api_keys=keys)
            else:
                self.asked.append(header.request_api_key)
                self.was_asked.set()
                response = self.answer(request)
            if response is None:
                continue
            if response == "close":
                writer.close()
                return
            writer.writelines(
                encode_response(header.request_api_key, header.request_api_version, header.correlation_id, response)
            )

    def close(self):
        self.server.close()
        for writer in self.writers:
            writer.close()


class Asker:
    """Peers whose answers and failures are kept."""

    def __init__(self, request_timeout_s=5.0, tls=None):
        self.answers = []
        self.failures = []
        self.refused = []
        self.told = asyncio.Event()
        self.peers = Peers(
            asyncio.get_running_loop(),
            listener_name="CONTROLLER",
            client_id="test",
            request_timeout_s=request_timeout_s,
            topic=METADATA_LOG,
            on_response=lambda *one: self._note(self.answers, one),
            on_failure=lambda *one: self._note(self.failures, one),
            security=lambda _: None if tls is None else PeerSecurity(tls),
            on_refused=self.refused.append,
        )

    def _note(self, notes, one):
        notes.append(one)
        self.told.set()

    def send(self, node_id, port, correlation_id, request=VOTE, host="127.0.0.1"):
        self.peers.send(Destination(NodeId(node_id), Endpoint("CONTROLLER", host, port)), correlation_id, request)

    async def wait_for(self, count):
        async with asyncio.timeout(30):
            while len(self.answers) + len(self.failures) < count:
                self.told.clear()
                await self.told.wait()


def granted(_):
    partition = VoteResponse.PartitionData(partition_index=0, leader_id=-1, leader_epoch=1, vote_granted=True)
    return VoteResponse(topics=[VoteResponse.TopicData(topic_name="__cluster_metadata", partitions=[partition])])


def run(test):
    asyncio.run(test())


async def closed_port():
    peer = await Peer().open()
    peer.close()
    return peer.port


@pytest.mark.spec("CONN-21")
def test_every_request_to_a_peer_that_is_not_there_fails_with_its_correlation_id():
    assert {type(request) for request in REQUESTS} == {codec.core_request for codec in CODECS}

    async def test():
        asker, port = Asker(), await closed_port()
        for number, request in enumerate(REQUESTS):
            asker.send(number, port, 100 + number, request)
        assert asker.failures == [], "never while it is sent"
        await asker.wait_for(len(REQUESTS))
        expected = {(number, 100 + number, ErrorCode.BROKER_NOT_AVAILABLE) for number in range(len(REQUESTS))}
        assert set(asker.failures) == expected
        assert asker.answers == []
        asker.peers.close()

    run(test)


def test_only_an_address_where_nobody_listens_refuses():
    async def test():
        asker, port = Asker(request_timeout_s=0.3), await closed_port()
        asker.send(2, port, 1)
        asker.send(2, port, 2)
        await asker.wait_for(2)
        assert asker.refused == [2], "once for the connection, not per request"
        # A proxy without a process behind it takes the connection and ends it silently.
        proxy = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        asker.send(3, proxy.sockets[0].getsockname()[1], 3)
        await asker.wait_for(3)
        assert asker.refused == [2, 3]
        # Neither silence nor the end of a connection that was in use shows that nobody is there.
        silent, closing = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0), Peer(lambda _: "close")
        asker.send(4, silent.sockets[0].getsockname()[1], 4)
        asker.send(5, (await closing.open()).port, 5)
        await asker.wait_for(5)
        assert (asker.refused, len(asker.failures)) == ([2, 3], 5)
        asker.peers.close()
        for server in (proxy, silent):
            server.close()
        closing.close()

    run(test)


@pytest.mark.spec("CONN-18", "CONN-22")
def test_disconnect_fails_what_is_under_way_once_and_nothing_else():
    async def test():
        asker = Asker()
        closing, silent = await Peer(lambda _: "close").open(), await Peer().open()
        asker.send(2, silent.port, 1)
        await silent.was_asked.wait()
        asker.send(1, closing.port, 2)
        asker.send(1, closing.port, 3)
        await asker.wait_for(2)
        await settle()
        assert sorted(asker.failures) == [(1, number, ErrorCode.BROKER_NOT_AVAILABLE) for number in (2, 3)]
        assert asker.answers == []
        closing.answer = lambda _: None
        asker.send(1, closing.port, 4)
        await until(lambda: len(closing.asked) == 2)
        await settle()
        assert closing.asked == [52, 52], "a new connection was opened for the next request"
        assert len(asker.failures) == 2
        asker.peers.close()
        await settle()
        assert len(asker.failures) == 2, "nothing is called back any more"
        for peer in (closing, silent):
            peer.close()

    run(test)


@pytest.mark.spec("CONN-24")
def test_peer_without_a_common_version_is_an_unsupported_version():
    async def test():
        without = [version for version in ALL_VERSIONS if version[0] not in {52, 53}] + [(53, 9, 12)]
        asker, peer = Asker(), await Peer(versions=without).open()
        asker.send(1, peer.port, 7, VOTE)
        asker.send(1, peer.port, 8, REQUESTS[3])
        await asker.wait_for(2)
        assert asker.failures == [(1, 7, ErrorCode.UNSUPPORTED_VERSION), (1, 8, ErrorCode.UNSUPPORTED_VERSION)]
        assert peer.asked == []
        asker.peers.close()
        peer.close()

    run(test)


class Selector(selectors.DefaultSelector):
    """A selector that tells other threads when the loop sleeps."""

    def __init__(self):
        super().__init__()
        self.is_asleep = threading.Event()

    def select(self, timeout=None):
        if timeout is None or timeout > 0:
            self.is_asleep.set()
        found = super().select(timeout)
        self.is_asleep.clear()
        return found


@pytest.mark.spec("CONN-12", "CONN-26")
def test_loop_that_sleeps_is_woken_by_what_another_thread_hands_it():
    selector = Selector()

    async def test():
        asker, peer = Asker(request_timeout_s=60.0), await Peer(granted).open()
        asker.send(1, peer.port, 1)
        loop = asyncio.get_running_loop()
        loop.call_soon_threadsafe(asker.send, 1, peer.port, 2)  # before it sleeps: it does not sleep at all
        await asker.wait_for(1)
        sent_s = []

        def hand_over():
            assert selector.is_asleep.wait(TIMEOUT_S)
            sent_s.append(time.monotonic())
            loop.call_soon_threadsafe(asker.send, 1, peer.port, 3)

        thread = threading.Thread(target=hand_over)
        thread.start()
        await asker.wait_for(3)
        waited_s = time.monotonic() - sent_s[0]
        thread.join()
        assert [correlation_id for _, correlation_id, _ in asker.answers] == [1, 2, 3]
        assert waited_s < 20, "nothing else would have woken it for half a minute"
        asker.peers.close()
        peer.close()

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(test())


class Resolver(asyncio.SelectorEventLoop):
    """A loop that has its own names."""

    def __init__(self):
        super().__init__()
        self.names = {}
        self.resolved = []

    async def getaddrinfo(self, host, port, **options):
        self.resolved.append(host)
        found = []
        for address in self.names.get(host, (host,)):
            found += await super().getaddrinfo(address, port, **options)
        return found


@pytest.mark.spec("CONN-17")
def test_name_is_resolved_anew_for_each_connection_and_all_its_addresses_are_tried():
    async def test():
        loop = asyncio.get_running_loop()
        asker = Asker()
        first = await Peer(granted).open()
        # Nobody listens on this port of the first address: the second is tried.
        loop.names["node.test"] = ("127.0.0.2", "127.0.0.1")
        asker.send(1, first.port, 1, host="node.test")
        await asker.wait_for(1)
        assert [correlation_id for _, correlation_id, _ in asker.answers] == [1]
        assert loop.resolved.count("node.test") == 1
        first.close()
        await until(lambda: asker.peers.is_gone(NodeId(1)))
        second = Peer(granted)
        second.server = await asyncio.start_server(second._serve, "127.0.0.3", first.port)
        loop.names["node.test"] = ("127.0.0.3",)
        asker.send(1, first.port, 2, host="node.test")
        await asker.wait_for(2)
        assert [correlation_id for _, correlation_id, _ in asker.answers] == [1, 2]
        assert loop.resolved.count("node.test") == 2
        asker.peers.close()
        second.close()

    with asyncio.Runner(loop_factory=Resolver) as runner:
        runner.run(test())


def records_of(*values):
    return b"".join(
        encode_values([value], timestamps=1, base_offset=offset, partition_leader_epoch=1)
        for offset, value in enumerate(values)
    )


def fetch_response(records):
    partition = FetchResponse.PartitionData(partition_index=0, high_watermark=1, records=memoryview(records))
    topic = FetchResponse.FetchableTopicResponse(topic_id=Uuid.METADATA_TOPIC_ID, partitions=[partition])
    return FetchResponse(responses=[topic])


@pytest.mark.spec("FTCH-39")
def test_records_with_a_wrong_checksum_are_not_handed_on_and_the_follower_goes_on(caplog):
    good = records_of(b"first", b"second")
    batches = to_core_response(fetch_response(good), listener_name="CONTROLLER").batches
    assert [(batch.base_offset, batch.last_offset) for batch in batches] == [(0, 0), (1, 1)]
    for position in (len(good) - 1, len(good) // 2 + 40, 30):
        bad = bytearray(good)
        bad[position] ^= 1
        with pytest.raises(CorruptRecordError):
            to_core_response(fetch_response(bytes(bad)), listener_name="CONTROLLER")

    async def test():
        answers = [bytes(bad), b"\x00" * 70, good]
        asker = Asker()
        peer = await Peer(lambda _: fetch_response(answers.pop(0))).open()
        for correlation_id in (1, 2, 3):
            asker.send(1, peer.port, correlation_id, REQUESTS[0])
            await asker.wait_for(correlation_id)
        assert [failure[1] for failure in asker.failures] == [1, 2]
        assert [
            (node_id, correlation_id, len(answer.batches)) for node_id, correlation_id, answer in asker.answers
        ] == [(1, 3, 2)]
        asker.peers.close()
        peer.close()

    run(test)
    assert caplog.text.count("makes no sense") == 2


@pytest.mark.spec("CONN-23")
def test_peer_that_cannot_prove_who_it_is_is_a_network_exception_and_logged(tmp_path, caplog):
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(Authority().issue("nobody").write(tmp_path / "identity.pem"))

    async def test():
        peer = Peer(granted)
        peer.server = await asyncio.start_server(peer._serve, "127.0.0.1", 0, ssl=serving)
        port = peer.server.sockets[0].getsockname()[1]
        asker = Asker(tls=ssl.create_default_context())
        for number, request in enumerate(REQUESTS):
            asker.send(number, port, 100 + number, request)
        await asker.wait_for(len(REQUESTS))
        assert set(asker.failures) == {
            (number, 100 + number, ErrorCode.NETWORK_EXCEPTION) for number in range(len(REQUESTS))
        }
        asker.peers.close()
        peer.close()

    run(test)
    refused = [record for record in caplog.records if "no connection to" in record.message]
    assert len(refused) == len(REQUESTS)
    assert {record.levelname for record in refused} == {"ERROR"}
