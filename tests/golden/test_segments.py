"""Partition directories written by Kafka open unchanged, and kraftlog writes the same bytes for the same batches."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import kraftlog
from batch_rows import GOLDEN, read_rows
from kraftlog._kraftlog import Log, LogConfig, read_batches, recover_segment

TOPICS = GOLDEN / "topics"
EXPECTED = TOPICS / "expected"
PARTITIONS = sorted(path.parent.relative_to(EXPECTED) for path in EXPECTED.glob("*/*/partition.json"))
NOW_MS = 1_795_253_900_000
WORKLOAD: dict[str, Any] = json.loads((TOPICS / "workload.json").read_text())
# What compaction rewrote, was replicated, or was written across restarts cannot be had by appending once.
REPLAYED = [
    "g-decompress-0",
    "g-gzip-0",
    "g-keyed-0",
    "g-keyed-1",
    "g-keyed-2",
    "g-logappend-0",
    "g-lz4-0",
    "g-none-0",
    "g-recompress-gzip-0",
    "g-recompress-zstd-0",
    "g-segment-1mib-0",
    "g-snappy-0",
    "g-timestamps-0",
    "g-timestamps-default-0",
    "g-txn-0",
    "g-txn-open-0",
    "g-zstd-0",
]


def load(path: Path) -> Any:
    return json.loads(gzip.open(path, "rt").read() if path.suffix == ".gz" else path.read_text())


def checkpoint(node: str, name: str, partition: str) -> int:
    for line in (TOPICS / node / f"{name}-offset-checkpoint").read_text().splitlines()[2:]:
        topic, index, offset = line.split(" ")
        if f"{topic}-{index}" == partition:
            return int(offset)
    return 0


def topic_config(partition: str, **changes: Any) -> LogConfig:
    configs = WORKLOAD["topics"].get(partition.rpartition("-")[0], {}).get("configs", {})
    options: dict[str, Any] = {
        "segment_bytes": int(configs.get("internal.segment.bytes", configs.get("segment.bytes", 1 << 30))),
        "segment_index_bytes": int(configs.get("segment.index.bytes", 131072)),
        "index_interval_bytes": int(configs.get("index.interval.bytes", 4096)),
        "segment_ms": int(configs.get("segment.ms", 604800000)),
        "max_message_bytes": 2_000_000,
    }
    return LogConfig(**(options | changes))


def open_copy(relative: Path, target: Path) -> Log:
    node, partition = relative.parts
    directory = target / partition
    shutil.copytree(TOPICS / relative, directory)
    return Log.open(
        directory,
        config=topic_config(partition),
        now_ms=NOW_MS,
        recovery_point=checkpoint(node, "recovery-point", partition),
        log_start_offset=checkpoint(node, "log-start", partition),
        clean_shutdown=not node.startswith("killed"),
    )


def batch_rows(relative: Path) -> dict[int, list[dict[str, Any]]]:
    files = sorted((EXPECTED / relative).glob("*.batches.jsonl.gz"))
    return {int(path.name.split(".")[0]): list(read_rows(path)) for path in files}


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize("relative", PARTITIONS, ids=str)
def test_open_kafka_directory_finds_everything(relative: Path, tmp_path: Path) -> None:
    expected = load(EXPECTED / relative / "partition.json")
    rows = batch_rows(relative)
    log = open_copy(relative, tmp_path)
    last_base = expected["segments"][-1]["baseOffset"]
    last_rows = rows[last_base]
    assert [(s.base_offset, s.size_bytes) for s in log.segments()] == [
        (s["baseOffset"], s["logBytes"]) for s in expected["segments"]
    ]
    assert log.log_end_offset == (last_rows[-1]["lastOffset"] + 1 if last_rows else last_base)
    node, partition = relative.parts
    start = max(checkpoint(node, "log-start", partition), expected["segments"][0]["baseOffset"])
    assert log.log_start_offset == start
    epochs = [list(entry) for entry in log.epoch_entries()]
    known = [entry for entry in expected["leaderEpochs"] if entry[1] < log.log_end_offset]
    assert epochs == known
    assert log.topic_id is not None
    newest = next((s for s in expected["producerSnapshots"] if int(s["file"][:20]) == log.log_end_offset), None)
    if newest is not None:
        found = {p.producer_id: (p.producer_epoch, p.last_timestamp) for p in log.active_producers()}
        live = {
            entry["producerId"]: (entry["producerEpoch"], entry["lastTimestamp"])
            for entry in newest["entries"]
            if NOW_MS - entry["lastTimestamp"] < 86_400_000
        }
        assert live.items() <= found.items()
    offset = log.log_start_offset
    content = b""
    while offset < log.log_end_offset:
        piece = log.read(offset, max_bytes=100_000, end_offset=log.log_end_offset).read()
        content += piece
        offset = read_batches(piece)[-1].last_offset + 1
    crcs = [row["crc"] for base in sorted(rows) for row in rows[base] if row["lastOffset"] >= log.log_start_offset]
    assert [batch.crc for batch in read_batches(content)] == crcs


# Those of the killed node are recovered, so their active indexes are rewritten.
CLEAN_PARTITIONS = [relative for relative in PARTITIONS if not relative.parts[0].startswith("killed")]


@pytest.mark.parametrize("relative", CLEAN_PARTITIONS, ids=str)
def test_clean_directory_is_left_as_kafka_wrote_it(relative: Path, tmp_path: Path) -> None:
    before = files(TOPICS / relative)
    log = open_copy(relative, tmp_path)
    log.close()
    after = files(tmp_path / relative.name)
    for name in before.keys() & after.keys() - {"leader-epoch-checkpoint"}:
        assert after[name] == before[name], name
    assert {name for name in before.keys() - after.keys() if not name.endswith(".snapshot")} == set()


@pytest.mark.parametrize("relative", PARTITIONS, ids=str)
def test_reads_find_the_batches_kafka_finds(relative: Path, tmp_path: Path) -> None:
    rows = batch_rows(relative)
    log = open_copy(relative, tmp_path)
    for path in sorted((EXPECTED / relative).glob("*.index.json.gz")):
        base = int(path.name.split(".")[0])
        ends = [row["position"] + row["size"] for row in rows[base]]
        for query in load(path).get("reads", []):
            if query["translated"] is None or query["offset"] < log.log_start_offset:
                continue
            _, position, size = query["translated"]
            found = log.read(
                query["offset"],
                max_bytes=query["maxBytes"],
                end_offset=log.log_end_offset,
                min_one_batch=query["minOneMessage"],
            )
            if size > query["maxBytes"] and not query["minOneMessage"]:
                assert found.size_bytes == 0
                continue
            kafka_end = position + query["read"]["size"]
            assert found.path.name == f"{base:020}.log"
            assert found.position == position == query["read"]["position"]
            assert found.position + found.size_bytes == max(end for end in ends if end <= kafka_end), query


@pytest.mark.parametrize("relative", PARTITIONS, ids=str)
def test_timestamp_searches_of_a_reader_find_what_kafka_finds(relative: Path, tmp_path: Path) -> None:
    for path in sorted((EXPECTED / relative).glob("*.index.json.gz")):
        base = path.name.split(".")[0]
        directory = tmp_path / base / "searched-0"
        directory.mkdir(parents=True)
        for suffix in ("log", "index", "timeindex"):
            shutil.copy(TOPICS / relative / f"{base}.{suffix}", directory)
        for search in load(path).get("timestampSearches", []):
            start = directory.parent / "log-start-offset-checkpoint"
            start.write_text(f"0\n1\nsearched 0 {search['startOffset']}\n")
            found = kraftlog.open_log(directory).offset_for_timestamp(search["timestamp"])
            expected = search["found"]
            assert (found and (found.offset, found.timestamp)) == (
                expected and (expected["offset"], expected["timestamp"])
            ), search


@pytest.mark.parametrize("relative", PARTITIONS, ids=str)
def test_timestamp_searches_find_what_kafka_finds(relative: Path, tmp_path: Path) -> None:
    for path in sorted((EXPECTED / relative).glob("*.index.json.gz")):
        base = path.name.split(".")[0]
        directory = tmp_path / base
        directory.mkdir()
        for suffix in ("log", "index", "timeindex"):
            shutil.copy(TOPICS / relative / f"{base}.{suffix}", directory)
        for search in load(path).get("timestampSearches", []):
            log = Log.open(
                directory,
                config=topic_config(relative.name),
                now_ms=NOW_MS,
                clean_shutdown=True,
                log_start_offset=search["startOffset"],
            )
            found = log.offset_for_timestamp(search["timestamp"])
            expected = search["found"]
            if expected is None:
                assert found is None, search
            else:
                assert found == (expected["offset"], expected["timestamp"], expected.get("leaderEpoch", -1)), search


@pytest.mark.parametrize("relative", PARTITIONS, ids=str)
def test_recovered_indexes_have_kafkas_bytes(relative: Path, tmp_path: Path) -> None:
    for path in sorted((EXPECTED / relative).glob("*.index.json.gz")):
        expected = load(path)["recovered"]
        if "exception" in expected:
            continue
        base = path.name.split(".")[0]
        directory = tmp_path / base
        directory.mkdir()
        log = Path(shutil.copy(TOPICS / relative / f"{base}.log", directory))
        interval = WORKLOAD["topics"].get(relative.name.rpartition("-")[0], {}).get("configs", {})
        found = recover_segment(log, index_interval_bytes=int(interval.get("index.interval.bytes", 4096)))
        assert found.truncated_bytes == expected["truncatedBytes"]
        assert [list(entry) for entry in found.offset_index] == expected["offsetIndex"]
        assert [list(entry) for entry in found.time_index] == expected["timeIndex"]
        assert [list(entry) for entry in found.leader_epochs] == expected["leaderEpochs"]
        for suffix, name in (("index", "offsetIndexSha256"), ("timeindex", "timeIndexSha256")):
            assert hashlib.sha256((directory / f"{base}.{suffix}").read_bytes()).hexdigest() == expected[name]


@pytest.mark.parametrize("partition", REPLAYED)
def test_appending_the_same_batches_writes_the_same_files(partition: str, tmp_path: Path) -> None:
    source = TOPICS / "node-1" / partition
    log = Log.open(tmp_path / partition, config=topic_config(partition, timestamp_after_max_ms=2**63 - 1), now_ms=0)
    for segment in sorted(source.glob("*.log")):
        content = bytearray(segment.read_bytes())
        for batch in read_batches(bytes(content)):
            start, end = batch.position, batch.position + batch.size_bytes
            wire = bytearray(content[start:end])
            is_append_time = batch.timestamp_type == "LogAppendTime"
            if is_append_time or batch.is_control:
                info = log.append_as_follower(bytes(wire), leader_epoch=batch.partition_leader_epoch, now_ms=0)
            else:
                wire[0:8] = bytes(8)
                wire[12:16] = b"\xff" * 4
                info = log.append_as_leader(bytes(wire), leader_epoch=batch.partition_leader_epoch, now_ms=0)
            assert (info.first_offset, info.last_offset) == (batch.base_offset, batch.last_offset)
    log.close()
    ours, theirs = files(tmp_path / partition), files(source)
    ignored = {"partition.metadata", "leader-epoch-checkpoint"}
    assert ours.keys() - ignored == theirs.keys() - ignored
    for name in sorted(theirs.keys() - ignored):
        if name.endswith(".snapshot"):
            assert sorted(snapshot_entries(ours[name])) == sorted(snapshot_entries(theirs[name])), name
        else:
            assert ours[name] == theirs[name], name


def snapshot_entries(content: bytes) -> list[bytes]:
    return [content[start : start + 46] for start in range(10, len(content), 46)]


METADATA_LOGS = sorted((GOLDEN / "kraft" / "logs").rglob("__cluster_metadata-0"))


@pytest.mark.parametrize("source", METADATA_LOGS, ids=lambda path: str(path.relative_to(GOLDEN / "kraft" / "logs")))
def test_open_metadata_log_finds_everything(source: Path, tmp_path: Path) -> None:
    directory = tmp_path / source.name
    shutil.copytree(source, directory)
    contents = {int(path.stem): path.read_bytes() for path in sorted(source.glob("*.log"))} or {0: b""}
    batches = [batch for content in contents.values() for batch in read_batches(content)]
    log = Log.open(directory, config=LogConfig(), now_ms=NOW_MS)
    assert [(s.base_offset, s.size_bytes) for s in log.segments()] == [
        (base, sum(batch.size_bytes for batch in read_batches(content))) for base, content in contents.items()
    ]
    assert log.log_end_offset == (batches[-1].last_offset + 1 if batches else max(contents))
    found = log.read(log.log_start_offset, max_bytes=1, end_offset=log.log_end_offset)
    assert [batch.crc for batch in read_batches(found)] == [batch.crc for batch in batches[:1]]
    log.close()
    assert {path.name for path in source.glob("*.checkpoint")} <= {path.name for path in directory.iterdir()}
