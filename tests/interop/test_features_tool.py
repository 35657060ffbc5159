"""``kraftlog features`` and Kafka's FeatureCommand against the same kraftlog node, with the same arguments."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from interop.harness import Java, KraftlogServer
from interop.tool_runs import Said, run_kafka, run_ours
from kraftlog.cli.features import main

# Each line is run by one tool on one node and by the other one on another node.
RUNS = """
describe
describe --node-id 1
describe --node-id -5
upgrade
upgrade --feature group.version
upgrade --feature group.version=x
upgrade --feature group.version=1 --feature group.version=0
upgrade --feature group.version=1 --feature group.version=1
upgrade --feature foo=1
upgrade --feature group.version=7
upgrade --feature kraft.version=1
upgrade --feature metadata.version=12 --feature group.version=1 --dry-run
upgrade --metadata 3.8
upgrade --metadata 9.9
upgrade --metadata 3.9 --release-version 3.9
upgrade --release-version 9.9
upgrade --release-version 4.0 --feature group.version=1
upgrade --release-version 4.0 --dry-run
upgrade --release-version 4.0
describe
downgrade --feature group.version=0 --dry-run
downgrade --feature group.version=0
downgrade --feature kraft.version=0
downgrade --metadata 3.7
downgrade --metadata 3.7 --unsafe
downgrade --release-version 3.7 --dry-run
disable --feature transaction.version --dry-run
disable --feature transaction.version --feature transaction.version
disable --feature transaction.version
disable
upgrade --feature eligible.leader.replicas.version=1
version-mapping
version-mapping --release-version 3.9
version-mapping --release-version 9.9
feature-dependencies --feature metadata.version=25 --feature eligible.leader.replicas.version=1
feature-dependencies --feature metadata.version=99
feature-dependencies --feature foo=1
feature-dependencies --feature group.version=9
describe
bogus
""".strip().splitlines()


def comparable(said: Said) -> tuple[int, str, str]:
    """Without the epoch; usage and parse errors are worded by the libraries themselves."""
    out = re.sub(r"Epoch: \d+", "Epoch", said.out)
    is_usage = "usage: " in said.err or "Command line error: " in said.err
    return said.code, out.rstrip(), "usage" if is_usage else said.err.rstrip()


@pytest.mark.spec("KVER-02", "KVER-03", "KVER-06", "KVER-07", "KVER-08")
@pytest.mark.parametrize("where", ["--bootstrap-server", "--bootstrap-controller"])
def test_features_does_and_says_what_kafkas_tool_does(tmp_path: Path, java: Java, where: str) -> None:
    nodes = [KraftlogServer(tmp_path / name) for name in ("kafkas", "ours")]
    for node in nodes:
        node.write_properties()
        node.format_arguments = ["--release-version", "3.7"]
    try:
        for node in nodes:
            node.start()
        runs = [
            [
                [
                    where,
                    f"127.0.0.1:{node.port if where == '--bootstrap-server' else node.controller_port}",
                    *line.split(),
                ]
                for line in RUNS
            ]
            for node in nodes
        ]
        theirs = run_kafka(java, "org.apache.kafka.tools.FeatureCommand", runs[0])
        ours = run_ours(main, runs[1])
    finally:
        for node in nodes:
            node.kill()
    wrong = [
        f"{line}\n  Kafka: {comparable(kafkas)}\n  ours:  {comparable(own)}"
        for line, kafkas, own in zip(RUNS, theirs, ours, strict=True)
        if comparable(kafkas) != comparable(own)
    ]
    assert not wrong, "\n".join(wrong)
