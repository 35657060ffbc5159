"""Files that Kafka's own classes write in formats v0, v1 and v2, read by us as Kafka reads them; and the reverse."""

from __future__ import annotations

import base64
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kraftlog
from interop.harness import HERE, Java
from interop.kafka_tools import DUMP, dump, files_with
from kraftlog import _kraftlog

PROGRAM = str(HERE / "java" / "RecordFiles.java")
FORMATS = {"v0": "0", "v1": "1", "mixed": "0 1 2"}
COLUMNS = ["offset", "timestamp", "timestamp_type", "key", "value", "leader_epoch"]
TIMESTAMP_TYPES = {"CreateTime": 0, "LogAppendTime": 1, "NoTimestampType": -1}
BASE_OFFSET = 1000
NOW = 1_700_000_000_000

Row = dict[str, Any]


def decode(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


class Written:
    """A partition of one segment, and the batches that Kafka's FileRecords finds in it."""

    def __init__(self, java: Java, folder: Path, magics: str, seed: int) -> None:
        folder.mkdir()
        self.folder = folder
        self.file = folder / f"{BASE_OFFSET:020}.log"
        java.tool(PROGRAM, "write", str(self.file), str(BASE_OFFSET), str(seed), *magics.split())
        self.batches: list[Row] = [
            json.loads(line) for line in java.tool(PROGRAM, "read", str(self.file)).stdout.split("\n") if line
        ]
        for batch in self.batches:
            batch["records"] = [
                (offset, timestamp, decode(key), decode(value)) for offset, timestamp, key, value in batch["records"]
            ]

    @property
    def rows(self) -> list[tuple[int, int, int, bytes | None, bytes | None]]:
        return [
            (offset, timestamp, TIMESTAMP_TYPES[batch["timestampType"]], key, value)
            for batch in self.batches
            for offset, timestamp, key, value in batch["records"]
        ]


@pytest.fixture(scope="module", params=FORMATS)
def written(java: Java, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Written:
    folder = tmp_path_factory.mktemp("formats") / f"{request.param}-0"
    return Written(java, folder, FORMATS[request.param], seed=len(request.param))


def test_batches_and_records_are_those_that_kafka_reads(written: Written) -> None:
    data = written.file.read_bytes()
    found = _kraftlog.read_batches(data)
    assert len(found) == len(written.batches)
    for batch, kafka in zip(found, written.batches, strict=True):
        assert {
            "position": batch.position,
            "size": batch.size_bytes,
            "baseOffset": batch.base_offset,
            "lastOffset": batch.last_offset,
            "magic": batch.magic,
            "crc": batch.crc,
            "compression": batch.compression,
            "timestampType": batch.timestamp_type,
            "maxTimestamp": batch.max_timestamp,
            "records": [record[:4] for record in batch.records()],
        } == kafka
        assert batch.record_count == len(kafka["records"])
    assert {batch.magic for batch in found} == {int(magic) for magic in FORMATS[written.folder.name[:-2]].split()}


def scanned(log: Any, **options: Any) -> list[tuple[Any, ...]]:
    table = pa.table(log.scan(columns=COLUMNS, **options))
    columns = [table.column(name) for name in COLUMNS]
    columns[1] = columns[1].cast(pa.int64())
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def test_each_message_has_the_checksum_that_kafka_shows(written: Written, java: Java) -> None:
    said = java.tool(DUMP, "--deep-iteration", "--files", str(written.file), check=False).stdout
    shown = re.findall(r"^\| offset: (\d+) .* isValid: true crc: (\d+)", said, re.MULTILINE)
    found = []
    for batch in _kraftlog.read_batches(written.file.read_bytes()):
        checksums = batch.message_checksums()
        if batch.magic == 2:
            assert checksums is None
            continue
        assert checksums is not None
        for record, (crc, valid) in zip(batch.records(), checksums, strict=True):
            assert valid
            found.append((record[0], crc))
    assert found == [(int(offset), int(crc)) for offset, crc in shown]
    assert found


def test_scans_give_the_records_of_any_range(written: Written) -> None:
    rows = [(*row[:5], 3 if row[0] in v2_offsets(written) else -1) for row in written.rows]
    log = kraftlog.open_log(written.folder)
    assert log.log_end_offset == rows[-1][0] + 1
    for binary_type in ("binary", "binary_view"):
        assert scanned(log, binary_type=binary_type) == rows
    step = len(rows) // 7
    for start in range(0, len(rows), step):
        low, high = rows[start][0], rows[min(start + step, len(rows) - 1)][0]
        expected = [row for row in rows if low <= row[0] < high]
        assert scanned(log, start_offset=low, end_offset=high) == expected
    # Messages of v0 have no time, and so none that is late enough.
    late = sorted(row[1] for row in rows)[len(rows) // 2]
    assert scanned(log, from_timestamp=late) == [row for row in rows if row[1] >= late]


def test_parts_of_a_segment_together_hold_every_record_once(written: Written, tmp_path: Path) -> None:
    folder = tmp_path / written.folder.name
    shutil.copytree(written.folder, folder)
    expected = [row[0] for row in written.rows]
    for has_index in (False, True):
        if has_index:
            _kraftlog.recover_segment(folder / written.file.name, index_interval_bytes=1024)
        log = kraftlog.open_log(folder)
        splits = _kraftlog.plan_splits(folder, split_bytes=written.file.stat().st_size // 6)
        assert len(splits) > 2
        found = []
        for split in splits:
            part = pa.table(log.scan(columns=["offset"], start_offset=split.start_offset, end_offset=split.end_offset))
            found += part.column(0).to_pylist()
        assert found == expected
        threaded = pa.table(log.scan(columns=["offset"], threads=2))
        assert threaded.column(0).to_pylist() == expected


def v2_offsets(written: Written) -> set[int]:
    return {record[0] for batch in written.batches if batch["magic"] == 2 for record in batch["records"]}


def test_recovery_rebuilds_indexes_that_kafka_accepts(written: Written, java: Java, tmp_path: Path) -> None:
    folder = tmp_path / written.folder.name
    shutil.copytree(written.folder, folder)
    file = folder / written.file.name
    torn = file.read_bytes() + file.read_bytes()[:40]
    file.write_bytes(torn)
    recovered = _kraftlog.recover_segment(file, index_interval_bytes=1024)
    assert recovered.truncated_bytes == 40
    assert recovered.next_offset == written.batches[-1]["lastOffset"] + 1
    last_offsets = {batch["position"]: batch["lastOffset"] for batch in written.batches}
    assert len(recovered.offset_index) > 10
    for offset, position in recovered.offset_index:
        assert last_offsets[position] == offset
    said = java.tool(DUMP, "--files", str(file)).stdout
    dumped = re.findall(
        r"^(?:offset|baseOffset: \d+ lastOffset): (\d+) .*position: (\d+) .* isvalid: true", said, re.MULTILINE
    )
    assert [(int(offset), int(position)) for offset, position in dumped] == [
        (batch["lastOffset"], batch["position"]) for batch in written.batches
    ]
    indexes = files_with(folder, ".index", ".timeindex")
    sane = dump(java, indexes, "--index-sanity-check")
    assert all(f"{index} passed sanity check." in sane for index in indexes)
    dump(java, indexes)  # compares each entry with the segment
    # With indexes a range is found by them, and is the same.
    log = kraftlog.open_log(folder)
    rows = [row[0] for row in written.rows]
    for offset in rows[:: len(rows) // 20]:
        found = pa.table(log.scan(columns=["offset"], start_offset=offset, end_offset=offset + 1))
        assert found.column(0).to_pylist() == [offset]


def first_at_or_after(written: Written, timestamp: int) -> tuple[int, int] | None:
    for batch in written.batches:
        if batch["maxTimestamp"] >= timestamp:
            for offset, time, *_ in batch["records"]:
                if time >= timestamp:
                    return offset, time
    return None


def test_a_log_of_old_formats_can_be_opened_looked_up_copied_and_cut(written: Written, tmp_path: Path) -> None:
    folder = tmp_path / written.folder.name
    shutil.copytree(written.folder, folder)
    with_log = _kraftlog.Log.open(folder, config=_kraftlog.LogConfig(index_interval_bytes=1024), now_ms=0)
    end = written.batches[-1]["lastOffset"] + 1
    assert with_log.log_end_offset == end
    times = sorted({row[1] for row in written.rows if row[1] >= 0})
    for timestamp in times[:: max(1, len(times) // 25)]:
        found = with_log.offset_for_timestamp(timestamp)
        assert found is not None
        assert found[:2] == first_at_or_after(written, timestamp)

    copy = tmp_path / "copy-0"
    copy.mkdir()
    follower = _kraftlog.Log.open(copy, config=_kraftlog.LogConfig(), now_ms=0)
    follower.truncate_fully_and_start_at(BASE_OFFSET)
    position = BASE_OFFSET
    while position < end:
        part = with_log.read(position, max_bytes=20_000, end_offset=end).read()
        position = follower.append_as_follower(part, leader_epoch=7).last_offset + 1
    copied = follower.read(BASE_OFFSET, max_bytes=1 << 30, end_offset=end).read()
    assert copied == written.file.read_bytes()

    # The batch that holds the offset goes as a whole.
    middle = written.batches[len(written.batches) // 2]
    follower.truncate_to(middle["lastOffset"])
    assert follower.log_end_offset == middle["baseOffset"]
    follower.close()
    with_log.close()


def test_compaction_keeps_the_latest_of_each_key(written: Written, java: Java, tmp_path: Path) -> None:
    folder = tmp_path / written.folder.name
    shutil.copytree(written.folder, folder)
    log = _kraftlog.Log.open(folder, config=_kraftlog.LogConfig(cleanup_policy="compact"), now_ms=NOW)
    end = log.log_end_offset
    log.roll(NOW)
    report = log.clean(first_dirty_offset=BASE_OFFSET, first_uncleanable_offset=end, now_ms=NOW)
    log.close()
    latest = {key: offset for offset, _, _, key, _ in written.rows if key is not None}
    expected = [(row[0], row[1], *row[3:]) for row in written.rows if row[3] is not None and latest[row[3]] == row[0]]
    assert len(expected) < len(written.rows)
    lines = java.tool(PROGRAM, "read", str(folder / written.file.name)).stdout.splitlines()
    batches = [json.loads(line) for line in lines]
    found = [
        (offset, timestamp, decode(key), decode(value))
        for batch in batches
        for offset, timestamp, key, value in batch["records"]
    ]
    assert found == expected
    assert report.messages_retained == len(expected)
    # What stayed whole is as it was, down to its format.
    was = {batch["position"]: batch for batch in written.batches}
    assert {batch["crc"] for batch in batches if batch["magic"] < 2} <= {batch["crc"] for batch in was.values()}
    assert any(batch["magic"] < 2 for batch in batches)


def test_dumps_are_those_of_kafkas_tool(written: Written, java: Java) -> None:
    for flags, records in (((), False), (("--deep-iteration",), True)):
        said = java.tool(DUMP, *flags, "--files", str(written.file), check=False).stdout
        start = re.search(r"^(?:offset|baseOffset):", said, re.MULTILINE)
        assert start is not None
        ours = b"".join(_kraftlog.LogDump(written.file, form="text", records=records, record_metadata=records))
        assert ours.decode() == said[start.start() :]


def test_json_dump_has_every_message(written: Written) -> None:
    lines = b"".join(_kraftlog.LogDump(written.file, form="json", records=True, data=True)).splitlines()
    found = [json.loads(line) for line in lines]
    kinds = {number: name for name, number in TIMESTAMP_TYPES.items()}
    expected = [(row[0], row[1], kinds[row[2]], -1 if row[4] is None else len(row[4])) for row in written.rows]
    assert [(row["offset"], row["timestamp"], row["timestampType"], row["valueSize"]) for row in found] == expected
