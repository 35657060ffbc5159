"""``kraftlog dev``: a formatted single node on this machine, gone with its data when it stops."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from kraftlog.node.node import Node

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--port", type=int, default=9092, help="port on 127.0.0.1, 0 for a free one (default: 9092)")
    parser.add_argument("--host", default="127.0.0.1", help="address to bind (default: 127.0.0.1)")
    parser.add_argument("--data-dir", type=Path, help="keep the data here instead of in a temporary directory")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help="a setting, Kafka's keys")


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    from kraftlog.node.config import NodeConfig, parse_overrides
    from kraftlog.node.process import run_node
    from kraftlog.node.standalone import format_when_needed, standalone_properties

    is_temporary = args.data_dir is None
    data_dir = Path(tempfile.mkdtemp(prefix="kraftlog-dev-")) if is_temporary else args.data_dir
    try:
        config = NodeConfig(
            standalone_properties(
                data_dir,
                port=args.port,
                host=args.host,
                is_durable=False,
                changes=parse_overrides(args.override),
            )
        )
        format_when_needed(config)

        def started(node: Node) -> None:
            is_durable = config.get_bool("log.flush.on.ack")
            policy = "an acknowledgement waits for the disk" if is_durable else "acknowledged from the page cache"
            kept = "removed at the end" if is_temporary else "kept"
            print(
                f"kraftlog dev: bootstrap.servers={node.bootstrap_servers} data={data_dir} ({kept}) "
                f"log.flush.on.ack={str(is_durable).lower()} ({policy})",
                flush=True,
            )

        return run_node(Node(config), started)
    finally:
        if is_temporary:
            shutil.rmtree(data_dir, ignore_errors=True)
