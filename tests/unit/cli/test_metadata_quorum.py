"""``kraftlog metadata-quorum``: what is refused before anybody is asked, and what is read of a new controller."""

from __future__ import annotations

import pytest

from kraftlog.cli.metadata_quorum import _replication as replication
from kraftlog.cli.metadata_quorum import _status as status
from kraftlog.cli.metadata_quorum import main
from kraftlog.errors import KraftlogError
from kraftlog.storage.meta_properties import MetaProperties, write_meta_properties
from kraftlog.types import Uuid
from kraftlog.wire.messages.describe_quorum import DescribeQuorumResponse

DIRECTORY = Uuid.parse("FQgOjCvOTu6yIpYZT_LP7A")
NOBODY = ["--bootstrap-controller", "127.0.0.1:1"]


@pytest.fixture
def properties(tmp_path):
    def write(directory_id=DIRECTORY, **changes):
        data = tmp_path / "data"
        data.mkdir(exist_ok=True)
        write_meta_properties(data, MetaProperties(cluster_id="c", node_id=3, directory_id=directory_id))
        found = {
            "process.roles": "controller",
            "node.id": "3",
            "listeners": "A://:9093,B://[::1]:9094,OTHER://:1",
            "advertised.listeners": "B://[2001:db8::1]:9095",
            "controller.listener.names": "B,A",
            "log.dirs": str(data),
            **{name.replace("_", "."): text for name, text in changes.items()},
        }
        path = tmp_path / "server.properties"
        path.write_text("".join(f"{key}={text}\n" for key, text in found.items() if text is not None))
        return str(path)

    return write


@pytest.mark.spec("BOOT-36")
def test_a_new_controller_is_read_from_its_files_and_a_dry_run_asks_nobody(properties, tmp_path, capsys):
    path = properties()
    before = (tmp_path / "data" / "meta.properties").read_bytes()
    assert main([*NOBODY, "--command-config", path, "add-controller", "--dry-run"]) == 0
    # What is advertised wins, the order is that of controller.listener.names, and an empty host is localhost.
    where = "B://[2001:db8::1]:9095, A://localhost:9093"
    assert capsys.readouterr().out == (
        f"DRY RUN of adding controller 3 with directory id {DIRECTORY} and endpoints: {where}\n"
    )
    assert (tmp_path / "data" / "meta.properties").read_bytes() == before


@pytest.mark.spec("BOOT-36")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"directory_id": None}, "No directory id found in"),
        ({"log_dirs": "/nowhere"}, "Unable to read meta.properties from /nowhere"),
        ({"log_dirs": None}, "Neither metadata.log.dir nor log.dirs were found."),
        ({"process_roles": "broker"}, "process.roles did not contain 'controller'"),
        ({"node_id": "-3"}, "node.id was negative"),
        ({"node_id": None}, "node.id was not found"),
        ({"controller_listener_names": "C"}, "Cannot find information about controller listener name: C"),
        ({"controller_listener_names": None}, "controller.listener.names was not found"),
    ],
)
def test_a_file_that_is_no_controllers_is_refused(properties, tmp_path, capsys, changes, words):
    path = properties(**changes)
    before = (tmp_path / "data" / "meta.properties").read_bytes()
    assert main([*NOBODY, "--command-config", path, "add-controller"]) == 1
    assert words in capsys.readouterr().err
    assert (tmp_path / "data" / "meta.properties").read_bytes() == before


@pytest.mark.spec("BOOT-37")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-i", "-1", "-d", str(DIRECTORY)], "Invalid negative --controller-id: -1"),
        (["-i", "3", "-d", "no-uuid!"], "Failed to parse --controller-directory-id"),
        (["-i", "x", "-d", str(DIRECTORY)], "invalid int value"),
        (["-i", "3"], "--controller-directory-id"),
    ],
)
def test_remove_controller_refuses_what_names_no_voter(arguments, words, capsys):
    assert main([*NOBODY, "remove-controller", *arguments]) == 1
    assert words in capsys.readouterr().err


def test_remove_controller_dry_run_asks_nobody(capsys):
    assert main([*NOBODY, "remove-controller", "-i", "3", "-d", str(DIRECTORY), "--dry-run"]) == 0
    assert capsys.readouterr().out == f"DRY RUN of removing  KRaft controller 3 with directory id {DIRECTORY}\n"


def quorum_described(**replica):
    """A quorum of two, as the leader, node 1, describes it."""
    states = [
        DescribeQuorumResponse.ReplicaState(replica_id=1, log_end_offset=9, last_fetch_timestamp=7),
        DescribeQuorumResponse.ReplicaState(replica_id=2, log_end_offset=5, **replica),
    ]
    return DescribeQuorumResponse.PartitionData(leader_id=1, current_voters=states)


@pytest.mark.parametrize(
    ("fetched", "caught_up", "cells"),
    [
        (-1, -1, ["-1", "-1"]),
        (100_000, 99_000, ["0 ms ago", "1000 ms ago"]),
        (100_001, 1, "Current timestamp is 100000, last fetch timestamp is 100001"),
        (1, 0, "Current timestamp is 100000, last caught up timestamp is 0"),
    ],
)
def test_times_are_relative_to_a_clock_that_must_not_be_behind(fetched, caught_up, cells, monkeypatch):
    monkeypatch.setattr("time.time_ns", lambda: 100_000 * 1_000_000)
    quorum = quorum_described(last_fetch_timestamp=fetched, last_caught_up_timestamp=caught_up)
    if isinstance(cells, str):
        with pytest.raises(KraftlogError, match=f"possible drift in system clock.\n{cells}"):
            replication(quorum, is_human_readable=True)
    else:
        rows = [line.split("\t") for line in replication(quorum, is_human_readable=True)]
        assert [cell.strip() for cell in rows[2][4:6]] == cells
        assert rows[1][4].strip() == "99993 ms ago"
        assert str(fetched) in replication(quorum, is_human_readable=False)[2].split()


def test_status_leaves_out_the_directory_that_is_unknown_and_brackets_ipv6():
    quorum = quorum_described(replica_directory_id=DIRECTORY)
    listener = DescribeQuorumResponse.Listener(name="C", host="::1", port=9093)
    response = DescribeQuorumResponse(nodes=[DescribeQuorumResponse.Node(node_id=1, listeners=[listener])])
    voters = status("id", response, quorum)[6].partition(" ")[2].strip()
    assert voters == f'[{{"id": 1, "endpoints": ["C://[::1]:9093"]}}, {{"id": 2, "directoryId": "{DIRECTORY}"}}]'


@pytest.mark.parametrize(
    "arguments",
    [["describe"], [*NOBODY, "describe"], [*NOBODY, "describe", "--status", "--replication"], [*NOBODY, "bogus"],
     [*NOBODY, "describe", "--status", "--human-readable"], [*NOBODY, "add-controller"],
     ["--bootstrap-controller", "nowhere", "describe", "--status"], [*NOBODY, "describe", "--status"]],
)  # fmt: skip
def test_wrong_arguments_and_silent_servers_end_with_1(arguments, capsys):
    assert main(arguments) == 1
    assert capsys.readouterr().err
