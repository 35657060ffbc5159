"""``kraftlog dump-log`` over directories, with ranges, and as tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from batch_rows import GOLDEN, read_rows
from kraftlog.cli.__main__ import main
from kraftlog.cli.dump_sources import milliseconds

NODE = GOLDEN / "topics" / "node-1"


def expected_records(partition: str) -> list[dict[str, Any]]:
    folder = GOLDEN / "topics" / "expected" / "node-1" / partition
    return [
        {**record, "isControl": batch["isControl"]}
        for path in sorted(folder.glob("*.batches.jsonl.gz"))
        for batch in read_rows(path)
        for record in batch["records"]
    ]


def lines_of(capfdbinary: pytest.CaptureFixture[bytes], *arguments: str | os.PathLike[str]) -> list[dict[str, Any]]:
    assert main(["dump-log", "--json", *map(str, arguments)]) == 0
    return [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]


@pytest.mark.parametrize("partition", ["g-none-0", "g-txn-0", "g-zstd-0", "g-compact-purged-0", "g-logappend-0"])
def test_tables_have_every_record(partition: str, tmp_path: Path) -> None:
    expected = [row["offset"] for row in expected_records(partition) if not row["isControl"]]
    arrow, table = tmp_path / "t.arrow", tmp_path / "t.parquet"
    assert main(["dump-log", str(NODE / partition), "--arrow", str(arrow)]) == 0
    assert main(["dump-log", str(NODE / partition), "--parquet", str(table), "--threads", "2"]) == 0
    found = ipc.open_file(arrow).read_all()
    found.validate(full=True)
    assert found["offset"].to_pylist() == expected
    assert parquet.read_table(table).equals(found)
    assert set(found["topic"].to_pylist()) == {partition.rpartition("-")[0]}


def test_one_file_of_several_gives_its_own_rows(tmp_path: Path) -> None:
    folder = NODE / "g-txn-0"
    files = sorted(folder.glob("*.log"))
    assert len(files) > 1
    counts = []
    for path in files:
        table = tmp_path / f"{path.stem}.arrow"
        assert main(["dump-log", "--files", str(path), "--arrow", str(table), "--columns", "offset"]) == 0
        offsets = ipc.open_file(table).read_all()["offset"].to_pylist()
        assert all(offset >= int(path.stem) for offset in offsets)
        counts += offsets
    assert counts == [row["offset"] for row in expected_records("g-txn-0") if not row["isControl"]]


def test_stdout_gets_a_stream(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kraftlog", "dump-log", str(NODE / "g-none-0"), "--arrow", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    expected = [row["offset"] for row in expected_records("g-none-0") if not row["isControl"]]
    assert ipc.open_stream(done.stdout).read_all()["offset"].to_pylist() == expected
    assert done.stderr == b""


def test_a_log_directory_is_dumped_without_internal_topics(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    rows = lines_of(capfdbinary, NODE, "--print-data-log")
    partitions = {(row["topic"], row["partition"]) for row in rows}
    assert ("g-keyed", 2) in partitions
    assert not any(topic.startswith("__") for topic, _ in partitions)
    rows = lines_of(capfdbinary, NODE, "--print-data-log", "--topics", "g-keyed", "--partitions", "0,2")
    assert {(row["topic"], row["partition"]) for row in rows} == {("g-keyed", 0), ("g-keyed", 2)}
    rows = lines_of(capfdbinary, NODE, "--print-data-log", "--topics", "__consumer_offsets")
    assert {row["key"]["type"] for row in rows if "key" in row} >= {"1", "2"}
    assert main(["dump-log", str(NODE), "--topics", "no-such"]) == 1
    assert b"no-such" in capfdbinary.readouterr().err


def test_gaps_are_told_as_kafka_does_but_not_before_the_first_record_of_a_directory(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    folder = NODE / "g-compact-purged-0"
    first = next(path for path in sorted(folder.glob("*.log")) if not path.stem.endswith("0" * 20))
    assert main(["dump-log", "--deep-iteration", "--files", str(first)]) == 0
    assert f"-1 is followed by {int(first.stem)}".encode()[:20] in capfdbinary.readouterr().err
    assert main(["dump-log", "--deep-iteration", str(folder)]) == 0
    err = capfdbinary.readouterr().err
    assert b"Non-consecutive offsets in" in err
    assert b"  -1 is followed by" not in err


def test_ranges_cut_offsets_and_times(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    expected = expected_records("g-none-0")
    for path in (NODE / "g-none-0", NODE / "g-none-0" / f"{0:020}.log"):
        rows = lines_of(capfdbinary, path, "--print-data-log", "--start-offset", "100", "--end-offset", "230")
        assert [row["offset"] for row in rows] == [
            row["offset"] for row in expected if 100 <= row["offset"] < 230 and row["offset"] <= rows[-1]["offset"]
        ]
        assert rows[0]["offset"] == 100
    low, high = 1702389500000, 1702389600000
    wanted = [row["offset"] for row in expected if low <= row["timestamp"] < high]
    assert wanted
    times = ("--from-time", "2023-12-12T13:58:20Z", "--to-time", str(high))
    rows = lines_of(capfdbinary, NODE / "g-none-0", "--print-data-log", *times)
    assert [row["offset"] for row in rows] == wanted
    table = tmp_path / "t.arrow"
    assert main(["dump-log", str(NODE / "g-none-0"), "--arrow", str(table), *times]) == 0
    assert ipc.open_file(table).read_all()["offset"].to_pylist() == wanted
    assert main(["dump-log", str(NODE / "g-none-0"), "--deep-iteration", "--start-offset", "101"]) == 0
    text = capfdbinary.readouterr().out
    assert b"| offset: 100 " not in text
    assert b"| offset: 101 " in text


@pytest.mark.parametrize("partition", ["g-txn-0", "g-txn-open-0", "g-compact-txn-0"])
def test_read_committed_gives_what_a_consumer_gets(
    partition: str, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    table = tmp_path / "t.arrow"
    folder = NODE / partition
    assert main(["dump-log", str(folder), "--arrow", str(table), "--isolation-level", "read_committed"]) == 0
    offsets = ipc.open_file(table).read_all()["offset"].to_pylist()
    rows = lines_of(capfdbinary, folder, "--print-data-log", "--isolation-level", "read_committed")
    assert [row["offset"] for row in rows if "endTxnMarker" not in row] == offsets
    every = [row["offset"] for row in expected_records(partition) if not row["isControl"]]
    assert 0 < len(offsets) < len(every)


def test_damage_leaves_a_whole_table_of_the_rows_before(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    folder = tmp_path / "g-none-0"
    folder.mkdir()
    data = bytearray((NODE / "g-none-0" / f"{0:020}.log").read_bytes())
    data[60_000] ^= 1
    (folder / f"{0:020}.log").write_bytes(data)
    for flag, read in (("--arrow", lambda path: ipc.open_file(path).read_all()), ("--parquet", parquet.read_table)):
        table = tmp_path / "t"
        assert main(["dump-log", str(folder), flag, str(table)]) == 1
        assert b"position" in capfdbinary.readouterr().err
        found: pa.Table = read(table)
        assert 0 < found.num_rows < 470
        assert found["offset"].to_pylist() == list(range(found.num_rows))


def test_what_cannot_be_a_table_is_said(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    index = NODE / "g-none-0" / f"{0:020}.index"
    assert main(["dump-log", "--files", str(index), "--arrow", str(tmp_path / "t")]) == 1
    assert b"is not a .log file" in capfdbinary.readouterr().err
    assert main(["dump-log", str(NODE / "g-none-0"), "--arrow", str(tmp_path / "t"), "--columns", "nope"]) == 1
    assert b"nope" in capfdbinary.readouterr().err
    assert main(["dump-log", str(NODE / "g-none-0"), "--arrow", str(tmp_path / "no" / "t")]) == 1
    capfdbinary.readouterr()
    assert main(["dump-log", "--files", "x.log", "--value-decoder-class", "com.example.Decoder"]) == 1
    assert b"Java class" in capfdbinary.readouterr().err
    assert main(["dump-log"]) == 1
    assert b"[files]" in capfdbinary.readouterr().err
    assert main(["dump-log", "--version"]) == 0


def test_without_pyarrow_parquet_says_what_to_install(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["dump-log", str(NODE / "g-none-0"), "--parquet", str(tmp_path / "t")]) == 1
    assert b"kraftlog[arrow]" in capfdbinary.readouterr().err


def test_a_reader_that_leaves_early_is_no_error() -> None:
    for form in (["--json", "--print-data-log"], ["--print-data-log"], ["--arrow", "-"]):
        command = [sys.executable, "-m", "kraftlog", "dump-log", str(NODE), *form]
        dump = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert dump.stdout is not None
        assert dump.stderr is not None
        dump.stdout.read(10)
        dump.stdout.close()
        assert dump.stderr.read() == b""
        dump.stderr.close()
        assert dump.wait() in {0, 1}


def test_times_are_milliseconds_or_iso() -> None:
    assert milliseconds("1700000000000") == 1700000000000
    assert milliseconds("2023-11-14T22:13:20Z") == 1700000000000
    assert milliseconds("2023-11-14T22:13:20.005") == 1700000000005
    assert milliseconds("2023-11-15T00:13:20+02:00") == 1700000000000
