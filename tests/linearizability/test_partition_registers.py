"""A register in each of several replicated partitions, and the partitions as lists, while leaders are struck.

Three nodes, replication factor 3, min.insync.replicas=2. A register is what the records of its partition say: a client
writes, compares and reads by appending a record with acks=all, and finds the result by reading the partition up to the
offset of that record. Such calls are linearizable if an acknowledged record stays where it is and later calls come
behind it. KRAFTLOG_LINEARIZABILITY_SECONDS and KRAFTLOG_LINEARIZABILITY_SEED repeat a run.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
from collections import Counter, defaultdict

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import kraftlog
from interop.test_kill_replicas import HOW, SESSION_S, end_strike, strike
from linearizability.history import Operation, step, verdict
from linearizability.partition_list import Append, complaints

SECONDS = float(os.environ.get("KRAFTLOG_LINEARIZABILITY_SECONDS", "0"))
SEED = int(os.environ.get("KRAFTLOG_LINEARIZABILITY_SEED", "1"))
TOPIC = "registers"
PARTITIONS = 4
CLIENT_COUNT = 8
ROUND_S = 2.0  # then other keys, so that no register has more operations than can be searched
ANSWER_S = 20.0


class Client(threading.Thread):
    """Calls one after the other, each on the register of some partition."""

    def __init__(self, name, bootstrap, end, rng):
        super().__init__(name=name, daemon=True)
        self.operations = []
        self.appends = defaultdict(list)
        self.seen = [[] for _ in range(PARTITIONS)]  # offset and name of each record, in order
        self.failure = None
        self._rng = rng
        self._begun = time.monotonic()
        self._end = end
        self._states = defaultdict(lambda: None)
        self._results = {}  # of the records of this client, by name
        common = {"bootstrap.servers": bootstrap, "log_level": 0, "socket.timeout.ms": 4000}
        common |= {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100}
        self._producer = Producer(
            {
                **common, "enable.idempotence": True, "acks": "all", "linger.ms": 0, "delivery.timeout.ms": 600_000,
                "request.timeout.ms": 3000, "retry.backoff.ms": 10, "retry.backoff.max.ms": 100,
            }
        )  # fmt: skip
        self._consumer = Consumer(
            {
                **common, "group.id": name, "enable.auto.commit": False, "auto.offset.reset": "error",
                "fetch.wait.max.ms": 20,
            }
        )  # fmt: skip
        self._consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])

    def run(self):
        try:
            with contextlib.closing(self._consumer):
                number = 0
                while time.monotonic() < self._end:
                    self._call(f"{self.name}-{number}")
                    number += 1
                self._producer.flush(120)
        except BaseException as failure:  # noqa: BLE001 - it fails the test
            self.failure = failure

    def _call(self, name):
        partition = self._rng.randrange(PARTITIONS)
        key = f"{partition}-{int((time.monotonic() - self._begun) / ROUND_S)}"
        do = self._rng.choice(("read", "write", "cas"))
        value = None if do == "read" else name
        expected = self._states[partition, key] if do == "cas" else None
        answers = []
        command = json.dumps({"name": name, "key": key, "do": do, "value": value, "expected": expected})
        begun_ns = time.monotonic_ns()
        self._producer.produce(
            TOPIC, command.encode(), partition=partition, on_delivery=lambda *answer: answers.append(answer)
        )
        deadline = time.monotonic() + ANSWER_S
        while not answers and time.monotonic() < deadline:
            self._producer.poll(0.05)
        offset = acked_ns = ended_ns = result = None
        if answers:
            ((error, message),) = answers
            if error is not None:
                raise AssertionError(f"{name}: {error}")
            acked_ns, offset = time.monotonic_ns(), message.offset()
            while name not in self._results and time.monotonic() < deadline:
                self._follow()
            if name in self._results:
                ended_ns, result = time.monotonic_ns(), self._results.pop(name)
        self.appends[partition].append(Append(name, begun_ns, acked_ns, offset))
        if ended_ns is not None or do != "read":
            self.operations.append(Operation(key, do, value, expected, result, begun_ns, ended_ns))

    def _follow(self):
        for message in self._consumer.consume(500, 0.05):
            if message.error() is not None:
                assert message.error().retriable(), str(message.error())
                continue
            command = json.loads(message.value())
            name, register = command["name"], (message.partition(), command["key"])
            self.seen[message.partition()].append((message.offset(), name))
            state = self._states[register]
            call = Operation(command["key"], command["do"], command["value"], command["expected"], None, 0, None)
            _, self._states[register] = step(state, call) if call.do != "read" else (True, state)
            if name.startswith(f"{self.name}-"):
                self._results[name] = {"read": state, "write": True, "cas": state == call.expected}[call.do]


def read_all(bootstrap, partition):
    """Offset and name of each record."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "all", "enable.auto.commit": False, "log_level": 0}
    )
    with contextlib.closing(consumer):
        where = TopicPartition(TOPIC, partition, 0)
        _, end = consumer.get_watermark_offsets(where, timeout=30)
        consumer.assign([where])
        entries = []
        deadline = time.monotonic() + 120
        while not entries or entries[-1][0] < end - 1:
            assert time.monotonic() < deadline, f"partition {partition}: {len(entries)} of {end} records"
            for message in consumer.consume(5_000, 0.2):
                assert message.error() is None, str(message.error())
                entries.append((message.offset(), json.loads(message.value())["name"]))
        return entries


@pytest.mark.skipif(not SECONDS, reason=".ci/dev linearizability runs it: it takes minutes")
@pytest.mark.timeout(SECONDS * 3 + 600)
def test_registers_of_partitions_are_linearizable_under_faults(tmp_path, porcupine):
    print(f"KRAFTLOG_LINEARIZABILITY_SEED={SEED}")
    rng = random.Random(SEED)
    with kraftlog.Cluster(data_dir=tmp_path / "cluster", timeout_s=120) as cluster:
        bootstrap = cluster.bootstrap_servers
        cluster.create_topic(TOPIC, PARTITIONS)
        end = time.monotonic() + SECONDS
        clients = [
            Client(f"client{n}", bootstrap, end, random.Random(rng.randrange(1 << 32))) for n in range(CLIENT_COUNT)
        ]
        for client in clients:
            client.start()
        faults = Counter()
        while time.monotonic() < end:
            time.sleep(rng.uniform(0.2, 1))
            how, victim = rng.choice(HOW), cluster.leader(TOPIC, rng.randrange(PARTITIONS))
            began = time.monotonic()
            strike(cluster, victim, how)
            time.sleep(rng.uniform(0, 3))
            if how in ("pause", "cut"):
                # Longer than its session, so that another node leads meanwhile.
                time.sleep(max(0.0, began + SESSION_S * 1.5 - time.monotonic()))
            end_strike(cluster, victim, how)
            cluster.wait_until_in_sync()
            faults[how] += 1
            assert [client.failure for client in clients] == [None] * CLIENT_COUNT, f"seed {SEED}"
        for client in clients:
            client.join(300)
            assert not client.is_alive()
            assert client.failure is None, f"seed {SEED}: {client.failure!r}"
        entries = [read_all(bootstrap, partition) for partition in range(PARTITIONS)]
    operations = [operation for client in clients for operation in client.operations]
    unanswered = sum(operation.ended_ns is None for operation in operations)
    print(f"{len(operations)} operations in {PARTITIONS} partitions, {unanswered} without an answer")
    print(f"faults {dict(faults)}")
    for partition, found in enumerate(entries):
        appends = [append for client in clients for append in client.appends[partition]]
        said = complaints(found, appends, [client.seen[partition] for client in clients])
        assert not said, f"seed {SEED}, partition {partition}: {said[:5]}"
    assert verdict(operations, porcupine, tmp_path / "history.json"), f"see {tmp_path / 'history.json'}"
    assert len(operations) - unanswered > SECONDS
