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
    """Brokers of one kind in one rack. Each partition takes them in turn, from one further than the last began."""

    def __init__(self) -> None:
        self.broker_ids: list[int] = []
        self._start = 0
        self._taken = 0
        self._round = 0

    def begin(self, rng: Random) -> None:
        if self.broker_ids:
            self.broker_ids.sort()
            self._start = rng.randrange(len(self.broker_ids))

    def next(self, number: int) -> int | None:
        """The next broker for the partition of this number in the round; None when it has all of them."""
        count = len(self.broker_ids)
        if not count:
            return None
        if self._round != number:
            self._round, self._taken, self._start = number, 0, (self._start + 1) % count
        if self._taken >= count:
            return None
        broker_id = self.broker_ids[(self._start + self._taken) % count]
        self._taken += 1
        return broker_id


class _Rack:
    """The usable brokers of one rack."""

    def __init__(self) -> None:
        self.unfenced, self.fenced = _Ring(), _Ring()

    def next(self, number: int) -> int | None:
        broker_id = self.unfenced.next(number)
        return self.fenced.next(number) if broker_id is None else broker_id


class _Striping:
    """The racks, walked around.

    A round has as many partitions as there are unfenced brokers; after it the racks and brokers are shuffled.
    """

    def __init__(self, brokers: list[BrokerImage], rng: Random) -> None:
        by_name: dict[str | None, _Rack] = {}
        for broker in brokers:
            rack = by_name.setdefault(broker.rack, _Rack())
            (rack.fenced if broker.fenced else rack.unfenced).broker_ids.append(broker.broker_id)
        # Kafka's order of names: no rack comes first.
        self._racks = [by_name[name] for name in sorted(by_name, key=lambda name: (name is not None, name or ""))]
        for rack in self._racks:
            rack.fenced.begin(rng)
            rack.unfenced.begin(rng)
        self._unfenced_count = sum(not broker.fenced for broker in brokers)
        self._offset = rng.randrange(len(self._racks))
        self._number = 0
        self._rng = rng

    def place(self, replication_factor: int) -> tuple[int, ...]:
        """Replicas of the next partition; there are enough brokers, one of them unfenced."""
        if self._number == self._unfenced_count > 1:
            self._shuffle()
            self._number = 0
        self._offset %= len(self._racks)
        first_rack, leader = self._first()
        replicas = [leader]
        position, skipped = self._offset, first_rack
        while len(replicas) < replication_factor:
            broker_id = None
            if position == skipped:
                skipped = -1  # the rack of the first replica has had its turn, once
            else:
                broker_id = self._racks[position].next(self._number)
            position = (position + 1) % len(self._racks)
            if broker_id is not None:
                replicas.append(broker_id)
        self._number += 1
        self._offset += 1
        return tuple(replicas)

    def _first(self) -> tuple[int, int]:
        """The position of the first rack with an unfenced broker, and that broker."""
        position = self._offset
        while True:
            broker_id = self._racks[position].unfenced.next(self._number)
            if broker_id is not None:
                return position, broker_id
            position = (position + 1) % len(self._racks)

    def _shuffle(self) -> None:
        self._rng.shuffle(self._racks)
        for rack in self._racks:
            self._rng.shuffle(rack.fenced.broker_ids)
            self._rng.shuffle(rack.unfenced.broker_ids)


def place_replicas(
    brokers: Iterable[BrokerImage], *, partition_count: int, replication_factor: int, rng: Random
) -> Iterator[tuple[int, ...]]:
    """Choose replicas for new partitions; the first of each is its preferred leader, and unfenced.

    Args:
        brokers: Every registered broker; those in controlled shutdown or with cordoned directories only are left out.
        partition_count: How many partitions to place, at least one.
        replication_factor: Replicas of each.
        rng: Decides where the walk begins, and the order after each round.

    Returns:
        The replicas of each partition, chosen when they are asked for.

    Raises:
        KafkaError: INVALID_REPLICATION_FACTOR; no replica, more replicas than brokers, or no broker is unfenced.
    """
    usable = [broker for broker in brokers if _is_usable(broker)]
    if replication_factor <= 0:
        raise _refused(f"Invalid replication factor {replication_factor}: the replication factor must be positive.")
    if all(broker.fenced for broker in usable):
        raise _refused("All brokers are currently fenced, or have all their log directories cordoned.")
    if replication_factor > len(usable):
        raise _refused(
            f"The target replication factor of {replication_factor} cannot be reached because only"
            f" {len(usable)} broker(s) are registered or some brokers have all their log directories cordoned."
        )
    striping = _Striping(usable, rng)
    return (striping.place(replication_factor) for _ in range(partition_count))


def _is_usable(broker: BrokerImage) -> bool:
    """Whether it may get replicas; one that has ended its controlled shutdown is like any fenced broker."""
    return (broker.fenced or not broker.in_controlled_shutdown) and broker.has_uncordoned_directory


def _refused(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
