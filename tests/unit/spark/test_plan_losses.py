"""Logs that are damaged, or that change between planning and reading: an error, or what is left with a count."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlog.errors import CorruptRecordError, OffsetOutOfRangeError
from kraftlog.spark.options import SourceOptions
from kraftlog.spark.plan import OffsetRange, plan_tasks, read_range
from partition_files import damage, make_batch, write_checkpoint, write_epochs, write_log, write_segment

BATCH_SIZE = len(make_batch(0))


def parse(path: Path, **options: str) -> SourceOptions:
    return SourceOptions.parse({"path": str(path), **options})


def offsets(ranges: list[OffsetRange], options: SourceOptions) -> list[int]:
    return [at for batch in read_range(ranges, options, ["offset", "value"]) for at in batch["offset"].to_pylist()]


def plan(options: SourceOptions) -> list[OffsetRange]:
    return [offset_range for task in plan_tasks(options) for offset_range in task]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three segments of 1000 records."""
    return write_log(tmp_path / "t-0")


def retention(log: Path) -> None:
    for base in (0, 1000):
        (log / f"{base:020}.log").rename(log / f"{base:020}.log.deleted")


def truncation(log: Path) -> None:
    path = log / f"{2000:020}.log"
    with path.open("r+b") as file:
        file.truncate(50 * BATCH_SIZE + 7)


def other_records(log: Path) -> None:
    """A follower was cut back to 2500 and has got 500 others from a new leader."""
    write_segment(log, [make_batch(at, epoch=int(at >= 2500)) for at in range(2000, 3000, 10)])
    write_epochs(log, {0: 0, 1: 2500})


def deletion(log: Path) -> None:
    shutil.rmtree(log)


def compaction(log: Path) -> None:
    for base in (0, 1000):
        (log / f"{base:020}.log").rename(log / f"{base:020}.log.deleted")
    write_segment(log, [make_batch(at) for at in range(0, 2000, 50)], suffix=".swap")


def roll(log: Path) -> None:
    write_segment(log, [make_batch(3000)])


def nothing(log: Path) -> None:
    pass


@pytest.mark.parametrize("max_records", [None, "500"])
@pytest.mark.parametrize(
    ("change", "error", "left"),
    [
        (nothing, None, list(range(3000))),
        (roll, None, list(range(3000))),
        (compaction, None, [*(at for at in range(2000) if at % 50 < 10), *range(2000, 3000)]),
        (retention, r"t-0 offsets \[0, \d+\) .*deleted since.* offset 0 is outside \[2000, ", list(range(2000, 3000))),
        (truncation, r"t-0 offsets \[2\d00, \d+\) .* truncated to offset 2500 since", list(range(2500))),
        (other_records, r"t-0 offsets .*: offset \d+ is of leader epoch 1 now, of 0 when", list(range(3000))),
        (deletion, r"t-0 offsets \[0, \d+\) of .* is gone", []),
    ],
)
def test_a_log_that_changes_between_planning_and_reading(
    log: Path,
    tmp_path: Path,
    change: Callable[[Path], None],
    error: str | None,
    left: list[int],
    max_records: str | None,
) -> None:
    write_epochs(log, {0: 0})
    more = {} if max_records is None else {"maxRecordsPerPartition": max_records}
    strict = parse(tmp_path, **more)
    loose = parse(tmp_path, failOnDataLoss="false", dataLossReport=str(tmp_path / "report"), **more)
    ranges, loose_ranges = plan(strict), plan(loose)
    change(log)
    if error is None:
        assert offsets(ranges, strict) == left
    else:
        with pytest.raises((OffsetOutOfRangeError, FileNotFoundError), match=error):
            offsets(ranges, strict)
    # A task that is run again gives the same, and one report.
    for _ in range(2):
        assert [offset for loose_range_ in loose_ranges for offset in offsets([loose_range_], loose)] == left
    reports = list((tmp_path / "report").iterdir()) if (tmp_path / "report").exists() else []
    assert bool(reports) == (error is not None)
    lines = [json.loads(line) for file in reports for line in file.read_text().splitlines()]
    if change is retention:
        assert sum(line["end_offset"] - line["start_offset"] for line in lines) == 2000


@pytest.mark.parametrize("strict", [True, False])
def test_retention_in_the_middle_of_a_read(tmp_path: Path, strict: bool) -> None:
    log = tmp_path / "t-0"
    for base in (0, 20_000, 40_000):
        write_segment(log, [make_batch(at, 1000, value=b"v") for at in range(base, base + 20_000, 1000)])
    options = parse(tmp_path, failOnDataLoss=str(strict))
    rows = read_range([OffsetRange(str(log), "t", 0, 0, 60_000)], options, ["offset", "value"])
    found = next(rows)["offset"].to_pylist()
    for base in (0, 20_000):
        (log / f"{base:020}.log").unlink()
    error = None
    try:
        for batch in rows:
            found += batch["offset"].to_pylist()
    except OffsetOutOfRangeError as raised:
        error = str(raised)
    if strict:
        assert error is not None
        assert "t-0 offsets [0, 60000)" in error
        assert found == list(range(20_000))
    else:
        assert found == [*range(20_000), *range(40_000, 60_000)]


def test_a_damaged_batch_is_an_error_that_names_it_or_is_left_out(
    log: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = log / f"{1000:020}.log"
    damage(path, 37 * BATCH_SIZE + 150)
    options = parse(tmp_path)
    rows = read_range(plan(options), options, ["offset", "value"])
    before: list[int] = []
    with pytest.raises(
        CorruptRecordError, match=rf"t-0 offsets \[.*{path.name} position {37 * BATCH_SIZE}: CRC .*base.offset 1370"
    ):
        before.extend(at for batch in rows for at in batch["offset"].to_pylist())
    assert before == list(range(1370))
    report = tmp_path / "report"
    loose = parse(tmp_path, failOnDataLoss="false", dataLossReport=str(report))
    for _ in range(2):
        assert offsets(plan(loose), loose) == [at for at in range(3000) if at // 10 != 137]
    assert "1 ranges of t-0" in caplog.text
    assert f"{path} position {37 * BATCH_SIZE}: CRC" in caplog.text
    (file,) = report.iterdir()
    (line,) = map(json.loads, file.read_text().splitlines())
    assert (line["path"], line["position"], line["end_position"], line["base_offset"]) == (
        str(path),
        37 * BATCH_SIZE,
        38 * BATCH_SIZE,
        1370,
    )


def test_times_are_looked_up_beside_damage(log: Path, tmp_path: Path) -> None:
    damage(log / f"{1000:020}.log", 37 * BATCH_SIZE + 150)
    at = {"startingTimestamp": str(1000 + 1375)}
    with pytest.raises(CorruptRecordError, match=r"option startingTimestamp: t-0: .*base_offset 1370"):
        plan(parse(tmp_path, **at))
    loose = parse(tmp_path, failOnDataLoss="false", **at)
    assert offsets(plan(loose), loose) == list(range(1380, 3000))


def test_wrong_checksums_can_be_a_column(log: Path, tmp_path: Path) -> None:
    path = log / f"{1000:020}.log"
    damage(path, 37 * BATCH_SIZE + 150)
    options = parse(tmp_path, verifyCrc="false")
    for columns in (["offset", "crcOk"], ["offset", "crcOk", "value"]):
        rows = [row for batch in read_range(plan(options), options, columns) for row in batch.to_pylist()]
        assert len(rows) == 3000
        assert {row["offset"] // 10 for row in rows if not row["crcOk"]} == {137}
    with pytest.raises(CorruptRecordError, match="CRC"):
        list(read_range(plan(parse(tmp_path)), parse(tmp_path), ["offset", "crcOk"]))


def test_checksums_are_compared_of_batches_whose_header_would_do(log: Path, tmp_path: Path) -> None:
    damage(log / f"{1000:020}.log", 37 * BATCH_SIZE + 150)
    options = parse(tmp_path)
    with pytest.raises(CorruptRecordError, match=r"base.offset 1370"):
        list(read_range(plan(options), options, ["offset"]))


@pytest.mark.parametrize("where", ["length", "magic"])
def test_a_damaged_header_at_the_end_of_the_log(log: Path, tmp_path: Path, where: str) -> None:
    """Planning cannot determine the end of the log; if losses are allowed it takes what can be read."""
    path = log / f"{2000:020}.log"
    if where == "magic":
        damage(path, 99 * BATCH_SIZE + 16)
    else:
        data = bytearray(path.read_bytes())
        struct.pack_into(">i", data, 99 * BATCH_SIZE + 8, 5)
        path.write_bytes(data)
    strict, loose = parse(tmp_path), parse(tmp_path, failOnDataLoss="false")
    with pytest.raises(CorruptRecordError, match=rf"the end of t-0 cannot be determined: .*{path.name} position"):
        offsets(plan(strict), strict)
    assert offsets(plan(loose), loose) == list(range(2990))


def test_less_than_the_high_watermark_promises(log: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A copy of the files may be older than the copy of the checkpoint."""
    path = log / f"{2000:020}.log"
    path.write_bytes(path.read_bytes()[:-1])
    options = parse(tmp_path)
    assert offsets(plan(options), options) == list(range(2990))
    assert not caplog.text
    write_checkpoint(tmp_path, "replication-offset-checkpoint", {("t", 0): 3000})
    assert offsets(plan(options), options) == list(range(2990))
    assert "t-0 ends at offset 2990, before the high watermark 3000" in caplog.text


def test_a_half_written_batch_is_not_there_yet(log: Path, tmp_path: Path) -> None:
    path = log / f"{2000:020}.log"
    whole = path.read_bytes()
    for cut in (1, BATCH_SIZE - 12, BATCH_SIZE - 1):
        path.write_bytes(whole[:-cut])
        options = parse(tmp_path)
        assert offsets(plan(options), options) == list(range(2990))
    # Space that Kafka allocated in advance.
    path.write_bytes(whole + bytes(4096))
    assert offsets(plan(options), options) == list(range(3000))


def test_a_segment_that_ends_within_a_batch_and_is_not_the_last(log: Path, tmp_path: Path) -> None:
    path = log / f"{1000:020}.log"
    path.write_bytes(path.read_bytes()[:-9])
    strict, loose = parse(tmp_path), parse(tmp_path, failOnDataLoss="false")
    with pytest.raises(CorruptRecordError, match=rf"t-0 .*{path.name} .*ends within a batch"):
        offsets(plan(strict), strict)
    assert offsets(plan(loose), loose) == [*range(1990), *range(2000, 3000)]


def test_a_file_that_cannot_be_read(log: Path, tmp_path: Path) -> None:
    path = log / f"{1000:020}.log"
    path.unlink()
    path.mkdir()
    options = parse(tmp_path)
    with pytest.raises(OSError, match=path.name):
        offsets(plan(options), options)
    (tmp_path / "u-0").mkdir()
    (tmp_path / "u-0" / f"{0:020}.log").symlink_to(tmp_path / "missing")
    with pytest.raises(FileNotFoundError, match="u-0"):
        plan(parse(tmp_path / "u-0"))
