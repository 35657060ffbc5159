"""The objects of a node are frozen in its own process, and left to the program where the node is embedded."""

from __future__ import annotations

import gc
import subprocess
import sys

from kraftlog.broker import Broker

SERVE = """
import gc, os, signal, sys
from pathlib import Path
from kraftlog.node.config import NodeConfig
from kraftlog.node.node import Node
from kraftlog.node.process import run_node
from kraftlog.node.standalone import format_when_needed, standalone_properties

def started(_node):
    print(gc.get_freeze_count())
    os.kill(os.getpid(), signal.SIGTERM)

config = NodeConfig(standalone_properties(Path(sys.argv[1]), port=0, is_durable=False, changes={}))
format_when_needed(config)
code = run_node(Node(config), started)
print(gc.get_freeze_count())
sys.exit(code)
"""


def test_node_that_is_the_process_freezes_its_heap_while_it_serves(tmp_path):
    served = subprocess.run(
        [sys.executable, "-c", SERVE, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    counts = [int(line) for line in served.stdout.splitlines()]
    assert counts[0] > 10_000
    assert counts[1] == 0


def test_embedded_broker_freezes_nothing(tmp_path):
    with Broker(tmp_path):
        assert gc.get_freeze_count() == 0
