"""kraftlog controllers as separate processes: KIP-853's stories, driven by Kafka's ``kafka-metadata-quorum``."""

from __future__ import annotations

import re
import time
from functools import partial
from pathlib import Path

import pytest

from interop.harness import Java
from interop.quorum import METADATA, METADATA_QUORUM, Controller, Quorum, observer_ids, voter_ids
from interop.tool_runs import Said, run_kafka, run_ours
from kraftlog._kraftlog import read_batches
from kraftlog.cli.metadata_quorum import main as metadata_quorum


def same_logs(quorum: Quorum) -> None:
    """After a stop the log of one replica is a prefix of the other's, byte for byte."""
    files = [controller.metadata_files for controller in quorum.controllers]
    longest = max(files, key=lambda logs: sum(map(len, logs.values())))
    for logs in files:
        for name, data in logs.items():
            assert longest[name].startswith(data)


@pytest.mark.spec("BOOT-24", "RPC-01", "RPC-34", "RPC-35", "RPC-48")
def test_three_voters_elect_one_replicate_and_survive_its_death(tmp_path: Path, java: Java) -> None:
    quorum = Quorum(tmp_path, java, 3)
    quorum.format_together()
    with quorum.running():
        first = quorum.wait_for(lambda status: status["LeaderId"] > 0)
        assert voter_ids(first) == [1, 2, 3]
        quorum.controller(first["LeaderId"]).kill()
        second = quorum.wait_for(lambda status: status["LeaderId"] not in {-1, first["LeaderId"]})
        assert second["HighWatermark"] >= first["HighWatermark"]
        quorum.controller(first["LeaderId"]).launch()
        quorum.wait_for(lambda status: int(status["MaxFollowerLagTimeMs"]) >= 0 and int(status["MaxFollowerLag"]) < 5)
        same_times(quorum, next(number for number in (1, 2, 3) if number != second["LeaderId"]))
        for controller in quorum.controllers:
            controller.stop()
    same_logs(quorum)
    for controller in quorum.controllers:
        dump = java.tool(
            "org.apache.kafka.tools.DumpLogSegments",
            "--cluster-metadata-decoder",
            "--files",
            str(controller.data_dir / METADATA / "00000000000000000000.log"),
        ).stdout
        assert "REGISTER_CONTROLLER_RECORD" in dump


def same_times(quorum: Quorum, node_id: int) -> None:
    """``--human-readable`` says as Kafka's tool how long ago a replica that is gone was heard of."""
    quorum.controller(node_id).kill()
    where = ["--bootstrap-controller", quorum.bootstrap, "describe", "--replication"]

    def rows(said: Said) -> list[list[str]]:
        assert said.code == 0, said.err
        return [[cell.strip() for cell in line.split("\t")] for line in said.out.splitlines()]

    (plain,) = run_ours(metadata_quorum, [where])
    moments = {row[0]: row[4:6] for row in rows(plain)[1:]}
    found: list[list[list[str]]] = []
    for ask in (partial(run_kafka, quorum.java, METADATA_QUORUM), partial(run_ours, metadata_quorum)):
        begun_ms = int(time.time() * 1000)
        (said,) = ask([[*where, "--human-readable"]])
        ended_ms = int(time.time() * 1000)
        found.append(rows(said))
        gone = next(row for row in found[-1] if row[0] == str(node_id))
        for text, moment in zip(gone[4:6], moments[str(node_id)], strict=True):
            ago = re.fullmatch(r"(\d+) ms ago", text)
            assert ago is not None, gone
            # Each side cuts its own clock to whole milliseconds.
            assert begun_ms - int(moment) - 1 <= int(ago[1]) <= ended_ms - int(moment) + 1
    theirs, ours = found
    for row, own in zip(theirs, ours, strict=True):  # the columns of offsets and times move
        assert [re.sub(r"\d+ ms ago", "ago", cell) for cell in own[4:]] == [
            re.sub(r"\d+ ms ago", "ago", cell) for cell in row[4:]
        ]
        assert own[:2] == row[:2]
    # Only a replica that is there is named: the client of Kafka's tool may warn of another one before that.
    living = next(controller for controller in quorum.controllers if controller.node_id != node_id)
    alone = ["--bootstrap-controller", f"127.0.0.1:{living.port}", "describe"]
    refused = [[*alone, *flags] for flags in ([], ["--status", "--replication"], ["--status", "--human-readable"])]
    assert run_kafka(quorum.java, METADATA_QUORUM, refused) == run_ours(metadata_quorum, refused)


def same_words(quorum: Quorum) -> None:
    """Our tool prints what Kafka's does, numbers that move left out."""
    for what in ("--status", "--replication"):
        theirs, ours = quorum.tool("describe", what), quorum.our_tool("describe", what)
        moving = r"(HighWatermark|MaxFollowerLag|MaxFollowerLagTimeMs):\s+-?\d+|\t-?\d+ *(?=\t)"
        assert re.sub(moving, "", ours).split() == re.sub(moving, "", theirs).split()
        assert [len(line.split("\t")) for line in ours.splitlines()] == [
            len(line.split("\t")) for line in theirs.strip("\n").splitlines()
        ]


def test_one_voter_grows_to_three_and_its_leader_is_removed(tmp_path: Path, java: Java) -> None:
    quorum = Quorum(tmp_path, java, 3)
    quorum.controllers[0].format_arguments = ["--standalone"]
    with quorum.running():
        quorum.wait_for(lambda status: observer_ids(status) == [2, 3])
        same_words(quorum)
        for node_id, tool in ((2, quorum.tool), (3, quorum.our_tool)):
            one = quorum.controller(node_id)
            added = tool("add-controller", config=one.properties_path)
            where = f"CONTROLLER://127.0.0.1:{one.port}"
            assert re.search(rf"Added controller {node_id} with directory id \S{{22}} and endpoints: {where}", added)
        same_words(quorum)
        grown = quorum.wait_for(lambda status: voter_ids(status) == [1, 2, 3])
        leader = next(voter for voter in grown["CurrentVoters"] if voter["id"] == grown["LeaderId"])
        removed = quorum.tool(
            "remove-controller",
            "--controller-id",
            str(leader["id"]),
            "--controller-directory-id",
            leader["directoryId"],
        )
        assert f"KRaft controller {leader['id']} with directory id" in removed
        left = quorum.wait_for(lambda status: status["LeaderId"] not in {-1, leader["id"]})
        assert voter_ids(left) == [number for number in (1, 2, 3) if number != leader["id"]]


def test_a_controller_joins_by_itself(tmp_path: Path, java: Java) -> None:
    quorum = Quorum(tmp_path, java, 2, {"controller.quorum.auto.join.enable": "true"})
    quorum.controllers[0].format_arguments = ["--standalone"]
    with quorum.running():
        quorum.wait_for(lambda status: voter_ids(status) == [1, 2])


def batches(controller: Controller) -> dict[int, bytes]:
    """The bytes of each batch by its base offset."""
    return {
        batch.base_offset: data[batch.position : batch.position + batch.size_bytes]
        for data in controller.metadata_files.values()
        for batch in read_batches(data)
    }


def first_offset(controller: Controller) -> int:
    """Base offset of the first segment; 0 while there is none."""
    return min((int(name.split(".")[0]) for name in controller.metadata_files), default=0)


def test_a_controller_that_comes_late_loads_a_snapshot(tmp_path: Path, java: Java) -> None:
    small = {
        "metadata.max.idle.interval.ms": "2",
        "metadata.log.max.record.bytes.between.snapshots": "4000",
        "metadata.max.retention.bytes": "20000",
        "internal.metadata.log.segment.bytes": "6000",
    }
    quorum = Quorum(tmp_path, java, 2, small)
    first, late = quorum.controllers
    first.format_arguments = ["--standalone"]
    with quorum.running():
        late.kill()
        deadline = time.monotonic() + 60
        while first_offset(first) == 0:
            assert time.monotonic() < deadline, "the log of the first never began to be cut"
            time.sleep(0.2)
        late.launch()
        quorum.wait_for(lambda status: observer_ids(status) == [2])
        assert "Added controller 2" in quorum.tool("add-controller", config=late.properties_path)
        quorum.wait_for(lambda status: voter_ids(status) == [1, 2])
        for controller in quorum.controllers:
            controller.stop()
    checkpoints = sorted(path.name for path in (late.data_dir / METADATA).glob("*.checkpoint"))
    assert checkpoints[0] != "00000000000000000000-0000000000.checkpoint"
    assert first_offset(late) > 0
    ours, theirs = batches(first), batches(late)
    common = set(ours) & set(theirs)
    assert len(common) > 10
    assert all(ours[offset] == theirs[offset] for offset in common)
