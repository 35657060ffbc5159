"""confluent-kafka, aiokafka, kafka-python and the Java console tools on a node: 100 000 records a codec, byte for byte.

Each client writes with idempotence on and acks=all in batches of up to 1 MB while the node is restarted in the middle,
stopped in order for two codecs and by kill -9 for three; then the client itself, another client and the Java consumer
read everything back.
"""

from __future__ import annotations

import itertools
import os
import secrets
import time

import pytest

from interop.clients import CODECS, Aiokafka, Client, ConfluentKafka, Console, JavaDigest, KafkaPython, create_topic
from interop.harness import Java, Server
from interop.workload import Record, assert_same, digest, make_records, without_null_header_values

RECORD_COUNT = int(os.environ.get("KRAFTLOG_INTEROP_RECORDS", "100000"))
NAMES = ("confluent-kafka", "aiokafka", "kafka-python", "console")
RESTART_BY_KILL = {"none": True, "gzip": False, "snappy": True, "lz4": False, "zstd": True}
# Who else reads what a client wrote: every pair of a reader and a foreign writer occurs with some codec.
OTHERS = {
    "confluent-kafka": (1, 2, 1, 2, 1),
    "aiokafka": (0, 2, 0, 2, 0),
    "kafka-python": (0, 1, 0, 1, 0),
    "console": (0, 1, 2, 0, 1),
}


@pytest.fixture(scope="module")
def clients(java: Java) -> dict[str, Client]:
    made: list[Client] = [ConfluentKafka(), Aiokafka(), KafkaPython(), Console(java)]
    return {client.name: client for client in made}


@pytest.fixture(scope="module")
def workloads() -> dict[bool, list[Record]]:
    now_ms = int(time.time() * 1000)
    return {
        False: make_records(RECORD_COUNT, seed=43, base_timestamp_ms=now_ms - 3_600_000),
        True: make_records(RECORD_COUNT, seed=44, text=True),
    }


@pytest.mark.timeout(400)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_client_writes_across_a_restart_and_all_read_the_same(
    node: Server, java: Java, clients: dict[str, Client], workloads: dict[bool, list[Record]], name: str, codec: str
) -> None:
    client = clients[name]
    records = workloads[client.text_only]
    if not client.null_header_values:
        records = without_null_header_values(records)
    topic = f"{name}-{codec}-{secrets.token_hex(2)}"  # the node has that of a try before
    create_topic(node.bootstrap, topic)
    laps = [time.perf_counter()]
    client.write(node.bootstrap, topic, records, codec, lambda: node.restart(kill=RESTART_BY_KILL[codec]))
    laps.append(time.perf_counter())
    other = clients[NAMES[OTHERS[name][CODECS.index(codec)]]]
    for reader in (client, other):
        assert_same(records, reader.read(node.bootstrap, topic, len(records)), f"{topic} read by {reader.name}")
        laps.append(time.perf_counter())
    found = JavaDigest(java).digests(node.bootstrap, [topic])
    laps.append(time.perf_counter())
    assert found == {topic: (len(records), digest(records))}
    write, own, foreign, by_java = (after - before for before, after in itertools.pairwise(laps))
    print(f"{topic}: write {write:.1f} s, read {own:.1f} s, by {other.name} {foreign:.1f} s, by Java {by_java:.1f} s")
