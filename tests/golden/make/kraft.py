"""Make the stories of ``kraft/logs``: metadata logs of quorums of Kafka that run, copied at several moments.

Names, settings, quotas and numbers of partitions follow from the seed, and so do the directory ids of initial
controllers. Who is elected, other ids, offsets, salts and timestamps differ from run to run.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from golden.make import captures, expected
from golden.make.cluster import METADATA, Node, start_together, stop_together, uuid_text
from golden.make.rows import answers, write_rows
from golden.make.topics import wait_for
from interop.harness import Java

OPERATIONS = str(Path(__file__).parent / "java" / "Operations.java")
SETTINGS = {
    "metadata.max.idle.interval.ms": "5000",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}
NAMES = ("orders", "clicks", "a", "x_y-z", "naive.topic", "long-" + "n" * 60)
# Upgrades of the story upgrade-from-3.9, in order.
UPGRADES = (
    ("metadata.version", 25),
    ("transaction.version", 2),
    ("group.version", 1),
    ("metadata.version", 30),
    ("eligible.leader.replicas.version", 1),
    ("share.version", 1),
    ("streams.version", 1),
)

Row = dict[str, Any]


class Story:
    """Nodes of one cluster, and what is copied of them.

    Args:
        name: Of the story.
        java: Kafka's jars.
        home: Where the nodes run.
        logs: ``kraft/logs`` of the new files.
        seed: Decides the content.
        snapshot_bytes: metadata.log.max.record.bytes.between.snapshots; Kafka's default when None.
    """

    def __init__(
        self, name: str, java: Java, home: Path, logs: Path, seed: int, snapshot_bytes: int | None = None
    ) -> None:
        self.name, self.java, self.home, self.logs = name, java, home, logs
        self.chance = random.Random(f"{seed} {name}")
        self.cluster_id = uuid_text(self.chance)
        self.settings = dict(SETTINGS)
        if snapshot_bytes is not None:
            self.settings["metadata.log.max.record.bytes.between.snapshots"] = str(snapshot_bytes)
            self.settings["internal.metadata.log.segment.bytes"] = "65536"
        self.nodes: dict[int, Node] = {}
        self.moments: list[Row] = []

    def node(self, node_id: int, roles: str, config: Mapping[str, str] | None = None) -> Node:
        """A new node, neither formatted nor started."""
        node = Node(
            self.home / f"node-{node_id}",
            self.java,
            node_id,
            roles,
            self.cluster_id,
            self.settings | dict(config or {}),
        )
        self.nodes[node_id] = node
        return node

    @property
    def controllers(self) -> list[Node]:
        return [node for node in self.nodes.values() if "controller" in node.roles]

    def ask(self, operations: Sequence[Row], *, by_controllers: bool = False) -> list[Row]:
        """What the admin client answers to operations, sent to the running broker or controllers."""
        running = [node for node in self.nodes.values() if node.process is not None]
        if by_controllers:
            addresses = [node.controller_address for node in running if "controller" in node.roles]
            setting = "bootstrap.controllers"
        else:
            addresses = [node.bootstrap for node in running if "broker" in node.roles]
            setting = "bootstrap.servers"
        return answers(self.java, OPERATIONS, f"{setting}={','.join(addresses)}", operations)

    def described(self) -> Row:
        """Features and quorum, as the controllers see them."""
        return self.ask([{"verb": "describe"}], by_controllers=True)[0]

    @property
    def leader_id(self) -> int:
        return int(self.described()["quorum"]["leaderId"])

    def wait_for_quorum(self, condition: Callable[[Row], bool], what: str) -> None:
        """Return once a description of the quorum fits."""

        def fits() -> bool:
            # Without a leader the client fails.
            with contextlib.suppress(AssertionError):
                return condition(self.described()["quorum"])
            return False

        wait_for(fits, f"{self.name}: {what}")

    def replica(self, node_id: int) -> Row:
        """Voter or observer of this id."""
        quorum = self.described()["quorum"]
        return next(replica for replica in (*quorum["voters"], *quorum["observers"]) if replica["id"] == node_id)

    def remove_voter(self, node_id: int) -> None:
        directory_id = self.replica(node_id)["directoryId"]
        self.ask([{"verb": "remove-voter", "id": node_id, "directoryId": directory_id}], by_controllers=True)

    def copy(
        self,
        moment: str,
        note: str,
        node_ids: Iterable[int],
        *,
        killed: int | None = None,
        describe: bool | None = None,
    ) -> None:
        """Copy the metadata of nodes, and remember the moment.

        Args:
            moment: Its name.
            note: What happened.
            node_ids: Whose directories are copied.
            killed: The node that got SIGKILL: its index files are left out as those of running nodes are.
            describe: Whether the quorum is described; by whether a controller runs when None.
        """
        row: Row = {"moment": moment, "nodes": {}, "note": note}
        runs = any(node.process is not None for node in self.controllers)
        if runs if describe is None else describe:
            row |= self.described()
        for node_id in sorted(node_ids, key=str):
            node = self.nodes[node_id]
            state = "running" if node.process is not None else "killed" if node_id == killed else "stopped"
            row["nodes"][str(node_id)] = state
            self._copy_node(node, self.logs / self.name / moment / f"node-{node_id}", has_indexes=state == "stopped")
        self.moments.append(dict(sorted(row.items())))

    @staticmethod
    def _copy_node(node: Node, target: Path, *, has_indexes: bool) -> None:
        """Files of the directory itself and the metadata log; preallocated index files are nothing but zeros."""
        target.mkdir(parents=True)
        for path in node.data_dir.iterdir():
            if path.is_file() and path.name != ".lock":
                shutil.copy(path, target)
        left_out = ["*.deleted", "*.part", "*.tmp"] + ([] if has_indexes else ["*.index", "*.timeindex"])
        if (node.data_dir / METADATA).exists():
            shutil.copytree(node.data_dir / METADATA, target / METADATA, ignore=shutil.ignore_patterns(*left_out))

    def topic(self, number: int) -> Row:
        """An operation that makes a topic; half of them have settings."""
        configs = {}
        if self.chance.random() < 0.5:
            configs = {
                "compression.type": self.chance.choice(("producer", "gzip", "zstd")),
                "retention.ms": str(self.chance.randrange(10**12)),
            }
        name = f"{self.chance.choice(NAMES)}-{number}"
        return {"verb": "topic", "name": name, "partitions": self.chance.randint(1, 4), "configs": configs}

    def content(self, count: int, first: int = 0) -> list[Row]:
        """Operations: topics, more partitions, settings, a quota, a SCRAM credential, a topic that is deleted."""
        chance = self.chance
        topics = [self.topic(number) for number in range(first, first + count)]
        last = topics[-1]["name"]
        return [
            *topics,
            {"verb": "partitions", "name": last, "count": 7},
            config("BROKER", "", "message.max.bytes", str(chance.randrange(1_000_000, 2_000_000))),
            config("BROKER", "", "log.cleaner.threads", "1"),
            config("TOPIC", last, "max.message.bytes", str(chance.randrange(1_000_000))),
            {
                "verb": "quota",
                "name": f"üser-{chance.randrange(100)}",
                "key": "request_percentage",
                "value": chance.randrange(1_000_000) + 0.25,
            },
            {"verb": "scram", "name": f"user-{chance.randrange(100)}", "password": "secret"},
            {"verb": "topic", "name": "to-delete", "partitions": 2, "configs": {}},
            {"verb": "delete-topic", "name": "to-delete"},
        ]

    def kill(self) -> None:
        for node in self.nodes.values():
            node.kill()


def config(kind: str, name: str, key: str, value: str | None) -> Row:
    """An operation that sets a configuration, or removes it (None)."""
    return {"verb": "config", "type": kind, "name": name, "key": key, "value": value}


@contextlib.contextmanager
def told(name: str, java: Java, kraft: Path, seed: int, snapshot_bytes: int | None = None) -> Iterator[Story]:
    """A story whose nodes end with the context; its moments are written when it ends well."""
    with tempfile.TemporaryDirectory(prefix="golden-") as home:
        story = Story(name, java, Path(home), kraft / "logs", seed, snapshot_bytes)
        try:
            yield story
        finally:
            story.kill()
        expected.write_json(kraft / "logs" / name / "moments.json", story.moments)


def dynamic(java: Java, kraft: Path, seed: int) -> None:
    """Three initial controllers, a fourth added, a follower and the leader removed, the leader stopped and killed."""
    with told("dynamic", java, kraft, seed, 24_000) as story:
        ids = (3001, 3002, 3003, 3004)
        for node_id in ids:
            story.node(node_id, "controller")
        broker = story.node(1, "broker")
        initial = ",".join(
            f"{node.node_id}@{node.controller_address}:{uuid_text(story.chance)}" for node in story.controllers[:3]
        )
        for node in story.nodes.values():
            node.config["controller.quorum.bootstrap.servers"] = ",".join(
                peer.controller_address for peer in story.controllers[:3]
            )
            if node.node_id in ids:
                node.format_arguments = (
                    ("--no-initial-controllers",) if node.node_id == 3004 else ("--initial-controllers", initial)
                )
            node.format()
        story.copy(
            "00-formatted",
            "three controllers formatted with --initial-controllers, a fourth with --no-initial-controllers,"
            " one broker",
            story.nodes,
        )
        start_together(story.controllers[:3])
        story.wait_for_quorum(lambda quorum: quorum["leaderId"] >= 0, "a leader")
        story.copy("01-started", "the three controllers elected a leader; no broker yet", ids[:3])
        broker.start()
        story.ask(story.content(5))
        story.copy(
            "02-topics",
            "a broker registered; topics, configs, a quota and a SCRAM credential were made, a topic was deleted",
            (1, *ids[:3]),
        )
        story.nodes[3004].start()
        story.wait_for_quorum(lambda quorum: has(quorum["observers"], 3004), "observer 3004")
        story.copy("03-observer", "the fourth controller started and follows as an observer", ids)
        fourth = {"id": 3004, "directoryId": story.replica(3004)["directoryId"]}
        story.ask(
            [{"verb": "add-voter", **fourth, "port": story.nodes[3004].controller_port}],
            by_controllers=True,
        )
        story.copy("04-voter-added", "after add-controller of the fourth controller", ids)
        first = story.leader_id
        story.nodes[first].stop()
        story.wait_for_quorum(lambda quorum: quorum["leaderId"] not in {-1, first}, "another leader")
        second = story.leader_id
        story.copy("05-leader-stopped", f"leader {first} was stopped cleanly, {second} leads now", ids)
        story.nodes[first].start()
        story.wait_for_quorum(lambda quorum: ends_alike(quorum, first), f"voter {first} caught up")
        story.remove_voter(first)
        story.copy("06-voter-removed", f"after remove-controller of follower {first}", ids)
        story.remove_voter(second)
        story.wait_for_quorum(lambda quorum: quorum["leaderId"] not in {-1, second}, "a third leader")
        third = story.leader_id
        story.copy("07-leader-removed", f"after remove-controller of leader {second}; {third} leads now", ids)
        story.ask(story.content(180, first=100))
        story.copy("08-snapshots", "after many topics: several snapshots and segments", (1, *ids))
        story.nodes[third].kill()
        story.copy(
            "09-leader-killed",
            f"leader {third} was killed (SIGKILL); its folder has no clean end",
            [third],
            killed=third,
            describe=False,
        )
        story.nodes[third].start()
        story.wait_for_quorum(lambda quorum: quorum["leaderId"] >= 0, "a leader again")
        broker.stop()
        stop_together(story.controllers)
        story.copy("10-stopped", "all stopped cleanly", story.nodes)


def has(replicas: Sequence[Row], node_id: int) -> bool:
    """Whether a replica of this id is there, and its end known."""
    return any(replica["id"] == node_id and replica["logEndOffset"] >= 0 for replica in replicas)


def ends_alike(quorum: Row, node_id: int) -> bool:
    """Whether a replica's log ends with the leader's."""
    ends = {replica["id"]: replica["logEndOffset"] for replica in (*quorum["voters"], *quorum["observers"])}
    return ends.get(node_id) == ends.get(quorum["leaderId"])


def static(java: Java, kraft: Path, seed: int) -> None:
    """controller.quorum.voters with kraft.version 0, the upgrade to 1, and the same controllers as a dynamic quorum."""
    with told("static", java, kraft, seed) as story:
        ids = (11, 12, 13)
        for node_id in ids:
            story.node(node_id, "controller")
        broker = story.node(1, "broker")
        voters = ",".join(f"{node.node_id}@{node.controller_address}" for node in story.controllers)
        for node in story.nodes.values():
            node.config["controller.quorum.voters"] = voters
            node.format()
        story.copy(
            "00-formatted", "static quorum (controller.quorum.voters), formatted without any quorum flag", story.nodes
        )
        start_together(story.nodes.values())
        story.ask(story.content(4))
        story.copy("01-started", "kraft.version 0, topics made", story.nodes)
        first = story.leader_id
        story.nodes[first].stop()
        story.wait_for_quorum(lambda quorum: quorum["leaderId"] not in {-1, first}, "another leader")
        story.copy("02-leader-stopped", f"leader {first} was stopped cleanly", story.nodes)
        story.nodes[first].start()
        story.wait_for_quorum(lambda quorum: ends_alike(quorum, first), f"voter {first} caught up")
        # The leader takes the upgrade once it knows the directory id of every voter.
        answered = upgraded(story, "kraft.version", 1)
        story.copy("03-upgraded", f"after an upgrade of kraft.version from 0 to 1: {answered}", story.nodes)
        broker.stop()
        stop_together(story.controllers)
        story.copy("04-stopped", "all stopped", story.nodes)
        for node in story.controllers:
            del node.config["controller.quorum.voters"]
            node.config["controller.quorum.bootstrap.servers"] = ",".join(
                peer.controller_address for peer in story.controllers
            )
        start_together(story.controllers)
        story.wait_for_quorum(lambda quorum: quorum["leaderId"] >= 0, "a leader")
        leader = story.leader_id
        removed = next(node_id for node_id in ids if node_id != leader)
        story.wait_for_quorum(lambda quorum: ends_alike(quorum, removed), f"voter {removed} caught up")
        story.remove_voter(removed)
        story.copy(
            "05-dynamic",
            "restarted with controller.quorum.bootstrap.servers in place of controller.quorum.voters;"
            f" controller {removed} was removed",
            ids,
        )


def upgraded(story: Story, feature: str, level: int) -> str:
    """Upgrade a feature, as soon as the leader does it."""
    found: list[Row] = []

    def done() -> bool:
        with contextlib.suppress(AssertionError):
            found.extend(story.ask([{"verb": "feature", "name": feature, "level": level}], by_controllers=True))
        return bool(found)

    wait_for(done, f"{feature} {level}")
    return '{"ok": true}' if found[0] == {"ok": True} else str(found[0])


def standalone(java: Java, kraft: Path, seed: int, *, restarts: bool = True) -> None:
    """One combined node: ACLs and other records, captures, restarts; writes ``captures.jsonl`` too."""
    with told("standalone", java, kraft, seed, 4000) as story:
        node = story.node(
            1,
            "broker,controller",
            {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
            },
        )
        node.config["controller.quorum.bootstrap.servers"] = node.controller_address
        node.format_arguments = ("--standalone",)
        node.format()
        story.copy("00-formatted", "one combined node formatted with --standalone", [1])
        node.start()
        content = story.content(7)
        topic = content[6]["name"]
        story.ask([*content, *security(story.chance, topic), {"verb": "produce", "name": topic}])
        snapshots = node.data_dir / METADATA
        wait_for(lambda: any(snapshots.glob("*0000000001.checkpoint")), "a snapshot")
        story.copy("01-started", "topics, configs, ACLs and a producer id block were made", [1])
        write_rows(kraft / "captures.jsonl", captures.captured(java, node, topic, story.described()))
        node.stop()
        story.copy("02-stopped", "after a clean stop", [1])
        if not restarts:
            return
        node.start()
        story.ask([story.topic(number) for number in range(50, 53)])
        node.kill()
        node.start()
        node.stop()
        story.copy("03-restarted", "after a restart, a kill, another restart and a clean stop: more epochs", [1])


def security(chance: random.Random, topic: str) -> list[Row]:
    """Operations on ACLs and credentials, one of each removed again, and a setting that is removed."""

    def acl(kind: str, name: str, pattern: str, host: str, operation: str, permission: str) -> Row:
        principal = f"User:ü{chance.randrange(100)}"
        return {
            "verb": "acl",
            "type": kind,
            "name": name,
            "pattern": pattern,
            "principal": principal,
            "host": host,
            "operation": operation,
            "permission": permission,
        }

    made = [
        acl("TOPIC", topic, "LITERAL", "*", "READ", "ALLOW"),
        acl("TOPIC", "pre-", "PREFIXED", "10.0.0.1", "WRITE", "DENY"),
        acl("GROUP", "*", "LITERAL", "*", "ALL", "ALLOW"),
        acl("CLUSTER", "kafka-cluster", "LITERAL", "*", "ALTER", "DENY"),
    ]
    return [
        *made,
        {**made[0], "verb": "delete-acl"},
        {"verb": "scram", "name": "gone", "password": "secret"},
        {"verb": "delete-scram", "name": "gone"},
        config("TOPIC", topic, "max.message.bytes", "5000"),
        config("TOPIC", topic, "max.message.bytes", None),
    ]


def upgrade(java: Java, kraft: Path, seed: int) -> None:
    """A node formatted for the metadata version of 3.9, and each feature upgraded."""
    with told("upgrade-from-3.9", java, kraft, seed) as story:
        node = story.node(1, "broker,controller")
        node.config["controller.quorum.bootstrap.servers"] = node.controller_address
        node.format_arguments = ("--standalone", "--release-version", "3.9-IV0")
        node.format()
        story.copy("00-formatted", "formatted with --release-version 3.9-IV0", [1])
        node.start()
        story.ask(story.content(3))
        story.copy("01-started", "metadata.version 3.9-IV0 in use", [1])
        story.ask([{"verb": "feature", "name": name, "level": level} for name, level in UPGRADES])
        story.ask([story.topic(number) for number in range(20, 22)])
        node.stop()
        story.copy("02-upgraded", "after feature upgrades one by one, and a clean stop", [1])


STORIES = {"dynamic": dynamic, "standalone": standalone, "static": static, "upgrade-from-3.9": upgrade}


def write(java: Java, folder: Path, seed: int, names: Sequence[str] = tuple(STORIES)) -> None:
    """Write stories with their expected rows below ``folder / "kraft"``, and the captures with ``standalone``."""
    for name in names:
        STORIES[name](java, folder / "kraft", seed)
    expected.write_kraft(java, folder / "kraft")
