"""Exactly once under fire: numbers move through a chain of topics while nodes and clients die, pause and return.

The Java client, confluent-kafka and aiokafka each consume, transform and produce in transactions, some of which they
abort; the nodes are three of a cluster with replication factor 3, or one. Whatever is struck, a reader of committed
records finds each number once and in order, no aborted record, and in the end no transaction is left open.
KRAFTLOG_EXACTLY_ONCE_STRIKES, _SECONDS, _NODES and _SEED make a campaign of it: `.ci/dev exactly-once`. With
KRAFTLOG_EXACTLY_ONCE_SERVER=kafka the nodes are those of Apache Kafka 4.3.1, for comparison. With _CUTS=1 there are
proxies before all listeners, and the network of a node is cut as one more strike.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from free_ports import free_addresses
from interop.harness import Java
from interop.transactions.chain import FENCED, PARTITIONS, STUCK, TOPICS, Check, Feed, Mover, Zombie, movers
from interop.transactions.cluster_process import ClusterProcess
from interop.transactions.cut_network import CutNetwork
from kraftlog.storage.meta_properties import random_uuid
from kraftlog.wire.messages.list_transactions import ListTransactionsRequest
from raw_client import RawClient

STRIKES = int(os.environ.get("KRAFTLOG_EXACTLY_ONCE_STRIKES", "0"))
SECONDS = float(os.environ.get("KRAFTLOG_EXACTLY_ONCE_SECONDS", "0"))
IS_CAMPAIGN = STRIKES > 0 or SECONDS > 0
NODES = int(os.environ.get("KRAFTLOG_EXACTLY_ONCE_NODES", "3"))
SEED = int(os.environ.get("KRAFTLOG_EXACTLY_ONCE_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
FLUSH = os.environ.get("KRAFTLOG_EXACTLY_ONCE_FLUSH", "false")
CUTS = os.environ.get("KRAFTLOG_EXACTLY_ONCE_CUTS", "") not in {"", "0"}
KINDS = ("kill node", "zombie", "kill client", "stop node", "pause node")
WEIGHTS = (4, 3, 4, 1, 1)
if CUTS:
    KINDS, WEIGHTS = ("cut node", *KINDS), (4, *WEIGHTS)
SERVER = os.environ.get("KRAFTLOG_EXACTLY_ONCE_SERVER", "kraftlog")
DEADLINE_S = 300.0  # without any progress
PAUSE_S = 3.0
PATIENCE_S = 20.0
# A zombie without a partition has nothing to send and learns nothing. Its successor makes room after a while; if the
# others then move so many records of each partition without it, it has none.
IDLE_S = 8.0
IDLE_RECORDS = 1_000


@pytest.fixture
def nodes(tmp_path, java: Java) -> Iterator[tuple[list[ClusterProcess], str, CutNetwork | None]]:
    addresses = free_addresses(2 * NODES)
    controllers, brokers = addresses[:NODES], addresses[NODES:]
    network: CutNetwork | None = None
    cluster_id = str(random_uuid())
    factor = str(NODES)
    changes = {
        "log_flush_on_ack": FLUSH,
        "transaction_state_log_replication_factor": factor,
        "transaction_state_log_min_isr": str(min(2, NODES)),
        "transaction_state_log_num_partitions": "4",
        "transaction_abort_timed_out_transaction_cleanup_interval_ms": "1000",
        "offsets_topic_replication_factor": factor,
        "default_replication_factor": factor,
        "min_insync_replicas": str(min(2, NODES)),
    }
    with contextlib.ExitStack() as ends:
        if CUTS:
            network = CutNetwork(
                {number: list(pair) for number, pair in enumerate(zip(controllers, brokers, strict=True), 1)}
            )
            ends.enter_context(network)
        made = []
        for number in range(1, NODES + 1):
            listeners = {"listeners": listeners_of(brokers[number - 1], controllers[number - 1])}
            if network is not None:
                controller, broker = network.addresses[number]
                listeners["advertised_listeners"] = listeners_of(broker, controller)
            known = (controllers, brokers) if network is None else zip(*network.addresses.values(), strict=True)
            voters, seeds = map(list, known)
            made.append(ClusterProcess(number, tmp_path, voters, seeds, cluster_id, **changes | listeners))
        for node in made:
            if SERVER == "kafka":
                node.run_by(java)
            ends.callback(node.end, signal.SIGKILL)
            node.start()
        yield made, ",".join(seeds), network


def listeners_of(broker: str, controller: str) -> str:
    return f"PLAINTEXT://{broker},CONTROLLER://{controller}"


class Fire:
    """The cluster, the chain, and what is done to them."""

    def __init__(
        self, made: list[ClusterProcess], bootstrap: str, network: CutNetwork | None, rng: random.Random
    ) -> None:
        self.nodes, self.bootstrap, self.network, self.rng = made, bootstrap, network, rng
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 100})
        self.movers: list[Mover] = []
        self.checks: list[Check] = []
        self.feed = Feed(bootstrap)
        self.idle_zombies = 0

    def create_topics(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        for name in TOPICS:
            while True:
                new = NewTopic(name, num_partitions=PARTITIONS, replication_factor=NODES)
                try:
                    self.admin.create_topics([new], operation_timeout=30)[name].result(60)
                    break
                except KafkaException:
                    # Not all of the brokers have registered yet.
                    assert time.monotonic() < deadline
                    time.sleep(0.2)

    def tend(self) -> None:
        """Replace clients that have ended, and check what has come out and that no node ended by itself."""
        for node in self.nodes:
            node.check()
        for mover in self.movers:
            mover.tend()
        for check in self.checks:
            check.follow(0.05)
        self.feed.arrived = min(self.checks[-1].next_number)

    def wait(self, condition: Callable[[], bool], what: str, timeout_s: float = DEADLINE_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"seed {SEED}: {what} after {timeout_s} s"
            self.tend()

    def wait_for_progress(self, timeout_s: float = DEADLINE_S) -> None:
        """Every partition of the last topic gets more records."""
        check = self.checks[-1]
        before = list(check.next_number)
        self.wait(
            lambda: all(now >= then + 20 for now, then in zip(check.next_number, before, strict=True)),
            "no progress",
            timeout_s,
        )

    def wait_until_in_sync(self) -> None:
        def is_in_sync() -> bool:
            try:
                topics = self.admin.list_topics(timeout=5).topics
            except KafkaException:
                return False
            return all(
                len(found.isrs) == NODES and found.leader > 0
                for topic in topics.values()
                for found in topic.partitions.values()
            )

        self.wait(is_in_sync, "not in sync")

    def wait_for_all(self, check: Check) -> None:
        """The check has seen all that was fed; however slow, it must not stop before."""
        wanted = [self.feed.sent] * PARTITIONS
        while check.next_number != wanted:
            before = list(check.next_number)
            self.wait(lambda seen=before: check.next_number != seen, f"{check.topic} stays at {before} of {wanted}")

    def strike(self, kind: str) -> str:
        time.sleep(self.rng.uniform(0, 0.3))
        if kind in ("kill client", "zombie"):
            mover = self.rng.choice(self.movers)
            if kind == "kill client":
                mover.kill()
            else:
                self.wait(mover.has_begun, f"{mover.facts} does not begin")
                zombie = mover.replace_paused()
                until = time.monotonic() + self.rng.choice((PAUSE_S, 4 * PAUSE_S))
                while time.monotonic() < until:
                    self.tend()
                self._await_end(zombie)
            return mover.facts.transactional_id
        node = self._leader()
        match kind:
            case "kill node":
                node.end(signal.SIGKILL)
            case "stop node":
                node.end(signal.SIGTERM)
            case "pause node":
                node.signal(signal.SIGSTOP)
                time.sleep(PAUSE_S)
                node.signal(signal.SIGCONT)
            case "cut node":
                self._cut(node)
        if NODES == 1 and node.process is None:
            node.start()
        return f"node {node.node_id}"

    def _cut(self, node: ClusterProcess) -> None:
        """Cut the network of a node for a moment, or until others lead its partitions; it runs on by itself."""
        assert self.network is not None
        processes = {node.node_id: node.process.pid for node in self.nodes if node.process is not None}
        self.network.cut(node.node_id, processes)
        until = time.monotonic() + self.rng.choice((PAUSE_S, 5 * PAUSE_S))
        try:
            while time.monotonic() < until:
                self.tend()
        finally:
            self.network.heal()

    def _await_end(self, zombie: Zombie) -> None:
        """A zombie that sends finds out that it was fenced, or fails, and ends by itself."""
        mover = zombie.mover
        check = self.checks[mover.facts.stage]
        woken = time.monotonic()
        seen: list[int] | None = None
        zombie.wake()
        try:
            while not zombie.is_over():
                self.tend()
                if seen is None and time.monotonic() > woken + IDLE_S and mover.has_begun():
                    mover.hold_back(True)
                    seen = list(check.next_number)
                elif seen is not None and all(
                    now > then + IDLE_RECORDS for now, then in zip(check.next_number, seen, strict=True)
                ):
                    self.idle_zombies += 1
                    break
                if time.monotonic() > woken + DEADLINE_S:
                    mover.show_stack(zombie.process)
                    time.sleep(1)
                    raise AssertionError(f"a zombie of {mover.facts} goes on after {DEADLINE_S} s")
        finally:
            zombie.end()
            mover.hold_back(False)

    def _leader(self) -> ClusterProcess:
        """The leader of some partition: of transactional ids, of groups, or of the chain."""
        topics = self.admin.list_topics(timeout=30).topics
        name = self.rng.choice(["__transaction_state", "__consumer_offsets", self.rng.choice(TOPICS)])
        leaders = [found.leader for found in topics[name].partitions.values() if found.leader > 0]
        return self.nodes[self.rng.choice(leaders) - 1]

    def recover(self) -> None:
        for node in self.nodes:
            if node.process is None:
                node.start()
        self.wait_until_in_sync()

    def open_partitions(self) -> list[str]:
        """Partitions whose readers of committed records still wait for a transaction."""
        found = []
        for topic in TOPICS:
            for index in range(PARTITIONS):
                ends = [end_offset(self.bootstrap, topic, index, level) for level in LEVELS]
                if ends[0] != ends[1]:
                    found.append(f"{topic}-{index} {ends}")
        return found

    def open_transactions(self) -> list[str]:
        states = []
        for address in self.bootstrap.split(","):
            with RawClient(address) as client:
                states += client.call(ListTransactionsRequest()).transaction_states
        over = ("Empty", "CompleteCommit", "CompleteAbort")
        return [f"{s.transactional_id}: {s.transaction_state}" for s in states if s.transaction_state not in over]

    def show(self) -> None:
        """Print what is needed to find out why the campaign does not end well."""
        for mover in self.movers:
            mover.show_stack(mover.process)
        time.sleep(1)
        for check in self.checks:
            print(f"{check.topic}: {check.next_number} of {self.feed.sent}")
        for mover in self.movers:
            print(f"--- {mover.facts}\n{mover.log_tail()}")
        for node in self.nodes:
            print(f"--- node {node.node_id}\n{node.output_tail()}")
        with contextlib.suppress(OSError):
            print(f"--- open: {self.open_transactions()}", flush=True)


LEVELS = ("read_committed", "read_uncommitted")


def end_offset(bootstrap: str, topic: str, index: int, isolation: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends", "isolation.level": isolation})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=20)[1])
    finally:
        consumer.close()


def committed_by_kafka_python(bootstrap: str, topic: str) -> Counter[tuple[int, bytes]]:
    """All of a topic by another client: how often each value is there, by partition."""
    import kafka

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        enable_auto_commit=False,
        consumer_timeout_ms=3_000,
        max_poll_records=5_000,
    )
    partitions = [kafka.TopicPartition(topic, index) for index in range(PARTITIONS)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    found = Counter((record.partition, record.value) for record in consumer)
    consumer.close()
    return found


@pytest.mark.skipif(not STRIKES and not SECONDS, reason="a campaign: .ci/dev exactly-once runs it")
@pytest.mark.timeout(7_200)
@pytest.mark.flaky(reruns=0)
def test_each_record_is_counted_once_whatever_dies(nodes, java: Java, tmp_path) -> None:
    print(f"KRAFTLOG_EXACTLY_ONCE_SEED={SEED} _STRIKES={STRIKES} _SECONDS={SECONDS} _NODES={NODES} _SERVER={SERVER}")
    began = time.monotonic()
    rng = random.Random(SEED)
    fire = Fire(*nodes, rng)
    fire.create_topics()
    feed = fire.feed
    fire.checks = [Check(fire.bootstrap, topic) for topic in TOPICS[1:]]
    counts: Counter[str] = Counter()
    gaps = [0.0]
    fire.movers = [Mover(facts, fire.bootstrap, java, tmp_path, rng) for facts in movers()]
    try:
        feed.start()
        fire.wait_for_progress()
        number = 0
        while number < STRIKES or time.monotonic() < began + SECONDS:
            # A short run has the first kinds in order.
            kind = KINDS[number] if number < STRIKES <= len(KINDS) else rng.choices(KINDS, WEIGHTS)[0]
            at = time.monotonic()
            struck = fire.strike(kind)
            try:
                fire.wait_for_progress(PATIENCE_S)
            except AssertionError:
                # A client may wait for the node that is down.
                fire.recover()
                fire.wait_for_progress()
            gap_s = time.monotonic() - at
            fire.recover()
            if kind != "zombie":
                gaps.append(gap_s)
            counts[kind] += 1
            print(f"{number}: {kind}, {struck}: goes on after {gap_s:.1f} s; {fire.checks[-1].next_number}", flush=True)
            number += 1
        feed.stop()
        for check in fire.checks:
            fire.wait_for_all(check)
    except BaseException:
        traceback.print_exc()
        fire.show()
        raise
    finally:
        for mover in fire.movers:
            mover.close()
    ends = sum((mover.ends for mover in fire.movers), Counter())
    fire.movers.clear()
    # What the last clients left open is aborted after their time-out.
    fire.wait(lambda: not fire.open_transactions(), "transactions stay open")
    fire.wait(lambda: not fire.open_partitions(), "partitions wait for transactions")
    for check in fire.checks:
        check.follow(1)
        assert check.next_number == [feed.sent] * PARTITIONS
        check.close()
    wanted = Counter({(index, b"%d" % value): 1 for index in range(PARTITIONS) for value in range(feed.sent)})
    assert committed_by_kafka_python(fire.bootstrap, TOPICS[-1]) == wanted
    print(
        f"seed {SEED}, {SERVER}: {number} strikes {dict(counts)}; {PARTITIONS * feed.sent} records in "
        f"{time.monotonic() - began:.0f} s, each counted once; longest gap {max(gaps):.1f} s; clients ended: fenced "
        f"{ends[FENCED]}, stuck in librdkafka {ends[STUCK]}, other {ends[4]}; zombies without a partition "
        f"{fire.idle_zombies}"
    )
