"""franz-go produces and consumes: each codec and each acks, consumer groups with committed offsets.

`.ci/dev franz` builds the client and runs this; nothing else needs Go.
"""

from __future__ import annotations

import os
import subprocess

import pytest

import kraftlog

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
