"""Write the metadata log of a cluster of three brokers: what its controllers would have noted over some days.

    python spark/generate_metadata.py /tmp/cluster --days 14

Topics with three replicas; a rolling restart of all brokers, a broker that fails at night, one with a slow disk that
leaves and joins the replicas in sync again and again, and settings that are changed. The records are those of Apache
Kafka 4.3 (KRaft), in DIRECTORY/__cluster_metadata-0.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kraftlog._kraftlog import encode_batch
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from kraftlog.wire.records import encode_metadata_record

BROKERS = (1, 2, 3)
TOPICS = {"orders": 6, "clicks": 4, "audit": 2}
TOPIC_RESOURCE = 2  # of a ConfigRecord
FENCED, UNFENCED = 1, -1  # of a BrokerRegistrationChangeRecord
NO_LEADER = -1
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


@dataclass
class Partition:
    """Who has a partition now."""

    topic_id: Uuid
    number: int
    replicas: tuple[int, ...]
    isr: list[int]
    leader: int


@dataclass
class Cluster:
    """The controller's side: each method notes one thing that happened at a time."""

    batches: list[tuple[int, list[Any]]] = field(default_factory=list)
    partitions: list[Partition] = field(default_factory=list)
    alive: set[int] = field(default_factory=lambda: set(BROKERS))

    def note(self, time_ms: int, records: list[Any]) -> None:
        """Records that take effect together."""
        if records:
            self.batches.append((time_ms, records))

    def create(self, time_ms: int, name: str, count: int, topic_id: Uuid) -> None:
        """A topic with replicas on all brokers, leaders in turn."""
        records: list[Any] = [TopicRecord(name=name, topic_id=topic_id)]
        for number in range(count):
            replicas = tuple(BROKERS[(number + place) % len(BROKERS)] for place in range(len(BROKERS)))
            self.partitions.append(Partition(topic_id, number, replicas, list(replicas), replicas[0]))
            records.append(
                PartitionRecord(
                    partition_id=number,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=replicas,
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=(Uuid.ZERO,) * len(replicas),
                )
            )
        self.note(time_ms, records)

    def set_config(self, time_ms: int, topic: str, name: str, value: str | None) -> None:
        """A topic's setting; None takes it away."""
        record = ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic, name=name, value=value)
        self.note(time_ms, [record])

    def stop(self, time_ms: int, broker: int) -> None:
        """A broker is fenced: it leaves every ISR, and others lead its partitions."""
        self.alive.discard(broker)
        self.note(
            time_ms,
            [
                BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=broker, fenced=FENCED),
                *(
                    self._change(partition, [other for other in partition.isr if other != broker] or partition.isr)
                    for partition in self.partitions
                ),
            ],
        )

    def start(self, time_ms: int, broker: int) -> None:
        """A broker comes back; it joins the ISRs a little later, and leads what prefers it later still."""
        self.alive.add(broker)
        record = BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=broker, fenced=UNFENCED)
        self.note(time_ms, [record])
        for number, partition in enumerate(self.partitions):
            self.join(time_ms + 20_000 + number * 3_000, partition, broker)
        self.note(
            time_ms + 5 * MINUTE_MS,
            [
                self._change(partition, partition.isr, partition.replicas[0])
                for partition in self.partitions
                if partition.replicas[0] == broker
            ],
        )

    def leave(self, time_ms: int, one: Partition, broker: int) -> None:
        """A follower that lags is taken out of the ISR."""
        if broker in one.isr and one.leader != broker:
            self.note(time_ms, [self._change(one, [other for other in one.isr if other != broker])])

    def join(self, time_ms: int, one: Partition, broker: int) -> None:
        """A follower that has caught up is in the ISR again."""
        if broker not in one.isr:
            self.note(time_ms, [self._change(one, [*one.isr, broker])])

    def _change(self, one: Partition, isr: list[int], preferred: int | None = None) -> PartitionChangeRecord:
        leader = preferred if preferred is not None else one.leader
        if leader not in isr or leader not in self.alive:
            leader = next((other for other in one.replicas if other in isr and other in self.alive), NO_LEADER)
        changes: dict[str, Any] = {}
        if isr != one.isr:
            changes["isr"] = tuple(isr)
        if leader != one.leader:
            changes["leader"] = leader
        one.isr, one.leader = list(isr), leader
        return PartitionChangeRecord(partition_id=one.number, topic_id=one.topic_id, **changes)

    def encode(self) -> bytes:
        """The batches by time, as a segment that begins at offset 0."""
        parts: list[bytes] = []
        offset = 0
        for time_ms, records in sorted(self.batches, key=lambda batch: batch[0]):
            values = [encode_metadata_record(record, _version_of(record)) for record in records]
            parts.append(
                encode_batch(
                    [(time_ms, None, value, []) for value in values], base_offset=offset, partition_leader_epoch=1
                )
            )
            offset += len(values)
        return b"".join(parts)


def _version_of(record: Any) -> int:
    return {"PartitionRecord": 1, "PartitionChangeRecord": 1, "RegisterBrokerRecord": 3}.get(type(record).__name__, 0)


def history(start_ms: int, days: int, seed: int) -> Cluster:
    """What happens, in the order in which it is noted."""
    rnd = random.Random(seed)
    cluster = Cluster()
    cluster.note(start_ms, [FeatureLevelRecord(name="metadata.version", feature_level=25)])
    registrations = [RegisterBrokerRecord(broker_id=broker, broker_epoch=broker, fenced=False) for broker in BROKERS]
    cluster.note(start_ms + 1000, list(registrations))
    for name, count in TOPICS.items():
        topic_id = Uuid(rnd.randbytes(16))
        cluster.create(start_ms + 5 * MINUTE_MS, name, count, topic_id)
    cluster.set_config(start_ms + 6 * MINUTE_MS, "orders", "retention.ms", str(7 * DAY_MS))
    cluster.set_config(start_ms + 6 * MINUTE_MS, "clicks", "retention.ms", str(3 * DAY_MS))
    for place, broker in enumerate(BROKERS):  # a rolling restart on the third day
        at = start_ms + min(2, days // 2) * DAY_MS + 10 * HOUR_MS + place * 20 * MINUTE_MS
        cluster.stop(at, broker)
        cluster.start(at + 2 * MINUTE_MS, broker)
    night = start_ms + (days // 2) * DAY_MS + 3 * HOUR_MS  # one fails and is found in the morning
    cluster.stop(night, 2)
    cluster.start(night + 5 * HOUR_MS, 2)
    cluster.set_config(night + 6 * HOUR_MS, "orders", "min.insync.replicas", "2")
    slow = start_ms + (days * 3 // 4) * DAY_MS  # a slow disk, for a day
    time_ms = slow
    while time_ms < slow + DAY_MS:
        one = rnd.choice([partition for partition in cluster.partitions if partition.leader != 3])
        cluster.leave(time_ms, one, 3)
        cluster.join(time_ms + rnd.randrange(1, 15) * MINUTE_MS, one, 3)
        time_ms += rnd.randrange(15, 60) * MINUTE_MS
    cluster.set_config(slow + 30 * HOUR_MS, "orders", "retention.ms", str(10 * DAY_MS))
    cluster.set_config(slow + 31 * HOUR_MS, "clicks", "retention.bytes", str(1 << 30))
    cluster.set_config(slow + 32 * HOUR_MS, "clicks", "retention.bytes", None)
    return cluster


def generate_metadata(directory: Path, *, start_ms: int, days: int, seed: int) -> None:
    """The directory of a controller with the log in it."""
    folder = directory / "__cluster_metadata-0"
    folder.mkdir(parents=True)
    (folder / f"{0:020}.log").write_bytes(history(start_ms, days, seed).encode())


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--seed", type=int, default=20240601)
    args = parser.parse_args()
    generate_metadata(args.directory, start_ms=1_767_225_600_000, days=args.days, seed=args.seed)


if __name__ == "__main__":
    main()
