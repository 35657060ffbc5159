"""The jobs of spark/, each on small data of the generator."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import kraftlog
from interop.spark.jobs import JOBS, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAYS = 4
JOB_NAMES = (
    "generate_data",
    "generate_metadata",
    "scan_job",
    "backfill",
    "log_report",
    "metadata_report",
    "stream_tail",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("confluent_kafka", reason="pip install kraftlog[demo]: the generator produces")
    directory = tmp_path_factory.mktemp("jobs") / "data"
    load("generate_data").generate(directory, records=300, shop_count=8_000, days=DAYS, partitions=1)
    return directory


def is_picture(file: Path) -> bool:
    """A PNG that shows something."""
    from matplotlib.image import imread

    picture = imread(file)
    return picture.shape[0] > 300 and picture.shape[1] > 600 and float(picture.std()) > 0.01


# backfill


def backfill_args(source: Path, out: Path, **changes: Any) -> argparse.Namespace:
    args = {
        "source": str(source),
        "out": str(out),
        "topics": None,
        "split_bytes": 64 << 20,
        "isolation_level": "read_committed",
        "log_end": True,
        "skip_deleted": False,
    }
    return argparse.Namespace(**{**args, **changes})


def written(out: Path) -> list[tuple[Any, ...]]:
    """Every row of the Parquet files, with topic and date from the folders."""
    table = ds.dataset(out, format="parquet", partitioning="hive").to_table()
    assert table["date"].cast(pa.string()).to_pylist() == pc.strftime(table["timestamp"], "%Y-%m-%d").to_pylist()
    columns = ("topic", "partition", "offset", "key", "value", "timestamp")
    return sorted(zip(*(table[name].to_pylist() for name in columns), strict=True))


def in_log(source: Path, topics: list[str] | None = None) -> list[tuple[Any, ...]]:
    scan = kraftlog.scan(source, topics=topics, isolation_level="read_committed", timestamp_unit="us")
    table = pa.table(scan)
    columns = ("topic", "partition", "offset", "key", "value", "timestamp")
    return sorted(zip(*(table[name].to_pylist() for name in columns), strict=True))


def test_a_backfill_goes_on_where_it_ended(spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    job = load("backfill")
    generator = load("generate_data")
    out, node = tmp_path / "out", tmp_path / "node"

    def produce(first: int, count: int) -> None:
        records = (
            generator.Produced(b"k", b"%d" % number, [], generator.BASE_TIMESTAMP_MS + number * 3_600_000, number % 2)
            for number in range(first, first + count)
        )
        with kraftlog.Broker(node, config=generator.NODE_CONFIG) as broker:
            if first == 0:
                broker.create_topic("orders", partitions=2)
                broker.create_topic("other")
            generator.produce(broker.bootstrap_servers, "orders", "lz4", records)

    produce(0, 100)
    first = job.backfill(spark, backfill_args(node, out, split_bytes=2000))
    assert written(out) == in_log(node)
    assert sum(task["rows"] for task in first) == 100
    files = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    assert job.backfill(spark, backfill_args(node, out)) == []
    produce(100, 50)
    second = job.backfill(spark, backfill_args(node, out))
    assert sum(task["rows"] for task in second) == 50
    assert written(out) == in_log(node)
    assert {path: path.stat().st_mtime_ns for path in files} == files  # what was there was left alone
    job.report(second)
    assert capsys.readouterr().out.splitlines()[-1].split()[:3] == ["orders", "2", "50"]
    with pytest.raises(SystemExit, match="no topic typo: there are"):
        job.backfill(spark, backfill_args(node, out, topics="typo"))


@pytest.mark.slow
def test_a_backfill_that_was_killed_is_finished_with_the_same_ranges(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    job = load("backfill")
    args = backfill_args(data / "node", tmp_path, topics="orders,clicks", split_bytes=20_000)
    done = job.backfill(spark, args)
    ranges = json.loads((tmp_path / "_offsets" / "run-000001.json").read_text())["ranges"]
    assert len(ranges) == len(done) >= 10  # partitions
    # As a driver leaves it that is killed when half of the ranges are marked, some files of the rest are there, one of
    # them in the middle of being written.
    (tmp_path / "_offsets" / "run-000001.done.json").unlink()
    marks = tmp_path / "_offsets" / "run-000001"
    marks.mkdir()
    for number, task in enumerate(done):
        name = f"{task['partition']}-{task['start']:020}-{task['end']:020}.parquet"
        files = sorted((tmp_path / f"topic={task['topic']}").glob(f"*/{name}"))
        assert len(files) == task["files"]
        if number % 2:
            (marks / f"{task['topic']}-{task['partition']}-{task['start']}.json").write_text(json.dumps(task))
        else:
            files[0].rename(files[0].with_name(f".{name}.unfinished"))
    again = job.backfill(spark, args)
    assert written(tmp_path) == in_log(data / "node", ["orders", "clicks"])
    assert [{**task, "seconds": 0} for task in again] == [{**task, "seconds": 0} for task in done]
    assert (tmp_path / "_offsets" / "run-000001.done.json").exists()
    assert not marks.exists()


def test_a_backfill_leaves_aborted_transactions_out(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    job = load("backfill")
    job.backfill(spark, backfill_args(data / "kafka", tmp_path))
    assert written(tmp_path) == in_log(data / "kafka")
    everything = pa.table(kraftlog.scan(data / "kafka"))
    assert len(written(tmp_path)) < len(everything)


def test_a_backfill_says_what_was_deleted_before_its_turn(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    job = load("backfill")
    source, out = tmp_path / "source", tmp_path / "out"
    (source / "audit-0").mkdir(parents=True)
    for file in (data / "node" / "audit-0").glob("*.log"):
        (source / "audit-0" / file.name).write_bytes(file.read_bytes())
    job.backfill(spark, backfill_args(source, out))
    state = out / "_offsets" / "run-000001.json"
    run = json.loads(state.read_text())
    for offset_range in run["ranges"]:
        offset_range["end"] = 100
    state.write_text(json.dumps(run))
    (source / "log-start-offset-checkpoint").write_text("0\n1\naudit 0 150\n")
    with pytest.raises(SystemExit, match=r"audit-0: offsets 100 to 149 were deleted .* --skip-deleted goes on"):
        job.backfill(spark, backfill_args(source, out))
    again = job.backfill(spark, backfill_args(source, out, skip_deleted=True))
    assert [task["start"] for task in again] == [150]


# scan_job


def test_the_scan_finds_what_was_produced(spark: SparkSession, data: Path) -> None:
    expected = json.loads((data / "expected.json").read_text())
    assert len(expected) == 9
    assert load("scan_job").scan(spark, data / "node") == expected


# stream_tail


@pytest.mark.slow
def test_the_tail_counts_by_topic_and_window(spark: SparkSession, data: Path, tmp_path: Path, capsys: Any) -> None:
    job = load("stream_tail")
    args = argparse.Namespace(
        source=str(data / "node"),
        topics="orders,clicks",
        starting="earliest",
        window="1 day",
        seconds=None,
        max_offsets=None,
        checkpoint=None,
    )
    rows = job.tail(spark, args)
    table = pa.table(kraftlog.scan(data / "node", topics=["orders", "clicks"], columns=["topic", "timestamp"]))
    days = pc.strftime(table["timestamp"], "%Y-%m-%d").to_pylist()
    expected = Counter(zip(table["topic"].to_pylist(), days, strict=True))
    assert {(row.topic, f"{row.start:%Y-%m-%d}"): row.records for row in rows} == expected
    assert len(expected) == 2 * DAYS
    job.report(rows)
    assert "orders" in capsys.readouterr().out
    job.plot(rows, tmp_path / "tail.png", "1 day")
    assert is_picture(tmp_path / "tail.png")


# log_report


def test_the_report_adds_up(spark: SparkSession, data: Path, tmp_path: Path, capsys: Any) -> None:
    job, session = load("log_report"), load("job_session")
    source = str(data / "node")
    configs = load("metadata_report").topic_configs(spark, source)
    assert configs["orders"] == {"retention.ms": str(10 * 86_400_000)}
    now_ms = round(session.instant("2026-01-05T01:00").timestamp() * 1000)
    default = job.Retention(retention_ms=job.WEEK_MS, retention_bytes=-1)
    found = job.survey(spark, source, configs, default, now_ms)
    logs = {f"{log.topic}-{log.partition}": log for log in kraftlog.LogDir(source).partitions() if not log.is_internal}
    assert {f"{partition.topic}-{partition.partition}": partition.size_bytes for partition in found} == {
        name: log.size_bytes for name, log in logs.items()
    }
    expected = json.loads((data / "expected.json").read_text())
    for topic, facts in expected.items():
        assert sum(partition.records for partition in found if partition.topic == topic) == facts["count"]
    ratios = job.compression_ratios(spark, source, 3)
    assert ratios["audit"] == pytest.approx(1)
    assert ratios["orders"] > 2
    short = job.survey(spark, source, {}, job.Retention(retention_ms=0, retention_bytes=-1), now_ms)
    assert all(partition.deletable_bytes == partition.size_bytes for partition in short)
    job.report(found, ratios, by_partition=False)
    job.report(found, {}, by_partition=True)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(expected) + len(logs)
    job.plot(found, tmp_path / "sizes.png", now_ms)
    assert is_picture(tmp_path / "sizes.png")


# metadata_report


def test_the_history_of_a_cluster(spark: SparkSession, data: Path, tmp_path: Path, capsys: Any) -> None:
    job = load("metadata_report")
    history = job.read_history(spark, str(data / "cluster"))
    events = job.chosen(history, 0, None)
    kinds = Counter(event.kind for event in events)
    assert kinds["topic"] == 3
    assert kinds["config"] == 6
    assert kinds["isr shrinks"] == kinds["isr grows"] > 50
    assert all(sorted(partition.states[-1][1]) == [1, 2, 3] for partition in history.partitions.values())
    assert Counter(event.subject for event in events if event.detail == "fenced") == {
        "broker 1": 1,
        "broker 2": 2,
        "broker 3": 1,
    }
    # Broker 2 was away for five hours: a third of the 12 partitions had it as their leader, all had it in sync.
    hours = {partition.under_replicated_ms(history.end_ms) // 3_600_000 for partition in history.partitions.values()}
    assert min(hours) == 5
    job.report(history, events, None)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[:4]] == [
        "topic",
        "orders",  # the most events first
        "clicks",
        "audit",
    ]
    job.plot(history, events, tmp_path / "history.png", None, 0)
    assert is_picture(tmp_path / "history.png")


def test_the_history_of_a_real_node(spark: SparkSession, data: Path) -> None:
    history = load("metadata_report").read_history(spark, str(data / "node"))
    leaders = [event for event in history.events if event.kind == "leader"]
    assert leaders, "the node was started twice"
    created = {event.subject for event in history.events if event.kind == "topic"}
    assert created >= set(json.loads((data / "expected.json").read_text()))


# all


@pytest.mark.parametrize("name", JOB_NAMES)
def test_each_job_explains_itself(name: str, spark_environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, JOBS / f"{name}.py", "--help"],
        capture_output=True,
        text=True,
        env=spark_environment,
        check=True,
    )
    assert done.stdout.startswith("usage: ")
    assert "--help" in done.stdout


@pytest.mark.slow
def test_spark_submit_runs_a_job(data: Path, tmp_path: Path, spark_environment: dict[str, str]) -> None:
    import pyspark

    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    environment = {**spark_environment, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_HOME": str(submit.parents[1])}
    done = subprocess.run(
        [
            *(submit, "--master", "local[1]", "--conf", "spark.ui.enabled=false", JOBS / "backfill.py"),
            *(data / "node", tmp_path / "out", "--topics", "audit", "--ship"),
        ],
        capture_output=True,
        text=True,
        env=environment,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1].split()[:3] == ["audit", "1", "800"]
    assert written(tmp_path / "out") == in_log(data / "node", ["audit"])
