"""The segment writer without a JVM: what a task stages, and what a commit makes of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kraftlog
from kraftlog._kraftlog import Log, LogConfig, key_partitions, verify_files
from kraftlog.errors import LogError
from kraftlog.partitioner import key_partition
from kraftlog.storage.log_dir import CLEAN_SHUTDOWN_NAME

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType  # pyspark is an extra

from kraftlog.spark import write_commit
from kraftlog.spark.write import batch_writer, stream_writer
from kraftlog.spark.write_commit import finish_writes
from kraftlog.spark.write_segments import SegmentWriter

SCHEMA = "key binary, value binary, partition int"
NOW_MS = 1_700_000_000_000


def schema(ddl: str) -> StructType:
    fields = [field.strip().split(" ", 1) for field in ddl.split(", ")]
    types = {"headers": "array<struct<key:string,value:binary>>"}
    parsed = StructType()
    for name, kind in fields:
        parsed.add(name, _TYPES[types.get(name, kind)])
    return parsed


def _types() -> dict[str, Any]:
    from pyspark.sql import types

    header = types.StructType().add("key", types.StringType()).add("value", types.BinaryType())
    return {
        "binary": types.BinaryType(),
        "string": types.StringType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "timestamp": types.TimestampType(),
        "array<struct<key:string,value:binary>>": types.ArrayType(header),
    }


_TYPES = _types()


def writer(path: Path, ddl: str = SCHEMA, *, overwrite: bool = False, **options: str) -> SegmentWriter:
    named = {name.replace("_", "."): value for name, value in options.items()}
    made = batch_writer(schema(ddl), {"path": str(path), "topic": "orders", **named}, overwrite=overwrite)
    assert isinstance(made, SegmentWriter)
    return made


def rows(partition: int, values: Sequence[str], **columns: Any) -> pa.RecordBatch:
    data = {
        "key": pa.array([value.encode() for value in values], pa.binary()),
        "value": pa.array([value.encode() for value in values], pa.binary()),
        "partition": pa.array([partition] * len(values), pa.int32()),
        **columns,
    }
    return pa.record_batch(data)


def written(path: Path) -> dict[str, list[tuple[int, bytes]]]:
    """(offset, value) of each partition."""
    found: dict[str, list[tuple[int, bytes]]] = {}
    for topic in kraftlog.LogDir(path).topics:
        for number in topic.partitions:
            table = pa.table(kraftlog.open_log(path / f"{topic.name}-{number}").scan(columns=["offset", "value"]))
            found[f"{topic.name}-{number}"] = list(
                zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)
            )
    return found


def assert_sound(path: Path) -> None:
    report = json.loads(verify_files([path]))
    assert report["status"] == "sound", report["findings"]
    assert not (path / "_temporary").exists()


def save(path: Path, *tasks: Sequence[pa.RecordBatch], **options: Any) -> None:
    one = writer(path, **options)
    one.commit([one.write(iter(batches)) for batches in tasks])


def test_partitions_become_directories_with_checkpoints_and_ids(tmp_path: Path) -> None:
    topic_id = "AAAAAAAAAAAAAAAAAAAACw"
    save(
        tmp_path,
        [rows(0, ["a", "b"]), rows(0, ["c"]), rows(2, ["d"])],
        [rows(1, ["e"])],
        [],
        topicIds=json.dumps({"orders": topic_id}),
    )
    assert written(tmp_path) == {
        "orders-0": [(0, b"a"), (1, b"b"), (2, b"c")],
        "orders-1": [(0, b"e")],
        "orders-2": [(0, b"d")],
    }
    logs = kraftlog.LogDir(tmp_path)
    assert [str(topic.topic_id) for topic in logs.topics] == [topic_id]
    assert {str(key): offset for key, offset in logs.checkpoints.high_watermarks.items()} == {
        "orders-0": 3,
        "orders-1": 1,
        "orders-2": 1,
    }
    assert logs.checkpoints.recovery_points == logs.checkpoints.high_watermarks
    names = {path.name for path in (tmp_path / "orders-0").iterdir()}
    assert {"00000000000000000000.log", "00000000000000000000.index", "00000000000000000000.timeindex"} < names
    assert {"leader-epoch-checkpoint", "partition.metadata"} < names
    assert_sound(tmp_path)


def test_append_goes_on_at_the_log_end_with_the_epochs_of_the_log(tmp_path: Path) -> None:
    save(tmp_path, [rows(0, ["a", "b"])], leaderEpoch="3")
    first_id = kraftlog.open_log(tmp_path / "orders-0").topic_id
    save(tmp_path, [rows(0, ["c"]), rows(1, ["d"])])
    save(tmp_path, [rows(0, [f"v{n}" for n in range(3000)])], leaderEpoch="5", segment_bytes="20000")
    got = written(tmp_path)
    assert [offset for offset, _ in got["orders-0"]] == list(range(3003))
    assert got["orders-0"][2:4] == [(2, b"c"), (3, b"v0")]
    assert got["orders-1"] == [(0, b"d")]
    log = kraftlog.open_log(tmp_path / "orders-0")
    assert [(entry.epoch, entry.start_offset) for entry in log.leader_epochs] == [(3, 0), (5, 3)]
    assert len(log.segments) > 3
    assert log.topic_id == first_id == kraftlog.open_log(tmp_path / "orders-1").topic_id
    assert_sound(tmp_path)


def test_appending_keeps_what_producers_are_known_and_fills_the_log_of_a_node_that_nobody_wrote_to(
    tmp_path: Path,
) -> None:
    log = Log.open(tmp_path / "orders-0", config=LogConfig(), now_ms=NOW_MS)
    log.write_partition_metadata(bytes(range(16)))
    log.append_as_leader(
        kraftlog._kraftlog.encode_batch([(NOW_MS, None, b"x", ())], producer_id=7, producer_epoch=0, base_sequence=0),
        leader_epoch=2,
        now_ms=NOW_MS,
    )
    log.close()
    empty = Log.open(tmp_path / "orders-1", config=LogConfig(), now_ms=NOW_MS)
    empty.write_partition_metadata(bytes(range(16)))
    empty.close()
    save(tmp_path, [rows(0, ["a"]), rows(1, ["b"])])
    assert written(tmp_path) == {"orders-0": [(0, b"x"), (1, b"a")], "orders-1": [(0, b"b")]}
    assert {bytes(topic.topic_id or b"") for topic in kraftlog.LogDir(tmp_path).topics} == {bytes(range(16))}
    again = Log.open(tmp_path / "orders-0", config=LogConfig(), now_ms=NOW_MS, recovery_point=2, clean_shutdown=True)
    assert [producer.producer_id for producer in again.active_producers()] == [7]
    assert (again.log_end_offset, again.latest_epoch) == (2, 2)
    again.close()


def test_overwrite_replaces_topics_as_a_whole_and_no_other(tmp_path: Path) -> None:
    save(tmp_path, [rows(0, ["a"] * 9), rows(1, ["b"])])
    topic_id = kraftlog.open_log(tmp_path / "orders-0").topic_id
    save(tmp_path, [rows(0, ["other"])], topic="other")
    save(tmp_path, [rows(0, ["c"])], overwrite=True)
    assert written(tmp_path) == {"orders-0": [(0, b"c")], "other-0": [(0, b"other")]}
    marks = {str(key): offset for key, offset in kraftlog.LogDir(tmp_path).checkpoints.high_watermarks.items()}
    assert marks == {"orders-0": 1, "other-0": 1}
    assert kraftlog.open_log(tmp_path / "orders-0").topic_id == topic_id
    assert_sound(tmp_path)
    save(tmp_path, [], overwrite=True)
    assert written(tmp_path) == {"other-0": [(0, b"other")]}
    assert_sound(tmp_path)


def test_given_offsets_are_kept_with_their_gaps(tmp_path: Path) -> None:
    ddl = SCHEMA + ", offset bigint"
    offsets = pa.array([100, 105, 5_000_000_000], pa.int64())
    save(tmp_path, [rows(4, ["a", "b", "c"], offset=offsets)], ddl=ddl)
    assert written(tmp_path) == {"orders-4": [(100, b"a"), (105, b"b"), (5_000_000_000, b"c")]}
    logs = kraftlog.LogDir(tmp_path)
    assert list(logs.checkpoints.log_start_offsets.values()) == [100]
    assert kraftlog.open_log(tmp_path / "orders-4").log_start_offset == 100
    again = writer(tmp_path, ddl)
    with pytest.raises(ValueError, match=r"offset 5000000000 of orders-4 is below 5000000001"):
        again.write(iter([rows(4, ["d"], offset=pa.array([5_000_000_000], pa.int64()))]))
    save(tmp_path, [rows(4, ["d"], offset=pa.array([5_000_000_010], pa.int64()))], ddl=ddl)
    assert written(tmp_path)["orders-4"][-1] == (5_000_000_010, b"d")
    assert list(kraftlog.LogDir(tmp_path).checkpoints.log_start_offsets.values()) == [100]


def test_timestamps_headers_and_nulls_are_kept(tmp_path: Path) -> None:
    ddl = SCHEMA + ", timestamp timestamp, timestampType int, headers array<struct<key:string,value:binary>>"
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.record_batch(
        {
            "key": pa.array([None, b"k", b""], pa.binary()),
            "value": pa.array([b"v", None, b""], pa.binary()),
            "partition": pa.array([0, 0, 0], pa.int32()),
            "timestamp": pa.array([5_000_999, -1, 7_000_000], pa.timestamp("us", "UTC")),
            "timestampType": pa.array([0, 0, 1], pa.int32()),
            "headers": pa.array([None, [("a", None), ("b", b"1")], []], header),
        }
    )
    save(tmp_path, [batch], ddl=ddl)
    columns = ["key", "value", "timestamp", "timestamp_type", "headers"]
    table = pa.table(kraftlog.open_log(tmp_path / "orders-0").scan(columns=columns))
    assert table["key"].to_pylist() == [None, b"k", b""]
    assert table["value"].to_pylist() == [b"v", None, b""]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [5000, -1, 7000]
    assert table["timestamp_type"].to_pylist() == [0, 0, 1]
    assert table["headers"].to_pylist() == [
        [],
        [{"key": "a", "value": None}, {"key": "b", "value": b"1"}],
        [],
    ]


def test_only_the_attempt_that_spark_names_counts(tmp_path: Path) -> None:
    one = writer(tmp_path)
    lost = one.write(iter([rows(0, ["a", "b"])]))
    with pytest.raises(RuntimeError, match="died"):
        one.write(_dying([rows(0, ["a"])]))
    kept = one.write(iter([rows(0, ["a", "b"])]))
    attempts = list((tmp_path / "_temporary").glob("*/*"))
    assert len(attempts) == 3
    assert lost.partitions[0].staged != kept.partitions[0].staged
    one.commit([kept])
    assert written(tmp_path) == {"orders-0": [(0, b"a"), (1, b"b")]}
    assert_sound(tmp_path)


def _dying(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    raise RuntimeError("died")


def test_rows_in_the_wrong_tasks_or_order_change_nothing(tmp_path: Path) -> None:
    save(tmp_path, [rows(0, ["a"])])
    one = writer(tmp_path)
    messages = [one.write(iter([rows(0, ["b"])])), one.write(iter([rows(0, ["c"])]))]
    with pytest.raises(LogError, match=r"rows of orders-0 came from several tasks .*kraftlog\.spark\.prepare"):
        one.commit(messages)
    one.abort(messages)
    with pytest.raises(ValueError, match=r"rows of orders-0 come again .*kraftlog\.spark\.prepare"):
        one.write(iter([rows(0, ["b"]), rows(1, ["c"]), rows(0, ["d"])]))
    one.abort([None])
    assert written(tmp_path) == {"orders-0": [(0, b"a")]}
    assert_sound(tmp_path)


def test_logs_that_no_checkpoint_names_are_still_read_to_their_end(tmp_path: Path) -> None:
    save(tmp_path, [rows(0, ["a", "b"])], topic="copied")
    (tmp_path / "replication-offset-checkpoint").unlink()
    save(tmp_path, [rows(0, ["c"])])
    marks = {str(key): offset for key, offset in kraftlog.LogDir(tmp_path).checkpoints.high_watermarks.items()}
    assert marks == {"copied-0": 2, "orders-0": 1}


def test_a_write_beside_another_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_commit, "LOCK_WAIT_S", 0.1)
    save(tmp_path, [rows(0, ["a"])])
    first, second = writer(tmp_path), writer(tmp_path)
    messages = [first.write(iter([rows(0, ["b"])]))], [second.write(iter([rows(0, ["c"])]))]
    first.commit(messages[0])
    with pytest.raises(LogError, match="orders-0 ends at offset 2 and ended at offset 1 when the write began"):
        second.commit(messages[1])
    second.abort(messages[1])
    lock = kraftlog._kraftlog.lock_directory(tmp_path)
    with pytest.raises(LogError, match="is in use: stop the node"):
        writer(tmp_path)
    lock.release()
    must_be_new = writer(tmp_path, ifExists="error")
    message = must_be_new.write(iter([rows(0, ["d"])]))
    with pytest.raises(LogError, match="orders-0 has records already and option ifExists is error"):
        must_be_new.commit([message])
    must_be_new.abort([message])
    assert written(tmp_path) == {"orders-0": [(0, b"a"), (1, b"b")]}
    assert_sound(tmp_path)


def test_a_log_with_a_torn_tail_is_cut_before_it_is_appended_to(tmp_path: Path) -> None:
    save(tmp_path, [rows(0, ["a", "b"])])
    segment = tmp_path / "orders-0" / "00000000000000000000.log"
    whole = segment.read_bytes()
    with segment.open("ab") as file:
        file.write(whole[:30])
    save(tmp_path, [rows(0, ["c"])])
    assert written(tmp_path) == {"orders-0": [(0, b"a"), (1, b"b"), (2, b"c")]}
    assert_sound(tmp_path)


class _CrashError(Exception):
    """The machine went down."""


def _count_steps(monkeypatch: pytest.MonkeyPatch, stop_at: int) -> list[str]:
    """Let the changes of a commit through up to a number, then crash before the next one; what was done is noted."""
    done: list[str] = []

    def guarded(name: str, real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if len(done) == stop_at:
                raise _CrashError
            done.append(name)
            return real(*args, **kwargs)

        return call

    for module, name in (
        (write_commit, "replace_file"),
        (write_commit, "write_offset_checkpoint"),
        (os, "replace"),
        (Path, "rename"),
        (Path, "unlink"),
        (shutil, "rmtree"),
    ):
        monkeypatch.setattr(module, name, guarded(name, getattr(module, name)))
    return done


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_commit_that_stops_anywhere_is_finished_or_never_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    before = tmp_path / "before"
    save(before, [rows(0, ["a", "b"]), rows(1, ["c"])])
    old = written(before)
    if overwrite:
        new = {"orders-0": [(0, b"d"), (1, b"e")], "orders-7": [(0, b"f")]}
    else:
        new = {**old, "orders-0": [*old["orders-0"], (2, b"d"), (3, b"e")], "orders-7": [(0, b"f")]}
    outcomes: list[str] = []
    for stop_at in range(200):
        target = tmp_path / f"after-{stop_at}"
        shutil.copytree(before, target)
        one = writer(target, overwrite=overwrite)
        messages = [one.write(iter([rows(0, ["d", "e"])])), one.write(iter([rows(7, ["f"])]))]
        with monkeypatch.context() as patch:
            done = _count_steps(patch, stop_at)
            with contextlib.suppress(_CrashError):
                one.commit(messages)
            if len(done) < stop_at:
                break
        # Spark tells the writer of the failure, when it is alive to do so; what has begun to commit stays.
        if stop_at % 2:
            one.abort(messages)
        journals = list((target / "_temporary").glob("*/commit.json"))
        finished = finish_writes(target)
        assert sorted(finished) == (sorted({*new, *old} if overwrite else ["orders-0", "orders-7"]) if journals else [])
        got = written(target)
        assert got in (old, new), f"stopped after {done}"
        outcomes.append("new" if got == new else "old")
        report = json.loads(verify_files([target]))
        assert report["status"] == "sound", (done, report["findings"])
        ends = {f"{name}": values[-1][0] + 1 for name, values in got.items()}
        marks = {str(key): offset for key, offset in kraftlog.LogDir(target).checkpoints.high_watermarks.items()}
        assert marks == ends, f"stopped after {done}"
    assert {"old", "new"} == set(outcomes)
    assert outcomes == sorted(outcomes, reverse=True), "once a commit counts it counts"
    assert len(outcomes) > 8


def test_an_interrupted_commit_is_not_finished_on_a_log_that_went_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, [rows(0, ["a"])])
    one = writer(tmp_path)
    message = one.write(iter([rows(0, ["b"])]))
    with monkeypatch.context() as patch:
        _count_steps(patch, 2)
        with pytest.raises(_CrashError):
            one.commit([message])
    assert list((tmp_path / "_temporary").glob("*/commit.json"))
    log = Log.open(tmp_path / "orders-0", config=LogConfig(), now_ms=NOW_MS)
    log.append_as_leader(kraftlog._kraftlog.encode_values([b"x"], timestamps=NOW_MS), leader_epoch=0, now_ms=NOW_MS)
    log.close()
    with pytest.raises(LogError, match="orders-0 was written to since the commit in"):
        writer(tmp_path)
    assert written(tmp_path) == {"orders-0": [(0, b"a"), (1, b"x")]}


def test_what_a_dead_job_left_goes_after_an_hour(tmp_path: Path) -> None:
    one = writer(tmp_path)
    one.write(iter([rows(0, ["a"])]))
    assert finish_writes(tmp_path) == []
    assert (tmp_path / "_temporary").is_dir()
    for path in [*tmp_path.rglob("*"), tmp_path / "_temporary"]:
        os.utime(path, (1, 1))
    writer(tmp_path)
    assert not (tmp_path / "_temporary").exists()


def test_the_clean_shutdown_of_a_node_stays(tmp_path: Path) -> None:
    save(tmp_path, [rows(0, ["a"])])
    (tmp_path / CLEAN_SHUTDOWN_NAME).write_text('{"version":0,"brokerEpoch":1}')
    save(tmp_path, [rows(0, ["b"])])
    assert (tmp_path / CLEAN_SHUTDOWN_NAME).exists()
    assert written(tmp_path) == {"orders-0": [(0, b"a"), (1, b"b")]}


@pytest.mark.parametrize(
    ("ddl", "options", "words"),
    [
        ("value int, partition int", {}, "value attribute unsupported type int. value must be a string or binary"),
        ("key bigint, value string, partition int", {}, "key attribute unsupported type bigint"),
        ("value binary, partition string", {}, "partition attribute unsupported type string"),
        ("value binary, partition int, offset int", {}, "offset attribute unsupported type int"),
        ("key binary, partition int", {}, "Required attribute 'value' not found"),
        ("value binary", {}, "partition option or column required: kraftlog.spark.prepare"),
        ("value binary, partition int, extra int", {}, "column extra cannot be written"),
        ("value binary, value binary, partition int", {}, "column value is there 2 times"),
        (SCHEMA, {"topc": "x"}, "unknown option topc: to write segments there are path, topic"),
        (SCHEMA, {"compression.type": "brotli"}, "options compression.type and compression.level: no codec"),
        (SCHEMA, {"compression.type": "zstd", "compression.level": "99"}, "compression.level: "),
        (SCHEMA, {"segment.bytes": "10"}, r"option segment.bytes is in \[1024, 2147483647\], not 10"),
        (SCHEMA, {"batch.bytes": "x"}, "option batch.bytes must be a whole number, not 'x'"),
        (SCHEMA, {"message.timestamp.type": "Now"}, "option message.timestamp.type is CreateTime or LogAppendTime"),
        (SCHEMA, {"topicIds": "[]"}, "option topicIds is a JSON object"),
        (SCHEMA, {"ifExists": "fail"}, "option ifExists is append or error, not 'fail'"),
        (SCHEMA, {"path": "s3://bucket/x"}, "option path: segments are written to a directory"),
        (SCHEMA, {"partition": "-1"}, "option partition is in"),
    ],
)
def test_columns_and_options_are_refused_by_name(
    tmp_path: Path, ddl: str, options: Mapping[str, str], words: str
) -> None:
    given = {"path": str(tmp_path), "topic": "orders", **options}
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        batch_writer(schema(ddl), given, overwrite=False)


def test_topic_and_stream_errors_are_those_of_sparks_sink(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="topic option required when no 'topic' attribute is present"):
        batch_writer(schema(SCHEMA), {"path": str(tmp_path)}, overwrite=False)
    with pytest.raises(ValueError, match=r"option path is missing: .*kafka\.bootstrap\.servers"):
        batch_writer(schema(SCHEMA), {"topic": "t"}, overwrite=False)
    with pytest.raises(ValueError, match=r"a stream is written to a broker, with option kafka\.bootstrap\.servers"):
        stream_writer(schema(SCHEMA), {"path": str(tmp_path), "topic": "t"}, overwrite=False)


def test_key_partitions_are_kafkas() -> None:
    keys = [None, b"", b"a", b"ab", b"abc", b"abcd", bytes(range(200))]
    values = [b"v"] * len(keys)
    found: Any = key_partitions(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), 7)
    expected = [key_partition(key if key is not None else b"v", 7) for key in keys]
    assert pa.array(found).to_pylist() == expected
