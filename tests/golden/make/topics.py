"""Make ``topics/`` with a cluster of three combined Kafka nodes that runs.

Settings, keys, values, headers and the timestamps of producers follow from the seed. Producer ids, ids of topics and
directories, leader epochs, the timestamps of brokers and markers, and with them checksums, differ from run to run.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from golden.make import expected
from golden.make.cluster import Node, copy_directory, start_together, stop_together, uuid_text
from golden.make.rows import answers
from interop.harness import JVM_FLAGS, Java

HERE = Path(__file__).parent
WORKLOAD = str(HERE / "java" / "Workload.java")
HAND_MADE = str(HERE / "java" / "HandMade.java")
PAST_MS = 1_702_389_442_119
DELETED_BEFORE = 289  # of g-deleterecords

Row = dict[str, Any]
Ask = Callable[..., Row]

SETTINGS = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "leader.imbalance.check.interval.seconds": "3600",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "log.index.size.max.bytes": "131072",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.retention.ms": "-1",
    "log.segment.delete.delay.ms": "1000",
    "message.max.bytes": "2000000",
    "metadata.max.idle.interval.ms": "5000",
    "num.io.threads": "3",
    "num.network.threads": "2",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": "1048576",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "replica.lag.time.max.ms": "10000",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.segment.bytes": "1048576",
}
CODECS = {  # index.interval.bytes, internal.segment.bytes
    "none": ("4096", "419840"),
    "gzip": ("1024", "308224"),
    "snappy": ("512", "390144"),
    "lz4": ("4096", "402432"),
    "zstd": ("1024", "340992"),
}
COMPACTED = {"g-compact": "864000000", "g-compact-purged": "1"}  # delete.retention.ms; the same with -txn


def topics() -> dict[str, Row]:
    """Assignments and settings of each topic."""

    def topic(segment: int | str | None, *, nodes: Sequence[Sequence[int]] = ((1,),), **configs: str) -> Row:
        sizes = {} if segment is None else {"internal.segment.bytes": str(segment), "segment.index.bytes": "8192"}
        named = {name.replace("_", "."): value for name, value in configs.items()}
        return {"assignments": [list(replicas) for replicas in nodes], "configs": dict(sorted((sizes | named).items()))}

    found = {
        f"g-{codec}": topic(
            segment, index_interval_bytes=interval, max_message_bytes="2000000", segment_index_bytes="65536"
        )
        for codec, (interval, segment) in CODECS.items()
    }
    for name, retention in COMPACTED.items():
        for suffix in ("", "-txn"):
            place = "g-compact" + suffix + name.removeprefix("g-compact")
            found[place] = topic(
                49152,
                cleanup_policy="compact",
                delete_retention_ms=retention,
                index_interval_bytes="512",
                min_cleanable_dirty_ratio="0.01",
                segment_ms="2000",
            )
    found |= {
        "g-decompress": topic(131072, compression_type="uncompressed"),
        "g-deleterecords": topic(65536),
        "g-empty": topic(None),
        "g-epochs": topic(65536, nodes=((1, 2, 3),), min_insync_replicas="1"),
        "g-keyed": topic(131072, nodes=((1,), (1,), (1,))),
        "g-killed": topic(131072, nodes=((2,),)),
        "g-logappend": topic(65536, index_interval_bytes="512", message_timestamp_type="LogAppendTime"),
        "g-recompress-gzip": topic(65536, compression_type="gzip"),
        "g-recompress-zstd": topic(65536, compression_type="zstd"),
        "g-segment-1mib": topic(None, segment_bytes="1048576"),
        "g-timestamps": topic(
            None, message_timestamp_after_max_ms=str(2**63 - 1), retention_ms="-1", segment_index_bytes="8192"
        ),
        "g-timestamps-default": topic(None, retention_ms="-1", segment_index_bytes="8192"),
        "g-txn": topic(32768, index_interval_bytes="512"),
        "g-txn-open": topic(32768, index_interval_bytes="512"),
    }
    return dict(sorted(found.items()))


# Codec, how many records and how many bytes a value has at most, by one producer after another.
PRODUCED: dict[str, list[tuple[str, str, int, int]]] = {
    "g-decompress": [("one", "zstd", 180, 20000), ("two", "gzip", 117, 20000)],
    "g-deleterecords": [("one", "none", 534, 12000)],
    "g-keyed": [("one", "none", 260, 400), ("two", "zstd", 278, 400)],
    "g-logappend": [("one", "none", 60, 10000), ("plain-two", "zstd", 110, 8000), ("plain-three", "gzip", 116, 8000)],
    "g-recompress-gzip": [("one", "none", 136, 15000)],
    "g-recompress-zstd": [("one", "lz4", 170, 15000), ("two", "none", 104, 15000)],
    "g-segment-1mib": [("one", "none", 2400, 12000), ("two", "none", 18, 120000)],
}


class Workload:
    """``java/Workload.java`` beside a cluster; ends without closing its producers."""

    def __init__(self, java: Java, bootstrap: str, seed: int) -> None:
        command = java.command(WORKLOAD, bootstrap, str(seed), flags=JVM_FLAGS)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True
        )

    def ask(self, verb: str, **arguments: Any) -> Row:
        """The answer to a command.

        Raises:
            AssertionError: The program ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"verb": verb, **arguments}) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._said.seek(0)
            raise AssertionError(f"the workload ended at {verb} {arguments}\n{self._said.read().decode()}")
        row: Row = json.loads(line)
        return row

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(60)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._said.close()


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 90) -> None:
    """Return once the condition holds.

    Raises:
        AssertionError: It does not hold in time.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.1)


def cluster(home: Path, java: Java, count: int, chance: random.Random) -> list[Node]:
    """Formatted combined nodes 1 to ``count``, not started."""
    cluster_id = uuid_text(chance)
    replication = {
        "offsets.topic.replication.factor": str(count),
        "transaction.state.log.replication.factor": str(count),
    }
    nodes = [
        Node(home / f"node-{node_id}", java, node_id, "broker,controller", cluster_id, SETTINGS | replication)
        for node_id in range(1, count + 1)
    ]
    initial = ",".join(f"{node.node_id}@{node.controller_address}:{uuid_text(chance)}" for node in nodes)
    for node in nodes:
        node.config["controller.quorum.bootstrap.servers"] = ",".join(peer.controller_address for peer in nodes)
        node.format_arguments = ("--initial-controllers", initial)
        node.format()
    return nodes


def write(java: Java, folder: Path, seed: int, names: Sequence[str] | None = None) -> None:
    """Run a cluster, fill it, stop it, and write ``topics/`` with the expected rows below ``folder``.

    Args:
        java: Kafka's jars.
        folder: Gets the folder ``topics``.
        seed: Decides the content.
        names: Only these topics; without g-epochs and g-killed one node is enough. All when None.
    """
    wanted = {name: topic for name, topic in topics().items() if names is None or name in names}
    count = 3 if {"g-epochs", "g-killed"} & wanted.keys() else 1
    target = folder / "topics"
    with tempfile.TemporaryDirectory(prefix="golden-") as home, contextlib.ExitStack() as stack:
        nodes = cluster(Path(home), java, count, random.Random(f"{seed} cluster"))
        stack.callback(lambda: [node.kill() for node in nodes])
        start_together(nodes)
        workload = Workload(java, ",".join(node.bootstrap for node in nodes), seed)
        stack.callback(workload.close)
        told: Row = {"events": [], "nodeSettings": recorded(nodes[0]), "raw": [], "seed": seed}
        told["topicIds"] = workload.ask("create", topics=wanted)
        told["topics"] = wanted
        fill(java, workload.ask, nodes, set(wanted), told, target, seed)
        consumers = {
            name: workload.ask("consume", topic=name, **({"ends": True} if name == "g-killed" else {}))
            for name in wanted
            if name != "g-empty"
        }
        workload.close()
        stop_together(nodes)
        kept = {1: None, 2: ("__consumer_offsets-0", "__consumer_offsets-1", "g-epochs-0", "g-killed-0")}
        for node in nodes:
            copy_directory(node, target / f"node-{node.node_id}", partitions=kept.get(node.node_id, ("g-epochs-0",)))
    expected.write_json(target / "workload.json", told)
    expected.write_json(target / "consumers.json", consumers)
    intervals = {
        name: int(topic["configs"].get("index.interval.bytes", expected.INDEX_INTERVAL_BYTES))
        for name, topic in wanted.items()
    }
    expected.write_topics(java, target, intervals, seed)


def recorded(node: Node) -> dict[str, str]:
    """The settings of a node without paths of the machine."""
    return {name: value for name, value in sorted(node.properties().items()) if name != "log.dirs"}


def fill(java: Java, ask: Ask, nodes: Sequence[Node], names: set[str], told: Row, target: Path, seed: int) -> None:
    """Everything that is written into the topics of ``names``; what has to be recorded is put into ``told``."""

    def chance(name: str) -> random.Random:
        return random.Random(f"{seed} {name}")

    for codec in CODECS:
        if f"g-{codec}" in names:
            codec_topic(ask, codec, chance(codec))
    for name in sorted(PRODUCED.keys() & names):
        for step, (producer, codec, count, most) in enumerate(PRODUCED[name]):
            keys = {"keys": 60} if name == "g-keyed" else {}
            ask("send", topic=name, step=step, id=producer, codec=codec, count=count, most=most, **keys)
    if "g-txn" in names:
        transactions(
            ask, "g-txn", {"tx-1": "lz4", "tx-2": "none", "tx-3": "snappy", "tx-4": "none"}, 36, chance("g-txn")
        )
    for name in sorted(names & {"g-timestamps", "g-timestamps-default"}):
        told["raw"] += timestamps(java, nodes[0].port, name)
    compact(ask, nodes[0], sorted(name for name in names if name.startswith("g-compact")), chance)
    groups(ask, names, chance("groups"))
    if "g-epochs" in names:
        epochs(ask, nodes)
    if "g-killed" in names:
        killed(ask, nodes, target, chance("g-killed"))
    if "g-deleterecords" in names:
        ask("delete", topic="g-deleterecords", offset=DELETED_BEFORE)
        told["events"].append({"deleteRecords": DELETED_BEFORE, "topic": "g-deleterecords"})
        folder = nodes[0].data_dir / "g-deleterecords-0"
        wait_for(lambda: not any(folder.glob("*00000000.log*")), "the first segment of g-deleterecords is removed")
    if "g-txn-open" in names:
        producers = {"tx-o1": "none", "tx-o2": "gzip", "tx-o3": "gzip"}
        transactions(ask, "g-txn-open", producers, 12, chance("g-txn-open"), left_open=("tx-o1", "tx-o3"))


def codec_topic(ask: Ask, codec: str, chance: random.Random) -> None:
    """A topic of one codec: a plain producer, idempotent ones, one with large values, and two transactional ones."""
    topic = f"g-{codec}"
    # A compressed segment of the same bytes has more records.
    scale = 1 if codec == "none" else 2
    for step, (producer, count, most, flush) in enumerate(
        (
            ("plain-a", 400 * scale, 6000, 40),
            ("one", 60, 300_000, 6),
            ("two", 260 * scale, 3000, 6),
            ("three", 340 * scale, 1500, 4),
        )
    ):
        ask("send", topic=topic, step=step, id=producer, codec=codec, count=count, most=most, flush=flush)
    pair = {f"tx-{codec}-a": codec, f"tx-{codec}-b": codec}
    transactions(ask, topic, pair, 8, chance)


def transactions(
    ask: Ask,
    topic: str,
    producers: dict[str, str],
    rounds: int,
    chance: random.Random,
    *,
    left_open: Sequence[str] = (),
    keys: int = 0,
) -> None:
    """Interleaved transactions, some aborted.

    Args:
        ask: Commands of the workload.
        topic: Where they write.
        producers: Codecs by transactional id.
        rounds: How many times records are sent.
        chance: Decides who sends, and what ends how.
        left_open: Those whose last transaction is not ended.
        keys: How many keys there are; random ones when 0.
    """
    names = sorted(producers)
    active: set[str] = set()
    for number in range(rounds):
        for name in names:
            if chance.random() < 0.7 or number == rounds - 1:
                step = f"transaction {number} {name}"
                count = chance.randint(1, 7)
                ask("send", topic=topic, step=step, id=name, codec=producers[name], count=count, most=1500, keys=keys)
                active.add(name)
            is_last = number == rounds - 1
            if name in active and (chance.random() < 0.4 or is_last) and not (is_last and name in left_open):
                ask("end", id=name, commit=chance.random() < 0.6)
                active.discard(name)


def timestamps(java: Java, port: int, topic: str) -> list[Row]:
    """Batches with timestamps that Kafka's producer refuses, and what the broker said."""
    now = int(time.time() * 1000)
    cases = {
        "zero": [0],
        "minus-one": [-1],
        "all-minus-one": [-1, -1, -1],
        "small": [1, 2, 3],
        "past": [PAST_MS, PAST_MS - 1000, PAST_MS + 5],
        "year-2100": [4_102_444_800_000],
        "now-plus-2h": [now + 7_200_000],
        "now-plus-30min": [now + 1_800_000],
        "max": [2**63 - 1],
        "max-half": [2**62 - 1, 2**62 - 8],
        "negative": [-95_000, -94_000],
        "min": [-(2**63) + 1],
        "mixed": [0, PAST_MS, 100],
        "descending": [PAST_MS + 9, PAST_MS + 8, PAST_MS + 7],
    }
    asked = [
        {"case": case, "codec": codec, "timestamps": times, "topic": topic}
        for case, times in cases.items()
        for codec in ("none", "lz4")
    ]
    told = answers(java, HAND_MADE, "send", [{**row, "port": port} for row in asked])
    return [dict(sorted((row | answer).items())) for row, answer in zip(asked, told, strict=True)]


def compact(ask: Ask, node: Node, names: Sequence[str], chance: Callable[[str], random.Random]) -> None:
    """Three rounds of records with few keys, each cleaned before the next; the newest segment is never cleaned."""
    steps = (("one", "gzip", 260, 400), ("plain-two", "none", 270, 400), ("three", "zstd", 200, 5))
    for number, (producer, codec, count, milliseconds) in enumerate(steps):
        for name in names:
            if "-txn" in name:
                transactions(ask, name, {"tx-k1": "none", "tx-k2": "zstd"}, 30, chance(f"{name} {number}"), keys=40)
            else:
                ask(
                    "send",
                    topic=name,
                    step=f"round {number}",
                    id=producer,
                    codec=codec,
                    count=count,
                    most=400,
                    keys=40,
                    milliseconds=milliseconds,
                    usual=150,
                )
        for name in names:
            wait_for(lambda name=name: is_cleaned(node, name), f"{name} is cleaned")  # type: ignore[misc]


def is_cleaned(node: Node, topic: str) -> bool:
    """Whether the cleaner came to the active segment, and nothing is left of a swap."""
    files = list((node.data_dir / f"{topic}-0").iterdir())
    active = max(int(path.stem) for path in files if path.suffix == ".log")
    lines = (node.data_dir / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
    cleaned = {line.split()[0]: int(line.split()[2]) for line in lines}
    return cleaned.get(topic, 0) == active and all(path.suffix != ".deleted" for path in files)


def groups(ask: Ask, names: set[str], chance: random.Random) -> None:
    """Classic, static and KIP-848 groups that commit offsets; members leave."""
    several = [name for name in ("g-keyed", "g-none") if name in names]
    static = [name for name in ("g-zstd",) if name in names]
    if several:
        for rounds in (2, 1):
            ask("group", group="classic-group", protocol="classic", topics=several, rounds=rounds)
        ask("group", group="consumer-group-é", protocol="consumer", topics=several, rounds=4)
        for protocol in ("consumer", "consumer", "classic", "classic"):
            name = f"{chance.choice(('billing', 'search', 'x'))}-{chance.randrange(1000)}"
            ask("group", group=name, protocol=protocol, topics=several[:1], rounds=2)
    if static:
        ask("group", group="static-group", protocol="classic", member="member-1", topics=static, rounds=3)


def epochs(ask: Ask, nodes: Sequence[Node]) -> None:
    """Records under several leaders: by election, and by the stop of a leader."""

    def send(step: int, producer: str, codec: str, count: int) -> None:
        ask("send", topic="g-epochs", step=step, id=producer, codec=codec, count=count, most=8000)

    def in_sync(members: Sequence[int]) -> Callable[[], bool]:
        return lambda: ask("leader", topic="g-epochs")["inSync"] == list(members)

    def led_by(node_id: int) -> Callable[[], bool]:
        return lambda: ask("leader", topic="g-epochs")["leader"] == node_id

    send(0, "one", "none", 53)
    ask("elect", topic="g-epochs", replicas=[2, 1, 3])
    wait_for(led_by(2), "node 2 leads g-epochs")
    send(1, "two", "none", 34)
    ask("elect", topic="g-epochs", replicas=[3, 2, 1])
    wait_for(led_by(3), "node 3 leads g-epochs")
    send(2, "plain-three", "zstd", 100)
    nodes[2].stop()
    wait_for(lambda: ask("leader", topic="g-epochs")["leader"] in {1, 2}, "another node leads g-epochs")
    send(3, "four", "gzip", 70)
    nodes[2].start()
    wait_for(in_sync([1, 2, 3]), "node 3 follows again")
    ask("elect", topic="g-epochs", replicas=[1, 2, 3])
    wait_for(led_by(1), "node 1 leads g-epochs")
    send(4, "five", "lz4", 64)


def killed(ask: Ask, nodes: Sequence[Node], target: Path, chance: random.Random) -> None:
    """g-killed of node 2, which gets SIGKILL with two transactions open, and recovers."""
    ask("send", topic="g-killed", step=0, id="one", codec="none", count=300, most=9000)
    producers = {"tx-5": "none", "tx-6": "none"}
    transactions(ask, "g-killed", producers, 12, chance, left_open=tuple(producers))
    nodes[1].kill()
    copy_directory(nodes[1], target / "killed-node-2", partitions=("g-killed-0",))
    nodes[1].start()
    wait_for(lambda: ask("leader", topic="g-killed")["leader"] == 2, "node 2 leads g-killed again")
