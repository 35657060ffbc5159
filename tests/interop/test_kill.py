"""kill -9 at random moments while idempotent producers write with acks=all.

After each restart every acknowledged record is there, once, in order, although the producers never stopped and retry
across the gap. Some kills hit the node while it recovers from the one before. Seeds are printed; KRAFTLOG_KILLS and
KRAFTLOG_KILL_SEED repeat a run.
"""

from __future__ import annotations

import contextlib
import os
import random
import struct
import threading
import time

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from interop.clients import create_topic
from interop.harness import Java, KafkaServer, Server
from interop.kafka_tools import assert_dump_accepts

KILLS = int(os.environ.get("KRAFTLOG_KILLS", "15"))
SEED = int(os.environ.get("KRAFTLOG_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
TOPIC = "killed"
CODECS = ("none", "zstd")  # one producer and one partition each


# What a partition may answer in the moment after a start: not yet its leader, or its watermark is not flushed yet.
STARTING = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError._TRANSPORT,
    KafkaError._DESTROY_BROKER,  # librdkafka takes a bootstrap address for that of the node it has just learned of
}


class SequenceProducer(threading.Thread):
    """Writes 0, 1, 2, ... to a partition for as long as it may, and knows how far it was acknowledged.

    A server that is cut off is given up after ``socket.timeout.ms``, among the ``changes`` of the configuration.
    """

    def __init__(self, bootstrap: str, partition: int, codec: str, seed: int, **changes: object) -> None:
        super().__init__(name=f"producer-{partition}", daemon=True)
        self.partition = partition
        self.rng = random.Random(seed)
        self.sent = 0
        self.acked = 0  # exclusive end
        self.failures: list[str] = []
        self.stopping = threading.Event()
        self.progress = threading.Event()
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 2,  # a refused connection is what this test is about
                "enable.idempotence": True,
                "acks": "all",
                "compression.type": codec,
                "linger.ms": 1,
                "queue.buffering.max.messages": 5_000,
                "delivery.timeout.ms": 300_000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 100,
                **{key.replace("_", "."): value for key, value in changes.items()},
            }
        )

    def run(self) -> None:
        noise = self.rng.randbytes(1 << 16)
        while not self.stopping.is_set():
            start = self.rng.randrange(60_000)
            value = struct.pack(">q", self.sent) + noise[start : start + self.rng.randrange(1_000)]
            try:
                self.producer.produce(TOPIC, value, partition=self.partition, on_delivery=self.delivered)
                self.sent += 1
            except BufferError:
                self.producer.poll(0.01)
            self.producer.poll(0)
            if self.sent % 10 == 0:
                time.sleep(0.01)  # a thousand records per second: time goes into kills, not into bytes
        if self.producer.flush(120):
            self.failures.append("records left without an answer after 120 s")

    def delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        number = struct.unpack_from(">q", message.value())[0]
        if number != self.acked:
            self.failures.append(f"acknowledged {number} where {self.acked} was next")
        self.acked = number + 1
        self.progress.set()


class Reader:
    """Follows the partitions and fails on the first record that is missing, doubled or out of order."""

    def __init__(self, partitions: int) -> None:
        self.next_offset = [0] * partitions
        self.next_number = [0] * partitions

    def catch_up(self, bootstrap: str, partition: int, wanted: int) -> None:
        """Read to the end as it is now; ``wanted`` numbers have to be there."""
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 2,  # a refused connection is what this test is about
                "group.id": "reader",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
                "reconnect.backoff.max.ms": 100,
            }
        )
        with contextlib.closing(consumer):
            end = end_offset(consumer, TopicPartition(TOPIC, partition))
            consumer.assign([TopicPartition(TOPIC, partition, self.next_offset[partition])])
            deadline = time.monotonic() + 60
            while self.next_offset[partition] < end:
                assert time.monotonic() < deadline, (
                    f"partition {partition}: nothing new at {self.next_offset[partition]}"
                )
                for message in consumer.consume(5_000, 0.2):
                    assert message.error() is None, str(message.error())
                    number = struct.unpack_from(">q", message.value())[0]
                    assert number == self.next_number[partition], (
                        f"partition {partition} offset {message.offset()}: record {number},"
                        f" {self.next_number[partition]} was next"
                    )
                    self.next_number[partition] += 1
                    self.next_offset[partition] = message.offset() + 1
        assert self.next_number[partition] >= wanted, (
            f"partition {partition}: {wanted} were acknowledged, {self.next_number[partition]} are there"
        )


def end_offset(consumer: Consumer, partition: TopicPartition) -> int:
    """The high watermark, asked again while a freshly started broker is not yet the leader of it."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return consumer.get_watermark_offsets(partition, timeout=30)[1]
        except KafkaException as error:
            if error.args[0].code() not in STARTING or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def kill_somewhere(server: Server, rng: random.Random, producers: list[SequenceProducer]) -> str:
    """One kill, and the server is up again afterwards; says when it struck."""
    for producer in producers:
        producer.progress.clear()
    for producer in producers:
        assert producer.progress.wait(60), f"{producer.name}: no acknowledgement for 60 s\n{server.log_tail()}"
    delay = rng.uniform(0, 0.3) if rng.random() < 0.7 else 0.0
    time.sleep(delay)
    server.kill()
    said = f"{delay * 1000:.0f} ms after an acknowledgement"
    if rng.random() < 0.2:
        early = rng.uniform(0, 0.4)
        server.launch()
        time.sleep(early)
        server.kill()
        said += f", and again {early * 1000:.0f} ms into the start"
    server.start()
    return said


@pytest.mark.slow
@pytest.mark.timeout(1_500)
def test_kill_during_produce_loses_and_doubles_nothing(server_factory, java: Java) -> None:
    server: Server = server_factory(config={"log.flush.on.ack": "true"})
    kills = KILLS if not isinstance(server, KafkaServer) else min(KILLS, 3)  # Kafka needs ten seconds for each start
    print(f"KRAFTLOG_KILL_SEED={SEED} KRAFTLOG_KILLS={kills}")
    rng = random.Random(SEED)
    server.start()
    create_topic(server.bootstrap, TOPIC, partitions=len(CODECS), segment_bytes="1048576")  # rolls often
    producers = [
        SequenceProducer(server.bootstrap, index, codec, rng.randrange(1 << 32)) for index, codec in enumerate(CODECS)
    ]
    reader = Reader(len(CODECS))
    for producer in producers:
        producer.start()
    try:
        for count in range(kills):
            said = kill_somewhere(server, rng, producers)
            for producer in producers:
                reader.catch_up(server.bootstrap, producer.partition, producer.acked)
                assert not producer.failures, f"seed {SEED}, kill {count}: {producer.failures[:3]}"
            print(f"kill {count}: {said}; {[producer.acked for producer in producers]} acknowledged", flush=True)
    finally:
        for producer in producers:
            producer.stopping.set()
    for producer in producers:
        producer.join(150)
        assert not producer.failures, f"seed {SEED}: {producer.failures[:3]}"
        assert producer.acked == producer.sent
    server.restart()
    full = Reader(len(CODECS))
    for producer in producers:
        full.catch_up(server.bootstrap, producer.partition, producer.sent)
        assert full.next_number[producer.partition] == producer.sent
    server.stop()
    assert_dump_accepts(java, *server.partition_dirs(), print_data=False)
