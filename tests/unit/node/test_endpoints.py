"""Listeners and endpoints on the wire: what is told to whom, in which version (area ENDP of docs/behaviours)."""

from __future__ import annotations

import asyncio

import pytest

from kraftlog.errors import CorruptRecordError, ErrorCode, KafkaError
from kraftlog.node.config import ConfigError, NodeConfig
from kraftlog.node.quorum_settings import static_voters
from kraftlog.raft import messages as raft
from kraftlog.raft.connections import Destination, bootstrap_destinations
from kraftlog.raft.voter_set import Endpoint, Voter, VoterSet, has_distinct_listeners
from kraftlog.runtime.raft.codec.table import (
    lowest_version,
    to_core_request,
    to_core_response,
    to_wire_request,
    to_wire_response,
)
from kraftlog.runtime.raft.control_records import from_voters_record, to_voters_record
from kraftlog.runtime.raft.peer_connections import Peers
from kraftlog.types import METADATA_LOG, Epoch, NodeId, Offset, ReplicaKey, Uuid
from kraftlog.wire.frame import decode_request, encode_response
from kraftlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlog.wire.registry import API_BY_KEY

DIRECTORY = Uuid(bytes([7] * 16))
KEY = ReplicaKey(NodeId(3), DIRECTORY)
A, B = Endpoint("A", "host-a.example", 40_000), Endpoint("B", "2001:db8::7", 65_535)
BOTH = (A, B)
LEADER = {"leader_id": NodeId(3), "leader_epoch": Epoch(5), "leader_endpoints": BOTH}


def through_the_wire(message, version):
    """Encoded and decoded again, as a peer of that version sees it."""
    return type(message).decode(message.encode(version), version)


REQUESTS = [
    raft.AddVoterRequest(cluster_id="c", voter_key=KEY, endpoints=BOTH, timeout_ms=5),
    raft.UpdateVoterRequest(
        cluster_id="c", current_leader_epoch=Epoch(5), voter_key=KEY, min_kraft_version=0, max_kraft_version=1,
        endpoints=BOTH,
    ),
    raft.BeginQuorumEpochRequest(
        cluster_id="c", voter_key=KEY, leader_id=NodeId(1), leader_epoch=Epoch(5), leader_endpoints=BOTH
    ),
    raft.EndQuorumEpochRequest(
        cluster_id="c", leader_id=NodeId(1), leader_epoch=Epoch(5), leader_endpoints=BOTH, preferred_candidates=(KEY,)
    ),
]  # fmt: skip


def endpoints_of(request):
    return getattr(request, "endpoints", None) or getattr(request, "leader_endpoints", ())


@pytest.mark.spec("ENDP-01", "ENDP-06", "ENDP-07", "ENDP-14")
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: type(one).__name__)
def test_requests_carry_all_endpoints_and_give_them_back(request_):
    version = API_BY_KEY[to_wire_request(request_, 1).API_KEY].max_version
    wire = through_the_wire(to_wire_request(request_, version), version)
    assert to_core_request(wire, version) == request_
    listed = getattr(wire, "listeners", None) or wire.leader_endpoints
    assert [(endpoint.name, endpoint.host, endpoint.port) for endpoint in listed] == [
        ("A", A.host, 40_000),
        ("B", "2001:db8::7", 65_535),
    ]
    if isinstance(request_, raft.BeginQuorumEpochRequest):
        assert (wire.voter_id, wire.topics[0].partitions[0].voter_directory_id) == (3, DIRECTORY)


@pytest.mark.spec("ENDP-01", "ENDP-05", "ENDP-06", "ENDP-07")
def test_voters_record_keeps_endpoints_by_name():
    voters = VoterSet([Voter(KEY, BOTH, 0, 1), Voter(ReplicaKey(NodeId(4), DIRECTORY), (), 0, 1)])
    record = to_voters_record(voters)
    assert from_voters_record(type(record).decode(record.encode(0), 0)) == voters
    assert record.voters[0].endpoints[0].host == "host-a.example"  # a name nobody can resolve stays one
    assert record.voters[1].endpoints == ()


@pytest.mark.spec("ENDP-04")
def test_a_listener_named_twice_is_refused_everywhere():
    twice = (A, Endpoint("a", "elsewhere", 1))
    with pytest.raises(ValueError, match="two endpoints of one listener"):
        Voter(KEY, twice)
    for request in REQUESTS:
        wire = to_wire_request(request, 1)
        name = "listeners" if hasattr(wire, "listeners") else "leader_endpoints"
        listed = getattr(wire, name)
        wrong = type(wire)(**{**fields(wire), name: (listed[0], listed[0])})
        if name == "listeners":  # the leader refuses those, after it has looked whether it leads
            assert not has_distinct_listeners(to_core_request(wrong, 1).endpoints)
            continue
        with pytest.raises(KafkaError) as refused:
            to_core_request(wrong, 1)
        assert refused.value.code == ErrorCode.INVALID_REQUEST


def fields(message):
    return {name: getattr(message, name) for name in message.__dataclass_fields__}


RESPONSES = [
    (raft.VoteResponse(vote_granted=False, **LEADER), 52, 1),
    (raft.BeginQuorumEpochResponse(**LEADER), 53, 1),
    (raft.EndQuorumEpochResponse(**LEADER), 54, 1),
    (raft.FetchResponse(high_watermark=Offset(9), **LEADER), 1, 17),
    (raft.FetchSnapshotResponse(**LEADER), 59, 1),
]


@pytest.mark.spec("ENDP-02", "ENDP-06", "ENDP-11", "ENDP-12", "ENDP-13")
@pytest.mark.parametrize(("response", "api_key", "first"), RESPONSES, ids=lambda one: type(one).__name__)
def test_answers_tell_the_leaders_endpoint_of_the_listener_that_was_asked(response, api_key, first):
    highest = API_BY_KEY[api_key].max_version
    lowest = 13 if api_key == 1 else API_BY_KEY[api_key].min_version
    for version in range(lowest, highest + 1):
        for listener, expected in (("A", A), ("b", B), ("C", None)):
            wire = through_the_wire(to_wire_response(response, version=version, listener_name=listener), version)
            told = [] if version < first or expected is None else [(3, expected.host, expected.port)]
            assert [
                (node_endpoint.node_id, node_endpoint.host, node_endpoint.port) for node_endpoint in wire.node_endpoints
            ] == told
            back = to_core_response(wire, listener_name=listener)
            assert (back.leader_id, back.leader_epoch) == (3, 5)
            assert [(leader_endpoint.host, leader_endpoint.port) for leader_endpoint in back.leader_endpoints] == [
                answer[1:] for answer in told
            ]
        nobody = type(response)(leader_id=None, leader_epoch=Epoch(5))
        wire = to_wire_response(nobody, version=version, listener_name="A")
        assert not wire.node_endpoints
        assert to_core_response(wire, listener_name="A").leader_id is None


@pytest.mark.spec("ENDP-02")
def test_an_endpoint_of_somebody_else_is_not_the_leaders():
    wire = to_wire_response(raft.VoteResponse(**LEADER), version=1, listener_name="A")
    wrong = type(wire)(**{**fields(wire), "node_endpoints": (type(wire).NodeEndpoint(node_id=8, host="h", port=1),)})
    assert to_core_response(wrong, listener_name="A").leader_endpoints == ()


def config(**changes):
    properties = {
        "process.roles": "controller",
        "node.id": "1",
        "listeners": "A://127.0.0.1:9093,B://127.0.0.1:9094",
        "controller.listener.names": "A,B",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        "log.dirs": "/nowhere",
        **{name.replace("_", "."): text for name, text in changes.items()},
    }
    return NodeConfig({key: text for key, text in properties.items() if text is not None})


@pytest.mark.spec("ENDP-10", "BOOT-25")
def test_static_voters_are_on_the_first_controller_listener():
    voters = static_voters(config(controller_quorum_voters="1@127.0.0.1:9093,2@[::1]:9095"))
    assert [(voter.key, voter.endpoints) for voter in voters] == [
        (ReplicaKey(NodeId(1)), (Endpoint("A", "127.0.0.1", 9093),)),
        (ReplicaKey(NodeId(2)), (Endpoint("A", "::1", 9095),)),
    ]
    assert {(voter.min_kraft_version, voter.max_kraft_version) for voter in voters} == {(0, 0)}


@pytest.mark.spec("ENDP-19")
def test_controller_listener_that_is_not_advertised_is_where_it_listens():
    found = config(advertised_listeners="B://outside.example:1234").advertised_listeners
    assert {str(endpoint) for endpoint in found} == {"A://127.0.0.1:9093", "B://outside.example:1234"}


@pytest.mark.spec("BOOT-27", "BOOT-30", "BOOT-31")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"controller_quorum_bootstrap_servers": None}, "set controller.quorum.bootstrap.servers"),
        ({"controller_quorum_voters": "1@0.0.0.0:9093"}, "nonroutable"),
        ({"controller_quorum_voters": "1@[::]:9093"}, "nonroutable"),
        ({"controller_quorum_voters": "127.0.0.1:9093"}, "id@host:port"),
        ({"controller_quorum_voters": "x@127.0.0.1:9093"}, "id@host:port"),
        ({"controller_quorum_voters": "-1@127.0.0.1:9093"}, "id@host:port"),
        ({"controller_quorum_voters": "1@127.0.0.1:70000"}, "id@host:port"),
        ({"controller_quorum_voters": "1@127.0.0.1"}, "id@host:port"),
        ({"controller_quorum_voters": "1@a:1,1@b:2"}, "names a node twice"),
        ({"controller_quorum_bootstrap_servers": "127.0.0.1"}, "form host:port"),
        ({"controller_quorum_bootstrap_servers": ":9093"}, "form host:port"),
        ({"controller_quorum_bootstrap_servers": "h:9093,h:port"}, "form host:port"),
    ],
)
def test_addresses_of_the_quorum_that_cannot_be_are_refused(changes, words):
    with pytest.raises(ConfigError, match=words):
        config(**changes)


@pytest.mark.spec("BOOT-29")
def test_bootstrap_servers_have_ids_no_node_can_have():
    assert [bootstrap_destination.node_id for bootstrap_destination in bootstrap_destinations((A, B))] == [-2, -3]


# Versions, by what the peer says it has


class OldPeer:
    """A peer that says which versions it has, notes what it is asked, and answers with what it is given."""

    def __init__(self, versions):
        self.versions = versions
        self.asked = []
        self.has_all = asyncio.Event()

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.server.close()

    async def _serve(self, reader, writer):
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                header, request = decode_request(await reader.readexactly(size))
                self.asked.append((header.request_api_key, header.request_api_version, request))
                if len(self.asked) == 4:
                    self.has_all.set()
                if isinstance(request, ApiVersionsRequest):
                    keys = [
                        ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
                        for key, (low, high) in self.versions.items()
                    ]
                    answer = ApiVersionsResponse(api_keys=keys)
                    writer.writelines(
                        map(bytes, encode_response(18, header.request_api_version, header.correlation_id, answer))
                    )
        except asyncio.IncompleteReadError:
            writer.close()


@pytest.mark.spec("ENDP-28", "ENDP-29", "KVER-20")
def test_versions_are_those_of_the_peer_and_what_they_lack_is_left_out():
    """The lowest versions of Kafka 3.9 for a peer: without endpoints, directory ids and pre-votes."""
    failures = []

    async def run():
        loop = asyncio.get_running_loop()
        async with OldPeer({18: (0, 4), 1: (4, 13), 52: (0, 0), 53: (0, 0), 54: (0, 0), 59: (0, 0)}) as peer:
            peers = Peers(
                loop,
                listener_name="A",
                client_id="raft-client-1",
                request_timeout_s=5,
                topic=METADATA_LOG,
                on_response=lambda *_: None,
                on_failure=lambda *failure: failures.append(failure),
                security=lambda _: None,
            )
            to = Destination(NodeId(3), Endpoint("A", "127.0.0.1", peer.port))
            vote = {
                "cluster_id": "c", "voter_key": KEY, "replica_key": ReplicaKey(NodeId(1), DIRECTORY),
                "replica_epoch": Epoch(5), "last_epoch": Epoch(4), "last_epoch_end_offset": Offset(9),
            }  # fmt: skip
            peers.send(to, 1, raft.VoteRequest(pre_vote=True, **vote))
            peers.send(to, 2, raft.VoteRequest(pre_vote=False, **vote))
            for number, request in enumerate(REQUESTS[2:], 3):
                peers.send(to, number, request)
            await asyncio.wait_for(peer.has_all.wait(), 30)
            peers.close()
            return peer.asked

    asked = asyncio.run(run())
    assert failures == [(3, 1, ErrorCode.UNSUPPORTED_VERSION)]
    assert [(key, version) for key, version, _ in asked[1:]] == [(52, 0), (53, 0), (54, 0)]
    vote, begin, end = (request for _, _, request in asked[1:])
    assert vote.topics[0].partitions[0].replica_directory_id == Uuid.ZERO
    assert not begin.leader_endpoints
    assert begin.topics[0].partitions[0].voter_directory_id == Uuid.ZERO
    assert list(end.topics[0].partitions[0].preferred_successors) == [3]


@pytest.mark.spec("ENDP-29")
def test_a_pre_vote_needs_version_2():
    vote = {
        "cluster_id": "c", "voter_key": KEY, "replica_key": KEY, "replica_epoch": Epoch(5), "last_epoch": Epoch(4),
        "last_epoch_end_offset": Offset(9),
    }  # fmt: skip
    assert lowest_version(raft.VoteRequest(pre_vote=True, **vote)) == 2
    assert lowest_version(raft.VoteRequest(pre_vote=False, **vote)) == 0


@pytest.mark.spec("ENDP-05")
def test_a_name_is_resolved_when_it_is_connected_to_each_time(monkeypatch):
    tries = []

    async def run():
        loop = asyncio.get_running_loop()

        async def getaddrinfo(host, port, **_):
            tries.append(host)
            raise OSError(-2, "Name or service not known")

        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
        failed = asyncio.Queue()
        peers = Peers(
            loop, listener_name="A", client_id="c", request_timeout_s=5, topic=METADATA_LOG,
            on_response=lambda *_: None, on_failure=lambda *failure: failed.put_nowait(failure),
            security=lambda _: None,
        )  # fmt: skip
        for number in (1, 2):
            peers.send(Destination(NodeId(3), A), number, raft.ApiVersionsRequest())
            assert await asyncio.wait_for(failed.get(), 30) == (3, number, ErrorCode.BROKER_NOT_AVAILABLE)
        peers.close()

    asyncio.run(run())
    assert tries == [A.host, A.host]


@pytest.mark.spec("ENDP-04")
def test_a_voters_record_with_a_listener_twice_is_corrupt():
    record = to_voters_record(VoterSet([Voter(KEY, BOTH, 0, 1)]))
    voter = record.voters[0]
    wrong = type(voter)(**{**fields(voter), "endpoints": (voter.endpoints[0], voter.endpoints[0])})
    with pytest.raises(CorruptRecordError, match="two endpoints of one listener"):
        from_voters_record(type(record)(**{**fields(record), "voters": (wrong,)}))
