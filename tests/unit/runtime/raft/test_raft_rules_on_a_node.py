"""What a live node makes of requests about the metadata quorum: who serves them, in which order, what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import threading
from collections import defaultdict
from types import SimpleNamespace

import pytest

from batch_rows import GOLDEN
from kraftlog._kraftlog import read_batches
from kraftlog.api.handlers import describe_quorum, envelope
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.node.config import NodeConfig
from kraftlog.node.node import Node
from kraftlog.node.standalone import format_when_needed, standalone_properties
from kraftlog.raft import messages as raft
from kraftlog.raft.core import RaftCore
from kraftlog.runtime.metadata.metadata_quorum import MetadataQuorum
from kraftlog.storage.formatter import Formatter
from kraftlog.storage.meta_properties import random_uuid, read_meta_properties
from kraftlog.types import Epoch, NodeId, Offset, SnapshotId, Uuid
from kraftlog.wire.frame import decode_response, encode_request
from kraftlog.wire.messages.add_raft_voter import AddRaftVoterRequest
from kraftlog.wire.messages.api_versions import ApiVersionsRequest
from kraftlog.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlog.wire.messages.describe_quorum import DescribeQuorumRequest
from kraftlog.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kraftlog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from kraftlog.wire.messages.update_features import UpdateFeaturesRequest
from kraftlog.wire.messages.update_raft_voter import UpdateRaftVoterRequest
from kraftlog.wire.messages.vote import VoteRequest
from kraftlog.wire.registry import API_BY_KEY
from quorum_fixture import create_topic, format_directory, quorum_over, register_broker, started
from raft_fixture import key, leader_of
from raw_client import RawClient
from waiting import settle

TOPIC = "__cluster_metadata"
ELECTIONS = [VoteRequest, BeginQuorumEpochRequest, EndQuorumEpochRequest]


def election(kind, topics=((TOPIC, (0,)),), **fields):
    """A request of that kind about these partitions, of epoch 0 unless a field says otherwise."""
    return kind(
        topics=[
            kind.TopicData(
                topic_name=name, partitions=[kind.PartitionData(partition_index=index, **fields) for index in of]
            )
            for name, of in topics
        ]
    )


def describe(topic=TOPIC, partition=0):
    asked = DescribeQuorumRequest.PartitionData(partition_index=partition)
    return DescribeQuorumRequest(topics=[DescribeQuorumRequest.TopicData(topic_name=topic, partitions=[asked])])


def metadata_fetch(offset=0, *, epoch=1, replica_id=-1, max_bytes=1 << 20):
    partition = FetchRequest.FetchPartition(
        partition=0, fetch_offset=offset, last_fetched_epoch=epoch, current_leader_epoch=epoch
    )
    topic = FetchRequest.FetchTopic(topic_id=Uuid.METADATA_TOPIC_ID, partitions=[partition])
    state = FetchRequest.ReplicaState(replica_id=replica_id)
    return FetchRequest(topics=[topic], replica_state=state, max_bytes=max_bytes)


@contextlib.asynccontextmanager
async def running(properties):
    """A node with ports of its own, formatted when it is not."""
    config = NodeConfig(properties)
    format_when_needed(config)
    node = Node(config)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


def address(node, listener):
    port = next(end_point.port for end_point in node.end_points() if end_point.listener_name == listener)
    return f"127.0.0.1:{port}"


@pytest.fixture
def ask(tmp_path):
    """Run ``asking(controller, broker)`` on a thread, with the addresses of a node's two listeners."""

    def run(asking):
        async def main():
            properties = standalone_properties(tmp_path / "data", port=0, is_durable=False, changes={})
            async with running(properties) as node:
                await asyncio.to_thread(asking, address(node, "CONTROLLER"), address(node, "PLAINTEXT"))

        asyncio.run(main())

    return run


@pytest.fixture
def path(tmp_path):
    format_directory(tmp_path / "data")
    return tmp_path / "data"


# Who serves what


@pytest.mark.spec("RPC-02")
def test_a_broker_listener_does_not_serve_what_replicas_say(ask):
    requests = [
        *(election(kind) for kind in ELECTIONS),
        FetchSnapshotRequest(),
        UpdateRaftVoterRequest(voter_id=1),
    ]

    def asking(_, broker):
        with RawClient(broker) as client:
            offered = {api_key.api_key for api_key in client.call(ApiVersionsRequest(), 2).api_keys}
        assert 55 in offered
        for request in requests:
            assert request.API_KEY not in offered
            for version in range(API_BY_KEY[request.API_KEY].max_version + 1):
                with RawClient(broker) as client:
                    client.send(request, version)
                    assert client.is_closed_by_peer()

    ask(asking)


@pytest.mark.spec("RPC-03")
def test_a_broker_asks_the_active_controller_for_its_clients(tmp_path, monkeypatch):
    enclosed = []
    enclose = envelope._enclose
    monkeypatch.setattr(
        envelope, "_enclose", lambda *given, **named: enclosed.append(given) or enclose(*given, **named)
    )
    controller_properties = {
        "process.roles": "controller",
        "node.id": "1",
        "listeners": "CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:0",
        "log.dirs": str(tmp_path / "controller"),
    }

    def asking(controller, broker):
        update = UpdateFeaturesRequest.FeatureUpdateKey(feature="group.version", max_version_level=1, upgrade_type=7)
        refused = {
            AddRaftVoterRequest(
                cluster_id=None, voter_id=1, voter_directory_id=random_uuid()
            ): ErrorCode.INVALID_REQUEST,
            RemoveRaftVoterRequest(
                cluster_id=None, voter_id=9, voter_directory_id=random_uuid()
            ): ErrorCode.VOTER_NOT_FOUND,
            UpdateFeaturesRequest(feature_updates=(update,)): ErrorCode.INVALID_UPDATE_VERSION,
        }
        with RawClient(controller) as there, RawClient(broker) as here:
            for request, error_code in refused.items():
                assert here.call(request) == there.call(request)
                assert here.call(request).error_code == error_code
            assert len(enclosed) == 2 * len(refused)
            told = here.call(describe()).topics[0].partitions[0]
            assert (told.error_code, told.leader_id) == (0, 1)
            assert [observer.replica_id for observer in told.observers] == [2]
            assert len(enclosed) == 2 * len(refused) + 1

    async def main():
        async with running(controller_properties) as controller:
            directory = tmp_path / "broker"
            cluster_id = read_meta_properties(tmp_path / "controller").cluster_id
            Formatter(
                directories=[directory],
                metadata_directory=directory,
                cluster_id=cluster_id,
                node_id=NodeId(2),
                has_dynamic_quorum=True,
                report=lambda _: None,
            ).run()
            broker_properties = {
                "process.roles": "broker",
                "node.id": "2",
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.bootstrap.servers": address(controller, "CONTROLLER"),
                "log.dirs": str(directory),
            }
            async with running(broker_properties) as broker:
                assert not broker.metadata.is_leader
                await asyncio.to_thread(asking, address(controller, "CONTROLLER"), address(broker, "PLAINTEXT"))

    asyncio.run(main())


# What is refused


@pytest.mark.spec("RPC-06")
@pytest.mark.parametrize("kind", ELECTIONS, ids=lambda one: one.__name__)
def test_an_election_request_is_about_the_one_partition(ask, kind):
    others = [(), (("orders", (0,)),), ((TOPIC, (1,)),), ((TOPIC, ()),), ((TOPIC, (0, 1)),), ((TOPIC, (0,)),) * 2]

    def asking(controller, _):
        with RawClient(controller) as client:
            for version in range(API_BY_KEY[kind.API_KEY].max_version + 1):
                for topics in others:
                    refused = client.call(election(kind, topics), version)
                    assert (refused.error_code, len(refused.topics)) == (ErrorCode.INVALID_REQUEST, 0)
                fine = client.call(election(kind), version)
                assert (fine.error_code, len(fine.topics)) == (0, 1)

    ask(asking)


@pytest.mark.spec("RPC-07")
def test_describe_quorum_knows_no_other_partition(ask):
    def asking(controller, broker):
        for bootstrap in (controller, broker):
            with RawClient(bootstrap) as client:
                for version in range(3):
                    for topic, partition in (("orders", 0), (TOPIC, 1)):
                        found = client.call(describe(topic, partition), version)
                        (told,) = found.topics[0].partitions
                        assert found.error_code == 0
                        assert (found.topics[0].topic_name, told.partition_index) == (topic, partition)
                        assert told.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    ask(asking)


@pytest.mark.spec("RPC-33")
def test_describe_quorum_is_answered_by_the_leader_only(tmp_path):
    path = tmp_path / "data"
    shutil.copytree(GOLDEN / "kraft" / "logs" / "dynamic/10-stopped/node-3001", path)

    async def run():
        quorum = quorum_over(path, node_id=3001, cluster_id=read_meta_properties(path).cluster_id)
        await quorum.start()
        try:
            assert not quorum.is_leader
            for version in range(3):
                answer = describe_quorum.handle(SimpleNamespace(api_version=version), describe(), raft=quorum.replica)
                found = type(answer).decode(answer.encode(version), version)
                (told,) = found.topics[0].partitions
                assert (found.error_code, told.error_code) == (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                assert bool(told.error_message) == (version == 2)
                assert not told.current_voters
        finally:
            await quorum.stop()

    asyncio.run(run())


@pytest.mark.spec("RPC-36")
def test_describe_quorum_tells_where_static_voters_listen(tmp_path):
    path = tmp_path / "data"
    format_directory(path, is_static=True)
    static = {"controller.quorum.voters": "1@127.0.0.1:9093", "controller.quorum.bootstrap.servers": ""}

    async def run():
        quorum = await started(path, **static)
        assert quorum.kraft_version == 0
        answer = describe_quorum.handle(SimpleNamespace(api_version=2), describe(), raft=quorum.replica)
        listeners = [
            (node.node_id, [(each.name, each.host, each.port) for each in node.listeners]) for node in answer.nodes
        ]
        assert listeners == [(1, [("CONTROLLER", "127.0.0.1", 9093)])]
        (voter,) = answer.topics[0].partitions[0].current_voters
        assert (voter.replica_id, voter.replica_directory_id) == (1, Uuid.ZERO)
        await quorum.stop()

    asyncio.run(run())


@pytest.mark.spec("RPC-42")
def test_a_refusal_is_an_answer_and_the_connection_lives(ask):
    twice = [AddRaftVoterRequest.Listener(name=name, host="h", port=1) for name in ("A", "a")]
    snapshot = FetchSnapshotRequest(
        topics=[
            FetchSnapshotRequest.TopicSnapshot(
                name="orders", partitions=[FetchSnapshotRequest.PartitionSnapshot(partition=0)]
            )
        ]
    )

    def asking(controller, _):
        with RawClient(controller) as client:
            own = client.call(metadata_fetch(replica_id=1), 17)
            assert own.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            refusals = [
                (VoteRequest(cluster_id="another"), 2, ErrorCode.INCONSISTENT_CLUSTER_ID),
                (FetchRequest(), 17, ErrorCode.INVALID_REQUEST),
                (AddRaftVoterRequest(cluster_id=None, voter_id=4, listeners=twice), 1, ErrorCode.INVALID_REQUEST),
                (UpdateRaftVoterRequest(cluster_id="another", voter_id=1), 0, ErrorCode.INCONSISTENT_CLUSTER_ID),
                (RemoveRaftVoterRequest(cluster_id=""), 0, ErrorCode.INCONSISTENT_CLUSTER_ID),
            ]
            for request, version, error_code in refusals:
                assert client.call(request, version).error_code == error_code
            piece = client.call(snapshot, 1).topics[0].partitions[0]
            assert piece.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            fine = client.call(metadata_fetch(), 17)
            assert fine.responses[0].partitions[0].error_code == 0

    ask(asking)


@pytest.mark.spec("RPC-47")
def test_types_of_a_feature_upgrade(ask):
    def asking(controller, _):
        with RawClient(controller) as client:

            def change(level, upgrade_type, version=2):
                update = UpdateFeaturesRequest.FeatureUpdateKey(
                    feature="transaction.version", max_version_level=level, upgrade_type=upgrade_type
                )
                answer = client.call(UpdateFeaturesRequest(feature_updates=(update,)), version)
                found = client.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
                levels = {
                    finalized_feature.name: finalized_feature.max_version_level
                    for finalized_feature in found.finalized_features
                }
                codes = {answer.error_code, *(result.error_code for result in answer.results)} - {0}
                return codes, levels.get("transaction.version", 0)

            refused = {ErrorCode.INVALID_UPDATE_VERSION}
            begun = change(2, 1)[1]
            assert begun == 2
            for version in (1, 2):
                assert change(1, 1, version) == (refused, 2)  # an upgrade to less
                for unknown in (0, 4, 127, -1):
                    assert change(1, unknown, version) == (refused, 2)
                assert change(1, 2, version) == (set(), 1)  # a safe downgrade
                assert change(2, 2, version) == (refused, 1)  # a downgrade to more
                assert change(2, 1, version) == (set(), 2)
                assert change(1, 3, version) == (set(), 1)  # an unsafe one
                assert change(2, 1, version) == (set(), 2)

    ask(asking)


# Before the start, at the end, and in between


@pytest.mark.spec("RPC-43")
def test_a_request_that_comes_before_the_replica_is_there_waits_for_it(tmp_path, monkeypatch):
    start = MetadataQuorum.start
    early = []

    async def slow_start(quorum):
        with pytest.raises(KafkaError) as caught:
            quorum.replica.handle_request(election(VoteRequest), version=2, listener_name="CONTROLLER")
        assert caught.value.code == ErrorCode.BROKER_NOT_AVAILABLE
        (bound,) = quorum._settings.raft.local_endpoints
        sock = socket.create_connection(("127.0.0.1", bound.port), timeout=30)
        sock.sendall(b"".join(map(bytes, encode_request(52, 2, 7, "early", election(VoteRequest)))))
        sock.setblocking(False)
        await settle()
        with pytest.raises(BlockingIOError):
            sock.recv(1)
        early.append(sock)
        await start(quorum)

    monkeypatch.setattr(MetadataQuorum, "start", slow_start)

    async def main():
        properties = standalone_properties(tmp_path / "data", port=0, is_durable=False, changes={})
        async with running(properties):
            (sock,) = early
            frame = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(sock, 4096), 30)
            number, answer = decode_response(52, 2, frame[4:])
            assert (number, answer.error_code) == (7, 0)
            # What it tells is of the epoch that this start has led to.
            assert answer.topics[0].partitions[0].leader_epoch == 1
            sock.close()

    asyncio.run(main())


@pytest.mark.spec("RPC-44")
def test_requests_of_all_connections_are_handled_one_at_a_time_in_their_order(ask, monkeypatch):
    handled = defaultdict(list)
    threads = set()
    depth = [0]
    handle = RaftCore.handle_request

    def recording(core, source, request, now_ms):
        depth[0] += 1
        assert depth[0] == 1
        threads.add(threading.get_ident())
        handled[request.replica_key.node_id].append(request.last_epoch_end_offset)
        handle(core, source, request, now_ms)
        depth[0] -= 1

    monkeypatch.setattr(RaftCore, "handle_request", recording)
    count = 50

    def asking(controller, _):
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(RawClient(controller)) for _ in range(4)]
            for number in range(count):
                for index, client in enumerate(clients):
                    client.send(election(VoteRequest, replica_id=10 + index, last_offset=number), 2)
            for client in clients:
                numbers = [client.receive(52, 2)[0] for _ in range(count)]
                assert numbers == list(range(1, count + 1))

    ask(asking)
    assert handled == {10 + index: list(range(count)) for index in range(4)}
    assert len(threads) == 1


@pytest.mark.spec("FTCH-12", "RPC-11")
def test_a_leader_that_shuts_down_is_not_available():
    core = leader_of(1, 2, 3)
    core._replica.is_shutting_down = True  # it resigns with its next look at its timers: this is the moment before
    requests = [
        raft.FetchRequest(
            replica_key=key(2), current_leader_epoch=core.epoch, fetch_offset=Offset(3), last_fetched_epoch=Epoch(1)
        ),
        raft.FetchSnapshotRequest(
            replica_key=key(2), current_leader_epoch=core.epoch, snapshot_id=SnapshotId(Offset(3), Epoch(1)),
            position=0, max_bytes=10,
        ),
    ]  # fmt: skip
    core._leadership.handle_fetch(2, requests[0], 0)
    core._leadership.handle_fetch_snapshot(2, requests[1], 0)
    for effect in core.take_effects():
        assert effect.response.error_code == ErrorCode.BROKER_NOT_AVAILABLE
        assert (effect.response.leader_id, effect.response.leader_epoch) == (1, core.epoch)
    # A later or an earlier epoch is told first.
    for distance, error_code in ((-1, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        assert core._leadership._check_leader_request(Epoch(core.epoch + distance)) == error_code


@pytest.mark.spec("FTCH-12", "RPC-11")
def test_a_node_that_has_stopped_is_not_available(path):
    async def run():
        quorum = await started(path)
        assert quorum.is_leader
        await quorum.stop()
        requests = [metadata_fetch(), AddRaftVoterRequest(voter_id=4), RemoveRaftVoterRequest(voter_id=1)]
        for request in requests:
            with pytest.raises(KafkaError) as caught:
                quorum.replica.handle_request(request, version=0, listener_name="CONTROLLER")
            assert caught.value.code == ErrorCode.BROKER_NOT_AVAILABLE

    asyncio.run(run())


# What a fetch gets


async def fetched(quorum, offset, max_bytes):
    request = metadata_fetch(offset, epoch=quorum.replica.leader_epoch, max_bytes=max_bytes)
    answer = await quorum.replica.handle_request(request, version=17, listener_name="CONTROLLER")
    (partition,) = answer.responses[0].partitions
    assert partition.error_code == 0
    data = bytes(partition.records)
    return (
        [(batch.base_offset, batch.last_offset, batch.size_bytes) for batch in read_batches(data)],
        len(data),
        partition,
    )


@pytest.mark.spec("FTCH-26", "FTCH-51")
def test_a_fetch_gets_whole_batches_from_the_one_with_its_offset_on(path):
    async def run():
        quorum = await started(path, **{"metadata.max.idle.interval.ms": "0"})
        await register_broker(quorum)
        for index in range(5):
            await create_topic(quorum, f"t{index}", 3)
        everything, _, _ = await fetched(quorum, 0, 1 << 20)
        assert len(everything) > 6
        assert any(last > first for first, last, _ in everything)
        for number, (first, last, size_bytes) in enumerate(everything):
            rest = everything[number:]
            for offset in {first, last}:
                for max_bytes in (0, 1, size_bytes - 1, size_bytes):
                    assert (await fetched(quorum, offset, max_bytes))[0] == rest[:1]
                if len(rest) > 1:
                    two = size_bytes + rest[1][2]
                    assert (await fetched(quorum, offset, two - 1))[0] == rest[:1]
                    assert (await fetched(quorum, offset, two))[0] == rest[:2]
                    assert (await fetched(quorum, offset, two + 1))[0] == rest[:2]
                assert (await fetched(quorum, offset, 1 << 30))[0] == rest
        await quorum.stop()

    asyncio.run(run())


@pytest.mark.spec("FTCH-26")
def test_a_fetch_gets_what_is_not_committed_yet(path):
    async def run():
        quorum = await started(path, **{"metadata.max.idle.interval.ms": "0"})
        await register_broker(quorum)
        may_flush = threading.Event()
        flush = quorum.replica.log.log.flush
        quorum.replica.log.log.flush = lambda: (may_flush.wait(10), flush())[1]
        before = quorum.replica.high_watermark
        creating = create_topic(quorum, "late")
        while quorum.replica.log.log.log_end_offset == before:  # noqa: ASYNC110
            await asyncio.sleep(0)
        batches, _, partition = await fetched(quorum, before, 1 << 20)
        assert quorum.replica.high_watermark == partition.high_watermark == before
        assert (batches[0][0], batches[-1][1]) == (before, quorum.replica.log.log.log_end_offset - 1)
        assert not creating.done()
        may_flush.set()
        await creating
        assert quorum.replica.high_watermark > before
        await quorum.stop()

    asyncio.run(run())
