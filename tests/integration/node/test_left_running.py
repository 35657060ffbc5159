"""Nodes that were started without ``with`` and never closed: nothing of them stays."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kraftlog

ROOT = Path(__file__).resolve().parents[3]


def run(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("ending", ["", "sys.exit(0)", "del broker", "import multiprocessing, concurrent.futures"])
def test_a_broker_that_runs_at_the_end_of_the_interpreter_leaves_no_directory(ending):
    code = (
        "import sys, kraftlog\nbroker = kraftlog.Broker().start()\nbroker.create_topic('t')\nprint(broker.data_dir)\n"
    )
    directory = run(code + ending)
    assert directory
    assert not Path(directory).exists()


def test_a_broker_with_data_stops_cleanly_at_the_end_of_the_interpreter(tmp_path):
    run("import sys, kraftlog\nbroker = kraftlog.Broker(sys.argv[1]).start()\nbroker.create_topic('t')", str(tmp_path))
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_forked_child_leaves_the_broker_of_its_parent_alone():
    code = """
import os, sys, threading, warnings, kraftlog
warnings.simplefilter("ignore")
broker = kraftlog.Broker().start()
child = os.fork()
if child == 0:
    threading._shutdown()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
broker.create_topic("after")
print("served")
"""
    assert run(code) == "served"


def test_a_quorum_that_runs_at_the_end_of_the_interpreter_releases_its_directory(tmp_path):
    code = """
import sys, kraftlog
class Nothing(kraftlog.StateMachine):
    def apply(self, batch): return None
    def snapshot(self): return []
    def restore(self, records): list(records)
quorum = kraftlog.Quorum(Nothing(), data_dir=sys.argv[1]).start()
quorum.propose([b"command"])
"""
    run(code, str(tmp_path))
    run(code, str(tmp_path))


def test_a_broker_that_was_dropped_does_not_trouble_the_end_of_the_interpreter():
    code = """
import time, kraftlog
broker = kraftlog.Broker().start()
directory = broker.data_dir
del broker
while directory.exists(): time.sleep(0.01)
"""
    assert run(code) == ""


def test_a_broker_that_nothing_refers_to_stops():
    broker = kraftlog.Broker().start()
    host, port = broker.bootstrap_servers.split(":")
    directory = broker.data_dir
    del broker
    deadline = time.monotonic() + 30
    while directory.exists():
        assert time.monotonic() < deadline, f"{directory} is still there"
        time.sleep(0.01)
    with socket.socket() as client:
        assert client.connect_ex((host, int(port))) != 0


def test_the_fixtures_of_the_page_serve_parametrized_tests(tmp_path):
    (block,) = re.findall(r"(?:^ {4}.*\n|^\n)+", (ROOT / "docs" / "how-to" / "pytest.md").read_text(), re.MULTILINE)[:1]
    (tmp_path / "conftest.py").write_text(re.sub(r"^ {4}", "", block, flags=re.MULTILINE))
    (tmp_path / "test_orders.py").write_text(
        "import pytest\n\n"
        "@pytest.mark.parametrize('name', ['eu', 'a b/c', 'x' * 300])\n"
        "def test_orders(topic, kafka, name):\n"
        "    assert topic.startswith('test_orders_') and kafka.bootstrap_servers\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert "3 passed" in done.stdout, done.stdout
