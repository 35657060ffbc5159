"""``kraftlog.Consumer`` reads what confluent-kafka reads while brokers are killed, leaders move and groups rebalance.

Three nodes, of Apache Kafka or of kraftlog (KRAFTLOG_CONSUMER_NODES), with all topics on each of them: the records of
the golden topics; a topic to which producers of every codec write all the time; one that transactions write to, a third
of which is aborted. A strike is kill -9 of a partition's leader and its return; then the preferred leaders are elected,
and a member joins the group or leaves it.

Two readers with assigned partitions, read_committed and read_uncommitted, get each row once and in order; the group
gets each committed row at least once. In the end the rows are those that confluent-kafka reads.
KRAFTLOG_CONSUMER_KILLS and KRAFTLOG_CONSUMER_KILL_SEED repeat a run.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer

import kraftlog
from interop.harness import HERE, Java
from interop.mixed.cluster import KAFKA, MixedCluster
from interop.rows import Row, confluent_rows, plain_rows, rows_of
from kraftlog.errors import KraftlogError

KILLS = int(os.environ.get("KRAFTLOG_CONSUMER_KILLS", "0"))
MINUTES = float(os.environ.get("KRAFTLOG_CONSUMER_MINUTES", "inf"))
IS_CAMPAIGN = KILLS > 0
SEED = int(os.environ.get("KRAFTLOG_CONSUMER_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
NODES = os.environ.get("KRAFTLOG_CONSUMER_NODES", KAFKA)
GOLDEN = HERE.parent / "golden" / "topics" / "node-1"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LIVE, TRANSACTIONS = "live", "transactions"
ISOLATIONS = ("read_uncommitted", "read_committed")
WAIT_S = 300.0


class Reader(threading.Thread):
    """Polls until it is closed; the rows by topic and partition, in the order in which they came.

    Args:
        name: For messages.
        consumer: With its partitions, or its subscription.
        is_strict: Whether a position that comes again is a failure; a group may read uncommitted positions again.
    """

    def __init__(self, name: str, consumer: kraftlog.Consumer, *, is_strict: bool) -> None:
        super().__init__(name=name, daemon=True)
        self.consumer = consumer
        self.rows: dict[tuple[str, int], dict[int, Row]] = defaultdict(dict)
        self.repeated = 0
        self.refused = 0  # commits
        self.failure: BaseException | None = None
        self.closing = threading.Event()
        self._is_strict = is_strict

    def run(self) -> None:
        try:
            with self.consumer:
                while not self.closing.is_set():
                    batch = self.consumer.poll(0.2)
                    if batch is not None:
                        self._take(rows_of(batch))
                        if not self._is_strict:
                            self._commit()
        except Exception as failure:  # noqa: BLE001 - it fails the test
            self.failure = failure

    def _take(self, rows: list[tuple[str, Row]]) -> None:
        for topic, row in rows:
            partition, offset = row[:2]
            seen = self.rows[topic, partition]
            if offset in seen:
                assert seen[offset] == row, f"{self.name}: {topic}-{partition} offset {offset} has changed"
                self.repeated += 1
            if self._is_strict and seen:
                assert offset > next(reversed(seen)), f"{self.name}: {topic}-{partition} goes back to {offset}"
            seen[offset] = row

    def _commit(self) -> None:
        try:
            self.consumer.commit()
        except KraftlogError:  # the group rebalances or its coordinator moves: the rows come again
            self.refused += 1

    def check(self) -> None:
        assert self.failure is None, f"seed {SEED}, {self.name}: {self.failure!r}"


class Writer(threading.Thread):
    """Writes rows to one topic until it is closed."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.closing = threading.Event()
        self.count = 0
        self.failure: BaseException | None = None
        self.rng = random.Random(seed)
        self._addresses = bootstrap

    def run(self) -> None:
        try:
            self.write()
        except BaseException as failure:  # noqa: BLE001 - it fails the test
            self.failure = failure

    def write(self) -> None:
        raise NotImplementedError

    def producer(self, **settings: object) -> Producer:
        common = {"bootstrap.servers": self._addresses, "log_level": 2, "socket.timeout.ms": 4000, "linger.ms": 5}
        return Producer({**common, **{key.replace("_", "."): value for key, value in settings.items()}})

    def row(self, producer: Producer, topic: str, partition: int) -> None:
        number = self.count
        self.count += 1
        key = None if number % 5 == 0 else b"key-%d" % number
        value = None if number % 7 == 0 else b"%d-" % number * (number % 40)
        headers = [] if number % 3 else [("a", b"1"), ("b", None)]
        producer.produce(topic, value, key, headers=headers, partition=partition)


class LiveWriter(Writer):
    """Idempotent producers, one per codec."""

    def write(self) -> None:
        producers = [
            self.producer(enable_idempotence=True, compression_type=codec, delivery_timeout_ms=300_000)
            for codec in CODECS
        ]
        while not self.closing.is_set():
            for producer in producers:
                for _ in range(self.rng.randrange(10)):
                    self.row(producer, LIVE, self.rng.randrange(3))
                producer.poll(0)
            time.sleep(0.1)
        for producer in producers:
            assert producer.flush(150) == 0


class TransactionWriter(Writer):
    """Transactions of some records, a third of which is aborted."""

    outcomes: Counter[str]

    def write(self) -> None:
        self.outcomes = Counter()
        producer = None
        while not self.closing.is_set():
            try:
                if producer is None:
                    producer = self.producer(transactional_id="writer", transaction_timeout_ms=60_000)
                    producer.init_transactions(60)
                self._transaction(producer)
            except KafkaException as failure:
                # The next producer's init_transactions ends what this one left open.
                self.outcomes[failure.args[0].name()] += 1
                producer = None
            time.sleep(0.05)
        last = self.producer(transactional_id="writer")
        last.init_transactions(120)

    def _transaction(self, producer: Producer) -> None:
        producer.begin_transaction()
        for _ in range(self.rng.randrange(1, 20)):
            self.row(producer, TRANSACTIONS, self.rng.randrange(2))
        if self.rng.random() < 1 / 3:
            producer.flush(30)  # or some of it: what is aborted need not be there
            producer.abort_transaction(30)
            self.outcomes["aborted"] += 1
        else:
            producer.commit_transaction(30)
            self.outcomes["committed"] += 1


def golden_topics() -> dict[str, int]:
    """Name and number of partitions of each golden topic that has records."""
    partitions: Counter[str] = Counter()
    for path in GOLDEN.glob("g-*"):
        partitions[path.name.rpartition("-")[0]] += 1
    return dict(sorted(partitions.items()))


def fill_golden(bootstrap: str) -> dict[str, int]:
    """Write the records of each golden topic to a topic of its name; the names, with the numbers of partitions."""
    topics = golden_topics()
    table = pa.table(kraftlog.scan(GOLDEN, topics=list(topics)))
    producers = [
        Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True, "log_level": 2}
        )
        for codec in CODECS
    ]
    for number, row in enumerate(plain_rows(table)):
        headers = [(header["key"], header["value"]) for header in row["headers"]]
        producer = producers[number // 50 % len(CODECS)]
        producer.produce(
            row["topic"],
            row["value"],
            row["key"],
            partition=row["partition"],
            headers=headers,
            timestamp=max(0, row["timestamp"]),
        )
        producer.poll(0)
    for producer in producers:
        assert producer.flush(150) == 0
    return {topic: topics[topic] for topic in set(table["topic"].to_pylist())}


@pytest.fixture
def cluster(tmp_path: Path, java: Java) -> Iterator[MixedCluster]:
    made = MixedCluster(tmp_path, java)
    for node_id in (1, 2, 3):
        made.add(NODES, "broker,controller", node_id, broker_session_timeout_ms="3000")
    yield made
    made.close()


def wait_until_all_is_read(cluster: MixedCluster, readers: list[Reader], partitions: list[tuple[str, int]]) -> None:
    """Return when each assigned reader is at the end of each partition."""
    deadline = time.monotonic() + WAIT_S
    for reader in readers:
        ends = reader.consumer.end_offsets(partitions)
        while True:
            reader.check()
            left = {name: end for name, end in ends.items() if reader.consumer.position(name).offset < end}
            if not left:
                break
            assert time.monotonic() < deadline, f"{reader.name} does not get to {left}"
            time.sleep(0.2)


@pytest.mark.skipif(not KILLS, reason=".ci/dev consumer-kills runs it: it takes minutes")
@pytest.mark.flaky(reruns=0)  # the first failure counts
@pytest.mark.timeout(14_400)
def test_rows_equal_those_of_confluent_kafka_whatever_happens_to_brokers(cluster: MixedCluster) -> None:
    print(f"KRAFTLOG_CONSUMER_KILL_SEED={SEED} KRAFTLOG_CONSUMER_KILLS={KILLS} KRAFTLOG_CONSUMER_NODES={NODES}")
    rng = random.Random(SEED)
    cluster.start()
    topics = {LIVE: 3, TRANSACTIONS: 2, **golden_topics()}
    orders = itertools.cycle([[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    settings = {"message_timestamp_after_max_ms": str(2**63 - 1), "retention_ms": "-1"}  # the golden records are old
    for topic, count in topics.items():
        cluster.create_topic(topic, *itertools.islice(orders, count), **settings)
    filled = fill_golden(cluster.bootstrap)
    topics = {LIVE: 3, TRANSACTIONS: 2, **filled}
    partitions = [(topic, index) for topic, count in topics.items() for index in range(count)]
    common = {"bootstrap_servers": cluster.bootstrap, "request_timeout_ms": 4000, "fetch_max_wait_ms": 100}
    readers = []
    for isolation in ISOLATIONS:
        consumer = kraftlog.Consumer(**common, isolation_level=isolation, auto_offset_reset="none")
        consumer.assign(partitions)
        for name in partitions:
            consumer.seek(name, 0)
        readers.append(Reader(isolation, consumer, is_strict=True))
    writers = [LiveWriter(cluster.bootstrap, SEED), TransactionWriter(cluster.bootstrap, SEED + 1)]
    former: list[Reader] = []
    members: list[Reader] = []

    def join() -> None:
        consumer = kraftlog.Consumer(
            **common, group_id="members", auto_offset_reset="earliest", isolation_level="read_committed",
            session_timeout_ms=10_000, heartbeat_interval_ms=500, enable_auto_commit=False,
        )  # fmt: skip
        consumer.subscribe(list(topics))
        members.append(Reader(f"member {len(former) + len(members)}", consumer, is_strict=False))
        members[-1].start()

    for thread in (*readers, *writers):
        thread.start()
    join()
    done = 0
    end = time.monotonic() + MINUTES * 60
    kinds: Counter[str] = Counter()
    try:
        while done < KILLS and time.monotonic() < end:
            time.sleep(rng.uniform(0, 1))
            topic = rng.choice([LIVE, TRANSACTIONS, "__transaction_state", "__consumer_offsets"])
            victim = cluster.leader(topic, rng.randrange(2))
            if victim < 0:
                time.sleep(0.5)
                continue
            cluster.members[victim].kill()
            time.sleep(rng.uniform(0, 2))
            cluster.members[victim].start()
            cluster.wait_until_in_sync(240)
            cluster.elect_preferred()
            if len(members) < 2 or (len(members) < 3 and rng.random() < 0.5):
                join()
                change = "joins"
            else:
                leaving = members.pop(rng.randrange(len(members)))
                leaving.closing.set()
                leaving.join(60)
                former.append(leaving)
                change = "leaves"
            kinds[change] += 1
            for reader in (*readers, *members, *former):
                reader.check()
            for writer in writers:
                assert writer.failure is None, f"seed {SEED}: {writer.failure!r}"
            read = [sum(map(len, reader.rows.values())) for reader in (*readers, *members)]
            print(f"{done}: kill -9 of node {victim}, leads {topic}; a member {change}; rows {read}", flush=True)
            done += 1
    finally:
        for writer in writers:
            writer.closing.set()
        for writer in writers:
            writer.join(200)
    for writer in writers:
        assert not writer.is_alive()
        assert writer.failure is None, f"seed {SEED}: {writer.failure!r}"
    cluster.wait_until_in_sync(240)
    wait_until_all_is_read(cluster, readers, partitions)
    total = 0
    for reader in readers:
        reader.closing.set()
        reader.join(60)
        reader.check()
        for topic, count in topics.items():
            found = [row for index in range(count) for row in reader.rows.get((topic, index), {}).values()]
            expected = confluent_rows(cluster.bootstrap, topic, count, reader.name, len(found), timeout_s=WAIT_S)
            assert found == expected, f"seed {SEED}, {reader.name}: {topic}"
            total += len(found)
    committed = readers[1].rows
    deadline = time.monotonic() + WAIT_S
    while True:
        by_group: dict[tuple[str, int], dict[int, Row]] = defaultdict(dict)
        for reader in (*members, *former):
            reader.check()
            for name, rows in list(reader.rows.items()):
                by_group[name].update(list(rows.items()))
        left = [name for name, rows in committed.items() if by_group[name].keys() != rows.keys()]
        if not left:
            break
        assert time.monotonic() < deadline, f"seed {SEED}: the group has not read all of {left}"
        time.sleep(0.5)
    assert dict(by_group) == dict(committed), f"seed {SEED}: rows of the group"
    for reader in members:
        reader.closing.set()
    for reader in members:
        reader.join(60)
        reader.check()
    repeated = sum(reader.repeated for reader in (*members, *former))
    print(
        f"{done} kills of {NODES} nodes, {dict(kinds)}, {total} rows equal, {sum(map(len, committed.values()))} of them"
        f" committed; a member read {repeated} rows twice; transactions {dict(writers[1].outcomes)}"
    )
