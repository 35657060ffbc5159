"""franz-go produces and consumes: each codec and each acks, consumer groups with committed offsets; its own tests.

`.ci/dev franz` builds the client and runs this; nothing else needs Go.
"""

from __future__ import annotations

import os
import subprocess

import pytest

import kraftlog
from interop.conftest import ServerFactory

OWN_TESTS = os.environ.get("KRAFTLOG_FRANZ_TESTS")
PROGRAM = os.environ.get("KRAFTLOG_FRANZ")
RECORDS = os.environ.get("KRAFTLOG_INTEROP_RECORDS", "100000")


@pytest.mark.skipif(PROGRAM is None, reason="KRAFTLOG_FRANZ names no client; .ci/dev franz builds it")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("data_path", ["native", "python"])
def test_franz_go_reads_what_it_wrote(tmp_path, data_path):
    assert PROGRAM is not None
    with kraftlog.Broker(tmp_path, kraftlog_data_path=data_path) as broker:
        done = subprocess.run(
            [PROGRAM, broker.bootstrap_servers, RECORDS], capture_output=True, text=True, timeout=500, check=False
        )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(OWN_TESTS is None, reason="KRAFTLOG_FRANZ_TESTS names no program; .ci/dev franz builds it")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["TestGroupETL", "TestTxnEtl", "TestShareGroupETL"])
def test_own_tests_of_franz_go_pass(server_factory: ServerFactory, tmp_path, name):
    """Chains of groups of both protocols, of transactions and of share groups, whose members come and go."""
    assert OWN_TESTS is not None
    share = "share.coordinator.state.topic"
    config = {f"{share}.replication.factor": "1", f"{share}.min.isr": "1", f"{share}.num.partitions": "4"}
    server = server_factory(config=config)
    server.start()
    done = subprocess.run(
        [OWN_TESTS, "-test.v", "-test.timeout", "800s", "-test.run", f"^{name}$"],
        env={**os.environ, "KGO_SEEDS": server.bootstrap, "KGO_TEST_RF": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.lstrip().startswith("--- ") or "_test.go" in line]
    print("\n".join(lines[-40:]))
    assert done.returncode == 0
    assert f"--- PASS: {name} " in done.stdout
