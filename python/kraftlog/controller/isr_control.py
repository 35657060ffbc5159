"""AlterPartition: what a leader may change of the in-sync sets of its partitions (KIP-497, 704, 841, 903)."""

from __future__ import annotations

from typing import Final

from kraftlog.controller.config_control import ConfigControl
from kraftlog.controller.image import MetadataImage, VersionedRecord
from kraftlog.controller.partition_changes import PartitionChanges
from kraftlog.controller.result import ControllerResult
from kraftlog.controller.steps import STEP_ITEMS, Steps
from kraftlog.controller.topic_image import NO_LEADER_CHANGE, RECOVERED, RECOVERING, PartitionImage, TopicImage
from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

__all__ = ["IsrControl"]

_ANY_EPOCH: Final = -1

_Wanted = AlterPartitionRequest.PartitionData
_Partition = AlterPartitionResponse.PartitionData
_Members = tuple[tuple[int, int], ...]


class IsrControl:
    """Changes of in-sync sets; they read the image and answer with records.

    Args:
        image: The controller's image.
        configs: Settings of topics.
    """

    def __init__(self, image: MetadataImage, configs: ConfigControl) -> None:
        self._image = image
        self._configs = configs

    def alter_partition(self, request: AlterPartitionRequest) -> Steps[ControllerResult[AlterPartitionResponse]]:
        """Change in-sync sets and leader recovery states; each partition gets its own result.

        The sender's broker epoch has been checked.
        """
        changes = PartitionChanges(self._image, self._configs)
        records: list[VersionedRecord] = []
        topics: list[AlterPartitionResponse.TopicData] = []
        for wanted_topic in request.topics:
            yield
            topic = self._image.topics.by_id(wanted_topic.topic_id)
            partitions: list[_Partition] = []
            for number, wanted in enumerate(wanted_topic.partitions, 1):
                if number % STEP_ITEMS == 0:
                    yield
                if topic is None:
                    result = _refused(wanted, ErrorCode.UNKNOWN_TOPIC_ID)
                else:
                    result = self._alter(changes, request.broker_id, topic, wanted, records)
                partitions.append(result)
            topics.append(AlterPartitionResponse.TopicData(topic_id=wanted_topic.topic_id, partitions=partitions))
        return ControllerResult(AlterPartitionResponse(topics=topics), records, is_atomic=False)

    def _alter(
        self,
        changes: PartitionChanges,
        broker_id: int,
        topic: TopicImage,
        wanted: _Wanted,
        records: list[VersionedRecord],
    ) -> _Partition:
        partition = topic.partitions.get(wanted.partition_index)
        members = _members(wanted)
        code = self._refusal(broker_id, partition, wanted, members)
        if partition is None or code:
            return _refused(wanted, code)
        isr = tuple(member for member, _ in members)
        record = changes.record(
            topic, wanted.partition_index, changes.rules(topic), isr=isr, recovery_state=wanted.leader_recovery_state
        )
        if record is not None:
            records.append((record, changes.record_version))
            partition = partition.merge(record)
            if record.leader not in {NO_LEADER_CHANGE, broker_id}:
                # The change ended a reassignment that takes the leader away: it is recorded all the same (KIP-841).
                return _refused(wanted, ErrorCode.NEW_LEADER_ELECTED)
        return _Partition(
            partition_index=wanted.partition_index,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=partition.isr,
            leader_recovery_state=partition.leader_recovery_state,
            partition_epoch=partition.partition_epoch,
        )

    def _refusal(self, broker_id: int, partition: PartitionImage | None, wanted: _Wanted, members: _Members) -> int:
        """The error of a change that is refused, in the order in which Kafka's controller checks; NONE for the rest."""
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
            # The leader knows more than this controller, which therefore is not the active one any more (KAFKA-14154).
            return ErrorCode.NOT_CONTROLLER
        if wanted.leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if broker_id != partition.leader:
            return ErrorCode.INVALID_REQUEST
        if wanted.partition_epoch < partition.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        isr = [member for member, _ in members]
        if len(set(isr)) < len(isr) or not set(isr) <= set(partition.replicas) or partition.leader not in isr:
            return ErrorCode.INVALID_REQUEST
        if not _is_recovery_allowed(partition, wanted.leader_recovery_state, len(isr)):
            return ErrorCode.INVALID_REQUEST
        if not all(self._is_eligible(*member) for member in members):
            return ErrorCode.INELIGIBLE_REPLICA
        return ErrorCode.NONE

    def _is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a broker may be in sync: active, and the incarnation that the leader has heard of."""
        cluster = self._image.cluster
        if not cluster.is_active(broker_id):
            return False
        return broker_epoch in {_ANY_EPOCH, cluster.brokers[broker_id].epoch}


def _members(wanted: _Wanted) -> _Members:
    """Ids and broker epochs; before version 3 a request has no epochs."""
    if wanted.new_isr_with_epochs:
        return tuple((state.broker_id, state.broker_epoch) for state in wanted.new_isr_with_epochs)
    return tuple((broker_id, _ANY_EPOCH) for broker_id in wanted.new_isr)


def _is_recovery_allowed(partition: PartitionImage, state: int, isr_size: int) -> bool:
    """Whether the leader may be in this recovery state: alone while it recovers, and it never begins to."""
    if state == RECOVERING:
        return isr_size == 1 and partition.leader_recovery_state == RECOVERING
    return state == RECOVERED


def _refused(wanted: _Wanted, code: int) -> _Partition:
    return _Partition(partition_index=wanted.partition_index, error_code=code)
