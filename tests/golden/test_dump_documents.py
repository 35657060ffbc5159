"""``dump-log --image`` and ``--state``: what logs of Kafka's own topics come to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batch_rows import GOLDEN, read_rows
from kraftlog._kraftlog import encode_batch
from kraftlog.cli.__main__ import main
from kraftlog.cli.dump_tree import tree_lines

NODE = GOLDEN / "topics" / "node-1"
LOGS = GOLDEN / "kraft" / "logs"
DIRECTORIES = sorted(path for path in LOGS.rglob("__cluster_metadata-0"))
SNAPSHOTS = sorted(LOGS.rglob("*.checkpoint"))
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead")


def document(capfdbinary: pytest.CaptureFixture[bytes], *arguments: object, status: int = 0) -> dict[str, Any]:
    assert main(["dump-log", "--json", *map(str, arguments)]) == status
    found: dict[str, Any] = json.loads(capfdbinary.readouterr().out)
    return found


def content(image: dict[str, Any]) -> dict[str, Any]:
    """What a snapshot keeps: not when it was made, and no leader."""
    return {name: value for name, value in image.items() if name not in {"provenance", "quorum"}}


@pytest.mark.slow
def test_every_snapshot_and_directory_has_an_image(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert len(SNAPSHOTS) > 50
    for path in [*SNAPSHOTS, *DIRECTORIES]:
        image = document(capfdbinary, "--image", path)
        assert "problems" not in image, path
        if path.name != "bootstrap.checkpoint" and image["provenance"]["offset"] > 10:
            assert image["features"]["metadata.version"] >= 20
    assert main(["dump-log", "--image", str(SNAPSHOTS[-1])]) == 0
    assert "metadata.version:" in capfdbinary.readouterr().out.decode()


@pytest.mark.slow
def test_replayed_logs_equal_kafkas_snapshots(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    compared = 0
    for snapshot in SNAPSHOTS:
        end_offset = int(snapshot.name.split("-")[0]) if snapshot.name[0].isdigit() else 0
        log = snapshot.with_name(f"{0:020}.log")
        if end_offset == 0 or not log.exists():
            continue
        of_log = document(capfdbinary, "--image", log, "--at-offset", end_offset - 1)
        if of_log["provenance"]["offset"] != end_offset - 1:
            continue  # the snapshot reaches further than the first segment
        of_snapshot = document(capfdbinary, "--image", snapshot)
        assert content(of_log) == content(of_snapshot), snapshot
        assert of_log["quorum"].get("voters") == of_snapshot["quorum"].get("voters")
        compared += 1
    assert compared >= 10


def test_an_image_at_an_offset_comes_from_the_snapshot_before_it(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    directory = LOGS / "dynamic" / "10-stopped" / "node-3004"
    early = document(capfdbinary, "--image", directory, "--at-offset", 20)
    late = document(capfdbinary, "--image", directory, "--at-offset", 700)
    whole = document(capfdbinary, "--image", directory)
    assert [image["provenance"]["offset"] for image in (early, late, whole)] == [20, 700, 1294]
    assert len(early["topics"]["byName"]) < len(whole["topics"]["byName"])
    assert len(whole["topics"]["byName"]) == len(whole["topics"]["byId"])


def test_records_that_cannot_be_applied_are_told_and_left_out(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    log = tmp_path / f"{0:020}.log"
    values = [b"\x01\x7f\x00", b"\x07", b"", None, b"\x01\x02\x00\x04abc" + bytes(17), b"\x01\x02\x00\x02a" + bytes(16)]
    log.write_bytes(encode_batch([(1, None, value, []) for value in values], base_offset=0))
    image = document(capfdbinary, "--image", log, status=1)
    assert len(image["problems"]) == 5
    assert list(image["topics"]["byName"]) == ["abc"]
    assert image["problems"][0].startswith("offset 0: ")
    lines = list(tree_lines(image))
    assert any(line.startswith("problems: ") for line in lines)
    assert main(["dump-log", "--image", str(tmp_path / "none")]) == 1
    assert main(["dump-log", "--image", str(tmp_path), str(tmp_path)]) == 1
    (tmp_path / "empty").mkdir()
    assert main(["dump-log", "--image", str(tmp_path / "empty")]) == 1


def test_damage_ends_an_image_with_file_and_position(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    data = (LOGS / "dynamic" / "10-stopped" / "node-3004" / "__cluster_metadata-0" / f"{0:020}.log").read_bytes()
    log = tmp_path / f"{0:020}.log"
    for damaged, word in (
        (data + b"\0" * 8 + b"\xff" * 60, f"position {len(data)}"),
        (data[:5000] + bytes([data[5000] ^ 1]) + data[5001:], "CRC"),
    ):
        log.write_bytes(damaged)
        assert main(["dump-log", "--image", str(log)]) == 1
        err = capfdbinary.readouterr().err.decode()
        assert str(log) in err
        assert word in err
    # Cut short, as after a crash, and with space that was allocated in advance: what is whole counts.
    for damaged in (data[:-1], data + bytes(1000)):
        log.write_bytes(damaged)
        assert document(capfdbinary, "--image", log)["provenance"]["offset"] > 700


def last_values(topic: str) -> dict[str, dict[str, Any]]:
    """Kafka's own decoding of the records, folded: the last value of each key that is not a tombstone."""
    last: dict[str, dict[str, Any]] = {}
    for folder in sorted((GOLDEN / "topics" / "expected" / "node-1").glob(f"{topic}-*")):
        for path in sorted(folder.glob("*.batches.jsonl.gz")):
            for batch in read_rows(path):
                assert not batch["isTransactional"] or topic == "__consumer_offsets"
                for record in batch["records"]:
                    found = record.get("coordinatorRecord")
                    if found is None:
                        continue
                    name = json.dumps([found["name"], found["key"]], sort_keys=True)
                    last.pop(name, None)
                    if found.get("value") is not None:
                        last[name] = found
    return last


def test_state_of_groups_is_that_of_their_last_records(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    directories = sorted(NODE.glob("__consumer_offsets-*"))
    state = document(capfdbinary, "--state", *directories)
    offsets = {
        (group, topic, int(partition)): value["offset"]
        for group, parts in state["groups"].items()
        for topic, partitions in parts.get("offsets", {}).items()
        for partition, value in partitions.items()
    }
    expected = {}
    for found in last_values("__consumer_offsets").values():
        key = found["key"]
        value = found["value"]
        if "topic" in key and "partition" in key:
            expected[key["group"], key["topic"], key["partition"]] = value["offset"]
    assert expected
    assert offsets == expected
    assert "problems" not in state


def test_state_of_transactions_is_that_of_their_last_records(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    state = document(capfdbinary, "--state", *sorted(NODE.glob("__transaction_state-*")))
    expected = {}
    for found in last_values("__transaction_state").values():
        key = found["key"]
        value = found["value"]
        expected[key["transactionalId"]] = (value["producerId"], STATES[value["transactionStatus"]])
    assert expected
    assert {name: (value["producerId"], value["state"]) for name, value in state["transactions"].items()} == expected


def test_state_of_a_log_directory_has_all_topics_and_bad_records_are_told(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    state = document(capfdbinary, "--state", NODE)
    assert {"groups", "transactions"} <= set(state)
    log = tmp_path / f"{0:020}.log"
    key = b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x03"
    value = b"\x00\x01" + (7).to_bytes(8, "big") + b"\x00\x00" + bytes(16)
    records = [(1, key, value, []), (1, b"\x00\x63", b"x", []), (1, None, b"x", []), (1, b"\x00\x01\x00", None, [])]
    log.write_bytes(encode_batch(records, base_offset=0))
    found = document(capfdbinary, "--state", log, "--offsets-decoder", status=1)
    assert found["groups"]["g"]["offsets"]["t"]["3"]["offset"] == 7
    assert len(found["problems"]) == 3
    log.write_bytes(encode_batch([*records[:1], (1, key, None, [])], base_offset=0))
    assert document(capfdbinary, "--state", log, "--offsets-decoder") == {}
    assert main(["dump-log", "--state", str(log)]) == 1
    assert b"decoder" in capfdbinary.readouterr().err
