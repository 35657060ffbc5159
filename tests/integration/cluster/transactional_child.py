"""A transactional producer in a process of its own that stops in the middle of a transaction; a program of its own.

    python transactional_child.py BOOTSTRAP TRANSACTIONAL_ID TOPIC VALUE TIMEOUT_MS

It writes VALUE to each partition of TOPIC in one transaction, prints ``open`` once the cluster has the records, commits
after a line on its standard input, and prints the name of the error, or ``committed``.
"""

from __future__ import annotations

import sys

from confluent_kafka import KafkaException, Producer

TIMEOUT_S = 30.0


def main(bootstrap: str, transactional_id: str, topic: str, value: str, timeout_ms: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": int(timeout_ms),
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for partition in producer.list_topics(topic, TIMEOUT_S).topics[topic].partitions:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(TIMEOUT_S) == 0
    print("open", flush=True)
    sys.stdin.readline()
    try:
        producer.commit_transaction(TIMEOUT_S)
    except KafkaException as error:
        print(error.args[0].name(), flush=True)
    else:
        print("committed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
