"""``kraftlog log verify --against``: two replicas of one partition, below what both know to be committed."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from kraftlog.cli.__main__ import main
from partition_files import damage, make_batch, write_checkpoint, write_log, write_segment

BATCH_BYTES = len(make_batch(0))


@pytest.fixture
def replicas(tmp_path: Path) -> tuple[Path, Path]:
    """Two log directories with offsets 0 to 99 and the high watermark 80 or 90; the second has smaller segments."""
    here, there = tmp_path / "a", tmp_path / "b"
    for log_dir, segment, high_watermark in ((here, 50, 80), (there, 30, 90)):
        write_log(log_dir / "t-0", end=100, segment=segment)
        write_checkpoint(log_dir, "replication-offset-checkpoint", {("t", 0): high_watermark})
    return here, there


def verify(capsys: pytest.CaptureFixture[str], here: Path, *options: str) -> tuple[int, str]:
    status = main(["log", "verify", str(here), *options])
    return status, capsys.readouterr().out


def segment_of(log_dir: Path, base_offset: int) -> Path:
    return log_dir / "t-0" / f"{base_offset:020}.log"


def test_equal_replicas_with_different_segments(replicas, capsys) -> None:
    here, there = replicas
    write_log(there / "u-0", end=10)
    status, text = verify(capsys, here, "--against", str(there))
    assert (status, text.startswith("t-0: offsets 0 to 79 equal, ")) == (0, True)
    # From the later log start on; the directories of the partition will do as well.
    segment_of(there, 0).unlink()
    status, text = verify(capsys, here / "t-0", "--against", str(there / "t-0"))
    assert (status, text.startswith("t-0: offsets 30 to 79 equal, ")) == (0, True)


def test_first_difference_is_named(replicas, capsys) -> None:
    here, there = replicas
    position = 2 * BATCH_BYTES + 70
    damage(segment_of(there, 30), position)
    status, text = verify(capsys, here, "--against", str(there), "--json")
    (found,) = json.loads(text)["comparisons"]
    assert (status, found["endOffset"], found["bytes"]) == (1, 50, 5 * BATCH_BYTES)
    assert found["difference"] == {
        "file": str(segment_of(here, 50)),
        "position": 70,
        "againstFile": str(segment_of(there, 30)),
        "againstPosition": position,
        "offset": 50,
        "what": "the bytes differ",
    }
    status, text = verify(capsys, here, "--against", str(there), "--quiet")
    line = f"difference: {segment_of(here, 50)} position 70, against {segment_of(there, 30)} position {position}"
    assert (status, text) == (1, f"{line}: the bytes differ in the batch at offset 50\n")


def test_what_is_not_committed_may_differ(replicas, capsys) -> None:
    here, there = replicas
    damage(segment_of(there, 60), 2 * BATCH_BYTES + 70)
    assert verify(capsys, here, "--against", str(there))[0] == 0
    segment_of(there, 90).unlink()
    assert verify(capsys, here, "--against", str(there))[0] == 0


@pytest.mark.parametrize("is_shorter_here", [True, False])
def test_committed_batches_that_one_replica_lacks(replicas, capsys, is_shorter_here) -> None:
    here, _ = replicas if is_shorter_here else replicas[::-1]
    last = max((here / "t-0").glob("*.log"), key=lambda path: int(path.stem) if int(path.stem) <= 70 else -1)
    last.write_bytes(b"".join(make_batch(at) for at in range(int(last.stem), 70, 10)))
    for path in (here / "t-0").glob("*.log"):
        if int(path.stem) > int(last.stem):
            path.unlink()
    status, text = verify(capsys, replicas[0], "--against", str(replicas[1]), "--quiet")
    assert status == 1
    assert "one replica ends here, below the high watermark of both in the batch at offset 70" in text


def test_a_length_that_no_batch_has_is_a_difference(replicas, capsys) -> None:
    here, there = replicas
    for log_dir, base in ((here, 50), (there, 60)):
        path = segment_of(log_dir, base)
        data = bytearray(path.read_bytes())
        struct.pack_into(">i", data, (60 - base) // 10 * BATCH_BYTES + 8, 1 << 30)
        path.write_bytes(data)
    status, text = verify(capsys, here, "--against", str(there), "--quiet")
    assert status == 1
    assert f"{segment_of(here, 50)} position {BATCH_BYTES}, against {segment_of(there, 60)} position 0" in text
    assert "no whole batch" in text


def test_without_high_watermarks_the_shorter_log_is_the_end(tmp_path, capsys) -> None:
    for name, end in (("a", 100), ("b", 60)):
        write_log(tmp_path / name / "t-0", end=end, segment=50)
    status, text = verify(capsys, tmp_path / "a", "--against", str(tmp_path / "b"))
    assert (status, text.startswith("t-0: offsets 0 to 59 equal, ")) == (0, True)
    assert "high watermark unknown" in text


def test_replicas_of_different_topics_of_one_name_and_wrong_usage(replicas, tmp_path, capsys) -> None:
    here, there = replicas
    for log_dir, topic_id in ((here, "A" * 22), (there, "B" * 22)):
        (log_dir / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    status, text = verify(capsys, here, "--against", str(there), "--quiet")
    assert (status, "the topic ids differ" in text) == (1, True)
    write_segment(tmp_path / "c" / "u-0", [make_batch(0)])
    assert main(["log", "verify", str(here), "--against", str(tmp_path / "c")]) == 2
    assert "no partition is in both" in capsys.readouterr().err
    assert main(["log", "verify", str(here), str(there), "--against", str(here)]) == 2
    assert "are the same partition" in capsys.readouterr().err
