"""Executors that have pyspark and pyarrow, and no kraftlog, run what `ship` sends them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kraftlog
from batch_rows import GOLDEN
from interop.spark.clusters import SparkProcesses, python_without_kraftlog, spark_processes
from kraftlog.spark.metadata import plan_metadata, read_metadata
from kraftlog.spark.metadata_tables import METADATA_TABLES, latest_rows
from kraftlog.spark.options import SourceOptions

NODE = GOLDEN / "topics" / "node-1"
KRAFT = GOLDEN / "kraft" / "logs" / "standalone" / "03-restarted" / "node-1"
PACKAGES = Path(kraftlog.__file__).parents[1]
DRIVER = Path(__file__).with_name("ship_driver.py")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # several JVMs start, on whatever machine this is


@pytest.fixture(scope="module")
def executor_python(spark_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python_without_kraftlog(tmp_path_factory.mktemp("executors") / "python")


def drive(processes: SparkProcesses, url: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        processes.drive(DRIVER, str(PACKAGES), url, str(NODE), str(KRAFT)).splitlines()[-1]
    )
    return found


def expected_rows() -> list[list[Any]]:
    scan = kraftlog.scan(NODE, topics=["g-none", "g-zstd"], columns=["topic", "offset", "value_length"])
    sums = pa.table(scan).group_by("topic").aggregate([([], "count_all"), ("offset", "sum"), ("value_length", "sum")])
    return sorted(
        list(row.values()) for row in sums.select(["topic", "count_all", "offset_sum", "value_length_sum"]).to_pylist()
    )


def expected_topics() -> list[str]:
    options = SourceOptions.parse({"path": str(KRAFT)})
    rows = read_metadata(plan_metadata(options, "both", "topics"), options, "topics")
    return sorted(str(row["topic"]) for row in latest_rows(METADATA_TABLES["topics"], rows))


def check(found: dict[str, Any], executor_python: Path, session: str) -> None:
    assert "No module named 'kraftlog'" in found["before"]
    shipped = found["shipped"]
    assert shipped["session"] == session
    assert shipped["files"][0] == "_kraftlog.abi3.so"
    assert found["again"]
    assert found["rows"] == expected_rows()
    assert found["decoded"] == len(pa.table(kraftlog.open_log(NODE / "g-zstd-0").scan()))
    rows = sum(count for _, count, _, _ in expected_rows())
    assert found["mapped"] == found["frame"] == rows
    assert found["parquet"] == [rows, rows]
    assert found["metadata"] == expected_topics() != []
    assert found["offsets"] > 0
    assert found["python"] == [str(executor_python)]
    package, library = found["package"], found["library"]
    assert all(path.endswith(f"/{shipped['files'][1]}/kraftlog/__init__.py") for path in package)
    assert all(path.endswith("/_kraftlog.abi3.so") for path in library)
    assert not any(path.startswith(str(PACKAGES)) for path in (*package, *library))
    if session == "classic":
        assert found["stream"] == rows
    else:
        assert "No module named 'kraftlog': streaming queries of Spark Connect do not see" in found["stream"]
        assert "install the kraftlog wheel on the server" in found["stream"]


def test_a_standalone_cluster(executor_python: Path, tmp_path: Path) -> None:
    with spark_processes(tmp_path / "spark", executor_python) as processes:
        url = processes.standalone()
        check(drive(processes, url), executor_python, "classic")


def test_a_local_cluster(executor_python: Path, tmp_path: Path) -> None:
    with spark_processes(tmp_path / "spark", executor_python) as processes:
        check(drive(processes, "local-cluster[2,1,700]"), executor_python, "classic")


def test_spark_connect(executor_python: Path, tmp_path: Path) -> None:
    for name in ("grpc", "grpc_status", "google.rpc"):
        pytest.importorskip(name, reason="pip install pyspark[connect]")
    with spark_processes(tmp_path / "spark", executor_python) as processes:
        check(drive(processes, processes.connect_server()), executor_python, "connect")
