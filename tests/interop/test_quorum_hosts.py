"""``kraftlog.QuorumHost`` in processes of their own: Kafka's tool reaches each quorum, and kill -9 of a leader."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from free_ports import free_addresses
from interop.line_process import LineProcess
from interop.quorum import METADATA_QUORUM
from waiting import until_true

MEMBER = Path(__file__).with_name("quorum_host_member.py")
NAMES = ["accounts", "orders", "stock"]
# Without connections to a dead leader, its followers stand for election after one fetch time-out.
QUICK = {
    "controller.quorum.election.timeout.ms": 300,
    "controller.quorum.fetch.timeout.ms": 1000,
    "controller.quorum.fetch.wait.max.ms": 300,
}


class Member(LineProcess):
    """One process with all quorums."""

    def __init__(self, home, node_id, voters):
        options = {
            "node_id": node_id,
            "data_dir": str(home / str(node_id)),
            "voters": voters,
            "names": NAMES,
            "config": QUICK,
        }
        super().__init__(MEMBER, json.dumps(options))

    def wait_until_open(self):
        self.address = self.read_first_line()["address"]


@pytest.fixture
def members(tmp_path):
    """Three processes, by node id."""
    voters = dict(enumerate(free_addresses(3), 1))
    started = {node_id: Member(tmp_path, node_id, voters) for node_id in voters}
    try:
        for member in started.values():
            member.wait_until_open()
        yield started
    finally:
        for member in started.values():
            member.close()


def test_kafkas_tool_describes_the_quorum_that_its_client_id_names(members, java, tmp_path):
    for number, name in enumerate(NAMES, 1):
        for index in range(5 * number):
            members[1].ask("propose", name=name, command=str(index))
        members[1].ask("read", name=name)
        leader_id = members[1].ask("leader", name=name)
        members[leader_id].ask("lead", name=name, node_id=number)
        settings = tmp_path / f"{name}.properties"
        settings.write_text(f"client.id=operator@{name}\n")
        tool = [METADATA_QUORUM, "--bootstrap-controller", members[2].address, "--command-config", str(settings)]
        status = java.tool(*tool, "describe", "--status").stdout
        assert re.search(rf"^LeaderId:\s+{number}$", status, re.MULTILINE), status
        high_watermark = int(re.search(r"^HighWatermark:\s+(\d+)$", status, re.MULTILINE)[1])
        assert high_watermark > 5 * number
        assert status.count('"id"') == 3 or re.search(r"CurrentVoters:\s+\[.*1.*2.*3.*\]", status), status
        replication = java.tool(*tool, "describe", "--replication").stdout
        assert [line.split()[-1] for line in replication.splitlines()[1:]].count("Follower") == 2, replication


def test_every_quorum_commits_again_after_its_leaders_process_was_killed(members):
    for name in NAMES:
        members[members[1].ask("leader", name=name) or 1].ask("propose", name=name, command="before")
        leader_id = members[1].ask("leader", name=name)
        if leader_id != 1:
            members[leader_id].ask("lead", name=name, node_id=1)
    until_true(lambda: all(members[2].ask("leader", name=name) == 1 for name in NAMES))
    members[1].kill()
    for name in NAMES:
        members[2].ask("propose", name=name, command="after")
        assert members[3].ask("read", name=name) == ["before", "after"]
        assert members[3].ask("leader", name=name) in {2, 3}
