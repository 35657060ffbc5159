"""The examples of docs/how-to/remote-logs.md run against an S3 server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import kraftlog
from batch_rows import GOLDEN
from s3_fixture import s3_server

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "remote-logs.md"
LEVELS = ("read_uncommitted", "read_committed")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.slow
def test_the_examples_of_the_page_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(EXAMPLES) == 2
    with s3_server() as server:
        # One golden topic under the name of the page.
        node = GOLDEN / "topics" / "node-1"
        server.upload(node / "g-none-0", "kafka-logs/orders-0")
        server.upload_file(node / "meta.properties", "kafka-logs/meta.properties")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        code = "\n".join([f"ENDPOINT = {server.endpoint!r}", *EXAMPLES])
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    log = kraftlog.open_log(node / "g-none-0")
    counts = [sum(map(len, log.scan(columns=[], isolation_level=level))) for level in LEVELS]
    middle = sum(map(len, log.scan(start_offset=100, end_offset=200, columns=["offset"])))
    lines = done.stdout.splitlines()
    assert [lines[0], lines[2], lines[-1]] == [str(counts[0]), str(middle), str(counts[1])]
    assert lines[1] == f"{log.log_start_offset} {log.log_end_offset} None {log.leader_epochs}"
    assert lines[4] == f"['orders'] {kraftlog.LogDir(node).cluster_id}"
