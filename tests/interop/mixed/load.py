"""Idempotent producers that write without a pause, and the checks of what they wrote."""

from __future__ import annotations

import time
from typing import Self

from interop.clients import JavaDigest
from interop.mixed.cluster import TOOLS, MixedCluster
from interop.test_kill import TOPIC, Reader, SequenceProducer

__all__ = ["Load"]


class Load:
    """One producer per partition of one topic, acks=all.

    Args:
        cluster: A started one.
        replicas: Per partition, the preferred leader first.
    """

    topic = TOPIC

    def __init__(self, cluster: MixedCluster, replicas: list[list[int]]) -> None:
        self._cluster = cluster
        cluster.create_topic(self.topic, *replicas, segment_bytes=str(1 << 20))
        self.producers = [
            SequenceProducer(
                cluster.bootstrap, index, ("none", "zstd", "lz4")[index % 3], index, socket_timeout_ms=4000
            )
            for index in range(len(replicas))
        ]
        self._reader = Reader(len(replicas))
        self.gaps: dict[str, float] = {}

    def __enter__(self) -> Self:
        for producer in self.producers:
            producer.start()
        return self

    def __exit__(self, *_: object) -> None:
        for producer in self.producers:
            producer.stopping.set()
        for producer in self.producers:
            producer.join(150)

    def wait_for_progress(self, step: str) -> None:
        """Return when each partition takes records again, and all that was acknowledged can be read."""
        begun = time.monotonic()
        for producer in self.producers:
            producer.progress.clear()
        for producer in self.producers:
            assert producer.progress.wait(60), f"{step}: no acknowledgement in partition {producer.partition} for 60 s"
        self.gaps[step] = time.monotonic() - begun
        print(f"{step}: produce goes on after {self.gaps[step]:.2f} s", flush=True)
        for producer in self.producers:
            assert not producer.failures, f"{step}: {producer.failures[:3]}"
            self._reader.catch_up(self._cluster.bootstrap, producer.partition, producer.acked)

    def fill(self, topic: str, count: int, records: int = 2000) -> None:
        """Kafka's Java producer writes to a topic."""
        said = self._cluster.java.tool(
            TOOLS + "ProducerPerformance",
            *("--topic", topic, "--num-records", str(records * count), "--record-size", "500", "--throughput", "-1"),
            *(
                "--producer-props",
                f"bootstrap.servers={self._cluster.bootstrap}",
                "acks=all",
                "enable.idempotence=true",
            ),
        ).stdout
        assert f"{records * count} records sent" in said, said

    def check_java_clients(self) -> None:
        """A Java producer writes, a Java consumer reads in a group, and another one from the beginning."""
        records = 3000
        self._cluster.create_topic("java", [3, 2, 1], [2, 1, 3], [1, 3, 2])
        self.fill("java", 3, records // 3)
        said = self._cluster.java.tool(
            TOOLS + "ConsumerPerformance",
            *("--topic", "java", "--num-records", str(records), "--group", "mixed", "--timeout", "30000"),
            *("--bootstrap-server", self._cluster.bootstrap, "--hide-header"),
        ).stdout
        assert int(said.splitlines()[-1].split(", ")[4]) >= records, said
        (count, _), *_ = JavaDigest(self._cluster.java).digests(self._cluster.bootstrap, ["java"]).values()
        assert count > 0

    def check_all(self) -> None:
        """Every record is there once and in order, after the producers ended."""
        self._cluster.wait_until_in_sync()
        full = Reader(len(self.producers))
        for producer in self.producers:
            assert not producer.is_alive()
            assert not producer.failures, producer.failures[:3]
            assert producer.acked == producer.sent
            full.catch_up(self._cluster.bootstrap, producer.partition, producer.sent)
            assert full.next_number[producer.partition] == producer.sent
