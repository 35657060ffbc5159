"""Three kraftlog nodes beside three of Apache Kafka 4.3.1: what replication costs.

    python benches/replication.py [--nodes kraftlog,page-cache,kafka] [--rounds 3] [--seconds 3] [--idle 0,1000,10000]
        [--election 1000,5000] [--rows produce,catch-up,idle,election] [--json target/replication.json]

Each node is broker and controller in a process of its own, with default time-outs, replication factor 3,
``min.insync.replicas=2`` and acks=all from the page cache. The client is ``benches/load``, connected to node 1, which
leads all partitions of the rows of *produce*; before the rows each load runs for five seconds. Processor time is that
of all three nodes, from before the load until the followers have everything; bytes are those of the leader's log. One
kind of node runs after the other, as six nodes at once would share two processors.

- *catch-up*: a replica on node 2 of a topic that only node 1 has, until it is in sync; processor time of both.
- *idle*: processor time of all nodes for 10 s with so many partitions, and nothing written. The partitions of a row
  include those of the row before, at most 2 000 to a topic. *created* is the time until the ones that it adds have
  leaders, *opened* until all three nodes have their directories.
- *election*: in a new cluster, kill -9 of node 1, which leads so many partitions, until each has another leader.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benches")]

from data_path.rows import RECORDS_OF_16_KB, RECORDS_OF_256_KB  # noqa: E402
from data_path.servers import LoadError, Node, load_program  # noqa: E402
from failover import DEFAULTS  # noqa: E402
from node_bench import cpu_seconds, memory_mb  # noqa: E402

from interop.harness import Java  # noqa: E402
from interop.mixed.cluster import KAFKA, MixedCluster, eventually  # noqa: E402
from kraftlog.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest  # noqa: E402
from kraftlog.wire.messages.metadata import MetadataRequest  # noqa: E402
from raw_client import RawClient  # noqa: E402

NODE_IDS = (1, 2, 3)
JVM_FLAGS = ("-Xmx1g", "-Xshare:auto", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")  # as kafka-server-start runs it
PAGE_CACHE = "page-cache"  # kraftlog that acknowledges as Kafka does
PRODUCE = {
    "1 record, 1 in flight": {"in_flight": 1, "records": 1},
    "1 record, 6 connections x 5 in flight": {"in_flight": 5, "connections": 6, "records": 1},
    "16 KB batches, 5 in flight": {"in_flight": 5, "records": RECORDS_OF_16_KB},
    "256 KB batches, 5 in flight": {"in_flight": 5, "records": RECORDS_OF_256_KB},
}
IDLE_S = 10.0
WARM_S = 5.0
MOST_OF_A_TOPIC = 2000  # partitions; a controller refuses requests that create many more
Result = dict[str, Any]


class Nodes:
    """A running cluster under load."""

    def __init__(self, cluster: MixedCluster, program: Path) -> None:
        self.cluster = cluster
        self._program = program
        self._topics = 0

    def _pid(self, node_id: int) -> int:
        process = self.cluster.members[node_id].process
        assert process is not None
        return int(process.pid)

    def cpu_s(self, *node_ids: int) -> float:
        """Processor time so far, of all nodes by default."""
        return sum(cpu_seconds(self._pid(node_id)) for node_id in node_ids or NODE_IDS)

    def memory_mb(self) -> float:
        return sum(memory_mb(self._pid(node_id)) for node_id in NODE_IDS)

    def new_topic(self, partitions: int, replicas: list[int]) -> str:
        self._topics += 1
        name = f"bench-{self._topics}"
        self.cluster.create_topic(name, *([replicas] * partitions))
        return name

    def new_topics(self, partitions: int) -> None:
        """So many partitions on all nodes, led by node 1, in as few topics as can be."""
        for first in range(0, partitions, MOST_OF_A_TOPIC):
            self.new_topic(min(MOST_OF_A_TOPIC, partitions - first), list(NODE_IDS))

    def wait_until_open(self, partitions: int) -> None:
        """Until each node has the files of so many partitions; logs are opened after the partitions were created."""

        def are_open() -> bool:
            paths = [member.data_dir for member in self.cluster.members.values()]
            return all(len(list(path.glob("bench-*/partition.metadata"))) >= partitions for path in paths)

        eventually(are_open, "partitions without files", 300)

    def delete(self, topic: str) -> None:
        """Without waiting for the files to go."""
        admin = self.cluster.admin()
        admin.delete_topics([topic], operation_timeout=60)[topic].result(120)

    def log_bytes(self, topic: str, node_id: int = 1) -> int:
        logs = self.cluster.members[node_id].data_dir.glob(f"{topic}-*/*.log")
        return sum(path.stat().st_size for path in logs)

    def load(self, topic: str, partitions: int, seconds: float, **options: object) -> dict[str, float]:
        """Produce to node 1."""
        address = f"127.0.0.1:{self.cluster.members[1].port}"
        node = Node("leader", address, self._pid(1), self._program)
        with RawClient(address) as client:
            asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
            (found,) = client.call(asked, 12).topics
            node.wait_until_open(client, topic, partitions)
        return node.load("produce", topics=f"{found.topic_id.hex()}:{partitions}", seconds=seconds, **options)

    def wait_until_equal(self, topic: str, node_ids: tuple[int, ...] = NODE_IDS) -> None:
        """Until the logs of a topic have as many bytes on each node."""
        sizes: Callable[[], set[int]] = lambda: {self.log_bytes(topic, node_id) for node_id in node_ids}  # noqa: E731
        eventually(lambda: len(sizes()) == 1, f"the followers stay behind: {sizes()}", 120)


def warm(nodes: Nodes) -> None:
    """Each load for some seconds: a JVM has compiled nothing yet."""
    topic = nodes.new_topic(6, list(NODE_IDS))
    for options in PRODUCE.values():
        nodes.load(topic, 6, WARM_S, warm=0.5, **options)
    nodes.delete(topic)


def produce(nodes: Nodes, seconds: float) -> Iterator[Result]:
    """acks=all to six partitions that node 1 leads."""
    for name, options in PRODUCE.items():
        topic = nodes.new_topic(6, list(NODE_IDS))
        before_s = nodes.cpu_s()
        report = nodes.load(topic, 6, seconds, warm=1.0, **options)
        nodes.wait_until_equal(topic)
        used_s, size_gb = nodes.cpu_s() - before_s, nodes.log_bytes(topic) / 1e9
        if not report["requests_s"]:
            raise LoadError(f"{name}: no answer in {seconds} s")
        requests = size_gb * 1e3 / report["MB_s"] * report["requests_s"]
        kept = {key: report[key] for key in ("requests_s", "records_s", "MB_s", "p50_ms", "p99_ms", "max_ms")}
        yield {
            "row": name,
            "subject": "produce",
            **kept,
            "cpu_us": used_s / requests * 1e6,
            "cpu_s_per_GB": used_s / size_gb,
        }
        nodes.delete(topic)


def catch_up(nodes: Nodes, seconds: float) -> Iterator[Result]:
    """A new replica of a log of about 500 MB in batches of 16 KB."""
    topic = nodes.new_topic(6, [1])
    nodes.load(topic, 6, 2 * seconds, warm=0.5, in_flight=5, records=RECORDS_OF_16_KB, rate=5000)
    size_mb = nodes.log_bytes(topic) / 1e6
    before_s, began_s = nodes.cpu_s(1, 2), time.perf_counter()
    partition = AlterPartitionReassignmentsRequest.ReassignablePartition
    moved = AlterPartitionReassignmentsRequest.ReassignableTopic(
        name=topic, partitions=[partition(partition_index=index, replicas=[1, 2]) for index in range(6)]
    )
    with RawClient(f"127.0.0.1:{nodes.cluster.members[1].port}", timeout_s=60) as client:
        answer = client.call(AlterPartitionReassignmentsRequest(timeout_ms=30_000, topics=[moved]), 0)
    assert answer.error_code == 0, answer
    nodes.wait_until_equal(topic, (1, 2))
    took_s, used_s = time.perf_counter() - began_s, nodes.cpu_s(1, 2) - before_s
    yield {"row": "a new replica", "subject": "catch-up", "MB_s": size_mb / took_s, "MB_per_cpu_s": size_mb / used_s}
    nodes.delete(topic)


def idle(nodes: Nodes, counts: list[int]) -> Iterator[Result]:
    """Nothing but what keeps the cluster together."""
    existing = 0
    for partitions in counts:
        began_s = time.perf_counter()
        nodes.new_topics(partitions - existing)
        took_s, existing = time.perf_counter() - began_s, partitions
        nodes.wait_until_open(partitions)
        opened_s = time.perf_counter() - began_s
        time.sleep(5)
        before_s = nodes.cpu_s()
        time.sleep(IDLE_S)
        cores = (nodes.cpu_s() - before_s) / IDLE_S
        yield {
            "row": f"{partitions} partitions",
            "subject": "idle",
            "cores": cores,
            "rss_MB": nodes.memory_mb(),
            "created_s": took_s,
            "opened_s": opened_s,
        }


def election(nodes: Nodes, partitions: int) -> Iterator[Result]:
    """All partitions get another leader."""
    nodes.new_topics(partitions)
    nodes.wait_until_open(partitions)
    time.sleep(5)
    survivor = nodes.cluster.members[2]

    def all_led() -> bool:
        found = [partition for topic in nodes.cluster.topics(survivor).values() for partition in topic.values()]
        return len(found) == partitions and all(leader in (2, 3) for leader, _, _ in found)

    began_s = time.perf_counter()
    nodes.cluster.members[1].kill()
    eventually(all_led, "partitions without a leader", 120)
    yield {"row": f"{partitions} partitions", "subject": "election", "took_s": time.perf_counter() - began_s}


@contextlib.contextmanager
def running(kind: str, home: Path, java: Java) -> Iterator[Nodes]:
    """A new cluster."""
    cluster = MixedCluster(home, java)
    for node_id in NODE_IDS:
        member = cluster.add("kraftlog" if kind == PAGE_CACHE else kind, "broker,controller", node_id)
        member.config.update(DEFAULTS)
        if kind == PAGE_CACHE:
            member.config["log.flush.on.ack"] = "false"
        member.jvm_flags = JVM_FLAGS
    try:
        cluster.start()
        yield Nodes(cluster, load_program())
    finally:
        cluster.close()
        shutil.rmtree(home)


def run(kind: str, home: Path, java: Java, arguments: argparse.Namespace) -> Iterator[Result]:
    """Every round of one kind of node, each in new clusters."""
    wanted = arguments.rows.split(",")
    idle_counts, election_counts = (
        [int(text) for text in texts.split(",")] for texts in (arguments.idle, arguments.election)
    )
    rows: dict[str, Callable[[Nodes], Iterator[Result]]] = {
        "produce": lambda nodes: produce(nodes, arguments.seconds),
        "catch-up": lambda nodes: catch_up(nodes, arguments.seconds),
        "idle": lambda nodes: idle(nodes, idle_counts),
    }
    for number in range(1, arguments.rounds + 1):
        round_home, label = home / str(number), {"round": number, "node": kind}
        if set(wanted) & set(rows):
            with running(kind, round_home, java) as nodes:
                warm(nodes)
                for name in wanted:
                    if name in rows:
                        yield from (label | result for result in rows[name](nodes))
        if "election" in wanted:
            for partitions in election_counts:
                with running(kind, round_home, java) as nodes:
                    yield from (label | result for result in election(nodes, partitions))


FORMS = {
    "requests_s": ("requests/s", "{:,.0f}"),
    "records_s": ("records/s", "{:,.0f}"),
    "MB_s": ("MB/s", "{:,.1f}"),
    "p50_ms": ("p50 ms", "{:.3g}"),
    "p99_ms": ("p99 ms", "{:.3g}"),
    "max_ms": ("max ms", "{:.3g}"),
    "cpu_us": ("CPU us per request, all nodes", "{:,.1f}"),
    "cpu_s_per_GB": ("CPU s/GB, all nodes", "{:.2f}"),
    "MB_per_cpu_s": ("MB per CPU s", "{:.0f}"),
    "cores": ("cores, all nodes", "{:.3f}"),
    "rss_MB": ("RSS MB, all nodes", "{:.0f}"),
    "created_s": ("created in s", "{:.2f}"),
    "opened_s": ("opened in s", "{:.2f}"),
    "took_s": ("s", "{:.2f}"),
}


LABELS = {"kraftlog": "kraftlog", PAGE_CACHE: "kraftlog, log.flush.on.ack=false", KAFKA: "Kafka 4.3.1"}


def table(results: list[Result]) -> str:
    """Medians of the rounds; a table per subject, as their columns differ."""
    texts = []
    for subject in dict.fromkeys(result["subject"] for result in results):
        chosen = [result for result in results if result["subject"] == subject]
        keys = [key for key in FORMS if any(key in result for result in chosen)]
        lines = [["row", "node", *(FORMS[key][0] for key in keys)], ["---"] * (2 + len(keys))]
        for row in dict.fromkeys(result["row"] for result in chosen):
            for node in dict.fromkeys(result["node"] for result in chosen):
                rounds = [result for result in chosen if (result["row"], result["node"]) == (row, node)]
                cells = [FORMS[key][1].format(statistics.median(result[key] for result in rounds)) for key in keys]
                lines.append([row, LABELS[node], *cells])
        texts.append(f"**{subject}**\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines))
    return "\n\n".join(texts)


def main() -> None:
    """Run, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="kraftlog,page-cache,kafka")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--idle", default="0,1000,10000", help="partitions of the rows of idle, growing")
    parser.add_argument("--election", default="1000,5000", help="partitions of the rows of election")
    parser.add_argument("--rows", default="produce,catch-up,idle,election")
    parser.add_argument("--json", type=Path, help="where the results are kept")
    arguments = parser.parse_args()
    libs = os.environ.get("KAFKA_LIBS", str(ROOT / "tests" / "interop" / "target" / "libs" / "*"))
    if not glob.glob(libs):
        parser.error("set KAFKA_LIBS, or run `.ci/dev jars`")
    results = []
    with tempfile.TemporaryDirectory(prefix="kraftlog-replication-") as home, contextlib.closing(Java(libs)) as java:
        for kind in arguments.nodes.split(","):
            for result in run(kind, Path(home) / kind, java, arguments):
                results.append(result)
                print(json.dumps(result), flush=True)
                if arguments.json:
                    arguments.json.write_text(json.dumps(results, indent=1))
    print("\n" + table(results))


if __name__ == "__main__":
    main()
