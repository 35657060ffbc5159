"""The process of one node of a ``kraftlog.Cluster``; it ends when its parent is gone.

    python -m kraftlog.cluster.member FILE

The parent holds the other end of this process's stdin. If the parent dies, however suddenly, stdin ends, and so does
the node: SIGTERM first, SIGKILL when a controlled shutdown takes too long.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

from kraftlog.cluster.node_process import STARTED
from kraftlog.errors import KraftlogError
from kraftlog.node.config import NodeConfig
from kraftlog.node.node import Node
from kraftlog.node.process import run_node

__all__ = ["main"]

_GRACE_S = 15.0


def main(arguments: Sequence[str]) -> int:
    """Run the node whose properties file is the one argument.

    Returns:
        The exit status: 0 after a graceful stop, 1 after a failure, which is printed.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    threading.Thread(target=_end_with_parent, name="kraftlog-parent-watch", daemon=True).start()

    def started(node: Node) -> None:
        sys.stdout.write(f"{STARTED} node {node.config.node_id} at {node.bootstrap_servers}\n")
        sys.stdout.flush()

    try:
        return run_node(Node(NodeConfig.load(arguments[0], [])), started)
    except (KraftlogError, OSError) as error:
        sys.stderr.write(f"kraftlog cluster member: {error}\n")
        return 1


def _end_with_parent() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_S)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
