"""``metrics()`` of kraftlog's clients beside that of Kafka's Java clients doing the same."""

from __future__ import annotations

import time

import kraftlog
from interop.harness import HERE, Java

RECORDS = 20
# What both do alike, so that the values are the same.
SAME = (
    "producer-metrics.record-send-total",
    "producer-metrics.record-error-total",
    "producer-metrics.batch-size-max",
    "producer-metrics.records-per-request-avg",
    "producer-metrics.connection-count",
    "producer-topic-metrics.record-send-total{topic}",
    "producer-topic-metrics.byte-total{topic}",
    "consumer-fetch-manager-metrics.records-consumed-total",
    "consumer-fetch-manager-metrics.records-consumed-total{topic}",
    "consumer-fetch-manager-metrics.records-lag{partition,topic}",
    "consumer-fetch-manager-metrics.records-lag-max",
    "consumer-fetch-manager-metrics.preferred-read-replica{partition,topic}",
    "consumer-coordinator-metrics.assigned-partitions",
    "consumer-coordinator-metrics.commit-total",
    "consumer-coordinator-metrics.rebalance-total",
)


def names(metrics):
    """Values by name and sorted names of tags."""
    found = {}
    for name, value in metrics.items():
        head, _, tags = name.partition("{")
        keys = sorted(tag.partition("=")[0] for tag in tags.rstrip("}").split(",") if tag)
        found[head + ("{" + ",".join(keys) + "}" if keys else "")] = value
    return found


def java_metrics(java: Java, *arguments: str):
    done = java.run(str(HERE / "java" / "ClientMetrics.java"), *arguments)
    found = {}
    for line in done.stdout.splitlines():
        name, tags, value = line.split("\t")
        found[name + ("{" + tags + "}" if tags else "")] = value
    return found


def own_metrics(servers: str, topic: str, protocol: str):
    with kraftlog.Producer(bootstrap_servers=servers, transactional_id=topic) as producer:
        producer.init_transactions()
        with producer.transaction():
            offsets = [producer.send_and_wait(topic, bytes(100)).offset for _ in range(RECORDS)]
        assert offsets == list(range(RECORDS))
        found = names(producer.metrics())
    with kraftlog.Consumer(
        bootstrap_servers=servers,
        group_id=topic,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.subscribe([topic])
        rows = 0
        while rows < RECORDS:
            rows += len(consumer.poll(30))
        consumer.commit()
        time.sleep(0.2)  # the last heartbeat
        return found | names(consumer.metrics())


def test_names_are_those_of_kafkas_clients_and_values_agree(java):
    expected, found = {}, {}
    with kraftlog.Broker() as broker:
        for protocol in ("classic", "consumer"):
            for topic in (f"java-{protocol}", f"own-{protocol}"):
                broker.create_topic(topic, partitions=1)
            expected[protocol] = java_metrics(
                java, broker.bootstrap_servers, f"java-{protocol}", protocol, str(RECORDS)
            )
            found[protocol] = own_metrics(broker.bootstrap_servers, f"own-{protocol}", protocol)
    known = set(expected["classic"]) | set(expected["consumer"])  # the second has no JoinGroup and SyncGroup
    for protocol, own in found.items():
        assert [name for name in own if name not in known] == []
        assert len(own) > 100
        same = {name: float(expected[protocol][name]) for name in SAME}
        assert {name: float(own[name]) for name in SAME} == same, protocol
