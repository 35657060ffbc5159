"""franz-go produces and consumes: each codec and each acks, consumer groups with committed offsets; its own tests.

`.ci/dev franz` builds the client and runs this; nothing else needs Go.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

import kraftlog
from interop.conftest import ServerFactory
from interop.harness import Server

OWN_TESTS = os.environ.get("KRAFTLOG_FRANZ_TESTS")
OWN_SOURCE = os.environ.get("KRAFTLOG_FRANZ_SOURCE")
CHAINS = ("TestGroupETL", "TestTxnEtl", "TestShareGroupETL")
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


def own_tests(server: Server, folder: str | Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run tests of franz-go against a server and print what they report."""
    assert OWN_TESTS is not None
    server.start()
    done = subprocess.run(
        [OWN_TESTS, "-test.v", "-test.timeout", "800s", *arguments],
        env={**os.environ, "KGO_SEEDS": server.bootstrap, "KGO_TEST_RF": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.lstrip().startswith("--- ") or "_test.go" in line]
    print("\n".join(lines[-40:]))
    return done


@pytest.fixture
def server(server_factory: ServerFactory) -> Server:
    share = "share.coordinator.state.topic"
    config = {f"{share}.replication.factor": "1", f"{share}.min.isr": "1", f"{share}.num.partitions": "4"}
    return server_factory(config=config)


@pytest.mark.skipif(OWN_TESTS is None, reason="KRAFTLOG_FRANZ_TESTS names no program; .ci/dev franz builds it")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CHAINS)
def test_own_tests_of_franz_go_pass(server, tmp_path, name):
    """Chains of groups of both protocols, of transactions and of share groups, whose members come and go."""
    done = own_tests(server, tmp_path, "-test.run", f"^{name}$")
    assert done.returncode == 0
    assert f"--- PASS: {name} " in done.stdout


@pytest.mark.skipif(OWN_TESTS is None, reason="KRAFTLOG_FRANZ_TESTS names no program; .ci/dev franz builds it")
@pytest.mark.timeout(900)
def test_all_other_tests_of_franz_go_pass(server):
    """They run in the folder of their source, which one of them reads. Skipped: two for SASL, one for old brokers."""
    assert OWN_SOURCE is not None
    done = own_tests(server, OWN_SOURCE, "-test.skip", f"^({'|'.join(CHAINS)})$")
    assert done.returncode == 0
    found = re.findall(r"^--- (PASS|FAIL|SKIP): ", done.stdout, re.MULTILINE)
    assert (found.count("FAIL"), found.count("SKIP")) == (0, 3)
    assert found.count("PASS") > 100
