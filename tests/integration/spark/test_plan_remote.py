"""Plans over URLs, without a JVM: the options of the source mean what they mean for directories of this machine."""

from __future__ import annotations

import json
import pickle
import resource
import subprocess
import sys
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest

from batch_rows import GOLDEN
from kraftlog.reading import fetch_counts
from kraftlog.spark.options import SourceOptions
from kraftlog.spark.plan import plan_tasks
from kraftlog.spark.range_reader import read_range

NODE = GOLDEN / "topics" / "node-1"
URL = "memory://plan-remote"
TOPICS = "g-none,g-zstd,g-txn,g-deleterecords,g-keyed"


@pytest.fixture(scope="module", autouse=True)
def uploaded() -> None:
    fsspec.filesystem("memory").put(str(NODE), "/plan-remote", recursive=True)


def rows_of(path: str, columns: list[str], **options: str) -> list[dict[str, object]]:
    """The rows of all tasks, each sent as Spark sends it, in order of partition and offset."""
    parsed = SourceOptions.parse({"path": path, "subscribe": TOPICS, **options})
    tasks = pickle.loads(pickle.dumps(plan_tasks(parsed)))
    batches = [batch for task in tasks for batch in read_range(task, parsed, columns)]
    rows = pa.Table.from_batches(batches).to_pylist() if batches else []
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


STARTS = {"g-none": {"0": 500}, "g-zstd": {"0": 1000}, "g-txn": {"0": -2}, "g-deleterecords": {"0": 300}}
STARTS |= {"g-keyed": {"0": 1, "1": 0, "2": -2}}
ENDS = {topic: dict.fromkeys(numbers, -1) for topic, numbers in STARTS.items()} | {"g-none": {"0": 900}}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"splitBytes": "50000"},
        {"kafka.isolation.level": "read_committed", "splitBytes": "50000"},
        {"endOffset": "logEnd", "controlRecords": "true"},
        {"startingOffsets": json.dumps(STARTS), "endingOffsets": json.dumps(ENDS)},
        {"startingTimestamp": "1702389442700", "startingOffsetsByTimestampStrategy": "latest"},
        {"fromTimestamp": "1702389442700", "verifyCrc": "false"},
        {"minPartitions": "40"},
        {"maxRecordsPerPartition": "77", "kafka.isolation.level": "read_committed"},
    ],
)
def test_rows_are_those_of_the_local_directory(options: dict[str, str]) -> None:
    columns = ["topic", "partition", "offset", "value", "timestamp"]
    wanted = rows_of(str(NODE), columns, **options)
    assert len(wanted) > 100
    assert rows_of(URL, columns, **options) == wanted


def test_a_task_asks_for_its_range_alone() -> None:
    parsed = SourceOptions.parse({"path": URL, "subscribe": "g-segment-1mib", "splitBytes": "300000"})
    before = fetch_counts()
    tasks = plan_tasks(parsed)
    planned = fetch_counts() - before
    assert planned.lists == 1
    assert len(tasks) > 3
    sizes = []
    for task in tasks:
        assert len(pickle.dumps(task)) < 6000
        before = fetch_counts()
        assert sum(batch.num_rows for batch in read_range(task, parsed, ["value"])) > 0
        done = fetch_counts() - before
        assert done.lists == 0
        sizes.append(done.bytes_read)
    assert max(sizes) < 450_000


@pytest.mark.parametrize("name", ["subscribe", "assign", "subscribePattern"])
def test_topics_are_selected(name: str) -> None:
    value = {"subscribe": "g-keyed", "assign": '{"g-keyed": [0, 1, 2]}', "subscribePattern": "g-key.*"}[name]
    parsed = SourceOptions.parse({"path": URL, name: value})
    ranges = [piece for task in plan_tasks(parsed) for piece in task]
    assert {(range_.topic, range_.partition) for range_ in ranges} == {("g-keyed", number) for number in range(3)}
    assert all(range_.path.startswith("memory://plan-remote/g-keyed-") for range_ in ranges)


def test_mistakes_are_told_and_credentials_are_not() -> None:
    for text in ('{"secret": "hush-hush"', '["hush-hush"]', "hush-hush"):
        with pytest.raises(ValueError, match="option storageOptions must be a JSON object such as") as caught:
            SourceOptions.parse({"path": URL, "storageOptions": text})
        assert "hush" not in str(caught.value)
    with pytest.raises(ValueError, match=r"kraftlog\.fs .*auto.*pyarrow.*fsspec"):
        SourceOptions.parse({"path": URL, "kraftlog.fs": "hadoop"})
    parsed = SourceOptions.parse({"path": "s3://bucket/x", "storageOptions": '{"secret": "hush-hush"}'})
    assert "hush" not in repr(parsed)
    assert parsed.storage_options == {"secret": "hush-hush"}
    with pytest.raises(ValueError, match="storage options are for URLs"):
        plan_tasks(SourceOptions.parse({"path": str(NODE), "storageOptions": "{}"}))


LIMITED = """
import resource, sys
from kraftlog.spark.options import SourceOptions
from kraftlog.spark.plan import plan_tasks
from kraftlog.spark.range_reader import read_range
import pyarrow
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit = used + (400 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
options = SourceOptions.parse({"path": sys.argv[1], "endOffset": "logEnd"})
print(sum(rows.num_rows for task in plan_tasks(options) for rows in read_range(task, options, ["value"])))
# Not ru_maxrss, which counts what the parent had before exec.
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) >> 10)
"""


def test_a_task_lives_with_little_address_space(tmp_path: Path) -> None:
    """A segment of 500 MiB is read with 400 MiB to spare, of which the ranges take 24."""
    from kraftlog._kraftlog import encode_batch

    (tmp_path / "big-0").mkdir()
    batch = bytearray(encode_batch([(at, b"k", bytes(1000), []) for at in range(1000)], base_offset=0))
    with (tmp_path / "big-0" / f"{0:020}.log").open("wb") as log:
        for number in range(525):
            batch[:8] = (number * 1000).to_bytes(8, "big")  # which the checksum does not cover
            log.write(batch)
    command = [sys.executable, "-c", LIMITED, f"file://{tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    rows, peak_mib = map(int, done.stdout.split())
    assert rows == 525_000
    assert peak_mib < 400
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
