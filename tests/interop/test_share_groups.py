"""Share groups with the Java share consumer of Kafka 4.3.1 and Kafka's tool for share groups."""

from __future__ import annotations

import pytest

from interop.clients import create_topic
from interop.conftest import ServerFactory
from interop.harness import HERE, Java, Server
from interop.test_consumer_groups import CONFIG_TOOL

TOOL = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
LOCK_MS = 3_000
SEEN = """\
implicit {a0=1, a1=1, a2=1, a3=1}
implicit-rest {}
explicit {b0=1, b1=1, b2=1, b3=1}
explicit-released {b1=2, b3=2}
renewed {c0=1, c1=1}
locked {d0=1}
timed-out {d0=2}
exhausted {}
done
"""


@pytest.mark.slow
def test_the_java_share_consumer_and_the_tool(server_factory: ServerFactory, java: Java) -> None:
    """SHGR-28, SHGR-39, SHGR-41, SHGR-46, SHGR-47, SHGR-79."""
    node = server_factory(config={"group.share.min.record.lock.duration.ms": "1000"})
    with node.running():
        use_share_groups(node, java)


def use_share_groups(node: Server, java: Java) -> None:
    create_topic(node.bootstrap, "shared")
    bootstrap = ("--bootstrap-server", node.bootstrap)
    settings = f"share.auto.offset.reset=earliest,share.delivery.count.limit=2,share.record.lock.duration.ms={LOCK_MS}"
    java.tool(CONFIG_TOOL, *bootstrap, "--alter", "--group", "g", "--add-config", settings)
    source = str(HERE / "java" / "ShareGroups.java")
    done = java.run(source, node.bootstrap, "shared", "g", str(LOCK_MS), timeout=180)
    assert done.stdout == SEEN, done.stdout + done.stderr[-4000:]

    assert java.tool(TOOL, *bootstrap, "--list").stdout.split() == ["g"]
    state = java.tool(TOOL, *bootstrap, "--describe", "--group", "g", "--state").stdout
    assert "Empty" in state
    offsets = java.tool(TOOL, *bootstrap, "--describe", "--group", "g").stdout.split("\n")
    row = next(line.split() for line in offsets if line.startswith("g "))
    assert (row[:3], row[-1]) == (["g", "shared", "0"], "0")
    java.tool(TOOL, *bootstrap, "--reset-offsets", "--group", "g", "--topic", "shared", "--to-earliest", "--execute")
    offsets = java.tool(TOOL, *bootstrap, "--describe", "--group", "g").stdout.split("\n")
    row = next(line.split() for line in offsets if line.startswith("g "))
    assert (row[3], row[-1]) == ("0", "11")
    java.tool(TOOL, *bootstrap, "--delete-offsets", "--group", "g", "--topic", "shared")
    java.tool(TOOL, *bootstrap, "--delete", "--group", "g")
    assert "g" not in java.tool(TOOL, *bootstrap, "--list").stdout.split()
    assert node.errors_logged() == []
