"""What functions beside the decoder are given and give, and files of attempts; without a JVM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pip install kraftlog[spark]")

import pyarrow.parquet as pq

from kraftlog.spark.mapping import _conform, option_texts
from kraftlog.spark.parquet import _begun, _cleared, _committed, _write_task

SCHEMA = pa.schema([("n", pa.int64()), ("t", pa.string())])


def rows(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch({"offset": pa.array(numbers, pa.int64())})


def test_options_become_text() -> None:
    texts = option_texts(
        [Path("a"), "b"],
        {"subscribe": ["t", "u"], "failOnDataLoss": False, "minPartitions": 3, "startingOffsets": {"t": {"0": 1}}},
    )
    assert json.loads(texts.pop("paths")) == ["a", "b"]
    assert texts == {
        "subscribe": "t,u",
        "failOnDataLoss": "false",
        "minPartitions": "3",
        "startingOffsets": '{"t": {"0": 1}}',
    }
    for name in ("path", "columns", "pushdown", "maxOffsetsPerTrigger", "nothing"):
        with pytest.raises(ValueError, match=f"unknown option {name}"):
            option_texts("a", {name: "1"})
    with pytest.raises(ValueError, match="option subscribe is text"):
        option_texts("a", {"subscribe": 1.5})


def test_results_get_the_types_of_the_schema_or_an_error() -> None:
    table = pa.table({"t": ["a", "b"], "n": pa.array([1, 2], pa.int32())})
    found = pa.Table.from_batches(_conform(table, SCHEMA))
    assert found.schema == SCHEMA
    assert found.to_pydict() == {"n": [1, 2], "t": ["a", "b"]}
    with pytest.raises(ValueError, match="fn returned the columns n, the schema has n, t"):
        list(_conform(table.select(["n"]), SCHEMA))
    with pytest.raises(TypeError, match="not dict"):
        list(_conform({"n": 1}, SCHEMA))
    with pytest.raises(pa.ArrowInvalid):
        list(_conform(pa.record_batch({"n": ["x"], "t": ["a"]}), SCHEMA))


def write(place: Path, task: int, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
    return [row for batch in _write_task(str(place), "job", task, iter(batches), "snappy") for row in batch.to_pylist()]


def test_of_two_attempts_one_counts_and_nothing_is_left(tmp_path: Path) -> None:
    place = tmp_path / "out"
    _begun(str(place), "job", "error")()
    (lost,) = write(place, 0, rows(1, 2), rows(3))
    (won,) = write(place, 0, rows(1, 2), rows(3))
    (other,) = write(place, 1, rows(4))
    assert write(place, 2) == []
    assert lost["temporary"] != won["temporary"]
    assert (won["rows"], won["name"]) == (3, "part-00000-job.parquet")
    assert won["bytes"] == Path(won["temporary"]).stat().st_size
    moves = [(attempt["temporary"], attempt["name"]) for attempt in (won, other)]
    _committed(str(place), "job", "error", moves, ["offset"])()
    assert sorted(path.name for path in place.iterdir()) == [
        "_SUCCESS",
        "part-00000-job.parquet",
        "part-00001-job.parquet",
    ]
    assert pq.read_table(place)["offset"].to_pylist() == [1, 2, 3, 4]


def test_an_attempt_that_fails_removes_its_file(tmp_path: Path) -> None:
    _begun(str(tmp_path), "job", "error")()
    beside = write(tmp_path, 7, rows(1))  # of another task of the job
    big = pa.record_batch({"offset": pa.array(range(9_000_000), pa.int64())})  # a whole row group before the failure
    with pytest.raises(OSError, match="no more"):
        list(_write_task(str(tmp_path), "job", 3, iter_then_fail(big), "none"))
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert left == [Path(beside[0]["temporary"])]
    (tmp_path / "_temporary" / "other").mkdir()
    _cleared(str(tmp_path), "job")()
    assert [path.name for path in (tmp_path / "_temporary").iterdir()] == ["other"]


@pytest.mark.parametrize("is_writing", [False, True])
def test_a_task_that_goes_on_after_its_job_failed_leaves_nothing(tmp_path: Path, is_writing: bool) -> None:
    """Spark ends a job with its first task that fails, while others run."""
    place = tmp_path / "out"
    _begun(str(place), "job", "error")()
    big = pa.record_batch({"offset": pa.array(range(9_000_000), pa.int64())})  # a whole row group

    def batches() -> Any:
        if is_writing:
            yield big
        _cleared(str(place), "job")()
        yield rows(1)

    with pytest.raises(OSError):
        list(_write_task(str(place), "job", 0, batches(), "none"))
    assert list(place.iterdir()) == []


def iter_then_fail(batch: pa.RecordBatch) -> Any:
    yield batch
    raise OSError("no more")
