"""AlterPartitionReassignments: begin, change and cancel reassignments of replicas (KIP-455, KIP-860)."""

from __future__ import annotations

from kraftlog.controller.assignment_check import check_assignment
from kraftlog.controller.config_control import ConfigControl
from kraftlog.controller.image import MetadataImage, VersionedRecord
from kraftlog.controller.partition_change import Election
from kraftlog.controller.partition_changes import PartitionChanges, check_record_count
from kraftlog.controller.reassignment import Reassignment, RevertedReassignment
from kraftlog.controller.result import ControllerResult
from kraftlog.controller.steps import STEP_ITEMS, Steps
from kraftlog.controller.topic_image import RECOVERING, PartitionImage, TopicImage
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from kraftlog.wire.messages.metadata_records import PartitionChangeRecord

__all__ = ["ReassignmentControl"]

_Wanted = AlterPartitionReassignmentsRequest.ReassignablePartition
_Topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Partition = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse


class ReassignmentControl:
    """The reassignments; they read the image and answer with records.

    Args:
        image: The controller's image.
        configs: Settings of topics.
    """

    def __init__(self, image: MetadataImage, configs: ConfigControl) -> None:
        self._image = image
        self._configs = configs

    def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> Steps[ControllerResult[AlterPartitionReassignmentsResponse]]:
        """Begin reassignments, give running ones a new target, or (null replicas) cancel them.

        Each partition gets its own result.

        Raises:
            KafkaError: POLICY_VIOLATION; the request names too many partitions.
        """
        changes = PartitionChanges(self._image, self._configs)
        allow_factor_change = request.allow_replication_factor_change
        records: list[VersionedRecord] = []
        topics: list[_Topic] = []
        for topic in request.topics:
            yield
            partitions: list[_Partition] = []
            for number, wanted in enumerate(topic.partitions, 1):
                if number % STEP_ITEMS == 0:
                    yield
                code, message = ErrorCode.NONE, None
                try:
                    record = self._alter(changes, topic.name, wanted, allow_factor_change=allow_factor_change)
                    if record is not None:
                        records.append((record, changes.record_version))
                except KafkaError as error:
                    code, message = error.code, error.message
                check_record_count(len(records))
                partitions.append(
                    _Partition(partition_index=wanted.partition_index, error_code=code, error_message=message)
                )
            topics.append(_Topic(name=topic.name, partitions=partitions))
        response = AlterPartitionReassignmentsResponse(
            error_message=None, allow_replication_factor_change=allow_factor_change, responses=topics
        )
        return ControllerResult(response, records)

    def _alter(
        self, changes: PartitionChanges, name: str, wanted: _Wanted, *, allow_factor_change: bool
    ) -> PartitionChangeRecord | None:
        topic = self._image.topics.by_name(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
        index = wanted.partition_index
        partition = topic.partitions.get(index)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
        if wanted.replicas is None:
            return self._cancel(changes, topic, index, partition)
        target = tuple(wanted.replicas)
        check_assignment(self._image.cluster, target)
        if not allow_factor_change:
            _check_factor(partition, target)
        reassignment = Reassignment.of(partition.replicas, target)
        # Kafka keeps the old lists where the new ones are empty: a replica that is then both added and removed never
        # lets the reassignment end. Here the lists always follow from the replicas.
        return changes.record(
            topic,
            index,
            changes.rules(topic),
            election=Election.ONLINE,
            replicas=reassignment.replicas,
            removing=reassignment.removing,
            adding=reassignment.adding,
        )

    @staticmethod
    def _cancel(
        changes: PartitionChanges, topic: TopicImage, index: int, partition: PartitionImage
    ) -> PartitionChangeRecord | None:
        if not partition.is_reassigning:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        rules = changes.rules(topic)
        reverted = RevertedReassignment.of(partition, is_elr_enabled=rules.is_elr_enabled)
        if not reverted.replicas:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Invalid replica assignment: addingReplicas contains all replicas.",
            )
        if reverted.is_unclean and not rules.is_unclean_election_allowed:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean"
                " leader election.",
            )
        return changes.record(
            topic,
            index,
            rules,
            isr=reverted.isr,
            replicas=reverted.replicas,
            removing=(),
            adding=(),
            recovery_state=RECOVERING if reverted.is_unclean else None,
        )


def _check_factor(partition: PartitionImage, target: tuple[int, ...]) -> None:
    """Whether the target has as many replicas as the partition has outside the running reassignment (KIP-860).

    Raises:
        KafkaError: INVALID_REPLICATION_FACTOR.
    """
    outside = {*partition.replicas, *partition.adding_replicas} - set(partition.removing_replicas)
    current = len(outside) if partition.is_reassigning else len(partition.replicas)
    if current != len(target):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {current} to {len(target)}",
        )
