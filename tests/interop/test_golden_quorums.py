"""Quorums that Apache Kafka wrote are opened and continued by kraftlog controllers, as processes, on the same ports."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from batch_rows import GOLDEN
from interop.harness import Java
from interop.quorum import METADATA, Controller, Quorum, voter_ids
from kraftlog.cli.features import main as features
from kraftlog.raft.voter_set import VoterSet
from kraftlog.runtime.raft.opened_log import read_opened
from kraftlog.storage.meta_properties import read_meta_properties
from kraftlog.storage.metadata_log import MetadataLog, MetadataLogConfig

LOGS = GOLDEN / "kraft" / "logs"


def voters_of(directory: Path, scratch: Path) -> VoterSet:
    """The newest voter set in the log."""
    shutil.copytree(directory / METADATA, scratch)
    log = MetadataLog(scratch, MetadataLogConfig(), now_ms=0, clean_shutdown=False)
    try:
        return read_opened(log, VoterSet()).voters.latest
    finally:
        log.close()


def segments(controller: Controller) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (controller.data_dir / METADATA).glob("*.log")}


@pytest.mark.parametrize("moment", ["dynamic/10-stopped", "static/05-dynamic"])
def test_a_quorum_of_kafkas_is_continued(tmp_path: Path, java: Java, moment: str) -> None:
    folders = {int(path.name.removeprefix("node-")): path for path in (LOGS / moment).glob("node-*")}
    voters = voters_of(folders[max(folders)], tmp_path / "scratch")
    assert len(voters) >= 2
    quorum = Quorum(tmp_path, java, 0)
    for voter in voters:
        endpoint = voter.endpoints[0]
        one = Controller(
            tmp_path / f"c{voter.key.node_id}",
            voter.key.node_id,
            {
                "listeners": f"{endpoint.name}://{endpoint.host}:{endpoint.port}",
                "controller.listener.names": endpoint.name,
                "listener.security.protocol.map": f"{endpoint.name}:PLAINTEXT",
            },
        )
        one.port = endpoint.port
        shutil.copytree(folders[voter.key.node_id], one.data_dir)
        quorum.controllers.append(one)
    for controller in quorum.controllers:
        controller.bootstrap_servers = quorum.bootstrap
    cluster_id = read_meta_properties(quorum.controllers[0].data_dir).cluster_id
    before = [segments(controller) for controller in quorum.controllers]
    with quorum.running():
        first = quorum.wait_for(lambda status: status["LeaderId"] > 0, 90)
        assert first["ClusterId"] == cluster_id
        assert voter_ids(first) == list(voters.ids)
        assert features(["--bootstrap-controller", quorum.bootstrap, "downgrade", "--feature", "share.version=0"]) == 0
        quorum.wait_for(lambda status: status["HighWatermark"] > first["HighWatermark"])
        for controller in quorum.controllers:
            controller.stop()
    longest = max(
        (segments(controller) for controller in quorum.controllers), key=lambda logs: sum(map(len, logs.values()))
    )
    for controller, old in zip(quorum.controllers, before, strict=True):
        new = segments(controller)
        for name, data in old.items():
            assert new[name].startswith(data), f"{controller.node_id}: {name} of Kafka's was changed"
        assert all(longest[name].startswith(data) for name, data in new.items())
        files = sorted((one.data_dir / METADATA).glob("*.log")) + sorted((one.data_dir / METADATA).glob("*.checkpoint"))
        listed = ",".join(map(str, files))
        dump = java.tool(
            "org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", listed
        ).stdout
        assert "isvalid: false" not in dump
        assert '"name":"share.version","featureLevel":0' in dump
