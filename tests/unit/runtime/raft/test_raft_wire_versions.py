"""What replicas say to each other in every version: its fields, how they stand in bytes, what is refused."""

from __future__ import annotations

import asyncio
import struct
from types import SimpleNamespace

import pytest

from kraftlog.api.handlers import describe_quorum
from kraftlog.errors import ErrorCode, KafkaError, LocalProtocolError
from kraftlog.raft import messages as raft
from kraftlog.raft.connections import Destination
from kraftlog.raft.voter_set import Endpoint
from kraftlog.runtime.metadata.quorum_info import QuorumInfo, ReplicaInfo
from kraftlog.runtime.raft.codec.table import (
    lowest_version,
    to_core_request,
    to_core_response,
    to_wire_request,
    to_wire_response,
)
from kraftlog.runtime.raft.peer_connections import Peers
from kraftlog.types import METADATA_LOG, Epoch, EpochEndOffset, NodeId, Offset, ReplicaKey, SnapshotId, Uuid
from kraftlog.wire.frame import decode_request, encode_request, encode_response
from kraftlog.wire.messages.api_versions import ApiVersionsResponse
from kraftlog.wire.messages.describe_quorum import DescribeQuorumRequest
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.registry import API_BY_KEY
from kraftlog.wire.struct import Struct

OWN = ReplicaKey(NodeId(3), Uuid(bytes([3] * 16)))
OTHER = ReplicaKey(NodeId(4), Uuid(bytes([4] * 16)))
A, B = Endpoint("A", "host-a", 40_000), Endpoint("B", "host-b", 50_000)
LEADER = {"leader_id": NodeId(3), "leader_epoch": Epoch(5), "leader_endpoints": (A, B)}
SNAPSHOT_ID = SnapshotId(Offset(20), Epoch(4))

VOTE = raft.VoteRequest(
    cluster_id="c", voter_key=OTHER, replica_key=OWN, replica_epoch=Epoch(5), last_epoch=Epoch(4),
    last_epoch_end_offset=Offset(30),
)  # fmt: skip
PRE_VOTE = raft.VoteRequest(
    cluster_id="c", voter_key=OTHER, replica_key=OWN, replica_epoch=Epoch(5), last_epoch=Epoch(4),
    last_epoch_end_offset=Offset(30), pre_vote=True,
)  # fmt: skip
BEGIN = raft.BeginQuorumEpochRequest(
    cluster_id="c", voter_key=OTHER, leader_id=NodeId(3), leader_epoch=Epoch(5), leader_endpoints=(A, B)
)
END = raft.EndQuorumEpochRequest(
    cluster_id="c", leader_id=NodeId(3), leader_epoch=Epoch(5), leader_endpoints=(A,),
    preferred_candidates=(OTHER, OWN),
)  # fmt: skip
FETCH = raft.FetchRequest(
    cluster_id="c", replica_key=OWN, current_leader_epoch=Epoch(5), fetch_offset=Offset(30),
    last_fetched_epoch=Epoch(4), max_wait_ms=500, max_bytes=1000, high_watermark=Offset(25),
)  # fmt: skip
FETCH_SNAPSHOT = raft.FetchSnapshotRequest(
    cluster_id="c", replica_key=OWN, current_leader_epoch=Epoch(5), snapshot_id=SNAPSHOT_ID, position=7, max_bytes=1000
)
ADD = raft.AddVoterRequest(cluster_id="c", voter_key=OTHER, endpoints=(A, B), timeout_ms=9)
ADD_WITHOUT_WAITING = raft.AddVoterRequest(
    cluster_id="c", voter_key=OTHER, endpoints=(A, B), timeout_ms=9, ack_when_committed=False
)

VOTE_0 = (
    "cluster_id topics.topic_name topics.partitions.replica_epoch topics.partitions.replica_id "
    "topics.partitions.last_offset_epoch topics.partitions.last_offset"
)
BEGIN_0 = "cluster_id topics.topic_name topics.partitions.leader_id topics.partitions.leader_epoch"
LISTED = "leader_endpoints.name leader_endpoints.host leader_endpoints.port"
SNAPSHOT_0 = (
    "cluster_id replica_id max_bytes topics.name topics.partitions.current_leader_epoch topics.partitions.position "
    "topics.partitions.snapshot_id.end_offset topics.partitions.snapshot_id.epoch"
)
FETCH_13 = (
    "cluster_id max_wait_ms max_bytes topics.topic_id topics.partitions.current_leader_epoch "
    "topics.partitions.fetch_offset topics.partitions.last_fetched_epoch"
)
CANDIDATES = "topics.partitions.preferred_candidates"
ADD_0 = "cluster_id timeout_ms voter_id voter_directory_id listeners.name listeners.host listeners.port"
REQUESTS = [
    (VOTE, 0, VOTE_0),
    *((VOTE, number, f"{VOTE_0} voter_id topics.partitions.replica_directory_id topics.partitions.voter_directory_id")
      for number in (1, 2)),
    (PRE_VOTE, 2, f"{VOTE_0} voter_id topics.partitions.replica_directory_id topics.partitions.voter_directory_id "
                  "topics.partitions.pre_vote"),
    (BEGIN, 0, BEGIN_0),
    (BEGIN, 1, f"{BEGIN_0} voter_id topics.partitions.voter_directory_id {LISTED}"),
    (END, 0, f"{BEGIN_0} topics.partitions.preferred_successors"),
    (END, 1, f"{BEGIN_0} {CANDIDATES}.candidate_id {CANDIDATES}.candidate_directory_id {LISTED}"),
    *((FETCH, number, f"{FETCH_13} replica_id") for number in (13, 14)),
    *((FETCH, number, f"{FETCH_13} replica_state.replica_id") for number in (15, 16)),
    (FETCH, 17, f"{FETCH_13} replica_state.replica_id topics.partitions.replica_directory_id"),
    (FETCH, 18, f"{FETCH_13} replica_state.replica_id topics.partitions.replica_directory_id "
                "topics.partitions.high_watermark"),
    (FETCH_SNAPSHOT, 0, SNAPSHOT_0),
    (FETCH_SNAPSHOT, 1, f"{SNAPSHOT_0} topics.partitions.replica_directory_id"),
    (ADD, 0, ADD_0),
    (ADD, 1, ADD_0),
    (ADD_WITHOUT_WAITING, 1, f"{ADD_0} ack_when_committed"),
]  # fmt: skip

VOTED = raft.VoteResponse(error_code=74, vote_granted=True, **LEADER)
BEGUN = raft.BeginQuorumEpochResponse(error_code=74, **LEADER)
ENDED = raft.EndQuorumEpochResponse(error_code=74, **LEADER)
FETCHED = raft.FetchResponse(
    error_code=74, high_watermark=Offset(25), log_start_offset=Offset(20), snapshot_id=SNAPSHOT_ID,
    diverging_epoch=EpochEndOffset(Epoch(4), Offset(28)), **LEADER,
)  # fmt: skip
SNAPSHOT = raft.FetchSnapshotResponse(snapshot_id=SNAPSHOT_ID, size_bytes=100, position=7, **LEADER)
ANSWER_0 = "topics.topic_name topics.partitions.error_code topics.partitions.leader_id topics.partitions.leader_epoch"
NODES = "node_endpoints.node_id node_endpoints.host node_endpoints.port"
FETCHED_13 = (
    "responses.topic_id responses.partitions.error_code responses.partitions.high_watermark "
    "responses.partitions.log_start_offset responses.partitions.diverging_epoch.epoch "
    "responses.partitions.diverging_epoch.end_offset responses.partitions.current_leader.leader_id "
    "responses.partitions.current_leader.leader_epoch responses.partitions.snapshot_id.end_offset "
    "responses.partitions.snapshot_id.epoch responses.partitions.records"
)
PIECE_0 = (
    "topics.name topics.partitions.snapshot_id.end_offset topics.partitions.snapshot_id.epoch "
    "topics.partitions.current_leader.leader_id topics.partitions.current_leader.leader_epoch "
    "topics.partitions.size topics.partitions.position topics.partitions.unaligned_records"
)
ANSWERS = [
    (VOTED, 0, f"{ANSWER_0} topics.partitions.vote_granted"),
    *((VOTED, number, f"{ANSWER_0} topics.partitions.vote_granted {NODES}") for number in (1, 2)),
    *((message, 0, ANSWER_0) for message in (BEGUN, ENDED)),
    *((message, 1, f"{ANSWER_0} {NODES}") for message in (BEGUN, ENDED)),
    *((FETCHED, number, FETCHED_13) for number in (13, 14, 15, 16)),
    *((FETCHED, number, f"{FETCHED_13} {NODES}") for number in (17, 18)),
    (SNAPSHOT, 0, PIECE_0),
    (SNAPSHOT, 1, f"{PIECE_0} {NODES}"),
]


def through_the_wire(message, version):
    """As a peer of that version sees it."""
    return type(message).decode(message.encode(version), version)


def said(message):
    """Dotted names of the fields that have not their defaults."""
    found = set()
    for name, default in zip(message.FIELDS, message.DEFAULTS, strict=True):
        value = getattr(message, name)
        if isinstance(value, Struct):
            found |= {f"{name}.{path}" for path in said(value)}
        elif isinstance(value, (list, tuple)) and value and isinstance(value[0], Struct):
            found |= {f"{name}.{path}" for each in value for path in said(each)}
        elif value != default and not (isinstance(value, (list, tuple)) and not value):
            found.add(name)
    return found


def name_of(value):
    return type(value).__name__ if isinstance(value, raft.Request | raft.Response) else None


def answered(response, version, **options):
    return to_wire_response(response, version=version, listener_name="A", **options)


@pytest.mark.spec("RPC-38", "CQ-13", "FTCH-05", "CONN-25")
@pytest.mark.parametrize(("request_", "version", "fields"), REQUESTS, ids=name_of)
def test_a_request_has_the_fields_of_its_version(request_, version, fields):
    wire = through_the_wire(to_wire_request(request_, version), version)
    ours = {"topics.partitions.log_start_offset", "topics.partitions.partition_max_bytes"}  # as the defaults
    assert said(wire) - ours == set(fields.split())
    latest = API_BY_KEY[wire.API_KEY].max_version
    if version == latest:
        assert to_core_request(wire, version) == request_


@pytest.mark.spec("RPC-38", "RPC-45", "VOTE-35")
@pytest.mark.parametrize(("response", "version", "fields"), ANSWERS, ids=name_of)
def test_an_answer_has_the_fields_of_its_version(response, version, fields):
    wire = through_the_wire(answered(response, version, data=b"records"), version)
    assert said(wire) - {"responses.partitions.aborted_transactions"} == set(fields.split())
    if wire.node_endpoints:
        # One endpoint, the leader's, for the listener that was asked; and Fetch says of no rack.
        (endpoint,) = wire.node_endpoints
        assert (endpoint.node_id, endpoint.host, endpoint.port) == (3, "host-a", 40_000)
        assert getattr(endpoint, "rack", None) is None


@pytest.mark.spec("VOTE-35", "RPC-45")
@pytest.mark.parametrize(
    ("response", "version"), [(VOTED, 2), (BEGUN, 1), (ENDED, 1), (FETCHED, 18), (SNAPSHOT, 1)], ids=name_of
)
def test_an_answer_without_leader_or_its_address_names_no_endpoint(response, version):
    kind = type(response)
    unknown = kind(leader_epoch=Epoch(5), leader_endpoints=(A,))
    elsewhere = kind(leader_id=NodeId(3), leader_epoch=Epoch(5), leader_endpoints=(B,))
    for leader in (unknown, elsewhere):
        assert not through_the_wire(answered(leader, version), version).node_endpoints


@pytest.mark.spec("RPC-38", "FTCH-05")
@pytest.mark.parametrize(
    ("request_", "lower", "same_as"),
    [(VOTE, 0, 0), (BEGIN, 0, 0), (END, 0, None), (FETCH_SNAPSHOT, 0, 0), (FETCH, 17, 17), (FETCH, 15, 15)],
    ids=name_of,
)
def test_fields_that_may_be_ignored_vanish_below_their_version(request_, lower, same_as):
    latest = API_BY_KEY[to_wire_request(request_, 1).API_KEY].max_version
    filled = to_wire_request(request_, latest)
    below = through_the_wire(filled, lower)
    if same_as is not None:
        assert below == through_the_wire(to_wire_request(request_, same_as), lower)
    else:
        assert said(below) == set(BEGIN_0.split())  # the candidates are another field there


@pytest.mark.spec("CQ-13")
def test_both_lists_of_preferred_voters_go_by_version():
    kind = type(to_wire_request(END, 1))
    partition = kind.PartitionData(
        preferred_successors=[4, 3],
        preferred_candidates=[kind.ReplicaInfo(candidate_id=4, candidate_directory_id=OTHER.directory_id)],
    )
    both = kind(topics=(kind.TopicData(topic_name="__cluster_metadata", partitions=(partition,)),))
    old, new = (through_the_wire(both, number).topics[0].partitions[0] for number in (0, 1))
    assert (list(old.preferred_successors), list(old.preferred_candidates)) == ([4, 3], [])
    assert (list(new.preferred_successors), list(new.preferred_candidates)) == ([], partition.preferred_candidates)
    # What we send has the order of the core, with ids alone in version 0.
    sent = through_the_wire(to_wire_request(END, 0), 0)
    assert list(sent.topics[0].partitions[0].preferred_successors) == [4, 3]
    assert to_core_request(sent, 0).preferred_candidates == (ReplicaKey(NodeId(4)), ReplicaKey(NodeId(3)))


@pytest.mark.spec("RPC-39")
@pytest.mark.parametrize("version", [0, 1])
def test_a_pre_vote_is_not_said_in_a_version_without_it(version):
    assert lowest_version(PRE_VOTE) == 2
    assert lowest_version(VOTE) == 0
    with pytest.raises(LocalProtocolError, match=r"pre_?[vV]ote"):
        to_wire_request(PRE_VOTE, version).encode(version)
    assert to_wire_request(VOTE, version).encode(version)


@pytest.mark.spec("RCFG-30")
def test_a_voter_is_not_added_without_waiting_in_a_version_that_always_waits():
    assert lowest_version(ADD_WITHOUT_WAITING) == 1
    assert lowest_version(ADD) == 0
    with pytest.raises(LocalProtocolError, match=r"ack_?[wW]hen"):
        to_wire_request(ADD_WITHOUT_WAITING, 0).encode(0)


def string(text):
    return struct.pack(">h", len(text)) + text.encode()


@pytest.mark.spec("RPC-40")
def test_version_0_of_begin_and_end_quorum_epoch_is_not_flexible():
    partition = struct.pack(">iii", 0, 3, 5)  # index, leader, epoch
    head = string("c") + struct.pack(">i", 1) + string("__cluster_metadata") + struct.pack(">i", 1)
    begin = to_wire_request(BEGIN, 0)
    assert begin.encode(0) == head + partition
    assert to_wire_request(END, 0).encode(0) == head + partition + struct.pack(">iii", 2, 4, 3)
    # The header has no tags either: key, version, correlation id, client id.
    frame = b"".join(map(bytes, encode_request(53, 0, 7, "id", begin)))
    assert frame[4:] == struct.pack(">hhi", 53, 0, 7) + string("id") + begin.encode(0)
    told = struct.pack(">hi", 0, 1) + string("__cluster_metadata") + struct.pack(">iihii", 1, 0, 74, 3, 5)
    for key, response in ((53, BEGUN), (54, ENDED)):
        wire = answered(response, 0)
        assert wire.encode(0) == told
        assert b"".join(map(bytes, encode_response(key, 0, 7, wire)))[4:] == struct.pack(">i", 7) + told


@pytest.mark.spec("RPC-46")
def test_ports_have_two_bytes_and_those_of_fetch_four():
    port = 0xABCD
    leader = {**LEADER, "leader_endpoints": (Endpoint("A", "host-a", port),)}
    begin = raft.BeginQuorumEpochRequest(**leader)
    assert b"\x07host-a\xab\xcd\x00" in to_wire_request(begin, 1).encode(1)
    kinds = [
        (raft.VoteResponse, 2), (raft.BeginQuorumEpochResponse, 1), (raft.EndQuorumEpochResponse, 1),
        (raft.FetchSnapshotResponse, 1),
    ]  # fmt: skip
    for kind, version in kinds:
        wire = answered(kind(**leader), version)
        assert b"\x07host-a\xab\xcd\x00" in wire.encode(version)
        endpoint = type(wire).NodeEndpoint(node_id=3, host="h", port=1 << 16)
        with pytest.raises(LocalProtocolError):
            type(wire)(node_endpoints=(endpoint,)).encode(version)
    fetched = answered(raft.FetchResponse(**leader), 17)
    assert b"\x07host-a\x00\x00\xab\xcd\x00" in fetched.encode(17)


@pytest.mark.spec("RPC-41")
@pytest.mark.parametrize("kind", [raft.AddVoterResponse, raft.RemoveVoterResponse], ids=lambda one: one.__name__)
def test_an_answer_to_a_change_of_voters_has_a_text_with_an_error_only(kind):
    versions = range(2) if kind is raft.AddVoterResponse else range(1)
    for version in versions:
        fine = through_the_wire(answered(kind(), version), version)
        assert (fine.error_code, fine.error_message) == (0, None)
        plain = through_the_wire(answered(kind(top_level_error_code=ErrorCode.VOTER_NOT_FOUND), version), version)
        assert (plain.error_code, plain.error_message) == (
            ErrorCode.VOTER_NOT_FOUND,
            "The voter is not part of the set of voters.",
        )
        own = kind(top_level_error_code=ErrorCode.REQUEST_TIMED_OUT, error_message="not committed in time")
        told = through_the_wire(answered(own, version), version)
        assert told.error_message == "not committed in time"
        assert to_core_response(told, listener_name="A") == own


@pytest.mark.spec("FTCH-05", "CONN-25")
def test_a_fetch_of_any_version_is_of_the_same_replica_at_the_same_place():
    for version in range(13, 19):
        asked = to_core_request(through_the_wire(to_wire_request(FETCH, version), version), version)
        directory_id = OWN.directory_id if version >= 17 else Uuid.ZERO
        assert asked.replica_key == ReplicaKey(NodeId(3), directory_id)
        place = (asked.current_leader_epoch, asked.fetch_offset, asked.last_fetched_epoch)
        assert place == (FETCH.current_leader_epoch, FETCH.fetch_offset, FETCH.last_fetched_epoch)
        assert asked.high_watermark == (25 if version >= 18 else raft.HIGH_WATERMARK_NOT_SENT)
    # The old field and the new one are never both there.
    with pytest.raises(LocalProtocolError):
        to_wire_request(FETCH, 15).encode(14)
    with pytest.raises(LocalProtocolError):
        to_wire_request(FETCH, 14).encode(15)


@pytest.mark.spec("FTCH-07")
@pytest.mark.parametrize("version", [12, 13, 17, 18])
@pytest.mark.parametrize(("topics", "partitions"), [(0, (0,)), (2, (0,)), (1, ()), (1, (1,)), (1, (0, 0)), (1, (0, 1))])
def test_a_fetch_asks_for_the_one_partition_or_is_refused(version, topics, partitions):
    asked = FetchRequest.FetchTopic(
        topic_id=Uuid.METADATA_TOPIC_ID,
        partitions=[FetchRequest.FetchPartition(partition=partition) for partition in partitions],
    )
    with pytest.raises(KafkaError) as caught:
        to_core_request(through_the_wire(FetchRequest(topics=(asked,) * topics), version), version)
    assert caught.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.spec("OBS-15", "RPC-38")
@pytest.mark.parametrize("version", range(3))
def test_describe_quorum_tells_of_observers_what_its_version_has(version):
    def replica(key, listeners=()):
        return ReplicaInfo(
            replica_id=key.node_id, directory_id=key.directory_id, log_end_offset=30, last_fetch_timestamp=1000,
            last_caught_up_timestamp=900, listeners=listeners,
        )  # fmt: skip

    quorum = QuorumInfo(
        leader_id=3, leader_epoch=5, high_watermark=25, voters=(replica(OWN, (A, B)),), observers=(replica(OTHER),)
    )
    service = SimpleNamespace(is_leader=True, describe_quorum=lambda: quorum)
    partition = DescribeQuorumRequest.PartitionData(partition_index=0)
    topic = DescribeQuorumRequest.TopicData(topic_name="__cluster_metadata", partitions=(partition,))
    request = DescribeQuorumRequest(topics=(topic,))
    response = describe_quorum.handle(SimpleNamespace(api_version=version), request, raft=service)
    wire = through_the_wire(response, version)
    told = wire.topics[0].partitions[0]
    assert (told.leader_id, told.leader_epoch, told.high_watermark) == (3, 5, 25)
    for state, key in ((told.current_voters[0], OWN), (told.observers[0], OTHER)):
        times = (state.last_fetch_timestamp, state.last_caught_up_timestamp)
        assert (state.replica_id, state.log_end_offset) == (key.node_id, 30)
        assert times == ((1000, 900) if version >= 1 else (-1, -1))
        assert state.replica_directory_id == (key.directory_id if version >= 2 else Uuid.ZERO)
    nodes = [(node.node_id, [(each.name, each.host, each.port) for each in node.listeners]) for node in wire.nodes]
    assert nodes == ([(3, [("A", "host-a", 40_000), ("B", "host-b", 50_000)])] if version >= 2 else [])


class OldPeer:
    """Tells which versions of one API it has, and keeps what it is asked."""

    def __init__(self, api_key, highest):
        self.range = (api_key, 0, highest)
        self.asked = asyncio.get_running_loop().create_future()

    async def open(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return Endpoint("A", "127.0.0.1", self.server.sockets[0].getsockname()[1])

    async def _serve(self, reader, writer):
        self.writer = writer
        while size := await reader.read(4):
            header, request = decode_request(await reader.readexactly(int.from_bytes(size, "big")))
            if header.request_api_key == 18:
                key, low, high = self.range
                entry = ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
                answer = ApiVersionsResponse(api_keys=(entry,))
                writer.writelines(encode_response(18, header.request_api_version, header.correlation_id, answer))
            else:
                self.asked.set_result((header.request_api_version, request))

    async def close(self):
        self.server.close()
        self.writer.close()
        await self.writer.wait_closed()


def ask_a_peer(request, api_key, highest):
    """Version and request that the peer got, or the error code that there was instead."""

    async def run():
        peer = OldPeer(api_key, highest)
        endpoint = await peer.open()
        peers = Peers(
            asyncio.get_running_loop(),
            listener_name="A",
            client_id="test",
            request_timeout_s=5.0,
            topic=METADATA_LOG,
            on_response=lambda *_: None,
            on_failure=lambda _, __, code: peer.asked.set_result(code),
            security=lambda _: None,
        )
        peers.send(Destination(NodeId(4), endpoint), 1, request)
        try:
            return await asyncio.wait_for(peer.asked, 30)
        finally:
            peers.close()
            await peer.close()

    return asyncio.run(run())


@pytest.mark.spec("CONN-25")
@pytest.mark.parametrize("highest", [13, 14, 15, 16, 17, 18])
def test_a_fetch_to_an_older_peer_is_built_in_the_peers_version(highest):
    version, wire = ask_a_peer(FETCH, 1, highest)
    assert version == highest
    partition = wire.topics[0].partitions[0]
    assert (wire.replica_id, wire.replica_state.replica_id) == ((3, -1) if highest < 15 else (-1, 3))
    assert partition.replica_directory_id == (OWN.directory_id if highest >= 17 else Uuid.ZERO)
    assert partition.high_watermark == (25 if highest >= 18 else raft.HIGH_WATERMARK_NOT_SENT)
    assert (partition.fetch_offset, partition.last_fetched_epoch, partition.current_leader_epoch) == (30, 4, 5)


@pytest.mark.spec("RPC-39", "RCFG-30", "CONN-25")
@pytest.mark.parametrize(
    ("request_", "api_key", "highest"), [(PRE_VOTE, 52, 1), (ADD_WITHOUT_WAITING, 80, 0), (FETCH, 1, 12)], ids=name_of
)
def test_a_peer_too_old_for_what_has_to_be_said_is_not_asked(request_, api_key, highest):
    assert ask_a_peer(request_, api_key, highest) == ErrorCode.UNSUPPORTED_VERSION
