"""What a list of replicas that a client wrote by hand has to be like."""

from __future__ import annotations

from collections.abc import Sequence

from kraftlog.controller.cluster_image import ClusterImage
from kraftlog.errors import ErrorCode, KafkaError

__all__ = ["check_assignment"]


def check_assignment(cluster: ClusterImage, replicas: Sequence[int], factor: int | None = None) -> None:
    """Check the replicas of one partition; fenced brokers are allowed.

    Args:
        cluster: The registered brokers.
        replicas: Broker ids, the preferred leader first.
        factor: How many there have to be; None for any number.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT; no replica, an unknown or repeated broker, or another number.
    """
    if not replicas:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes an empty replica list."
        )
    ordered = sorted(replicas)
    for position, broker_id in enumerate(ordered):
        if broker_id not in cluster.brokers:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered.",
            )
        if position and ordered[position - 1] == broker_id:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes the broker {broker_id} more than once.",
            )
    if factor is not None and factor != len(replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is"
            f" not consistent with previous partitions, which have {factor} replica(s).",
        )
