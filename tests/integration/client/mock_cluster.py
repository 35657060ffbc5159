"""librdkafka's mock cluster in a process of its own, as one of its assertions would end the whole process."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

PROGRAM = """
import sys, confluent_kafka
producer = confluent_kafka.Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 3, "log_level": 0})
brokers = producer.list_topics(timeout=20).brokers.values()
print(",".join(f"{broker.host}:{broker.port}" for broker in brokers), flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def mock_cluster() -> Iterator[str]:
    """The ``bootstrap.servers`` of three mock brokers."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        bootstrap = process.stdout.readline().strip()
        assert bootstrap, f"the mock cluster ended with {process.wait(10)}"
        yield bootstrap
        assert process.poll() is None, f"the mock cluster ended with {process.returncode} during the test"
    finally:
        process.stdin.close()
        process.kill()
        process.wait()
