"""KIP-853's stories, as docs/how-to tells them: kraftlog controllers as processes, with both products' tools."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from interop.harness import Java
from interop.quorum import METADATA
from interop.story import Story, story
from waiting import until_true


def assert_kafka_reads(told: Story, java: Java) -> str:
    """DumpLogSegments reads every log and checkpoint that the controllers wrote, to the last byte; what it printed."""
    printed: list[str] = []
    for folder in sorted(told.home.rglob(f"c*/data/{METADATA}")):
        files = sorted(path for path in folder.iterdir() if path.suffix in {".log", ".checkpoint"})
        listed = ",".join(map(str, files))
        done = java.tool("org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", listed)
        assert "isvalid: false" not in done.stdout
        sections = re.split(r"^Dumping ", done.stdout, flags=re.MULTILINE)[1:]
        assert len(sections) == len(files)
        for path, section in zip(files, sections, strict=True):
            ends = re.findall(r"position: (\d+) .*?size: (\d+) ", section)
            assert sum(map(int, ends[-1])) == path.stat().st_size, f"{path} is not read to its end"
        printed.append(done.stdout)
    return "".join(printed)


def replicas_agree(told: Story) -> None:
    """Of any two logs one is a prefix of the other, byte for byte."""
    name = "00000000000000000000.log"
    logs = [path.read_bytes() for path in sorted(told.home.rglob(f"c*/data/{METADATA}/{name}"))]
    longest = max(logs, key=len)
    assert len(logs) > 2
    assert all(longest.startswith(log) for log in logs)


@pytest.fixture
def told(tmp_path: Path, java: Java):
    with story(tmp_path / "story", java) as one:
        yield one


def three_voters(told: Story) -> None:
    told.read("quorum-of-several.md")


def stop_all(told: Story) -> None:
    told.run("for one in c*/pid; do kill $(cat $one) 2> stop.err || true; done\nwait\n")


@pytest.mark.slow
@pytest.mark.spec("BOOT-33", "BOOT-34", "BOOT-36", "BOOT-38", "BOOT-39")
def test_one_controller_grows_to_three(told: Story, java: Java) -> None:
    told.read("quorum-grow.md")
    stop_all(told)
    replicas_agree(told)
    assert_kafka_reads(told, java)


@pytest.mark.slow
def test_several_voters_are_formatted_at_once(told: Story, java: Java) -> None:
    three_voters(told)
    stop_all(told)
    replicas_agree(told)
    assert_kafka_reads(told, java)


@pytest.mark.slow
def test_controllers_join_by_themselves_and_again_with_a_new_disk(told: Story) -> None:
    told.read("quorum-auto-join.md")
    new = told.run("echo $new\n").strip()
    told.run(
        "kraftlog metadata-quorum --bootstrap-controller 127.0.0.1:9091 describe --status\n",
        f'...\nCurrentVoters: [{{"id": 1, ...}}, {{"id": 2, ...}}, {{"id": 3, "directoryId": "{new}", ...}}]\n...\n',
    )


@pytest.mark.slow
def test_a_failed_disk_is_replaced(told: Story, java: Java) -> None:
    three_voters(told)
    told.read("quorum-disk-failure.md")
    assert told.run("echo $old\n") != told.run("sed -n 's/^directory.id=//p' c3/data/meta.properties\n")
    stop_all(told)
    replicas_agree(told)
    assert_kafka_reads(told, java)


@pytest.mark.slow
def test_a_node_is_replaced_by_another(told: Story) -> None:
    three_voters(told)
    told.read("quorum-node-replacement.md")
    # The two that stayed and the new one are a quorum of which any may fail.
    told.run("kill -9 $(cat c1/pid)\n")
    told.run(
        "kraftlog metadata-quorum --bootstrap-controller $servers describe --replication\n",
        "NodeId ...\n... Leader\n... Follower\n... Follower\n...\n",
    )
    stop_all(told)
    replicas_agree(told)


@pytest.mark.slow
def test_the_leader_is_removed(told: Story) -> None:
    three_voters(told)
    told.read("quorum-remove-leader.md")
    leader = told.run("echo $leader\n").strip()
    out = told.run(
        "kraftlog metadata-quorum --bootstrap-controller $servers describe --status\n",
        "...\nCurrentVoters: [{...}, {...}]\n...\n",
    )
    assert f'"id": {leader},' not in next(line for line in out.splitlines() if line.startswith("CurrentVoters"))
    stop_all(told)
    replicas_agree(told)


@pytest.mark.spec("KVER-04", "KVER-15", "KVER-19", "BOOT-25")
@pytest.mark.slow
def test_a_static_quorum_is_made_dynamic(told: Story, java: Java) -> None:
    told.read("quorum-static-voters.md")
    theirs = told.run("kafka-features --bootstrap-controller $servers describe\n")
    ours = told.run("kraftlog features --bootstrap-controller $servers describe\n")
    assert re.sub(r"Epoch: \d+", "", theirs) == re.sub(r"Epoch: \d+", "", ours)
    assert re.search(r"kraft.version +SupportedMinVersion: 0 +SupportedMaxVersion: 1 +FinalizedVersionLevel: 1", ours)
    refused = told.run(
        "kraftlog features --bootstrap-controller $servers downgrade --feature kraft.version=0 || true\n"
    )
    assert "Can't downgrade the version of this feature." in refused
    stop_all(told)
    replicas_agree(told)
    assert_kafka_reads(told, java)


@pytest.mark.spec("ENDP-20", "ENDP-22")
@pytest.mark.slow
def test_a_voter_moves_to_another_port(told: Story) -> None:
    three_voters(told)
    told.run(
        "kill $(cat c3/pid)\nwait $(cat c3/pid) || true\n"
        "sed -i 's/^listeners=.*/listeners=CONTROLLER:\\/\\/127.0.0.1:9096/' c3/server.properties\n"
        "kraftlog server-start c3/server.properties > c3/server.log 2>&1 &\necho $! > c3/pid\n"
    )
    told.run(
        "kraftlog metadata-quorum --bootstrap-controller $servers describe --status\n",
        '...\nCurrentVoters: [{"id": 1, ...}, {"id": 2, ...}, {"id": 3, ...["CONTROLLER://127.0.0.1:9096"]}]\n...\n',
    )
    # The others reach it there: with one of them gone, it is needed.
    told.run("kill -9 $(cat c1/pid)\n")
    other = "kraftlog metadata-quorum --bootstrap-controller 127.0.0.1:9092,127.0.0.1:9096"
    told.run(f"{other} describe --status\n", "ClusterId: ...\nLeaderId: ...\nLeaderEpoch: ...\n...\n")

    def high_watermark() -> int:
        return int(told.run(f"{other} describe --status | sed -n 's/^HighWatermark: *//p'\n"))

    before = high_watermark()
    until_true(lambda: high_watermark() > before)  # the leader writes records when idle; only a majority commits them
    stop_all(told)
    replicas_agree(told)
