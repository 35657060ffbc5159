"""A script's hands at one broker: each method asks it one thing and writes down the answer as a line of text.

The broker is node 1, its own controller. Broker 2 is a puppet: it registers, and leads or follows as the script says.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from interop.beside.puppets import Puppets
from interop.harness import Server
from kraftlog._kraftlog import encode_batch, read_batches
from kraftlog.errors import ErrorCode
from kraftlog.types import Uuid
from kraftlog.wire.frame import encode_request
from kraftlog.wire.messages.delete_records import DeleteRecordsRequest
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.list_offsets import ListOffsetsRequest
from kraftlog.wire.messages.metadata import MetadataRequest
from kraftlog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kraftlog.wire.messages.produce import ProduceRequest
from kraftlog.wire.registry import API_BY_KEY
from raw_client import RawClient

__all__ = ["FOREIGN", "NODE", "PUPPET", "BrokerScript"]

NODE, PUPPET, FOREIGN = 1, 2, 77
PREFERRED = 0
NO_ID = Uuid(b"no-topic-has-it!")


def name_of(error_code: int) -> str:
    return ErrorCode.name_of(error_code)


class BrokerScript:
    """Asks the broker, and moves leaders between it and the puppet.

    Attributes:
        lines: What was asked and answered.
        client: A connection for clients; made anew when the broker closed it.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        controller: Any = SimpleNamespace(
            bootstrap=f"127.0.0.1:{server.controller_port}", data_dir=Path(server.data_dir)
        )
        self.puppets = Puppets(controller)
        self.client = RawClient(server.bootstrap, timeout_s=30)
        self.lines: list[str] = []

    def close(self) -> None:
        """Close the connections."""
        self.puppets.close()
        self.client.sock.close()

    def note(self, asked: str, answered: object) -> None:
        self.lines.append(f"{asked}: {answered}")

    def ask(self, request: Any, version: int) -> Any:
        """The response, or ``closed``."""
        try:
            return self.client.call(request, version)
        except (ConnectionError, AssertionError):
            self.client.sock.close()
            self.client = RawClient(self.server.bootstrap, timeout_s=30)
            return None

    # -- the metadata --------------------------------------------------------------------------------------------

    def create(self, name: str, *replicas: list[int], **configs: str) -> None:
        """Create a topic, and wait until the broker has opened what it has of it."""
        self.puppets.create(name, *replicas, **configs)
        self.settle(name)

    def epoch(self, name: str, index: int = 0) -> int:
        """The leader epoch in the metadata."""
        return self.puppets._partitions[self.puppets.topics[name], index][0]

    def lead(self, name: str, leader: int, index: int = 0) -> None:
        """Elect one of two replicas, in the next leader epoch."""
        other = NODE + PUPPET - leader
        self.puppets.reassign(name, [leader, other], index=index)
        before = self.epoch(name, index)
        self.puppets.elect(PREFERRED, (name, index))
        assert self.epoch(name, index) == before + 1, self.puppets.lines[-4:]
        self.settle(name, index)

    def settle(self, name: str, index: int | None = None) -> None:
        """Wait until the broker has applied the newest leader epochs: it refuses only those above them."""
        topic_id = self.puppets.topics[name]
        known = [key[1] for key in self.puppets._partitions if key[0] == topic_id]
        deadline = time.monotonic() + 60
        for wanted in known if index is None else [index]:
            epoch = self.epoch(name, wanted)
            while True:
                # The topic may be unknown to the broker yet: who hosts it is asked anew in every round.
                if not self.hosts(name, wanted):
                    asked, expected = -1, ErrorCode.NOT_LEADER_OR_FOLLOWER
                elif epoch:
                    asked, expected = epoch - 1, ErrorCode.FENCED_LEADER_EPOCH
                else:
                    asked, expected = 1, ErrorCode.UNKNOWN_LEADER_EPOCH
                answer = self._list(name, wanted, -2, version=10, epoch=asked, replica=-2)
                code = answer.topics[0].partitions[0].error_code
                if code == expected:
                    break
                if time.monotonic() >= deadline:
                    self.puppets.note("meanwhile", "")
                    lines = "\n".join(self.puppets.lines[-9:])
                    raise AssertionError(f"{name}-{wanted}, asked for epoch {asked}: {name_of(code)}\n{lines}")
                time.sleep(0.01)

    def hosts(self, name: str, index: int) -> bool:
        """Whether node 1 has a replica."""
        return NODE in self.replicas(name, index)

    def replicas(self, name: str, index: int) -> Sequence[int]:
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
        for partition in self.ask(request, 12).topics[0].partitions:
            if partition.partition_index == index:
                return tuple(partition.replica_nodes)
        return ()

    # -- produce -------------------------------------------------------------------------------------------------

    def batch(self, *values: bytes, key: bytes | None = None, timestamp: int | None = None, **settings: Any) -> bytes:
        at = int(time.time() * 1000) if timestamp is None else timestamp
        return encode_batch([(at, key, value, []) for value in values], **settings)

    def produce_request(
        self, name: str, index: int, records: bytes, *, acks: int = 1, version: int = 12, timeout_ms: int = 10_000
    ) -> ProduceRequest:
        topic_id = self.puppets.topics.get(name, NO_ID)
        names = {"topic_id": topic_id} if version >= 13 else {"name": name}
        data = ProduceRequest.PartitionProduceData(index=index, records=records)
        topic = ProduceRequest.TopicProduceData(partition_data=[data], **names)
        return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])

    def produce(
        self, name: str, records: bytes | None = None, *, index: int = 0, what: str = "", **settings: Any
    ) -> None:
        version = settings.get("version", 12)
        data = self.batch(b"v") if records is None else records
        response = self.ask(self.produce_request(name, index, data, **settings), version)
        asked = f"produce {name}-{index} {what} {settings}"
        self.note(asked, self.produced(response, version))

    def produced(self, response: Any, version: int) -> str:
        """A Produce response in one line."""
        if response is None:
            return "closed"
        partition = response.responses[0].partition_responses[0]
        text = name_of(partition.error_code)
        if not partition.error_code:  # with an error Kafka tells them at times
            text += f" offset={partition.base_offset}"
            text += f" start={partition.log_start_offset}" if version >= 5 else ""
        if version >= 8:
            text += f" {[error.batch_index for error in partition.record_errors]}"
        if version >= 10:
            text += f" leader={partition.current_leader.leader_id}/{partition.current_leader.leader_epoch}"
            text += f" at={[node.node_id for node in response.node_endpoints]}"
        return text

    # -- fetch ---------------------------------------------------------------------------------------------------

    def fetch_request(
        self,
        name: str,
        index: int,
        offset: int,
        *,
        epoch: int = -1,
        last: int = -1,
        replica: int = -1,
        registration: int = 0,
        version: int = 17,
        wait_ms: int = 0,
        isolation: int = 0,
        session: tuple[int, int] = (0, -1),
    ) -> FetchRequest:
        partition: dict[str, Any] = {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        if version >= 9:
            partition["current_leader_epoch"] = epoch
        if version >= 12:
            partition["last_fetched_epoch"] = last
        topic_id = self.puppets.topics.get(name, NO_ID)
        names = {"topic_id": topic_id} if version >= 13 else {"topic": name}
        fields: dict[str, Any] = {}
        if version >= 15:
            registered = self.puppets.epochs.get(replica, -1) + registration if replica != FOREIGN else 1
            fields["replica_state"] = FetchRequest.ReplicaState(replica_id=replica, replica_epoch=registered)
        else:
            fields["replica_id"] = replica
        if version >= 7:
            fields["session_id"], fields["session_epoch"] = session
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=isolation,
            topics=[FetchRequest.FetchTopic(partitions=[FetchRequest.FetchPartition(**partition)], **names)],
            **fields,
        )

    def _fetch(self, name: str, index: int, offset: int, *, version: int, **settings: Any) -> Any:
        return self.ask(self.fetch_request(name, index, offset, version=version, **settings), version)

    def fetch(self, name: str, offset: int, *, index: int = 0, version: int = 17, **settings: Any) -> Any:
        response = self._fetch(name, index, offset, version=version, **settings)
        self.note(f"fetch {name}-{index} at {offset} v{version} {settings}", self.fetched(response, version))
        return response

    def fetched(self, response: Any, version: int) -> str:
        """A Fetch response in one line."""
        if response is None:
            return "closed"
        if version >= 7 and response.error_code:
            return f"top {name_of(response.error_code)}"
        if not response.responses:
            return "nothing"
        partition = response.responses[0].partitions[0]
        count = sum(len(list(batch.records())) for batch in read_batches(bytes(partition.records or b"")))
        text = f"{name_of(partition.error_code)} hw={partition.high_watermark} lso={partition.last_stable_offset}"
        text += f" records={count}"
        if version >= 5:
            text += f" start={partition.log_start_offset}"
        if version >= 12:
            text += f" diverging={partition.diverging_epoch.epoch}/{partition.diverging_epoch.end_offset}"
            text += f" leader={partition.current_leader.leader_id}/{partition.current_leader.leader_epoch}"
        if version >= 16:
            text += f" at={[node.node_id for node in response.node_endpoints]}"
        return text

    # -- offsets -------------------------------------------------------------------------------------------------

    def _list(
        self,
        name: str,
        index: int,
        timestamp: int,
        *,
        version: int,
        epoch: int = -1,
        replica: int = -1,
        isolation: int = 0,
    ) -> Any:
        extra = {"current_leader_epoch": epoch} if version >= 4 else {}
        partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=timestamp, **extra)
        topics = [ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[partition])]
        return self.ask(ListOffsetsRequest(replica_id=replica, topics=topics), version)

    def list(self, name: str, timestamp: int, *, index: int = 0, version: int = 10, **settings: Any) -> None:
        found = self._list(name, index, timestamp, version=version, **settings).topics[0].partitions[0]
        epoch = found.leader_epoch if version >= 4 else "-"
        asked = f"list {name}-{index} {timestamp} v{version} {settings}"
        self.note(asked, f"{name_of(found.error_code)} {found.offset} epoch={epoch}")

    def end_of_epoch(
        self,
        name: str,
        leader_epoch: int,
        *,
        index: int = 0,
        version: int = 4,
        epoch: int = -1,
        replica: int | None = None,
    ) -> None:
        partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
            partition=index, current_leader_epoch=epoch, leader_epoch=leader_epoch
        )
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=name, partitions=[partition])
        fields = {} if replica is None else {"replica_id": replica}
        response = self.ask(OffsetForLeaderEpochRequest(topics=[topic], **fields), version)
        asked = f"end of epoch {leader_epoch} of {name}-{index} v{version} epoch={epoch} replica={replica}"
        found = response.topics[0].partitions[0]
        self.note(asked, f"{name_of(found.error_code)} {found.leader_epoch} {found.end_offset}")

    def delete_records(self, name: str, offset: int, index: int = 0) -> None:
        partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=offset)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name=name, partitions=[partition])
        found = self.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=300), 2).topics[0].partitions[0]
        self.note(f"delete records of {name}-{index} to {offset}", f"{name_of(found.error_code)} {found.low_watermark}")

    # -- anything ------------------------------------------------------------------------------------------------

    def metadata(self, name: str, version: int) -> None:
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
        topic = self.ask(request, version).topics[0]
        partitions = [
            (name_of(found.error_code), found.leader_id, sorted(found.replica_nodes), sorted(found.isr_nodes))
            for found in topic.partitions
        ]
        self.note(f"metadata of {name} v{version}", f"{name_of(topic.error_code)} {partitions}")

    def raw(self, what: str, data: bytes) -> None:
        """Send bytes over a connection of their own; whether it is closed, and the others are not."""
        with RawClient(self.server.bootstrap, timeout_s=10) as client:
            client.sock.sendall(data)
            try:
                answered = "closed" if client.is_closed_by_peer() else "answered"
            except TimeoutError:
                answered = "silent"
        self.note(f"send {what}", answered)

    def later(self, request: Any, version: int) -> RawClient:
        """Send a request that waits, over a connection of its own."""
        client = RawClient(self.server.bootstrap, timeout_s=30)
        client.send(request, version)
        return client

    @staticmethod
    def answer_of(client: RawClient, api_key: int, version: int) -> Any:
        """What a request of ``later`` was answered."""
        with client:
            return client.receive(api_key, version)[1]

    def trailing(self, request: Any, version: int, name: str) -> None:
        """A request with bytes behind it that its version does not have."""
        with RawClient(self.server.bootstrap, timeout_s=30) as client:
            parts = encode_request(request.API_KEY, version, 1, "t", request)
            frame = b"".join(map(bytes, parts))[4:] + b"more"
            client.sock.sendall(len(frame).to_bytes(4, "big") + frame)
            try:
                client.receive(request.API_KEY, version)
                answered = "answered"
            except ConnectionError:
                answered = "closed"
        self.note(f"{name} with trailing bytes", answered)

    def unknown_api_versions(self) -> None:
        """ApiVersions of a version nobody has."""
        frame = (18).to_bytes(2, "big") + (99).to_bytes(2, "big") + (7).to_bytes(4, "big") + b"\xff\xff\0"
        frame += b"\x02t\x021\0"
        with RawClient(self.server.bootstrap, timeout_s=30) as client:
            client.sock.sendall(len(frame).to_bytes(4, "big") + frame)
            correlation_id, answer = client.receive(18, 0)
        listed = [(key.api_key, key.min_version, key.max_version) for key in answer.api_keys]
        self.note("ApiVersions v99", f"{correlation_id} {name_of(answer.error_code)} {listed}")

    def unserved(self, api_key: int, version: int) -> None:
        """A version that no release of 4.x has."""
        frame = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff" + bytes(40)
        self.raw(f"{API_BY_KEY[api_key].name} v{version}", len(frame).to_bytes(4, "big") + frame)
