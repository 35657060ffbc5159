"""Records per second and CPU per record of consumers on one broker, with those of other Python clients.

    python benches/client_bench.py --bootstrap localhost:9092 [--records 1000000] [--value-bytes 100] [--codec none]

Fills a topic first if it is not there. CPU is that of the process of the client, user and system. Every client checks
the checksums. Prints one row of JSON per client.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time

CLIENTS = ("kraftlog", "kraftlog-records", "confluent-kafka", "aiokafka", "kafka-python")


def fill(bootstrap: str, topic: str, records: int, value_bytes: int, codec: str) -> None:
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50, "batch.size": 1_000_000}
    )
    for number in range(records):
        value = (b"%012d" % number) * (value_bytes // 12 + 1)
        while True:
            try:
                producer.produce(topic, value[:value_bytes], partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def kraftlog_columns(bootstrap: str, topic: str, records: int) -> int:
    import kraftlog

    count = size = 0
    with kraftlog.Consumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", max_partition_fetch_bytes=8 << 20
    ) as consumer:
        consumer.assign([(topic, 0)])
        while count < records:
            batch = consumer.poll(30)
            count += len(batch)
            size += 1
    return count


def kraftlog_records(bootstrap: str, topic: str, records: int) -> int:
    import kraftlog

    count = size = 0
    with kraftlog.Consumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", max_partition_fetch_bytes=8 << 20
    ) as consumer:
        consumer.assign([(topic, 0)])
        while count < records:
            for record in consumer.poll_records(30):
                size += len(record.value)
                count += 1
    return count


def confluent(bootstrap: str, topic: str, records: int) -> int:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "check.crcs": True,
            "enable.auto.commit": False,
            "max.partition.fetch.bytes": 8 << 20,
            "queued.min.messages": 1_000_000,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    count = size = 0
    while count < records:
        for message in consumer.consume(10_000, 10):
            size += len(message.value())
            count += 1
    consumer.close()
    return count


def aio(bootstrap: str, topic: str, records: int) -> int:
    import aiokafka

    async def run() -> int:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, check_crcs=True, max_partition_fetch_bytes=8 << 20
        )
        await consumer.start()
        partition = aiokafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        count = size = 0
        while count < records:
            for found in (await consumer.getmany(timeout_ms=10_000)).values():
                for record in found:
                    size += len(record.value)
                    count += 1
        await consumer.stop()
        return count

    return asyncio.run(run())


def kafka_python(bootstrap: str, topic: str, records: int) -> int:
    import kafka

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, check_crcs=True, max_partition_fetch_bytes=8 << 20, max_poll_records=10_000
    )
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    count = size = 0
    while count < records:
        for found in consumer.poll(10_000).values():
            for record in found:
                size += len(record.value)
                count += 1
    consumer.close()
    return count


RUNS = {
    "kraftlog": kraftlog_columns,
    "kraftlog-records": kraftlog_records,
    "confluent-kafka": confluent,
    "aiokafka": aio,
    "kafka-python": kafka_python,
}


def measure(args: argparse.Namespace) -> None:
    run = RUNS[args.client]
    begin, cpu = time.perf_counter(), time.process_time()
    count = run(args.bootstrap, args.topic, args.records)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    print(
        json.dumps(
            {
                "client": args.client,
                "value_bytes": args.value_bytes,
                "codec": args.codec,
                "records_per_s": round(count / seconds),
                "cpu_ns_per_record": round(cpu / count * 1e9, 1),
                "records_per_cpu_s": round(count / cpu),
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--topic")
    parser.add_argument("--client", choices=CLIENTS)
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=CLIENTS)
    args = parser.parse_args()
    if args.client is not None:
        measure(args)
        return
    topic = f"bench-{args.value_bytes}-{args.codec}-{args.records}"
    import kraftlog

    with kraftlog.Consumer(bootstrap_servers=args.bootstrap) as consumer:
        consumer.partitions_for(topic)
        is_filled = sum(consumer.end_offsets([(topic, 0)]).values()) >= args.records
    if not is_filled:
        fill(args.bootstrap, topic, args.records, args.value_bytes, args.codec)
    for client in args.clients:
        command = [sys.executable, __file__, *sys.argv[1:], "--client", client, "--topic", topic]
        subprocess.run(command, check=True, env=os.environ)


if __name__ == "__main__":
    main()
