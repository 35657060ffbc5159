"""``kraftlog perf --client java``: Kafka's own ProducerPerformance and ConsumerPerformance against a node."""

from __future__ import annotations

import json

import pytest

import kraftlog
from kraftlog.cli.__main__ import main

RECORDS = 3000
VALUE_BYTES = 50


@pytest.mark.slow
def test_java_clients_send_and_read_all_records(java, monkeypatch, capsys):
    monkeypatch.setenv("KAFKA_LIBS", java.libs)
    found = []
    with kraftlog.Broker() as broker:
        broker.create_topic("perf", partitions=2)
        common = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "perf", "--client", "java", "--json"]
        common += ["--records", str(RECORDS)]
        for verb, *more in (["produce", "--value-bytes", str(VALUE_BYTES)], ["fetch"]):
            status = main(["perf", verb, *common, *more])
            printed = capsys.readouterr()
            assert status == 0, printed.err
            found.append(json.loads(printed.out))
    for row in found:
        assert (row["client"], row["records"]) == ("java", RECORDS)
        assert row["cpu_s"] > 0.1, "the CPU time of the JVM"
    sent, read = found
    assert sent["bytes"] == RECORDS * VALUE_BYTES
    assert 0 <= sent["p50_ms"] <= sent["p99_ms"]
    # ConsumerPerformance reports MB with four decimals.
    assert abs(read["bytes"] - RECORDS * VALUE_BYTES) <= 2**20 / 10**4
