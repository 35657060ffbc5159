"""What a log directory tells of itself, held against what Kafka's own classes say of the same files."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

import kraftlog
from batch_rows import GOLDEN
from kraftlog.errors import LogError
from kraftlog.types import TopicPartition

TOPICS = GOLDEN / "topics"
PARTITIONS = sorted(
    path.parent.relative_to(TOPICS / "expected")
    for path in (TOPICS / "expected").rglob("partition.json")
    if (TOPICS / path.parent.relative_to(TOPICS / "expected")).is_dir()
)
WITH_SNAPSHOTS = [
    partition
    for partition in PARTITIONS
    if json.loads((TOPICS / "expected" / partition / "partition.json").read_text())["producerSnapshots"]
]


def test_topics_and_partitions_are_listed_with_their_sizes() -> None:
    log_dir = kraftlog.LogDir(TOPICS / "node-1")
    topics = {topic.name: topic for topic in log_dir.topics}
    assert topics["g-keyed"].partitions == (0, 1, 2)
    assert topics["g-keyed"].topic_id == log_dir.partition("g-keyed", 0).topic_id is not None
    assert {name for name, topic in topics.items() if topic.is_internal} == {
        "__consumer_offsets",
        "__transaction_state",
    }
    assert [(log.topic, log.partition) for log in log_dir.partitions("g-keyed")] == [("g-keyed", n) for n in range(3)]
    for log in log_dir.partitions():
        facts = json.loads((TOPICS / "expected" / "node-1" / log.path.name / "partition.json").read_text())
        assert [(segment.base_offset, segment.size_bytes) for segment in log.segments] == [
            (fact["baseOffset"], fact["logBytes"]) for fact in facts["segments"]
        ]
        assert log.size_bytes == sum(fact["logBytes"] for fact in facts["segments"])
        assert [list(epoch) for epoch in log.leader_epochs] == facts["leaderEpochs"]
    assert log_dir.size_bytes == sum(topic.size_bytes for topic in topics.values())
    with pytest.raises(FileNotFoundError, match="partition 9 of topic g-keyed"):
        log_dir.partition("g-keyed", 9)
    with pytest.raises(FileNotFoundError):
        kraftlog.LogDir(TOPICS / "nowhere")


def test_the_broker_s_own_files_are_read() -> None:
    log_dir = kraftlog.LogDir(TOPICS / "node-1")
    assert log_dir.node_id == 1
    assert log_dir.cluster_id
    assert log_dir.directory_id
    checkpoints = log_dir.checkpoints
    assert checkpoints.log_start_offsets[TopicPartition("g-deleterecords", 0)] == 289
    assert checkpoints.high_watermarks[TopicPartition("g-txn-open", 0)] == 127
    assert checkpoints.recovery_points[TopicPartition("g-txn-open", 0)] == 127
    assert checkpoints.cleaner_offsets
    assert not kraftlog.LogDir(TOPICS / "killed-node-2").was_clean_shutdown


@pytest.mark.parametrize("partition", WITH_SNAPSHOTS, ids=str)
def test_producers_are_those_of_kafka_s_snapshots(partition: Path, tmp_path: Path) -> None:
    """Each snapshot is what the one before it, and the log up to it, give."""
    facts = json.loads((TOPICS / "expected" / partition / "partition.json").read_text())
    snapshots = {int(fact["file"].removesuffix(".snapshot")): fact["entries"] for fact in facts["producerSnapshots"]}
    newest = max(snapshots)
    copy = tmp_path / partition.name
    shutil.copytree(TOPICS / partition, copy)
    log = kraftlog.open_log(copy)
    is_at_end = newest == log.log_end_offset
    if is_at_end:
        (copy / f"{newest:020}.snapshot").unlink()
    expected = {
        entry["producerId"]: (
            entry["producerEpoch"],
            entry["batches"][-1]["lastSeq"] if entry["batches"] else -1,
            entry["batches"][-1]["lastOffset"] if entry["batches"] else -1,
            entry["lastTimestamp"],
            entry["coordinatorEpoch"],
            entry["currentTxnFirstOffset"] if entry["currentTxnFirstOffset"] >= 0 else None,
        )
        for entry in snapshots[newest]
    }
    found = {
        producer.producer_id: (
            producer.producer_epoch,
            producer.last_sequence,
            producer.last_offset,
            producer.last_timestamp,
            producer.coordinator_epoch,
            producer.current_transaction_start_offset,
        )
        for producer in log.producers()
    }
    if not is_at_end:
        assert expected.keys() <= found.keys()
        return
    assert {producer_id: found[producer_id] for producer_id in expected} == expected
    # A broker that starts again forgets producers that were idle for a day; here that is those with old timestamps.
    oldest = min((producer[3] for producer in expected.values()), default=2**63)
    forgotten = [found[producer_id] for producer_id in found.keys() - expected.keys()]
    assert all(state[3] < oldest and state[5] is None for state in forgotten)


def entry_of(aborted: kraftlog.reading.AbortedTransaction) -> tuple[int, int, int]:
    return aborted.producer_id, aborted.first_offset, aborted.last_offset


def test_aborted_transactions_are_those_of_the_indexes() -> None:
    checked = 0
    for partition in PARTITIONS:
        expected: list[tuple[int, int, int]] = []
        for index in sorted((TOPICS / "expected" / partition).glob("*.index.json.gz")):
            facts = json.loads(gzip.decompress(index.read_bytes()))
            expected += [
                (fact["producerId"], fact["firstOffset"], fact["lastOffset"]) for fact in facts.get("txnIndex", [])
            ]
        log = kraftlog.open_log(TOPICS / partition)
        assert [entry_of(aborted_transaction) for aborted_transaction in log.aborted_transactions()] == expected, (
            partition
        )
        for entry in expected:
            last = entry[2]
            assert entry in [
                entry_of(aborted_transaction) for aborted_transaction in log.aborted_transactions(last, last + 1)
            ]
            assert all(
                aborted_transaction.last_offset != last for aborted_transaction in log.aborted_transactions(last + 1)
            )
        checked += len(expected)
    assert checked > 50


def test_marked_directories_are_apart(tmp_path: Path) -> None:
    for name in (
        "t-0",
        "t-1.0123456789abcdef0123456789abcdef-delete",
        "t-2.0123456789abcdef0123456789abcdef-future",
        "a.b-3.0123456789abcdef0123456789abcdef-stray",
        "__cluster_metadata-0",
        "notes",
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020}.log").write_bytes(bytes(3))
    log_dir = kraftlog.LogDir(tmp_path)
    assert [
        (marked_directory.topic, marked_directory.partition, marked_directory.mark, marked_directory.size_bytes)
        for marked_directory in log_dir.marked_directories
    ] == [
        ("a.b", 3, "stray", 3),
        ("t", 1, "delete", 3),
        ("t", 2, "future", 3),
    ]
    assert [(log.topic, log.is_internal) for log in log_dir.partitions()] == [
        ("__cluster_metadata", True),
        ("t", False),
    ]
    assert log_dir.meta_properties is None
    assert log_dir.node_id is log_dir.cluster_id is log_dir.directory_id is None


@pytest.mark.parametrize(
    "content",
    [b"1\n0\n", b"0\n2\nt 0 5\n", b"0\n1\nt 0 x\n", b"0\n1\nt 0 -4\n", b"0\n1\nt 0 %d\n" % 2**63, b"\xff"],
)
def test_damaged_checkpoints_are_errors_that_name_them(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "log-start-offset-checkpoint").write_bytes(content)
    with pytest.raises(LogError, match="log-start-offset-checkpoint"):
        kraftlog.open_log(tmp_path / "t-0").scan()
    with pytest.raises(LogError, match="log-start-offset-checkpoint"):
        kraftlog.LogDir(tmp_path).checkpoints  # noqa: B018


def test_index_files_are_told_with_their_segments() -> None:
    log = kraftlog.open_log(TOPICS / "node-1" / "g-txn-0")
    kinds = {segment.base_offset: [index.kind for index in segment.indexes] for segment in log.segments}
    assert kinds[0] == ["index", "timeindex"]
    assert kinds[5] == ["index", "timeindex", "txnindex", "snapshot"]
    for segment in log.segments:
        assert segment.modified_ms == segment.path.stat().st_mtime_ns // 1_000_000
        assert all(index.size_bytes == index.path.stat().st_size for index in segment.indexes)
