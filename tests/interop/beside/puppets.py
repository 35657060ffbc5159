"""Puppet brokers in front of one controller: they register, send heartbeats and lead as a script says.

What the controller answers and the records it writes become lines of text in which nothing depends on the run: brokers
and topics have their names, epochs their distances, and ids that are drawn by lot have none.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from interop.beside.cluster import metadata_files
from interop.harness import CLUSTER_ID, Server
from kraftlog._kraftlog import read_batches
from kraftlog.errors import ErrorCode
from kraftlog.features import supported_ranges
from kraftlog.types import Uuid
from kraftlog.wire.json import message_to_json
from kraftlog.wire.messages.alter_partition import AlterPartitionRequest
from kraftlog.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftlog.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftlog.wire.messages.broker_registration import BrokerRegistrationRequest
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from kraftlog.wire.messages.elect_leaders import ElectLeadersRequest
from kraftlog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftlog.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kraftlog.wire.messages.metadata_records import (
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
)
from kraftlog.wire.messages.unregister_broker import UnregisterBrokerRequest
from kraftlog.wire.records import decode_metadata_record
from raw_client import RawClient

__all__ = ["Puppets", "directory_of"]

ALL_SEEN = 1 << 60


def directory_of(broker_id: int, number: int = 0) -> Uuid:
    """A directory of a broker."""
    return Uuid(bytes([0xD1, broker_id, number]) * 5 + b"\x40")


class Puppets:
    """A script's hands: each method asks the controller one thing and writes down what comes of it.

    Args:
        server: A controller.

    Attributes:
        lines: What was asked, answered and written.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._client = RawClient(server.bootstrap, timeout_s=30)
        self.lines: list[str] = []
        self.epochs: dict[int, int] = {}
        self.topics: dict[str, Uuid] = {}
        self._incarnations: dict[int, int] = {}
        self._partitions: dict[tuple[Uuid, int], tuple[int, int]] = {}
        self._seen = -1
        self._written()

    def close(self) -> None:
        """Close the connection."""
        self._client.sock.close()

    def note(self, asked: str, answered: str) -> None:
        """Write down a step."""
        self.lines.append(f"{asked}: {answered}")
        written = self._written()
        # The order in which partitions are looked at depends on the ids of topics, which are drawn by lot.
        for is_change, lines in groupby(written, key=lambda line: line.startswith("PartitionChangeRecord")):
            self.lines += [f"    {line}" for line in (sorted(lines) if is_change else lines)]

    def _written(self) -> list[str]:
        """The records since the last step, each as one line."""
        lines = []
        for batch in read_batches(b"".join(metadata_files(self._server).values())):
            if batch.is_control:
                continue
            for offset, _, _, value, _ in batch.records():
                if offset <= self._seen or value is None:
                    continue
                self._seen = offset
                record, version = decode_metadata_record(value)
                self._remember(record)
                if not isinstance(record, NoOpRecord | RegisterControllerRecord):
                    lines.append(self._words(record, version))
        return lines

    def _remember(self, record: Any) -> None:
        if isinstance(record, TopicRecord):
            self.topics[record.name] = record.topic_id
        elif isinstance(record, PartitionRecord):
            self._partitions[record.topic_id, record.partition_id] = (record.leader_epoch, record.partition_epoch)
        elif isinstance(record, PartitionChangeRecord):
            leader_epoch, partition_epoch = self._partitions[record.topic_id, record.partition_id]
            changed = (leader_epoch + (record.leader != -2), partition_epoch + 1)
            self._partitions[record.topic_id, record.partition_id] = changed

    def _words(self, record: Any, version: int) -> str:
        names = {str(topic_id): name for name, topic_id in self.topics.items()}
        fields = message_to_json(record, version)
        shown = []
        for name, value in fields.items():
            if name in {"brokerEpoch", "features", "endPoints", "incarnationId"} or value is None:
                continue
            text = names.get(value, value) if isinstance(value, str) else value
            shown.append(f"{name}={text}")
        order = "" if not isinstance(record, RegisterBrokerRecord) else f" incarnation={record.incarnation_id[-1]}"
        return f"{type(record).__name__} v{version}{order} {' '.join(shown)}"

    # What brokers do

    def register(
        self, broker_id: int, *, new: bool = True, version: int = 4, clean: bool = False, **changes: Any
    ) -> None:
        """Register a broker: a new incarnation unless ``new`` is false."""
        incarnation = self._incarnations[broker_id] = self._incarnations.get(broker_id, 0) + new
        values: dict[str, Any] = {
            "broker_id": broker_id,
            "cluster_id": CLUSTER_ID,
            "incarnation_id": Uuid(bytes([0xAA, broker_id] * 7) + bytes([broker_id, incarnation])),
            "listeners": [BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="127.0.0.1", port=9)],
            "features": [
                BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in supported_ranges().items()
            ],
            "log_dirs": [directory_of(broker_id)],
        }
        if version >= 3:
            values["previous_broker_epoch"] = self.epochs.get(broker_id, -1) if clean else -1
        response = self._client.call(BrokerRegistrationRequest(**(values | changes)), version)
        before = self.epochs.get(broker_id, -1)
        if not response.error_code:
            self.epochs[broker_id] = response.broker_epoch
        epoch = "same" if response.broker_epoch == before else "new"
        self.note(
            f"register {broker_id} new={new} clean={clean} {sorted(changes)}",
            f"{ErrorCode.name_of(response.error_code)} epoch={'-' if response.error_code else epoch}",
        )

    def go_back(self, broker_id: int) -> None:
        """The latest incarnation, which was refused, is gone; the one before is meant from here on."""
        self._incarnations[broker_id] -= 1

    def beat(self, broker_id: int, *, stale: bool = False, seen: int = ALL_SEEN, **fields: Any) -> None:
        """Send a heartbeat; ``seen`` is the offset the broker has applied."""
        epoch = self.epochs.get(broker_id, -1) - stale
        request = BrokerHeartbeatRequest(
            broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=seen, **fields
        )
        answer = self._client.call(request)
        flags = f"caught_up={answer.is_caught_up} fenced={answer.is_fenced} shut_down={answer.should_shut_down}"
        asked = " ".join(f"{name}={value}" for name, value in fields.items())
        self.note(f"heartbeat {broker_id} {asked}", f"{ErrorCode.name_of(answer.error_code)} {flags}")

    def live(self, *broker_ids: int, **changes: Any) -> None:
        """Register brokers and have them unfenced."""
        for broker_id in broker_ids:
            self.register(broker_id, **changes)
            self.beat(broker_id)

    def isr(
        self,
        sender: int,
        topic: str,
        *members: int,
        index: int = 0,
        leader: int = 0,
        epoch: int = 0,
        recovery: int = 0,
        version: int = 3,
        stale: bool = False,
        member_epochs: dict[int, int] | None = None,
    ) -> None:
        """AlterPartition; ``leader`` and ``epoch`` are distances to the present leader and partition epoch."""
        topic_id = self.topics.get(topic, Uuid(b"u" * 16))
        leader_epoch, partition_epoch = self._partitions.get((topic_id, index), (0, 0))
        states = [
            AlterPartitionRequest.BrokerState(broker_id=member, broker_epoch=(member_epochs or {}).get(member, -1))
            for member in members
        ]
        partition = AlterPartitionRequest.PartitionData(
            partition_index=index,
            leader_epoch=leader_epoch + leader,
            partition_epoch=partition_epoch + epoch,
            leader_recovery_state=recovery,
            **({"new_isr_with_epochs": states} if version >= 3 else {"new_isr": members}),
        )
        request = AlterPartitionRequest(
            broker_id=sender,
            broker_epoch=self.epochs.get(sender, -1) - stale,
            topics=[AlterPartitionRequest.TopicData(topic_id=topic_id, partitions=[partition])],
        )
        answer = self._client.call(request, version)
        if answer.error_code:
            said = f"top {ErrorCode.name_of(answer.error_code)}"
        else:
            result = answer.topics[0].partitions[0]
            said = ErrorCode.name_of(result.error_code)
            if not result.error_code:
                said += (
                    f" leader={result.leader_id}/{result.leader_epoch} isr={list(result.isr)}"
                    f" epoch={result.partition_epoch} recovery={result.leader_recovery_state}"
                )
        self.note(f"isr of {topic}-{index} by {sender}: {members} {leader:+d} {epoch:+d} {recovery}", said)

    def assign(self, broker_id: int, directory: Uuid, *topics: str, index: int = 0, stale: bool = False) -> None:
        """AssignReplicasToDirs of one partition of each topic."""
        partition = AssignReplicasToDirsRequest.PartitionData(partition_index=index)
        request = AssignReplicasToDirsRequest(
            broker_id=broker_id,
            broker_epoch=self.epochs[broker_id] - stale,
            directories=[
                AssignReplicasToDirsRequest.DirectoryData(
                    id=directory,
                    topics=[
                        AssignReplicasToDirsRequest.TopicData(
                            topic_id=self.topics.get(name, Uuid(b"u" * 16)), partitions=[partition]
                        )
                        for name in topics
                    ],
                )
            ],
        )
        answer = self._client.call(request)
        codes = [
            ErrorCode.name_of(found.error_code)
            for held in answer.directories
            for topic in held.topics
            for found in topic.partitions
        ]
        self.note(f"assign {topics}-{index} of {broker_id}", f"{ErrorCode.name_of(answer.error_code)} {codes}")

    # What operators do

    def create(self, name: str, *replicas: list[int], factor: int = -1, **configs: str) -> None:
        """Create a topic with these replicas, or one partition of that replication factor."""
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=-1 if replicas else 1,
            replication_factor=factor,
            assignments=[
                CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
                for index, brokers in enumerate(replicas)
            ],
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        result = self._client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000)).topics[0]
        self.note(f"create {name} {replicas}", f"{ErrorCode.name_of(result.error_code)} {result.error_message}")

    def set(self, kind: int, resource: str, key: str, value: str | None) -> None:
        """SET or (None) DELETE one setting."""
        config = IncrementalAlterConfigsRequest.AlterableConfig(
            name=key, value=value, config_operation=int(value is None)
        )
        asked = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=kind, resource_name=resource, configs=[config]
        )
        result = self._client.call(IncrementalAlterConfigsRequest(resources=[asked])).responses[0]
        self.note(f"set {key}={value} of {kind} {resource!r}", ErrorCode.name_of(result.error_code))

    def elect(self, election_type: int, *wanted: tuple[str, int], version: int = 2, everything: bool = False) -> None:
        """ElectLeaders of partitions, or of all."""
        topics = [ElectLeadersRequest.TopicPartitions(topic=name, partitions=[index]) for name, index in wanted]
        kind = {"election_type": election_type} if version >= 1 else {}
        request = ElectLeadersRequest(**kind, topic_partitions=None if everything else topics, timeout_ms=30_000)
        answer = self._client.call(request, version)
        results = sorted(
            f"{topic.topic}-{found.partition_id} {ErrorCode.name_of(found.error_code)} {found.error_message}"
            for topic in answer.replica_election_results
            for found in topic.partition_result
        )
        self.note(f"elect {election_type} {wanted} {everything}", f"{ErrorCode.name_of(answer.error_code)} {results}")

    def reassign(
        self, topic: str, replicas: list[int] | None, *, index: int = 0, version: int = 1, allow: bool = True
    ) -> None:
        """AlterPartitionReassignments of one partition, then the list of all that run."""
        partition = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=index, replicas=replicas)
        wanted = AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[partition])
        option = {"allow_replication_factor_change": allow} if version >= 1 else {}
        answer = self._client.call(
            AlterPartitionReassignmentsRequest(topics=[wanted], timeout_ms=30_000, **option), version
        )
        result = answer.responses[0].partitions[0]
        said = f"{ErrorCode.name_of(answer.error_code)} {ErrorCode.name_of(result.error_code)} {result.error_message}"
        listed = self._client.call(ListPartitionReassignmentsRequest(topics=None, timeout_ms=30_000))
        running = sorted(
            f"{topic_listed.name}-{found.partition_index} {list(found.replicas)} +{list(found.adding_replicas)}"
            f" -{list(found.removing_replicas)}"
            for topic_listed in listed.topics
            for found in topic_listed.partitions
        )
        self.note(f"reassign {topic}-{index} {replicas} {allow}", f"{said}; running {running}")

    def unregister(self, broker_id: int) -> None:
        """UnregisterBroker."""
        answer = self._client.call(UnregisterBrokerRequest(broker_id=broker_id))
        self.note(f"unregister {broker_id}", f"{ErrorCode.name_of(answer.error_code)} {answer.error_message}")

    @property
    def end(self) -> int:
        """Offset of the last record seen (inclusive)."""
        return self._seen
