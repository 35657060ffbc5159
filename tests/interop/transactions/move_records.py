"""Moves records from a topic to another for ever, in transactions with their offsets; a program of its own.

    python move_records.py CLIENT BOOTSTRAP SOURCE TARGET TRANSACTIONAL_ID GROUP_OR_PARTITION SEED

``confluent`` consumes as a member of a group, which the coordinator checks with the offsets (KIP-447). ``aiokafka``
has one partition to itself, and only its transactional id keeps others away. Some transactions are aborted with a
record ``aborted`` in them. Each commit is a line ``committed PID`` on standard error. The exit code is 3 after being
fenced, 4 after any other failure, 5 if the library stays in ``send_offsets_to_transaction``; the supervisor starts the
next one.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import random
import signal
import sys
import threading
import time
from typing import Any, NoReturn

FENCED, FAILED, STUCK = 3, 4, 5
BATCH = 50
TIMEOUT_S = 30.0
# librdkafka waits in send_offsets_to_transaction for a coordinator that is no longer in the metadata, whatever the
# time-out of the call (its issues 5456 and 5511).
STUCK_AFTER_S = 25.0
ABORTED = b"aborted"


def leave(code: int, why: object) -> NoReturn:
    print(f"leaves with {code}: {why!r}", file=sys.stderr, flush=True)
    raise SystemExit(code)


def tell_begun() -> None:
    """The supervisor makes a zombie of a process only after this line."""
    print(f"began {os.getpid()}", file=sys.stderr, flush=True)


def tell_committed() -> None:
    print(f"committed {os.getpid()}", file=sys.stderr, flush=True)


class GroupMover:
    """confluent-kafka as a member of a group."""

    def __init__(self, bootstrap: str, source: str, target: str, transactional_id: str, group: str, seed: int) -> None:
        from confluent_kafka import Consumer, Producer

        self._source, self._target, self._chance = source, target, random.Random(seed)
        common = {"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200}
        self._producer = Producer(
            {**common, "transactional.id": transactional_id, "transaction.timeout.ms": 10_000, "linger.ms": 2}
        )
        self._consumer = Consumer(
            {
                **common,
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
            }
        )
        self._is_rebalanced = False

    def run(self) -> None:
        self._retried(lambda: self._producer.init_transactions(TIMEOUT_S))
        tell_begun()

        def on_change(*_: object) -> None:
            self._is_rebalanced = True

        self._consumer.subscribe([self._source], on_assign=on_change, on_revoke=on_change, on_lost=on_change)
        reported_s = time.monotonic()
        while True:
            if time.monotonic() > reported_s + 10:
                reported_s = time.monotonic()
                positions = self._consumer.position(self._consumer.assignment())
                print(
                    f"{time.time():.1f} at {[(p.partition, p.offset) for p in positions]}", file=sys.stderr, flush=True
                )
            self._is_rebalanced = False
            messages = [message for message in self._consumer.consume(BATCH, 0.2) if message.error() is None]
            if self._is_rebalanced:
                # Some of them may come from partitions that belong to another member by now.
                self._rewind()
            elif messages:
                self._move(messages)

    def _move(self, messages: list[Any]) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        ends = {message.partition(): message.offset() + 1 for message in messages}
        offsets = [TopicPartition(self._source, partition, end) for partition, end in ends.items()]
        try:
            self._producer.begin_transaction()
            for message in messages:
                self._producer.produce(self._target, message.value(), partition=message.partition())
            aborts = self._chance.randrange(8) == 0
            if aborts:
                self._producer.produce(self._target, ABORTED, partition=self._chance.choice(list(ends)))
            metadata = self._consumer.consumer_group_metadata()
            watchdog = threading.Timer(STUCK_AFTER_S, os._exit, (STUCK,))
            watchdog.daemon = True
            watchdog.start()
            try:
                self._retried(lambda: self._producer.send_offsets_to_transaction(offsets, metadata, TIMEOUT_S))
            finally:
                watchdog.cancel()
            time.sleep(self._chance.uniform(0, 0.02))
            if aborts:
                self._producer.flush(TIMEOUT_S)
                self._abort()
            else:
                self._retried(lambda: self._producer.commit_transaction(TIMEOUT_S))
                tell_committed()
        except KafkaException as failure:
            error = failure.args[0]
            if error.fatal() or not error.txn_requires_abort():
                leave(FENCED if error.name() in ("_FENCED", "PRODUCER_FENCED") else FAILED, failure)
            self._abort()

    def _abort(self) -> None:
        self._retried(lambda: self._producer.abort_transaction(TIMEOUT_S))
        self._rewind()

    def _rewind(self) -> None:
        """Go back to what is committed, as the members of a new generation do."""
        from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition

        assignment = self._consumer.assignment()
        if not assignment:
            return
        try:
            for found in self._consumer.committed(assignment, TIMEOUT_S):
                at = found.offset if found.offset >= 0 else OFFSET_BEGINNING
                self._consumer.seek(TopicPartition(found.topic, found.partition, at))
        except KafkaException as failure:
            leave(FAILED, failure)

    @staticmethod
    def _retried(call: Any) -> None:
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + 2 * TIMEOUT_S
        while True:
            try:
                call()
                return
            except KafkaException as failure:
                error = failure.args[0]
                if error.txn_requires_abort():
                    raise
                if not error.retriable() or time.monotonic() > deadline:
                    leave(FENCED if error.name() in ("_FENCED", "PRODUCER_FENCED") else FAILED, failure)


def committed_position(bootstrap: str, group: str, topic: str, index: int) -> int:
    """The committed offset that confluent-kafka finds, 0 if there is none."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        [found] = consumer.committed([TopicPartition(topic, index)], timeout=TIMEOUT_S)
    except KafkaException as failure:
        leave(FAILED, failure)
    finally:
        consumer.close()
    if found.error is not None:
        leave(FAILED, found.error)
    return max(found.offset, 0)


async def move_partition(
    bootstrap: str, source: str, target: str, transactional_id: str, index: int, seed: int
) -> None:
    """aiokafka with one partition to itself."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    chance, group = random.Random(seed), f"{source}-{index}-mover"
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=10_000
    )
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    # Nobody with this transactional id has an open transaction after this: the committed offset is final.
    await producer.start()
    tell_begun()
    await consumer.start()
    partition = TopicPartition(source, index)
    consumer.assign([partition])
    position = await consumer.committed(partition)
    if position is None:
        # aiokafka 0.14 takes an error of the whole answer (COORDINATOR_LOAD_IN_PROGRESS) for "nothing committed".
        position = await asyncio.to_thread(committed_position, bootstrap, group, source, index)
    consumer.seek(partition, position)
    while True:
        messages = (await consumer.getmany(timeout_ms=200, max_records=BATCH)).get(partition, [])
        if not messages:
            continue
        await producer.begin_transaction()
        for message in messages:
            await producer.send(target, message.value, partition=index)
        aborts = chance.randrange(8) == 0
        if aborts:
            await producer.send(target, ABORTED, partition=index)
        await producer.send_offsets_to_transaction({partition: messages[-1].offset + 1}, group)
        await asyncio.sleep(chance.uniform(0, 0.02))
        if aborts:
            await producer.flush()
            await producer.abort_transaction()
            consumer.seek(partition, messages[0].offset)
        else:
            await producer.commit_transaction()
            tell_committed()


def main(client: str, bootstrap: str, source: str, target: str, transactional_id: str, group: str, seed: str) -> None:
    faulthandler.register(signal.SIGUSR1)
    if client == "confluent":
        GroupMover(bootstrap, source, target, transactional_id, group, int(seed)).run()
        return
    from aiokafka.errors import InvalidProducerEpoch, KafkaError, ProducerFenced

    try:
        asyncio.run(move_partition(bootstrap, source, target, transactional_id, int(group), int(seed)))
    except (ProducerFenced, InvalidProducerEpoch) as failure:
        leave(FENCED, failure)
    except (KafkaError, OSError, TimeoutError) as failure:
        leave(FAILED, failure)


if __name__ == "__main__":
    main(*sys.argv[1:])
