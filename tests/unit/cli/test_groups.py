"""``kraftlog groups`` against a live node: what it prints, changes and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kraftlog
from kraftlog.cli.groups import main
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from kraftlog.wire.messages.join_group import JoinGroupRequest
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest
from kraftlog.wire.messages.sync_group import SyncGroupRequest
from raw_client import RawClient

CONFIG = {"offsets.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "0"}
SUBSCRIPTION = bytes.fromhex("0001 00000001 0001 74 ffffffff")
ASSIGNMENT = bytes.fromhex("0001 00000001 0001 74 00000002 00000000 00000001 ffffffff")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kraftlog.Broker]:
    with kraftlog.Broker(tmp_path_factory.mktemp("data"), config=CONFIG) as one:
        one.create_topic("t", partitions=2)
        one.create_topic("u", partitions=1)
        with RawClient(one.bootstrap_servers) as client:
            client.call(FindCoordinatorRequest(coordinator_keys=["any"]))
        with kraftlog.Producer({"bootstrap.servers": one.bootstrap_servers}) as producer:
            for number in range(10):
                producer.send("t", b"v", partition=0, timestamp=1_000_000 + number * 1_000)
            producer.flush()
        yield one


@pytest.fixture
def client(broker: kraftlog.Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as one:
        yield one


@pytest.fixture
def run(broker: kraftlog.Broker, capsys: pytest.CaptureFixture[str]) -> Run:
    def go(*arguments: str) -> tuple[int, str, str]:
        status = main(["--bootstrap-server", broker.bootstrap_servers, *arguments])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return go


def commit(client: RawClient, group: str, *offsets: tuple[str, int, int]) -> None:
    topics = [
        OffsetCommitRequest.OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
            ],
        )
        for topic, index, offset in offsets
    ]
    answer = client.call(OffsetCommitRequest(group_id=group, topics=topics), 9)
    assert [p.error_code for t in answer.topics for p in t.partitions] == [0] * len(offsets)


def stable(client: RawClient, group: str) -> str:
    """A classic group of one member that owns both partitions of t."""
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )
    member_id: str = client.call(request, 3).member_id
    part = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=ASSIGNMENT)
    client.call(SyncGroupRequest(group_id=group, generation_id=1, member_id=member_id, assignments=[part]), 4)
    return member_id


def offsets_of(run: Run, group: str) -> dict[str, Any]:
    status, out, _ = run("describe", "--group", group, "--json")
    assert status == 0
    return {f"{row['topic']}-{row['partition']}": row["current-offset"] for row in json.loads(out)}


def test_groups_are_listed_by_state_and_type(run: Run, client: RawClient) -> None:
    commit(client, "listed-a", ("t", 0, 3))
    stable(client, "listed-b")
    _, out, _ = run("list")
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["GROUP", "TYPE", "STATE", "PROTOCOL"]
    assert ["listed-b", "classic", "Stable", "consumer"] in lines
    _, out, _ = run("list", "--state", "stable,nosuch", "--json")
    found = {row["group"] for row in json.loads(out)}
    assert "listed-b" in found
    assert "listed-a" not in found
    assert json.loads(run("list", "--type", "share", "--json")[1]) == []


def test_a_group_is_described_by_offsets_members_and_state(
    run: Run, client: RawClient, broker: kraftlog.Broker
) -> None:
    member_id = stable(client, "shown")
    fields = {"generation_id_or_member_epoch": 1, "member_id": member_id}
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(
        name="t", partitions=[OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=4)]
    )
    client.call(OffsetCommitRequest(group_id="shown", topics=[topic], **fields), 9)
    status, out, _ = run("describe", "--group", "shown")
    assert status == 0
    assert [line.split()[:6] for line in out.splitlines()] == [
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"],
        ["shown", "t", "0", "4", "10", "6"],
        ["shown", "t", "1", "-", "0", "-"],
    ]
    assert out.splitlines()[1].split()[6:8] == [member_id, "/127.0.0.1"]
    (row,) = json.loads(run("describe", "--group", "shown", "--members", "--json")[1])
    assert (row["consumer-id"], row["#partitions"], row["assignment"]) == (member_id, 2, "t:0,1")
    (row,) = json.loads(run("describe", "--group", "shown", "--state", "--json")[1])
    assert (row["state"], row["assignment-strategy"], row["#members"]) == ("Stable", "range", 1)
    assert row["coordinator (id)"].startswith(broker.bootstrap_servers)
    status, _, err = run("describe", "--group", "absent")
    assert (status, "Group absent not found." in err) == (1, True)


def test_groups_are_deleted_when_they_have_no_members(run: Run, client: RawClient) -> None:
    commit(client, "doomed", ("t", 0, 3))
    stable(client, "busy")
    status, out, err = run("delete", "--group", "doomed", "--group", "busy", "--group", "absent")
    assert status == 1
    assert "('doomed') was successful" in out
    assert "'busy' could not be deleted due to: NON_EMPTY_GROUP" in err
    assert "'absent' could not be deleted due to: GROUP_ID_NOT_FOUND" in err


def test_offsets_are_deleted_by_topic_and_partition(run: Run, client: RawClient) -> None:
    commit(client, "cut", ("t", 0, 3), ("t", 1, 0), ("u", 0, 0))
    status, out, _ = run("delete-offsets", "--group", "cut", "--topic", "t:0", "--topic", "u")
    assert (status, out.count("Successful")) == (0, 2)
    assert offsets_of(run, "cut") == {"t-1": 0}
    assert run("delete-offsets", "--group", "cut", "--topic", "nosuch")[0] == 1
    assert run("delete-offsets", "--group", "absent", "--topic", "t")[0] == 1


@pytest.mark.parametrize(
    ("scenario", "offset"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--to-current"], 4),
        (["--to-offset", "7"], 7),
        (["--to-offset", "70"], 10),
        (["--shift-by", "2"], 6),
        (["--shift-by", "-9"], 0),
        (["--to-datetime", "1970-01-01T00:16:44.500"], 5),
        (["--to-datetime", "1970-01-01T01:16:44.500+01:00"], 5),
        (["--by-duration", "PT1S"], 10),
        (["--by-duration", "P30000D"], 0),
    ],
)
def test_offsets_are_reset_to_every_place_only_when_executed(
    run: Run, client: RawClient, scenario: list[str], offset: int
) -> None:
    commit(client, "moved", ("t", 0, 4))
    status, out, _ = run("reset-offsets", "--group", "moved", "--topic", "t:0", *scenario, "--dry-run", "--json")
    assert status == 0
    assert json.loads(out) == [{"group": "moved", "topic": "t", "partition": 0, "new-offset": offset}]
    assert offsets_of(run, "moved") == {"t-0": 4}, "a dry run"
    assert run("reset-offsets", "--group", "moved", "--all-topics", *scenario, "--execute")[0] == 0
    assert offsets_of(run, "moved") == {"t-0": offset}


def test_exported_offsets_can_be_read_again(run: Run, client: RawClient, tmp_path: Any) -> None:
    commit(client, "exported", ("t", 0, 4), ("u", 0, 0))
    status, out, _ = run("reset-offsets", "--group", "exported", "--all-topics", "--to-earliest", "--export")
    assert (status, out) == (0, "t,0,0\nu,0,0\n")
    path = tmp_path / "offsets.csv"
    path.write_text("t,0,99\nexported,u,0,0\nother,t,1,5\n")
    status, out, err = run("reset-offsets", "--group", "exported", "--from-file", str(path), "--execute", "--json")
    assert status == 0
    assert "higher than latest offset" in err
    assert [(row["topic"], row["partition"], row["new-offset"]) for row in json.loads(out)] == [
        ("t", 0, 10),
        ("u", 0, 0),
    ]
    assert offsets_of(run, "exported") == {"t-0": 10, "u-0": 0}
    path.write_text("t,zero,1\n")
    assert "line 1" in run("reset-offsets", "--group", "exported", "--from-file", str(path))[2]


def test_a_group_with_members_is_not_reset(run: Run, client: RawClient) -> None:
    stable(client, "active")
    status, _, err = run("reset-offsets", "--group", "active", "--topic", "t", "--to-earliest", "--execute")
    assert (status, "is inactive, but the current state is Stable" in err) == (1, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ["reset-offsets", "--group", "g", "--topic", "t"],
        ["reset-offsets", "--group", "g", "--topic", "t", "--to-earliest", "--to-latest"],
        ["reset-offsets", "--group", "g", "--to-earliest"],
        ["reset-offsets", "--group", "g", "--topic", "t:x", "--to-earliest"],
        ["reset-offsets", "--group", "g", "--topic", "t:0", "--shift-by", "1"],
        ["reset-offsets", "--group", "g", "--topic", "t:0", "--by-duration", "1 day"],
        ["reset-offsets", "--group", "g", "--topic", "t:0", "--to-datetime", "today"],
        ["reset-offsets", "--group", "g", "--topic", "t:9", "--to-earliest"],
        ["describe"],
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(run: Run, arguments: list[str]) -> None:
    status, _, err = run(*arguments)
    assert (status, bool(err)) == (1, True)


def test_a_cluster_that_cannot_be_reached_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--bootstrap-server", "127.0.0.1:1", "list"]) == 1
    assert capsys.readouterr().err
