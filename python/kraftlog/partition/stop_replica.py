"""Which replicas a StopReplica request stops: the fencing of KIP-570, without I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraftlog.errors import ErrorCode
from kraftlog.types import TopicPartition

__all__ = ["EPOCH_DURING_DELETE", "NO_EPOCH", "ControllerFence", "ReplicaStop", "fenced_error"]

NO_EPOCH: Final = -1
EPOCH_DURING_DELETE: Final = -2


@dataclass(frozen=True, slots=True)
class ReplicaStop:
    """One replica that is to be stopped.

    Attributes:
        topic_partition: Which one.
        leader_epoch: As the controller knows it; ``NO_EPOCH`` before version 3, ``EPOCH_DURING_DELETE`` for a topic
            that is being deleted.
        is_deleted: Whether its log goes, too.
    """

    topic_partition: TopicPartition
    leader_epoch: int
    is_deleted: bool


def fenced_error(leader_epoch: int, local_epoch: int) -> int:
    """0, or FENCED_LEADER_EPOCH for a stop that is older than the replica.

    The deletion of a topic does not raise leader epochs, so its marker passes whatever the replica knows.

    Args:
        leader_epoch: Of the request.
        local_epoch: The newest leader epoch that this broker knows of the partition; -1 for none.

    Source: KIP-570.
    """
    is_compared = leader_epoch not in {NO_EPOCH, EPOCH_DURING_DELETE}
    return ErrorCode.FENCED_LEADER_EPOCH if is_compared and leader_epoch < local_epoch else ErrorCode.NONE


class ControllerFence:
    """Remembers the newest controller that gave orders to this broker.

    Attributes:
        controller_epoch: Of that controller; -1 before any.
    """

    def __init__(self) -> None:
        self.controller_epoch = -1

    def admit(self, *, controller_epoch: int, metadata_epoch: int, request_broker_epoch: int, broker_epoch: int) -> int:
        """0, or why a request is refused as a whole; the controller of an admitted one is remembered.

        Args:
            controller_epoch: Of the request.
            metadata_epoch: Of the metadata quorum's leader whose records this broker has applied. A quorum continues
                the epochs of the controllers before it.
            request_broker_epoch: The registration that the request is meant for; -1 before version 1.
            broker_epoch: This broker's registration.

        Source: KIP-380; ``KafkaApis.isBrokerEpochStale`` and ``ReplicaManager.stopReplicas`` of Kafka 3.9.
        """
        if 0 <= request_broker_epoch < broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if controller_epoch < max(self.controller_epoch, metadata_epoch):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = controller_epoch
        return ErrorCode.NONE
