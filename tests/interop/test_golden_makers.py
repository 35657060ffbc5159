"""The makers of the golden files: asked what the committed rows were asked, Kafka gives the committed answers."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import kraftlog
from golden.make import damage, dump_log, expected, facts, live, vectors, wire
from golden.make.make import damage_sources
from golden.make.rows import answers, read_rows
from interop.harness import Java

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
SEED = 7  # not that of the committed files


@pytest.fixture(scope="module")
def live_run(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("live")
    live.write(java, folder, SEED)
    return folder


def shapes(rows):
    """The sets of fields that rows have."""
    return {tuple(sorted(row)) for row in rows}


def test_facts_are_the_committed_ones(java: Java, tmp_path: Path) -> None:
    facts.write(java, tmp_path / "facts.json.gz")
    made = json.loads(gzip.decompress((tmp_path / "facts.json.gz").read_bytes()))
    committed = json.loads(gzip.decompress((GOLDEN / "protocol-facts.json.gz").read_bytes()))
    assert list(made) == list(committed)
    for part in committed:
        assert made[part] == committed[part], part


@pytest.mark.parametrize("name", vectors.KINDS)
def test_vectors_are_the_committed_ones(java: Java, name: str) -> None:
    committed = read_rows(GOLDEN / "vectors" / f"{name}.jsonl.gz")
    asked = [(row, question) for row in committed if (question := vectors.question_of(name, row)) is not None]
    assert len(asked) >= len(committed) * 0.8
    answered = vectors.answered(java, name, [question for _, question in asked])
    assert answered == [row for row, _ in asked]
    assert shapes(vectors.answered(java, name, vectors.questions(name, SEED))) == shapes(committed)


def test_wire_rows_are_the_committed_ones(java: Java) -> None:
    files = [path for path in sorted((GOLDEN / "wire").rglob("*.gz")) if path.name != "malformed.jsonl.gz"]
    rows = [row for path in files for row in read_rows(path)]
    assert [found["hex"] for found in answers(java, wire.PROGRAM, "write", rows)] == [row["hex"] for row in rows]
    assert [found["json"] for found in answers(java, wire.PROGRAM, "read", rows)] == [row["json"] for row in rows]
    frames = [wire.frame(row) for row in rows]
    framed = [None if frame is None else frame + row["hex"] for frame, row in zip(frames, rows, strict=True)]
    assert framed == [row.get("framedHex") for row in rows]
    malformed = read_rows(GOLDEN / "wire" / "malformed.jsonl.gz")
    assert wire.malformed(java, malformed) == malformed


def test_new_wire_rows_have_every_message_version_and_sample(java: Java) -> None:
    table = json.loads(gzip.decompress((GOLDEN / "protocol-facts.json.gz").read_bytes()))
    committed = Counter(
        (path.relative_to(GOLDEN / "wire").as_posix(), row["api"], row["version"], row["sample"], row["flexible"])
        for path in (GOLDEN / "wire").rglob("*.gz")
        if path.name != "malformed.jsonl.gz"
        for row in read_rows(path)
    )
    asked = list(wire.questions(table, SEED))
    made = Counter(
        (f"{name}.jsonl.gz", row["api"], row["version"], row["sample"], row["flexible"]) for name, row in asked
    )
    assert made == committed
    few = [
        row
        for _, row in asked
        if row["api"] in {"FetchRequest", "MetadataResponse", "PartitionRecord", "OffsetCommitValue"}
    ]
    for row in wire.answered(java, few):
        assert row["hex"]
        assert bool(row.get("unknownTags")) == (row["sample"] == 4)


def test_damaged_files_are_the_committed_ones() -> None:
    sources = damage_sources()
    for row in read_rows(GOLDEN / "damaged" / "expected.jsonl"):
        _, source = sources[row["source"]]
        made = damage.damage(source, row["case"], row["editedBatch"], random.Random(SEED))
        committed = (GOLDEN / "damaged" / row["file"]).read_bytes()
        if row["case"] not in damage.RANDOM:
            assert made == committed, row["file"]
        else:
            assert len(made) == len(committed), row["file"]
            assert made != source, row["file"]


def test_verdicts_on_damaged_files_are_the_committed_ones(java: Java) -> None:
    committed = read_rows(GOLDEN / "damaged" / "expected.jsonl")[::4]
    found = damage.judged(java, [GOLDEN / "damaged" / row["file"] for row in committed])
    for row, verdict in zip(committed, found, strict=True):
        assert verdict == {key: row[key] for key in verdict}, row["file"]


def test_rows_of_topics_and_metadata_logs_are_the_committed_ones(java: Java) -> None:
    """Every segment and checkpoint of the committed directories, decoded anew."""
    committed = {}
    for path in sorted((GOLDEN / "topics" / "expected").glob("*/*/*.batches.jsonl.gz")):
        partition = path.parent.relative_to(GOLDEN / "topics" / "expected")
        committed[GOLDEN / "topics" / partition / path.name.replace(".batches.jsonl.gz", ".log")] = path
    for path in sorted((GOLDEN / "kraft" / "expected").rglob("*.jsonl.gz")):
        relative = path.relative_to(GOLDEN / "kraft" / "expected")
        committed[GOLDEN / "kraft" / "logs" / relative.parent / path.name.removesuffix(".jsonl.gz")] = path
    assert len(committed) == 300
    for rows, path in zip(expected.rows_of_files(java, list(committed)), committed.values(), strict=True):
        assert rows == read_rows(path), path


def test_answers_about_index_files_are_the_committed_ones(java: Java) -> None:
    """Entries, reads, timestamp searches and what recovery rebuilds, of every committed segment."""
    topics = GOLDEN / "topics"
    configs = json.loads((topics / "workload.json").read_text())["topics"]
    committed, asked = [], []
    for path in sorted((topics / "expected").glob("*/*/*.index.json.gz")):
        relative = path.relative_to(topics / "expected")
        topic = configs.get(relative.parent.name.rpartition("-")[0], {"configs": {}})
        row = expected.read_json(path)
        committed.append(row)
        question = {
            "file": str(topics / relative.with_name(relative.name.replace(".index.json.gz", ".log"))),
            "indexIntervalBytes": int(topic["configs"].get("index.interval.bytes", expected.INDEX_INTERVAL_BYTES)),
        }
        asked.append(question | {name: row.get(name, []) for name in ("reads", "timestampSearches")})
    assert len(asked) == 78
    for question, row, answer in zip(asked, committed, answers(java, expected.INDEXES, "segment", asked), strict=True):
        assert answer == row, question["file"]


def test_answers_about_metadata_directories_are_the_committed_ones(java: Java) -> None:
    """Index entries and quorum states."""
    logs, rows = GOLDEN / "kraft" / "logs", GOLDEN / "kraft" / "expected"
    indexes = sorted(rows.rglob("*.index.json.gz"))
    asked = [{"file": str(logs / path.relative_to(rows)).replace(".index.json.gz", ".log")} for path in indexes]
    for path, answer in zip(indexes, answers(java, expected.INDEXES, "segment", asked), strict=True):
        assert answer == expected.read_json(path), path
    states = sorted(rows.rglob("quorum-state.json"))
    files = [logs / path.relative_to(rows).with_suffix("") for path in states]
    for path, answer in zip(states, expected.quorum_states(java, files), strict=True):
        assert answer == expected.read_json(path), path
    assert (len(indexes), len(states)) == (19, 62)


def test_producer_snapshots_and_leader_epochs_are_the_committed_ones(java: Java) -> None:
    topics = GOLDEN / "topics"
    committed = sorted((topics / "expected").glob("*/*/partition.json"))
    folders = [topics / path.parent.relative_to(topics / "expected") for path in committed]
    for path, folder, answer in zip(committed, folders, expected.partitions(java, folders), strict=True):
        row = json.loads(path.read_text())
        assert answer == {name: row[name] for name in ("producerSnapshots", "leaderEpochs")}, path
        for segment in row["segments"]:
            log = folder / f"{segment['baseOffset']:020}.log"
            batches = read_rows(path.parent / f"{log.stem}.batches.jsonl.gz")
            assert expected.segment(log, batches) == segment, log
    assert len(committed) == 34


@pytest.mark.parametrize("name", ["txn-log", "offset-index", "txn-snapshot", "metadata-log", "offsets"])
def test_output_of_dump_log_segments_is_the_committed_one(java: Java, name: str) -> None:
    committed = (GOLDEN / "dump-log-segments" / f"{name}.txt").read_bytes()
    assert dump_log.dumped(java, GOLDEN, dump_log.command_of(committed)) == committed


def test_live_directories_hold_what_consumers_got(live_run: Path) -> None:
    consumers = json.loads((live_run / "topics" / "consumers.json").read_text())
    node = live_run / "topics" / "node-1"
    for topic, by_level in consumers.items():
        for level, partitions in by_level.items():
            for partition, told in partitions.items():
                log = kraftlog.LogDir(node).partition(topic, int(partition))
                rows = pa.table(log.scan(columns=["offset"], isolation_level=level))["offset"].to_pylist()
                assert rows == told["offsets"], (topic, level)
                assert (log.log_start_offset, log.last_stable_offset) == (told["earliest"], told["end"])
    assert consumers["g-deleterecords"]["read_committed"]["0"]["earliest"] == 60
    aborted = {level: len(consumers["g-txn"][level]["0"]["offsets"]) for level in consumers["g-txn"]}
    assert aborted["read_committed"] < aborted["read_uncommitted"]
    batches = read_rows(next((live_run / "topics" / "expected" / "node-1" / "g-zstd-0").glob("*.batches.jsonl.gz")))
    assert {batch["compression"] for batch in batches if not batch["isControl"]} == {"zstd"}
    metadata = live_run / "kraft" / "expected" / "standalone" / "stopped" / "node-1" / "__cluster_metadata-0"
    rows = [row for path in metadata.glob("*.log.jsonl.gz") for batch in read_rows(path) for row in batch["records"]]
    created = {
        row["metadataRecord"]["data"]["name"] for row in rows if row.get("metadataRecord", {}).get("apiKey") == 2
    }
    assert created >= set(consumers)


def test_content_of_live_topics_follows_from_the_seed(java: Java, live_run: Path, tmp_path: Path) -> None:
    """Keys, values, headers and timestamps are the same in each run; where a batch ends need not be."""
    live.write(java, tmp_path, SEED)
    scans = [kraftlog.open_log(run / "topics" / "node-1" / "g-none-0").scan() for run in (live_run, tmp_path)]
    first, second = (pa.table(scan).select(["offset", "timestamp", "key", "value", "headers"]) for scan in scans)
    assert first.num_rows > 100
    assert first.to_pylist() == second.to_pylist()
