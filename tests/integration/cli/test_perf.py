"""``kraftlog perf`` against a node of this process: every client, what it reports, and how it fails."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kraftlog
from kraftlog.cli.__main__ import main
from kraftlog.cli.perf_meter import PerfMeter, percentiles_ms

pa = pytest.importorskip("pyarrow")
MODULES = {"confluent": "confluent_kafka", "kafka-python": "kafka", "aiokafka": "aiokafka"}
RECORDS = 3000
PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "benchmark.md"


@pytest.fixture(scope="module")
def broker():
    with kraftlog.Broker() as node:
        yield node


def perf(broker, capsys, verb, topic, *arguments):
    status = main(
        ["perf", verb, "--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--json", *arguments]
    )
    printed = capsys.readouterr()
    assert status == 0, printed.err
    return json.loads(printed.out)


@pytest.mark.parametrize("client", ["kraftlog", "kraftlog-records", "confluent", "aiokafka", "kafka-python"])
def test_each_client_sends_and_reads_all_records(broker, capsys, client):
    pytest.importorskip(MODULES.get(client, "kraftlog"))
    topic = f"perf-{client}"
    broker.create_topic(topic, partitions=2)
    connections = 2 if client == "kraftlog" else 1
    common = ("--client", client, "--connections", str(connections), "--records", str(RECORDS))
    sent = perf(broker, capsys, "produce", topic, *common, "--value-bytes", "50")
    read = perf(broker, capsys, "fetch", topic, *common)
    for found in (sent, read):
        assert (found["records"], found["bytes"]) == (RECORDS, RECORDS * 50)
        assert found["cpu_s"] > 0
        assert 0 < found["p50_ms"] <= found["p99_ms"]
        assert found["records_per_s"] == pytest.approx(RECORDS / found["seconds"], rel=0.01)
        assert sum(row["records"] for row in found["per_connection"]) == RECORDS
    assert len(sent["per_connection"]) == connections
    assert kraftlog.read(broker.bootstrap_servers, topic).polars().collect().height == RECORDS


def test_the_rate_is_kept_and_files_hold_the_result(broker, capsys, tmp_path):
    import pyarrow.parquet as pq

    output = tmp_path / "perf.parquet"
    found = perf(
        broker, capsys, "produce", "paced", "--records", "500", "--rate", "1000", "--client", "kraftlog-records",
        "--output", str(output), "--property", "linger.ms=1", "--property", "compression.type=zstd",
    )  # fmt: skip
    assert 0.4 < found["seconds"] < 60
    (row,) = pq.read_table(output).to_pylist()
    assert (row["records"], row["verb"], row["p50_ms"]) == (500, "produce", found["p50_ms"])
    output = tmp_path / "perf.json"
    found = perf(broker, capsys, "fetch", "paced", "--records", "900", "--output", str(output))
    assert found["records"] == 500  # no more are there
    assert json.loads(output.read_text()) == found


def test_a_failure_names_the_connection_and_its_reason(broker, capsys):
    where = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "t"]
    assert main(["perf", "produce", *where, "--property", "nothing=1"]) == 1
    assert "connection 0 failed: unknown settings of a producer: nothing" in capsys.readouterr().err
    assert main(["perf", "produce", *where, "--records", "0"]) == 1
    assert "--records" in capsys.readouterr().err
    assert main(["perf", "produce", *where, "--output", "x.csv"]) == 1
    assert "must end in .json or .parquet" in capsys.readouterr().err


def test_percentiles_of_several_connections_are_those_of_all_latencies():
    first, second = PerfMeter(10), PerfMeter(10)
    for number in range(1, 100):
        first.latency(number / 1000)
    second.latency(1.0)
    found = percentiles_ms([first.buckets, {str(bucket): count for bucket, count in second.buckets.items()}])
    assert found["p50_ms"] == pytest.approx(50, rel=0.03)
    assert found["p99_ms"] == pytest.approx(99, rel=0.03)
    assert found["p99.9_ms"] == pytest.approx(1000, rel=0.03)
    assert percentiles_ms([{}]) == {}


def test_a_terminal_shows_progress(broker):
    terminal, shown = pty.openpty()
    command = [sys.executable, "-m", "kraftlog", "perf", "produce", "--bootstrap-server", broker.bootstrap_servers]
    arguments = ["--topic", "shown", "--records", "900", "--rate", "600", "--client", "kraftlog-records"]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.DEVNULL, stderr=shown) as running:
        os.close(shown)
        text = b""
        while True:
            try:
                text += os.read(terminal, 4096)
            except OSError:  # the other end is closed
                break
        assert running.wait(30) == 0
    os.close(terminal)
    assert b"produce (kraftlog-records):" in text
    assert b"of 900 records" in text


def test_the_page_runs(broker, capsys):
    blocks = re.findall(r"(?:^    .*\n)+", PAGE.read_text(), re.MULTILINE)
    commands = [line.strip() for block in blocks for line in block.splitlines() if line.strip().startswith("kraftlog")]
    assert len(commands) >= 3
    for command in commands:
        if "--client java" in command:
            continue  # interop/test_perf_java.py runs that client
        words = command.replace("localhost:9092", broker.bootstrap_servers).replace("1000000", "2000").split()
        assert main([word for word in words[1:] if not word.startswith("--output")][: len(words)]) == 0
    assert "records_per_cpu_s" in capsys.readouterr().out
