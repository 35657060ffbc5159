"""``kraftlog.Quorum`` in processes of their own: kill -9, joining and leaving, and a busy interpreter beside it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import time
from pathlib import Path

import pytest

from free_ports import free_addresses
from interop.line_process import LineProcess
from kraftlog._kraftlog import read_batches
from waiting import until_true

MEMBER = Path(__file__).with_name("quorum_member.py")
PARTITION = "__cluster_metadata-0"
# A short look in every run of the tests; `.ci/dev quorum-gil` takes ten minutes.
GIL_SECONDS = float(os.environ.get("KRAFTLOG_GIL_SECONDS", "8"))


class Member(LineProcess):
    """One process."""

    def __init__(self, home, node_id, voters, *arguments, **options):
        self.node_id = node_id
        self.data_dir = home / str(node_id)
        options = {"node_id": node_id, "data_dir": str(self.data_dir), "timeout_s": 30, **options}
        if voters:
            options["voters"] = voters
        super().__init__(MEMBER, json.dumps(options), *arguments)
        self.about = self.read_first_line()

    def batches(self):
        """What its log holds, as (base offset, epoch, bytes)."""
        found = []
        for path in sorted((self.data_dir / PARTITION).glob("*.log")):
            data = path.read_bytes()
            found += [
                (
                    batch.base_offset,
                    batch.partition_leader_epoch,
                    data[batch.position : batch.position + batch.size_bytes],
                )
                for batch in read_batches(data)
            ]
        return found


@pytest.fixture
def start(tmp_path):
    members = []

    def begin(node_id, voters, *arguments, **options):
        members.append(Member(tmp_path, node_id, voters, *arguments, **options))
        return members[-1]

    yield begin
    for member in members:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            member.process.send_signal(signal.SIGCONT)
        with contextlib.suppress(OSError):
            member.process.stdin.close()
    for member in members:
        try:
            member.process.wait(20)
        except subprocess.TimeoutExpired:
            member.kill()


def leader_of(members, timeout_s=30):
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        for member in members:
            if member.ask("status")["is_leader"]:
                return member
        time.sleep(0.05)
    raise TimeoutError("no leader")


def three(start, *arguments, **options):
    voters = dict(enumerate(free_addresses(3), 1))
    return voters, [start(node_id, voters, *arguments, **options) for node_id in voters]


@pytest.mark.slow
def test_what_was_acknowledged_outlives_kills_and_reads_never_go_back(start):
    voters, members = three(start)
    acknowledged = 0
    for round_ in range(3):
        leader = leader_of(members)
        for _ in range(20):
            for member in members:
                count = member.ask("call", command=f"{round_}")
                assert count > acknowledged
                acknowledged = count
        assert members[round_].ask("read")[1] >= acknowledged
        leader.kill()
        rest = [member for member in members if member is not leader]
        for member in rest:  # linearizable: each sees what the others were told
            assert member.ask("read")[1] >= acknowledged
            acknowledged = max(acknowledged, member.ask("call", command="after"))
        back = members[leader.node_id - 1] = start(leader.node_id, voters)
        assert back.ask("read")[1] >= acknowledged
    for member in members:
        assert member.ask("read")[1] == acknowledged
    for member in members:
        member.process.stdin.close()
    for member in members:
        member.process.wait(30)
    logs = [member.batches() for member in members]
    shortest = min(map(len, logs))
    assert all(log[:shortest] == logs[0][:shortest] for log in logs), "the logs are byte for byte the same"


def test_a_paused_leader_answers_no_read_that_is_too_old(start):
    _, members = three(start)
    leader = leader_of(members)
    assert leader.ask("call", command="old") == 1
    rest = [member for member in members if member is not leader]
    leader.process.send_signal(signal.SIGSTOP)
    assert rest[0].ask("call", command="new") == 2  # by the next leader
    leader.process.send_signal(signal.SIGCONT)
    assert leader.ask("read") == ["new", 2]


@pytest.mark.slow
def test_a_fourth_process_joins_and_another_leaves(start):
    voters, members = three(start)
    leader = leader_of(members)
    leader.ask("call", command="a")
    fourth = start(4, None, join=list(voters.values()), address=free_addresses(1)[0])
    assert fourth.ask("read") == ["a", 1]
    fourth.ask("join")
    until_true(lambda: fourth.ask("voters") == [1, 2, 3, 4])  # it reads them from its own copy of the log
    leader.ask("leave")
    until_true(lambda: leader.node_id not in fourth.ask("voters"))
    assert fourth.ask("call", command="b") == 2
    leader.close()
    again = start(5, None, join=list(voters.values()), address=free_addresses(1)[0], auto_join=True)
    until_true(lambda: 5 in fourth.ask("voters"))
    assert again.ask("read") == ["b", 2]


@pytest.mark.slow
@pytest.mark.timeout(GIL_SECONDS + 280)
def test_a_thread_that_computes_without_pause_does_not_cost_leadership(start):
    """All three processes have such a thread, on whatever cores there are."""
    _, members = three(start, "busy")
    leader = leader_of(members, timeout_s=60)
    epoch = leader.ask("status")["epoch"]
    leader.send("load", seconds=GIL_SECONDS, pause_s=0.02)
    loaded = leader.receive()
    after = [member.ask("status") for member in members]
    latencies = loaded["latencies"]
    median, p99 = statistics.median(latencies), latencies[len(latencies) * 99 // 100]
    print(
        f"{len(latencies)} commits in {GIL_SECONDS:.0f} s beside pure Python:"
        f" median {median:.0f} ms, p99 {p99:.0f} ms, worst {latencies[-1]:.0f} ms"
    )
    epochs = {status["epoch"] for status in after}
    assert epochs == {epoch}, f"leadership changed: from epoch {epoch} to {epochs}; {loaded['failures']}"
    assert {status["leader_id"] for status in after} == {leader.node_id}
    assert loaded["failures"] == []
    assert all(status["laps"] > 0 for status in after), "the threads did compute"
