"""Milliseconds from nothing to the first consumed record: an embedded node, confluent-kafka as the client.

    .venv/bin/python benches/first_record.py [RUNS]

Each run is a fresh interpreter. ``node`` is ``Broker()`` until it takes clients; ``assign`` and ``group`` go on from
there to the first record read, through ``assign()`` and through ``subscribe()`` in a new group. All are wall time after
the imports; ``imports`` says how long those took, the client's among them.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

RUN = """
import json, time
t0 = time.perf_counter()
import confluent_kafka, kraftlog
kraftlog.Broker
import kraftlog.node.node
t1 = time.perf_counter()
with kraftlog.Broker() as broker:
    t2 = time.perf_counter()
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    producer = confluent_kafka.Producer(servers | {"linger.ms": 0})
    producer.produce("t", b"v", partition=0)
    producer.flush()
    t3 = time.perf_counter()
    settings = servers | {"group.id": "g", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10}
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    while consumer.poll(0.1) is None:
        pass
    t4 = time.perf_counter()
    member = confluent_kafka.Consumer(settings)
    member.subscribe(["t"])
    while member.poll(0.1) is None:
        pass
    t5 = time.perf_counter()
    print(json.dumps({"imports": t1 - t0, "node": t2 - t1, "produced": t3 - t1, "assign": t4 - t1, "group": t5 - t4}))
    member.close()
    consumer.close()
"""


def main(runs: int) -> None:
    """Print median, least and most of each part."""
    rows = []
    for _ in range(runs):
        done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    for part in rows[0]:
        values = sorted(row[part] * 1000 for row in rows)
        print(f"{part:9} {statistics.median(values):7.1f} ms ({values[0]:.1f} to {values[-1]:.1f})")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
