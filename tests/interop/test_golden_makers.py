"""The makers of the golden files: asked what the committed rows were asked, Kafka gives the committed answers."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kraftlog
from golden.make import captures, damage, dump_log, expected, facts, kraft, metrics, topics, vectors, wire
from golden.make.make import OLD_LIBS, committed_facts, damage_sources
from golden.make.rows import answers, read_rows
from interop.harness import Java

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
SEED = 7  # not that of the committed files


# Topics that one node makes in little time.
FEW_TOPICS = (
    "g-compact-purged",
    "g-compact-txn-purged",
    "g-deleterecords",
    "g-empty",
    "g-keyed",
    "g-timestamps",
    "g-txn",
    "g-txn-open",
    "g-zstd",
)


@pytest.fixture(scope="module")
def made_topics(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("topics")
    topics.write(java, folder, SEED, FEW_TOPICS)
    return folder / "topics"


def shapes(rows):
    """The sets of fields that rows have."""
    return {tuple(sorted(row)) for row in rows}


def test_facts_are_the_committed_ones(java: Java, tmp_path: Path) -> None:
    facts.write(facts.make(java), tmp_path / "facts.json.gz")
    made = json.loads(gzip.decompress((tmp_path / "facts.json.gz").read_bytes()))
    committed = committed_facts()
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
    table = committed_facts()
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


@pytest.mark.slow
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


def fields(value: Any, path: str = "") -> set[str]:
    """The paths of all fields of a JSON value, elements of lists as one; scalars have the name of their type."""
    if isinstance(value, dict):
        return {path} | {name for key, inner in value.items() for name in fields(inner, f"{path}.{key}")}
    if isinstance(value, list):
        return {path} | {name for inner in value for name in fields(inner, f"{path}[]")}
    return {f"{path}:{type(value).__name__}"}


def fields_of_files(folder: Path, pattern: str) -> set[str]:
    """The fields of all rows of the files of a kind."""
    paths = list(folder.glob(pattern))
    assert paths, pattern
    rows = [row for path in paths for row in (read_rows(path) if ".jsonl" in path.name else [expected.read_json(path)])]
    return {name for row in rows for name in fields(row)}


@pytest.mark.parametrize(
    "pattern",
    [
        "expected/*/*/*.batches.jsonl.gz",
        "expected/*/*/*.index.json.gz",
        "expected/*/*/partition.json",
    ],
)
@pytest.mark.slow
def test_rows_of_new_topics_have_the_fields_of_the_committed_ones(made_topics: Path, pattern: str) -> None:
    committed = fields_of_files(GOLDEN / "topics", pattern)
    made = fields_of_files(made_topics, pattern)
    assert made <= committed
    # Few topics: what the others have is left out, such as records of some types of __consumer_offsets.
    assert len(made) >= 0.9 * len(committed)


def test_new_topics_have_the_settings_and_answers_of_the_committed_ones(made_topics: Path) -> None:
    made, committed = (
        json.loads((folder / "workload.json").read_text()) for folder in (made_topics, GOLDEN / "topics")
    )
    assert made.keys() == committed.keys()
    assert made["topics"] == {name: committed["topics"][name] for name in FEW_TOPICS}
    assert topics.topics() == committed["topics"]
    assert made["nodeSettings"].keys() == committed["nodeSettings"].keys() | {"log.retention.check.interval.ms"}
    assert made["events"] == committed["events"]

    def verdicts(rows):
        return [(row["case"], row["codec"], row["baseOffset"], row["error"]) for row in rows]

    assert verdicts(made["raw"]) == verdicts(row for row in committed["raw"] if row["topic"] == "g-timestamps")


def test_new_directories_hold_what_consumers_got(made_topics: Path) -> None:
    consumers = json.loads((made_topics / "consumers.json").read_text())
    assert consumers.keys() == set(FEW_TOPICS) - {"g-empty"}
    for topic, told in consumers.items():
        for level in ("read_uncommitted", "read_committed"):
            log = kraftlog.LogDir(made_topics / "node-1").partition(topic, 0)
            rows = pa.table(log.scan(columns=["offset"], isolation_level=level))["offset"].to_pylist()
            assert rows == [offset for first, last in told[level] for offset in range(first, last + 1)], (topic, level)
            assert (log.log_start_offset, log.log_end_offset) == (told["earliest"], told["latest"])
            assert log.last_stable_offset == told["lastStableOffset"]
    assert consumers["g-deleterecords"]["earliest"] == topics.DELETED_BEFORE
    assert consumers["g-txn"]["read_committed"] != consumers["g-txn"]["read_uncommitted"]
    assert consumers["g-txn-open"]["lastStableOffset"] < consumers["g-txn-open"]["latest"]


def test_new_compacted_topics_were_cleaned(made_topics: Path) -> None:
    horizons = []
    for topic in ("g-compact-purged", "g-compact-txn-purged"):
        paths = sorted((made_topics / "expected" / "node-1" / f"{topic}-0").glob("*.batches.jsonl.gz"))
        batches = [row for path in paths for row in read_rows(path)]
        assert any(row["lastOffsetDelta"] + 1 > row["count"] for row in batches), topic
        horizons += [row["deleteHorizonMs"] for row in batches]
    assert set(horizons) > {None}


def test_content_of_new_topics_follows_from_the_seed(made_topics: Path) -> None:
    """Keys, values, headers and timestamps are the same in each run; where batches end and markers come need not be."""
    scan = kraftlog.open_log(made_topics / "node-1" / "g-txn-0").scan()
    table = pa.table(scan).select(["timestamp", "key", "value", "headers"])
    assert table.num_rows > 300
    digest = hashlib.sha256(
        repr(table.cast(table.schema.set(0, pa.field("timestamp", pa.int64()))).to_pylist()).encode()
    ).hexdigest()
    assert digest == "879ceb55f3c6a86bfdb732b4113376410819018409c5db57e103ada1f4bb5342"  # of another run with this seed


def old_facts() -> dict[str, Any]:
    table: dict[str, Any] = expected.read_json(GOLDEN / "protocol-facts-3.9.1.json.gz")
    return table


def old_rows() -> dict[tuple[str, str, int, int], dict[str, Any]]:
    """The committed rows of versions that Kafka 4 removed, by file, message, version and sample."""
    folder = GOLDEN / "wire-3.9.1"
    return {
        (path.relative_to(folder).as_posix().removesuffix(".jsonl.gz"), row["api"], row["version"], row["sample"]): row
        for path in sorted(folder.rglob("*.jsonl.gz"))
        for row in read_rows(path)
    }


def test_new_rows_of_3_9_1_have_every_version_that_kafka_4_removed() -> None:
    table = old_facts()
    ranges = {schema["apiKey"]: schema["valid"] for schema in table["schemas"] if schema["kind"] == "request"}
    apis = [
        {"key": key, "min": low, "requestHeaderVersions": [0] * 30, "responseHeaderVersions": [0] * 30}
        for key, (low, _) in ranges.items()
    ]
    asked = wire.questions({**table, "apis": apis}, SEED, newer=committed_facts())
    made = {(name, row["api"], row["version"], row["sample"]): row for name, row in asked}
    committed = old_rows()
    assert made.keys() == committed.keys()
    for place, row in committed.items():
        for name in ("apiKey", "kind", "flexible", "stable"):
            assert made[place][name] == row[name], (place, name)
        assert ("headerVersion" in made[place]) == ("headerVersion" in row), place


@pytest.mark.skipif(not OLD_LIBS.exists(), reason="no jars of Kafka 3.9.1: .ci/dev jars-old")
def test_rows_of_3_9_1_are_the_committed_ones() -> None:
    old_java = Java(f"{OLD_LIBS}/*")
    try:
        assert facts.make_old(old_java) == old_facts()
        apis = {api["key"]: api for api in facts.headers(old_java)}
        rows = list(old_rows().values())
        assert [found["hex"] for found in answers(old_java, wire.PROGRAM, "write", rows)] == [
            row["hex"] for row in rows
        ]
        assert [found["json"] for found in answers(old_java, wire.PROGRAM, "read", rows)] == [
            row["json"] for row in rows
        ]
        for row in rows:
            if "headerVersion" in row:
                api = apis[row["apiKey"]]
                assert row["headerVersion"] == api[f"{row['kind']}HeaderVersions"][row["version"] - api["min"]], row[
                    "api"
                ]
    finally:
        old_java.close()


def test_sampled_stats_are_the_committed_ones(java: Java) -> None:
    committed = json.loads((GOLDEN / "metrics" / "sampled-stats.json").read_text())
    assert metrics.answered(java, [[step[:2] for step in run] for run in committed]) == committed
    asked = list(metrics.questions(SEED))
    assert [len(run) for run in asked] == [len(run) for run in committed]
    paces = [{after[0] - before[0] for before, after in itertools.pairwise(run)} for run in committed]
    allowed = [set(pace) for pace in metrics.PACES for _ in range(metrics.RUNS_PER_PACE)]
    assert all(found <= pace for found, pace in zip(paces, allowed, strict=True))


# What the committed captures name of the node that was asked.
CAPTURED = captures.Place("x_y-z-6", 21171, "2Iyr024IQ0uAyQIgjhiQEQ", 1, 45)


def committed_captures() -> list[dict[str, Any]]:
    return read_rows(GOLDEN / "kraft" / "captures.jsonl")


def test_captures_are_asked_and_read_as_the_committed_ones(java: Java) -> None:
    committed = committed_captures()
    asked = list(captures.questions(CAPTURED))
    sent = captures.requests(java, asked)
    assert [data.hex() for data in sent] == [row["requestHex"] for row in committed]
    got = [(row["outcome"], row["responseHex"] and bytes.fromhex(row["responseHex"])) for row in committed]
    assert captures.rows(java, asked, sent, got) == committed


@pytest.fixture(scope="module")
def made_kraft(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The story standalone up to its first stop, with the captures."""
    folder = tmp_path_factory.mktemp("kraft")
    kraft.standalone(java, folder, SEED, restarts=False)
    expected.write_kraft(java, folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern",
    [
        "expected/standalone/*/node-1/bootstrap.checkpoint.jsonl.gz",
        "expected/standalone/*/node-1/*/*.checkpoint.jsonl.gz",
        "expected/standalone/*/node-1/*/*.log.jsonl.gz",
        "expected/standalone/*/node-1/*/*.index.json.gz",
        "expected/standalone/*/node-1/*/quorum-state.json",
        "logs/standalone/moments.json",
    ],
)
def test_new_metadata_logs_have_the_fields_of_the_committed_ones(made_kraft: Path, pattern: str) -> None:
    made = fields_of_files(made_kraft, pattern)
    assert made <= fields_of_files(GOLDEN / "kraft", pattern) | {".quorum.observers[].logEndOffset:int"}
    assert made


def record_types(folder: Path) -> set[str]:
    """The metadata and control records of a story before its first restart."""
    paths = folder.glob("expected/standalone/02-stopped/node-1/__cluster_metadata-0/*.log.jsonl.gz")
    records = [record for path in paths for batch in read_rows(path) for record in batch["records"]]
    types = {
        record["control"]["typeName"] if "control" in record else record["metadataRecord"]["type"] for record in records
    }
    return types - {"NO_OP_RECORD"}  # of a log in which nothing happens for 5 s


def test_new_story_has_the_moments_files_and_records_of_the_committed_one(made_kraft: Path) -> None:
    assert record_types(made_kraft) == record_types(GOLDEN / "kraft")
    rows = [
        json.loads((folder / "logs/standalone/moments.json").read_text()) for folder in (made_kraft, GOLDEN / "kraft")
    ]
    told = [[(row["moment"], row["note"], row["nodes"]) for row in story] for story in rows]
    assert told[0] == told[1][:3]
    for moment, _, _ in told[0]:
        folders = [folder / "logs" / "standalone" / moment / "node-1" for folder in (made_kraft, GOLDEN / "kraft")]
        names = [
            {re.sub(r"\d{10,}", "N", path.relative_to(folder).as_posix()) for path in folder.rglob("*")}
            for folder in folders
        ]
        assert names[0] == names[1], moment


def test_new_captures_are_answered_as_the_committed_ones(made_kraft: Path) -> None:
    """Outcomes, error codes and fields; ids, addresses and ends differ."""

    def told(row: dict[str, Any]) -> Any:
        errors = re.findall(r'"errorCode": -?\d+', json.dumps(row.get("responseJson", {})))
        # FindCoordinator has another answer once the topic of the coordinator is made.
        codes = None if row.get("api") == "FindCoordinator" else (errors[:1], sorted(set(errors)))
        what = row.get("what", (row.get("api"), row.get("version")))
        return what, row["listener"], row["outcome"], codes, row.keys()

    # The last one has another answer once the node leads again.
    made = read_rows(made_kraft / "captures.jsonl")[:-1]
    committed = committed_captures()[:-1]
    assert [told(row) for row in made] == [told(row) for row in committed]
    made, committed = ([row for row in rows if row.get("api") != "FindCoordinator"] for rows in (made, committed))
    assert {name for row in made for name in fields(row)} <= {name for row in committed for name in fields(row)}
