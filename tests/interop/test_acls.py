"""Kafka's AclCommand on a kraftlog node and on Apache Kafka: the same lines, the same output."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from interop.harness import Java, KafkaServer, KraftlogServer, copy_of
from interop.tool_runs import Said, run_kafka

ACL_COMMAND = "org.apache.kafka.tools.AclCommand"
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
# Each line is run on one node and then on the other.
RUNS = """
--list
--add --allow-principal User:alice --operation Read --operation Describe --topic orders
--add --allow-principal User:alice --operation Read --operation Describe --topic orders
--add --allow-principal User:bob --allow-host 192.0.2.1 --deny-principal User:eve --operation All --topic * --group g
--add --allow-principal User:carol --producer --topic pay- --resource-pattern-type prefixed --transactional-id t
--add --allow-principal User:dora --consumer --topic orders --group readers
--add --allow-principal User:admin --operation Alter --operation ClusterAction --cluster
--add --allow-principal User:owner --operation CreateTokens --user-principal User:owner
--list
--list --topic orders
--list --topic pay-out --resource-pattern-type match
--list --topic pay- --resource-pattern-type prefixed
--list --principal User:bob
--list --principal User:none
--list --cluster
--remove --force --allow-principal User:alice --operation Read --topic orders
--remove --force --allow-principal User:none --operation Read --topic orders
--remove --force --group readers
--remove --force --topic pay-out --resource-pattern-type match
--list
""".strip().splitlines()


def comparable(said: Said) -> tuple[int, list[str], str]:
    """Kafka prints resources, and the ACLs of each, in the order of a hash map."""
    blocks = re.split(r"\n(?=\S)", said.out.strip())
    ordered = ["\n".join(sorted(map(str.strip, block.splitlines()))) for block in blocks]
    return said.code, sorted(ordered), said.err.strip()


@pytest.mark.parametrize("where", ["--bootstrap-server", "--bootstrap-controller"])
@pytest.mark.slow
def test_acl_command_does_and_prints_what_it_does_with_kafka(tmp_path: Path, java: Java, where: str) -> None:
    nodes = [KafkaServer(tmp_path / "kafka", java, AUTHORIZER), KraftlogServer(tmp_path / "kraftlog", AUTHORIZER)]
    said = []
    try:
        for node in nodes:
            node.start()
            port = node.port if where == "--bootstrap-server" else node.controller_port
            runs = [[where, f"127.0.0.1:{port}", *line.split()] for line in RUNS]
            said.append(run_kafka(java, ACL_COMMAND, runs))
            if isinstance(node, KraftlogServer):
                node.restart()
                said[-1] += run_kafka(java, ACL_COMMAND, runs[-1:])
                assert comparable(said[-1][-1]) == comparable(said[-1][-2])
    finally:
        for node in nodes:
            node.kill()
    wrong = [
        f"{line}\n  Kafka:    {comparable(kafkas)}\n  kraftlog: {comparable(own)}"
        for line, kafkas, own in zip(RUNS, said[0], said[1][: len(RUNS)], strict=True)
        if comparable(kafkas) != comparable(own)
    ]
    assert not wrong, "\n".join(wrong)
    assert any("User:carol" in done.out for done in said[0])


@pytest.mark.parametrize("first", ["kafka", "kraftlog"])
def test_acls_of_one_product_are_those_of_the_other_on_its_directory(tmp_path: Path, java: Java, first: str) -> None:
    nodes = [KafkaServer(tmp_path / "kafka", java, AUTHORIZER), KraftlogServer(tmp_path / "kraftlog", AUTHORIZER)]
    source, target = nodes if first == "kafka" else reversed(nodes)
    adding = [line for line in RUNS if line.startswith("--add")]
    try:
        source.start()
        where = ["--bootstrap-server", source.bootstrap]
        run_kafka(java, ACL_COMMAND, [[*where, *line.split()] for line in adding])
        (listed,) = run_kafka(java, ACL_COMMAND, [[*where, "--list"]])
        source.stop()
        copy_of(source, target)
        target.start()
        (again,) = run_kafka(java, ACL_COMMAND, [[*where, "--list"]])
    finally:
        for node in nodes:
            node.kill()
    assert comparable(listed) == comparable(again)
    assert "User:carol" in listed.out
