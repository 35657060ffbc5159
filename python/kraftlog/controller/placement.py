"""Where the replicas of new partitions go: striped over racks, unfenced brokers first.

Source: Kafka's StripedReplicaPlacer, its rules, not its random numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random

from kraftlog.controller.cluster_image import BrokerImage
from kraftlog.errors import ErrorCode, KafkaError

__all__ = ["place_replicas"]


class _Ring:
    """Brokers of one kind in a shuffled order, walked around."""

    def __init__(self, broker_ids: list[int], rng: Random) -> None:
        self._broker_ids = sorted(broker_ids)
        rng.shuffle(self._broker_ids)
        self._position = 0

    def __len__(self) -> int:
        return len(self._broker_ids)

    def next(self, taken: set[int]) -> int | None:
        for _ in range(len(self._broker_ids)):
            broker_id = self._broker_ids[self._position % len(self._broker_ids)]
            self._position += 1
            if broker_id not in taken:
                return broker_id
        return None


def place_replicas(
    brokers: Iterable[BrokerImage], *, partition_count: int, replication_factor: int, rng: Random
) -> Iterator[tuple[int, ...]]:
    """Choose replicas for new partitions; the first of each is its preferred leader.

    Args:
        brokers: Every registered broker.
        partition_count: How many partitions to place, at least one.
        replication_factor: Replicas of each, at least one.
        rng: Decides where the walk begins.

    Returns:
        The replicas of each partition, chosen when they are asked for.

    Raises:
        KafkaError: INVALID_REPLICATION_FACTOR; more replicas than brokers, or no broker is unfenced.
    """
    usable = [broker for broker in brokers if not broker.in_controlled_shutdown and not _is_cordoned(broker)]
    live = [broker for broker in usable if not broker.fenced]
    if not live:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, _reason(replication_factor, "All brokers are currently fenced.")
        )
    if replication_factor > len(usable):
        reason = (
            f"The target replication factor of {replication_factor} cannot be reached because only"
            f" {len(usable)} broker(s) are registered or some brokers have all their log directories cordoned."
        )
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, _reason(replication_factor, reason))
    racks: dict[str | None, tuple[_Ring, _Ring]] = {}
    for rack in sorted({broker.rack for broker in usable}, key=lambda name: (name is None, name or "")):
        members = [broker for broker in usable if broker.rack == rack]
        unfenced = _Ring([broker.broker_id for broker in members if not broker.fenced], rng)
        fenced = _Ring([broker.broker_id for broker in members if broker.fenced], rng)
        racks[rack] = (unfenced, fenced)
    names = list(racks)
    rng.shuffle(names)
    orders = [names[start:] + names[:start] for start in range(len(names))]
    return (_place_one(racks, orders[index % len(orders)], replication_factor) for index in range(partition_count))


def _is_cordoned(broker: BrokerImage) -> bool:
    return bool(broker.log_dirs) and set(broker.log_dirs) <= set(broker.cordoned_log_dirs or ())


def _place_one(
    racks: dict[str | None, tuple[_Ring, _Ring]], order: list[str | None], replication_factor: int
) -> tuple[int, ...]:
    taken: list[int] = []
    for kind in (0, 1):  # unfenced brokers first: the leader has to be one
        placed = True
        while placed and len(taken) < replication_factor:
            placed = False
            for rack in order:
                if len(taken) == replication_factor:
                    break
                broker_id = racks[rack][kind].next(set(taken))
                if broker_id is not None:
                    taken.append(broker_id)
                    placed = True
    return tuple(taken)


def _reason(replication_factor: int, reason: str) -> str:
    return f"Unable to replicate the partition {replication_factor} time(s): {reason}"
