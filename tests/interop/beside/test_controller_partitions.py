"""Puppet brokers and operators do the same to a kraftlog and an Apache Kafka controller: answers and records agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from interop.beside.cluster import Controller
from interop.beside.puppets import Puppets, directory_of
from interop.harness import Java
from kraftlog.types import Uuid

# The script takes a few seconds: no session ends while it runs, and nothing is elected on its own.
CONFIG = {
    "broker.session.timeout.ms": "120000",
    "auto.leader.rebalance.enable": "false",
    "default.replication.factor": "1",
}
PREFERRED, UNCLEAN = 0, 1
TOPIC, BROKER = 2, 4


def register_and_beat(puppets: Puppets) -> None:
    puppets.register(1, cluster_id="other-cluster-id-22-lette")
    puppets.register(1, log_dirs=[])
    puppets.register(1, log_dirs=[Uuid(bytes(15) + b"\x05")])
    puppets.register(1, log_dirs=[directory_of(1)] * 2)
    puppets.register(1, is_migrating_zk_broker=True)
    puppets.register(1, features=[])
    puppets.live(1, 2, 3)
    puppets.register(4, log_dirs=[directory_of(1)])
    puppets.live(4)
    puppets.register(2, new=False, rack="r")
    puppets.register(2)
    puppets.register(2, new=False)
    puppets.go_back(2)
    puppets.beat(2, stale=True)
    puppets.beat(9)
    puppets.beat(4, want_fence=True)
    puppets.beat(4, seen=0)
    puppets.beat(4)


def alter_partitions(puppets: Puppets) -> None:
    puppets.create("a", [1, 2, 3], min_insync_replicas="2")
    puppets.isr(1, "a", 1, stale=True)
    puppets.isr(1, "none", 1)
    puppets.isr(1, "a", 1, index=3)
    puppets.isr(1, "a", 1, leader=1, epoch=-1)
    puppets.isr(1, "a", 1, leader=-1, epoch=1)
    puppets.isr(2, "a", 1, leader=-1)
    puppets.isr(2, "a", 1, epoch=-1)
    puppets.isr(1, "a", 1, epoch=-1)
    for members in ((1, 4), (1, 1), (2,), ()):
        puppets.isr(1, "a", *members)
    puppets.isr(1, "a", 1, 2, recovery=1)
    puppets.isr(1, "a", 1, recovery=1)
    puppets.isr(1, "a", 1, 2, member_epochs={2: 1})
    puppets.isr(1, "a", 1, 2, member_epochs={2: puppets.epochs[2]})
    puppets.isr(1, "a", 1, 2)
    puppets.isr(1, "a", 1, version=2)
    puppets.isr(1, "a", 1, 3)
    puppets.isr(1, "a", 1, 3, 2)


def fence_and_elect(puppets: Puppets) -> None:
    puppets.create("b", [1, 2], [2, 1], [3, 4], min_insync_replicas="2")
    puppets.elect(PREFERRED, ("b", 0), ("b", 7), ("none", 0))
    puppets.elect(UNCLEAN, ("b", 0))
    puppets.elect(5, ("b", 0))
    puppets.beat(1, want_fence=True)
    puppets.isr(2, "b", 2, 1, index=1)
    puppets.elect(PREFERRED, ("b", 0), version=0)
    puppets.beat(1)
    puppets.elect(PREFERRED, ("b", 0))
    puppets.isr(2, "b", 2, 1, index=0)
    puppets.elect(PREFERRED, everything=True)
    puppets.beat(4, want_fence=True)
    puppets.beat(3, want_fence=True)
    puppets.elect(UNCLEAN, ("b", 2))
    puppets.beat(4)
    puppets.elect(PREFERRED, ("b", 2))
    puppets.beat(3)
    puppets.set(TOPIC, "b", "min.insync.replicas", "1")
    puppets.set(BROKER, "", "min.insync.replicas", None)
    puppets.set(BROKER, "2", "min.insync.replicas", "1")


def shut_down(puppets: Puppets) -> None:
    puppets.create("c", [4, 3], [4])
    for broker_id in (1, 2, 3):
        puppets.beat(broker_id, seen=puppets.end)
    seen = puppets.end
    puppets.beat(4, want_shut_down=True)
    puppets.isr(3, "c", 3, 4)
    puppets.create("d", [4])
    puppets.create("d", factor=4)
    puppets.beat(4, want_shut_down=True)
    for broker_id in (1, 2):
        puppets.beat(broker_id)
    puppets.beat(3, seen=seen)
    puppets.beat(4, want_shut_down=True)
    puppets.beat(3)
    puppets.beat(4, want_shut_down=True)


def stop_uncleanly(puppets: Puppets) -> None:
    puppets.live(5, 6)
    puppets.create("e", [5, 6], min_insync_replicas="2")
    puppets.beat(6, want_fence=True)
    puppets.beat(5, want_fence=True)
    puppets.beat(5)
    puppets.create("f", [5, 6], unclean_leader_election_enable="true")
    puppets.unregister(6)
    puppets.unregister(6)
    puppets.beat(6)
    puppets.live(6)
    puppets.beat(5, want_fence=True)
    puppets.isr(6, "f", 6, recovery=1)
    puppets.isr(6, "f", 6, 1, recovery=1)
    puppets.elect(PREFERRED, ("e", 0))
    puppets.unregister(5)
    puppets.live(5)
    puppets.isr(5, "e", 5, 6)
    puppets.isr(6, "f", 6, 5)


def reassign(puppets: Puppets) -> None:
    puppets.create("g", [1, 2])
    for replicas in ([], [99], [1, 1], None):
        puppets.reassign("g", replicas)
    puppets.reassign("none", [1])
    puppets.reassign("g", [1], index=4)
    puppets.reassign("g", [1, 2, 3], allow=False)
    puppets.reassign("g", [2, 1])
    puppets.reassign("g", [3, 5], version=0)
    puppets.reassign("g", [3, 5, 1], allow=False)
    puppets.isr(1, "g", 1, 2, 3)
    puppets.reassign("g", None)
    puppets.reassign("g", [3, 5])
    puppets.reassign("g", [3, 7])
    puppets.live(7)
    puppets.reassign("g", [3, 7])
    puppets.isr(1, "g", 1, 2, 3, 7)
    puppets.isr(3, "g", 3)
    puppets.create("h", [1, 2, 3])
    puppets.reassign("h", [1, 2])


def lose_directories(puppets: Puppets) -> None:
    first, second = directory_of(7), directory_of(7, 1)
    puppets.register(7, new=False, log_dirs=[first, second])
    puppets.beat(7)
    puppets.create("i", [7, 1], [7, 1])
    puppets.assign(7, first, "i")
    puppets.assign(7, first, "i")
    puppets.assign(7, second, "i", "none", "g", index=1)
    puppets.assign(7, second, "g")
    puppets.assign(7, first, "i", stale=True)
    puppets.beat(7, offline_log_dirs=[second])
    puppets.beat(7, offline_log_dirs=[second])
    puppets.assign(7, second, "i")
    puppets.reassign("i", [1, 7])
    puppets.beat(7, cordoned_log_dirs=[first, second])
    puppets.beat(7, cordoned_log_dirs=[second, first])
    puppets.create("j", [7])


SCRIPT = (register_and_beat, alter_partitions, fence_and_elect, shut_down, stop_uncleanly, reassign, lose_directories)


def play(kind: str, home: Path, java: Java) -> dict[str, list[str]]:
    """The lines of each part of the script."""
    controller = Controller(kind, home, java, 9, CONFIG)
    said: dict[str, list[str]] = {}
    with controller.running():
        puppets = Puppets(controller)
        for part in SCRIPT:
            puppets.lines = []
            part(puppets)
            said[part.__name__] = puppets.lines
        puppets.close()
    return said


@pytest.mark.slow
@pytest.mark.spec("CERR-32", "CERR-33")
@pytest.mark.spec("CPRT-01", "CPRT-02", "CPRT-03", "CPRT-04", "CPRT-05", "CPRT-06", "CPRT-07", "CPRT-12", "CPRT-14")
@pytest.mark.spec("CPRT-15", "CPRT-21", "CPRT-22", "CPRT-24", "CPRT-25", "CPRT-26", "CPRT-28", "CPRT-29")
@pytest.mark.spec(
    "CPRT-33",
    "CPRT-34",
    "CPRT-35",
    "CPRT-36",
    "CPRT-38",
    "CPRT-40",
    "CPRT-41",
    "CPRT-43",
    "CPRT-44",
    "CPRT-45",
    "CPRT-46",
)
@pytest.mark.spec("CPRT-48", "CPRT-49", "CPRT-50", "CPRT-51", "CPRT-52", "CPRT-53", "CPRT-54", "CPRT-55", "CPRT-59")
@pytest.mark.spec(
    "CPRT-60",
    "CPRT-61",
    "CPRT-62",
    "CPRT-63",
    "CPRT-64",
    "CPRT-66",
    "CPRT-67",
    "CPRT-68",
    "CPRT-69",
    "CPRT-72",
    "CPRT-73",
    "CPRT-74",
)
@pytest.mark.spec("CPRT-75", "CPRT-76", "CPRT-77", "CPRT-78", "CPRT-80", "CPRT-81", "CPRT-82", "CPRT-84", "CPRT-85")
@pytest.mark.spec("CPRT-86", "CPRT-88", "CPRT-91", "CPRT-92", "CPRT-95", "CPRT-96", "CPRT-97", "CPRT-98", "CPRT-99")
def test_controllers_answer_and_write_the_same(tmp_path: Path, java: Java) -> None:
    kraftlog = play("kraftlog", tmp_path / "kraftlog", java)
    kafka = play("kafka", tmp_path / "kafka", java)
    assert all(len(lines) > 10 for lines in kafka.values())
    for part, lines in kafka.items():
        assert kraftlog[part] == lines, part
