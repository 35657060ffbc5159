"""``kraftlog server-start``: run a node from a server.properties file, as ``kafka-server-start`` does."""

from __future__ import annotations

import argparse

from kraftlog.node.node import Node

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("properties", metavar="server.properties", help="configuration file, Kafka's keys")
    parser.add_argument(
        "--override", action="append", default=[], metavar="KEY=VALUE", help="a setting that wins over the file's"
    )
    parser.add_argument(
        "--environment",
        action="store_true",
        help="lay KAFKA_* variables over the file, as the official container image does (KAFKA_LOG_DIRS is log.dirs)",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    from kraftlog.node.config import NodeConfig, environment_overrides
    from kraftlog.node.process import run_node

    overrides = list(args.override)
    if args.environment:
        overrides = [f"{key}={value}" for key, value in environment_overrides().items()] + overrides
    config = NodeConfig.load(args.properties, overrides)

    def started(node: Node) -> None:
        listeners = ", ".join(str(end_point) for end_point in node.end_points())
        flush = "waits for" if config.get_bool("log.flush.on.ack") else "does not wait for"
        print(
            f"kraftlog node {config.node_id} of cluster {node.cluster_id} started: {listeners}; "
            f"data in {', '.join(map(str, config.log_dirs))}; an acknowledgement {flush} the disk "
            f"(log.flush.on.ack={str(config.get_bool('log.flush.on.ack')).lower()})",
            flush=True,
        )

    return run_node(Node(config), started)
