"""``kraftlog log verify`` over the golden files: Kafka's own are sound, the damaged ones are told from them."""

from __future__ import annotations

import json
import shutil
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kraftlog import _kraftlog
from kraftlog.cli.__main__ import main

GOLDEN = Path(__file__).parent
DAMAGED = GOLDEN / "damaged"

# What Kafka's scan and recovery pass over, and verify does not: why.
OFFSETS = "neither compares the offsets of batches with each other or with the name of the file"
MAGIC = "the magic byte is outside the checksum, and whoever reads the records refuses it"
STRICTER = {
    "base-offset-jump-once": OFFSETS,
    "base-offset-lower": OFFSETS,
    "first-offset-below-name": OFFSETS,
    "last-offset-delta-less-1": OFFSETS,
    "last-offset-delta-minus-9": OFFSETS,
    "last-offset-delta-plus-5": OFFSETS,
    "repeated-batch": OFFSETS,
    "swapped-batches": OFFSETS,
    "magic-3": MAGIC,
    "magic-127": MAGIC,
}


def verify(*paths: Path, deep: bool = True) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(_kraftlog.verify_files(list(paths), deep=deep))
    return report


def is_sound_to_kafka(row: dict[str, Any]) -> bool:
    scan, recover = row["scan"], row["recover"]
    is_scanned = "exception" not in scan and scan["stoppedAt"] == row["fileBytes"]
    # Where Kafka throws while it asks, there is no answer.
    is_read = all(batch.get("valid") and "recordsError" not in batch for batch in scan["batches"])
    return is_scanned and is_read and "exception" not in recover and recover["truncatedBytes"] == 0


def test_each_damaged_file_is_sound_or_not_as_kafka_finds_it() -> None:
    wrong = []
    count = 0
    with (DAMAGED / "expected.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            count += 1
            report = verify(DAMAGED / row["file"])
            is_sound = report["status"] == "sound"
            expected = is_sound_to_kafka(row)
            if is_sound and not expected:
                wrong.append((row["source"], row["case"], "sound, but not to Kafka"))
            elif expected and not is_sound and row["case"] not in STRICTER:
                wrong.append((row["source"], row["case"], [f["kind"] for f in report["findings"]]))
    assert count == 680
    assert not wrong


NODES = [GOLDEN / "topics" / name for name in ("node-1", "node-2", "node-3", "killed-node-2")]
NODES += sorted((GOLDEN / "kraft" / "logs").glob("*/*/node-*"))


@pytest.mark.parametrize("node", NODES, ids=lambda node: "-".join(node.parts[-3:]))
@pytest.mark.parametrize("deep", [True, False])
def test_directories_that_kafka_wrote_are_sound(node: Path, *, deep: bool) -> None:
    report = verify(node, deep=deep)
    assert [finding for finding in report["findings"] if finding["severity"] == "error"] == []
    # Index files of running nodes were left out of the golden files.
    kinds = Counter(finding["kind"] for finding in report["findings"] if finding["severity"] == "warning")
    assert set(kinds) <= {"index-missing"}


def test_exit_status_and_texts_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "g-none-0"
    shutil.copytree(GOLDEN / "topics" / "node-1" / "g-none-0", source)
    assert main(["log", "verify", str(source)]) == 0
    assert "Status: sound" in capsys.readouterr().out
    segment = min(source.glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[200] ^= 1
    segment.write_bytes(data)
    assert main(["log", "verify", str(source)]) == 1
    output = capsys.readouterr().out
    assert f"error batch-crc: {segment} position 0" in output
    assert "Repair plan (nothing of it was done):" in output
    assert "Or salvage" in output
    assert main(["log", "verify", str(tmp_path / "absent")]) == 2
    assert main(["log", "verify", "--json", str(source)]) == 1
    capsys.readouterr()
    assert main(["log", "salvage", str(source), "--output", str(tmp_path / "new")]) == 1
    assert "lost:" in capsys.readouterr().out
    assert main(["log", "verify", str(tmp_path / "new" / "g-none-0")]) == 0
    assert main(["log", "salvage", str(source), "--output", str(tmp_path / "new")]) == 2


def test_a_progress_function_that_fails_ends_the_work(tmp_path: Path) -> None:
    class EnoughError(Exception):
        pass

    def fail(done: int, total: int) -> None:
        raise EnoughError(done, total)

    with pytest.raises(EnoughError):
        _kraftlog.verify_files([GOLDEN / "topics" / "node-1"], progress=fail)


@pytest.mark.parametrize("case", ["bit", "cut", "zeros", "length"])
def test_every_golden_partition_is_salvaged_to_a_sound_one(case: str, tmp_path: Path) -> None:
    for partition in sorted((GOLDEN / "topics" / "node-1").glob("g-*")):
        source = tmp_path / case / partition.name
        shutil.copytree(partition, source)
        segment = max(source.glob("*.log"), key=lambda path: path.stat().st_size)
        data = bytearray(segment.read_bytes())
        if len(data) < 200:
            continue
        middle = len(data) // 2
        if case == "bit":
            data[middle] ^= 1
        elif case == "cut":
            del data[middle:]
        elif case == "zeros":
            data[middle : middle + 100] = bytes(100)
            if data == segment.read_bytes():
                continue
        else:
            data[8:12] = b"\x00\x00\x10\x00"
        segment.write_bytes(data)
        before = {path.name: path.read_bytes() for path in source.iterdir()}
        report = json.loads(_kraftlog.salvage_files(source, tmp_path / f"new-{case}"))
        assert {path.name: path.read_bytes() for path in source.iterdir()} == before
        assert report["status"] == "losses"
        check = verify(tmp_path / f"new-{case}" / partition.name)
        assert check["status"] == "sound", (partition.name, check["findings"])
        shutil.rmtree(tmp_path / f"new-{case}")


EPOCHS_LOG = GOLDEN / "topics" / "node-1" / "g-epochs-0"
LEADER_EPOCH_POSITION = 12


def epochs_of_batches() -> list[tuple[str, int, int]]:
    """File, position and leader epoch of each batch."""
    found = []
    for path in sorted(EPOCHS_LOG.glob("*.log")):
        position, data = 0, path.read_bytes()
        while position < len(data):
            size, epoch = struct.unpack_from(">ii", data, position + 8)
            found.append((path.name, position, epoch))
            position += 12 + size
    return found


def test_each_wrong_leader_epoch_inside_a_segment_is_told(tmp_path: Path) -> None:
    """The checksum does not cover it, and after a clean stop nobody else compares it with the checkpoint."""
    batches = epochs_of_batches()
    assert verify(EPOCHS_LOG)["findings"] == []
    wrong = [(*batch, new) for batch in batches for new in {-1, batch[2] - 1, batch[2] + 1, batch[2] + 2} - {batch[2]}]
    assert len(wrong) > 40
    unseen = []
    for number, (name, position, epoch, new) in enumerate(wrong):
        log = tmp_path / str(number) / EPOCHS_LOG.name
        shutil.copytree(EPOCHS_LOG, log)
        data = bytearray((log / name).read_bytes())
        struct.pack_into(">i", data, position + LEADER_EPOCH_POSITION, new)
        (log / name).write_bytes(data)
        if not {finding["kind"] for finding in verify(log)["findings"]} & {"epochs", "epoch-order"}:
            unseen.append((name, position, epoch, new))
    assert unseen == []
