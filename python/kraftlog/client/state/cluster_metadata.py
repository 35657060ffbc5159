"""What a client knows of a cluster: nodes, topics, leaders and the newest leader epochs (KIP-320, KIP-951, KIP-899)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from kraftlog.client.state.position import LeaderAndEpoch
from kraftlog.errors import ErrorCode
from kraftlog.types import TopicPartition, Uuid
from kraftlog.wire.messages.metadata import MetadataResponse

__all__ = ["ClusterMetadata", "Node", "PartitionInfo", "TopicInfo"]

# Before this version a broker may report the epoch of an older leader (KAFKA-8351).
RELIABLE_EPOCH_VERSION = 9


@dataclass(frozen=True, slots=True)
class Node:
    """A broker's address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"node {self.node_id} at {self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition as the newest accepted metadata has it.

    Attributes:
        leader_id: None while there is no leader.
        leader_epoch: None when the broker does not report a reliable one.
        replicas: Node ids.
    """

    leader_id: int | None
    leader_epoch: int | None = None
    replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic.

    Attributes:
        topic_id: Zero when the broker reports none.
        partitions: By number.
        error_code: Of the topic as a whole.
    """

    topic_id: Uuid = Uuid.ZERO
    partitions: Mapping[int, PartitionInfo] = field(default_factory=dict)
    error_code: int = 0
    is_internal: bool = False


class ClusterMetadata:
    """Kafka's ``Metadata``: accepts no leader that is older than one seen before.

    Attributes:
        nodes: Brokers by id.
        topics: By name.
        cluster_id: As the broker reports it.
        is_update_wanted: Whether something showed that newer metadata is needed.
        update_count: Answers accepted so far.
    """

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.cluster_id: str | None = None
        self.is_update_wanted = True
        self.update_count = 0
        self._seen_epochs: dict[TopicPartition, int] = {}

    def update(
        self,
        response: MetadataResponse,
        version: int,
        *,
        retains: Callable[[str, bool], bool] = lambda _name, _is_internal: True,
        wanted: Collection[str] = (),
    ) -> None:
        """Take an answer to a Metadata request of ``version``.

        Args:
            response: The answer.
            version: Of the request.
            retains: Whether a topic is kept, by its name and by whether it is internal.
            wanted: Topics that do not exist if the answer does not have them.
        """
        has_epochs = version >= RELIABLE_EPOCH_VERSION
        self.nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack) for broker in response.brokers
        }
        self.cluster_id = response.cluster_id
        topics: dict[str, TopicInfo] = {}
        is_incomplete = False
        for topic in response.topics:
            if topic.name is None or not retains(topic.name, topic.is_internal):
                continue
            known = self.topics.get(topic.name)
            if topic.error_code:
                # The epochs stay: a topic that is created again has another id, which lets lower epochs in.
                topics[topic.name] = TopicInfo(known.topic_id if known else Uuid.ZERO, {}, topic.error_code)
                is_incomplete |= ErrorCode.is_retriable(topic.error_code)
                continue
            partitions = {}
            for partition in topic.partitions:
                found = self._accept(topic, partition, known, has_epochs=has_epochs)
                partitions[partition.partition_index] = found
                is_incomplete |= found.leader_id is None
            topics[topic.name] = TopicInfo(topic.topic_id, partitions, 0, topic.is_internal)
        for name in wanted:
            if name not in topics:
                known = self.topics.get(name)
                topics[name] = TopicInfo(
                    known.topic_id if known else Uuid.ZERO, {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
        self.topics = topics
        self.is_update_wanted |= is_incomplete
        self.update_count += 1

    def _accept(
        self,
        topic: MetadataResponse.MetadataResponseTopic,
        partition: MetadataResponse.MetadataResponsePartition,
        known: TopicInfo | None,
        *,
        has_epochs: bool,
    ) -> PartitionInfo:
        name = TopicPartition(topic.name or "", partition.partition_index)
        leader_id = partition.leader_id if partition.leader_id >= 0 else None
        found = PartitionInfo(leader_id, None, tuple(partition.replica_nodes))
        if not has_epochs or partition.leader_epoch < 0:
            self._seen_epochs.pop(name, None)
            return found
        found = replace(found, leader_epoch=partition.leader_epoch)
        seen = self._seen_epochs.get(name)
        is_other_topic = topic.topic_id != Uuid.ZERO and (known is None or topic.topic_id != known.topic_id)
        if seen is None or is_other_topic or partition.leader_epoch >= seen:
            self._seen_epochs[name] = partition.leader_epoch
            return found
        old = known.partitions.get(partition.partition_index) if known is not None else None
        return old if old is not None else PartitionInfo(None, None, found.replicas)

    def note_epoch(self, partition: TopicPartition, epoch: int) -> bool:
        """Remember a leader epoch that another answer showed; True when it is newer, so that an update is wanted."""
        seen = self._seen_epochs.get(partition)
        if seen is None or epoch <= seen:
            return False
        self._seen_epochs[partition] = epoch
        self.is_update_wanted = True
        return True

    def last_seen_epoch(self, partition: TopicPartition) -> int | None:
        """The newest epoch that any answer showed."""
        return self._seen_epochs.get(partition)

    def leader_of(self, partition: TopicPartition) -> LeaderAndEpoch:
        """The leader; without a node while metadata is older than an epoch seen elsewhere."""
        seen = self._seen_epochs.get(partition)
        info = self.partition(partition)
        if info is None or (seen is not None and (info.leader_epoch if info.leader_epoch is not None else -1) != seen):
            return LeaderAndEpoch(None, seen)
        leader_id = info.leader_id if info.leader_id in self.nodes else None
        return LeaderAndEpoch(leader_id, info.leader_epoch)

    def partition(self, partition: TopicPartition) -> PartitionInfo | None:
        """A partition, None when it is not known."""
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)

    def topic_id(self, topic: str) -> Uuid:
        """The id of a topic, zero when it has none."""
        found = self.topics.get(topic)
        return Uuid.ZERO if found is None else found.topic_id

    def apply_leaders(
        self, leaders: Mapping[TopicPartition, tuple[int, int]], nodes: Collection[Node]
    ) -> set[TopicPartition]:
        """Take leaders and end points of a Fetch or Produce answer (KIP-951) where they are newer.

        Args:
            leaders: Leader id and leader epoch by partition.
            nodes: End points of the same answer.

        Returns:
            The partitions whose leader changed.
        """
        offered = {node.node_id: node for node in nodes}
        changed = set()
        for partition, (leader_id, epoch) in leaders.items():
            info = self.partition(partition)
            if info is None or leader_id < 0 or epoch < 0:
                continue
            seen = self._seen_epochs.get(partition, -1)
            if epoch <= max(seen, info.leader_epoch if info.leader_epoch is not None else -1):
                continue
            if leader_id not in offered and leader_id not in self.nodes:
                continue
            if leader_id in offered:
                self.nodes[leader_id] = offered[leader_id]
            topic = self.topics[partition.topic]
            partitions = {
                **topic.partitions,
                partition.partition: replace(info, leader_id=leader_id, leader_epoch=epoch),
            }
            self.topics[partition.topic] = replace(topic, partitions=partitions)
            self._seen_epochs[partition] = epoch
            changed.add(partition)
        return changed

    def forget(self) -> None:
        """Begin again from the bootstrap servers, whose cluster may be another one (KIP-899, KIP-1102)."""
        self.nodes = {}
        self.topics = {}
        self.cluster_id = None
        self._seen_epochs = {}
        self.is_update_wanted = True
